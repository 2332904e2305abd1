"""`filter_jit(traced=...)`: the parameters in whose arguments Python's numbers are traced."""

import functools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filterjit import MismatchError, filter_jit, load
from support.comparison import Traces, comparable

x = jnp.arange(3.0)


def scaled(y: Any, rate: Any, n: Any = 2, *rest: Any, k: Any = 1, **more: Any) -> Any:
    return jax.tree.map(lambda a: y * a, (rate, n, rest, k, more))


NUMBERS = [0.1, 0.2, 3, True, 2j, np.float32(2), jnp.float32(3), jnp.ones(3), 0.4]


def test_numbers_are_traced_as_by_jax() -> None:
    traces = Traces()

    def f(y: Any, rate: Any, n: Any = 2) -> Any:
        traces.tick()
        assert isinstance(rate, jax.core.Tracer) and type(n) is int
        return y * rate * n

    ours = filter_jit(f, traced=("rate",))
    found = [comparable(ours(x, rate, 2)) for rate in NUMBERS for _ in range(20)]
    once = traces.count
    theirs = jax.jit(f, static_argnames="n")
    expected = [comparable(theirs(x, rate, 2)) for rate in NUMBERS for _ in range(20)]
    assert found == expected
    assert traces.count == 2 * once
    assert ours.cache_info().variants == 1
    ours(x, 0.5, 3)
    assert ours.cache_info().variants == 2  # `n` is static


def test_other_arguments_are_as_before() -> None:
    f = filter_jit(lambda a, b: (a, b, type(a).__name__), traced=("b",))
    assert f(1, 1)[0] == 1 and f(1, 1)[2] == "int"
    assert isinstance(f(1, 2)[1], jax.Array)
    for first in (1, 1.0, True, x, np.ones(3)):
        assert comparable(f(first, 2)[0]) == comparable(filter_jit(lambda a: a)(first))
    # A number in the place of an array is another variant, and is static.
    count = f.cache_info().variants
    assert f(x, 3)[0] is not None and f(2, 3)[0] == 2 and f(x, 3.0)[2].endswith("Tracer")
    assert f.cache_info().variants == count + 1


def test_results_stay_static() -> None:
    f = filter_jit(lambda rate: {"rate": rate, "n": 3, "name": "f"}, traced=("rate",))
    found = f(0.5)
    assert found["n"] == 3 and type(found["n"]) is int and found["name"] == "f"
    assert isinstance(found["rate"], jax.Array) and found["rate"].weak_type


def test_trees_and_all_kinds_of_parameters() -> None:
    class Config(eqx.Module):
        rate: Any
        size: int = eqx.field(static=True)

    traces = Traces()
    f = filter_jit(traces.counting(scaled), traced=("rate", "rest", "k", "other"))
    for i in range(5):
        rate = {"a": [float(i), Config(i, 3)]}
        found = f(x, rate, 2, i, (1.0 * i, "text")[:1], k=i, other=float(i), kept=4)
        assert comparable(found[0]) == comparable({"a": [x * i, Config(x * i, 3)]})
    assert traces.count == 1
    f(x, 1.0, 2, kept=4)
    f(x, 1.0, 2, kept=5)  # not traced
    assert traces.count == 3
    f(x, rate={"a": [1.0, Config(1, 4)]}, n=2)
    assert traces.count == 4
    g = filter_jit(scaled, traced=("more",))
    for i in range(3):
        g(x, 1.0, other=i)
    assert g.cache_info().variants == 1


def test_methods_and_other_ways_to_call() -> None:
    class Model(eqx.Module):
        w: Any

        @functools.partial(filter_jit, traced=("rate",))
        def step(self, rate: Any) -> Any:
            return Model(self.w * rate)

    model = Model(x)
    for i in range(3):
        assert (model.step(float(i)).w == x * i).all()
    assert Model.__dict__["step"].cache_info().variants == 1
    f = filter_jit(lambda y, rate: y * rate, traced=["rate"])
    assert (f.partial(x)(2.0) == 2 * x).all() and (f.partial(rate=3.0)(x) == 3 * x).all()
    assert f.eval_shape(x, 2.0).shape == (3,)
    assert f.lower(x, 2.0).compile()(x, 2.0).tolist() == [0, 2, 4]
    assert f.cache_info().variants == 1
    assert jax.grad(lambda rate: f(x, rate).sum())(2.0) == 3
    frozen = f.freeze(x)
    assert (frozen(4.0) == 4 * x).all()
    assert "hit" in str(f.explain(x, 5.0)) or f.explain(x, 5.0).hit


def test_wrong_values() -> None:
    with pytest.raises(ValueError, match=r"`traced` names 'rat'.*Did you mean 'rate'"):
        filter_jit(lambda rate: rate, traced=("rat",))(1.0)
    for wrong in ("rate", 3, (0,), {"rate": True}):
        with pytest.raises(TypeError, match="traced"):
            filter_jit(lambda rate: rate, traced=wrong)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="functions"):
        filter_jit(lambda rate: rate, traced=("rate",), functions="structure")
    with pytest.raises(OverflowError):
        filter_jit(lambda rate: rate, traced=("rate",))(2**70)


@pytest.mark.parametrize("portable", [False, True])
def test_saved_programs(portable: bool, tmp_path: Path) -> None:
    if portable:
        pytest.importorskip("flatbuffers")
    f = filter_jit(lambda y, rate, n: y * rate * n, traced=("rate",))
    f.lower(x, 2.0, 3).compile().save(tmp_path / "program", portable=portable)
    loaded = load(tmp_path / "program")
    assert (loaded(x, 4.0, 3) == 12 * x).all()
    with pytest.raises(MismatchError):
        loaded(x, 4.0, 4)
