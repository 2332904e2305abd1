"""Dataclasses of chex, Modules of Flax's linen, and what libraries see of a jitted function."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import filterjit
from filterjit import filter_jit
from support.comparison import Jit, Traces, on_both
from support.exactness import X, changed, check_exact, look, same_as_jax

nn = pytest.importorskip("flax.linen")


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


@on_both
def test_a_linen_module_is_static(jit: Jit, traces: Traces) -> Any:
    """It is no pytree and can be hashed. Its methods are functions like others."""
    params = nn.Dense(4).init(jax.random.key(0), X)
    apply = jit(traces.counting(lambda model, params, x: model.apply(params, x)))
    found = [apply(nn.Dense(4), params, X) for _ in range(3)]
    assert traces.count == 1
    return found, jit(nn.Dense(4).apply)(params, X)
