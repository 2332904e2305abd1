"""Without any one of Flax's private names that `filterjit.nnx` uses, calls are upstream's."""

import importlib.util
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import filterjit.nnx
from filterjit._compat import _nnx_compat as compat
from support.nnx import compare

if not compat.supported:
    pytest.skip("calls are upstream's: Flax's internals are not known", allow_module_level=True)

_JAX = ("trace_state_strong_ref", "eval_trace", "axis_env_state", "top_axis_env")
_METHODS = [*compat._OF_VARIABLES, *compat._OF_PYTREES, "_raw_value"]
NAMES = [
    ("flax.nnx.transforms.compilation", "_jit_split_fn"),
    ("flax.nnx.transforms.compilation", "_jit_merge_fn"),
    *((f"{module.__name__}", name) for module, *names in compat._NAMES for name in names),
    *(("jax._src.core", name) for name in _JAX),
    *(
        ("Pytree" if name in compat._OF_PYTREES else "Variable", name)
        for name in _METHODS
        if not hasattr(object, name)
    ),
]


def loaded_again() -> ModuleType:
    """Returns the module `_nnx_compat` as it is if Flax is what it is now."""
    spec = importlib.util.spec_from_file_location(compat.__name__, compat.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("place", NAMES, ids=".".join)
def test_without_a_name(place: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert compat.supported and loaded_again().supported
    module, name = place
    if module in ("Pytree", "Variable"):
        owners = (cls for cls in getattr(nnx, module).__mro__ if name in vars(cls))
        monkeypatch.delattr(next(owners), name)
    else:
        monkeypatch.delattr(importlib.import_module(module), name)
    again = loaded_again()
    monkeypatch.undo()
    assert not again.supported and again.GUARDS == ()


def test_without_cached_partial(monkeypatch: pytest.MonkeyPatch) -> None:
    original = compat.upstream_cached_partial
    monkeypatch.delattr(importlib.import_module("flax.nnx.graphlib"), "cached_partial")
    again = loaded_again()
    assert again.supported and again.upstream_cached_partial is original
    monkeypatch.delattr(nnx, "cached_partial")
    assert loaded_again().supported and loaded_again().upstream_cached_partial is None


def test_calls_are_made_by_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "supported", False)
    monkeypatch.setattr(compat, "VARIABLE_TYPE", compat._NoVariable)

    def program(jit: Any) -> Any:
        m = nnx.BatchNorm(2, rngs=nnx.Rngs(0))
        f = jit(lambda m, x: m(x))
        for x in (jnp.ones((3, 2)), jnp.ones((2, 2))):
            yield f(m, x)
            yield m

    compare(program, "graph", handed_over=True)
    f = filterjit.nnx.jit(lambda x: x)
    assert f(1) == 1
    assert "this version of Flax" in str(f.report())


def test_without_the_names_for_shardings(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(jit: Any) -> Any:
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        yield jit(lambda x: x + 1, in_shardings=sharding)(jnp.ones(2))

    compare(program, "graph")
    monkeypatch.delattr(compat.extract.NodeStates, "from_prefixes")
    compare(program, "graph", handed_over=True)
    monkeypatch.undo()
    monkeypatch.delattr(nnx, "StateSharding")
    compare(program, "graph", handed_over=True)
    assert not compat.reads_shardings(filterjit)
