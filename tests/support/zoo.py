"""The zoo: statics of all kinds, the places where one can stand, and the tests of each in each.

A module of the zoo has a table `STATICS`, and imports the tests from here. A static is told by a
function that makes values that differ, and a change of the first of them::

    "bytearray": Static(lambda: [bytearray(b"ab"), b"ab"], lambda x: x.append(3))

A jitted function returns `seen` of its argument, which cannot be wrong if it is the same without
jit. So each value has a program of its own, equal copies share it, and a change is noticed.
"""

import collections
import collections.abc
import dataclasses
import enum
import functools
import gc
import inspect
import pathlib
import struct
import sys
import time
import types
import uuid
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np
import pytest
from flax.nnx import Variable

import filterjit
from filterjit import _core
from filterjit._functions import _function_keys
from filterjit._observe._compare import Comparison
from filterjit._trees import _registry

from .modules import Holder
from .nodes import Custom, Point
from .statics import Constant
from .trees import ONE

__all__ = ["pytest_generate_tests", "test_calls", "test_compiled", "test_one_answer"]

# Each puts a value into an argument: as a leaf, where it must be hashable,
LEAVES: dict[str, Callable[[Any], Any]] = {
    "argument": lambda v: v,
    "containers": lambda v: {"a": [(v, 1)]},
    "Partial": lambda v: jtu.Partial(print, v),
    "dataclass": lambda v: Constant((v, 1)),
    "key": lambda v: {(v,): 1},
}
# and in static fields, aux data, and functions that are compared by structure.
FIELDS: dict[str, Callable[[Any], Any]] = {
    "static field": lambda v: Holder(ONE, v),
    "containers in a static field": lambda v: Holder(None, Point(1, [{"k": (v, 1)}])),
    "dataclass in a static field": lambda v: Holder(None, Constant(v)),
    "Module in a static field": lambda v: Holder(None, Holder(v)),
    "key in a static field": lambda v: Holder(None, {v: 1}),
    "aux data": lambda v: Custom(None, label=v),
    "metadata of a Variable": lambda v: Variable._new(None, {"c": v}),
    "closure": lambda v: lambda: v,
}
PLACES = LEAVES | FIELDS


@dataclasses.dataclass(frozen=True)
class Static:
    """Values that differ, and what is true of them."""

    make: Callable[[], list[Any]]  # anew on each call
    change: Callable[[Any], object] | None = None  # of the first one, in place
    places: tuple[str, ...] = tuple(PLACES)
    shared: bool = True  # equal copies share a program; others are compared by identity
    noticed: bool = True  # the change is; else the value equals what it was
    # Of functions that hold it: whether they do, by identity, since little is known of it; and how
    # many values no new function shares a program with, if not those that have no hash.
    opaque: bool = False
    apart: int | None = None

    def apart_in_functions(self, values: list[Any]) -> int:
        if self.apart is not None:
            return self.apart
        return len(values) if self.opaque else sum(map(_has_no_hash, values))


def of_numbers(
    make: Callable[[Any], Any],
    change: Callable[[Any], object] | None = None,
    places: tuple[str, ...] = tuple(PLACES),
    numbers: tuple[Any, ...] = (-1, 1, True, 1.0),
    **more: Any,
) -> Static:
    """A static that holds a number: one value of each of these, which differ."""
    return Static(lambda: [make(n) for n in numbers], change, places, **more)


def _has_no_hash(x: Any) -> bool:
    try:
        hash(x)
    except (TypeError, ValueError):
        return True
    return False


def attributed(x: Any, **attributes: Any) -> Any:
    """Returns an object with these attributes set."""
    for name, value in attributes.items():
        setattr(x, name, value)
    return x


def set_to(name: str, value: Any) -> Callable[[Any], object]:
    """Returns a function that sets an attribute."""
    return lambda x: setattr(x, name, value)


def set_frozen(name: str, value: Any) -> Callable[[Any], object]:
    """Returns a function that sets an attribute, of a frozen object too."""
    return lambda x: object.__setattr__(x, name, value)


# ---- what can be seen of a value ----

_STANDARD_LIBRARY = sys.stdlib_module_names - {"types"}
_BY_REPR = {"http", "numpy", "omegaconf", "pandas"}  # these keep more than they show
_PARTS_OF_FUNCTIONS = "__qualname__", "__self__", "__func__", "__wrapped__", "__defaults__"


def seen(x: Any, inside: tuple[int, ...] = ()) -> str:
    """Tells apart all that a traced function can tell apart. `inside` are the objects around it."""
    if id(x) in inside:
        return "..."
    if x is ONE or isinstance(x, jax.core.Tracer):
        return "an array"
    parts = [y if isinstance(y, _Text) else seen(y, (*inside, id(x))) for y in _parts(x)]
    return f"{type(x).__module__}.{type(x).__qualname__}({', '.join(parts)})"


class _Text(str):
    """A part that is shown as it is."""


def _shown(x: Any) -> list[Any]:
    text = repr(x)
    return [] if " at 0x" in text else [_Text(text)]


def _parts(x: Any) -> list[Any]:
    match x:
        case _Text() | None | bool():
            return _shown(x)
        case enum.Enum():
            return [_Text(x.name), x.value]
        case jax.Array():
            with jax.ensure_compile_time_eval():
                is_key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
                data = jax.random.key_data(x) if is_key else x
            return [_Text(x.aval), np.asarray(data)]
        case np.dtype():
            return [*_shown(x), x.str, x.metadata, *([] if x.fields is None else x.fields.values())]
        case np.ndarray():
            return [x.dtype, *_shown((x.shape, x.strides, x.flags.writeable, x.tolist()))]
        case np.generic():
            return [x.dtype, *_shown(x), x.tobytes(), *_attributes(x)]
        case float():
            return [struct.pack("d", x), *_attributes(x)]
        case pathlib.PurePath():
            return list(x.parts)
        case memoryview():
            return [x.format, x.shape, x.strides, x.readonly, x.tobytes()]
        case time.struct_time():
            return [*_shown(x), x.tm_zone]
        case uuid.UUID():
            return [*_shown(x), x.is_safe]
        case functools.partial():
            return [x.func, x.args, x.keywords]
        case types.ModuleType():
            return [v for k, v in vars(x).items() if not k.startswith("_")]
        case type():
            return [_Text(x.__qualname__), *(v for k, v in vars(x).items() if k == "scale")]
        case weakref.ref():
            return [x()]
        case Variable():
            return [x.get_metadata()]
        case types.FunctionType() | types.MethodType() | types.BuiltinMethodType():
            return _parts_of_function(x)
        case types.MethodWrapperType() | jax.stages.Wrapped() | functools._lru_cache_wrapper():
            return _parts_of_function(x)
    if type(x).__module__.partition(".")[0] in _BY_REPR:
        return [*_shown(x), getattr(x, "unit", None)]
    return [*_elements(x), *_attributes(x)]


def _parts_of_function(x: Any) -> list[Any]:
    cells = [cell.cell_contents for cell in getattr(x, "__closure__", None) or ()]
    return [*cells, *(getattr(x, name, None) for name in _PARTS_OF_FUNCTIONS)]


def _elements(x: Any) -> list[Any]:
    match x:
        case types.MappingProxyType():
            return list(gc.get_referents(x))
        case collections.ChainMap():
            return list(x.maps)
        case collections.abc.Mapping():
            return [getattr(x, "default_factory", None), *((k, x[k]) for k in x)]
        case set() | frozenset():
            return sorted(_Text(seen(y)) for y in type(x).__mro__[-2].__iter__(x))
        case weakref.WeakSet():
            return sorted(_Text(seen(y)) for y in x)
        case tuple() | list() | collections.deque() | collections.abc.MappingView():
            return [getattr(x, "maxlen", None), *x]
    if type(x).__repr__ is object.__repr__ or dataclasses.is_dataclass(x):
        return []
    return _shown(x)


def _attributes(x: Any) -> list[Any]:
    """Returns the attributes that a program has set: none of an object of the standard library,
    and no cached properties."""
    if type(x).__module__.partition(".")[0] in _STANDARD_LIBRARY:
        return []
    names = list(getattr(x, "__dict__", ()))
    for cls in type(x).__mro__:
        if cls.__module__.partition(".")[0] not in _STANDARD_LIBRARY:
            names += [k for k, v in vars(cls).items() if type(v) is types.MemberDescriptorType]
    return [
        (name, getattr(x, name, "absent"))
        for name in names
        if name != "_hash"
        and not isinstance(inspect.getattr_static(type(x), name, None), functools.cached_property)
    ]


# ---- the tests ----


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives each test the statics of its module, and the places of each."""
    if "static" not in metafunc.fixturenames:
        return
    statics = metafunc.module.STATICS
    if "place" in metafunc.fixturenames:
        cases = [(name, place) for name, static in statics.items() for place in static.places]
        values = [(statics[name], place) for name, place in cases]
        metafunc.parametrize(("static", "place"), values, ids=[" in ".join(c) for c in cases])
    else:
        metafunc.parametrize("static", statics.values(), ids=list(statics))


def jitted(place: str) -> Any:
    functions: Any = "structure" if place == "closure" else "identity"
    return filterjit.filter_jit(lambda x: seen(x), functions=functions)


MANY = 130  # calls, after which there is a record of what the arguments were


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
def test_calls(static: Static, place: str) -> None:
    put, f = PLACES[place], jitted(place)
    values = static.make()
    try:
        arguments = [put(value) for value in values]
    except (TypeError, ValueError):  # it has no hash, and cannot be a key
        assert "key" in place
        return
    # What JAX builds for a function: it sorts the keys of dicts.
    answers = [seen(jtu.tree_map(lambda leaf: leaf, argument)) for argument in arguments]
    assert len(set(answers)) == len(values), "the function does not show its argument"
    try:
        assert [f(argument) for argument in arguments] == answers
    except (TypeError, ValueError):
        assert place in LEAVES
        with pytest.raises((TypeError, ValueError)):
            [eqx.filter_jit(lambda x: seen(x))(argument) for argument in arguments]
        return
    # The same objects again, and equal ones.
    assert [f(argument) for argument in reversed(arguments)] == answers[::-1]
    assert len(f.variants) == len(values)
    apart = static.apart_in_functions(values)
    assert [f(put(value)) for value in static.make()] == answers
    if place == "closure":
        assert len(f.variants) - len(values) == apart
    else:
        assert static.shared == (len(f.variants) == len(values))
    if static.change is None or "key" in place:  # a dict does not find a key that has changed
        return
    first, count = arguments[0], len(f.variants)
    for _ in range(MANY if place == "static field" else 1):
        assert f(first) == answers[0]
    static.change(values[0])
    changed = seen(jtu.tree_map(lambda leaf: leaf, first))
    assert changed not in answers
    if static.noticed if place != "closure" else not static.opaque:
        assert not f.explain(first).hit
        assert f(first) == f(first) == changed
        assert len(f.variants) == count + 1
    else:
        assert f(first) in (answers[0], changed)
    if static.noticed and place == "static field":  # also right after the first call
        f, value = filterjit.filter_jit(lambda x: seen(x)), static.make()[0]
        argument = put(value)
        assert f(argument) == answers[0]
        static.change(value)
        assert f(argument) == changed
    # The object that the first program was traced with is not what it was.
    assert f(put(static.make()[0])) == answers[0]


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
def test_compiled(static: Static) -> None:
    """A function that was compiled for a value refuses others, and a changed one."""
    for place in ("argument", "static field", "aux data"):
        put, values = PLACES[place], static.make()
        # `lower` takes a ShapeDtypeStruct in an argument for an array.
        if place not in static.places or isinstance(values[0], jax.ShapeDtypeStruct):
            continue
        f = filterjit.filter_jit(lambda x: seen(x))
        arguments = [put(value) for value in values]
        try:
            compiled = f.lower(arguments[0]).compile()
        except (TypeError, ValueError):
            assert place == "argument"
            continue
        answer = seen(jtu.tree_map(lambda leaf: leaf, arguments[0]))
        assert compiled(arguments[0]) == answer
        if static.shared:
            assert compiled(put(static.make()[0])) == answer
        for argument in arguments[1:]:
            with pytest.raises(filterjit.MismatchError):
                compiled(argument)
        if static.change is not None and static.noticed:
            static.change(values[0])
            with pytest.raises(filterjit.MismatchError):
                compiled(arguments[0])


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
@pytest.mark.parametrize("registry", [_registry.registry, _function_keys.registry])
def test_one_answer(static: Static, registry: _core.Registry) -> None:
    """Prediction, look-up and `explain` say the same of any two values: whether they are equal, as
    they were when each was looked up."""
    testing = pytest.importorskip("filterjit._testing")
    for place in static.places:
        if place == "closure" and registry is _registry.registry:
            continue  # functions are compared by identity there
        put, values = PLACES[place], static.make()
        copies = [*values, *static.make()]
        earlier: list[tuple[int, Any]] = []
        for i, value in enumerate([*copies, values[0]]):
            if i == len(copies):
                if static.change is None or "key" in place:
                    break
                static.change(value)
            try:
                argument = put(value)
                now = _core.flatten(registry, argument)[1]
                hash(now)
            except (TypeError, ValueError):
                continue  # it is refused
            for k, was in earlier:
                if place not in ("argument", "static field") and i - k > 1 and i - k != len(values):
                    continue  # equal ones, and neighbours
                # The second match knows the contents that the first may have taken.
                predicted = [testing.match(was, argument) is not None for _ in range(2)]
                answers = {*predicted, was == now, not Comparison(registry, was, now).causes}
                assert len(answers) == 1, (place, k, i)
                if static.shared and static.noticed and registry is _registry.registry:
                    assert answers == {k + len(values) == i < len(copies)}, (place, k, i)
            earlier.append((i, now))
