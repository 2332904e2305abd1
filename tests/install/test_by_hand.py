"""``jax.jit = filterjit.jit`` and the like, by hand: as with `install`, in any order of imports.

A wrapper of the user's, in the place of ``jax.jit``, is asked for no ``jax.jit`` of ours.
"""

import pytest

from support.processes import run_code

IMPORTS = {
    "jax": "import jax\njax.jit = filterjit.jit",
    "eqx": "import equinox as eqx\neqx.filter_jit = filterjit.filter_jit",
    "nnx": "import filterjit.nnx\nfrom flax import nnx\nnnx.jit = filterjit.nnx.jit",
    "jax-wrapped": "import jax\njax.jit = lambda *a, **k: filterjit.jit(*a, **k)",
    "eqx-wrapped": """
import equinox as eqx
eqx.filter_jit = lambda *a, **k: filterjit.filter_jit(*a, **k)
""",
    "nnx-wrapped": """
import flax.nnx as nnx
def nnx_jit(*args, **kwargs):
    import filterjit.nnx
    return filterjit.nnx.jit(*args, **kwargs)
nnx.jit = nnx_jit
""",
}

PROGRAM = """
import jax, jax.numpy as jnp, equinox as eqx, filterjit, filterjit.nnx
from flax import nnx
x = jnp.ones(3)
net = eqx.nn.MLP(3, 3, 4, 1, key=jax.random.key(0))
model = nnx.Linear(3, 3, rngs=nnx.Rngs(0))

@jax.jit
def step(x, y):
    return jax.jit(lambda x: x * 2)(x) + jnp.where(y > 0, y, 0)

for f in (step, filterjit.jit(step), eqx.filter_jit(step), filterjit.filter_jit(step)):
    for _ in range(3):
        assert f(x, x).tolist() == [3, 3, 3]
for f in (eqx.filter_jit, filterjit.filter_jit):
    assert f(lambda net, x: net(x))(net, x).shape == (3,)
for f in (nnx.jit, filterjit.nnx.jit):
    assert f(lambda model, x: model(x))(model, x).shape == (3,)
assert jax.value_and_grad(step)(1.0, 1.0) == (3, 2)
assert jax.jit(lambda x, n: x * n, static_argnums=1, donate_argnums=0)(x + 0, 2).tolist() == [2, 2, 2]
assert type(jax.jit(len)) is filterjit.types.FilterJit
assert step.lower(x, x).compile()(x, x).tolist() == [3, 3, 3]
"""


@pytest.mark.parametrize(
    ("names", "first"),
    [
        ("jax eqx nnx", False),
        *(
            pytest.param(names, first, marks=pytest.mark.slow)
            for names, first in [
                *[("jax", False), ("eqx nnx jax", True)],
                *[("jax-wrapped", True), ("jax-wrapped eqx-wrapped nnx-wrapped", False)],
            ]
        ),
    ],
)
def test_by_hand(names: str, first: bool) -> None:
    pytest.importorskip("flax.nnx")
    patches = "\n".join(["import filterjit", *(IMPORTS[name] for name in names.split())])
    # Patches, and then the programs; or the imports of these first.
    imports, uses = PROGRAM.split("x = jnp.ones(3)\n")
    parts = [patches, imports] if first else [imports, patches]
    run_code("\n".join([*parts, "x = jnp.ones(3)", uses]), timeout=400)
