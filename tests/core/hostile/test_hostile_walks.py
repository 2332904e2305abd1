"""User code that runs in the middle of a walk and changes what is walked; trees without end.

Nothing here may crash; most of it may fail or match as it likes. Sanitizers (``.ci/sanitize``)
tell whether memory was used after it was freed.
"""

import functools
import gc
import inspect
import operator
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Hostile,
    Linear,
    Maybe,
    Record,
    Value,
    classify,
    core,
    make_jit,
    make_registry,
    same,
    variants,
)
from hostile_support import (
    CONTAINERS,
    DEEDS,
    NESTS,
    Loud,
    Once,
    attempt,
    fill,
    filled,
    nest,
    nothing,
)

# What calls a hook when it is met: by hash, by ==, by is_array, by split, by getattr.
TRAPS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "hash": lambda hook: Hostile(on_hash=hook),
    "eq": lambda hook: Hostile(on_eq=hook),
    "is_array": lambda hook: Maybe(True, hook),
    "is_array_static": lambda hook: Maybe(False, hook),
    "split": lambda hook: Box([Array(), 1], hook=hook),
    "in_tuple": lambda hook: Box([], aux=((Hostile(on_eq=hook), Hostile(on_hash=hook)),)),
    "getattr": lambda hook: Loud(hook),
}


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("trap", TRAPS)
def test_changed_during_a_walk(trap: str, kind: str, deed: Callable[[Any], Any]) -> None:
    """The deed is done when the trap is met the `at`-th time: in the operation or after it."""
    for at in (1, 2, 3):
        for operation in ("flatten", "match", "compare", "match_other"):
            registry = make_registry()
            container = filled(kind, TRAPS[trap](nothing))
            _, structure = core.flatten(registry, [container, Array()])
            hash(structure)
            hook = Once(functools.partial(deed, container), at)
            fill(container, TRAPS[trap](hook))
            tree = [container, Array()]
            if operation == "flatten":
                attempt(core.flatten, registry, tree)
            elif operation == "match":
                attempt(core.match, structure, tree)
            elif operation == "match_other":
                attempt(core.match, structure, [container, 1])
            else:
                other = attempt(core.flatten, registry, tree)
                if isinstance(other, tuple):
                    attempt(hash, other[1])
                    attempt(operator.eq, other[1], structure)
            attempt(core.flatten, registry, tree)
            attempt(core.match, structure, tree)
            attempt(repr, structure)
            assert hook.calls > 0


@pytest.mark.parametrize("cls", [list, set, dict])
@pytest.mark.parametrize("hook", ["on_hash", "on_eq"])
def test_a_field_emptied_while_it_is_hashed_or_compared(registry: Any, cls: Any, hook: str) -> None:
    """Static fields may be mutable; theirs are the only elements that nobody else holds."""

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
            attempt(core.match, structure, Linear(size=value))
            attempt(core.match, structure, Linear(size=other))
            _, second = core.flatten(registry, Linear(size=other))
            attempt(hash, second)
            attempt(operator.eq, structure, second)
    assert any(emptied)


def test_the_structure_dropped_during_a_match() -> None:
    """By the cache and by the wrapper: the call alone holds it then."""
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
    f(Array(), 2)  # which takes the place of that call's variant
    gc.collect()
    assert [structure() for structure in dropped] == [None]


def test_the_registry_is_held_by_its_structures() -> None:
    _, structure = core.flatten(make_registry(), [Array(), 1, Value(1)])
    gc.collect()
    assert len(core.match(structure, [Array(), 1, Value(1)])) == 1


def test_the_registry_learns_during_a_walk() -> None:
    """classify() that flattens instances itself, of the very type that is asked about."""

    def classify(cls: type, x: Any) -> tuple[Any, ...]:
        if cls is list and x:
            core.flatten(registry, [])
            core.flatten(registry, [[], [1]])
        return ("list",) if cls is list else ("static", None)

    registry = make_registry(classify=classify)
    arrays, structure = core.flatten(registry, [[1], [2]])
    assert arrays == () and structure.num_nodes == 5
    assert registry.known_types() == 2


def test_classify_that_fails() -> None:
    def classify(cls: type, x: Any) -> tuple[Any, ...]:
        raise ZeroDivisionError

    registry = make_registry(classify=classify)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            core.flatten(registry, [1])


def test_the_type_dies_while_it_is_asked_about() -> None:
    """The instance moves to another class in classify(), and nothing else holds the old one."""

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
    """A class whose instances compared by identity when they were flattened: a match goes on to
    do so. Where structures are compared, its new ``__eq__`` runs."""

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
    assert core.match(structure, outer) is None and len(outer) == 2
    attempt(operator.eq, structure, core.flatten(registry, outer)[1])
    assert outer == []


def test_a_dict_dropped_during_a_look_up_in_it(registry: Any) -> None:
    """An attribute's name that is no plain str: looking for a field compares with it."""

    class Name(str):
        hook: Any = None

        def __hash__(self) -> int:
            return str.__hash__(self)

        def __eq__(self, other: object) -> bool:
            if Name.hook is not None:
                Name.hook()
            return str.__eq__(self, other)

    for field in ("weight", "bias", "size", "__doc__"):
        Name.hook = None
        tree = Linear(size=3)
        _, structure = core.flatten(registry, Linear(weight=Array(), bias=Array(), size=3))
        hash(structure)

        def fresh(tree: Any = tree, field: str = field) -> None:
            tree.__dict__ = {Name(field): Array(), "bias": Array(), "size": 3}
            gc.collect()

        fresh()
        Name.hook = fresh
        attempt(core.match, structure, tree)
        attempt(core.flatten, registry, tree)
        Name.hook = None


@pytest.mark.parametrize("cls", [Linear, type("OnException", (Linear, Exception), {})])
def test_a_collection_in_the_middle_of_a_plain_match(registry: Any, cls: Any) -> None:
    """Finalizers run wherever the collector does, and that is where memory is allocated."""
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
            attempt(core.match, structure, tree)
            gc.set_threshold(*threshold)
    finally:
        gc.set_threshold(*threshold)


# ---- without end ----


def unnest(tree: Any, inner: Callable[[Any], Any]) -> None:
    """Takes a deep tree apart from the top: not all types are dropped without recursion."""
    while not isinstance(tree, Array):
        tree = inner(tree)


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
    assert core.match(structure, shallow) == arrays
    assert structure._array_paths() and repr(structure)
    deep = nest(make, 100_000)
    assert core.match(structure, deep) is None
    unnest(deep, inner)


@pytest.mark.parametrize("name", NESTS)
def test_as_deep_as_it_goes(registry: Any, name: str) -> None:
    """What can be flattened near the limit can also be matched and built, or says it cannot."""
    make, _ = NESTS[name]
    limit = sys.getrecursionlimit()
    for depth in (limit // 4, limit // 3, limit // 2, limit - 60, limit - 30, limit + 10):
        found = attempt(core.flatten, registry, nest(make, depth))
        if isinstance(found, RecursionError):
            continue
        arrays, structure = found
        for result in (
            attempt(core.match, structure, nest(make, depth)),
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
            attempt(core.match, structure, Linear(size=value)), (tuple, RecursionError)
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
    loop: list[Any] = []
    loop.append(loop)
    _, structure = core.flatten(registry, Linear(size=loop))
    with pytest.raises(RecursionError):
        hash(structure)
    loop.clear()


def test_a_match_against_a_cycle_ends(registry: Any) -> None:
    loop: list[Any] = []
    loop.append(loop)
    _, structure = core.flatten(registry, [[[[Array()]]]])
    assert core.match(structure, loop) is None
    loop.clear()


def test_recursion_errors_carry_no_path(registry: Any) -> None:
    """It would be as long as the tree is deep."""
    deep = nest(lambda t: (t,), 10_000)
    with pytest.raises(RecursionError) as info:
        core.flatten(registry, deep)
    assert not hasattr(info.value, "__filterjit_error_context__")


def test_a_static_that_compares_its_own_structure(registry: Any) -> None:
    holder: list[Any] = []

    def again() -> None:
        if holder:
            structure = holder.pop()
            assert core.match(structure, tree) is not None
            other = core.flatten(registry, tree)[1]
            hash(other)
            assert structure == other

    tree = [Hostile(on_eq=again), Array()]
    _, structure = core.flatten(registry, [Hostile(), Array()])
    hash(structure)
    holder.append(structure)
    assert core.match(structure, tree) == (tree[1],)


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
    """The instance would be taken apart as what it was, whose class nothing holds."""

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


ENDLESS = {
    "hash": "static(__hash__=lambda self: f(self))",
    "eq": "static(__hash__=lambda self: 1, __eq__=lambda self, other: f(make()))",
    "is_array": "Maybe(True, lambda: f(make()))",
    "split": "Box([], hook=lambda: f(make()))",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_calls_without_end(name: str) -> None:
    """With one frame of Python's for each call of ours, which takes far more of the stack."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from core_support import *

def static(**methods):
    return type("Static", (), methods)()

make = lambda: {ENDLESS[name]}
f = make_jit(lambda x: 1)
fixed = make()
for _ in range(2):
    try:
        f(make())
        f(fixed)
        f(fixed)
    except RecursionError:
        print("too deep")
"""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    if name != "eq":  # each is of a class of its own
        assert "too deep" in done.stdout


def _deep(depth: int, leaf: Any) -> Any:
    x = leaf
    for _ in range(depth):
        x = [x, 1]
    return x


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("careful", [False, True])
def test_less_of_the_stack_than_when_it_was_taken_apart(static: bool, careful: bool) -> None:
    """Each walk keeps count of its own depth. Up to 3.11 the limit counts for C as well."""
    registry = make_registry()
    leaf = Hostile() if careful else Array()

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
        "match": lambda: core.match(structure, other),
        "equal": lambda: structure == again,
        "hash": lambda: hash(core.flatten(registry, other)[1]),
        "repr": lambda: repr(structure),
        "paths": lambda: core.tree_paths(registry, tree, None),
        "array_paths": lambda: f._peek(tree)[1]._array_paths(),
        "up to": lambda: outer.flatten_up_to(other),
        "pattern": lambda: core.tree_flatten(registry, tree, ("path", (("deep",),)), None),
        "call": lambda: f(other),
        "peek": lambda: f._peek(other),
        "lookup": lambda: f._lookup(other),
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
