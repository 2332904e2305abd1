"""User code in the middle of a walk or of a tree function: what its errors say, and what is right
although it changes things.  The hostile matrix (core/catalogue) has each place and each action."""

import collections
import contextlib
import gc
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import core_support as cs
import pytest
import variable_support as vs
from actions import incomplete
from catalogue import OPERATIONS
from core_support import Array, Box, Linear, Module, Object, Record, Value, classify, core, layout
from hooks_support import make_jit
from hostile_support import Once
from outcome_support import attempt, in_threads, nothing
from trees_support import partition_dict
from variable_support import TraceState, Var, block, large, make_variable_jit, variables_in, warm


def test_a_tree_that_changes_after_it_was_walked(registry: Any) -> None:
    """The function holds all leaves by then, so the result does not change."""

    def takes(leaf: Any) -> bool:
        hook()
        return isinstance(leaf, Array)

    def text(key: str) -> bool:
        hook()
        return key < "k2"

    leaf, array, path = ("leaf", takes), ("array", takes), ("path", (..., text))
    calls: list[Callable[[Any], Any]] = [
        lambda t: core.tree_flatten(registry, t, leaf, None),
        lambda t: core.tree_flatten(registry, t, ("not", ("or", leaf, path)), None),
        lambda t: core.partition(registry, t, (path, array), None, "none"),
        lambda t: core.partition(registry, t, (("and", leaf, leaf),), None, None),
        lambda t: partition_dict(registry, t, array, (path,), None),
    ]
    for make in (
        lambda: {f"k{i}": [Array(), Value(1), i] for i in range(4)},
        lambda: [[Array()]] * 3,
    ):
        for call in calls:
            tree = [make(), Array()]
            hook: Callable[[], Any] = nothing
            expected, again = call(tree), [type(x).copy(x) if x is tree[0] else x for x in tree]
            hook = Once(lambda t=again: (t[0].clear(), t.clear()), 2)  # type: ignore[misc]
            assert cs.same(call(again), expected) and again == []


def test_equality_given_to_a_class_later(registry: Any) -> None:
    """The instances of a class compared by identity when they were flattened.  A match still
    compares them so; comparing structures calls the new ``__eq__``."""

    class Late:
        pass

    structure = core.flatten(registry, [[[Late(), Array()], Array()], Array()])[1]
    hash(structure)
    outer: list[Any] = [[[Late(), Array()], Array()], Array()]

    def eq(self: Any, other: Any) -> bool:
        outer.clear()
        gc.collect()
        return True

    Late.__eq__ = eq  # type: ignore[method-assign, assignment]
    Late.__hash__ = lambda self: 1  # type: ignore[method-assign, assignment]
    assert cs.testing.match(structure, outer) is None and len(outer) == 2
    attempt(operator.eq, structure, core.flatten(registry, outer)[1])
    assert outer == []


def test_a_class_changed_by_classify() -> None:
    """Nothing holds the class that the registry was asked about."""

    class Answer(dict):  # type: ignore[type-arg]
        def __del__(self) -> None:
            gc.collect()

    def ask(cls: type, x: Any) -> dict[str, Any]:
        if cls.__name__ == "Brief":
            x.__class__ = cls.__base__
            gc.collect()
        return Answer(classify(cls, x))

    for base, values in ((Linear, {"weight": Array()}), (Value, {"value": 1})):
        registry = cs.make_registry(classify=ask)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="changed its class"):
                core.flatten(registry, [type("Brief", (base,), {})(**values)])
            gc.collect()


def _objects_that_change_class(change: Callable[[Any], None]) -> list[Any]:
    """An object, which changes when an attribute is read, and a custom node."""

    class Reads(Object):
        layout = layout(("x",))

        @property
        def x(self) -> Any:
            change(self)
            return Array()

    class Flattens(Box):
        pass

    flattens = Flattens([])
    flattens.hook = lambda: change(flattens)
    return [Reads(), flattens]


@pytest.mark.parametrize("number", [0, 1], ids=["object", "custom"])
def test_an_object_whose_class_dies_while_it_is_read(registry: Any, number: int) -> None:
    others = [
        type("Other", (Object,), {"layout": layout(("x",)), "x": 1}),
        type("Other", (Box,), {}),
    ]
    armed: list[None] = []

    def change(x: Any) -> None:
        if armed:
            x.__class__ = others[number]
            gc.collect()

    x = _objects_that_change_class(change)[number]
    core.flatten(registry, x)
    armed.append(None)
    with pytest.raises(RuntimeError, match="`Other` changed while it was flattened"):
        core.flatten(registry, [x])


def test_a_class_at_the_address_of_a_leafs_class(registry: Any) -> None:
    """A custom node drops the class of a leaf before it. A Module's class gets its address."""
    leaf = type("Leaf", (), {})()
    core.flatten(registry, [leaf])
    address, later = id(type(leaf)), []

    def hook() -> None:
        leaf.__class__ = Value
        gc.collect()
        kept = []
        while not later and len(kept) < 5000:
            kept.append(type("Node", (Module,), {"dynamic": ("x",)}))
            if id(kept[-1]) == address:
                later.append(kept[-1](x=Array()))

    arrays, _ = core.flatten(registry, [leaf, Box([], hook=hook), later])
    if not later:
        pytest.skip("no class got the address")
    assert arrays == (later[0].x,)


def test_captures_that_another_call_replaces() -> None:
    """A call in the middle of a walk fills the same record, with an argument that dies."""

    def fun(a: Any, small: Any, b: Any, c: Any) -> None:
        pass

    jit = make_variable_jit(fun, traced=lambda a, small, b, c: (None, b"", ()))
    a, b, c, small = large(), large(), large(), Var(Array(1), TraceState())
    warm(jit, a, small, b, c)

    def others() -> None:
        old, b.blocks[0] = b.blocks[0], block(99)
        for _ in range(3):
            jit(a, small, b, c)
        new = large()
        warm(jit, a, small, new, c)
        del new
        b.blocks[0] = old

    jit(a, Var(Array(1), TraceState(hook=Once(others))), b, c)
    assert jit.handed_over == []
    warm(jit, a, small, b, c)


def test_a_finalizer_at_the_end_of_a_walk() -> None:
    """It makes a call while what the walk has met is stored."""
    jit = make_variable_jit(lambda tree: None)

    class Dying(TraceState):
        def __del__(self) -> None:
            for i in range(5):
                jit([Var(Array(i), TraceState()) for _ in range(100)])

    for _ in range(10):
        more = [Var(Array(i), TraceState()) for i in range(50)]
        jit([Var(Array(1)), *more, Var(Array(2), Dying())])
        states = TraceState(hook=lambda: jit([Var(Array(2), Dying()) for _ in range(40)]))
        jit([Var(Array(1), states)])
    assert jit.handed_over == []


def test_threads() -> None:
    jit = make_variable_jit(vs.step)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(n: int) -> None:
        tree = large(4 + n % 2)
        for i in range(150):
            if i % 40 == 0:
                tree.blocks[1] = block(1)
            before = [x._raw_value.value for x in variables_in(tree)]
            jit(tree, None)
            after = [x._raw_value.value for x in variables_in(tree)]
            assert after == [x + 1 + i if i % 2 == 0 else x for i, x in enumerate(before)]

    try:
        in_threads(work)
    finally:
        sys.setswitchinterval(interval)
    assert jit.handed_over == []


@contextlib.contextmanager
def looking() -> Iterator[list[Any]]:
    """Collects as often as possible, and looks if the core has started the collection, which it can do
    on Python 3.11: in each allocation."""
    found: list[Any] = []

    def look(*_: Any) -> None:
        file = sys._getframe(1).f_code.co_filename
        if "operations" in file:
            found.extend(incomplete(gc.get_objects()))

    threshold = gc.get_threshold()
    gc.callbacks.append(look)
    gc.set_threshold(1)
    try:
        yield found
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(look)


# Operations in which Python has incomplete tuples, as they use ``map`` or ``zip``.
OF_PYTHON = ("bound_methods", "many_leaves", "types_that_come_and_go")


def test_collections_in_operations() -> None:
    for name, make in OPERATIONS.items():
        if name in OF_PYTHON:
            continue
        call, check = make()
        gc.freeze()  # a look is short then
        with looking() as found:
            result = call()
        check(result)
        assert found == [], name


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
