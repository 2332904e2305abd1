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
from support.exactness import X, described
from support.nnx import needs_this_flax
from support.processes import run_code

pytestmark = needs_this_flax

NET = """
def net(seed):
    rngs = nnx.Rngs(seed)
    return nnx.Sequential(
        nnx.Linear(4, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
    )
"""
SCOPE: dict[str, Any] = {"nnx": nnx}
exec(NET, SCOPE)
net, x = SCOPE["net"], np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
SERVE = """
import json, sys
import numpy as np
import filterjit
x = np.asarray({x!r}, np.float32)
serve = filterjit.load({serve!r})
found = [serve(x, scale) for scale in (1.0, 2.5)]
assert "flax" not in sys.modules  # nor does it need the classes

from flax import nnx
{net}
step = filterjit.load({step!r})
model = net(1)
for _ in range(2):
    y, state = step(nnx.state(model), x)
    nnx.update(model, state)
found += [y, model.layers[1].mean[...], model.layers[2].rngs.count[...]]
print(json.dumps([np.asarray(y).tolist() for y in found]))
"""


@pytest.mark.thorough
def test_saved_functions(tmp_path: Path) -> None:
    """A closure over a model, and one of the state, with other weights than those it was compiled with, and
    changes of batch statistics and random streams that come back."""
    paths = {name: str(tmp_path / f"{name}.jit") for name in ("serve", "step")}
    model = net(0)
    model.eval()
    jitted = filterjit.nnx.jit(lambda model, x, scale: model(x) * scale)
    serve = filterjit.filter_jit(lambda x, scale: model(x) * scale, traced=("scale",))
    serve.warm_up(jax.ShapeDtypeStruct((3, 4), np.float32), 1.0)
    serve.save(paths["serve"])
    expected = [np.asarray(jitted(model, x, scale)) for scale in (1.0, 2.5)]
    for scale, y in zip((1.0, 2.5), expected, strict=True):  # it is traced, as by nnx.jit
        np.testing.assert_allclose(serve(x, scale), y, rtol=1e-6)
    assert serve.cache_info().variants == 1

    graphdef, state = nnx.split(net(0))

    def step(state: Any, x: Any) -> Any:
        model = nnx.merge(graphdef, state)
        y = model(x)
        return y, nnx.state(model)

    jitted_step = filterjit.filter_jit(step)
    jitted_step.warm_up(state, x)
    jitted_step.save(paths["step"])
    model, call = net(1), filterjit.nnx.jit(lambda model, x: model(x))
    call(model, x)
    expected += [call(model, x), model.layers[1].mean[...], model.layers[2].rngs.count[...]]
    done = run_code(SERVE.format(x=x.tolist(), net=NET, **paths))
    for found, y in zip(json.loads(done.stdout.splitlines()[-1]), expected, strict=True):
        np.testing.assert_allclose(found, np.asarray(y), rtol=1e-5)


class Model(nnx.Module):
    def __init__(self) -> None:
        self.layer = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
        self.table = nnx.Dict(scale=nnx.Param(X, tag=("a", 1)))
        self.state = nnx.data(nnx.State({"a": X, "b": {"c": X}}))
        self.name = "model"

    def __call__(self, x: Any) -> Any:
        return self.layer(x) * len(self.name)


def test_save_and_load(tmp_path: Any) -> None:
    f = filterjit.filter_jit(lambda model, x: (model, model(x)))
    model = Model()
    f.compile(model, X)
    f.save(tmp_path / "program")
    loaded = filterjit.load(tmp_path / "program")
    out = loaded(model, X)
    assert described(out) == described(f(model, X))
    out[0].table["scale"].set_value(X)  # of the trace state outside
    model.name = "other"
    with pytest.raises(filterjit.MismatchError, match="name"):
        loaded(model, X)
