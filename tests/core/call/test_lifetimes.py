"""How long objects live, and what holds them."""

import contextlib
import functools
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Hooks,
    Linear,
    Module,
    Point,
    Record,
    core,
    make_jit,
    make_registry,
    testing,
)


class Static:
    """A static that can be referenced weakly."""


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    gc.collect()
    yield
    gc.collect()


def dies(ref: Any) -> bool:
    gc.collect()
    return ref() is None


def watched(x: Any) -> tuple[Any, Any]:
    return x, weakref.ref(x)


def test_arrays_are_not_kept_by_structures(registry: Any) -> None:
    x, ref = watched(Array())
    arrays, structure = core.flatten(registry, [x, 1])
    assert testing.match(structure, [x, 1]) == (x,)
    del x, arrays
    assert ref() is None, "it dies without a collection"


def test_trees_and_arrays_are_not_kept_by_calls() -> None:
    f = make_jit(lambda m, x: (m.weight, x))
    m, ref = watched(Linear(weight=Array(), bias=None))
    x, array_ref = watched(Array())
    f(m, x), f(m, x)
    del m, x
    assert ref() is None and array_ref() is None


def test_results_are_not_kept() -> None:
    f = make_jit(lambda x: [Array(x.value)])
    result = f(Array())
    result, ref = watched(result[0])
    del result
    assert ref() is None


def test_statics_die_with_the_function() -> None:
    s, ref = watched(Static())
    f = make_jit(lambda x, s: x)
    f(Array(), s)
    variant = weakref.ref(f._find_or_compile(Array(), s)[0])
    cache = weakref.ref(f._parts()[0])
    del s
    assert not dies(ref)
    f, function_ref = None, weakref.ref(f)
    assert dies(ref) and dies(variant) and dies(cache) and dies(function_ref)


def test_statics_die_with_the_variant() -> None:
    f = make_jit(lambda s: None)
    s, ref = watched(Static())
    f(s)
    del s
    f._parts()[0].clear()
    assert not dies(ref), "it is the predicted variant"
    f(1)
    assert dies(ref)


def test_evicted_variants_die() -> None:
    options = Hooks(make_registry(), maxsize=2)
    f = make_jit(lambda s: None, options)
    refs = []
    for _ in range(10):
        s, ref = watched(Static())
        refs.append(ref)
        f(s)
        del s
    gc.collect()
    assert [r() is None for r in refs] == [True] * 8 + [False] * 2


def test_a_trace_that_fails_keeps_nothing() -> None:
    f = make_jit(lambda x, s: 1 / 0)
    x, ref = watched(Array())
    s, static_ref = watched(Static())
    with pytest.raises(ZeroDivisionError):
        f(x, s)
    del x, s
    assert dies(ref) and dies(static_ref)


def test_an_error_in_a_match_keeps_nothing() -> None:
    f = make_jit(lambda x, s: x)
    f(Array(), 1)
    x, ref = watched(Array())
    with pytest.raises(TypeError):
        f(x, set())
    with pytest.raises(TypeError):
        f(x)
    del x
    assert dies(ref)


def test_cycles_through_statics() -> None:
    s, ref = watched(Static())
    f = make_jit(lambda x, s: x)
    f(Array(), s)
    s.f = f
    del s, f
    assert dies(ref)


def test_cycles_through_what_is_wrapped() -> None:
    def fun(x: Any) -> Any:
        return x

    ref = weakref.ref(fun)
    fun.jitted = make_jit(fun)  # type: ignore[attr-defined]
    fun.jitted(Array())  # type: ignore[attr-defined]
    del fun
    assert dies(ref)


def test_cycles_through_the_result() -> None:
    s, ref = watched(Static())
    f = make_jit(lambda x, s: (x, [s]))
    s.f, s.result = f, f(Array(), s)
    del f, s
    assert dies(ref)


def test_cycles_through_attributes_options_and_caches() -> None:
    f = make_jit(lambda x: x)
    f.me = f
    f._hooks.f = f
    f(Array())
    cache, arrays = f._parts()
    f._hooks.cache = cache
    refs = [weakref.ref(f), weakref.ref(cache), weakref.ref(f._hooks)]
    del f, cache, arrays
    assert all(map(dies, refs))


def test_cycles_through_structures() -> None:
    s, ref = watched(Static())
    s.all = core.flatten(make_registry(), Linear(weight=s, size=[s], bias=Box([], aux=s)))
    del s
    assert dies(ref)


def test_cycles_through_bound_methods() -> None:
    class Thing(Linear):
        pass

    Thing.method = make_jit(lambda self: None)  # type: ignore[attr-defined]
    thing: Any = Thing()
    ref, bound_ref = weakref.ref(thing), weakref.ref(thing.method)
    assert bound_ref() is None
    thing.bound = thing.method
    type_ref = weakref.ref(Thing)
    thing.bound()
    del thing
    assert dies(ref)
    del Thing
    assert dies(type_ref)


def test_cycles_through_the_registry() -> None:
    def classify(cls: type, x: Any) -> tuple[Any, ...]:
        return "static", None

    registry = make_registry(classify=classify)
    classify.registry = registry  # type: ignore[attr-defined]
    core.flatten(registry, 1)
    ref = weakref.ref(registry)
    del registry, classify
    assert dies(ref)


def test_wrapped_in_the_middle_of_a_collection() -> None:
    """A finalizer calls the FilterJit that is being collected, whose weak references are dead."""
    seen: list[Any] = []

    class Last:
        def __del__(self) -> None:
            with contextlib.suppress(AssertionError):
                seen.append((repr(self.f), self.f.__wrapped__, self.f._parts()))
                seen.append(self.f(Array()))
                seen.append(self.f(1, 2))

    f = make_jit(lambda x: 3)
    f(Array())
    last = Last()
    last.f = f  # type: ignore[attr-defined]
    f.last = last
    del f, last
    gc.collect()
    assert seen


class TestTypes:
    def test_types_are_not_kept(self, registry: Any) -> None:
        class Tree(Module):
            dynamic = ("a",)

        class Data(Record):
            pass

        class Node(Box):
            pass

        class Leaf:
            pass

        class Kind(Array):
            pass

        types = [Tree, Data, Node, Leaf, Kind]
        refs = [weakref.ref(t) for t in types]
        before = testing.num_types(registry)
        tree = [Tree(a=1), Data(1, 2, 3), Node([1]), Leaf(), Kind()]
        arrays, structure = core.flatten(registry, tree)
        testing.match(structure, tree)
        extra = testing.num_types(registry) - before
        assert extra == 5 + 2  # list and int
        del Tree, Data, Node, Leaf, Kind, types, tree
        # A structure holds the types of its nodes and its statics, not the types of arrays.
        del arrays
        gc.collect()
        assert [r() is None for r in refs] == [False, False, False, False, True]
        del structure
        assert all(map(dies, refs))
        assert testing.num_types(registry) == before + 2

    def test_a_new_type_at_an_old_address(self, registry: Any) -> None:
        for i in range(20):
            base: Any = (Module, Array, Static)[i % 3]
            cls = type("Brief", (base,), {"dynamic": ("a",)})
            x = cls(a=1) if base is Module else cls()
            kind = ("module", "array", "static")[i % 3]
            assert registry.kind(x) == kind
            del cls, x
            gc.collect()
        assert testing.num_types(registry) == 0

    def test_the_registry_dies_first(self) -> None:
        registry = make_registry()
        cls: Any = type("Brief", (Static,), {})
        core.flatten(registry, cls())
        del registry
        gc.collect()
        ref = weakref.ref(cls)
        del cls
        assert dies(ref)

    def test_both_die_together(self) -> None:
        registry = make_registry()
        cls: Any = type("Brief", (Static,), {})
        core.flatten(registry, cls())
        cls.registry = registry
        refs = weakref.ref(registry), weakref.ref(cls)
        del registry, cls
        assert all(map(dies, refs))

    def test_many_types(self, registry: Any) -> None:
        types = [type(f"T{i}", (Static,), {}) for i in range(1000)]
        core.flatten(registry, [t() for t in types])
        assert testing.num_types(registry) == 1001
        del types[::2]
        gc.collect()
        assert testing.num_types(registry) == 501
        assert all(registry.kind(t()) == "static" for t in types)
        types.clear()
        gc.collect()
        assert testing.num_types(registry) == 1


# ---- what finalizers find ----

# No container, so that it dies, and its finalizer runs, in the middle of the collection.
_untracked = functools.partial(compile, "0", "", "eval")


def _called_while_freed(x: Any, use: Callable[[Any], Any]) -> list[Any]:
    """Calls `use` with `x`, which nothing else may hold, after the garbage collector has cleared
    it and before it dies. Returns what `use` has returned or raised. Python 3.14 hides such
    objects: the list is empty."""
    found: list[Any] = []
    refs: list[Any] = []

    class Trash:
        def __del__(self) -> None:
            refs.append(weakref.ref(self.x))

    def finalize() -> None:
        if refs and (x := refs[-1]()) is not None:
            try:
                found.append(use(x))
            except Exception as e:
                found.append(e)

    gc.disable()
    try:
        code = _untracked()
        weakref.finalize(code, finalize)
        before: list[Any] = [code]
        before.append(before)
        trash = Trash()
        trash.x, trash.me = x, trash  # type: ignore[attr-defined]
        del code, before, trash, x
    finally:
        gc.enable()
    gc.collect()
    return found


def test_a_function_that_is_called_while_it_is_freed() -> None:
    array = Array()

    def make() -> Any:
        f = make_jit(lambda x: x)
        f(array), f(array)
        return f

    for error in _called_while_freed(make(), lambda f: f(array)):
        # Or its options are freed already.
        assert isinstance(error, AttributeError) or "while it is freed" in str(error)


@pytest.mark.parametrize(
    "use",
    [
        lambda registry: registry.kind(3.5),
        lambda registry: registry.missing,
        lambda registry: core.flatten(registry, (1, Array()))[1],
    ],
)
def test_a_registry_that_is_used_while_it_is_freed(use: Any) -> None:
    def make() -> Any:
        cycle: list[Any] = []
        cycle.append(make_registry(missing=cycle))
        return cycle[0]

    for found in _called_while_freed(make(), use):
        assert not isinstance(found, Exception)


def test_a_class_that_is_met_first_by_its_finalizer(registry: Any) -> None:
    """Python 3.14 clears the weak reference that is made then, and does not call its callback:
    the next class at that address is another one."""

    def make() -> int:
        class Trash(Point):
            def __del__(self) -> None:
                registry.kind(self)

        trash = Trash(1, 2)
        trash.me = trash  # type: ignore[attr-defined]
        return id(Trash)

    gc.collect()
    addresses = {make() for _ in range(200)}
    gc.collect()
    kept = []
    for _ in range(1000):
        kept.append(type("New", (), {}))
        if id(kept[-1]) in addresses:
            assert registry.kind(kept[-1]()) == "static"


def test_weak_references(registry: Any) -> None:
    f = make_jit(lambda x: x)
    things = [
        registry,
        core.flatten(registry, 1)[1],
        f,
        f._parts()[0],
        f._find_or_compile(Array())[0],
        core.BoundMethod(f, 1),
    ]
    refs = [weakref.ref(t) for t in things]
    assert all(r() is t for r, t in zip(refs, things, strict=True))
    things.clear()
    del f
    gc.collect()
    assert [r() for r in refs[1:]] == [None] * 5
