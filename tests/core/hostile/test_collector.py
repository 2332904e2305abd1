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
    Point,
    Record,
    classify,
    core,
    make_jit,
    make_registry,
    partition_dict,
    parts_of,
)
from node_support import WithDescriptor, wide
from process_support import output_of


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


def jit(fun: Any, registry: Any) -> Any:
    f = make_jit(fun, Hooks(registry))
    f._parts()
    return f


class Looking(Record):
    """A dataclass node whose constructor looks."""

    def __init__(self, data: Any, other: Any = 0, tag: Any = 0) -> None:
        look()
        super().__init__(data, other, tag)
        look()


class LookingPoint(LoudPoint):
    def __new__(cls, x: Any, y: Any) -> LoudPoint:
        look()
        return super().__new__(cls, x, y)


class LookingDict(collections.OrderedDict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        look()
        super().__setitem__(key, value)


Wide = wide(40)


def kinds(cls: type, x: Any) -> tuple[Any, ...]:
    if cls is LookingPoint:
        return "namedtuple", False
    return ("ordered_dict",) if cls is LookingDict else classify(cls, x)


def registry_that_looks() -> Any:
    return make_registry(classify=kinds)


ROOTS: dict[str, Callable[..., Any]] = {
    "lists": lambda a, b: [Array(), a, [[], [a], [[], [b]]], b],
    "tuples": lambda a, b: (a, 1, None, ((), (a,), ((Array(),), (b,))), Array()),
    "namedtuple": lambda a, b: Point(a, (b, Array())),
    "large namedtuple": lambda a, b: Large(*[Array()] * 10, a, b),
    "namedtuple with __new__": lambda a, b: LookingPoint(a, [b]),
    "dict": lambda a, b: {"a": a, "b": [a, b], "c": {1: a, 2: (a, b), 3: Array()}},
    "OrderedDict": lambda a, b: LookingDict([("a", a), ("b", [a, b])]),
    "defaultdict": lambda a, b: collections.defaultdict(list, a=(a, b)),
    "dataclass": lambda a, b: Looking(a, (b, [a])),
    "module": lambda a, b: Linear(weight=[a], bias=(b, a), size=1, activation=None),
    "wide module": lambda a, b: Wide(**{n: [a, b] for n in Wide.dynamic}),
    "wrapper": lambda a, b: Linear(weight=a, bias=[b], size=1, __name__="n", __doc__=None),
    "descriptor": lambda a, b: WithDescriptor(weight=[a, b], size=1),
    "custom": lambda a, b: Box([a, (b, Array())]),
    "all": lambda a, b: [make(a, b) for name, make in ROOTS.items() if name != "all"],
}
Large = collections.namedtuple("Large", [f"x{i}" for i in range(12)])  # type: ignore[misc]


@pytest.mark.parametrize("name", ROOTS)
class TestTreesThatAreBuilt:
    def test_results_of_calls(self, name: str) -> None:
        tree, registry = (
            ROOTS[name](Looking(Array(), Array()), Looking(Array(), [Array()])),
            registry_that_looks(),
        )
        f = jit(lambda x: tree, registry)
        with looking(lambda x: isinstance(x, Module) and vars(x)):
            results = [f(Array()) for _ in range(3)]
        _, structure = core.flatten(registry, tree)
        for result in results:
            assert core.flatten(registry, result)[1] == structure
            if isinstance(result, Module):
                assert len(vars(result)) == len(list(vars(result))) >= len(vars(tree))

    def test_arguments_of_traces(self, name: str) -> None:
        tree = ROOTS[name](Looking(Array(), Array()), Looking(Array(), [Array()]))
        f = jit(lambda a, b, c=None: 1, registry_that_looks())
        with looking():
            assert f(tree, tree) == f(tree, tree) == f(tree, b=tree) == 1

    def test_tree_functions(self, name: str) -> None:
        tree, registry = (
            ROOTS[name](Looking(Array(), Array()), Looking(Array(), [Array()])),
            registry_that_looks(),
        )

        def f(x: Any, *_: Any) -> Any:
            look()
            return x

        def takes(x: Any) -> bool:
            look()
            return isinstance(x, Array)

        leaf = ("leaf", takes)
        with looking():
            parts = core.partition(registry, tree, (leaf, ("path", (...,))), None, None)
            core.combine(registry, parts, None, False)
            structure, *groups = partition_dict(registry, tree, True, (leaf,), None)
            combined = structure.combine(*groups)
            leaves, with_statics = core.tree_flatten(registry, tree, leaf, None)
            again = with_statics.unflatten(leaves)
            by_iterator = with_statics.unflatten(f(x) for x in leaves)
            _, expected = core.tree_flatten(registry, tree, True, None)
            skeleton = parts_of(with_statics, "hole")
            assert core.from_skeleton(registry, "hole", *skeleton) == with_statics
        for result in (combined, again, by_iterator):
            assert core.tree_flatten(registry, result, True, None)[1] == expected
        assert len(parts) == 3


def test_static_values() -> None:
    def key_of(x: Keyed) -> Any:
        look()
        return x.key

    def kind(cls: type, x: Any) -> tuple[Any, ...]:
        return ("static", key_of) if cls is Keyed else classify(cls, x)

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
            for i in range(len(self)):
                look()
                yield self[i]

    class FrozenItems(frozenset[Any]):
        def __iter__(self) -> Iterator[Any]:
            for x in sorted(super().__iter__()):
                look()
                yield x

    def one_level(x: Any) -> Any:
        return Items(x.children), x.aux

    registry = make_registry(flatten_one_level=one_level)
    f = jit(lambda x: 1, registry)
    box = Box([Array(i) for i in range(9)])
    with looking():
        for _ in range(3):
            assert f(box) == 1
            assert f(FrozenItems(range(5))) == 1
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

    def fun(x: Any) -> Any:
        look()
        return [x] * 25

    f = jit(fun, make_registry())
    with looking(on):
        for _ in range(100):
            f(Array())
            f._find_or_compile(Array())[0].finish([Array()] * 25, Array)


class TestStructures:
    """A Structure keeps its hash and its paths: nobody may ask for them before it is complete."""

    def test_flatten(self) -> None:
        def ask(x: Any) -> None:
            if type(x) is core.Structure:
                hash(x), repr(x), x._nodes()

        registry = make_registry()
        tree = [Array(), 1, Maybe(True, look), {"a": Maybe(True, look)}, 2.5, ("s", Array())]
        _, expected = core.flatten(registry, tree)
        with looking(ask):
            _, found = core.flatten(registry, tree)
        assert hash(found) == hash(expected) and found == expected
        assert found._nodes() == expected._nodes()  # with hashes, now that both are hashed

    def test_static_leaves(self) -> None:
        def takes(x: Any) -> bool:
            look()
            return isinstance(x, Array)

        def ask(x: Any) -> None:
            if type(x) is core.Structure:
                hash(x), x.paths

        def structures() -> list[Any]:
            _, one = core.tree_flatten(registry, tree, ("leaf", takes), None)
            two, *_ = partition_dict(registry, tree, ("leaf", takes), (), None)
            return [one, two, core.from_skeleton(registry, "hole", *parts)]

        registry = make_registry()
        tree = [Array(), {"a": 1}, 2.5, ("s", Array())]
        parts = parts_of(core.tree_flatten(registry, tree, ("leaf", takes), None)[1], "hole")
        expected = [(hash(s), s.paths) for s in structures()]
        with looking(ask):
            found = structures()
        assert [(hash(s), s.paths) for s in found] == expected
        assert all(map(gc.is_tracked, found))


CODE = """
import collections, gc
from core_support import Array, Record, Hooks, core, make_jit, make_registry

class Fails(Record):
    fails = False
    def __init__(self, data, other, tag):
        super().__init__(data, other, tag)
        if Fails.fails:
            raise ZeroDivisionError

seen = []
class Named(collections.namedtuple("Named", ("x", "y"))):
    def __del__(self):
        seen.append(tuple(self))

named = Named(Array(), Fails(Array(), 1, 2))
f = make_jit(lambda x: named)
f(Array())
Fails.fails = True
seen.clear()
try:
    f(Array())
except ZeroDivisionError:
    print("raised", len(seen))
"""


def test_a_named_tuple_is_not_made_if_a_child_fails() -> None:
    """Its ``__del__`` would see NULL."""
    assert output_of("-c", CODE) == "raised 0\n"
