"""Nodes without children whose aux data is the node itself, as ``jax.tree_util.register_static``
makes them: they are compared as static values are, and never flattened in a match."""

from typing import Any

import pytest
from core_support import Array, Linear, Maybe, classify, core, make_registry
from hooks_support import Hooks, make_jit
from statics_support import Pair, key, matches, seen

flattened: list[Any] = []


class Other(Pair):
    pass


def flatten(x: Any) -> Any:
    flattened.append(x)
    return (), x


KEYS: dict[str, Any] = {
    "contents": {"key": key, "contents": ("a", "b")},
    "fixed": {"key": key, "fixed": True},
    "key": {"key": key},
    "by its ==": {},
}


@pytest.fixture(params=KEYS)
def registry(request: pytest.FixtureRequest) -> Any:
    kind = {"kind": "custom", "flatten": flatten, "is_its_aux": True} | KEYS[request.param]
    return make_registry(
        classify=lambda cls, x: kind if issubclass(cls, Pair) else classify(cls, x),
        flatten_one_level=flatten,
        flatten_with_keys=lambda x: (*flatten(x), lambda aux, children: aux, ()),
    )


def test_they_are_static_values(registry: Any) -> None:
    for beside in (1, Array(), Maybe(True)):
        array = Array()
        tree = lambda x: [x, array, (x, beside), {"k": Linear(weight=x)}]  # noqa: B023
        one = tree(Pair(1, "b"))
        structure = seen(registry, one)
        assert structure.unflatten(core.flatten(registry, one)[0])[0] is one[0]
        flattened.clear()
        assert matches(structure, one) and matches(structure, tree(Pair(1, "b")))
        for other in (Pair(2, "b"), Other(1, "b"), 1, Array(), None):
            assert not matches(structure, tree(other))
        assert flattened == []


@pytest.mark.parametrize("registry", ["contents", "key"], indirect=True)
def test_one_that_changes_is_another(registry: Any) -> None:
    value = Pair([1])
    structure = seen(registry, [value, Array()])
    value.a.append(2)
    assert not matches(structure, [value, Array()])
    assert not matches(structure, [Pair([1]), Array()]), "the changed one would go into a trace"
    value.a.pop()
    assert matches(structure, [value, Array()])


def test_in_a_large_argument(registry: Any) -> None:
    """A record of the argument has them by what they consist of."""
    f = make_jit(lambda tree: [row[0].a for row in tree], Hooks(registry))
    tree = [[Pair(i), Array()] for i in range(60)]
    for _ in range(66):
        assert f(tree) == list(range(60))
    tree[7][0], tree[8][0] = Pair(70), Pair(8)
    for _ in range(66):
        assert f(tree)[6:9] == [6, 70, 8]
    assert f._hooks.count("compile") == 2
    tree[9] = [Other(9), tree[9][1]]
    assert f(tree)[7:10] == [70, 8, 9] and f._hooks.count("compile") == 3
