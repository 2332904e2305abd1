"""JAX's configuration and the types of arrays: when a function is traced again."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from support.comparison import Jit, Traces
from support.trees import ONE


def test_enable_x64(jit: Jit) -> None:
    traces = Traces()
    f = jit(traces.counting(lambda x, n: (x * 1.0, jnp.asarray(1.0), n)))
    for _ in range(2):
        assert [str(a.dtype) for a in f(jnp.arange(3), 1)[:2]] == ["float32", "float32"]
        with jax.enable_x64(True):
            assert [str(a.dtype) for a in f(jnp.arange(3), 1)[:2]] == ["float64", "float64"]
            assert str(f(jnp.arange(3, dtype="int32"), 1)[1].dtype) == "float64"
    assert traces.count == 3


@pytest.mark.parametrize(
    "config",
    [
        lambda: jax.default_matmul_precision("float32"),
        lambda: jax.numpy_dtype_promotion("strict"),
        lambda: jax.numpy_rank_promotion("raise"),
        lambda: jax.debug_nans(True),
        lambda: jax.default_prng_impl("rbg"),
        lambda: jax.threefry_partitionable(False),
        lambda: jax.softmax_custom_jvp(False),
        lambda: jax.transfer_guard("allow"),
        lambda: jax.default_device(jax.devices()[0]),
        lambda: jax.named_scope("scope"),
        lambda: jax.log_compiles(False),
    ],
    ids=lambda c: c.__code__.co_names[1],
)
def test_configurations_trace_as_often(config: Callable[[], Any]) -> None:
    """JAX decides what is part of its key: there are as many traces as with Equinox."""

    def count(jit: Jit) -> list[int]:
        traces = Traces()
        f = jit(traces.counting(lambda x, k: (x @ x, k)))
        counts = []
        for _ in range(2):
            f(jnp.ones((2, 2)), "k")
            counts.append(traces.count)
            with config():
                f(jnp.ones((2, 2)), "k")
            counts.append(traces.count)
        return counts

    assert count(filterjit.filter_jit) == count(eqx.filter_jit)


def test_meshes_trace_as_often() -> None:
    def count(jit: Jit) -> list[int]:
        traces = Traces()
        f = jit(traces.counting(lambda x: x + 1))
        counts = []
        mesh = jax.make_mesh((1,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
        for _ in range(2):
            f(ONE)
            with jax.set_mesh(mesh):
                f(ONE)
            f(jax.device_put(ONE, jax.NamedSharding(mesh, jax.P())))
            counts.append(traces.count)
        return counts

    assert count(filterjit.filter_jit) == count(eqx.filter_jit)


def test_arrays_trace_as_often() -> None:
    """Weak types, dtypes, shapes and NumPy arrays, which JAX's key tells apart."""

    def count(jit: Jit) -> list[int]:
        traces = Traces()
        f = jit(traces.counting(lambda t: jtu.tree_map(lambda x: x * 2, t)))
        counts = []
        arrays: list[Any] = [
            jnp.array(1.0), jnp.asarray(1.0), jnp.float32(1), jnp.ones(()), jnp.ones(1), jnp.ones((1, 1)),
            jnp.ones(2), jnp.ones(2, int), jnp.ones(2, bool), jnp.ones(2, "bfloat16"),
            jnp.ones(2, "complex64"), jnp.zeros(0), jax.random.key(0),
        ]  # fmt: skip
        for _ in range(2):
            for x in arrays[:-1]:
                f({"x": x})
                counts.append(traces.count)
                f({"x": jnp.asarray(x).__array__()})
                counts.append(traces.count)
                f([x, x])
                counts.append(traces.count)
        return counts

    ours, theirs = count(filterjit.filter_jit), count(eqx.filter_jit)
    assert ours == theirs
    assert ours[-1] == ours[len(ours) // 2 - 1]


def test_clear_caches(jit: Jit) -> None:
    """After ``jax.clear_caches()`` everything is traced again and works."""
    traces = Traces()

    @jit
    def f(x: Any, k: Any) -> Any:
        traces.tick()
        return {"x": x + 1, "k": k, "shape": x.shape}

    for n in range(1, 4):
        for _ in range(2):
            assert f(ONE, "k") == {"x": 2, "k": "k", "shape": ()}
            assert f(jnp.ones(1), "k")["shape"] == (1,)
        assert traces.count == 2 * n
        jax.clear_caches()


def test_equinox_clear_caches(jit: Jit) -> None:
    f = jit(lambda x, k: (x + 1, k))
    assert f(ONE, 1) == (2, 1)
    eqx.clear_caches()
    assert f(ONE, 1) == (2, 1)
    assert jit(f.__wrapped__)(ONE, 2) == (2, 2)
