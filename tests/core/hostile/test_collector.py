"""Other code sees the parts of a tree in ``gc.get_objects()`` only once they are complete.

A profiler's thread, a finalizer, a callback of the garbage collector, or the constructor of a node
may look at all containers at any time.  A tuple or list whose items are still NULL would crash it.
Here they are found by the number of objects that they refer to, which crashes nothing.
"""

import collections
import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Hooks,
    Keyed,
    Linear,
    LoudPoint,
    Maybe,
    Module,
    Record,
    classify,
    core,
    make_jit,
    make_registry,
    partition_dict,
    parts_of,
)
from trees_support import TREES


class Watch:
    """Looks at all containers, and counts how often."""

    def __init__(self) -> None:
        self.looks = 0
        self.found: list[Any] = []
        self.also: Callable[[Any], Any] = type
        self.is_looking = False

    def __call__(self, *_: Any) -> None:
        if self.is_looking:  # `also` can build trees
            return
        self.looks += 1
        self.is_looking = True
        gc.disable()  # what this allocates need not be looked at
        for x in gc.get_objects():
            self.also(x)
            # ``tuple`` of a generator makes a tuple of 10 items first, before Python 3.14.
            if isinstance(x, (tuple, list)) and len(x) != 10:
                cls = type(x)
                # Instances of a heap type refer to their type too.
                others = 0 if cls in (tuple, list) or not cls.__flags__ & 1 << 9 else 1
                if len(gc.get_referents(x)) < len(x) + others:
                    self.found.append((cls, len(x), gc.get_referents(x)))
        gc.enable()
        self.is_looking = False


look = Watch()
# The functions of core_support that call the core.
CALLERS = ("call", "flat", "run")


def at_collection(*_: Any) -> None:
    """Looks if the core has started the collection, which it can do on Python 3.11: in each
    allocation.  Python itself has incomplete containers there too, in ``zip`` for example."""
    code = sys._getframe(1).f_code
    if code.co_filename == __file__ or code.co_name in CALLERS:
        look()


@contextlib.contextmanager
def looking(also: Callable[[Any], Any] = type) -> Iterator[None]:
    """Collects as often as possible, and looks then too."""
    look.__init__()  # type: ignore[misc]
    look.also = also
    gc.freeze()  # a look is short then
    threshold = gc.get_threshold()
    gc.callbacks.append(at_collection)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(at_collection)
    assert look.looks > 0
    assert look.found == []


def looks(x: Any, *_: Any) -> Any:
    look()
    return x


def takes(x: Any) -> bool:
    return isinstance(looks(x), Array)


def jit(fun: Any, registry: Any) -> Any:
    f = make_jit(fun, Hooks(registry))
    f._parts()
    return f


# ---- nodes whose constructors look ----


class Looking(Record):
    def __init__(self, data: Any, other: Any = 0, tag: Any = 0) -> None:
        look()
        super().__init__(data, other, tag)
        look()


class LookingPoint(LoudPoint):
    def __new__(cls, x: Any, y: Any) -> LoudPoint:
        return super().__new__(cls, looks(x), y)


class LookingDict(collections.OrderedDict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(looks(key), value)


Large: Any = collections.namedtuple("Large", [f"x{i}" for i in range(12)])  # type: ignore[misc]


def kinds(cls: type, x: Any) -> tuple[Any, ...]:
    if cls is LookingPoint:
        return "namedtuple", False
    return ("ordered_dict",) if cls is LookingDict else classify(cls, x)


def forest() -> list[Any]:
    """All kinds of nodes, with nodes that look below them."""
    a, b = Looking(Array(), Array()), Looking(Array(), [Array()])
    trees = [make(a, b, Array()) for make in TREES.values()]
    trees += [[[], [a], [[], [b]]], ((), (a,), ((Array(),), (b,)))]
    return [*trees, Large(*[Array()] * 10, a, b), LookingPoint(a, [b]), LookingDict(a=a, b=[a, b])]


def test_trees_that_calls_build() -> None:
    """Results, and the arguments of traces."""
    for tree in forest():
        registry = make_registry(classify=kinds)
        f = jit(lambda a, b=None: a, registry)
        with looking(lambda x: isinstance(x, Module) and vars(x)):
            look()  # nothing else may
            results = [f(tree), f(tree), f(tree, tree), f(tree, b=tree)]
        _, structure = core.flatten(registry, tree)
        for result in results:
            assert core.flatten(registry, result)[1] == structure
            if isinstance(result, Module):
                assert len(vars(result)) == len(list(vars(result))) >= len(vars(tree))


def test_trees_that_tree_functions_build() -> None:
    leaf = ("leaf", takes)
    for tree in forest():
        registry = make_registry(classify=kinds)
        with looking():
            look()
            ignored = ("path or none", (...,))
            parts = core.partition(registry, tree, (leaf, ignored), None, None)
            core.combine(registry, parts, None, False)
            structure, *groups = partition_dict(registry, [tree], True, (leaf,), None)
            combined = structure.combine(*groups)[0]
            leaves, with_statics = core.tree_flatten(registry, tree, leaf, None)
            again = with_statics.unflatten(leaves)
            by_iterator = with_statics.unflatten(map(looks, leaves))
            _, expected = core.tree_flatten(registry, tree, True, None)
            skeleton = parts_of(with_statics, "hole")
            assert core.from_skeleton(registry, "hole", *skeleton) == with_statics
        for result in (combined, again, by_iterator):
            assert core.tree_flatten(registry, result, True, None)[1] == expected
        assert len(parts) == 3


# ---- other containers ----


def test_static_values() -> None:
    def kind(cls: type, x: Any) -> tuple[Any, ...]:
        return ("static", lambda x: looks(x).key) if cls is Keyed else classify(cls, x)

    registry = make_registry(classify=kind)
    for value in (
        [Keyed(1), Keyed(2)],
        {"a": Keyed(1), "b": [Keyed(2), 3]},
        ((1, Keyed(1)), Keyed(2), 2),
        (1, [2, Keyed(3)]),
        frozenset([Keyed(1)]),
    ):
        f = jit(lambda m: 1, registry)
        with looking():
            for _ in range(3):
                assert f(Linear(size=value)) == 1
            assert core.same_static(registry, value, value)
        assert f._hooks.count("compile") == 1


def test_iterables() -> None:
    """The iterator looks while its items are taken."""

    class Items(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            return map(looks, super().__iter__())

    class FrozenItems(frozenset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return map(looks, sorted(super().__iter__()))

    registry = make_registry(flatten_one_level=lambda x: (Items(x.children), x.aux))
    f = jit(lambda x: 1, registry)
    box = Box([Array(i) for i in range(9)])
    with looking():
        for _ in range(3):
            assert f(box) == f(FrozenItems(range(5))) == 1
        _, structure = core.tree_flatten(registry, box, True, None)
        leaves = structure._subtrees(box)
    assert len(leaves) == 9


def test_errors_of_binding() -> None:
    calls: list[Any] = []

    def hook(f: Any, args: Any, kwargs: Any) -> None:
        look()
        calls.append((args, kwargs))

    f = jit(lambda x: x, make_registry())
    f._hooks.raise_binding_error = hook
    arguments = tuple(range(25))  # more than Python keeps for the next tuple
    with looking():
        for _ in range(100):
            kept = [{} for _ in range(100)]  # so that a dict has to be allocated
            with contextlib.suppress(TypeError):
                f(*arguments, y=4)
    assert calls == [(arguments, {"y": 4})] * 100 and len(kept) == 100


def test_outputs_are_seen_with_their_arrays() -> None:
    def on(x: Any) -> None:
        if type(x).__name__ == "Output":
            look.found += [x] * (type(x.arrays) is not tuple)

    f = jit(lambda x: [looks(x)] * 25, make_registry())
    with looking(on):
        for _ in range(100):
            f(Array())
            f._find_or_compile(Array())[0].finish([Array()] * 25, Array)


def flattened(registry: Any, tree: Any) -> list[Any]:
    return [core.flatten(registry, tree)[1]]


def with_open_leaves(registry: Any, tree: Any) -> list[Any]:
    _, one = core.tree_flatten(registry, tree, ("leaf", takes), None)
    two, *_ = partition_dict(registry, tree, ("leaf", takes), (), None)
    return [one, two, core.from_skeleton(registry, "hole", *parts_of(one, "hole"))]


@pytest.mark.parametrize("make", [flattened, with_open_leaves])
def test_structures(make: Any) -> None:
    """A Structure keeps its hash and its paths: nobody may ask for them before it is complete."""
    registry = make_registry()
    ask = lambda x: type(x) is core.Structure and (hash(x), repr(x), x._nodes(), x.paths)
    tree = [Array(), 1, Maybe(True, look), {"a": Maybe(True, look)}, 2.5, ("s", Array())]
    expected = [ask(structure) for structure in make(registry, tree)]
    with looking(ask):
        found = make(registry, tree)
    assert [ask(structure) for structure in found] == expected
    assert all(map(gc.is_tracked, found))


def test_a_named_tuple_is_not_made_if_a_child_fails() -> None:
    """Its ``__del__`` would see NULL."""

    class Named(collections.namedtuple("Named", ("x", "y"))):  # type: ignore[misc]
        def __del__(self) -> None:
            deleted.append(tuple(self))

    class Fails(Record):
        fails = False

        def __init__(self, **fields: Any) -> None:
            super().__init__(**fields)
            if Fails.fails:
                raise ZeroDivisionError

    deleted: list[Any] = []
    named = Named(Array(), Fails(data=Array(), other=1, tag=2))
    f = make_jit(lambda x: named)
    f(Array())
    Fails.fails = True
    deleted.clear()
    with pytest.raises(ZeroDivisionError):
        f(Array())
    assert deleted == []
