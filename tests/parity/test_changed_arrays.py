"""NumPy arrays in statics that are changed in place: a trace sees what they hold at that moment.

JAX keeps the conversion of an array of 64 bits by its address, as long as a program holds it.
Equinox answers with old values. The oracle is a new function with new arrays of the same
values.
"""

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from filterjit import filter_jit, lax
from filterjit._compat import _jax_compat
from support.modules import Holder
from support.versions import enable_x64

pytestmark = pytest.mark.filterwarnings("ignore:A JAX array is being set as static")

# What JAX keeps copies of, unless jax_enable_x64 is set, and some of the rest.
COPIED = [np.dtype(x) for x in ("int64", "uint64", "float64", "complex128")]
DTYPES = [*COPIED, *map(np.dtype, ("float32", ml_dtypes.bfloat16))]

ONES = jnp.ones(3)


class Sub(np.ndarray):
    note: Any


def _noted(x: Any, note: Any) -> Any:
    x.note = note
    return x


def _object_array(table: Any) -> Any:
    made = np.empty(1, object)
    made[0] = table
    return made


def _scaled(m: Any) -> Any:
    return m.x * m.s


def _jitted() -> Any:
    """Returns a new function, which shares no program."""
    return filter_jit(lambda m: m.x * m.s)


def _static(make: Callable[[Any], Any], read: Callable[[Any], Any]) -> Any:
    """Returns a place: a static field of a Module that holds an array somewhere, in calls of a
    new function."""
    return lambda table: functools.partial(
        filter_jit(lambda m: m.x * read(m.s)), Holder(ONES, make(table))
    )


def _calling(call: Callable[[Any, Any], Any]) -> Any:
    """Returns a place: what is done with a new function and a model in each call."""
    return lambda table: functools.partial(call, _jitted(), Holder(ONES, table))


def _disabled(f: Any, m: Any) -> Any:
    f(m)
    with jax.disable_jit():
        return f(m)


def _step(c: Any, x: Any) -> Any:
    return c, _scaled(c)


LAX: dict[str, Callable[[Any], Any]] = {
    "scan": lambda m: lax.scan(_step, m, length=1)[1][0],
    "cond": lambda m: lax.cond(True, _scaled, lambda m: 2 * _scaled(m), m),
}


def _after_plain_jit(table: Any) -> Any:
    """Equal values are in a program of ``jax.jit`` first."""
    plain = jax.jit(lambda w: w * table)
    plain(ONES)

    def call() -> Any:
        assert plain
        return filter_jit(_scaled)(Holder(ONES, table))

    return call


PLACES: dict[str, Callable[[Any], Any]] = {
    "static": _static(lambda x: x, lambda x: x),
    "array of objects": _static(_object_array, lambda x: x[0]),
    "subclass": _static(lambda x: x.view(Sub), lambda x: x),
    "attribute of an array": _static(lambda x: _noted(np.ones(1).view(Sub), x), lambda x: x.note),
    "Module": _static(lambda x: Holder(1, x), lambda x: x.s),
    "inner filter_jit": _calling(lambda f, m: filter_jit(lambda m: f(m))(m)),
    "lowered": _calling(lambda f, m: f.lower(m).compile()(m)),
    "disable_jit": _calling(_disabled),
} | {
    f"lax.{name}{inside}": lambda x, f=f, wrap=wrap: functools.partial(wrap(f), Holder(ONES, x))
    for name, f in LAX.items()
    for inside, wrap in {"": lambda f: f, " inside": lambda f: filter_jit(lambda m: f(m))}.items()
}


def _table(dtype: Any) -> Any:
    return np.array([0, 1, 1]).astype(dtype)


def _change(table: Any) -> None:
    table[...] = np.array([1, 0, 1]).astype(table.dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_a_trace_sees_what_an_array_holds(place: str, dtype: Any) -> None:
    table = _table(dtype)
    call = PLACES[place](table)
    kept = call()  # whose program lives
    _change(table)
    changed = _table(dtype)
    _change(changed)
    found, expected = call(), PLACES[place](changed)()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(kept, found)


def test_warnings_of_conversions() -> None:
    """An array that no trace uses is converted in silence."""
    filter_jit(lambda m: m.x)(Holder(ONES, np.array([1e300])))


@pytest.mark.parametrize("dtype", COPIED, ids=str)
@pytest.mark.parametrize("first", [False, True])
def test_64_bits_that_are_turned_on_or_off(first: bool, dtype: Any) -> None:
    """What JAX keeps has another dtype. Plain ``jax.jit`` raises, or computes in that."""
    table = np.array([1, 3], dtype)
    f, m = filter_jit(_scaled), Holder(ONES[:2] > 0, table)
    with enable_x64(first):
        kept = f(m)
    with enable_x64(not first):
        found, expected = f(m), f(Holder(m.x, table.copy()))
    assert found.dtype == expected.dtype != kept.dtype
    np.testing.assert_array_equal(found, expected)


def _constant(x: Any) -> Any:
    return jax.make_jaxpr(lambda: x)().consts[0]


@pytest.mark.parametrize("value", [0.1, np.nan, -0.0], ids=str)
def test_what_jax_keeps_of_an_array_that_has_not_changed(value: float) -> None:
    """Programs share it: a large array is converted once."""
    table = np.array([0.0, value])
    kept = _constant(table)
    if kept is not _constant(table) or kept is table:
        pytest.skip("this JAX does not keep conversions")
    filter_jit(_scaled)(Holder(jnp.ones(2), table))
    assert _constant(table) is kept
    table[0] = 1
    filter_jit(_scaled)(Holder(jnp.ones(2), table))
    assert _constant(table)[0] == 1 and kept[0] == 0


def test_the_users_own_objects() -> None:
    """The trace sees the array itself, and what it writes is in there."""
    table = np.arange(3.0)
    seen = []

    def write(m: Any) -> Any:
        seen.append(m.s[0] is m.s[1] is table)
        m.s[0][1] += 5
        return m.x * 1

    f, m = filter_jit(write), Holder(ONES, [table, table])
    f(m)
    table[0] = 7
    f(m)
    assert seen == [True, True] and table.tolist() == [7, 11, 2]


def test_weak_references_of_others() -> None:
    table, told = np.arange(3.0), []
    references = [weakref.ref(table, told.append) for _ in range(2)]
    weakref.finalize(table, told.append, "finalized")
    f, m = _jitted(), Holder(ONES, table)
    f(m)
    table[0] = 7
    f(m)
    assert told == [] and all(reference() is table for reference in references)
    del table, m, f
    gc.collect()
    jax.clear_caches()
    gc.collect()
    assert len(told) == 3


@pytest.mark.parametrize(
    "names", [[], ["_canonicalize"], ["_drop_conversion"], ["_canonicalize", "_drop_conversion"]]
)
@pytest.mark.parametrize("dtype", COPIED, ids=str)
def test_names_that_jax_lacks(
    monkeypatch: pytest.MonkeyPatch, names: list[str], dtype: Any
) -> None:
    lacking = {"_canonicalize": None, "_drop_conversion": lambda: None}
    monkeypatch.setattr(_jax_compat, "_drop_conversion", _jax_compat._drop_conversion.__wrapped__)
    for name in names:
        monkeypatch.setattr(_jax_compat, name, lacking[name])
    for shape in ((), (3,)):
        table = np.full(shape, 2, dtype)
        f, m = filter_jit(_scaled), Holder(ONES, table)
        kept = f(m)
        table[...] = 3
        np.testing.assert_array_equal(f(m), ONES * 3)
        np.testing.assert_array_equal(kept, ONES * 2)


def test_arrays_elsewhere() -> None:
    """A closure, a global variable and an object compared by identity behave as in ``jax.jit``:
    a newer JAX converts the arrays in them once, also for the trace of another shape."""

    def results(jit: Any) -> list[Any]:
        table = np.arange(3.0)
        f = jit(lambda x: (x * table)[0])
        kept = f(jnp.ones((1, 3)))
        table[0] = 7
        return [kept, f(jnp.ones((1, 3))), f(jnp.ones((2, 3)))]

    np.testing.assert_array_equal(results(filter_jit), results(jax.jit))
