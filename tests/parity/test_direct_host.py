"""Direct calls with arrays and scalars of NumPy and Python's numbers, beside ``jax.jit``."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from filterjit._compat import _direct_compat
from support.direct import Beside, counts, refusals
from support.versions import enable_x64

pytestmark = pytest.mark.usefixtures("direct", "also_few_arrays")

X = jnp.arange(6.0).reshape(2, 3)
ONES: Any = np.ones(3, np.float32)
ON = jax.device_put(jnp.ones(3), jax.devices()[0])


class Sub(np.ndarray):
    pass


class Copies(np.ndarray):
    def copy(self, *args: Any) -> Any:
        raise TypeError


def add(x: Any, n: Any) -> Any:
    return x + n, n


def like(x: Any, n: Any) -> Any:
    """Does not read `n`."""
    return x + 1, jnp.zeros(n.shape, n.dtype)


# Functions and the arguments of calls, in turn; whether some of these are direct.
CALLS: dict[str, tuple[Any, list[tuple[Any, ...]], bool]] = {
    "a subclass": (add, [(X[0], ONES.view(Sub))], False),
    "a subclass that cannot be copied": (add, [(X[0], ONES.view(Copies))], False),
    "a masked array": (add, [(X[0], np.ma.masked_array(ONES))], False),
    "another shape and dtype": (add, [(1.0, ONES), (1.0, ONES.view("int32")), (1.0, ONES.reshape(3, 1)),
                                      (1.0, ONES)], True),
    "not read": (like, [(X, ONES), (X, ONES.view("int32")), (X, ONES[:2]), (X, jnp.ones(3))], True),
    "beside a committed array": (add, [(jnp.ones(3), ONES), (ON, ONES)], True),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    fun, *calls = CALLS[name]
    Beside(fun).in_turn(*calls)


DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16", "float8_e4m3fn"),
]


def use_all(x: Any) -> Any:
    return x, x == x, jnp.real(x).sum(), jnp.asarray(x.aval.weak_type)


def random_array(rng: np.random.Generator) -> Any:
    """Returns an array that NumPy may have anywhere in memory."""
    shape = tuple(rng.integers(0, 4, rng.integers(0, 4)))
    x = rng.integers(-300, 300, (2, *shape)).astype(jnp.dtype(str(rng.choice(DTYPES))))
    x = x[int(rng.integers(2))]
    match rng.integers(8):
        case 0:
            x = np.asfortranarray(x)
        case 1:
            x = x.T[::-1] if x.ndim else x
        case 2:
            x = np.broadcast_to(x, (2, *x.shape))
        case 3:
            x = x.astype(x.dtype.newbyteorder(">")) if x.dtype.kind in "iufc" else x
        case 4 if isinstance(x, np.ndarray):
            x.flags.writeable = False
    return x


@pytest.mark.recompiles
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("count", [60, pytest.param(3_000, marks=pytest.mark.slow)])
def test_random_arrays(x64: bool, count: int) -> None:
    rng = np.random.default_rng(count)
    with enable_x64(x64), np.errstate(all="ignore"):
        direct = done = 0
        while done < count:
            b, x = Beside(use_all), random_array(rng)
            for _ in range(5):
                b(x)
                if x.flags.writeable and x.size:
                    x[...] = x[::-1].copy() if x.ndim else ~x if x.dtype == bool else -x
                done += 1
            b(random_array(rng)), b(x), b(x.copy() if rng.integers(2) else jnp.ones(x.shape)), b(x)
            direct += b.direct
            assert b.direct >= 3 or not x.dtype.isnative, (x.dtype, refusals(b.ours))
        assert direct > count // 2


@pytest.mark.recompiles
@pytest.mark.parametrize("x64", [False, True])
def test_scalars_and_numbers(x64: bool) -> None:
    values: list[Any] = [
        *(1, 2.5, True, 1j, np.float32(2), np.int64(3), jnp.bfloat16(1.5), np.array(2.5))
    ]
    with enable_x64(x64):
        both = Beside(lambda x, n: (x, n, n + 1, x * n), traced=("n",))
        for value in values:
            b = Beside(lambda x, n: (x, n, n + 1, x * n), traced=("n",))
            b.until_direct(X, value)
            for other in values:
                b(X, other)
                both(X, value)
            b(X, value * 0), b(X, 2**31 - 1)
        b(X, 2**80)  # JAX's error


@pytest.mark.parametrize("way", ["direct", "off", "few arrays", "subclass"])
def test_what_is_written_after_the_call_is_not_seen(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment's buffer, which lies where the CPU can read it in place."""
    monkeypatch.setattr(_direct_compat, "ARRAYS_A_PUT", 24 if way == "few arrays" else 0)
    monkeypatch.setattr(filterjit.switches, "direct", way != "off")
    memory = np.empty(4 * 4096 + 64, np.uint8)
    buffer: Any = memory[-memory.ctypes.data % 64 :][: 4 * 4096].view(np.float32)
    if way == "subclass":
        buffer = buffer.view(Sub)

    @filterjit.filter_jit
    def f(w: Any, x: Any) -> Any:
        for _ in range(20):
            w = jnp.tanh(w @ w)
        return x.sum() + 0 * w.sum()

    w, found = jnp.full((150, 150), 0.01), []
    for i in range(60):
        buffer[:] = i
        found.append(f(w, buffer))
    assert found == [4096.0 * i for i in range(60)]
    assert ("direct" in counts(f)) == (way == "direct")


def test_few_arrays_are_left_to_jax_jit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It copies a NumPy array in less time than a direct call does."""
    monkeypatch.setattr(_direct_compat, "ARRAYS_A_PUT", 24)
    x = np.ones(3, np.float32)
    for count, is_direct in ((22, False), (23, True), (46, True)):
        b = Beside(lambda tree, x: sum(tree) + x)
        for _ in range(6):
            b([jnp.ones(3)] * count, x)
        assert (b.direct > 0) == is_direct
        assert is_direct or "too few JAX arrays" in str(refusals(b.ours))
