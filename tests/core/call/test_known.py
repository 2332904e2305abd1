"""The record of a large argument never hides a difference that a walk would see.

The result of each call is compared with the current tree.  `same` compares exact types, statics
by the core's rule, and arrays by identity.
"""

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    Array,
    Linear,
    Maybe,
    Module,
    OtherArray,
    Point,
    Value,
    core,
    make_jit,
    same,
)
from node_support import OtherLinear


def leaf(i: int) -> Linear:
    return Linear(weight=Array(i), bias=None, size=i, activation=f"name {i}")


def model() -> Any:
    """A model large enough for a record: Modules in lists, tuples, named tuples and Modules.

    All statics are inert; otherwise the core walks the model each time.
    """
    rows: list[Any] = [[leaf(i), (leaf(i + 1), i), Point(leaf(i + 2), Array())] for i in range(12)]
    return Linear(weight=rows, bias=(Array(), ("a", 1)), size="root", activation=Linear)


def remember(f: Any, tree: Any) -> None:
    """Calls often enough for a record, whatever happened before: see LONGEST_STREAK in known.c."""
    for _ in range(66):
        assert f(tree, 0)[1] == 0
    assert same(f(tree, 0)[0], tree)


def made() -> tuple[Any, Any]:
    f = make_jit(lambda tree, n: (tree, n))
    tree = model()
    remember(f, tree)
    return f, tree


def put(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, list):
        owner[name] = value
    else:
        object.__setattr__(owner, name, value)


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Places where a value can be put, as (owner, name)."""
    found: list[tuple[Any, Any]] = []
    if isinstance(tree, Module):
        for name, value in vars(tree).items():
            found += [(tree, name), *places(value)]
    elif isinstance(tree, (list, tuple)):
        for i, value in enumerate(tree):
            found += [(tree, i)] if isinstance(tree, list) else []
            found += places(value)
    return found


VALUES: dict[str, Callable[[], Any]] = {
    "array": Array,
    "other_array": OtherArray,
    "maybe_array": lambda: Maybe(True),
    "maybe_static": lambda: Maybe(False),
    "none": lambda: None,
    "int": lambda: 7,
    "float": lambda: random.random(),
    "text": lambda: "".join(["te", "xt"]),
    "value": lambda: Value(3),
    "tuple": lambda: (1, (2, 3)),
    "list": lambda: [Array(), 1],
    "dict": lambda: {"k": Array()},
    "module": lambda: leaf(3),
    "other_module": lambda: OtherLinear(weight=Array(), bias=None, size=3, activation="name 3"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_new_value_in_any_place_is_seen(kind: str) -> None:
    f, tree = made()
    for owner, name in places(tree)[::7]:
        before = owner[name] if isinstance(owner, list) else getattr(owner, name)
        put(owner, name, VALUES[kind]())
        for _ in range(3):
            assert same(f(tree, 0)[0], tree)
        put(owner, name, before)
        for _ in range(5):
            assert same(f(tree, 0)[0], tree)


def test_random_changes() -> None:
    source = random.Random(0)
    f, tree = made()
    where = places(tree)
    for _ in range(200):
        owner, name = source.choice(where)
        put(owner, name, source.choice(list(VALUES.values()))())
        if isinstance(owner, list) and source.random() < 0.2:
            source.choice((owner.pop, owner.reverse, lambda: owner.append([])))()  # noqa: B023
        where = places(tree)
        if len(where) < 150:
            tree = model()
            where = places(tree)
        for _ in range(source.choice((1, 1, 2, 5, 70))):
            result, n = f(tree, 0)
        assert n == 0 and same(result, tree)


def test_attributes() -> None:
    f, tree = made()
    deep = tree.weight[5][1][0]
    for change in (
        lambda: vars(deep),  # makes the dict
        lambda: object.__setattr__(deep, "__name__", "extra"),
        lambda: object.__delattr__(deep, "__name__"),
        lambda: object.__delattr__(deep, "size"),
        lambda: object.__setattr__(deep, "size", 5),
        lambda: setattr(deep, "__dict__", dict(vars(deep), size=6)),
        lambda: object.__setattr__(deep, "__class__", OtherLinear),
        lambda: object.__setattr__(deep, "__class__", Linear),
    ):
        change()
        for _ in range(100):
            assert same(f(tree, 0)[0], tree)


STATICS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "list": (lambda: [1, (2,)], lambda x: x.append(3)),
    "dict": (lambda: {"a": 1}, lambda x: x.update(a=2)),
    "set": (lambda: {1}, lambda x: x.add(2)),
    "list in a tuple": (lambda: (1, [2]), lambda x: x[1].append(1)),
}


@pytest.mark.parametrize("changed", ["own", "equal copy", "first of two"])
@pytest.mark.parametrize("kind", STATICS)
def test_a_static_that_changes_in_place(kind: str, changed: str) -> None:
    make, change = STATICS[kind]
    f, tree = make_jit(lambda tree, n: (tree, n)), model()
    one = tree.weight[5][0]
    object.__setattr__(one, "size", make())
    first = one.size
    f(tree, 0)
    if changed != "own":
        object.__setattr__(one, "size", make())
    remember(f, tree)
    assert len(f._parts()[0].variants()) == 1
    change(first if changed == "first of two" else one.size)
    f(tree, 0)
    assert len(f._parts()[0].variants()) == 2


def test_other_arguments_are_compared() -> None:
    f, tree = made()
    assert f(tree, 1)[1] == 1 and f(tree, True)[1] is True and f(tree, 0)[1] == 0
    assert f(n=2, tree=tree)[1] == 2
    array = Array()
    assert f(tree, array)[1] is array
    assert same(f(tree.weight, 0)[0], tree.weight)
    remember(f, tree)


def test_nothing_is_held() -> None:
    f, tree = made()
    dead = [weakref.ref(x) for x in (tree, tree.weight[4][0], tree.weight[4][0].weight)]
    del tree
    assert all(ref() is None for ref in dead)
    assert len(f._parts()[0].variants()) == 1


def test_changed_within_the_call() -> None:
    """The walk of another argument runs Python code, which changes the remembered argument."""

    def hook() -> None:
        f._parts()
        tree.weight[0][0] = leaf(99)
        tree.weight.append(Array())
        for _ in range(3):
            f(tree, 0)
        gc.collect()

    f = make_jit(lambda tree, n: (tree, n))
    tree = model()
    array = Array()
    for _ in range(100):
        f(tree, array)
    for _ in range(3):
        result, _ = f(tree, Maybe(True, hook))
        assert len(result.weight) <= len(tree.weight)
    remember(f, tree)


def test_not_the_largest_argument() -> None:
    f = make_jit(lambda *trees, **more: (trees, more))
    small, large = [leaf(1)] * 3, model()
    for _ in range(100):
        assert same(f(small, large), ((small, large), {}))
        assert same(f(k=large), ((), {"k": large}))
    small[0] = leaf(2)
    assert same(f(small, large), ((small, large), {}))
    large.weight[0][0] = leaf(5)
    assert same(f(small, large), ((small, large), {}))
    assert same(f(k=large), ((), {"k": large}))


def test_a_list_of_statics() -> None:
    f = make_jit(lambda tree, n: (tree, n))
    tree: list[Any] = [str(i) for i in range(1000)]
    remember(f, tree)
    tree[500] = "other"
    remember(f, tree)
    tree[500] = "".join(["50", "0"])
    remember(f, tree)
    arrays, structure = core.flatten(f._hooks.registry, tree)
    assert arrays == () and len(structure._nodes()) == 1001


# ---- several large arguments ----


def test_random_changes_of_several_arguments() -> None:
    source = random.Random(1)
    f = make_jit(lambda a, b, c, d, e: (a, b, c, d, e))
    trees = [model(), Array(), model(), [1], model()]
    for _ in range(100):
        i = source.randrange(5)
        where = places(trees[i])
        act = source.random()
        if len(where) > 20 and act < 0.7:
            put(*source.choice(where), source.choice(list(VALUES.values()))())
        elif act < 0.8:
            source.shuffle(trees)
        else:
            trees[i] = source.choice((model, model, Array, lambda: [Array(), 2]))()
        for _ in range(source.choice((1, 1, 2, 5, 70))):
            found = f(*trees)
        assert same(found, tuple(trees))
