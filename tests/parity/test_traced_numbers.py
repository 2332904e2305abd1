"""`filter_jit(traced=...)`: which of Python's numbers are traced, by parameter and by path."""

import pickle
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filterjit import Filter, MismatchError, filter_jit, load
from support.comparison import Traces, comparable
from support.versions import needs_saved_executables

x = jnp.arange(3.0)


def scaled(y: Any, rate: Any, n: Any = 2, *rest: Any, k: Any = 1, **more: Any) -> Any:
    return jax.tree.map(lambda a: y * a, (rate, n, rest, k, more))


NUMBERS = [0.1, 0.2, 3, True, 2j, np.float32(2), jnp.float32(3), jnp.ones(3), 0.4]


def test_numbers_are_traced_as_by_jax(traces: Traces) -> None:
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


def test_trees_and_all_kinds_of_parameters(traces: Traces) -> None:
    class Config(eqx.Module):
        rate: Any
        size: int = eqx.field(static=True)

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


def test_wrong_values() -> None:
    for wrong in ("rate", 3, (0,), {0: True}):
        with pytest.raises(TypeError, match="traced"):
            filter_jit(lambda rate: rate, traced=wrong)  # type: ignore[call-overload]
    with pytest.raises(OverflowError):
        filter_jit(lambda rate: rate, traced=("rate",))(2**70)


def trained(config: Any, y: Any) -> Any:
    """A body that needs its size and its name as they are, and its rate as jax.jit has it."""
    assert isinstance(config["opt"]["rate"], jax.core.Tracer)
    assert type(config["size"]) is int and config["name"] == "adam"
    return y[: config["size"]] * config["opt"]["rate"]


def config_of(rate: Any, size: int = 2) -> Any:
    return {"opt": {"rate": rate, "kind": None}, "size": size, "name": "adam"}


BY_PATH = ["**.rate", "opt.rate", "['opt'].*", Filter("**") & "*.rate", ~Filter("size") & "opt.**"]


@pytest.mark.parametrize("chosen", BY_PATH, ids=repr)
def test_numbers_chosen_by_path(chosen: Any, traces: Traces) -> None:
    f = filter_jit(traces.counting(trained), traced={"config": chosen})
    plain = jax.jit(lambda rate, size, y: trained(config_of(rate, size), y), static_argnames="size")
    for rate in (*NUMBERS[:-2], 0.7):
        for _ in range(20):
            assert comparable(f(config_of(rate), x)) == comparable(plain(rate, 2, x))
    assert f.cache_info().variants == 1
    before = traces.count
    f(config_of(0.1, 3), x)
    assert traces.count == before + 1 and f.cache_info().variants == 2
    f(config_of(0.2, 3), y=x)
    assert traces.count == before + 1


@pytest.mark.parametrize(
    "chosen",
    [callable, Filter("opt.**") & callable, {"opt": True}, [True, 3], jnp.floating, 3, None],
)
def test_filters_that_look_at_leaves(chosen: Any) -> None:
    with pytest.raises(ValueError, match=r"`traced` takes path patterns, .* for 'config'"):
        filter_jit(trained, traced={"config": chosen})


def test_a_pattern_that_fits_no_number() -> None:
    f = filter_jit(lambda config: config["size"], traced={"config": ~Filter("size")})
    for _ in range(2):
        with pytest.raises(ValueError, match="matches `name`"):
            f(config_of(0.1))
    assert f.cache_info().variants == 0


def test_parameters_that_are_chosen_from() -> None:
    def total(a: Any, *rest: Any, k: Any = None, **more: Any) -> Any:
        return a, rest, k, more

    traced = {"a": True, "rest": "[1].*", "k": "n", "other": "n", "more": "kept.n"}
    f = filter_jit(total, traced=traced)
    for i in range(3):
        f(i, "text", {"n": i}, k={"n": i, "m": 1}, other={"n": i, "m": 1}, kept={"n": i})
    assert f.cache_info().variants == 1
    f(1, "text", {"n": 1}, k={"n": 1, "m": 2}, other={"n": 1, "m": 1}, kept={"n": 1})
    f(1, "text", {"n": 1}, k={"n": 1, "m": 1}, other={"n": 1, "m": 2}, kept={"n": 1})
    f(1, "test", {"n": 1}, k={"n": 1, "m": 1}, other={"n": 1, "m": 1}, kept={"n": 1})
    assert f.cache_info().variants == 4
    with pytest.raises(ValueError, match=r"does not fit 'k': .* matches no leaf"):
        f(1, "test", {"n": 1}, k={"m": 1})


@pytest.mark.parametrize("chosen", [True, "**.rate"])
def test_beside_functions_by_structure(chosen: Any, traces: Traces) -> None:
    def body(c: Any, y: Any) -> Any:
        traces.tick()
        return c["f"](y) * c["rate"]

    f = filter_jit(body, traced={"c": chosen}, functions="structure")
    for i in range(4):
        c = {"f": lambda y: y + 1, "rate": float(i)}
        assert (f(c, x) == (x + 1) * i).all()
    assert traces.count == 1 and f.cache_info().variants == 1
    assert (f({"f": lambda y: y + 2, "rate": 2.0}, x) == (x + 2) * 2).all()
    assert traces.count == 2


@pytest.mark.parametrize("chosen", ["**.rate", True])
def test_other_ways_to_call(chosen: Any) -> None:
    def body(config: Any, y: Any) -> Any:
        return y * config["rate"]

    f = filter_jit(body, traced={"config": chosen})
    given = lambda rate, **more: {"rate": rate, **more}
    compiled = f.lower(given(0.1), x).compile()
    assert comparable(compiled(given(0.5), x)) == comparable(x * 0.5)
    with pytest.raises(MismatchError):
        compiled(given(0.5, size=3), x)
    with pytest.raises(MismatchError):
        compiled({}, x)
    f(given(0.1), x)
    assert f.cache_info()[:2] == (1, 0)  # compiled before
    assert f.explain(given(0.9), x).hit and not f.explain(given(0.9, size=3), x).hit
    assert f.eval_shape(given(2.0), x).shape == (3,)
    assert jax.grad(lambda rate: f(given(rate), x).sum())(2.0) == 3
    assert f.cache_info().variants == 1


def test_functions_of_equal_choices_share_their_programs() -> None:
    def make(chosen: Any) -> Any:
        return filter_jit(trained, traced={"config": chosen})

    filter = Filter("opt.rate")
    assert make("**.rate") == make("**.rate") != make("opt.rate")
    assert make(filter) == make(filter) != make("opt.rate")
    assert make(True) != make("**.rate")
    again = pickle.loads(pickle.dumps(make("**.ra?e")._hooks.settings)).traced
    assert again.mask("config", config_of(0.1)) == bytes([0, 1, 0])


@pytest.mark.parametrize("portable", [pytest.param(False, marks=needs_saved_executables), True])
def test_saved_programs(portable: bool, tmp_path: Path) -> None:
    if portable:
        pytest.importorskip("flatbuffers")
    f = filter_jit(lambda config, y: trained(config, y) + 1, traced={"config": "**.rate"})
    if portable:
        f.lower(config_of(0.1), x).save(tmp_path / "program")
    else:
        f.compile(config_of(0.1), x)
        f.save(tmp_path / "program")
    loaded = load(tmp_path / "program")
    for rate in (0.5, 0.7):
        assert comparable(loaded(config_of(rate), x)) == comparable(x[:2] * rate + 1)
    with pytest.raises(MismatchError):
        loaded(config_of(0.1, 3), x)
