"""Nodes without children whose aux data is the node itself, as ``jax.tree_util.register_static``
makes them: they are compared as static values are, and never flattened in a match."""

import gc
from typing import Any

import pytest
from core_support import (
    Array,
    Hooks,
    Linear,
    Maybe,
    classify,
    core,
    make_jit,
    make_registry,
    testing,
)


class Config:
    """Compared by `a` and `b`."""

    def __init__(self, a: Any, b: Any = None) -> None:
        self.a, self.b = a, b

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and bool(self.a == other.a and self.b == other.b)

    def __hash__(self) -> int:
        return 0


class Other(Config):
    pass


flattened: list[Any] = []


def flatten(x: Any) -> Any:
    flattened.append(x)
    return (), x


def rebuild(aux: Any, children: Any) -> Any:
    return aux


def registry_with(key: Any) -> Any:
    def kind(cls: type, x: Any) -> Any:
        is_config = issubclass(cls, Config)
        return ("custom", key, flatten, True) if is_config else classify(cls, x)

    return make_registry(
        classify=kind,
        flatten_one_level=flatten,
        flatten_with_keys=lambda x: (*flatten(x), rebuild, ()),
    )


KEYS: dict[str, Any] = {
    "contents": (lambda x: (x.a, x.b), None, ("a", "b")),
    "immutable": (lambda x: (x.a, x.b), True),
    "key": lambda x: (x.a, x.b),
    "by its ==": None,
}


@pytest.fixture(params=KEYS)
def registry(request: pytest.FixtureRequest) -> Any:
    return registry_with(KEYS[request.param])


@pytest.mark.parametrize("beside", [1, Array(), Maybe(True)], ids=["1", "array", "maybe"])
def test_they_are_static_values(registry: Any, beside: Any) -> None:
    tree = lambda x: [x, Array(), (x, beside), {"k": Linear(weight=x)}]
    one = tree(Config(1, "b"))
    arrays, structure = core.flatten(registry, one)
    hash(structure)
    assert structure.unflatten(arrays)[0] is one[0]
    flattened.clear()
    for _ in range(3):
        assert testing.match(structure, one) == arrays
        assert testing.match(structure, tree(Config(1, "b"))) is not None
        for other in (Config(2, "b"), Other(1, "b"), 1, Array(), None):
            assert testing.match(structure, tree(other)) is None
    assert flattened == []


@pytest.mark.parametrize("key", ["contents", "key"])
def test_one_that_changes_is_another(key: str) -> None:
    registry = registry_with(KEYS[key])
    value = Config([1])
    structure = core.flatten(registry, [value, Array()])[1]
    hash(structure)
    for _ in range(3):
        assert testing.match(structure, [value, Array()]) is not None
    value.a.append(2)
    assert testing.match(structure, [value, Array()]) is None
    assert testing.match(structure, [Config([1]), Array()]) is None, "it would go into a trace"
    value.a.pop()
    assert testing.match(structure, [value, Array()]) is not None


def test_in_a_large_argument(registry: Any) -> None:
    """A record of the argument has them by what they consist of."""
    f = make_jit(lambda tree: [row[0].a for row in tree], Hooks(registry))
    tree = [[Config(i), Array()] for i in range(60)]
    for _ in range(66):
        assert f(tree) == list(range(60))
    assert f._hooks.count("compile") == 1
    tree[7][0] = Config(70)
    tree[8][0] = Config(8)
    for _ in range(3):
        assert f(tree)[6:9] == [6, 70, 8]
    assert f._hooks.count("compile") == 2
    for _ in range(66):
        f(tree)
    gc.collect()
    tree[9] = [Other(9), tree[9][1]]
    assert f(tree)[7:10] == [70, 8, 9] and f._hooks.count("compile") == 3
