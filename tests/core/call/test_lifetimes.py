"""How long objects live, and what holds them."""

import collections
import functools
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from core_support import Array, Box, Linear, Module, Record, core, make_registry, num_types, testing
from direct_support import ROWS, Backend, DirectArray, Layout, planned, program_of
from hooks_support import make_jit
from variable_support import TraceState, Var, large, make_variable_jit


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


def test_statics_die_with_the_variant_and_with_the_function() -> None:
    f = make_jit(lambda x, s: x)
    refs = []
    for _ in range(2):
        s = Static()
        refs.append(weakref.ref(s))
        f(Array(), s)
        del s
        assert not dies(refs[-1]), "it is in the variant"
        if len(refs) == 1:
            f._parts()[0].clear()
            assert dies(refs[0])
    variant = f._find_or_compile(Array(), 1)[0]
    refs += map(weakref.ref, (variant, variant.structure, f._parts()[0], f))
    variant = f = None
    assert all(map(dies, refs))


# ---- cycles ----


def called(f: Any, *calls: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    return f, [f(*args) for args in calls]


def direct_of(owner: Any) -> Any:
    backend = Backend()
    backend.owner = owner  # type: ignore[attr-defined]
    return planned(backend, DirectArray())


def of_a_registry(owner: Any) -> Any:
    registry = make_registry(classify=lambda cls, x, owner=owner: {"kind": "static"})
    return registry, core.flatten(registry, 1)


def open_arrays(tree: Any) -> Any:
    return core.tree_flatten(make_registry(), tree, ("arrays",), None)[1]


# What is made with an owner, which holds it.
HELD: dict[str, Callable[[Any], Any]] = {
    "a static of a function": lambda owner: called(make_jit(lambda x, s: (x, [s])), (Array(), owner)),
    "what is wrapped": lambda owner: called(make_jit(lambda x, own=owner: x), (Array(),)),
    "attributes and options": lambda owner: (
        f := make_jit(lambda x: x), setattr(f, "me", owner), setattr(f._hooks, "me", owner), f(Array())
    ),
    "a cache": lambda owner: (
        f := make_jit(lambda x: x), f(Array()), setattr(f._hooks, "me", [owner, f._parts()[0]])
    ),
    # JAX has not flattened it.
    "an output": lambda owner: (
        make_jit(lambda x: x)._find_or_compile(Array())[0]._finish([Array(), owner], Array)
    ),
    "a proxy": lambda owner: called(core.CallProxy(make_jit(lambda x: x), owner), (Array(),)),
    "a variable jit": lambda owner: called(
        make_variable_jit(lambda tree, own=owner: None), (large(),), (Var(Array(1), TraceState()),)
    ),
    "a registry": of_a_registry,
    "a direct context": direct_of,
    "a static": lambda owner: open_arrays([1, owner, Array()]),
    "a static of a call": lambda owner: core.flatten(make_registry(), owner)[1],
    "a field": lambda owner: open_arrays(Linear(size=owner)),
    "aux data": lambda owner: open_arrays(Box([1], aux=owner)),
    "a factory": lambda owner: open_arrays(collections.defaultdict(lambda: owner, a=1)),
    "a leaf": lambda owner: core.tree_groups(make_registry(), [owner], False, (), None)[1],
    "a skeleton": lambda owner: core.from_skeleton(make_registry(), 0, [0, 0], (0, owner)),
}  # fmt: skip


def holding(make: Callable[[Any], Any]) -> Any:
    owner: Any = Static()
    owner.held = make(owner)
    return owner


def through_the_class_of_a_node() -> Any:
    Kind: Any = type("Kind", (Linear,), {})
    Kind.structure = open_arrays([Kind(weight=1)])
    return Kind


def through_a_bound_method() -> Any:
    Thing: Any = type("Thing", (Linear,), {"method": make_jit(lambda self: None)})
    thing = Thing()
    bound = weakref.ref(thing.method)
    assert bound() is None
    thing.bound = thing.method
    thing.bound()
    return thing


class Value(Layout):
    """Is compared by its name, and can hold what it is compared for."""


class Text(str):
    """Has attributes."""


def through_an_entry(backend: Backend, where: str) -> Any:
    value = Value("value")
    if where == "why_no_plan":
        backend.parts["plan"] = lambda *args: Text("no")
    x = DirectArray(name="f32[3,4]", layout=value if where == "layout" else ROWS)
    if where == "configuration":
        backend.configuration = (True, value)
    if where == "setting":
        backend.settings[0].value = value
    if where == "sharding":
        x = DirectArray(sharding=value)
    direct = backend.jit()
    if where == "constant":
        value.value = 5  # type: ignore[attr-defined]
        program_of(direct, x).constants = (value,)
    direct(x), direct(x)
    assert direct.num_entries == (where != "why_no_plan")
    held: Any = direct.why_no_plan if where == "why_no_plan" else value
    assert where not in ("sharding", "layout") or direct in gc.get_referrers(held)
    held.me = direct
    backend.configuration, backend.settings[0].value = (), None
    return direct


CYCLES: dict[str, Callable[[], Any]] = {
    "the class of a node": through_the_class_of_a_node,
    "a bound method": through_a_bound_method,
    **{name: functools.partial(holding, make) for name, make in HELD.items()},
}


def test_cycles() -> None:
    for name, make in CYCLES.items():
        x = make()
        refs = [weakref.ref(x), *([weakref.ref(type(x))] if isinstance(x, Linear) else [])]
        assert refs[0]() is not None
        del x
        gc.collect()
        assert [ref() for ref in refs] == [None] * len(refs), name


def test_cycles_through_an_entry(backend: Backend) -> None:
    for where in ("configuration", "setting", "sharding", "layout", "constant", "why_no_plan"):
        backend.parts["plan"] = backend.plan
        ref = weakref.ref(through_an_entry(backend, where))
        gc.collect()
        assert ref() is None, where


# ---- types ----


def test_types_are_not_kept(registry: Any) -> None:
    types: list[Any] = [
        type("Tree", (Module,), {"dynamic": ("a",)}),
        *(type("Local", (base,), {}) for base in (Record, Box, Static, Array)),
    ]
    refs = [weakref.ref(t) for t in types]
    before = num_types(registry)
    tree = [types[0](a=1), types[1](1, 2, 3), types[2]([1]), types[3](), types[4]()]
    arrays, structure = core.flatten(registry, tree)
    testing.match(structure, tree)
    assert num_types(registry) - before == 5 + 2  # list and int
    del types, tree, arrays
    # A structure holds the types of its nodes and its statics, not the types of arrays.
    gc.collect()
    assert [r() is None for r in refs] == [False, False, False, False, True]
    del structure
    assert all(map(dies, refs)) and num_types(registry) == before + 2


def test_new_types_at_old_addresses(registry: Any) -> None:
    for i in range(20):
        base: Any = (Module, Array, Static)[i % 3]
        x = type("Brief", (base,), {"dynamic": ("a",)})()
        assert registry.kind(x) == ("module", "array", "static")[i % 3]
        del x
        gc.collect()
    assert num_types(registry) == 0
    types = [type(f"T{i}", (Static,), {}) for i in range(1000)]
    core.flatten(registry, [t() for t in types])
    for count in (1001, 501, 1):
        gc.collect()
        assert num_types(registry) == count
        assert all(registry.kind(t()) == "static" for t in types)
        del types[:: 2 if count > 501 else 1]


@pytest.mark.parametrize("together", [False, True])
def test_the_registry_dies_with_a_type_or_before(together: bool) -> None:
    registry, cls = make_registry(), type("Brief", (Static,), {})
    core.flatten(registry, cls())
    if together:
        cls.registry = registry  # type: ignore[attr-defined]
    refs = weakref.ref(registry), weakref.ref(cls)
    del registry
    gc.collect()
    assert (refs[0]() is None) is not together
    del cls
    assert all(map(dies, refs))


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


def a_function() -> Any:
    f = make_jit(lambda x: x)
    f(1), f(1)
    return f


def a_registry() -> Any:
    cycle: list[Any] = []
    cycle.append(make_registry(missing=cycle))
    return cycle[0]


@pytest.mark.parametrize(
    "make, use",
    [
        (a_function, lambda f: f(1)),
        (a_registry, lambda registry: registry.kind(3.5)),
        (a_registry, lambda registry: registry.missing),
        (a_registry, lambda registry: core.flatten(registry, (1, Array()))[1]),
    ],
)
def test_what_is_used_while_it_is_freed(make: Any, use: Any) -> None:
    for found in _called_while_freed(make(), use):
        if make is a_registry:
            assert not isinstance(found, Exception)
        else:  # or its options are freed already
            assert isinstance(found, AttributeError) or "while it is freed" in str(found)
