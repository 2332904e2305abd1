"""Files of programs over a mesh, on eight devices; `test_sharding` runs them in a process of its own.

Each is lowered under a mesh, and saved and loaded under none, or the other way around.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import filterjit
from filterjit import filter_jit

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of `with mesh:`

X = jnp.arange(16.0).reshape(8, 2)
Context = Callable[[], contextlib.AbstractContextManager[Any]]


def mesh(kind: AxisType, *sizes: int) -> jax.sharding.Mesh:
    names = ("a", "b")[: len(sizes)]
    return jax.make_mesh(sizes, names, axis_types=(kind,) * len(sizes))


def _contexts() -> dict[str, Context]:
    found: dict[str, Context] = {}
    for kind in (AxisType.Auto, AxisType.Explicit):
        for sizes in ((1,), (4,), (8,), (2, 4)):
            of = mesh(kind, *sizes)
            found[f"{kind.name}{sizes}"] = lambda of=of: jax.set_mesh(of)  # type: ignore[misc]
    found["with mesh"] = lambda: mesh(AxisType.Auto, 4)
    return found


CONTEXTS = _contexts()


def depends_on_the_mesh(x: Any) -> Any:
    """Returns an array on the mesh, and what the body sees of it."""
    now = jax.sharding.get_abstract_mesh()
    if now.empty:
        return x * 2, jnp.asarray(-1)
    if AxisType.Explicit in now.axis_types:
        return jax.sharding.reshard(x * 2, P("a")), jnp.asarray(now.size)
    x = jax.lax.with_sharding_constraint(x, P("a"))
    total = jax.shard_map(lambda x: jax.lax.psum(x, "a"), in_specs=P("a"), out_specs=P())(x)
    return x * 2, total, jnp.asarray(now.size)


def same(ours: Any, theirs: Any) -> None:
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        assert x.sharding.is_equivalent_to(y.sharding, x.ndim)
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


# In which contexts a program is lowered, and saved and loaded.
PAIRS = [(name, None) for name in CONTEXTS] + [(None, name) for name in CONTEXTS]
PAIRS += [("Auto(4,)", "Explicit(2, 4)"), ("Explicit(2, 4)", "Auto(8,)")]


@pytest.mark.parametrize("portable", [False, True], ids=["executable", "portable"])
@pytest.mark.parametrize(("lowered", "saved"), PAIRS)
def test_files(lowered: str, saved: str, portable: bool, tmp_path: Path) -> None:
    with CONTEXTS.get(lowered, contextlib.nullcontext)():
        now = jax.sharding.get_abstract_mesh()
        x = X if now.empty else jax.device_put(X, P("a"))
        compiled = filter_jit(depends_on_the_mesh).lower(x).compile()
        expected = compiled(x)
    with CONTEXTS.get(saved, contextlib.nullcontext)():
        compiled.save(tmp_path / "file", portable=portable)
        loaded = filterjit.load(tmp_path / "file")
    same(loaded(x), expected)


@pytest.mark.parametrize("portable", [False, True], ids=["executable", "portable"])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_shardings_of_a_mesh(kind: AxisType, portable: bool, tmp_path: Path) -> None:
    """``in_shardings`` without a mesh of their own, which are those of the mesh of the moment."""
    f = filter_jit(lambda x: (x * 2, x.sum()), in_shardings=P("a"))
    with jax.set_mesh(mesh(kind, 4)):
        placed = jax.device_put(X, NamedSharding(mesh(kind, 4), P("a")))
        compiled = f.lower(placed).compile()
        expected = compiled(placed)
    compiled.save(tmp_path / "file", portable=portable)
    same(filterjit.load(tmp_path / "file")(placed), expected)
