"""Programs over eight devices: what reports say of them, and their files."""

import contextlib
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from sharding_support import AUTO, EXPLICIT, KINDS, RULES, X, devices, make_model, mesh_of, specs

import filterjit
from filterjit import filter_jit
from filterjit.sharding import place


def row_of(f: Any) -> dict[str, Any]:
    (row,) = f.report().as_dict()["functions"]
    return dict(row)


def test_two_compilations_and_one_trace() -> None:
    def of_its_own_name(w: Any, x: Any) -> Any:
        return w * x

    f = filter_jit(of_its_own_name)
    x = jnp.ones(16)
    f(x, x)
    assert row_of(f)["remarks"] == []
    f(jax.device_put(x, jax.devices()[0]), x)
    row = row_of(f)
    assert (row["traces"], row["compiles"]) == (1, 2)
    (remark,) = row["remarks"]
    said = (
        "was compiled again, 2 times in all, because of `w`: different device, or committed to one"
    )
    assert remark.startswith(said) and "jax.device_put" in remark and remark in str(f.report())


# One array in many places.
PLACES: dict[str, Callable[[], Any]] = {
    "not committed": lambda: jnp.ones(8),
    "NumPy": lambda: np.ones(8, np.float32),
    "device 0": lambda: jax.device_put(jnp.ones(8), jax.devices()[0]),
    "device 1": lambda: jax.device_put(jnp.ones(8), jax.devices()[1]),
    "sharded": lambda: jax.device_put(jnp.ones(8), NamedSharding(mesh_of(), P("data"))),
}


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(PLACES, 2)])
def test_what_jax_compiles_without_a_trace_is_known(first: str, second: str) -> None:
    f = filter_jit(lambda x, n: x * n)
    f(PLACES[first](), 1), f(PLACES[second](), 2)
    for name in (first, second, first, second, "device 0"):
        x = PLACES[name]()
        before, explanation = row_of(f)["compiles"], f.explain(x, 1)
        f(x, 1)
        assert explanation.hit == (row_of(f)["compiles"] == before), (name, str(explanation))
        assert f.explain(x, 1).hit


@KINDS
@pytest.mark.parametrize("order", [(8, 16), (16, 8)])
def test_the_closest_program_has_the_same_shapes(kind: Any, order: tuple[int, int]) -> None:
    whole, parts = (NamedSharding(mesh_of(kind), spec) for spec in (P(), P("data")))
    f = filter_jit(lambda xs, y: sum(xs))
    for n in order:
        f([jax.device_put(jnp.ones(n), whole)] * 3, X)
    x = jax.device_put(jnp.ones(8), parts)
    with filterjit.forbid_compile(), pytest.raises(filterjit.ForbiddenCompileError) as refused:
        f([x] * 3, X)
    for text in (str(f.explain([x] * 3, X)), str(refused.value)):
        assert "`xs[0]`: different sharding" in text and "different shape" not in text


@pytest.mark.parametrize("option", [False, True], ids=["jit", "in_shardings"])
def test_what_each_call_copies(option: bool) -> None:
    """JAX's transfer guards refuse the copies of arrays that are on no mesh, beside one that is."""
    mesh = mesh_of()
    f = filter_jit(
        lambda model, x: jax.vmap(model)(x),
        in_shardings={"x": P("data")} if option else None,
        mesh=mesh if option else None,
    )
    model, host = make_model(), np.ones((16, 8), np.float32)
    x, placed = place(host, P("data"), mesh), place(model, P(), mesh)
    calls = [((model, x), "device-to-device"), ((placed, host), "host-to-device")]
    for args, copy in calls[: 1 + option]:
        for _ in range(3):
            f(*args)
        with jax.transfer_guard("disallow"), pytest.raises(Exception, match=f"{copy} transfer"):
            f(*args)
    f(placed, x)
    with jax.transfer_guard("disallow"):
        f(placed, x)


@KINDS
@pytest.mark.parametrize("returned", [True, False])
def test_a_model_that_the_first_call_places(returned: bool, kind: Any) -> None:
    """It is copied once in training. Where it is passed as it was at first, it is copied in each
    call, and JAX compiles for both kinds of arrays."""
    mesh = mesh_of(kind)
    f = filter_jit(
        lambda m, x: (jax.tree.map(lambda w: w + 1 if eqx.is_array(w) else w, m), x.sum()),
        in_shardings={"m": RULES, "x": P("data")},
        out_shardings=(RULES, P()),
        mesh=mesh,
    )
    model, x = make_model(), place(X, P("data"), mesh)
    for i in range(3):
        found = f.explain(model, x)
        assert found.hit == (i > 1 - returned), found
        out = f(model, x)[0]
        model = out if returned else model
    assert row_of(f)["compiles"] == 1 + (not returned)


@KINDS
def test_files(kind: Any, tmp_path: Path) -> None:
    """A file has the programs of several placements; each is found by where the arrays are."""
    meshes = [mesh_of(kind, (4,), first=first) for first in (0, 4)]
    path = tmp_path / "f.jit"
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    model = make_model()
    f = filter_jit(lambda model, x, n: (jax.vmap(model)(x) * n, model))
    # JAX refuses to divide both factors of a product over one Explicit axis.
    rules = RULES if kind is AUTO else P()
    calls = [(place(model, rules, mesh), place(x, P("data"), mesh), 2) for mesh in meshes]
    expected = [f(*arguments) for arguments in calls]
    assert f.save(path) == 2
    loaded = filterjit.load(path)
    for _ in range(2):
        for arguments, right, mesh in zip(calls, expected, meshes, strict=True):
            found = loaded(*arguments)
            np.testing.assert_array_equal(found[0], right[0])
            assert devices(found[0]) == sorted(d.id for d in mesh.devices.flat)
            assert specs(found) == specs(right)
    assert row_of(loaded)["direct"] == 2
    turned = jax.make_mesh((4,), ("data",), axis_types=(kind,), devices=jax.devices()[7:3:-1])
    with pytest.raises(filterjit.MismatchError, match=r"`model\.layers\[0\]\.weight`"):
        loaded(place(model, rules, turned), place(x, P("data"), turned), 2)


def test_arrays_in_the_function(tmp_path: Path) -> None:
    mesh = mesh_of(shape=(4,))
    weights = place(np.ones((8, 8), np.float32), P("data"), mesh)
    f = filter_jit(
        eqx.Partial(lambda w, x: w @ x + jnp.arange(8.0), weights),
        in_shardings=P("data"), mesh=mesh,
    )  # fmt: skip
    f(place(np.ones(8, np.float32), P("data"), mesh))
    f.save(tmp_path / "f.jit")
    loaded = filterjit.load(tmp_path / "f.jit")
    for _ in range(3):
        x = place(np.ones(8, np.float32), P("data"), mesh)
        y = loaded(x)
        np.testing.assert_allclose(y, 8 + np.arange(8))
        assert devices(y) == [0, 1, 2, 3]


def test_warm_up_with_shardings_in_its_specs() -> None:
    mesh = mesh_of()

    def spec(*entries: Any, shape: tuple[int, ...]) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*entries)))

    compiles: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiles.append(event) if "backend_compile" in event else None
    )
    alone = filter_jit(lambda model, x: jax.vmap(model)(x))
    sharded = filter_jit(
        lambda model, x, n: (jax.vmap(model)(x) * n, model),
        in_shardings={"model": RULES, "x": P("data")},
        out_shardings=(P("data"), RULES),
        mesh=mesh,
    )
    model = place(make_model(), RULES, mesh)
    like = jax.tree.map(
        lambda a: spec(*a.sharding.spec, shape=a.shape) if eqx.is_array(a) else a, model
    )
    batches = [place(np.ones((n, 8), np.float32), P("data"), mesh) for n in (16, 32)]
    for f, rest in ((alone, ()), (sharded, (2,))):
        specs_of = [(like, spec("data", shape=x.shape), *rest) for x in batches]
        assert f.warm_up_all([(args, {}) for args in specs_of]) == {}
        compiles.clear()
        for x in batches:
            f(model, x, *rest)
        assert compiles == [] and row_of(f)["traces"] == 2


# ---- files of programs that are lowered under one mesh, and saved and loaded under another or none ----

SQUARE = jnp.arange(16.0).reshape(8, 2)
CONTEXTS: dict[str | None, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    f"{kind.name}{sizes}": functools.partial(jax.set_mesh, mesh_of(kind, sizes))
    for kind in (AUTO, EXPLICIT)
    for sizes in ((1,), (4,), (8,), (2, 4))
}
CONTEXTS["with mesh"] = lambda: mesh_of(shape=(4,))


def depends_on_the_mesh(x: Any) -> Any:
    """Returns an array on the mesh, and what the body sees of it."""
    now = jax.sharding.get_abstract_mesh()
    if now.empty:
        return x * 2, jnp.asarray(-1)
    if EXPLICIT in now.axis_types:
        return jax.sharding.reshard(x * 2, P("data")), jnp.asarray(now.size)
    x = jax.lax.with_sharding_constraint(x, P("data"))
    total = jax.shard_map(lambda x: jax.lax.psum(x, "data"), in_specs=P("data"), out_specs=P())(x)
    return x * 2, total, jnp.asarray(now.size)


# In which contexts a program is lowered, and saved and loaded, and its options: shardings without a
# mesh of their own are those of the mesh of the moment.
CASES: list[tuple[str | None, str | None, dict[str, Any]]] = [
    *((name, None, {}) for name in CONTEXTS),
    *((None, name, {}) for name in CONTEXTS),
    ("Auto(4,)", "Explicit(2, 4)", {}),
    ("Explicit(2, 4)", "Auto(8,)", {}),
    ("Auto(4,)", None, {"in_shardings": P("data")}),
    ("Explicit(4,)", None, {"in_shardings": P("data")}),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of `with mesh:`
@pytest.mark.parametrize(("lowered", "saved", "options"), CASES)
def test_files_under_meshes(
    lowered: str, saved: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """The loaded function is called under the mesh of the trace, as a hit is."""
    f = filter_jit(lambda x: depends_on_the_mesh(x), **options)
    with CONTEXTS.get(lowered, contextlib.nullcontext)():
        now = jax.sharding.get_abstract_mesh()
        x = SQUARE if now.empty else jax.device_put(SQUARE, P("data"))
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
