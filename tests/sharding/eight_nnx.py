"""`in_shardings` and `out_shardings` of `filterjit.nnx.jit`, compared with Flax's ``nnx.jit``."""

import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from sharding_support import AUTO, EXPLICIT, KINDS, mesh_of

import filterjit.nnx
from support.nnx import MODES, in_each_mode, needs_this_flax, outcome

pytestmark = needs_this_flax

ALL = pytest.mark.parametrize("mode", sorted(MODES))


class Model(nnx.Module):
    def __init__(self) -> None:
        self.kernel = nnx.Param(jnp.arange(64.0).reshape(8, 8) / 64)
        self.bias = nnx.Param(jnp.zeros(8))
        self.count = nnx.BatchStat(jnp.zeros(()))
        self.name = "model"

    def __call__(self, x: Any) -> Any:
        return x @ self.kernel + self.bias


def rows_and_whole(kind: Any = AUTO) -> tuple[NamedSharding, NamedSharding]:
    mesh = mesh_of(kind)
    return NamedSharding(mesh, P("data")), NamedSharding(mesh, P())


ROWS, WHOLE = rows_and_whole()


def placed(tree: Any) -> list[Any]:
    """Returns where each array of a tree is, and whether it has to stay there."""
    return [
        (repr(x.sharding), bool(x.committed)) if isinstance(x, jax.Array) else type(x).__name__
        for x in jax.tree.leaves(nnx.state(tree) if isinstance(tree, nnx.Module) else tree)
    ]


def options(kind: Any) -> dict[str, Any]:
    rows, whole = rows_and_whole(kind)
    return {
        "model and data": {"in_shardings": (whole, rows)},
        "data": {"in_shardings": (None, rows)},
        "one for all": {"in_shardings": whole},
        "result": {"out_shardings": whole},
        "prefix of the result": {"out_shardings": {"y": whole, "rest": [None, whole]}},
        "all": {"in_shardings": (whole, rows), "out_shardings": whole},
        "model only": {"in_shardings": (whole, None), "out_shardings": None},
    }


@pytest.mark.parametrize(
    ("name", "kind", "donate"),
    [
        *((name, AUTO, None) for name in sorted(options(AUTO))),
        *((name, AUTO, (0, 1)) for name in ("all", "model and data", "result")),
        ("data", AUTO, 0),
        ("all", EXPLICIT, None),
        ("data", EXPLICIT, 0),
    ],
)
@in_each_mode
def test_as_upstream(jit: Any, mode: str, kind: Any, name: str, donate: Any) -> Iterator[Any]:
    @jit(**options(kind)[name], donate_argnums=donate)
    def f(model: Any, x: Any) -> Any:
        model.count[...] += 1
        y = x @ jnp.ones((8, 8))
        return {"y": y.sum(), "rest": [model.count + 1, (model.bias * 2, 3.0)]}

    model, told = Model(), set[str]()
    for x in (jnp.ones((16, 8)), jnp.ones((16, 8)), np.ones((16, 8), np.float32)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            out = f(model, x)
        told.update(str(w.message) for w in caught)
        yield out, placed(out)
        if donate is None or mode == "graph":  # upstream leaves deleted arrays in tree mode
            yield model, placed(model)
        else:
            model = Model()
    yield sorted(told)  # upstream may compile once more


@KINDS
@in_each_mode
def test_a_training_step(jit: Any, mode: str, kind: Any) -> Iterator[Any]:
    """The state stays where it is put, and hits call what they call without shardings."""
    rows, whole = rows_and_whole(kind)
    model = Model()
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    @jit(in_shardings=(whole, whole, rows, rows))
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        loss, grads = nnx.value_and_grad(
            lambda model: jnp.mean((model(x) - y) ** 2), graph=mode != "tree"
        )(model)
        optimizer.update(model, grads)
        return loss

    for _ in range(4):
        loss = step(model, optimizer, jnp.ones((16, 8)), jnp.zeros((16, 8)))
        yield round(float(loss), 4), placed(loss)
        yield placed(model), placed(nnx.state(optimizer))
    if isinstance(step, filterjit.nnx.NNXJit):
        assert step.cache_info().hits >= 2
        plain = filterjit.nnx.jit(lambda x: x + 1)
        plain(jnp.ones(2))
        assert type(step._inner.variants[0]._call) is type(plain._inner.variants[0]._call)


def filters(kind: Any) -> Any:
    """Returns a ``StateSharding``: a sharding for each filter."""
    rows, whole = rows_and_whole(kind)
    return nnx.StateSharding({nnx.PathContains("kernel"): rows, nnx.Param: whole, ...: None})


@KINDS
@in_each_mode(modes=["graph"])
def test_filters(jit: Any, kind: Any) -> Iterator[Any]:
    (rows, whole), state = rows_and_whole(kind), filters(kind)
    by_size = nnx.StateSharding({(lambda path, x: x.ndim == 2): rows, ...: whole})

    @jit(in_shardings=(state, rows), out_shardings=(rows, None))
    def f(model: Any, x: Any) -> Any:
        model.count[...] += 1
        return jnp.ones((8, 8)) * model.count, x.sum()

    model = Model()
    for _ in range(3):
        out = f(model, jnp.ones((16, 8)))
        yield out, placed(out), model, placed(model)

    create = jit(lambda: Model(), out_shardings=state)
    for _ in range(2):
        model = create()
        yield model, placed(model)

    @jit(in_shardings=(by_size,))
    def transpose(model: Any) -> None:
        square, row = jnp.ones((8, 8)), jnp.ones(8)
        model.kernel.set_value(row if model.kernel.ndim == 2 else square)
        model.bias.set_value(square if model.bias.ndim == 1 else row)

    for _ in range(3):
        transpose(model)
        yield model, placed(model)


@KINDS
@in_each_mode(handed_over=True, modes=["graph"])
def test_filters_that_do_not_fit(jit: Any, kind: Any) -> Iterator[Any]:
    few = nnx.StateSharding({nnx.PathContains("kernel"): rows_and_whole(kind)[0]})
    for state, model in ((filters(kind), nnx.Linear(4, 3, rngs=nnx.Rngs(0))), (few, Model())):
        yield outcome(jit(lambda model: model.bias + 1, in_shardings=(state,)), model)


@KINDS
@in_each_mode(modes=["graph"])
def test_changes_of_the_graph(jit: Any, kind: Any) -> Iterator[Any]:
    rows, whole = rows_and_whole(kind)

    @jit(in_shardings=(whole, rows), out_shardings=(rows, None))
    def grow(model: Any, x: Any) -> Any:
        model.extra = nnx.Param(jnp.ones(8) * x.sum())
        return nnx.Linear(8, 8, rngs=nnx.Rngs(0)), model.extra[...] + 1

    model = Model()
    for _ in range(3):
        layer, y = grow(model, jnp.ones((16, 8)))
        yield placed(layer), y, placed(y), model, placed(model)

    class Arrays(nnx.Module):
        def __init__(self) -> None:
            self.table = nnx.data(jnp.arange(8.0))
            self.weight = nnx.Param(jnp.ones(8))

    @jit(in_shardings=(rows,))
    def read(m: Any) -> Any:
        m.weight[...] += m.table
        return m.weight.sum()

    m = Arrays()
    for _ in range(3):
        yield read(m), m, placed(m.weight.get_raw_value()), placed(m.table)


@in_each_mode(handed_over=True)  # tree mode, and the errors
def test_sharing(jit: Any) -> Iterator[Any]:
    """One Variable at two places has one sharding."""

    def f(model: Any, other: Any) -> Any:
        model.count[...] += 1
        return other["bias"] + model.count

    model = Model()
    for shardings in ((WHOLE, WHOLE), (WHOLE, ROWS)):
        yield outcome(jit(f, in_shardings=shardings), model, {"bias": model.bias})
        yield placed(model)
    yield outcome(jit(lambda model: model, in_shardings=(WHOLE,), out_shardings=ROWS), model)


@in_each_mode(modes=["graph"])
def test_a_model_and_its_optimizer(jit: Any) -> Iterator[Any]:
    model = Model()
    optimizer = nnx.ModelAndOptimizer(model, optax.sgd(0.1))

    @jit(in_shardings=(WHOLE, WHOLE, ROWS))
    def step(model: Any, optimizer: Any, x: Any) -> Any:
        optimizer.update(nnx.grad(lambda model: model(x).sum())(model))
        return model.bias.sum()

    for _ in range(3):
        yield step(model, optimizer, jnp.ones((8, 8)))
        yield placed(model), placed(nnx.state(optimizer)), optimizer.model is model


@in_each_mode
def test_static_arguments(jit: Any, mode: str) -> Iterator[Any]:
    def f(model: Any, n: Any, x: Any) -> Any:
        model.count[...] += n
        return x * n

    for static in ({"static_argnums": 1}, {"static_argnames": "n"}, {"static_argnums": (1,)}):
        model = Model()
        g = jit(f, in_shardings=(WHOLE, ROWS), **static)
        for n in (1, 2, 2):
            out = g(model, n, jnp.ones(8))
            yield out, placed(out), model, placed(model)


@in_each_mode
def test_a_mesh_in_force(jit: Any, mode: str) -> Iterator[Any]:
    mesh = mesh_of()

    @jit(in_shardings=(P(), P("data")), out_shardings=P("data"))
    def f(model: Any, x: Any) -> Any:
        model.count[...] += 1
        return x + model.bias

    model, x = Model(), jnp.ones(8)
    yield outcome(f, model, x)
    with jax.set_mesh(mesh):
        for _ in range(3):
            out = f(model, x)
            yield out, placed(out), model, placed(model)
    one = jit(lambda x: x + 1, in_shardings=SingleDeviceSharding(jax.devices()[3]))
    yield placed(one(jnp.ones(2)))


@in_each_mode(modes=["graph without updates", "tree"])
def test_prefixes_that_are_modules(jit: Any, mode: str) -> Iterator[Any]:
    model = Model()
    given = nnx.prefix(model, {nnx.Param: WHOLE, ...: None}, graph=mode == "graph without updates")

    @jit(in_shardings=(given, ROWS))
    def f(model: Any, x: Any) -> Any:
        model.bias[...] += x.sum()
        model.count[...] += 1
        return x * 2

    for _ in range(2):
        out = f(model, jnp.ones(8))
        yield out, placed(out), model, placed(model)


@in_each_mode(handed_over=True, again=4)
def test_what_does_not_fit(jit: Any) -> Iterator[Any]:
    """Upstream raises its error."""
    f = jit(lambda model, x: x + model.count, in_shardings=(WHOLE, ROWS))
    model = Model()
    for x in (jnp.ones(7), jnp.ones(())):
        yield outcome(f, model, x)
    any_number = jit(lambda *args: args, in_shardings=(WHOLE, ROWS))
    for args in ((model,), (model, 1, 2)):
        yield outcome(any_number, *args)
    made = f(model, jnp.ones(8))
    yield made, placed(made)
    for prefix in ({"a": ROWS}, (ROWS, ROWS), [ROWS]):
        yield outcome(jit(lambda x: x * 2, out_shardings=prefix), jnp.ones(8))
    yield outcome(jit(lambda x: {"a": x[:3]}, out_shardings={"a": ROWS}), jnp.ones(8))
    yield outcome(jit(lambda x: x * 2, in_shardings=[ROWS]), jnp.ones(8))
    yield outcome(jit, lambda x: x * 2, in_shardings=("data",))


@ALL
def test_calls_after_one_that_does_not_fit(mode: str) -> None:
    f = filterjit.nnx.jit(lambda x: x * 2, in_shardings=ROWS, **MODES[mode])
    with pytest.raises(ValueError, match=r"size is 7|divisible by 8"):
        f(jnp.ones(7))
    for _ in range(3):
        f(jnp.ones(8))
    assert sum(f.handed_over.values()) == 1 and f.cache_info().hits == 2


@ALL
def test_arguments_by_name(mode: str) -> None:
    """They have the sharding of their position; upstream refuses them."""
    f = filterjit.nnx.jit(lambda m, x: x + m.count, in_shardings=(None, ROWS), **MODES[mode])
    model = Model()
    for out in (f(model, jnp.ones(8)), f(model, jnp.ones(8)), f(model, x=jnp.ones(8))):
        assert out.sharding.spec == P("data")
    assert f.cache_info().hits >= 1 and len(f._inner.variants) == 1 and not f.handed_over


def test_explain_and_cached_partials() -> None:
    def f(model: Any, x: Any) -> Any:
        model.count[...] += 1
        return x * model.count

    found = []
    for library in (nnx, filterjit.nnx):
        model, jitted = Model(), library.jit(f, in_shardings=(WHOLE, ROWS))
        g = library.cached_partial(jitted, model)
        for _ in range(3):
            out = g(jnp.ones(8))
            found.append((np.asarray(out).tolist(), placed(out), placed(model)))
    assert found[:3] == found[3:]
    assert not jitted.handed_over
    assert jitted.explain(model, jnp.ones(8)).hit
    assert not jitted.explain(model, jnp.ones(16)).hit
