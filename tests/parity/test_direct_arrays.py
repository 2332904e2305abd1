"""Direct calls with all kinds of arrays, in turn: an executable does not check what it is given.

All calls are made with plain ``jax.jit`` too, and both must do the same.
"""

import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

import filterjit
from support.direct import Beside, counts, refusals

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


# ---- arrays that differ in one thing ----

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
    jax.device_put(X, jax.NamedSharding(jax.make_mesh((1,), ("a",)), jax.P())),
)
# Calls with these are left to ``jax.jit``: keys are no arrays of its type, and a program may ask for
# another layout than the default one.
_NEVER_DIRECT = {"key data", "key impl", "order"}


def use(x: Any) -> Any:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(x), jax.random.split(x)
    return x, x.T, x + x, x.astype("float32").sum()


@pytest.mark.parametrize("name", list(_PAIRS))
@pytest.mark.parametrize("swap", [False, True])
def test_pairs(name: str, swap: bool) -> None:
    pair = _PAIRS[name][::-1] if swap else _PAIRS[name]
    b = Beside(use)
    for _ in range(3):
        b(pair[0])
    for x in pair * 3:
        b(x)
    for x in (pair[0],) * 3 + (pair[1],) * 30 + pair:
        b(x)
    if name not in _NEVER_DIRECT:
        assert b.direct, (counts(b.ours), refusals(b.ours))


@pytest.mark.parametrize("name", list(_PAIRS))
def test_pairs_that_are_not_read(name: str) -> None:
    """The program does not read the array, but the function is traced for it, and may return what it
    learns of it then."""
    pair = _PAIRS[name]

    def learn(x: Any, y: Any) -> Any:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return y + len(str(x.dtype))
        return y + x.ndim, jnp.zeros(x.shape, x.dtype), jnp.asarray(x.aval.weak_type)

    b = Beside(learn)
    for x in (pair[0],) * 4 + pair * 3 + (pair[1],) * 8:
        b(x, X)
    if name not in _NEVER_DIRECT:
        assert b.direct, (counts(b.ours), refusals(b.ours))


@pytest.mark.parametrize("name", list(_PAIRS))
def test_pairs_as_results_of_the_last_call(name: str) -> None:
    """Results that become arguments are not checked one by one."""
    pair = _PAIRS[name]
    b = Beside(lambda x, y: (x, jnp.sum(y)))
    for _ in range(2):
        for first in pair:
            ours = theirs = first
            for _ in range(12):
                ours, _ = b.ours(ours, X)
                theirs, _ = b.jax(theirs, X)
                assert type(ours) is type(theirs)
            b(ours, X)
            b(theirs, X)
    if name not in _NEVER_DIRECT:
        assert b.direct, (counts(b.ours), refusals(b.ours))


def test_results_that_change_places() -> None:
    """Two results are arguments of the next call, now and then in the other order."""
    b = Beside(lambda x, y, n: (x * 2, y + 1, n + 1))
    x, y, n = jnp.ones(2), jnp.ones(2), jnp.ones(2, int)
    for i in range(40):
        ours, theirs = b.ours(x, y, n), b.jax(x, y, n)
        for a, c in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, c)
        x, y, n = (ours if i % 2 else theirs)[:]
        x, y = jnp.clip(x, 0, 9), jnp.clip(y, 0, 9)
        if i % 3 == 0:
            x, y = y, x
        if i % 7 == 0:
            x, n = n, x
        b(x, y, n)
    assert b.direct


def test_shapes_in_turn() -> None:
    """There are more kinds of calls than there are plans."""
    b = Beside(lambda x: (x, x.sum(), jnp.array(x.shape)))
    arrays = [jnp.ones((i, 7 - i), d) for i in range(1, 7) for d in ("float32", "int32")]
    for x in arrays * 20:
        b(x)
    assert b.direct and b.traces.count == len(arrays)


# ---- arrays that come and go ----


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


@pytest.mark.parametrize("committed", [False, True])
def test_fresh_arrays_at_each_call(committed: bool) -> None:
    b = Beside(lambda x, y: x @ y)
    device = CPU if committed else None
    for i in range(20):
        x = jax.device_put(np.full((2, 2), i, np.float32), device)
        b(x, jax.device_put(np.ones((2, 2), np.float32), device))
    assert b.direct > 15


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


# ---- deleted and donated arrays ----


@pytest.mark.parametrize("known", [False, True])
def test_deleted_arrays(known: bool) -> None:
    b = Beside(lambda x, y: x * 2 + y)
    x, y = X + 0, X + 1
    b.until_direct(x, y)
    for _ in range(4 if known else 0):
        b(x, y)
    if not known:
        x = X + 2
    x.delete()
    for _ in range(3):
        assert b(x, y)[0] is RuntimeError
    assert b.is_direct(X + 3, y)


def test_deleted_arrays_that_are_not_read() -> None:
    b = Beside(lambda x, y: y * x.ndim)
    x = X + 0
    b.until_direct(x, X)
    b(x, X)
    x.delete()
    for _ in range(3):
        b(x, X)
    dead = X + 1
    dead.delete()
    for _ in range(3):
        b(dead, X)
    assert b.is_direct(X, X)


def test_a_result_that_is_deleted() -> None:
    """It is the argument of the next call, which is not checked."""
    b = Beside(lambda x: x * 2)
    for f in (b.ours, b.jax):
        x = X
        for _ in range(10):
            x = f(x)
        x.delete()
        with pytest.raises(RuntimeError, match="deleted"):
            f(x)
        f(X)
    assert b.direct


def donating(x: Any, y: Any) -> Any:
    return x + 1, y * 2


def test_donated_results() -> None:
    """A training loop: each call takes the results of the last one, and deletes them."""
    b = Beside(donating, donate="all")
    for f in (b.ours, b.jax):
        x, y = X + 0, X + 1
        for _ in range(20):
            old = x, y
            x, y = f(x, y)
            assert old[0].is_deleted() and old[1].is_deleted()
        np.testing.assert_array_equal(x, X + 20)
        with pytest.raises(RuntimeError, match="deleted"):
            f(*old)
    assert b.direct > 15
    b.with_fresh(lambda: (X + 0, X + 1))


def test_donated_twice() -> None:
    """An array that is passed twice cannot be donated twice."""
    b = Beside(donating, donate="all")
    for _ in range(4):
        b.with_fresh(lambda: (X + 0, X + 1))
    for _ in range(3):

        def same() -> tuple[Any, Any]:
            x = X + 0
            return x, x

        assert issubclass(b.with_fresh(same)[0], Exception)
    b.with_fresh(lambda: (X + 0, X + 1))
    assert b.direct > 3


def test_donated_but_not_read() -> None:
    """JAX does not delete an array that the program does not read."""
    b = Beside(lambda x, y: x + 1, donate="all")
    for _ in range(6):
        b.with_fresh(lambda: (X + 0, jnp.ones(7)))
    assert b.direct > 3


def test_results_that_are_arguments() -> None:
    """A result may be an argument that is passed through, and results may be one array twice."""
    b = Beside(lambda x, y: (x, y + 1, x, y))
    b.until_direct(X, X + 1)
    assert b.is_direct(X, X)


def test_results_are_deleted_or_donated() -> None:
    """A result that shares its memory with an argument lives as long as under ``jax.jit``."""
    b = Beside(lambda x: (x, x + 1))
    for _ in range(6):
        x = X + 0
        ours, theirs = b.ours(x), b.jax(x)
        ours[0].delete()
        theirs[0].delete()
        assert not x.is_deleted()
        b(x)
    assert b.direct


# ---- types with more than a buffer ----


def test_keys() -> None:
    """Typed keys are arguments and results as arrays are."""
    taking = Beside(lambda key, x: jax.random.normal(key, x.shape))
    giving = Beside(lambda x: (jax.random.wrap_key_data(x), x))
    unread = Beside(lambda key, x: x + 1)
    for i in range(6):
        taking(jax.random.key(i), X)
        giving(jnp.array([i, 1], "uint32"))
        unread(jax.random.key(i), X)
    for b in (taking, giving, unread):
        assert b.direct, refusals(b.ours)


@pytest.mark.parametrize("read", [True, False])
def test_keys_that_are_easily_confused(read: bool) -> None:
    """Keys of another implementation, of another shape, and their data."""
    b = Beside((lambda k, x: (k, x)) if read else (lambda k, x: (x, jnp.ones(k.shape))))
    keys = [
        jax.random.key(0), jax.random.key(0, impl="rbg"), jax.random.split(jax.random.key(0), 2),
        jax.random.key_data(jax.random.key(0)), jax.random.key(0, impl="unsafe_rbg"),
        jax.device_put(jax.random.key(0), jax.devices()[0]),
    ]  # fmt: skip
    for _ in range(3):
        for key in keys:
            for _ in range(3):
                b(key, X)
    assert b.direct, refusals(b.ours)


def test_keys_that_are_fed_back_and_deleted() -> None:
    def step(key: Any, x: Any) -> Any:
        key, other = jax.random.split(key)
        return key, x + jax.random.normal(other, x.shape)

    ours, theirs = filterjit.filter_jit(step), jax.jit(step)
    a = b = (jax.random.key(3), X)
    for _ in range(20):
        a, b = ours(*a), theirs(*b)
        assert (jax.random.key_data(a[0]) == jax.random.key_data(b[0])).all()
        assert (a[1] == b[1]).all()
    assert counts(ours)["direct"] > 15
    jax.random.key_data(a[0])
    a[0]._base_array.delete()
    for f in (ours, theirs):
        with pytest.raises(RuntimeError, match="deleted"):
            f(*a)


def test_float0() -> None:
    """Gradients of integers have no bytes."""
    gradient = Beside(lambda x, n: jax.grad(lambda n, x: (x * n).sum(), allow_int=True)(n, x))
    taking = Beside(lambda zeros, x: x + zeros.ndim)
    for _ in range(6):
        gradient(X, jnp.ones((2, 3), int))
        taking(np.zeros((2, 3), jax.dtypes.float0), X)
    assert taking.direct


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="needs jax.new_ref")
def test_refs() -> None:
    def update(ref: Any, x: Any) -> Any:
        ref[...] = ref[...] + x
        return x * 2

    ours, theirs = filterjit.filter_jit(update), jax.jit(update)
    refs = jax.new_ref(X + 0), jax.new_ref(X + 0)
    for _ in range(6):
        np.testing.assert_array_equal(ours(refs[0], X), theirs(refs[1], X))
        np.testing.assert_array_equal(refs[0][...], refs[1][...])
    assert set(counts(ours)) <= {"type", "waiting"}


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="needs jax.new_ref")
def test_refs_inside() -> None:
    """A program that makes and freezes its own Ref, and one that changes a Ref of its closure."""

    def own(x: Any) -> Any:
        ref = jax.new_ref(x)
        ref[...] += 1
        return ref[...]

    b = Beside(own)
    for _ in range(6):
        b(X)
    refs = jax.new_ref(X + 0), jax.new_ref(X + 0)

    def closed(ref: Any) -> Any:
        def change(x: Any) -> Any:
            ref[...] += x
            return x * 2

        return change

    ours, theirs = filterjit.filter_jit(closed(refs[0])), jax.jit(closed(refs[1]))
    for _ in range(6):
        np.testing.assert_array_equal(ours(X), theirs(X))
        np.testing.assert_array_equal(refs[0][...], refs[1][...])
