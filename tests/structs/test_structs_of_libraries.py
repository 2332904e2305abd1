"""States of Optax and Haiku, dataclasses of chex, Modules and states of Flax's linen: exactly the pytrees
that they are under ``jax.jit``."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import filterjit
from filterjit import filter_jit
from support.comparison import Jit, Traces, comparable, on, on_both
from support.exactness import X, changed, check_exact, look, same_as_jax

optax = pytest.importorskip("optax")
frozen_dict = pytest.importorskip("flax.core")
import flax.linen as nn  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402

PARAMS = {"w": jnp.ones((3, 1)), "b": jnp.zeros(1)}
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adamw": lambda: optax.adamw(0.1),
    "chain": lambda: optax.chain(optax.clip(1.0), optax.scale_by_adam(), optax.scale(-0.1)),
    "lookahead": lambda: optax.apply_if_finite(optax.sgd(0.1), 3),
    "ema": lambda: optax.ema(0.9),
    "noise": lambda: optax.add_noise(0.1, 0.1, jax.random.key(0)),
    "frozen": lambda: optax.partition(
        {"x": optax.adam(0.1), "y": optax.set_to_zero()}, {"w": "x", "b": "y"}
    ),
}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_states_of_optax(name: str, frozen: bool) -> None:
    if frozen and name == "frozen":
        pytest.skip("its labels are a dict")
    params = frozen_dict.freeze(PARAMS) if frozen else PARAMS
    state = OPTIMIZERS[name]().init(params)
    assert check_exact(lambda: [state] * 6) == 1
    assert check_exact(lambda: [state, OPTIMIZERS[name]().init(params)]) == 1


def test_haiku() -> None:
    hk = pytest.importorskip("haiku")

    def forward(x: Any) -> Any:
        count = hk.get_state("count", (), init=jnp.zeros)
        hk.set_state("count", count + 1)
        return hk.nets.MLP([3, 2])(x)

    model = hk.transform_with_state(forward)
    params, state = model.init(jax.random.key(0), X[None])
    assert check_exact(lambda: [(params, state)] * 6) == 1
    out = filter_jit(model.apply)(params, state, None, X[None])
    assert comparable(out) == comparable(jax.jit(model.apply)(params, state, None, X[None]))
    training = hk.LSTMState(X, X + 1)
    assert check_exact(lambda: [training] * 6) == 1


@pytest.mark.parametrize("mappable", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_chex(mappable: bool, frozen: bool) -> None:
    chex = pytest.importorskip("chex")
    ran: list[Any] = []

    @functools.partial(chex.dataclass, mappable_dataclass=mappable, frozen=frozen)
    class Local:
        a: Any
        b: Any = None
        posted: Any = None

        def __post_init__(self) -> None:
            ran.append(self)

    one = lambda: Local(a=X, b=[X, {"c": X}])
    assert check_exact(lambda: [one(), one(), Local(a=X), Local(a=(X, X)), one()]) == 3
    x = one()
    assert check_exact(lambda: [x] * 6) == 1
    assert check_exact(lambda: [Local(a=X, b=b) for b in (1, True, 1.0, "1", 1)]) == 4

    def number(jit: Any) -> int:
        f = jit(lambda x: x)
        f(x)
        before = len(ran)
        f(x)
        return len(ran) - before

    assert number(filter_jit) == number(jax.jit) > 0

    values = (("a", (X, X)), ("extra", 1))
    changes = [lambda x, given=given: object.__setattr__(x, *given) for given in values]
    same_as_jax(look, changed(one, *changes))  # rebuilt without `extra`
    if mappable:
        assert dict(filter_jit(lambda x: x)(one())).keys() == {"a", "b", "posted"}


def test_chex_with_static_fields() -> None:
    chex = pytest.importorskip("chex")
    static = dataclasses.field(default=1, metadata={"static": True})
    cls = chex.dataclass(type("Local", (), {"__annotations__": {"a": Any, "s": Any}, "s": static}))
    check_exact(lambda: [cls(a=X, s=s) for s in (1, 2, 1)])


class Counter(eqx.Module):
    @filterjit.filter_jit
    def step(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    "jitted", [filterjit.filter_jit(abs), filterjit.jit(abs), Counter().step, jax.jit(abs)]
)
def test_a_jitted_function_is_seen_to_be_one(jitted: Any) -> None:
    """What a library asks that refuses such functions, and what people ask of ``jax.jit``."""
    chex, hk = pytest.importorskip("chex"), pytest.importorskip("haiku")
    for refuse in (lambda: chex.assert_max_traces(jitted, 1), lambda: hk.transform(jitted)):
        with pytest.raises(ValueError, match="jit"):
            refuse()
    assert isinstance(jitted, jax.stages.Wrapped) and jitted.__wrapped__(-1) in (1, -1)
    before = jitted._cache_size()
    jitted(jnp.ones(2))
    assert jitted._cache_size() == before + 1
    assert jitted.eval_shape(jnp.ones(3)).shape == (3,)


# ---- linen ----

KEY = jax.random.key(0)
XS = jax.random.normal(jax.random.key(1), (4, 3))


class Network(nn.Module):
    features: int = 4

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        x = nn.Dense(self.features)(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        return nn.Dense(1)(nn.relu(x))


@on_both
def test_linen_module_as_an_argument(jit: Jit, traces: Traces) -> Any:
    """A linen Module is not a pytree and can be hashed: it is static."""
    params = Network().init(KEY, XS)
    apply = jit(traces.counting(lambda model, params, x: model.apply(params, x)))
    found = [apply(Network(4), params, XS) for _ in range(3)]
    assert traces.count == 1
    return found


@on_both
def test_linen_init_and_apply_as_the_function(jit: Jit) -> Any:
    model = Network()
    variables = jit(model.init)(KEY, XS)
    return variables, jit(model.apply)(variables, XS)


@on(jax.jit, eqx.filter_jit, filterjit.filter_jit)
def test_train_state(jit: Jit, traces: Traces) -> Any:
    model = nn.Dense(2)
    params = model.init(KEY, XS)["params"]

    @jit
    def step(state: Any, x: Any) -> Any:
        traces.tick()
        loss = lambda p: jnp.mean(state.apply_fn({"params": p}, x) ** 2)
        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), value

    # `step` is an int at first, and an array later.
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(0.1))
    state = state.replace(step=jnp.asarray(0))
    values = []
    for _ in range(4):
        state, value = step(state, XS)
        values.append(value)
    return values, state.params, state.opt_state, state.step
