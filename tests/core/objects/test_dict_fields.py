"""A dict that an object holds in its own place, and dicts whose keys are compared."""

from typing import Any

import pytest
from core_support import Array, Frozen, Variable, core, identical, same, testing
from node_support import HeldMixed

# ---- dict fields ----


class _Sub(dict):  # type: ignore[type-arg]
    """A dict of another type, which can be a static leaf."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.mark.parametrize("value", [None, 1, [1], _Sub(k=1), "text"])
def test_a_dict_field_that_is_no_dict(registry: Any, value: Any) -> None:
    """Its class is flattened by its functions then."""
    tree = [Frozen({"k": Array(1)})]
    _, structure = core.flatten(registry, tree)
    odd = [Frozen(value)]
    assert testing.match(structure, odd) is None
    arrays, other = core.flatten(registry, odd)
    assert "custom" in [node[0] for node in other._nodes()]
    assert identical(testing.match(other, odd), arrays)
    assert other.unflatten(arrays)[0].items == value
    _, outer = core.tree_flatten(registry, tree, True, None)
    with pytest.raises(ValueError, match="differs"):
        outer._subtrees(odd)
    leaves, other = core.tree_flatten(registry, odd, True, None)
    assert identical(other._subtrees(odd), leaves)


def test_the_metadata_of_a_variable(registry: Any) -> None:
    tree = {"a": Variable(Array(1), kind="k"), "b": Variable({"w": Array(2)}, kind="k")}
    _, outer = core.tree_flatten(registry, tree, True, None)
    _, structure = core.flatten(registry, tree)
    assert structure._key_paths() == [[("a",)], [("b",), ("w",)]]
    for metadata, error in (
        ({"kind": "other"}, "kind"),
        ({"kind": "k", "more": 1}, "keys"),
        ([("kind", "k")], "differs"),
    ):
        tree["a"].metadata = metadata
        assert testing.match(structure, tree) is None
        with pytest.raises(ValueError, match=error):
            outer._subtrees(tree)


def test_dicts_that_are_all_static(registry: Any) -> None:
    """Each tree gets a copy, which may be changed."""
    for wrap in (lambda d: d, Frozen, lambda d: HeldMixed(items={}, x=1, meta=d, tag=d)):
        tree = [Array(0), wrap({"b": 1, "a": "text", "c": 2.5}), wrap({}), wrap({1: 2})]
        arrays, structure = core.flatten(registry, tree)
        first = structure.unflatten(arrays)
        assert same(first, tree)
        for x in first[1:]:
            for name in ("items", "meta"):
                found = x if type(x) is dict else getattr(x, name, {})
                if type(found) is dict:
                    found["new"] = 1
        assert same(structure.unflatten(arrays), tree)
        assert identical(testing.match(structure, tree), arrays)
