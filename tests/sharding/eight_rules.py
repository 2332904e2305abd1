"""`ShardingRules`, `fsdp` and `place`."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from sharding_support import AUTO, EXPLICIT, make_model, mesh_of, specs

from filterjit import Filter, filter_jit, is_array, is_inexact_array
from filterjit.sharding import ShardingRules, fsdp, place

KINDS = pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
RULES = ShardingRules({"layers[0].weight": P("data", "model"), "**.weight": P("model"), ...: P()})


@KINDS
def test_the_first_match_wins(kind: Any) -> None:
    mesh = mesh_of(kind, (2, 4))
    model = place(make_model(), RULES, mesh)
    assert specs(model) == [("data", "model"), (), ("model",), (), ("model",), ()]
    assert model.activation is make_model().activation
    for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(make_model()), strict=True):
        assert a is b or np.array_equal(a, b)


def test_filters_as_keys() -> None:
    mesh = mesh_of()
    rules = ShardingRules(
        {
            Filter("**.weight") & is_inexact_array: fsdp("data", min_size=100),
            jnp.integer: P("data"),
            lambda x: x.ndim == 1: P(),
            is_array: None,
        }
    )
    x = jnp.ones((2, 3))
    model, numbers, left = place((make_model(), np.arange(8), x), rules, mesh)
    assert specs(model) == [("data",), (), ("data",), (), (None, "data"), ()]
    assert specs(numbers) == [("data",)] and left is x


def test_fsdp() -> None:
    mesh = mesh_of(shape=(2, 4))
    rule = fsdp("model", min_size=16)
    found = {
        shape: rule(jax.ShapeDtypeStruct(shape, jnp.float32), mesh)
        for shape in [
            (4, 8),
            (8, 4),
            (8, 8),
            (3, 5),
            (3, 4),
            (15,),
            (16,),
            (),
            (0, 16),
            (64, 3, 16),
        ]
    }
    assert found == {
        (4, 8): P(None, "model"), (8, 4): P("model"), (8, 8): P("model"), (3, 5): P(),
        (3, 4): P(), (15,): P(), (16,): P("model"), (): P(), (0, 16): P(), (64, 3, 16): P("model"),
    }  # fmt: skip
    both = fsdp(("data", "model"))
    assert both(jax.ShapeDtypeStruct((4, 8), jnp.float32), mesh) == P(None, ("data", "model"))
    with pytest.raises(ValueError, match=r"`\['w'\]`.*the mesh has no axis 'fsdp'"):
        place({"w": np.ones(8)}, ShardingRules({...: fsdp("fsdp")}), mesh)


def test_states_of_other_shapes_are_replicated() -> None:
    """Adafactor keeps factors of the second moment."""
    mesh = mesh_of(shape=(2, 4))
    optimizer = optax.adafactor(1e-3, min_dim_size_to_factor=8)
    params = {"w": jnp.ones((8, 16)), "b": jnp.ones(8)}
    rules = ShardingRules({"w": P("data", "model"), "b": P("data")})
    state = place(optimizer.init(params), rules, mesh)
    factored = state[0]
    assert specs(factored.v_row["w"]) == specs(factored.v_col["w"]) == [()]
    assert specs(factored.v["b"]) == [("data",)]
    text = rules.table(optimizer.init(params), mesh)
    assert "(replicated: P" in text or "(replicated: PartitionSpec" in text


class Layer(NamedTuple):
    w: Any
    b: Any


class Layers(NamedTuple):
    first: Any
    second: Any


class Holder(eqx.Module):
    model: Any
    state: Any
    name: str = "holder"


def _is_matrix(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.ndim == 2, tree)


OPTIMIZERS = {
    "adam": optax.adam(1e-3),
    "masked": optax.masked(optax.adam(1e-3), _is_matrix),
    "multi_transform": optax.multi_transform(
        {True: optax.adam(1e-3), False: optax.sgd(1e-2, momentum=0.9)}, _is_matrix
    ),
    "chain": optax.chain(
        optax.clip(1.0), optax.chain(optax.ema(0.9), optax.MultiSteps(optax.adam(1e-3), 2))
    ),
    "inject_hyperparams": optax.inject_hyperparams(optax.adam)(learning_rate=1e-3),
    "masked chain": optax.masked(
        optax.chain(optax.masked(optax.ema(0.9), _is_matrix), optax.adam(1e-3)), _is_matrix
    ),
    "adafactor": optax.adafactor(1e-3, min_dim_size_to_factor=8, momentum=0.9),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize(
    "wrap",
    [lambda x: x, lambda x: Holder(None, x), lambda x: ["name", {"state": x}]],
    ids=["bare", "module", "list"],
)
@pytest.mark.parametrize("kind", ["dict", "named tuple", "both", "module"])
def test_a_moment_is_placed_as_its_parameter(optimizer: Any, wrap: Any, kind: str) -> None:
    """Whatever stands around it; the parameters have different shapes."""
    mesh = mesh_of(shape=(2, 4))
    w, b, v, c = (jnp.ones(shape) for shape in ((8, 16), (16,), (16, 8), (8,)))
    both = {"dict": dict, "named tuple": Layers, "both": dict, "module": Holder}[kind]
    one = dict if kind == "dict" else Layer
    names = ("model", "state") if kind == "module" else ("first", "second")
    params = both(**dict(zip(names, (one(w=w, b=b), one(w=v, b=c)), strict=True)))
    rules = ShardingRules(
        {
            f"{names[0]}.w": P("data", "model"),
            f"{names[1]}.w": P("model", None),
            "**.b": P(("data", "model")),
        }
    )
    params = eqx.filter(params, eqx.is_array)
    wanted = {x.shape: P(*s) for x, s in zip(
        jax.tree.leaves(place(params, rules, mesh)), specs(place(params, rules, mesh)), strict=True
    )}  # fmt: skip
    assert len(set(wanted.values())) == 3
    state = optimizer.init(params)
    tree = wrap(state)
    found = jax.tree.leaves(place(tree, rules, mesh))
    factors = 0
    for x in found:
        if isinstance(x, jax.Array) and x.ndim:
            is_factor = optimizer is OPTIMIZERS["adafactor"] and x.ndim == 1
            factors += is_factor
            assert is_factor or P(*specs(x)[0]) == wanted[x.shape], x.shape
    text = rules.table(tree, mesh)
    assert ("replicated" in text) == (factors > 0), text


ERRORS: list[tuple[dict[Any, Any], str]] = [
    ({"layers[0]": P(), ...: P()}, "which is an inner node"),
    ({...: P("fsdp")}, r"the rule \.\.\.: .* `layers\[0\].weight`.*no axis 'fsdp', it has 'da"),
    ({...: P(("data", "model"), "model")}, "uses the axis 'model' twice"),
    ({"**.bias": P(None, "data"), ...: P()}, r"`layers\[0\].bias`.*2 entries for 1 dim"),
]


@pytest.mark.parametrize(("rules", "match"), ERRORS)
def test_errors(rules: Any, match: str) -> None:
    """Besides those on docs/errors.md, which tests/test_errors_page.py runs."""
    with pytest.raises(ValueError, match=match):
        place(make_model(), ShardingRules(rules), mesh_of(shape=(2, 4)))


def test_scalars_need_no_rule() -> None:
    mesh = mesh_of()
    rules = ShardingRules({"w": P("data")})
    assert specs(place({"w": np.ones(8), "n": jnp.asarray(1)}, rules, mesh)) == [(), ("data",)]
    assert place({"n": 3}, rules, mesh) == {"n": 3}


def test_table() -> None:
    mesh = mesh_of(shape=(2, 4))
    text = RULES.table(make_model(), mesh)
    lines = text.splitlines()
    assert lines[0].split() == ["path", "shape", "spec", "bytes", "a", "device", "rule"]
    assert lines[1].startswith("layers[0].weight  float32[16,8]") and " 64  " in lines[1]
    assert lines[1].endswith("'layers[0].weight'") and lines[2].endswith("...")
    assert int(lines[-1].strip().replace(",", "")) == 64 + 64 + 256 + 64 + 128 + 32
    with jax.set_mesh(mesh):
        assert RULES.table(eqx.filter_eval_shape(make_model)) == text


@KINDS
def test_place_under_a_mesh_and_in_a_trace(kind: Any) -> None:
    mesh = mesh_of(kind, (2, 4))
    with jax.set_mesh(mesh):
        model = place(make_model(), RULES)
        expected = specs(model)

        @filter_jit
        def f(model: Any) -> Any:
            return place(jax.tree.map(lambda x: x * 2 if eqx.is_array(x) else x, model), RULES)

        assert specs(f(model)) == expected
        assert specs(f(place(make_model(), P()))) == expected
    if kind is AUTO:
        g = filter_jit(lambda model: place(model, RULES, mesh))
        assert specs(g(make_model())) == expected


def test_mixed_kinds_of_axes() -> None:
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Explicit))
    rules = ShardingRules({...: P("data", "model")})
    with jax.set_mesh(mesh):
        x = place(np.ones((8, 8), np.float32), rules)
        assert specs(x) == [("data", "model")]
        y = jax.jit(lambda x: place(x + 1, P("data", "model")))(np.ones((8, 8), np.float32))
        assert specs(y) == [("data", "model")]


def test_values_and_kinds_of_arrays() -> None:
    mesh = mesh_of()
    named = NamedSharding(mesh, P("data"))
    tree = (np.arange(8), jnp.arange(8), jax.random.split(jax.random.key(0), 8), "text", None)
    for value in (P("data"), named, (P("data"), named, P("data"), None, None)):
        placed = place(tree, value, mesh)
        assert [x.sharding.spec for x in placed[:3]] == [P("data")] * 3 and placed[3:] == tree[3:]
        assert all(map(jnp.array_equal, placed[:3], tree[:3]))
    again = place(placed, P("data"), mesh)
    assert specs(again) == [("data",)] * 3
    same = place(tree, None)
    assert same[0] is tree[0] and same[1] is tree[1]


def test_rules_show_themselves() -> None:
    assert repr(ShardingRules({"a": P("x"), ...: fsdp("y", min_size=3)})) == (
        f"ShardingRules({{'a': {P('x')!r}, ...: fsdp(axis='y', min_size=3)}})"
    )
