"""States of Optax and Haiku, dataclasses of chex and penzai: exactly the pytrees that they are under
``jax.jit``."""

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
from support.comparison import comparable
from support.exactness import X, changed, check_exact, look, same_as_jax

optax = pytest.importorskip("optax")
frozen_dict = pytest.importorskip("flax.core")

ran: dict[str, int] = {}  # counts the calls of each __post_init__


def count(name: str) -> None:
    ran[name] = ran.get(name, 0) + 1


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

    @functools.partial(chex.dataclass, mappable_dataclass=mappable, frozen=frozen)
    class Local:
        a: Any
        b: Any = None
        posted: Any = None

        def __post_init__(self) -> None:
            count("chex")

    one = lambda: Local(a=X, b=[X, {"c": X}])
    assert check_exact(lambda: [one(), one(), Local(a=X), Local(a=(X, X)), one()]) == 3
    x = one()
    assert check_exact(lambda: [x] * 6) == 1
    assert check_exact(lambda: [Local(a=X, b=b) for b in (1, True, 1.0, "1", 1)]) == 4

    def number(jit: Any) -> int:
        f = jit(lambda x: x)
        f(x)
        before = ran["chex"]
        f(x)
        return ran["chex"] - before

    assert number(filter_jit) == number(jax.jit) > 0

    values = (("a", (X, X)), ("extra", 1))
    changes = [lambda x, given=given: object.__setattr__(x, *given) for given in values]
    same_as_jax(look, changed(one, *changes))  # rebuilt without `extra`
    if mappable:
        assert dict(filter_jit(lambda x: x)(one())).keys() == {"a", "b", "posted"}


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


def test_chex_with_static_fields() -> None:
    chex = pytest.importorskip("chex")

    @chex.dataclass
    class Local:
        a: Any
        s: Any = dataclasses.field(default=1, metadata={"static": True})

    trees = lambda: [Local(a=X, s=s) for s in (1, 2, 1)]
    check_exact(trees)
