"""What is saved is what was compiled, whatever JAX's settings are when it is saved and loaded."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from filterjit import filter_jit
from support.settings import OTHERS

X = jnp.arange(4.0).reshape(2, 2)
# With these, a program has arguments of its own, and JAX does not tell where they are placed.
_REFUSED = {"jax_error_checking_behavior_divide", "jax_error_checking_behavior_nan"}


@pytest.fixture(params=[False, True], ids=["executable", "portable"])
def portable(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def depends_on_settings(x: Any, key: Any) -> Any:
    """Returns values and dtypes that settings change."""
    return {
        "arrays": [x @ x, jnp.asarray(1.0), jnp.arange(2), jnp.arange(1 << 12)[::-1] * 2],
        "functions": [jax.nn.sigmoid(x), jax.scipy.special.erfinv(x / 8), jnp.sum(x)],
        "seed": jax.random.key_data(jax.random.key(7)),
        "normal": jax.random.normal(key, (5, 3)),
        "gumbel": jax.random.gumbel(key, (5, 3)),
        "gradient": jax.grad(
            lambda x: jax.nn.softmax(x).sum() + jnp.sum(jax.checkpoint(jnp.sin)(x))
        )(x),
        "loop": jax.lax.scan(lambda carry, x: (carry + x, carry * x), x[0], x),
        "constant": x + np.arange(4.0).reshape(2, 2),
    }


def same(ours: Any, theirs: Any) -> None:
    xs, ys = map(jax.tree_util.tree_leaves, (ours, theirs))
    for x, y in zip(xs, ys, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.fixture(scope="module")
def outside() -> Any:
    """The function, lowered and compiled under the default settings."""
    return filter_jit(depends_on_settings).lower(X, jax.random.key(3)).compile()


# Those that change values, dtypes or what can be saved; `make test-slow` has the others.
_OFTEN = {
    *("jax_enable_x64", "jax_threefry_partitionable", "jax_random_seed_offset"),
    *("jax_default_matmul_precision", "jax_numpy_dtype_promotion", "mesh_context_manager"),
    *("jax_use_shardy_partitioner", "jax_error_checking_behavior_nan"),
}


@pytest.mark.filterwarnings("ignore")  # of settings that are deprecated
@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[] if x in _OFTEN else [pytest.mark.slow]) for x in OTHERS],
)
def test_lowered_under_another_setting(name: str, outside: Any, tmp_path: Path) -> None:
    """Each setting that a trace depends on is another one when the function is lowered, or when it is
    saved and loaded."""
    args = X, jax.random.key(3)
    with OTHERS[name][0]():
        try:
            inside = filter_jit(depends_on_settings).lower(*args).compile()
            expected = inside(*args)
        except Exception as e:  # with some settings, it raises, and for JAX alone as well
            with pytest.raises(type(e)):
                jax.jit(depends_on_settings).lower(*args).compile()(*args)
            return
    for portable in (False, True):
        if name in _REFUSED:
            with pytest.raises(ValueError, match="cannot be saved: JAX does not tell"):
                inside.save(tmp_path / "file", portable=portable)
            continue
        inside.save(tmp_path / "file", portable=portable)
        same(filterjit.load(tmp_path / "file")(*args), expected)

    if name in _REFUSED:
        return
    expected = outside(*args)
    for portable in (False, True):
        with OTHERS[name][0]():
            outside.save(tmp_path / "file", portable=portable)
            if portable and name == "jax_use_shardy_partitioner":
                with pytest.raises(ValueError, match=r"cannot be loaded: .* Shardy"):
                    filterjit.load(tmp_path / "file")
                continue
            loaded = filterjit.load(tmp_path / "file")
        same(loaded(*args), expected)


def test_lowered_later_than_traced(tmp_path: Path, portable: bool) -> None:
    args = X, jax.random.key(3)
    with jax.threefry_partitionable(False):
        traced = filter_jit(depends_on_settings).trace(*args)
    compiled = traced.lower().compile()
    compiled.save(tmp_path / "file", portable=portable)
    same(filterjit.load(tmp_path / "file")(*args), compiled(*args))


def test_saving_traces_nothing(tmp_path: Path, portable: bool) -> None:
    scale, traces = 2.0, []

    def times(x: Any) -> Any:
        traces.append(x)
        return x * scale

    compiled = filter_jit(times).lower(X).compile()
    scale = 3.0
    jax.clear_caches()
    compiled.save(tmp_path / "file", portable=portable)
    assert len(traces) == 1
    same(filterjit.load(tmp_path / "file")(X), X * 2)
