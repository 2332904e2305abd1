"""Compiling many signatures before the first call."""

import logging
import threading
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

import filterjit
from filterjit import filter_jit, forbid_compile


def spec(*shape: int, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.mark.parametrize("threads", [None, 16])
def test_all_are_hits_afterwards(threads: Any) -> None:
    traces = []

    @filter_jit
    def f(x: Any, n: int, *, scale: float = 1.0) -> Any:
        traces.append(n)
        return jnp.sin(x) * n * scale

    signatures = [((spec(i + 1), i), {}) for i in range(6)] + [((spec(2), 7), {"scale": 2.0})]
    assert f.warm_up_all(signatures, threads=threads) == {}
    assert len(traces) == 7
    arrays = [jnp.array(np.ones(i + 1, np.float32)) for i in range(6)]
    with forbid_compile():
        for i, x in enumerate(arrays):
            np.testing.assert_allclose(f(x, i), np.sin(1.0) * i * np.ones(i + 1), rtol=1e-5)
        f(arrays[1], 7, scale=2.0)
    assert len(traces) == 7


def test_it_takes_what_a_call_takes() -> None:
    """``f.warm_up(model, x)``: the arguments of the call that it makes a hit."""
    model = eqx.nn.Linear(2, 2, key=jax.random.key(0))
    f = filter_jit(lambda model, x, *, threads=1: model(x) * threads)
    f.warm_up(model, spec(2), threads=3)
    x = jnp.ones(2)
    with forbid_compile():
        f(model, x, threads=3)
    assert f.cache_info().hits == 1
    for wrong in ((), (model, spec(3)), ([((model, spec(2)), {})],)):
        with pytest.raises(TypeError):
            f.warm_up(*wrong)


def test_errors_are_reported_and_the_others_compiled(caplog: pytest.LogCaptureFixture) -> None:
    @filter_jit
    def f(x: Any, n: Any) -> Any:
        if n == "bad":
            raise KeyError("this one")
        return x @ x * n

    with caplog.at_level(logging.WARNING, "filterjit"):
        square, large = spec(2, 2), spec(3, 3)
        arguments = [(square, 1), (spec(2, 3), 1), (square, "bad"), (square,), (large, 1)]
        errors = f.warm_up_all([(args, {}) for args in arguments])
    kinds = [(i, type(error)) for i, error in errors.items()]
    assert kinds == [(1, TypeError), (2, KeyError), (3, TypeError)]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3 and all(record.name == "filterjit" for record in caplog.records)
    assert "signature 1 failed: TypeError" in lines[0]
    assert "signature 2 failed: KeyError: 'this one'" in lines[1]
    assert "signature 3 failed: TypeError" in lines[2] and "'n'" in lines[2]
    x, y = jnp.ones((2, 2)), jnp.ones((3, 3))
    with forbid_compile():
        f(x, 1), f(y, 1)
    assert len(f.variants) == 1


def test_errors_of_the_compiler() -> None:
    f = filter_jit(lambda x: x * 2, compiler_options={"no_such_option": 1})
    errors = f.warm_up_all([((spec(2),), {}), ((spec(3),), {})])
    assert len(errors) == 2 and "no_such_option" in str(errors[1])


def test_bad_arguments() -> None:
    f = filter_jit(lambda x: x)
    for threads in (0, -1, 1.5, "2"):
        with pytest.raises(ValueError, match="threads"):
            f.warm_up_all([], threads=threads)  # type: ignore[arg-type]
    wrong: list[Any] = [1, (1, {}), ((1,), {}, 3), ((1,),), ({}, ()), "ab", ((1,), None), None]
    for signature in wrong:
        with pytest.raises(
            TypeError, match=r"signature 1 of `warm_up_all` is not a pair \(args, kw"
        ):
            f.warm_up_all([((2,), {}), signature])
    for args in ((), (3,)):
        with pytest.raises(TypeError):
            f.warm_up_all(*args)
    assert f.variants == []


def test_methods_and_modules() -> None:
    class Scale(eqx.Module):
        by: Any

        @filter_jit
        def __call__(self, x: Any) -> Any:
            return x * self.by

    scale = Scale(jnp.asarray(2.0))
    assert scale.__call__.warm_up_all([((spec(2),), {}), ((spec(3),), {})]) == {}
    scale.__call__.warm_up(spec(4))
    x = jnp.ones(3)
    with forbid_compile():
        scale(x)


def test_the_last_argument_interrupts() -> None:
    """A BaseException that is not an Exception stops the others and is raised."""

    class Stop(BaseException):
        pass

    @filter_jit
    def f(x: Any, n: int) -> Any:
        if n == 1:
            raise Stop
        return x

    with pytest.raises(Stop):
        f.warm_up_all([((spec(2), n), {}) for n in range(50)], threads=1)
    assert len(f.variants) < 50
    assert threading.active_count() < 20


def test_donation_is_quiet(recwarn: pytest.WarningsRecorder) -> None:
    f = filter_jit(lambda x: x.sum(), donate="all")
    assert f.warm_up_all([]) == {}
    assert f.warm_up_all((([spec(i + 1)], {}) for i in range(4)), threads=4) == {}
    assert len(recwarn) == 0 and f.cache_info().programs == 4


def test_the_options_of_the_calling_thread() -> None:
    """JAX keeps them by thread."""
    f = filter_jit(lambda x: x * 2)
    with jax.enable_x64(True):
        f.warm_up_all([((spec(2, dtype=jnp.float64),), {})])
        assert f.explain(jnp.ones(2, jnp.float64)).hit
    traces = []
    g = filter_jit(lambda x: (traces.append(1), x @ x)[1])
    with jax.default_matmul_precision("highest"):
        g.warm_up_all([((spec(2, 2),), {})])
        g(jnp.ones((2, 2)))
    assert traces == [1]
    mesh = jax.make_mesh((1,), ("data",))
    h = filter_jit(
        lambda m: m + 1, in_shardings={"m": filterjit.sharding.ShardingRules({...: P("data")})}
    )
    with jax.set_mesh(mesh):
        assert h.warm_up_all([((spec(2),), {})]) == {}


def test_arrays_that_are_placed_or_donated() -> None:
    """A spec with a sharding is that of a committed array, one without of another."""
    (device, *_) = jax.devices()
    sharding = jax.sharding.SingleDeviceSharding(device)
    for one in (spec(3), jax.ShapeDtypeStruct((3,), jnp.float32, sharding=sharding)):
        f = filter_jit(lambda x: x * 2, donate="all")
        f.warm_up(one)
        x = jax.device_put(jnp.ones(3), one.sharding)
        assert f.explain(x).hit and f(x).committed == (one.sharding is not None) and x.is_deleted()


class Counter(nnx.Module):
    def __init__(self) -> None:
        self.count = nnx.Param(jnp.zeros(3))
        self.dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(0))


@pytest.mark.parametrize("abstract", [False, True])
@pytest.mark.parametrize("options", [{}, {"graph": False}, {"graph": True, "graph_updates": True}])
def test_warm_up_of_nnx_jit(options: dict[str, Any], abstract: bool) -> None:
    traces, x = [], jnp.ones(3)

    def add(counter: Counter, x: jax.Array) -> jax.Array:
        traces.append(1)
        counter.count[...] += x
        return counter.dropout(counter.count[...])

    f, expected = filterjit.nnx.jit(add, **options), nnx.jit(add, **options)
    mine, theirs = Counter(), Counter()
    given = nnx.eval_shape(Counter) if abstract else mine
    f.warm_up(given, x)
    f.warm_up_all([((given, x), {})])
    assert mine.count[...].tolist() == [0, 0, 0] and len(traces) == 1
    with forbid_compile():
        found = f(mine, x)
    assert f.handed_over == {} and f.cache_info()[:2] == (1, 0) and len(traces) == 1
    assert found.tolist() == expected(theirs, x).tolist()
    assert mine.count[...].tolist() == theirs.count[...].tolist() == [1, 1, 1]
