"""Keys of dicts are compared exactly, and sorted except in an OrderedDict."""

import collections
import math
from typing import Any

import pytest
from core_support import Array, Linear, core, testing
from outcome_support import raised
from statics_support import Factory, MyStr, check_all_differ


def test_str_subclasses(registry: Any) -> None:
    """They have equal hashes and are equal, so a dict finds one for the other."""
    x = Array()
    _, exact = core.flatten(registry, {"a": x})
    _, own = core.flatten(registry, {MyStr("a"): x})
    assert testing.match(exact, {MyStr("a"): x}) is None
    assert testing.match(own, {"a": x}) is None
    assert testing.match(own, {MyStr("a"): x}) == (x,)
    # This dict once held a subclass of str, and now holds only str.
    was: dict[Any, Any] = {MyStr("b"): 1, "a": x}
    del was["b"]
    assert testing.match(exact, was) == (x,)


@pytest.mark.parametrize(
    "keys", [(1, "a"), (None, 1), (object(), object()), ((1, "a"), (1, 2)), (1j, 2j)]
)
def test_keys_that_cannot_be_sorted(registry: Any, keys: tuple[Any, ...]) -> None:
    bad = dict.fromkeys(keys, 0)
    tree = [0, {"k": Linear(weight=Array(), bias=bad)}]
    with pytest.raises(TypeError, match="not supported") as info:
        core.flatten(registry, tree)
    operation, path, value = info.value.__filterjit_error_context__  # type: ignore[attr-defined]
    assert (operation, path) == ("sort", [(1,), ("k",), "bias"]) and value is bad
    error = raised(TypeError, core.tree_flatten, registry, tree, True, None)
    assert error.__notes__ == ["(while sorting the keys of the dict `[1]['k'].bias`)"]
    # An OrderedDict keeps its own order, which matters.
    own = collections.OrderedDict(bad)
    structure = core.flatten(registry, own)[1]
    assert testing.match(structure, own) == ()
    assert list(structure.unflatten(())) == list(keys)
    own.move_to_end(keys[0])
    assert testing.match(structure, own) is None
    # A match does not sort.
    _, structure = core.flatten(registry, {1: 0, 2: 0})
    assert testing.match(structure, bad) is None


def test_default_factory_matters(registry: Any) -> None:
    make: Any = collections.defaultdict
    factories = [int, list, None, Factory(1), Factory(2)]
    trees = [make(f, a=Array()) for f in factories]
    again = [make(Factory(f.value) if type(f) is Factory else f, a=0) for f in factories]
    for tree in again:
        tree["a"] = Array()
    check_all_differ(registry, trees, again)
    arrays, structure = core.flatten(registry, trees[0])
    built = structure.unflatten(arrays)
    assert built.default_factory is int and built == trees[0]


def test_nan_keys(registry: Any) -> None:
    tree = {math.nan: Array()}
    arrays, structure = core.flatten(registry, tree)
    assert testing.match(structure, tree) == arrays
    other = {float("nan"): Array()}
    assert testing.match(structure, other) == tuple(other.values())  # equal by its bits
