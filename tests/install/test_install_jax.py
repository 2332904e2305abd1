"""`install(jax=True)`: filterjit in the place of ``jax.jit``, and back."""

import functools
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import filterjit
from support.processes import run_code

ORIGINAL = jax.jit


def is_ours(f: Any) -> bool:
    return isinstance(f, filterjit.types.FilterJit)


def test_beside_jit_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "jit", filterjit.jit)
    filterjit.install(jax=True)
    assert jax.jit(lambda x: x + 1)(1) == 2
    filterjit.uninstall()
    assert jax.jit(lambda x: x + 1)(1) == 2 and jax.jit is filterjit.jit
    monkeypatch.undo()
    assert not is_ours(jax.jit(len))


def test_forms_of_the_decorator() -> None:
    before = jax.jit(lambda x: x)
    with filterjit.install(jax=True):
        found = [
            jax.jit(len),
            jax.jit(static_argnums=0)(len),
            jax.jit(len, static_argnums=0),
            functools.partial(jax.jit, static_argnums=0)(len),
            *map(jax.jit, [len]),
        ]
        assert all(map(is_ours, found))
        assert not is_ours(before)
        assert jax.jit.__name__ == "jit"
    with filterjit.install(jax=True), pytest.raises(TypeError):
        jax.jit(3)  # type: ignore[call-overload]


def module(name: str, source: str) -> Any:
    made = ModuleType(name)
    exec(compile(source, name, "exec"), made.__dict__)
    return made


def test_modules_that_import_the_name() -> None:
    source = "from jax import jit\nf = jit(lambda x: x + 1)"
    before = module("before", source)
    with filterjit.install(jax=True):
        after = module("some_library.after", source)
        assert is_ours(after.f) and after.f(1) == 2
        assert not is_ours(before.f) and not is_ours(before.jit(len))
        for name in ("jax", "jax.experimental.some", "filterjit.some", "equinox._jit"):
            assert not is_ours(module(name, source).f)
        assert is_ours(module("jaxopt.some", source).f)


def test_functions_of_jax_stay_as_they_are() -> None:
    with filterjit.install(jax=True):
        assert not is_ours(jnp.where) and not is_ours(jax.nn.relu)
        value, grad = jax.value_and_grad(jax.jit(lambda x: jnp.where(x > 1, x * x, x).sum()))(
            jnp.arange(4.0)
        )
        assert value == 14 and grad.tolist() == [1, 1, 4, 6]
        assert jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y * 2, x))(1.0) == 8


FIRST = """
import sys, filterjit
filterjit.install(jax=True)
dir(filterjit)
assert not {"jax", "equinox", "flax"} & sys.modules.keys()
<first>
from jax import jit
import jax
jax.config.update("jax_num_cpu_devices", 2)
f = jit(lambda x: x + 1)
assert isinstance(f, filterjit.types.FilterJit) and f(1) == 2
assert len(jax.devices()) == 2
import equinox as eqx
assert eqx.filter_jit is filterjit.filter_jit
assert eqx.filter_jit(lambda x: type(x).__name__)(True) == "bool"
assert type(eqx._errors.branched_error_if_impl_jit).__name__ in ("_JitWrapper", "FilterJit")
from flax import nnx
assert nnx.jit is filterjit.nnx.jit
filterjit.uninstall()
assert not isinstance(jax.jit(len), filterjit.types.FilterJit)
assert eqx.filter_jit is not filterjit.filter_jit and nnx.jit is not filterjit.nnx.jit
"""


@pytest.mark.parametrize("first", [
    "",
    pytest.param("import filterjit.nnx", marks=pytest.mark.slow),
    *(pytest.param(f"filterjit.{x}", marks=pytest.mark.slow) for x in ("report()", "jit", "load")),
])  # fmt: skip
def test_install_comes_before_all_imports(first: str) -> None:
    """A name of filterjit may be what imports JAX: the modules that `install` imports with JAX, and
    with Flax, are not half imported then."""
    run_code(FIRST.replace("<first>", first), options=("-W", "error"))
