"""The nodes of a Structure in Python, and the differences between two Structures."""

from typing import Any

import jax.numpy as jnp
import pytest

from filterjit import _core
from filterjit._trees._nodes import Nodes
from filterjit._trees._registry import registry

X, Y = jnp.zeros(2), jnp.ones(3)


def nodes_of(tree: Any) -> Nodes:
    return Nodes(_core.flatten(registry, tree)[1])


class Raises:
    def __eq__(self, other: object) -> bool:
        raise ValueError("no answer")

    def __hash__(self) -> int:
        return 1


class Interrupts:
    def __eq__(self, other: object) -> bool:
        raise KeyboardInterrupt

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ((X, 1, "a"), (Y, 1, "a"), []),
        ((X, 1, "a"), (Y, 2, "b"), [(2, 2), (3, 3)]),
        ([X, [1, 2, 3], 4], [X, [1, 2], 5], [(2, 2), (6, 5)]),
        ([X, 1], [X, Y], [(2, 2)]),
        ([[X, X], X, 1], [None, Y, 2], [(1, 1), (5, 3)]),
        ({"a": X, "b": 1, "c": X}, {"b": 2, "c": X, "d": X}, [(0, 0), (2, 1)]),
        ([{"a": 1}, 2], [{"b": 1}, 3], [(1, 1), (3, 3)]),
        ([{"a": [X, 1]}, X, 2], [{"a": [X, 2], "b": X}, X, 3], [(1, 1), (4, 4), (6, 7)]),
        (1, True, [(0, 0)]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        ([Raises(), X], [Raises(), X], [(1, 1)]),
    ],
)  # fmt: skip
def test_differences(was: Any, now: Any, expected: Any) -> None:
    one, other = nodes_of(was), nodes_of(now)
    assert one.differences(other, most=100) == (expected, 0)
    assert one.differences(one, most=100) == ([], 0)


def test_avals_are_compared_too() -> None:
    one, other = nodes_of([X, 1, X, X]), nodes_of([X, 2, X, X])
    assert one.differences(other, "abc", "ade", 1) == ([(2, 2), (3, 3)], 1)
    assert one.differences(other, (), "a", 5)[0] == [(2, 2)], "those of other arrays are left out"
    one, other = nodes_of([X]), nodes_of([X])
    assert one.differences(other, [Raises()], [Raises()]) == ([(1, 1)], 0)


def test_an_interrupt_of_a_comparison_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        nodes_of(Interrupts()).differences(nodes_of(Interrupts()))
