"""Files of programs over a mesh, on eight devices; `test_sharding` runs them in a process of its own.

Each is lowered under a mesh, and saved and loaded under none, or the other way around.
"""

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import filterjit
from filterjit import filter_jit

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of `with mesh:`

X = jnp.arange(16.0).reshape(8, 2)
Context = Callable[[], contextlib.AbstractContextManager[Any]]


def mesh(kind: AxisType, *sizes: int) -> jax.sharding.Mesh:
    names = ("a", "b")[: len(sizes)]
    return jax.make_mesh(sizes, names, axis_types=(kind,) * len(sizes))


CONTEXTS: dict[str | None, Context] = {
    f"{kind.name}{sizes}": functools.partial(jax.set_mesh, mesh(kind, *sizes))
    for kind in (AxisType.Auto, AxisType.Explicit)
    for sizes in ((1,), (4,), (8,), (2, 4))
}
CONTEXTS["with mesh"] = lambda: mesh(AxisType.Auto, 4)


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


# In which contexts a program is lowered, and saved and loaded, and its options: shardings without a
# mesh of their own are those of the mesh of the moment.
CASES: list[tuple[str | None, str | None, dict[str, Any]]] = [
    *((name, None, {}) for name in CONTEXTS),
    *((None, name, {}) for name in CONTEXTS),
    ("Auto(4,)", "Explicit(2, 4)", {}),
    ("Explicit(2, 4)", "Auto(8,)", {}),
    ("Auto(4,)", None, {"in_shardings": P("a")}),
    ("Explicit(4,)", None, {"in_shardings": P("a")}),
]


@pytest.mark.parametrize(("lowered", "saved", "options"), CASES)
def test_files(lowered: str, saved: str, options: dict[str, Any], tmp_path: Path) -> None:
    """The loaded function is called under the mesh of the trace, as a hit is."""
    f = filter_jit(lambda x: depends_on_the_mesh(x), **options)
    with CONTEXTS.get(lowered, contextlib.nullcontext)():
        now = jax.sharding.get_abstract_mesh()
        x = X if now.empty else jax.device_put(X, P("a"))
        expected = f(x)
    with CONTEXTS.get(saved, contextlib.nullcontext)():
        assert f.save(tmp_path / "file") == 1
        loaded = filterjit.load(tmp_path / "file")
    for _ in range(2):
        with CONTEXTS.get(lowered, contextlib.nullcontext)():
            found = loaded(x)
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert a.sharding.is_equivalent_to(b.sharding, a.ndim)
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
