"""What a report says above its table: the one cause of most traces of a function."""

import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from explain_support import X, row_of
from flax import nnx

import filterjit
from filterjit import filter_jit


class Step(eqx.Module):
    weight: Any
    rate: Any


class Counted(eqx.Module):
    dropout: eqx.nn.Dropout
    n: Any


class Declared(eqx.Module):
    weight: Any
    rate: float = eqx.field(static=True)


class Model(nnx.Module):
    def __init__(self, rate: float) -> None:
        self.weight, self.rate = nnx.Param(X), rate


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Data:
    weight: Any
    rate: Any


Call = Callable[[Any, float], Any]
NUMBERS: dict[str, tuple[Callable[..., Any], Call, dict[str, Any], str, str]] = {
    "an argument": (lambda x, lr: x * lr, lambda f, i: f(X, i), {}, "lr", 'traced=("lr",)'),
    "a keyword": (lambda x, *, lr: x * lr, lambda f, i: f(X, lr=i), {}, "lr", 'traced=("lr",)'),
    "of *args": (lambda x, *a: x * a[0], lambda f, i: f(X, i), {}, "a[0]", 'traced={"a": "0"}'),
    "of **kw": (lambda x, **kw: x * kw["lr"], lambda f, i: f(X, lr=i), {}, "kw['lr']",
        'traced={"kw": "lr"}'),
    "in a dict": (lambda s, x: x * s["a"][0], lambda f, i: f({"a": [i]}, X), {}, "s['a'][0]",
        'traced={"s": "a.0"}'),
    "in a Module": (lambda m: m.weight * m.rate, lambda f, i: f(Step(X, i)), {}, "m.rate",
        'traced={"m": "rate"}'),
    "beside a flag": (lambda m, *, key: m.dropout(X, key=key) * m.n["a.b"],
        lambda f, i: f(Counted(eqx.nn.Dropout(), {"a.b": i}), key=jax.random.key(0)), {},
        "m.n['a.b']", """traced={"m": "n['a.b']"}"""),
    "in a dataclass": (lambda m: m.weight * m.rate, lambda f, i: f(Data(X, i)), {}, "m.rate",
        'traced={"m": "rate"}'),
    "beside one that is traced": (lambda x, lr, n: x * lr * n, lambda f, i: f(X, i, i),
        {"traced": ("n",)}, "lr", ""),
    "two": (lambda x, lr, n: x * lr * n, lambda f, i: f(X, i, 2 * i), {}, "lr` and `n",
        'traced=("lr", "n")'),
}  # fmt: skip


def first_line(f: Any) -> str:
    return str(f.report()).splitlines()[0]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_and_advice_that_helps(name: str) -> None:
    fun, call, options, path, advice = NUMBERS[name]
    f = filter_jit(fun, **options)
    for i in range(20):
        call(f, float(i))
    line = first_line(f)
    assert f"was traced 20 times because of `{path}`: different static value, such as the " in line
    assert "such as the float 18.0 and the float 19.0." in line
    if options:
        assert 'add "lr" to the option `traced`, or make it an array' in line
        names = (*options["traced"], "lr")
    else:
        assert advice in line
        names = eval(line.split("filter_jit(traced=")[1].split(")`")[0])
    # The advice is followed.
    followed = filter_jit(fun, traced=names)
    for i in range(20):
        call(followed, float(i))
    assert len(followed.variants) == 1 and row_of(followed)["cause"] is None
    assert first_line(followed).startswith("filterjit: where the time")


@pytest.mark.parametrize(
    "call",
    [lambda f, i: f(Declared(X, i)), lambda f, i: f(Model(i))],
    ids=["static field", "attribute of an NNX Module"],
)
def test_no_option_is_named_where_it_does_not_help(call: Call) -> None:
    f = filter_jit(lambda m: m.weight * m.rate)
    for i in range(20):
        call(f, float(i))
    line = first_line(f)
    assert "because of `m.rate`" in line and "jnp.asarray" in line and "traced=" not in line


def test_a_number_of_jit_is_static_by_its_own_option() -> None:
    f = filterjit.jit(lambda x, n: x * n, static_argnames=("n",))
    for i in range(20):
        f(X, i)
    line = first_line(f)
    assert "because of `n`" in line and "traced=" not in line


OTHERS: dict[str, tuple[Callable[..., Any], Call, str]] = {
    "shapes": (
        lambda x: x,
        lambda f, i: f(jnp.ones(int(i))),
        "because of `x`: different shape, such as float32[",
    ),
    "lambdas": (
        lambda x, g: g(x),
        lambda f, i: f(X, lambda x: x),
        "because of `g`: recreated function",
    ),
    "lengths": (
        lambda x: x,
        lambda f, i: f([X] * int(i)),
        "because of `x`: different structure, such as a list of ",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_causes(name: str) -> None:
    fun, call, expected = OTHERS[name]
    f = filter_jit(fun)
    for i in range(20):
        call(f, i)
    assert f"was traced 20 times {expected}" in first_line(f)


def test_a_function_that_is_jitted_again_and_again() -> None:
    def make_of_again(i: int) -> Any:
        return filter_jit(lambda x: x + i)

    for i in range(20):
        make_of_again(i)(X)
    gc.collect()
    causes = [f["cause"] for f in filterjit.report().as_dict()["functions"] if f["cause"]]
    (cause,) = [text for text in causes if "make_of_again" in text]
    assert "was traced 20 times: it was defined or jitted 20 times. Jit it once, outside" in cause


def test_nothing_is_said_of_traces_that_differ_or_have_paid() -> None:
    f = filter_jit(lambda x, a, b, c: x)
    for i in range(8):
        f(X, i, 0, 0), f(X, 0, i, 0), f(X, 0, 0, i)
    g = filter_jit(lambda x, n: x)
    for n in range(12):
        for _ in range(20):
            g(X, n)
    h = filter_jit(lambda x, n: x)
    h.warm_up_all([((X, n), {}) for n in range(30)])
    h(X, 1)
    for one in (f, g, h):
        assert row_of(one)["cause"] is None
        assert first_line(one).startswith("filterjit: where the time")


def test_the_costliest_stands_first_and_others_below() -> None:
    rows = []
    for _ in range(2):
        f = filter_jit(lambda x, lr: x * lr)
        for i in range(20):
            f(X, i)
        rows.append(row_of(f))
    rows[0]["tracing"], rows[1]["tracing"] = 1.0, 2.0
    rows[0]["cause"], rows[1]["cause"] = "the cheap one", "the costly one"
    report = filterjit.types.Report(rows, False)
    first, *_ = str(report).splitlines()
    assert first == "the costly one" and "the cheap one" in str(report).splitlines()[2:]
