"""Direct calls with all kinds of arrays, in turn: an executable does not check what it is given.

All calls are made with plain ``jax.jit`` too, and both must do the same. Values that are no arrays of
JAX are in test_direct_host.
"""

import gc
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from jax.sharding import SingleDeviceSharding

import filterjit
from filterjit._call import _direct
from support.direct import Beside, counts, refusals
from support.versions import Format, Layout, auto_mesh

if not _direct.are_supported():
    pytest.skip("this version of JAX lacks what direct calls need", allow_module_level=True)
pytestmark = pytest.mark.usefixtures("direct")

CPU = jax.devices()[0]
X = jnp.arange(6.0).reshape(2, 3)


def laid_out(x: Any, *order: int) -> Any:
    """Returns a copy of an array, whose values lie in memory in another order."""
    return jax.device_put(x, Format(Layout(order), SingleDeviceSharding(CPU)))


def memories() -> list[str]:
    """Returns the kinds of memory other than the default one in which programs can run here."""
    found = []
    for memory in CPU.addressable_memories():
        if memory != CPU.default_memory():
            try:
                jax.jit(lambda x: x + 1)(in_memory(X, memory.kind))
            except Exception:
                continue
            found.append(memory.kind)
    return found


def in_memory(x: Any, kind: str) -> Any:
    return jax.device_put(x, SingleDeviceSharding(CPU, memory_kind=kind))


# Two arrays each, of the same size in memory, so that an executable would take either.
_PAIRS: dict[str, tuple[Any, Any]] = {
    "dtype": (jnp.ones(4, "float32"), jnp.ones(4, "int32")),
    "sign": (jnp.full(4, 200, "uint8"), jnp.full(4, -56, "int8")),
    "half": (jnp.ones(4, "float16"), jnp.ones(4, "bfloat16")),
    "bool": (jnp.ones(4, bool), jnp.ones(4, "uint8")),
    "complex": (jnp.ones(2, "complex64"), jnp.ones((2, 2), "float32")),
    "shape": (jnp.ones((2, 3)), jnp.ones((3, 2))),
    "rank": (jnp.ones(1), jnp.ones(())),
    "weak type": (jnp.asarray(1.0), jnp.float32(1.0)),
    "empty": (jnp.ones((0, 2)), jnp.ones((0, 3))),
    "committed": (X + 0, jax.device_put(X, CPU)),
    "layout": (jax.device_put(X, CPU), laid_out(X, 1, 0)),
    "order": (laid_out(jnp.arange(24.0).reshape(2, 3, 4), *(0, 2, 1)),
              laid_out(jnp.arange(24.0).reshape(2, 3, 4), *(2, 1, 0))),
    "key data": (jax.random.key(0), jax.random.key_data(jax.random.key(0))),
    "key impl": (jax.random.key(0, impl="threefry2x32"), jax.random.key(0, impl="rbg")),
    "NumPy": (X + 0, np.asarray(X)),
    "NumPy, other dtype": (X + 0, np.arange(6).reshape(2, 3)),
    "NumPy, other order": (X + 0, np.asfortranarray(X)),
    **{kind: (jax.device_put(X, CPU), in_memory(X, kind)) for kind in memories()},
    **({"int4": (jnp.ones(4, "int4"), jnp.ones(4, "uint4"))} if hasattr(jnp, "int4") else {}),
}  # fmt: skip
_PAIRS["sharding"] = (
    _PAIRS["committed"][1],
    jax.device_put(X, jax.NamedSharding(auto_mesh("a"), P())),
)
# Calls with these are left to ``jax.jit``: keys are no arrays of its type, and a program may ask for
# another layout than the default one.
_NEVER_DIRECT = {"key data", "key impl", "order"}


def use(x: Any, y: Any) -> Any:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(x), jax.random.split(x)
    return x, x.T, x + x, x.astype("float32").sum()


def learn(x: Any, y: Any) -> Any:
    """Does not read the array, but is traced for it, and may return what it learns of it then."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return y + len(str(x.dtype))
    return y + x.ndim, jnp.zeros(x.shape, x.dtype), jnp.asarray(x.aval.weak_type)


@pytest.mark.parametrize("name", list(_PAIRS))
@pytest.mark.parametrize("fun", [use, learn])
def test_pairs(name: str, fun: Any) -> None:
    for pair in (_PAIRS[name], _PAIRS[name][::-1]):
        b = Beside(fun)
        for x in (pair[0],) * 4 + pair * 3 + (pair[0],) * 3 + (pair[1],) * 30 + pair:
            b(x, X)
        assert b.direct or name in _NEVER_DIRECT, (counts(b.ours), refusals(b.ours))


@pytest.mark.parametrize("name", list(_PAIRS))
def test_pairs_as_results_of_the_last_call(name: str) -> None:
    """Results that become arguments are not checked one by one."""
    b = Beside(lambda x, y: (x, jnp.sum(y)))
    for first in _PAIRS[name] * 2:
        ours, theirs = b.feed(12, lambda out, x, y: (out[0], y), first, X)
        b(*ours), b(*theirs)
    assert b.direct or name in _NEVER_DIRECT, (counts(b.ours), refusals(b.ours))


def test_addresses_that_return_with_another_dtype() -> None:
    """A dead array's address is that of the next one."""
    f = filterjit.filter_jit(lambda x: x + 1)
    x = jnp.ones(4)
    for _ in range(3):
        f(x)
    addresses, met = {id(x)}, 0
    del x
    for i in range(300):
        y = jnp.full(4, i, "int32" if i % 2 else "float32")
        met += id(y) in addresses
        addresses.add(id(y))
        result = f(y)
        assert result.dtype == y.dtype and result[0] == i + 1
        del y, result
    assert met > 10 and counts(f)["direct"]


def test_memory_is_freed() -> None:
    """A loop of direct calls keeps no array of an earlier call alive."""
    f = filterjit.filter_jit(lambda x: x + 1)
    x = jnp.ones(100)
    for _ in range(4):
        f(x)
    gc.collect()
    before = len(jax.live_arrays())
    for _ in range(200):
        x = f(x)
    assert len(jax.live_arrays()) <= before + 2
    assert counts(f)["direct"] > 190


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("read", [False, True])
def test_deleted_arrays(known: bool, read: bool) -> None:
    b = Beside((lambda x, y: x * 2 + y) if read else (lambda x, y: y * x.ndim))
    x = X + 0
    b.until_direct(x, X)
    b(x, X)
    if not known:
        x = X + 2
    x.delete()
    for _ in range(3):
        found = b(x, X)
        assert not read or found[0] is RuntimeError
    assert b.is_direct(X + 3, X)


def _next_key(key: Any, x: Any) -> Any:
    key, other = jax.random.split(key)
    return key, x + jax.random.normal(other, x.shape)


@pytest.mark.parametrize(
    ("step", "first"), [(lambda x, y: (x * 2, y), X), (_next_key, jax.random.key(3))]
)
def test_a_result_that_is_deleted(step: Any, first: Any) -> None:
    """It is the argument of the next call, which is not checked."""
    b = Beside(step)
    found = b.feed(20, lambda out, *_: out, first, X)
    assert b.direct > 15
    for f, (x, y) in zip((b.ours, b.jax), found, strict=True):
        getattr(x, "_base_array", x).delete()
        with pytest.raises(RuntimeError, match="deleted"):
            f(x, y)
        f(first, X)


# Functions, what they donate, and what makes the arguments of a call.
FRESH: dict[str, tuple[Any, str, Callable[[], tuple[Any, ...]]]] = {
    "donated": (lambda x, y: (x + 1, y * 2), "all", lambda: (X + 0, X + 1)),
    # JAX does not delete an array that the program does not read.
    "donated but not read": (lambda x, y: x + 1, "all", lambda: (X + 0, jnp.ones(7))),
    # A result may be an argument that is passed through, and results may be one array twice.
    "results that are arguments": (lambda x, y: (x, y + 1, x, y), "none", lambda: (X, X + 1)),
    "one array twice": (lambda x, y: (x, y), "none", lambda: (X, X)),
    # Gradients of integers have no bytes.
    "float0": (lambda z, x: x + z.ndim, "none", lambda: (np.zeros(3, jax.dtypes.float0), X)),
    "keys are read": (lambda k, x: jax.random.normal(k, x.shape), "none", lambda: (KEYS[0], X)),
    "keys are not read": (lambda k, x: x + 1, "none", lambda: (KEYS[0], X)),
    "keys are made": (lambda x: jax.random.wrap_key_data(x), "none", lambda: (KEYS[3],)),
}  # fmt: skip
KEYS = [
    jax.random.key(0), jax.random.key(0, impl="rbg"), jax.random.split(jax.random.key(0), 2),
    jax.random.key_data(jax.random.key(0)), jax.random.key(0, impl="unsafe_rbg"),
    jax.device_put(jax.random.key(0), jax.devices()[0]),
]  # fmt: skip


@pytest.mark.parametrize("name", FRESH)
def test_fresh_arrays_at_each_call(name: str) -> None:
    fun, donate, make = FRESH[name]
    b = Beside(fun, donate=donate)
    for _ in range(6):
        b.with_fresh(make)
    assert b.direct > 3, refusals(b.ours)


def test_a_result_that_shares_its_memory_with_an_argument() -> None:
    b = Beside(lambda x: (x, x + 1))
    for _ in range(6):
        x = X + 0
        for f in (b.ours, b.jax):
            f(x)[0].delete()
        assert not x.is_deleted()
        b(x)
    assert b.direct


@pytest.mark.parametrize("read", [True, False])
def test_keys_that_are_easily_confused(read: bool) -> None:
    """Keys of another implementation, of another shape, and their data."""
    b = Beside((lambda k, x: (k, x)) if read else (lambda k, x: (x, jnp.ones(k.shape))))
    for key in itertools.chain.from_iterable([key] * 3 for key in KEYS * 3):
        b(key, X)
    assert b.direct, refusals(b.ours)


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="needs jax.new_ref")
@pytest.mark.parametrize("where", ["argument", "closure", "own"])
def test_refs(where: str) -> None:
    """A Ref that is passed, one that a function closes over, and one that it makes."""
    refs = jax.new_ref(X + 0), jax.new_ref(X + 0)

    def jitted(jit: Any, mine: Any) -> Any:
        @jit
        def update(ref: Any, x: Any) -> Any:
            ref = {"argument": ref, "closure": mine, "own": None}[where]
            if ref is None:
                ref = jax.new_ref(x)
            ref[...] = ref[...] + x
            return ref[...] * 2

        return update, lambda: update(mine if where == "argument" else None, X)

    (ours, call), (_, call_theirs) = map(jitted, (filterjit.filter_jit, jax.jit), refs)
    for _ in range(6):
        np.testing.assert_array_equal(call(), call_theirs())
        np.testing.assert_array_equal(refs[0][...], refs[1][...])
    assert where == "own" or "direct" not in counts(ours)
