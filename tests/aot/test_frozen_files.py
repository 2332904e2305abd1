"""A frozen function ahead of time: it is compiled, saved and loaded as one file without weights."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from filterjit import __main__ as command_line
from filterjit import filter_jit
from support.comparison import Traces, comparable
from support.processes import environment, run_code

X = jnp.arange(4.0)
BIG = jnp.arange(90_000.0).reshape(300, 300)


def _mlp() -> Any:
    return eqx.nn.MLP(4, 2, 8, 1, activation=lambda x: x * jax.nn.sigmoid(x), key=jax.random.key(0))


@filter_jit
def predict(model: Any, x: Any, scale: Any = 1.0) -> Any:
    return model(x) * scale


def test_lower_compile_and_warm_up() -> None:
    traces = Traces()
    model = _mlp()
    f = filter_jit(traces.counting(lambda model, x: model(x)))
    frozen = f.freeze(model)
    spec = jax.ShapeDtypeStruct((4,), jnp.float32)
    assert frozen.eval_shape(spec).shape == (2,)
    compiled = frozen.lower(spec).compile()
    assert comparable(frozen(X)) == comparable(compiled(X)) == comparable(f(model, X))
    assert traces.count == 2  # one of `frozen`, one of `f`
    info = frozen.cache_info()
    assert (info.hits, info.misses) == (1, 0)
    with pytest.raises(filterjit.MismatchError, match="`x`: compiled for float32"):
        compiled(jnp.ones(3))
    done = frozen.warm_up_all(
        [((jax.ShapeDtypeStruct((4,), dtype),), {}) for dtype in ("int8", "bool")]
    )
    assert done.errors == () and frozen.cache_info().variants == 1
    frozen(X.astype("int8")), frozen(X > 1)
    assert frozen.cache_info().hits == 3 and traces.count == 4


@pytest.mark.parametrize("portable", [False, True])
def test_one_file(portable: bool, tmp_path: Path) -> None:
    """The static values of the frozen arguments need not be saved: here, a local lambda."""
    model = _mlp()
    frozen = predict.freeze(model)
    frozen.lower(X, 2.0).compile().save(tmp_path / "f", portable=portable)
    expected = comparable(predict(model, X, 2.0))
    loaded = filterjit.load(tmp_path / "f")
    assert comparable(loaded(X, 2.0)) == expected
    info = filterjit.saved_info(tmp_path / "f")
    sizes = [x.nbytes for x in jtu.tree_leaves(model) if eqx.is_array(x)]
    assert info.frozen == (len(sizes), sum(sizes))
    assert [path for path, _ in info.arguments] == ["x", "scale"]
    assert f"frozen: {len(sizes)} arrays of {sum(sizes)} bytes are constants" in str(info)


def test_show(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "f"
    filter_jit(lambda w, x: w * x).freeze(X).lower(X).compile().save(path)
    assert command_line.main(["show", str(path)]) == 0
    assert "frozen: 1 array of 16 bytes are constants" in capsys.readouterr().out
    filter_jit(lambda w, x: w * x).lower(X, X).compile().save(path)
    command_line.main(["show", str(path)])
    assert "frozen" not in capsys.readouterr().out


_SAVE = """
import sys
import jax, jax.numpy as jnp, filterjit
big = jnp.arange(90_000.0).reshape(300, 300) / 90_000
model = {"big": big, "bias": jnp.arange(300.0), "one": jnp.asarray(2.0), "half": big.astype("bfloat16")}
def predict(model, x):
    return (model["big"] @ x + model["bias"]) * model["one"] + model["half"].sum().astype("float32")
frozen = filterjit.filter_jit(predict).freeze(model)
x = jnp.ones(300)
compiled = frozen.lower(x).compile()
compiled.save(sys.argv[1] + "/executable")
compiled.save(sys.argv[1] + "/portable", portable=True)
print(float(compiled(x).sum()))
"""
_LOAD = """
import sys, json
import jax, jax.numpy as jnp, filterjit
found = []
for kind in ("executable", "portable"):
    loaded = filterjit.load(f"{sys.argv[1]}/{kind}")
    for _ in range(2):
        found.append(float(loaded(jnp.ones(300)).sum()))
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("here", [0, 1])
@pytest.mark.parametrize("there", [0, 1])
def test_another_process(here: int, there: int, tmp_path: Path) -> None:
    """Also where JAX keeps large constants outside the executable."""
    name = "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS"
    if here and jax.__version_info__ < (0, 10):
        pytest.skip("JAX 0.9 does not tell the shardings of such a program: `save` refuses it")
    saved = run_code(_SAVE, tmp_path, env=environment((), **{name: str(here)}))
    loaded = run_code(_LOAD, tmp_path, env=environment((), **{name: str(there)}))
    assert json.loads(loaded.stdout) == pytest.approx([float(saved.stdout)] * 4)
    assert filterjit.saved_info(tmp_path / "executable").frozen[0] == 4
