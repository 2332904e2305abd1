"""What reports ask of a Structure: nodes, statics, and the differences from another one."""

from typing import Any

import pytest
from core_support import Array, Linear, core


def flat(registry: Any, tree: Any) -> Any:
    return core.flatten(registry, tree)[1]


X, Y = Array(), Array()


class Raises:
    def __eq__(self, other: object) -> bool:
        raise ValueError("no answer")

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ((X, 1, "a"), (Y, 1, "a"), []),
        ((X, 1, "a"), (Y, 2, "b"), [(2, 2, 1, 1), (3, 3, 1, 1)]),
        ([X, [1, 2, 3], 4], [X, [1, 2], 5], [(2, 2, 1, 1), (6, 5, 1, 1)]),
        ([X, 1], [X, Y], [(2, 2, 1, 1)]),
        ([[X, X], X, 1], [None, Y, 2], [(1, 1, 0, 0), (5, 3, 3, 1)]),
        ({"a": X, "b": 1, "c": X}, {"b": 2, "c": X, "d": X}, [(0, 0, 0, 0), (2, 1, 1, 0)]),
        ([{"a": 1}, 2], [{"b": 1}, 3], [(1, 1, 0, 0), (3, 3, 0, 0)]),
        ([{"a": [X, 1]}, X, 2], [{"a": [X, 2], "b": X}, X, 3],
         [(1, 1, 0, 0), (4, 4, 1, 1), (6, 7, 2, 3)]),
        (1, True, [(0, 0, 0, 0)]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
    ],
)  # fmt: skip
def test_differences(registry: Any, was: Any, now: Any, expected: Any) -> None:
    one, other = flat(registry, was), flat(registry, now)
    assert one._differences(other, None, None, 100) == (expected, 0)
    assert one._differences(one, None, None, 100) == ([], 0)


def test_the_number_of_differences_is_limited(registry: Any) -> None:
    one, other = flat(registry, list(range(10))), flat(registry, list(range(1, 11)))
    pairs, more = one._differences(other, None, None, 3)
    assert [pair[:2] for pair in pairs] == [(1, 1), (2, 2), (3, 3)] and more == 7
    assert one._differences(other, None, None, 0) == ([], 10)


def test_avals_are_compared_too(registry: Any) -> None:
    one, other = flat(registry, [X, 1, X, X]), flat(registry, [X, 2, X, X])
    pairs, more = one._differences(other, ("a", "b", "c"), ("a", "d", "e"), 1)
    assert pairs == [(2, 2, 1, 1), (3, 3, 1, 1)] and more == 1
    # Those of other arrays are left out.
    assert one._differences(other, (), ("a",), 5)[0] == [(2, 2, 1, 1)]


def test_errors_of_comparisons(registry: Any) -> None:
    one, other = flat(registry, [Raises(), X]), flat(registry, [Raises(), X])
    assert one._differences(other, None, None, 5) == ([(1, 1, 0, 0)], 0)
    assert flat(registry, [X])._differences(flat(registry, [X]), (Raises(),), (Raises(),), 5)[0]

    class Interrupts(Raises):
        def __eq__(self, other: object) -> bool:
            raise KeyboardInterrupt

        __hash__ = Raises.__hash__

    one, other = flat(registry, Interrupts()), flat(registry, Interrupts())
    with pytest.raises(KeyboardInterrupt):
        one._differences(other, None, None, 5)
    for arguments in (("no structure", None, None, 1), (one, None, None), ()):
        with pytest.raises(TypeError):
            one._differences(*arguments)


def test_lineage(registry: Any) -> None:
    structure = flat(registry, {"a": [X, {"b": 1}], "c": 2})
    nodes = structure._nodes()
    found = structure._lineage(4)
    assert [index for index, _ in found] == [0, 1, 3, 4]
    assert all(nodes[index] == node for index, node in found)
    assert [node[4] for _, node in found] == [None, ("a",), (1,), ("b",)]
    with pytest.raises(IndexError, match="no such node"):
        structure._lineage(len(nodes))
    for index in (-1, "a"):
        with pytest.raises((TypeError, OverflowError)):
            structure._lineage(index)


def test_statics(registry: Any) -> None:
    held = Raises()
    structure = flat(registry, [X, 1, "a", None, 2.0, True, b"", 1j, held, len])
    assert structure._statics() == [(9, held), (10, len)] == structure._statics(True)


def test_held(registry: Any) -> None:
    one, other = bytearray(b"a"), bytearray(b"b")
    static = {"a": (other, [2])}
    structure = flat(registry, Linear(weight=X, bias=1, size=[one], activation=static))
    assert [id(x) for x in structure._held(bytearray)] == [id(one), id(other)]
    assert structure._held(dict) == [static]
    with pytest.raises(TypeError, match="expected a type"):
        structure._held("a")
