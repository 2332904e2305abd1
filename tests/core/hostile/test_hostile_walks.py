"""User code that runs in the middle of a walk and changes the tree; deep and cyclic trees.

Nothing here may crash.  Most calls may fail or match.  Sanitizers (``.ci/sanitize``) tell whether
memory was used after it was freed.
"""

import functools
import gc
import inspect
import operator
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Hostile,
    Linear,
    Record,
    Value,
    classify,
    core,
    make_jit,
    make_registry,
    same,
    testing,
    tree_paths,
    variants,
)
from hostile_support import (
    CHANGES,
    CONTAINERS,
    ENDLESS,
    NESTS,
    TRAPS,
    Once,
    fill,
    filled,
    nest,
    unnest,
)
from node_support import LoudStr
from outcome_support import attempt, nothing
from process_support import output_of
from statics_support import check_all_differ


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("trap", TRAPS)
def test_changed_during_a_walk(trap: str, kind: str, change: Callable[[Any], Any]) -> None:
    """The container changes when the trap is met the `at`-th time: in the operation or after it."""
    for at in (1, 2, 3):
        for operation in ("flatten", "match", "compare", "match_other"):
            registry = make_registry()
            container = filled(kind, TRAPS[trap](nothing))
            _, structure = core.flatten(registry, [container, Array()])
            hash(structure)
            hook = Once(functools.partial(change, container), at)
            fill(container, TRAPS[trap](hook))
            tree = [container, Array()]
            if operation == "flatten":
                attempt(core.flatten, registry, tree)
            elif operation == "match":
                attempt(testing.match, structure, tree)
            elif operation == "match_other":
                attempt(testing.match, structure, [container, 1])
            else:
                other = attempt(core.flatten, registry, tree)
                if isinstance(other, tuple):
                    attempt(hash, other[1])
                    attempt(operator.eq, other[1], structure)
            attempt(core.flatten, registry, tree)
            attempt(testing.match, structure, tree)
            attempt(repr, structure)
            assert hook.calls > 0


@pytest.mark.parametrize("cls", [list, set, dict])
@pytest.mark.parametrize("hook", ["on_hash", "on_eq"])
def test_a_field_emptied_while_it_is_hashed_or_compared(registry: Any, cls: Any, hook: str) -> None:
    """A static field may be mutable, and the only owner of its elements."""

    def make() -> Any:
        elements = [Hostile(hash_value=i % 2, equal=False) for i in range(6)]
        return cls(zip(elements, elements, strict=True)) if cls is dict else cls(elements)

    def act() -> None:
        emptied.append(len(value))
        value.clear()

    emptied: list[int] = []
    for at in range(6):
        for value in (make(), make()):
            _, structure = core.flatten(registry, Linear(size=value))
            attempt(hash, structure)
            other = make()
            for element in (list(value)[at], list(other)[at]):
                setattr(element, hook, act)
            del element
            attempt(testing.match, structure, Linear(size=value))
            attempt(testing.match, structure, Linear(size=other))
            _, second = core.flatten(registry, Linear(size=other))
            attempt(hash, second)
            attempt(operator.eq, structure, second)
    assert any(emptied)


def test_the_structure_dropped_during_a_match() -> None:
    """The cache and the wrapper drop it, so only the call holds it."""
    dropped: list[Any] = []

    def drop() -> None:
        if not dropped:
            dropped.append(weakref.ref(variants(f)[0].structure))
            f._parts()[0].clear()
            f(Array(), 2)
            gc.collect()

    f = make_jit(lambda x, s: x)
    f(Array(), [Array(), Hostile(), Array()])
    x = Array()
    assert f(x, [Array(), Hostile(on_eq=drop), Array()]) is x
    f(Array(), 2)  # so that the wrapper drops that call's variant
    gc.collect()
    assert [structure() for structure in dropped] == [None]


def test_the_registry_is_held_by_its_structures() -> None:
    _, structure = core.flatten(make_registry(), [Array(), 1, Value(1)])
    gc.collect()
    assert len(testing.match(structure, [Array(), 1, Value(1)])) == 1


def test_the_registry_learns_during_a_walk() -> None:
    """classify() flattens instances of the type that it is asked about."""

    def classify(cls: type, x: Any) -> tuple[Any, ...]:
        if cls is list and x:
            core.flatten(registry, [])
            core.flatten(registry, [[], [1]])
        return ("list",) if cls is list else ("static", None)

    registry = make_registry(classify=classify)
    arrays, structure = core.flatten(registry, [[1], [2]])
    assert arrays == () and testing.num_nodes(structure) == 5
    assert testing.num_types(registry) == 2


def test_classify_that_fails() -> None:
    def classify(cls: type, x: Any) -> tuple[Any, ...]:
        raise ZeroDivisionError

    registry = make_registry(classify=classify)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            core.flatten(registry, [1])


def test_the_type_dies_while_it_is_asked_about() -> None:
    """classify() moves the instance to another class, and nothing else holds the old class."""

    class Answer(tuple):
        def __del__(self) -> None:
            gc.collect()

    def classify(cls: type, x: Any) -> tuple[Any, ...]:
        if isinstance(x, Value):
            x.__class__ = Value
            return Answer(("static", None))
        return ("list",) if cls is list else ("static", None)

    registry = make_registry(classify=classify)
    for _ in range(3):
        attempt(core.flatten, registry, [type("Brief", (Value,), {})(1)])
        gc.collect()


def test_equality_given_to_a_class_later(registry: Any) -> None:
    """The instances of a class compared by identity when they were flattened.  A match still
    compares them so; comparing structures calls the new ``__eq__``."""

    class Late:
        pass

    _, structure = core.flatten(registry, [[[Late(), Array()], Array()], Array()])
    hash(structure)
    outer: list[Any] = [[[Late(), Array()], Array()], Array()]

    def eq(self: Any, other: Any) -> bool:
        outer.clear()
        gc.collect()
        return True

    Late.__eq__ = eq  # type: ignore[method-assign, assignment]
    Late.__hash__ = lambda self: 1  # type: ignore[method-assign, assignment]
    assert testing.match(structure, outer) is None and len(outer) == 2
    attempt(operator.eq, structure, core.flatten(registry, outer)[1])
    assert outer == []


def test_a_dict_dropped_during_a_look_up_in_it(registry: Any) -> None:
    """The name of an attribute is a subclass of str, which looking for a field compares."""

    for field in ("weight", "bias", "size", "__doc__"):
        LoudStr.hook = staticmethod(nothing)
        tree = Linear(size=3)
        _, structure = core.flatten(registry, Linear(weight=Array(), bias=Array(), size=3))
        hash(structure)

        def fresh(tree: Any = tree, field: str = field) -> None:
            tree.__dict__ = {LoudStr(field): Array(), "bias": Array(), "size": 3}
            gc.collect()

        fresh()
        LoudStr.hook = staticmethod(fresh)
        attempt(testing.match, structure, tree)
        attempt(core.flatten, registry, tree)
        LoudStr.hook = staticmethod(nothing)


@pytest.mark.parametrize("cls", [Linear, type("OnException", (Linear, Exception), {})])
def test_a_collection_in_the_middle_of_a_python_free_match(registry: Any, cls: Any) -> None:
    """Finalizers run in any collection, and allocating an object can start one."""
    threshold = gc.get_threshold()

    class Litter:
        def __init__(self, victim: list[Any]) -> None:
            self.me, self.victim = self, victim

        def __del__(self) -> None:
            self.victim.clear()

    _, structure = core.flatten(registry, [[cls(), Array(), Array()], Array()])
    hash(structure)
    try:
        for first in range(1, 12):
            victim = [cls.__new__(cls), Array(), Array()]
            tree = [victim, Array()]
            gc.collect()
            gc.disable()
            for _ in range(3):
                Litter(victim)
            gc.enable()
            gc.set_threshold(first, 1, 1)
            attempt(testing.match, structure, tree)
            gc.set_threshold(*threshold)
    finally:
        gc.set_threshold(*threshold)


# ---- deep and cyclic trees ----


@pytest.mark.parametrize("name", NESTS)
def test_deep_trees(registry: Any, name: str) -> None:
    make, inner = NESTS[name]
    tree = nest(make, 100_000)
    for _ in range(2):
        with pytest.raises(RecursionError):
            core.flatten(registry, tree)
    unnest(tree, inner)
    shallow = nest(make, 50)
    arrays, structure = core.flatten(registry, shallow)
    assert testing.match(structure, shallow) == arrays
    assert structure._array_paths() and repr(structure)
    deep = nest(make, 100_000)
    assert testing.match(structure, deep) is None
    unnest(deep, inner)


@pytest.mark.parametrize("name", NESTS)
def test_depths_near_the_limit(registry: Any, name: str) -> None:
    """A tree that is flattened near the limit is matched and built, or raises RecursionError."""
    make, _ = NESTS[name]
    limit = sys.getrecursionlimit()
    for depth in (limit // 4, limit // 3, limit // 2, limit - 60, limit - 30, limit + 10):
        found = attempt(core.flatten, registry, nest(make, depth))
        if isinstance(found, RecursionError):
            continue
        arrays, structure = found
        for result in (
            attempt(testing.match, structure, nest(make, depth)),
            attempt(structure.unflatten, arrays),
        ):
            assert result is not None
            assert not isinstance(result, Exception) or isinstance(result, RecursionError)
        assert isinstance(attempt(repr, structure), (str, RecursionError))
        assert len(structure._array_paths()[0]) == depth


def test_deep_statics(registry: Any) -> None:
    for make in (lambda t: (t,), lambda t: frozenset([t]), lambda t: [t], lambda t: {"a": t}):
        value: Any = 1
        for _ in range(500 if make(1) == frozenset([1]) else 50_000):
            value = make(value)
        _, structure = core.flatten(registry, Linear(size=value))
        assert isinstance(attempt(hash, structure), (int, RecursionError))
        assert isinstance(
            attempt(testing.match, structure, Linear(size=value)), (tuple, RecursionError)
        )


def test_cycles(registry: Any) -> None:
    for tree in ([1], {"a": 1}, Linear(), Box([])):
        if isinstance(tree, list):
            tree.append(tree)
        elif isinstance(tree, dict):
            tree["self"] = tree
        elif isinstance(tree, Linear):
            tree.weight = tree
        else:
            tree.children.append(tree)
        with pytest.raises(RecursionError):
            core.flatten(registry, tree)
        with pytest.raises(RecursionError):
            core.flatten(registry, [0, tree])


def test_static_cycles(registry: Any) -> None:
    """A value in itself is compared as the value so many levels up."""

    def make(levels: int, last: Any = 0) -> Any:
        loop: list[Any] = [last]
        inner = loop
        for _ in range(levels - 1):
            inner.append([1])
            inner = inner[-1]
        inner.append({"loop": loop})
        return Linear(size=loop)

    trees = [make(1), make(2), make(3), make(1, True), make(1, -1), make(1, -2)]
    check_all_differ(
        registry, trees, [make(1), make(2), make(3), make(1, True), make(1, -1), make(1, -2)]
    )
    _, structure = core.flatten(registry, trees[0])
    hash(structure)
    trees[0].size[0] = 5
    assert testing.match(structure, trees[0]) is None
    for tree in trees:
        tree.size.clear()


def test_a_match_against_a_cycle_ends(registry: Any) -> None:
    loop: list[Any] = []
    loop.append(loop)
    _, structure = core.flatten(registry, [[[[Array()]]]])
    assert testing.match(structure, loop) is None
    loop.clear()


def test_recursion_errors_carry_no_path(registry: Any) -> None:
    """The path would be as long as the tree is deep."""
    deep = nest(lambda t: (t,), 100_000)  # Python 3.14 walks as deep as the stack allows
    with pytest.raises(RecursionError) as info:
        core.flatten(registry, deep)
    assert not hasattr(info.value, "__filterjit_error_context__")


def test_a_static_that_compares_its_own_structure(registry: Any) -> None:
    holder: list[Any] = []

    def again() -> None:
        if holder:
            structure = holder.pop()
            assert testing.match(structure, tree) is not None
            other = core.flatten(registry, tree)[1]
            hash(other)
            assert structure == other

    tree = [Hostile(on_eq=again), Array()]
    _, structure = core.flatten(registry, [Hostile(), Array()])
    hash(structure)
    holder.append(structure)
    assert testing.match(structure, tree) == (tree[1],)


def test_build_with_callables_that_fail(registry: Any) -> None:
    class Fails(Record):
        armed = False

        def __init__(self, data: Any, other: Any, tag: Any) -> None:
            if Fails.armed:
                raise ZeroDivisionError
            super().__init__(data, other, tag)

    tree = [Array(), (Array(), {"k": Linear(weight=Fails(Array(), 1, 2))}), Array()]
    arrays, structure = core.flatten(registry, tree)
    Fails.armed = True
    with pytest.raises(ZeroDivisionError):
        structure.unflatten(arrays)


def test_a_class_changed_by_classify() -> None:
    """Nothing holds the class that the registry was asked about."""

    def ask(cls: type, x: Any) -> tuple[Any, ...]:
        if cls.__name__ == "Brief":
            x.__class__ = Linear
            gc.collect()
        return classify(cls, x)

    registry = make_registry(classify=ask)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="changed its class"):
            core.flatten(registry, [type("Brief", (Linear,), {})(weight=Array())])
        gc.collect()


@pytest.mark.parametrize("name", ENDLESS)
def test_calls_within_calls_forever(name: str) -> None:
    """Each call of a FilterJit takes one frame of Python, and much more of the C stack."""
    code = f"""
from core_support import *

def static(**methods):
    return type("Static", (), methods)()

make = lambda: {ENDLESS[name]}
f = make_jit(lambda x: 1)
kept = make()
for _ in range(2):
    try:
        f(make())
        f(kept)
        f(kept)
    except RecursionError:
        print("too deep")
"""
    output = output_of("-c", code)
    if name != "eq":  # each is of a class of its own
        assert "too deep" in output


def test_a_match_that_turns_to_python_calls_forever() -> None:
    """The Structure tells of no Python code; an attribute that is missing later asks for some."""
    code = """
from core_support import *

class Lacks(Slots):
    def __getattr__(self, name):
        return f(kept)

f = make_jit(lambda x: 1)
kept = [Lacks(x=Array(), y=Array(), tag=1)]
f(kept), f(kept)
del kept[0].y
for _ in range(2):
    try:
        f(kept)
    except RecursionError:
        print("too deep")
"""
    assert "too deep" in output_of("-c", code)


def _deep(depth: int, leaf: Any) -> Any:
    x = leaf
    for _ in range(depth):
        x = [x, 1]
    return x


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("may_run_python", [False, True])
def test_less_of_the_stack_than_for_flattening(static: bool, may_run_python: bool) -> None:
    """Each walk counts its own depth.  Up to 3.11, the recursion limit counts C code as well."""
    registry = make_registry()
    leaf = Hostile() if may_run_python else Array()

    def make() -> Any:
        x = _deep(150, leaf)
        return Linear(weight=Array(), size=x) if static else x

    tree, other = make(), make()
    arrays, structure = core.flatten(registry, tree)
    again = core.flatten(registry, other)[1]
    hash(structure), hash(again)
    _, outer = core.tree_flatten(registry, tree, True, None)
    f = make_jit(lambda x: x)
    f(tree)
    calls: dict[str, Callable[[], Any]] = {
        "flatten": lambda: core.flatten(registry, other),
        "unflatten": lambda: structure.unflatten(arrays),
        "match": lambda: testing.match(structure, other),
        "equal": lambda: structure == again,
        "hash": lambda: hash(core.flatten(registry, other)[1]),
        "repr": lambda: repr(structure),
        "paths": lambda: tree_paths(registry, tree, None),
        "array_paths": lambda: f._find(tree)[1]._array_paths(),
        "up to": lambda: outer._subtrees(other),
        "pattern": lambda: core.tree_flatten(registry, tree, ("path", (("deep",),)), None),
        "call": lambda: f(other),
        "find": lambda: f._find(other),
        "find_or_compile": lambda: f._find_or_compile(other),
    }
    here = len(inspect.stack(0))
    before = sys.getrecursionlimit()
    for call in calls.values():
        for room in (20, 60, 100, 130, 145, 152, 160):
            try:
                sys.setrecursionlimit(here + room)
                call()
            except RecursionError:
                pass
            finally:
                sys.setrecursionlimit(before)
        call()
    assert same(f(other), other)
