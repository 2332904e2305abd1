"""What older versions of JAX lack is an error that names the version, and all else goes on."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import filterjit
from filterjit._compat import _executable_compat
from filterjit.sharding import place

X, Y = jnp.ones(4), jnp.ones(3)
NEEDS = rf"needs JAX 0\.7\.2 or newer; this is JAX {re.escape(jax.__version__)}"


def double(x: Any) -> Any:
    return x * 2


@pytest.mark.skipif(_executable_compat.can_save(), reason="executables of this JAX can be saved")
def test_save(tmp_path: Path) -> None:
    f = filterjit.filter_jit(double)
    f.warm_up(X)
    with pytest.raises(RuntimeError, match=NEEDS):
        f.save(tmp_path / "double.jit")
    f.lower(X).save(tmp_path / "double.jit")
    assert filterjit.load(tmp_path / "double.jit")(X).tolist() == [2, 2, 2, 2]


@pytest.mark.skipif(
    hasattr(jax.sharding, "reshard"), reason="this JAX has meshes with Explicit axes"
)
@pytest.mark.skipif(not hasattr(jax.sharding, "AxisType"), reason="axes have no types")
def test_explicit_axes() -> None:
    kinds = (jax.sharding.AxisType.Explicit,)
    sharding = NamedSharding(jax.make_mesh((1,), ("d",), axis_types=kinds), P("d"))
    assert place(X, sharding).sharding == sharding
    with pytest.raises(RuntimeError, match=NEEDS):
        filterjit.filter_jit(lambda x: place(x, sharding))(X)


def test_forbid_compile() -> None:
    """JAX before 0.6.2 tells nothing before it compiles."""
    f, g = filterjit.filter_jit(double), jax.jit(double)
    f(X), g(X)
    with filterjit.forbid_compile():
        assert f(X).tolist() == g(X).tolist() == [2, 2, 2, 2]
        for call in (f, g):
            with pytest.raises(filterjit.ForbiddenCompileError, match="double"):
                call(Y)
    assert f(Y).tolist() == g(Y).tolist() == [2, 2, 2]
