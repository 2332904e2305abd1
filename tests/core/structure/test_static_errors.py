"""Errors of statics: what they raise, and the operation and path in their context."""

import gc
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Hostile,
    Keyed,
    Linear,
    Point,
    Record,
    Unhashable,
    core,
    testing,
)
from node_support import Ambiguous
from outcome_support import fail


@pytest.mark.parametrize(
    "value", [set(), bytearray(), Unhashable()], ids=lambda x: type(x).__name__
)
def test_unhashable_leaf(registry: Any, value: Any) -> None:
    tree = {"a": [1, Point(Array(), value)]}
    _, structure = core.flatten(registry, tree)
    for _ in range(2):
        with pytest.raises(TypeError, match="unhashable") as info:
            hash(structure)
        operation, path, value_of_error = info.value.__filterjit_error_context__  # type: ignore[attr-defined]
        assert (operation, path) == ("hash", [("a",), (1,), "y"]) and value_of_error is value
    with pytest.raises(TypeError, match="unhashable"):
        testing.match(structure, tree)


def test_hash_that_fails(registry: Any) -> None:
    bad = Hostile(on_hash=fail)
    _, structure = core.flatten(registry, Linear(weight=[1, bad]))
    with pytest.raises(ZeroDivisionError) as info:
        hash(structure)
    assert info.value.__filterjit_error_context__ == ("hash", ["weight", (1,)], bad)  # type: ignore[attr-defined]


def test_eq_that_fails(registry: Any) -> None:
    bad = Hostile(on_eq=fail)
    _, one = core.flatten(registry, [1, bad])
    _, two = core.flatten(registry, [1, Hostile()])
    hash(one), hash(two)
    with pytest.raises(ZeroDivisionError) as info:
        one == two  # noqa: B015
    operation, path, _ = info.value.__filterjit_error_context__  # type: ignore[attr-defined]
    assert (operation, path) == ("compare", [(1,)])
    with pytest.raises(ZeroDivisionError):
        testing.match(one, [1, Hostile()])


def test_eq_whose_answer_has_no_truth(registry: Any) -> None:
    _, structure = core.flatten(registry, [Hostile(equal=Ambiguous())])
    with pytest.raises(ValueError, match="ambiguous"):
        testing.match(structure, [Hostile()])


def test_a_key_that_fails_at_a_path(registry: Any) -> None:
    keyed = Keyed(1)
    del keyed.key
    _, structure = core.flatten(registry, Record(0, keyed, 0))
    with pytest.raises(AttributeError) as info:
        hash(structure)
    assert info.value.__filterjit_error_context__[:2] == ("hash", ["other"])  # type: ignore[attr-defined]


def test_exceptions_that_take_no_attributes(registry: Any) -> None:
    class Bare(Exception):
        def __setattr__(self, name: str, value: Any) -> None:
            raise RuntimeError("no attributes")

    def fail_bare() -> None:
        raise Bare

    _, structure = core.flatten(registry, [Hostile(on_hash=fail_bare)])
    with pytest.raises(Bare):
        hash(structure)


def test_flatten_with_keys_that_fails(registry: Any) -> None:
    bad = Box([], hook=fail)
    with pytest.raises(ZeroDivisionError) as info:
        core.flatten(registry, {"k": (1, [bad])})
    assert info.value.__filterjit_error_context__ == ("flatten", [("k",), (1,), (0,)], bad)  # type: ignore[attr-defined]


def test_hash_that_fails_after_another_has_succeeded(registry: Any) -> None:
    def hook() -> None:
        bad.on_hash = None
        hash(structure)
        fail()

    bad = Hostile(on_hash=hook)
    _, structure = core.flatten(registry, [1, bad])
    with pytest.raises(ZeroDivisionError):
        hash(structure)
    assert hash(structure) == hash(core.flatten(registry, [1, Hostile()])[1])


class Last:
    """Runs code when a snapshot drops it."""

    def __del__(self) -> None:
        gc.collect()
        hash(structures[0])


structures: list[Any] = []


def test_what_a_failed_hash_has_taken_is_dropped_while_others_look(registry: Any) -> None:
    value, bad = [Last()], Hostile(on_hash=fail)
    structures[:] = [core.flatten(registry, [Linear(size=value), bad])[1]]
    with pytest.raises(ZeroDivisionError):
        hash(structures[0])
    value[:] = [1]  # type: ignore[list-item]
    bad.on_hash = None
    other = core.flatten(registry, [Linear(size=[1]), Hostile()])[1]
    assert hash(structures[0]) == hash(other)
    assert testing.match(structures.pop(), [Linear(size=[1]), Hostile()]) == ()
