"""`keep_programs` with shardings, on eight devices; `test_sharding` runs them in a process of its own.

A second start is a function with an empty cache.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from sharding_support import devices, make_model, mesh_of, specs

import filterjit
from filterjit import filter_jit
from filterjit._call import _direct
from filterjit._compat import _nnx_compat
from filterjit.sharding import ShardingRules, place

if not _direct.are_supported():
    pytest.skip("older versions of JAX lack what direct calls need", allow_module_level=True)

RULES = ShardingRules({"**.weight": P(None, "model"), ...: P()})


TRACES: list[str] = []


def step(model: Any, x: Any) -> Any:
    TRACES.append("")
    y = jnp.mean(jax.vmap(model)(x))
    return jax.tree.map(lambda p: p - 0.1 * y if eqx.is_array(p) else p, model)


OPTIONS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "all": lambda mesh: {
        "in_shardings": {"model": RULES, "x": P("data")},
        "out_shardings": RULES,
        "mesh": mesh,
        "donate": ("model",),
    },
    "inputs": lambda mesh: {"in_shardings": {"x": P("data")}, "mesh": mesh},
    "outputs": lambda mesh: {"out_shardings": P(), "mesh": mesh},
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "programs")


def start(options: dict[str, Any]) -> Any:
    f = filter_jit(step, **options)
    f.clear_cache()
    TRACES.clear()
    return f


def arguments(mesh: Any, batch: int = 8) -> tuple[Any, Any]:
    x = jnp.arange(batch * 8.0).reshape(batch, 8)
    return place(make_model(), RULES, mesh), jax.device_put(x, NamedSharding(mesh, P("data")))


def seen(model: Any) -> Any:
    arrays = jax.tree.leaves(eqx.filter(model, eqx.is_array))
    return specs(model), list(map(devices, arrays)), [np.asarray(x).tobytes() for x in arrays]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_second_start(name: str, folder: str) -> None:
    mesh = mesh_of(shape=(4, 2))
    plain = start(OPTIONS[name](mesh))
    expected, of_others = (seen(plain(*arguments(mesh, batch))) for batch in (8, 16))
    with filterjit.keep_programs(folder, version="1"):
        for expected_traces in (1, 0):
            f = start(OPTIONS[name](mesh))
            for _ in range(5):
                assert seen(f(*arguments(mesh))) == expected
            assert len(TRACES) == expected_traces
        # What has no file is traced.
        model, x = arguments(mesh, 16)
        assert seen(f(model, x)) == of_others and len(TRACES) == 1
        assert seen(f(*arguments(mesh))) == expected
        assert f.lower(*arguments(mesh)).compile()(*arguments(mesh)) is not None


def test_other_devices(folder: str) -> None:
    with filterjit.keep_programs(folder, version="1"):
        for first in (0, 4):
            mesh = mesh_of(shape=(2, 2), first=first)
            f = start(OPTIONS["all"](mesh))
            found = f(*arguments(mesh))
            assert len(TRACES) == 1
            assert devices(found.layers[0].weight) == list(range(first, first + 4))


def scale(count: Any, x: Any) -> Any:
    TRACES.append("")
    count[...] += 1
    return x * count[...]


def test_variables(folder: str) -> None:
    """Of `nnx.jit`."""
    if not _nnx_compat.supported:
        pytest.skip("filterjit.nnx hands over all calls with this version of Flax")
    mesh = mesh_of(shape=(4, 2))
    x = jax.device_put(jnp.ones((8, 2)), NamedSharding(mesh, P("data")))
    with jax.set_mesh(mesh), filterjit.keep_programs(folder, version="1"):
        for expected_traces in (1, 0):
            f = filterjit.nnx.jit(scale, in_shardings=(P(), P("data")), out_shardings=P("data"))
            f.clear_cache()
            TRACES.clear()
            count = nnx.Variable(jax.device_put(jnp.zeros(()), NamedSharding(mesh, P())))
            for i in range(20):
                y = f(count, x)
                assert count[...] == i + 1 and np.all(np.asarray(y) == i + 1)
                assert y.sharding.spec == P("data") or y.sharding.spec == P("data", None)
            assert len(TRACES) == expected_traces


def test_what_each_call_would_move_is_not_kept(
    folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    mesh = mesh_of(shape=(4, 2))
    with caplog.at_level("INFO", "filterjit"), filterjit.keep_programs(folder, version="1"):
        for _ in range(2):
            f = start(OPTIONS["all"](mesh))
            f(make_model(), jnp.ones((8, 8)))
            assert len(TRACES) == 1
    assert "is not kept: JAX moves `#6` to other devices" in caplog.text
    assert list(Path(folder).iterdir()) == []
