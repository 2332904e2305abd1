"""`in_shardings` and `out_shardings` of `filter_jit`, compared with a flat ``jax.jit``."""

import contextlib
import functools
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from sharding_support import AUTO, EXPLICIT, KINDS, RULES, X, devices, make_model, mesh_of, specs

import filterjit
from filterjit import filter_jit, is_inexact_array
from filterjit._compat import _jax_compat
from filterjit.sharding import ShardingRules, fsdp, place
from support.comparison import Traces
from support.threads import at_once

MESH = mesh_of()
on_mesh = functools.partial(filter_jit, mesh=MESH)


@KINDS
@pytest.mark.parametrize("named", [False, True], ids=["spec", "sharding"])
@pytest.mark.parametrize("out", [None, P("data"), P()], ids=["none", "data", "replicated"])
def test_as_flat_jit(kind: Any, named: bool, out: Any) -> None:
    mesh = mesh_of(kind)
    make = functools.partial(NamedSharding, mesh) if named else lambda spec: spec
    result, double = None if out is None else make(out), lambda x: x * 2
    flat = jax.jit(double, in_shardings=(make(P("data")),), out_shardings=result)
    ours = filter_jit(double, in_shardings={"x": make(P("data"))}, out_shardings=result)
    with contextlib.nullcontext() if named else jax.set_mesh(mesh):
        for x in (X, jnp.asarray(X), flat(X)):
            try:
                expected = flat(x)
            except ValueError as e:  # the result of `flat` is committed elsewhere
                with pytest.raises(ValueError, match=str(e)[:50]):
                    ours(x)
                continue
            found = ours(x)
            assert found.sharding == expected.sharding and found.committed == expected.committed
            np.testing.assert_array_equal(found, expected)
        lowered, flat_lowered = ours.lower(X), flat.lower(X)
        assert lowered.as_text().replace("result[0]", "result") == flat_lowered.as_text()


def test_parameters() -> None:
    """Keywords, defaults, *args, **kwargs, keyword-only ones and statics."""

    @on_mesh(
        in_shardings={"x": P("data"), "rest": (P(), P("data")), "extra": P("data"), "k": P(None)},
        out_shardings=P(),
    )
    def f(x: Any, scale: Any = 2.0, *rest: Any, k: Any = None, **others: Any) -> Any:
        k = 0 if k is None else k[0]
        return k + jnp.sum(x) * scale + sum(map(jnp.sum, rest)) + sum(map(jnp.sum, others.values()))

    def input_specs(*args: Any, **kwargs: Any) -> list[Any]:
        found = f.lower(*args, **kwargs).compile().input_shardings
        return [s.spec for s in jax.tree.leaves(found) if isinstance(s, NamedSharding)]

    assert f(X) == f(x=X) == 240
    assert len(f.variants) == 1
    assert input_specs(X) == [P("data")]
    assert f(X, 3.0) == 360
    assert input_specs(X, 2.0, X, X, extra=X) == [P("data"), P(), P("data"), P("data")]
    assert f(X, 2.0, X, X, extra=X) == 600
    assert input_specs(X, k=X) == [P("data"), P(None)]
    by_position = on_mesh(lambda x, y: x + y, in_shardings=(P("data"), None))
    assert by_position(X, X).sharding.spec == P("data")
    for_all = on_mesh(lambda x, y: x + y, in_shardings=P("data"))
    assert for_all(X, y=X).sharding.spec == P("data")


def test_the_mesh_in_force_belongs_to_the_program() -> None:
    f = filter_jit(lambda x: x * 2, in_shardings={"x": P("data")}, out_shardings=P("data"))
    meshes = [mesh_of(), mesh_of(shape=(4,)), mesh_of(shape=(4,), first=4), mesh_of(EXPLICIT)]
    for _ in range(3):
        for mesh in meshes:
            with jax.set_mesh(mesh):
                y = f(X)
                assert devices(y) == sorted(d.id for d in mesh.devices.flat)
                assert y.sharding.mesh == mesh
    with pytest.raises(RuntimeError, match="requires a non-empty mesh"):
        f(X)


def test_rules_look_at_shapes() -> None:
    """One variant, whose arrays need other specs: each call has the right ones."""
    rules, traces = ShardingRules({...: fsdp("data")}), Traces()
    turn = traces.counting(lambda tree: {"a": tree["a"].T})
    mesh = mesh_of(shape=(2, 4))
    f = filter_jit(turn, in_shardings={"tree": rules}, out_shardings=rules, mesh=mesh)
    expected = {(8, 3): (None, "data"), (3, 8): ("data",), (3, 3): (), (2, 4): ("data",)}
    for _ in range(3):
        for shape, spec in expected.items():
            y = f({"a": np.ones(shape, np.float32)})["a"]
            assert y.shape == shape[::-1] and specs(y) == [spec]
    assert len(f.variants) == 1 and traces.count == len(expected)


def test_results_of_other_numbers() -> None:
    """The shape says how many results there are."""
    for out in (None, P()):
        f = on_mesh(lambda x: list(x), in_shardings=P(None, "data"), out_shardings=out)
        for n in (2, 3, 2):
            x = jnp.ones((n, 8))
            assert len(f(x)) == len(f.lower(x).compile()(x)) == len(f.eval_shape(x)) == n


def test_prefixes() -> None:
    model = make_model()
    prefix = jax.tree.map(lambda x: P("data") if eqx.is_array(x) else x, model)
    f = on_mesh(
        lambda batch, model: (batch["x"] * 2, model, 3),
        in_shardings={"batch": {"x": P("data"), "y": None}, "model": prefix},
        out_shardings=(P("data"), RULES, None),
    )
    y, out, three = f({"x": X, "y": "text"}, model)
    assert y.sharding.spec == P("data") and three == 3
    assert specs(out) == [("data",), (), ("data",), (), ("data",), ()]


@pytest.mark.parametrize(
    "options",
    [
        {"out_shardings": (RULES, RULES, P())},
        {"out_shardings": (RULES, RULES, P()), "mesh": MESH},
        {"out_shardings": (RULES, RULES, P()), "mesh": MESH, "donate": "all"},
        {"mesh": MESH, "donate": "all"},
    ],
    ids=["a mesh in force", "a mesh", "donated", "donated, and nothing said of the results"],
)
def test_training(options: dict[str, Any]) -> None:
    """One trace and one compilation, though the model is on no mesh at first. All donated arrays
    that match a result in shape and dtype alias it."""
    optimizer, model, traces = optax.adam(1e-3), make_model(), []
    state = optimizer.init(eqx.filter(model, eqx.is_array))

    @filter_jit(in_shardings={"model": RULES, "state": RULES, "x": P("data")}, **options)
    def step(model: Any, state: Any, x: Any) -> Any:
        traces.append(None)
        value, gradients = eqx.filter_value_and_grad(lambda m: jnp.mean((jax.vmap(m)(x) - 1) ** 2))(
            model
        )
        updates, state = optimizer.update(gradients, state)
        return eqx.apply_updates(model, updates), state, value

    x = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
    losses, last = [], []
    with contextlib.nullcontext() if "mesh" in options else jax.set_mesh(MESH):
        for _ in range(10):
            last = jax.tree.leaves(eqx.filter((model, state), eqx.is_array))
            model, state, value = step(model, state, x)
            losses.append(float(value))
    assert len(traces) == 1 and step.cache_info().hits == 9
    assert step.report().as_dict()["functions"][0]["compiles"] == 1
    assert losses[-1] < losses[0]
    assert specs(model) == [("data",), ()] * 3
    assert specs(state[0].mu) == specs(model) and specs(state[0].count) == [()]
    assert {a.is_deleted() for a in last} == {"donate" in options}
    if "donate" in options:
        compiled = step.lower(model, state, x).compile().compiled
        arrays = jax.tree.leaves(eqx.filter((model, state), eqx.is_array))
        assert compiled.memory_analysis().alias_size_in_bytes == sum(
            a.addressable_shards[0].data.nbytes for a in arrays
        )


MOVES: dict[str, Callable[[Any, NamedSharding], Any]] = {
    "reshard": lambda x, to: jax.sharding.reshard(x * 2, to),
    "device_put": lambda x, to: jax.device_put(x * 2, to),
    "memory": lambda x, to: jax.device_put(
        x * 2, to.update(memory_kind="pinned_host", spec=P("data"))
    ),
    "in a jit": lambda x, to: jax.jit(lambda x: jax.sharding.reshard(x * 2, to))(x),
    "result of a jit": lambda x, to: jax.jit(lambda x: x * 2, out_shardings=to)(x),
    "shard_map": lambda x, to: jax.shard_map(
        lambda x: jax.lax.psum(x, "data"), mesh=to.mesh, in_specs=P("data"), out_specs=P()
    )(x),
}


# A jit cannot move what is of an explicit type.
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, AUTO) for name in MOVES] + [(name, EXPLICIT) for name in MOVES if "result" not in name],
)
def test_what_the_body_moves_stays_there(name: str, kind: Any) -> None:
    """Only where the body leaves it open is a result where the donated argument was."""
    mesh = mesh_of(kind)
    of, to = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

    def body(moved: Any, left: Any) -> Any:
        return {"moved": MOVES[name](moved, to), "left": left + 1}

    expected = jax.jit(body, in_shardings=of)(*jax.device_put([X, X], of))
    found = filter_jit(body, in_shardings=of, donate="all")(*jax.device_put([X, X], of))
    for key in ("moved", "left"):
        assert found[key].sharding == expected[key].sharding, key
        np.testing.assert_array_equal(found[key], expected[key])


def test_donated_arrays_that_cannot_alias() -> None:
    @on_mesh(
        in_shardings={"tree": P("data"), "x": P()},
        out_shardings={"a": P("data"), "b": P()},
        donate="warn",
    )
    def f(tree: Any, x: Any) -> Any:
        return {"a": tree["a"] + 1, "b": tree["b"] + x[0]}

    with pytest.warns(UserWarning, match="Some donated buffers were not usable") as caught:
        f({"a": X, "b": X}, np.ones(3, np.float32))
    assert len(caught) == 1 and "float32[3]" in str(caught[0].message)


def test_each_donated_array_finds_a_result() -> None:
    """An array without shardings leaves the result that has none to one whose sharding is known."""

    @on_mesh(in_shardings={"b": P("data")}, out_shardings={"a": None, "b": P()}, donate="warn")
    def f(a: Any, b: Any) -> Any:
        return {"a": b + 1, "b": a * 2}

    f(X, X + 1)  # warnings are errors
    # A result that no argument is in is where the donated one in its place was.
    g = on_mesh(lambda a, b: (a + 1, jnp.zeros(16)), in_shardings=P("data"), donate="all")
    assert {x.sharding.spec for x in g(X, X + 1)} == {P("data")}


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="JAX 0.10.2 crashes, by `jax.jit` too")
def test_an_array_that_is_donated_twice_on_other_meshes() -> None:
    """The memory of its first part tells that it is one array."""
    x = jax.device_put(X, NamedSharding(mesh_of(), P("data")))
    y = jax.device_put(
        x, NamedSharding(jax.make_mesh((len(jax.devices()),), ("other",)), P("other"))
    )
    with pytest.raises(jax.errors.JaxRuntimeError, match="donate") as info:
        filter_jit(lambda a, b: (a + 1, b["y"] + 1), donate="all")(x, {"y": y})
    assert any("`a` and `b['y']` are the same array" in note for note in info.value.__notes__)


def _errors() -> dict[str, tuple[Any, tuple[Any, ...], type[Exception], str]]:
    """Returns calls that raise, and what. Those in tests/messages.md are run by
    tests/test_pages.py."""
    a, b = (jax.device_put(X, device) for device in jax.devices()[:2])
    both = {"a": a}, b
    named = NamedSharding(MESH, P())
    return {
        "no prefix": (
            on_mesh(lambda batch: batch, in_shardings={"batch": {"x": P(), "y": None}}),
            ({"x": X},), ValueError,
            r"^`batch` differs from its shardings at the root: it has the keys \['x'\], where its "
            r"shardings have .*The shardings must be a prefix of `batch`"),
        "no prefix of the result": (
            filter_jit(lambda x: [x], out_shardings=([named],) * 2), (X,), ValueError,
            "^`the result` differs from its"),
        "the same of `jit`": (
            filterjit.jit(lambda x: [x], out_shardings=([named],) * 2), (X,), ValueError,
            "^`the result` differs from its"),
        "no sharding": (
            on_mesh(lambda x: x, in_shardings={"x": [P(), 3]}), ([X, X],), TypeError,
            r"`x\.1` has arrays, and 3"),
        "a size": (
            on_mesh(lambda tree: tree, in_shardings={"tree": P("data")}),
            ({"a": np.ones(3, np.float32)},), ValueError,
            r"`tree\['a'\]`, float32\[3\].*does not divide into 8"),
        "a size of the result": (
            on_mesh(lambda x: [x, x[:3]], out_shardings=P("data")), (X,), ValueError,
            r"`the result\[1\]`"),
        "no mesh": (
            filter_jit(lambda x: x, in_shardings={"x": ShardingRules({...: P()})}), (X,), ValueError,
            "ShardingRules need a mesh"),
        # JAX's message names the arguments of the flat function.
        "devices": (
            filter_jit(lambda tree, y: (tree, y)), both, ValueError,
            r"argument tree\['a'\] of .* argument y of "),
        "devices, and a sharding": (
            on_mesh(lambda tree, y: (tree, y), out_shardings=P()), both, ValueError,
            r"argument tree\['a'\] of .* argument y of "),
    }  # fmt: skip


def test_errors_name_the_path() -> None:
    for name, (f, args, error, match) in _errors().items():
        for _ in range(2):
            with pytest.raises(error, match=f"(?s){match}"):
                f(*args)
        assert "devices" in name or not f.variants


def test_under_transformations() -> None:
    f = on_mesh(
        lambda x, n: (x**2, n), in_shardings={"x": P("data")}, out_shardings=(P("data"), None)
    )
    assert jnp.array_equal(jax.vmap(lambda x: f(x, 1)[0])(jnp.ones((3, 16))), jnp.ones((3, 16)))
    assert jnp.array_equal(jax.grad(lambda x: f(x, 1)[0].sum())(jnp.asarray(X)), 2 * X)
    assert jnp.array_equal(jax.jit(lambda x: f(x, 1)[0] + 1)(X), X**2 + 1)
    assert f(X, 2)[1] == 2
    with jax.disable_jit():
        assert jnp.array_equal(f(X, 1)[0], X**2)


def test_sharded_initialisation() -> None:
    """No device holds a full copy of a large array."""
    rules = ShardingRules({is_inexact_array: fsdp("data", min_size=64), ...: P()})
    init = on_mesh(lambda key: eqx.nn.MLP(64, 64, 1024, depth=2, key=key), out_shardings=rules)
    compiled = init.lower(jax.random.key(0)).compile().compiled
    model = init(jax.random.key(0))
    arrays = jax.tree.leaves(eqx.filter(model, eqx.is_array))
    shards = sum(a.addressable_shards[0].data.nbytes for a in arrays)
    assert shards * 7 < sum(a.nbytes for a in arrays)
    found = compiled.memory_analysis()
    peak = found.output_size_in_bytes + found.temp_size_in_bytes
    assert peak <= 1.1 * shards + max(a.nbytes for a in arrays)
    whole = eqx.nn.MLP(64, 64, 1024, depth=2, key=jax.random.key(0))
    for a, b in zip(arrays, jax.tree.leaves(eqx.filter(whole, eqx.is_array)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_ahead_of_time() -> None:
    traces = Traces()
    f = on_mesh(
        traces.counting(lambda model, x: model),
        in_shardings={"model": RULES, "x": P("data")},
        out_shardings=RULES,
    )
    specs_of_model = eqx.filter_eval_shape(make_model)
    compiled = f.lower(specs_of_model, jax.ShapeDtypeStruct((16,), jnp.float32)).compile()
    model = make_model()
    f(model, X)
    f(place(model, RULES, MESH), X)
    assert traces.count == 1
    out = compiled(place(model, RULES, MESH), place(X, P("data"), MESH))
    assert specs(out) == [("data",), ()] * 3
    assert f.eval_shape(model, X).layers[0].weight.shape == (16, 8)
    f.warm_up_all(
        [((specs_of_model, jax.ShapeDtypeStruct((n,), jnp.float32)), {}) for n in (16, 8)]
    )
    f(place(model, RULES, MESH), np.ones(8, np.float32))
    assert traces.count == 2


def test_errors_of_the_function_are_raised_once() -> None:
    calls = []

    @on_mesh(in_shardings={"x": P("data")}, out_shardings=P("data"))
    def f(x: Any, fail: bool) -> Any:
        calls.append(None)
        if fail or x.shape[0] == 8:
            raise KeyError("mine")
        return x

    with pytest.raises(KeyError, match="mine"):
        f(X, True)
    assert len(calls) == 1 and not f.variants
    f(X, False)
    with pytest.raises(KeyError, match="mine"):
        f(np.ones(8), False)
    assert len(calls) == 3
    assert len(f.variants) == 1


@filter_jit(in_shardings={"x": P("data")})
def double(x: Any) -> Any:
    return x * 2


def test_single_device_shardings_and_pickling() -> None:
    on = SingleDeviceSharding(jax.devices()[3])
    assert devices(filter_jit(lambda x: x, in_shardings={"x": on}, out_shardings=on)(X)) == [3]
    with jax.set_mesh(MESH):
        assert pickle.loads(pickle.dumps(double))(X).sharding.spec == P("data")


def test_inside_shard_map() -> None:
    """The axes of shard_map divide the arrays already."""
    f = filter_jit(lambda x: x * 2, in_shardings={"x": P("data")}, out_shardings=P("data"))
    with jax.set_mesh(MESH):
        mapped = jax.jit(jax.shard_map(f, in_specs=P("data"), out_specs=P("data")))
        assert jnp.array_equal(mapped(X), 2 * X)
        f(X)
        assert jnp.array_equal(mapped(X), 2 * X)


@KINDS
@pytest.mark.parametrize("in_force", [False, True])
def test_a_given_mesh_inside_shard_map(kind: Any, in_force: bool) -> None:
    """Some of its axes are Manual there; the mesh need not be in force outside."""
    mesh = mesh_of(kind, (2, 4))
    x = place(np.arange(64.0).reshape(8, 8), P("data"), mesh)
    rules = ShardingRules({...: P("data", "model")})
    for f in (
        filter_jit(lambda x: x * 2, in_shardings={"x": P(None, "model")}, mesh=mesh),
        filter_jit(lambda x: x * 2, in_shardings={"x": rules}, out_shardings=rules, mesh=mesh),
        filter_jit(lambda x: x * 2, in_shardings=NamedSharding(mesh, P(None, "model"))),
        lambda x: place(x * 2, rules, mesh),
        lambda x: place(x * 2, NamedSharding(mesh, P(None, "model"))),
    ):
        mapped = jax.shard_map(
            f, mesh=mesh, in_specs=P("data"), out_specs=P("data"), axis_names={"data"}
        )
        with jax.set_mesh(mesh) if in_force else contextlib.nullcontext():
            assert jnp.array_equal(jax.jit(mapped)(x), 2 * x)
            assert jnp.array_equal(mapped(x), 2 * x)


def test_jits_with_equal_shardings_share_programs() -> None:
    traces = Traces()
    f = traces.counting(lambda x: [x * 2])
    on, rules = NamedSharding(MESH, P("data")), ShardingRules({...: P("data")})
    for make in (
        lambda: filter_jit(f, in_shardings=on, out_shardings=on),
        lambda: on_mesh(f, in_shardings={"x": P("data")}, out_shardings=rules),
        lambda: on_mesh(f, in_shardings=(P("data"),), out_shardings=[on]),
    ):
        traces.count = 0
        assert specs(make()(X)) == specs(make()(X)) == [("data",)]
        assert traces.count == 1
    for option in ("in_shardings", "out_shardings"):
        given = [P("data")]
        first = on_mesh(f, **{option: given})
        given[0] = P()
        assert specs(first(X)) == [("data",)]
        assert specs(on_mesh(f, **{option: given})(X)) == [()]


@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="JAX 0.9 cannot compute with them")
def test_unreduced_axes(tmp_path: Path) -> None:
    """A spec with them cannot be iterated over."""
    mesh = mesh_of(EXPLICIT)
    with jax.set_mesh(mesh):
        flat = jax.jit(lambda x: x, out_shardings=P(unreduced={"data"}))
        ours = filter_jit(lambda x: x, out_shardings=P(unreduced={"data"}))
        assert ours(jnp.asarray(X)).sharding == flat(jnp.asarray(X)).sharding
        rules = ShardingRules({...: P(unreduced={"data"})})
        again = filter_jit(
            lambda x: x, in_shardings={"x": rules}, out_shardings=rules, donate="all"
        )
        assert again(ours(jnp.asarray(X))).sharding.spec == P(unreduced={"data"})
        with pytest.raises(ValueError, match=r"the partition .*unreduced"):
            again.save(tmp_path / "f")


def test_threads_share_a_jit(monkeypatch: Any) -> None:
    """Only the first ``jax.jit`` of several threads is used, so that each traces once."""
    jit, made = _jax_compat.jit, []

    def slow_jit(*args: Any, **kwargs: Any) -> Any:
        found = jit(*args, **kwargs)
        made.append(weakref.ref(found))
        time.sleep(0.02 * len(made))
        return found

    monkeypatch.setattr(_jax_compat, "jit", slow_jit)
    f = on_mesh(lambda x: x + 1, in_shardings={"x": P("data")})
    calls = at_once(4, lambda _: (f(X), f.variants[0]._call)[1])
    assert len(made) > 1 and len({id(call) for call in calls}) == 1


def test_threads_that_meet_other_specs_at_once() -> None:
    """Two threads are in the trace that finds that the first specs do not do for their shapes."""
    both = threading.Barrier(2, timeout=60)
    seen: set[int] = set()

    def rule(array: Any, mesh: Any) -> Any:
        me = threading.get_ident()
        if array.shape[0] == 128 and me not in seen:
            seen.add(me)
            both.wait()
        return fsdp("data", min_size=100)(array, mesh)

    f = filter_jit(lambda m: m * 2, in_shardings={"m": ShardingRules({...: rule})}, mesh=mesh_of())
    f(jnp.ones((8, 8)))
    found = at_once(2, lambda i: f(jnp.ones((128, 8 * (i + 1)))).sharding.spec[0])
    assert found == ["data", "data"]
