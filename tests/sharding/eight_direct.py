"""Direct calls with arrays on eight devices, beside ``jax.jit``."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from sharding_support import EXPLICIT, KINDS, RULES, X, make_model, mesh_of

from filterjit import filter_jit
from filterjit.sharding import place
from support.direct import Beside, counts, direct, refusals  # noqa: F401

pytestmark = pytest.mark.usefixtures("direct")


def placements() -> dict[str, Any]:
    """Returns one array in many places."""
    names = ("data", "model")
    turned = jax.sharding.Mesh(np.array(jax.devices())[::-1], ("data",))
    square = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), names)
    places: dict[str, Any] = {
        "data": NamedSharding(mesh_of(), P("data")),
        "replicated": NamedSharding(mesh_of(), P()),
        "explicit": NamedSharding(mesh_of(EXPLICIT), P("data")),
        "turned": NamedSharding(turned, P("data")),
        "square": NamedSharding(square, P("model")),
        "the other way": NamedSharding(square, P(("model", "data"))),
        "four": NamedSharding(mesh_of(shape=(4,)), P("data")),
        "other four": NamedSharding(mesh_of(shape=(4,), first=4), P("data")),
        "first": SingleDeviceSharding(jax.devices()[0]),
        "last": SingleDeviceSharding(jax.devices()[7]),
    }
    found = {name: jax.device_put(X, place) for name, place in places.items()}
    found["uncommitted"] = jnp.asarray(X) + 0
    with jax.default_device(jax.devices()[3]):
        found[MOVED] = jnp.asarray(X) + 0
    return found


MOVED = "uncommitted, on the fourth"  # each call moves it to the first device
PLACED = placements()


# Functions, and the arguments of a call with `x`, where the calls before it had `here`.
FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "one": (lambda x: (x * 2, x.sum()), lambda x, here: (x,)),
    # Of two arrays, one stays where it is; JAX moves an uncommitted one, or raises.
    "two": (lambda x, y: x + y, lambda x, here: (x, here)),
    "not read": (lambda x, y: y + x.ndim, lambda x, here: (x, PLACED["data"])),
}


@pytest.mark.parametrize("name", list(PLACED))
@pytest.mark.parametrize("fun", FUNCTIONS)
def test_places(fun: str, name: str) -> None:
    """A direct call with an array in one place, and then calls with it in each other place."""
    (f, args), here = FUNCTIONS[fun], PLACED[name]
    b = Beside(f)
    for x in (here,) * 4 + tuple(PLACED.values()) + (here,) * 30:
        b(*args(x, here))
    for x in PLACED.values():
        b(*args(x, here)), b(*args(x, here)), b(*args(here, here))
    for _ in range(60):  # calls rest after many that matched nothing
        b(*args(here, here))
    is_direct = b.is_direct(*args(here, here))
    assert is_direct == (name != MOVED) or fun == "not read", (counts(b.ours), refusals(b.ours))


MOVES = {
    "`batch['image']` isn't a JAX array, and can't simply be copied to one": np.ones(
        X.shape, X.dtype
    ),
    "JAX moves `batch['image']` to other devices at each call: `jax.dev": PLACED["uncommitted"],
}


@pytest.mark.parametrize("said", MOVES)
def test_the_report_names_what_is_moved_in_each_call(said: str) -> None:
    f = filter_jit(lambda w, batch: w * batch["image"])
    for _ in range(130):
        f(PLACED["data"], {"image": MOVES[said]})
    assert said in str(f.report()) and "130 of its calls fell back to jax.jit" in str(f.report())


def test_uncommitted_on_several_devices() -> None:
    """JAX looks at such arrays at each call."""
    sharding = NamedSharding(mesh_of(), P())
    (x,) = jax.jit(lambda x: (x + 1,), out_shardings=sharding)(X)
    b = Beside(lambda x: x * 2)
    for committed in (False, True) * 4:
        parts = [s.data for s in x.addressable_shards]
        made = jax.make_array_from_single_device_arrays(x.shape, sharding, parts)
        if not committed and hasattr(made, "_committed"):
            made = type(made)(made.aval, sharding, parts, committed=False)
        for _ in range(4):
            b(made)


# What is in force in some calls, and the arrays that these have. The devices of `jax.set_mesh` are in
# no trace's key.
FORCED: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "devices": (jax.default_device, [jax.devices()[i] for i in (0, 3, 7, 0)], [PLACED["uncommitted"]]),
    "meshes": (
        jax.set_mesh, [mesh_of(), mesh_of(EXPLICIT), mesh_of(shape=(4,)), mesh_of(shape=(2, 4))],
        [PLACED["uncommitted"]],
    ),
    "meshes of one shape": (
        jax.set_mesh, [mesh_of(shape=(4,), first=i) for i in (0, 4, 0)],
        [PLACED["four"], PLACED["uncommitted"], X],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORCED)
def test_devices_and_meshes_in_force(name: str) -> None:
    """Others than in the calls before, with an array made under each."""
    force, values, arrays = FORCED[name]
    for x in arrays:
        b = Beside(lambda x: (x + 1, jnp.ones(16)))
        before = 0 if x is X else (b.until_direct(x), b.direct)[1]
        for _ in range(2):
            for value in values:
                with force(value):
                    for _ in range(8):
                        b(x)
                        b(jnp.asarray(X) + 0)
                    b(PLACED["data"]), b(PLACED["other four"])
                b(x)
        assert x is X or b.direct > before


@pytest.mark.parametrize("name", ["data", "replicated", "four", "last", "uncommitted"])
def test_donation(name: str) -> None:
    x = PLACED[name]
    b = Beside(lambda x, y: (x + 1, y * 2), donate="all")
    for _ in range(5):
        b.with_fresh(lambda: (jnp.copy(x), jnp.copy(x)))
    assert b.direct > 2


@KINDS
def test_in_shardings_and_out_shardings(kind: Any) -> None:
    mesh = mesh_of(kind)

    def step(model: Any, x: Any) -> Any:
        return jax.tree.map(lambda w: w * 2 if isinstance(w, jax.Array) else w, model), x + 1

    f = filter_jit(step, in_shardings={"model": RULES, "x": P("data")},
                   out_shardings=(RULES, P("data")), mesh=mesh)  # fmt: skip
    off = filter_jit(lambda model, x: step(model, x))
    model = other = place(make_model(), RULES, mesh)
    x = y = place(X, P("data"), mesh)
    for _ in range(8):
        model, x = f(model, x)
        other, y = off(other, y)
        for a, b in zip(jax.tree.leaves((model, x)), jax.tree.leaves((other, y)), strict=True):
            if isinstance(a, jax.Array):
                np.testing.assert_array_equal(a, b)
                assert a.sharding.is_equivalent_to(b.sharding, a.ndim)
    (variant,) = f.variants
    assert variant._call.counts["direct"] > 3, (variant._call.counts, variant._call.refusal)
    # Arrays that are on no mesh, or elsewhere, are moved as before.
    moved = f(make_model(), X)[1]
    np.testing.assert_array_equal(moved, X + 1)
    assert moved.sharding.spec == P("data")
    for _ in range(3):
        f(model, x)


def test_ahead_of_time() -> None:
    x = PLACED["data"]
    c = filter_jit(lambda x, n: (x * n, n)).lower(x, 2).compile()
    for _ in range(5):
        found, n = c(x, 2)
        assert n == 2 and found.sharding == x.sharding
        np.testing.assert_array_equal(found, X * 2)
    assert counts(c)["direct"], refusals(c)
    for name in ("replicated", "four", "last", "turned"):
        with pytest.raises(ValueError):
            c(PLACED[name], 2)
    np.testing.assert_array_equal(c(x, 2)[0], X * 2)
