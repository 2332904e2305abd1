"""Direct calls with all kinds of arrays, under transformations, and beside effects: an executable does
not check what it is given.

Where ``jax.jit`` takes the same function, all calls are made with it too, and both must do the same.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.experimental import io_callback
from jax.sharding import PartitionSpec as P
from jax.sharding import SingleDeviceSharding

import filterjit
import filterjit.nnx
from filterjit._call import _direct
from support.direct import Beside, counts, outcome, refusals
from support.nnx import needs_this_flax
from support.transforms import TRANSFORMS
from support.versions import Format, Layout, auto_mesh, enable_x64, shard_map

if not _direct.are_supported():
    pytest.skip("this version of JAX lacks what direct calls need", allow_module_level=True)
pytestmark = pytest.mark.usefixtures("direct", "also_few_arrays")


CPU = jax.devices()[0]
X = jnp.arange(6.0).reshape(2, 3)
V = jnp.arange(3.0)


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
PAIRS: dict[str, tuple[Any, Any]] = {
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
PAIRS["sharding"] = (
    PAIRS["committed"][1],
    jax.device_put(X, jax.NamedSharding(auto_mesh("a"), P())),
)
# Calls with these are left to ``jax.jit``: keys are no arrays of its type, and a program may ask for
# another layout than the default one.
EITHER = {"key data", "key impl", "order"}


def use(x: Any, y: Any) -> Any:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(x), jax.random.split(x)
    return x, x.T, x + x, x.astype("float32").sum()


def learn(x: Any, y: Any) -> Any:
    """Does not read the array, but is traced for it, and may return what it learns of it then."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return y + len(str(x.dtype))
    return y + x.ndim, jnp.zeros(x.shape, x.dtype), jnp.asarray(x.aval.weak_type)


KEYS = [
    jax.random.key(0), jax.random.key(0, impl="rbg"), jax.random.split(jax.random.key(0), 2),
    jax.random.key_data(jax.random.key(0)), jax.random.key(0, impl="unsafe_rbg"),
    jax.device_put(jax.random.key(0), jax.devices()[0]),
]  # fmt: skip
# Functions and the arguments of calls, in turn; whether some of these are direct, or None.
CALLS: dict[str, tuple[Any, list[tuple[Any, ...]], bool | None]] = {
    **{
        f"{name}, {fun.__name__}{' reversed' * (order < 0)}":
        (fun, [(x, X) for x in pair[::order]], None if name in EITHER else True)
        for name, pair in PAIRS.items() for fun in (use, learn) for order in (1, -1)
    },
    # Keys of another implementation, of another shape, and their data.
    "keys that are read": (lambda k, x: (k, x), [(key, X) for key in KEYS], True),
    "keys that are not": (lambda k, x: (x, jnp.ones(k.shape)), [(key, X) for key in KEYS], True),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    fun, *calls = CALLS[name]
    b = Beside(fun)
    b.in_turn(*calls)
    with jax.default_device(CPU):
        b(*calls[0][0]), b(*calls[0][0])


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_as_results_of_the_last_call(name: str) -> None:
    """Results that become arguments are not checked one by one."""
    b = Beside(lambda x, y: (x, jnp.sum(y)))
    for first in PAIRS[name] * 2:
        ours, theirs = b.feed(12, lambda out, x, y: (out[0], y), first, X)
        b(*ours), b(*theirs)
    assert b.direct or name in EITHER, (counts(b.ours), refusals(b.ours))


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


OF_NUMPY: Any = np.ones((2, 3), np.float32)
# Functions, what they donate, and what makes the arguments of a call.
FRESH: dict[str, tuple[Any, str, Callable[[], tuple[Any, ...]]]] = {
    "donated": (lambda x, y: (x + 1, y * 2), "all", lambda: (X + 0, X + 1)),
    # Of an array of NumPy's, the copy is donated.
    "donated of NumPy": (lambda x, y: (x + y, y * 2), "all", lambda: (X + 0, OF_NUMPY)),
    "the second donated": (lambda x, y: (x + y, y * 2), "all-except-first", lambda: (X + 0, OF_NUMPY)),
    # JAX does not delete an array that the program does not read.
    "donated but not read": (lambda x, y: x + 1, "all", lambda: (X + 0, jnp.ones(7))),
    # A result may be an argument that is passed through, and results may be one array twice.
    "results that are arguments": (lambda x, y: (x, y + 1, x, y), "none", lambda: (X, X + 1)),
    "one array twice": (lambda x, y: (x, y), "none", lambda: (X, X)),
    # Gradients of integers have no bytes.
    "float0": (lambda z, x: x + z.ndim, "none", lambda: (np.zeros(3, jax.dtypes.float0), X)),
    "keys are made": (lambda x: jax.random.wrap_key_data(x), "none", lambda: (KEYS[3],)),
}  # fmt: skip


@pytest.mark.parametrize("name", FRESH)
def test_fresh_arrays_at_each_call(name: str) -> None:
    fun, donate, make = FRESH[name]
    b = Beside(fun, donate=donate)
    for _ in range(6):
        b.with_fresh(make)
    assert b.direct > 3 and (OF_NUMPY == 1).all(), refusals(b.ours)


def test_a_result_that_shares_its_memory_with_an_argument() -> None:
    b = Beside(lambda x: (x, x + 1))
    for _ in range(6):
        x = X + 0
        for f in (b.ours, b.jax):
            f(x)[0].delete()
        assert not x.is_deleted()
        b(x)
    assert b.direct


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


# ---- forms of calling ----


def with_statics(x: Any, n: Any) -> Any:
    return {"x": x * n["scale"], "name": n["name"], "shape": x.shape}


def check_direct(f: Any, *args: Any) -> None:
    """Makes calls with the same arguments. The last ones must be direct and return the same."""
    first = f(*args)
    for _ in range(4):
        f(*args)
    before = counts(f).get("direct", 0)
    for _ in range(3):
        assert eqx.tree_equal(f(*args), first)
    assert counts(f).get("direct", 0) == before + 3, (counts(f), refusals(f))


def _nested() -> Any:
    inner = filterjit.filter_jit(lambda x: x + 1)
    for _ in range(20):
        inner(V)
    return filterjit.filter_jit(lambda x: inner(x) * 2)


jit: Any = filterjit.filter_jit
# A function, and the arguments of calls.
FORMS: dict[str, Callable[[], tuple[Any, list[tuple[Any, ...]]]]] = {
    "statics": lambda: (jit(with_statics), [(V, {"scale": n, "name": "a"}) for n in (2, 2.5)]),
    "no arrays": lambda: (jit(lambda n: jnp.arange(n) * 2), [(3,)]),
    "a Module": lambda: (jit(eqx.nn.Linear(3, 2, key=jax.random.key(0))), [(V,)]),
    "a constant": lambda: (jit(lambda x, by=V + 1: x * by), [(V,)]),
    "nested": lambda: (_nested(), [(V,)]),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    f, calls = FORMS[form]()
    for args in calls:
        check_direct(f, *args)


@needs_this_flax
def test_nnx() -> None:
    f, theirs = filterjit.nnx.jit(nnx.BatchNorm.__call__), nnx.jit(nnx.BatchNorm.__call__)
    model, other = (nnx.BatchNorm(3, rngs=nnx.Rngs(0)) for _ in range(2))
    for i in range(12):
        x = jnp.eye(3) * i
        np.testing.assert_array_equal(f(model, x), theirs(other, x))
        np.testing.assert_array_equal(model.mean[...], other.mean[...])
    assert counts(f._inner)["direct"], refusals(f._inner)


def test_compiled_under_settings() -> None:
    """A compiled function does what the ``jax.stages.Compiled`` does."""

    def f(x: Any) -> Any:
        return x / x

    ours, theirs = (jit(f).lower(V).compile() for jit in (filterjit.filter_jit, jax.jit))
    contexts = [
        jax.disable_jit, lambda: enable_x64(True), lambda: jax.debug_nans(True), contextlib.nullcontext,
        lambda: jax.default_matmul_precision("float32"),
    ]  # fmt: skip
    for make in contexts * 2:
        with make():
            for _ in range(4):
                assert outcome(ours, (V,)) == outcome(theirs, (V,))
    assert counts(ours)["direct"]


_TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    **{name: lambda f, name=name: TRANSFORMS[name](f)(V) for name in (
        "jit", "grad", "vmap", "jvp", "vjp", "linearize", "scan", "while_loop", "cond",
        "grad of checkpoint",
    )},
    "eval_shape": lambda f: str(jax.eval_shape(f, V)),
    "make_jaxpr": lambda f: str(jax.make_jaxpr(lambda x: f(x) + f(V))(V)),
    "shard_map": lambda f: shard_map(f, mesh=auto_mesh("a"), in_specs=P(), out_specs=P())(V),
    # Inside of a trace, with an array of the outside.
    "jit, constant": lambda f: jax.jit(lambda x: f(V) + x)(V),
    "grad, constant": lambda f: jax.grad(lambda x: (f(V) * x).sum())(V),
    "vmap, constant": lambda f: jax.vmap(lambda x: f(V) + x)(jnp.ones((2, 3))),
    "scan, constant": lambda f: jax.lax.scan(lambda c, _: (c + f(V), None), V, length=3),
    "compile time": lambda f: jax.jit(lambda x: _at_compile_time(f) + x)(V),
    "compile time in vmap": lambda f: jax.vmap(lambda x: _at_compile_time(f) + x)(jnp.ones((2, 3))),
    "in a callback": lambda f: filterjit.filter_jit(
        lambda x: jax.pure_callback(lambda y: np.asarray(f(jnp.asarray(np.asarray(y)))), x, x))(V),
    "eager": lambda f: f(V),
}  # fmt: skip


def _at_compile_time(f: Any) -> Any:
    with jax.ensure_compile_time_eval():
        result = f(V)
        assert float(result[1]) == 4
    return result


@pytest.mark.parametrize("name", list(_TRANSFORMED))
def test_transformations(name: str) -> None:
    def fun(x: Any) -> Any:
        return x * x + 3

    f = filterjit.filter_jit(fun)
    expected = _TRANSFORMED[name](jax.jit(fun))
    for _ in range(3):
        check_direct(f, V)
        found = _TRANSFORMED[name](f)
        leaves = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
        for a, b in leaves:
            np.testing.assert_array_equal(a, b)
            assert type(a) is type(b)
    # The first call of all may also be one that is traced.
    g = filterjit.filter_jit(fun)
    for _ in range(3):
        _TRANSFORMED[name](g)
    check_direct(g, V)


CALLBACKS: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "pure": lambda note, x: jax.pure_callback(lambda x: (note(x), np.asarray(x) * 2)[1], x, x),
    "io": lambda note, x: (io_callback(note, None, x), x + 1),
    "ordered": lambda note, x: (io_callback(note, None, x, ordered=True), x + 1),
    "debug": lambda note, x: (jax.debug.callback(note, x), x + 1),
}


@pytest.mark.parametrize("name", CALLBACKS)
def test_callbacks(name: str) -> None:
    """Programs with callbacks or effects are left to ``jax.jit``."""
    seen: list[float] = []
    b = Beside(lambda x: CALLBACKS[name](lambda x: seen.append(float(x[1])), x))
    for _ in range(5):
        seen.clear()
        b(V)
        jax.effects_barrier()
        assert seen == [1.0, 1.0]
    assert not b.direct
