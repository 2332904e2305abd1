"""Programs of NNX models that are saved in one process, and loaded in another."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

import filterjit
import filterjit.nnx
from support.nnx import needs_this_flax
from support.processes import run_code

pytestmark = needs_this_flax

NET = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from flax import nnx
import filterjit, filterjit.nnx

class Net(nnx.Module):
    def __init__(self, seed=0):
        rngs = nnx.Rngs(seed)
        self.first = nnx.Linear(4, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.last = nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x):
        return self.last(self.dropout(nnx.relu(self.norm(self.first(x)))))

def predict(model, x, scale):
    return model(x) * scale

def step(state, x):  # of a model whose batch statistics and random streams change
    model = nnx.merge(graphdef, state)
    y = model(x)
    return y, nnx.state(model)

def show(y):
    print(json.dumps(np.asarray(y).tolist()))

x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
"""
SCOPE: dict[str, Any] = {}
exec(NET, SCOPE)
Net, predict, x = SCOPE["Net"], SCOPE["predict"], SCOPE["x"]
LOAD = """
import json
import numpy as np
import filterjit
y = filterjit.load({path!r})(np.asarray({x!r}, np.float32), {scale!r})
import sys
assert "flax" not in sys.modules
print(json.dumps(np.asarray(y).tolist()))
"""


def shown(text: str) -> Any:
    return json.loads(text.splitlines()[-1])


def test_a_frozen_function_needs_neither_the_classes_nor_flax(tmp_path: Path) -> None:
    model = Net()
    model.eval()
    jitted = filterjit.nnx.jit(predict)
    frozen = jitted.freeze(model)
    path = str(tmp_path / "net.jit")
    frozen.lower(jax.ShapeDtypeStruct((3, 4), np.float32), 1.0).compile().save(path)
    for scale in (1.0, 2.5):  # it is traced, as by nnx.jit
        expected = np.asarray(jitted(model, x, scale))
        np.testing.assert_array_equal(frozen(x, scale), expected)
        found = shown(run_code(LOAD.format(path=path, x=x.tolist(), scale=scale)).stdout)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert frozen.cache_info().variants == 1


def test_state_goes_through_a_saved_function(tmp_path: Path) -> None:
    """A function of the state, with other weights than those it was compiled with, and changes of
    batch statistics and random streams that come back."""
    path = str(tmp_path / "step.jit")
    build = f"""
graphdef, state = nnx.split(Net())
filterjit.filter_jit(step).lower(state, x).compile().save({path!r})
"""
    serve = f"""
step = filterjit.load({path!r})
model = Net(1)
for _ in range(2):
    y, state = step(nnx.state(model), x)
    nnx.update(model, state)
show(y), show(model.norm.mean), show(model.dropout.rngs.count)
"""
    run_code(NET + build)
    lines = run_code(NET + serve).stdout.splitlines()[-3:]
    model = Net(1)
    call = filterjit.nnx.jit(lambda model, x: model(x))
    call(model, x)
    y = call(model, x)
    for line, expected in zip(
        lines, (y, model.norm.mean[...], model.dropout.rngs.count[...]), strict=True
    ):
        np.testing.assert_allclose(json.loads(line), np.asarray(expected), rtol=1e-5)


def test_a_frozen_function_with_static_arguments() -> None:
    jitted = filterjit.nnx.jit(lambda model, x, n: model(x) * n, static_argnames="n")
    model = nnx.Linear(4, 2, rngs=nnx.Rngs(0))
    frozen = jitted.freeze(model)
    for n in (1, 2, 2):
        np.testing.assert_array_equal(frozen(x, n), jitted(model, x, n))
    assert frozen.cache_info().variants == 2
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    with pytest.raises(ValueError, match="without shardings"):
        filterjit.nnx.jit(lambda model: model, in_shardings=sharding).freeze(model)
