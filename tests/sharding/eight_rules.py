"""`ShardingRules`, `fsdp` and `place`."""

import collections
import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from sharding_support import AUTO, EXPLICIT, KINDS, make_model, mesh_of, specs

from filterjit import Filter, filter_jit, is_array, is_inexact_array
from filterjit.sharding import ShardingRules, fsdp, place

MESH = mesh_of(shape=(2, 4))
RULES = ShardingRules({"layers[0].weight": P("data", "model"), "**.weight": P("model"), ...: P()})
FILTERS = ShardingRules(
    {
        Filter("**.weight") & is_inexact_array: fsdp("data", min_size=100),
        jnp.integer: P("data"),
        lambda x: x.ndim == 1: P(),
        is_array: None,
    }
)
TREE = (np.arange(8), jnp.arange(8), jax.random.split(jax.random.key(0), 8), "text", None)
# Rules, or what makes them for a mesh; a tree; the spec of each of its arrays, or None where it is
# left as it is.
PLACED: dict[str, tuple[Any, Any, list[Any]]] = {
    "the first match": (RULES, make_model(), [("data", "model"), (), ("model",), (), ("model",), ()]),
    "filters": (
        FILTERS,
        (make_model(), np.arange(8), jnp.ones((2, 3))),
        [("data",), (), ("data",), (), (None, "data"), (), ("data",), None],
    ),
    "scalars": (
        ShardingRules({"w": P("data")}), {"w": np.ones(8), "n": jnp.asarray(1)}, [(), ("data",)]),
    "no arrays": (ShardingRules({"w": P("data")}), {"n": 3}, []),
    "a spec": (P("data"), TREE, [("data",)] * 3),
    "a sharding": (lambda mesh: NamedSharding(mesh, P("data")), TREE, [("data",)] * 3),
    "a prefix": (
        lambda mesh: (P("data"), NamedSharding(mesh, P("model")), P(), None, None),
        TREE,
        [("data",), ("model",), ()],
    ),
    "None": (None, TREE, [None] * 3),
}  # fmt: skip


@KINDS
def test_what_is_placed_where(kind: Any) -> None:
    mesh = mesh_of(kind, (2, 4))
    for name, (rules, tree, expected) in PLACED.items():
        placed = place(tree, rules(mesh) if inspect.isfunction(rules) else rules, mesh)
        found = []
        for a, b in zip(jax.tree.leaves(placed), jax.tree.leaves(tree), strict=True):
            if isinstance(b, (jax.Array, np.ndarray)):
                assert jnp.array_equal(a, b), name
                found.append(None if a is b else specs(a)[0])
            else:
                assert a is b, name
        assert found == expected, name
        if name in ("the first match", "a spec"):
            assert specs(place(placed, P(), mesh)) == [()] * len(found), name


def test_fsdp() -> None:
    rule = fsdp("model", min_size=16)
    for shape, expected in {
        (4, 8): P(None, "model"), (8, 4): P("model"), (8, 8): P("model"), (3, 5): P(),
        (3, 4): P(), (15,): P(), (16,): P("model"), (): P(), (0, 16): P(), (64, 3, 16): P("model"),
    }.items():  # fmt: skip
        assert rule(jax.ShapeDtypeStruct(shape, jnp.float32), MESH) == expected
    both = fsdp(("data", "model"))
    assert both(jax.ShapeDtypeStruct((4, 8), jnp.float32), MESH) == P(None, ("data", "model"))
    with pytest.raises(ValueError, match=r"`\['w'\]`.*the mesh has no axis 'fsdp'"):
        place({"w": np.ones(8)}, ShardingRules({...: fsdp("fsdp")}), MESH)


def test_states_of_other_shapes_are_replicated() -> None:
    """Adafactor keeps factors of the second moment."""
    optimizer = optax.adafactor(1e-3, min_dim_size_to_factor=8)
    params = {"w": jnp.ones((8, 16)), "b": jnp.ones(8)}
    rules = ShardingRules({"w": P("data", "model"), "b": P("data")})
    state = place(optimizer.init(params), rules, MESH)
    factored = state[0]
    assert specs(factored.v_row["w"]) == specs(factored.v_col["w"]) == [()]
    assert specs(factored.v["b"]) == [("data",)]


Layer = collections.namedtuple("Layer", ["w", "b"])
Layers = collections.namedtuple("Layers", ["first", "second"])


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


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["dict", "named tuple", "both", "module"])
def test_a_moment_is_placed_as_its_parameter(name: str, kind: str) -> None:
    """Whatever stands around it; the parameters have different shapes."""
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
    wanted = {x.shape: P(*specs(x)[0]) for x in jax.tree.leaves(place(params, rules, MESH))}
    assert len(set(wanted.values())) == 3
    state = OPTIMIZERS[name].init(params)
    for tree in (state, Holder(None, state), ["name", {"state": state}]):
        for x in jax.tree.leaves(place(tree, rules, MESH)):
            if isinstance(x, jax.Array) and x.ndim:
                is_factor = name == "adafactor" and x.ndim == 1
                assert is_factor or P(*specs(x)[0]) == wanted[x.shape], x.shape


ERRORS: list[tuple[dict[Any, Any], str]] = [
    ({"layers[0]": P(), ...: P()}, "which is an inner node"),
    ({...: P("fsdp")}, r"the rule \.\.\.: .* `layers\[0\].weight`.*no axis 'fsdp', it has 'da"),
    ({...: P(("data", "model"), "model")}, "uses the axis 'model' twice"),
    ({"**.bias": P(None, "data"), ...: P()}, r"`layers\[0\].bias`.*2 entries for 1 dim"),
]


def test_errors() -> None:
    """Besides those in tests/messages.md, which tests/test_pages.py runs."""
    for rules, match in ERRORS:
        with pytest.raises(ValueError, match=match):
            place(make_model(), ShardingRules(rules), MESH)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT, (AUTO, EXPLICIT)], ids=str)
def test_in_a_trace(kind: Any) -> None:
    """It is as outside: under a mesh, and under Auto axes with a mesh of its own, as Equinox does it."""
    mesh, model = mesh_of(kind, (2, 4)), make_model()

    def doubled(model: Any) -> Any:
        return jax.tree.map(lambda x: x * 2 if eqx.is_array(x) else x, model)

    named = NamedSharding(mesh, P("model"))
    for rules in (RULES, P("model"), named):
        with jax.set_mesh(mesh):
            f = filter_jit(lambda model, rules=rules: place(doubled(model), rules))
            expected = specs(place(model, rules))
            assert specs(f(model)) == specs(f(place(model, P()))) == expected
        if kind is AUTO:
            g = filter_jit(lambda model, rules=rules: place(model, rules, mesh))
            assert specs(g(model)) == expected
    if kind is AUTO:
        theirs = filter_jit(lambda model: eqx.filter_shard(model, named))
        assert specs(theirs(model)) == specs(eqx.filter_shard(model, named)) == expected


def test_rules_show_themselves() -> None:
    assert repr(ShardingRules({"a": P("x"), ...: fsdp("y", min_size=3)})) == (
        f"ShardingRules({{'a': {P('x')!r}, ...: fsdp(axis='y', min_size=3)}})"
    )
