"""Which jitted functions share their traces."""

import inspect
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

from support.comparison import Jit, Traces
from support.lifetimes import collect
from support.trees import ONE


def test_two_wrappers_share(jit: Jit, traces: Traces) -> None:
    f = traces.counting(lambda x: x + 1)
    one, two = jit(f), jit(f)
    assert one == two
    assert hash(one) == hash(two) and one != jit(lambda x: x + 1) and (one == f) is False
    assert one(ONE) == two(ONE) == jit(f)(ONE) == 2
    assert traces.count == 1
    del one
    collect()
    assert two(ONE) == jit(f)(ONE) == 2
    assert traces.count == 1


def test_wrappers_made_in_a_loop_share(jit: Jit, traces: Traces) -> None:
    class M(eqx.Module):
        w: Any
        n: int = eqx.field(static=True, default=1)

        def method(self, x: Any) -> Any:
            traces.tick()
            return self.w * x * self.n

        def __call__(self, x: Any) -> Any:
            traces.tick()
            return self.w + x

    for i in range(5):
        m = M(jnp.array(float(i)))
        assert jit(m.method)(ONE) == i
        assert jit(M(ONE * i).method)(ONE) == i
    assert traces.count == 1
    for i in range(5):
        assert jit(M(jnp.array(float(i))))(ONE) == i + 1
        assert jit(eqx.Partial(M(ONE * i)))(ONE) == i + 1
    assert traces.count == 3
    assert jit(M(ONE, 2).method)(ONE) == 2
    assert traces.count == 4


def test_partials_made_in_a_loop_share(jit: Jit, traces: Traces) -> None:
    f = traces.counting(lambda a, x: a * x)
    for i in range(4):
        assert jit(eqx.Partial(f, ONE * i))(ONE) == i
        assert jit(jtu.Partial(f, ONE * i))(ONE) == i
    assert traces.count == 2
    for i in range(3):
        assert jit(eqx.Partial(f, i))(ONE) == i
        assert jit(eqx.Partial(f, i))(ONE) == i
    assert traces.count == 5


def test_other_options_do_not_share(ours: bool, jit: Jit, traces: Traces) -> None:
    """By decision each set of options has a cache; Equinox shares between "all" and "warn"."""
    f = traces.counting(lambda x: x + 1)
    for options in (
        {},
        {"donate": "all"},
        {"inline": True},
        {"keep_unused": True},
        {"donate": "warn"},
        *([{"maxsize": 7}] if ours else []),
    ):
        for _ in range(2):
            assert jit(f, **options)(jnp.ones(3)).tolist() == [2, 2, 2]
    assert traces.count == (6 if ours else 4)
    assert (jit(f) == jit(f, donate="all")) is False


def test_parameters_that_change_between_two_wrappers(jit: Jit) -> None:
    """Each wrapper binds by the parameters that the function had when it was wrapped."""

    def by(*names: str) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in names])

    def f(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    f.__signature__ = by("a", "b")  # type: ignore[attr-defined]
    first = jit(f)
    assert first(b=1, a=2) == ((2, 1), {})
    f.__signature__ = by("b", "a", "c")  # type: ignore[attr-defined]
    second = jit(f)
    assert second(1, 2, 3) == ((1, 2, 3), {})
    assert second(b=1, a=2, c=3) == ((1, 2, 3), {})
    assert first(b=1, a=2) == ((2, 1), {})
    del f.__signature__  # type: ignore[attr-defined]
    assert jit(f)(1, x=2) == ((1,), {"x": 2})

    def g(a: Any, b: Any = 1) -> Any:
        return a, b

    assert jit(g)(1) == (1, 1)
    g.__defaults__ = ()
    with pytest.raises(TypeError, match="argument"):
        jit(g)(1)
    g.__defaults__ = (3, 4)
    assert jit(g)() == (3, 4)
