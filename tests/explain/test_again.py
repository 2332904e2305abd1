"""The one cause of many compilations: a report tells it above its table, and a warning after eight
compilations in a row."""

import gc
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from explain_support import Aux, Data, Plain, Static, X, row_of
from flax import nnx

import filterjit
from filterjit import RetraceWarning, filter_jit

ARRAY = "make it an array (`jnp.asarray`)"


class Counted(eqx.Module):
    dropout: eqx.nn.Dropout
    n: Any


class Model(nnx.Module):
    def __init__(self, rate: float) -> None:
        self.weight, self.rate = nnx.Param(X), rate


def by_rate() -> Any:
    return filter_jit(lambda m: m.weight * m.rate)


Call = Callable[[Any, float], Any]
# What is called with a number that changes, the number's path, and what is advised: the options
# `traced` that help are last.
NUMBERS: dict[str, tuple[Any, Call, str, str, tuple[str, ...]]] = {
    "an argument": (filter_jit(lambda x, lr: x * lr), lambda f, i: f(X, i), "lr",
        'traced=("lr",)', ("lr",)),
    "a keyword": (filter_jit(lambda x, *, lr: x * lr), lambda f, i: f(X, lr=i), "lr",
        'traced=("lr",)', ("lr",)),
    "of *args": (filter_jit(lambda x, *a: x * a[0]), lambda f, i: f(X, i), "a[0]", ARRAY, ()),
    "of **kw": (filter_jit(lambda x, **kw: x * kw["lr"]), lambda f, i: f(X, lr=i), "kw['lr']",
        ARRAY, ()),
    "in a dict": (filter_jit(lambda s, x: x * s["a"][0]), lambda f, i: f({"a": [i]}, X),
        "s['a'][0]", ARRAY, ()),
    "beside a flag": (filter_jit(lambda m, *, key: m.dropout(X, key=key) * m.n["a.b"]),
        lambda f, i: f(Counted(eqx.nn.Dropout(), {"a.b": i}), key=jax.random.key(0)),
        "m.n['a.b']", ARRAY, ()),
    "in a dataclass": (by_rate(), lambda f, i: f(Data(i, X)), "m.rate", ARRAY, ()),
    "two in one": (filter_jit(lambda a: X * a[0] * a[1]["n"]), lambda f, i: f([i, {"n": 2 * i}]),
        "a[0]` and `a[1]['n']", ARRAY, ()),
    "beside one that is traced": (filter_jit(lambda x, lr, n: x * lr * n, traced=("n",)),
        lambda f, i: f(X, i, i), "lr", 'add "lr" to the option `traced`, or make it an array',
        ("n", "lr")),
    "two": (filter_jit(lambda x, lr, n: x * lr * n), lambda f, i: f(X, i, 2 * i), "lr` and `n",
        'traced=("lr", "n")', ("lr", "n")),
    # No option is named where it does not help.
    "in a static field": (filter_jit(lambda m: m.weight * m.value), lambda f, i: f(Static(X, i)),
        "m.value", "jnp.asarray", ()),
    "in an NNX Module": (by_rate(), lambda f, i: f(Model(i)), "m.rate", "jnp.asarray",
        ()),
    "of jit": (filterjit.jit(lambda n: X * n, static_argnames="n"), lambda f, i: f(i), "n",
        "leave it out of `static_argnames`", ()),
}  # fmt: skip


def first_line(f: Any) -> str:
    return str(f.report()).splitlines()[0]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_and_advice_that_helps(name: str) -> None:
    f, call, path, advice, names = NUMBERS[name]
    with pytest.warns(RetraceWarning) as caught:
        for i in range(12):
            call(f, float(i))
    line, said = first_line(f), str(caught.pop().message)
    cause = f"because of `{path}`: different static value, such as the float"
    assert f"was traced 12 times {cause} 10.0 and the float 11.0." in line
    assert f"was compiled 8 times {cause} 6.0 and the float 7.0." in said
    assert advice in line and advice in said
    assert ("traced" in advice) == bool(names) and ("traced=" in line) == ("traced=" in advice)
    if names:  # the advice is followed
        followed = filter_jit(f.__wrapped__, traced=names)
        for i in range(12):
            call(followed, float(i))
        assert len(followed.variants) == 1 and row_of(followed)["cause"] is None
        assert first_line(followed).startswith("filterjit: where the time")


@pytest.mark.recompiles
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
        for _ in range(12):
            g(X, n)
    h = filter_jit(lambda x, n: x)
    h.warm_up_all([((X, n), {}) for n in range(30)])
    h(X, 1)
    for one in (f, g, h):
        assert row_of(one)["cause"] is None
        assert first_line(one).startswith("filterjit: where the time")


def test_the_costliest_stands_first_and_others_below() -> None:
    rows = []
    for cause, seconds in (("the cheap one", 1e3), ("the costly one", 2e3)):
        f = filter_jit(lambda x: x)
        f(X)
        rows.append(row_of(f) | {"cause": cause, "tracing": seconds})
    report = filterjit.types.Report(rows, False)
    first, *_ = str(report).splitlines()
    assert first == "the costly one" and "the cheap one" in str(report).splitlines()[2:]


class Cell(eqx.Module):
    weight: Any


class Wide(Cell):
    pass


class Decorated(Plain):
    decorated = filter_jit(Plain.method)


_defined: list[Any] = []  # so that none is collected


class Cycle:
    def __init__(self, i: int) -> None:
        self.f = filter_jit(lambda x: self and x + i)


def _table(f: Any, i: int) -> None:
    _defined.append(filter_jit(lambda x: x + i))
    _defined[-1](X)


def _unrolled(f: Any, i: int) -> None:
    def outer(x: Any) -> Any:
        return [f(n, x[:n]) for n in range(2, 30)] and x

    if i == 0:
        jax.jit(outer)(jnp.ones(40)), filter_jit(outer)(jnp.ones(41)), jax.make_jaxpr(outer)(X)


def _of_shapes(f: Any, *others: Any) -> None:
    for n in (3, 2):
        for _ in range(5):
            f(jnp.ones(n), *others)


def _over_optimizer(o: Any) -> Any:
    return filter_jit(lambda x: o.update(x, o.init(x))[0])


def _in_module() -> Any:
    model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    return nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)


FUNCTIONS = [jnp.sin, jnp.cos, jax.nn.relu, len, min, max, abs, sum]
TREES = [Cell(X), Wide(X), (X,), {1: X}, [X], None, 1, X, X > 1]
# What is called again and again, how often before anything is told, and what is told after eight
# compilations; nothing if it is empty.
TOLD: dict[str, tuple[Callable[[Any, int], Any], int, str]] = {
    "used once more": (lambda f, i: [f((i,), X) for _ in range(2)], 7,
        "`a[0]`: different static value"),
    "a shape": (lambda f, i: f(None, jnp.ones(i - 1) if i > 1 else i), 7,
        "`b`: different shape, such as float32[1|2|3|4|5|6|7] and float32[8]. Pad it to one of"),
    "a length": (lambda f, i: f([X] * i, X), 7,
        "`a`: different structure, such as a list of 6 items"),
    "a lambda": (lambda f, i: f(lambda x: x, X), 7,
        "`a`: recreated function, such as the function"),
    "a lambda in a static field": (lambda f, i: f([Static(X, lambda x: x)], X), 7,
        "`a[0].value`: recreated function, such as the function"),
    "a lambda in aux data": (lambda f, i: f([Aux(("tanh", {"act": lambda x: x}))], X), 7,
        "`a[0][1]['act']`: recreated function, such as aux data the function"),
    "an object": (lambda f, i: f(object(), X), 7,
        "`a`: different object, which is equal only to itself"),
    "a plain self": (lambda f, i: Decorated().decorated(X), 7,
        "`self`: different object, which is equal"),
    "a class": (lambda f, i: f(type("A", (), {}), X), 7,
        "`a`: different class, such as the class `A` and"),
    "a bound method": (lambda f, i: filter_jit(Plain().method)(X), 7,
        "the function: bound method of a different instance"),
    "what was dropped": (lambda f, i: filter_jit(f.__wrapped__, maxsize=2)(-i % 3, X), 7,
        "8 times: its program was dropped, since the cache was full. Raise `maxsize`, which is 2."),
    "in a cycle": (lambda f, i: Cycle(i).f(X), 7,
        "8 times: it was defined or jitted again each time."),
    "defined again": (lambda f, i: filter_jit(lambda x: x + i)(X), 7,
        "8 times: it was defined or jitted again each time. Jit it once"),
    # Two shapes in each call.
    "an optimizer": (lambda f, i: _of_shapes(f, optax.adam(1e-3)), 3, "create `b` once"),
    "an optimizer in a module of nnx.jit": (lambda f, i: _of_shapes(f, _in_module()), 3,
        "create `b.tx` once"),
    "a function over an optimizer": (lambda f, i: _of_shapes(_over_optimizer(optax.adam(1e-3))), 3,
        "defined or jitted again each time"),
    "optimizers of other rates": (lambda f, i: _of_shapes(f, optax.adam(10.0**-i)), 0, ""),
    # Other misses in a row.
    "bool and others": (lambda f, i: f(i % 2 == 0, [X] * (i // 2 % 4)), 0, ""),
    "used again": (lambda f, i: [f(i, X) for _ in range(3)], 0, ""),
    "a table": (_table, 0, ""),
    "other functions": (lambda f, i: f(FUNCTIONS[i % 8], X), 0, ""),
    "other classes": (lambda f, i: f(TREES[i % 9], X), 0, ""),
    "other causes": (lambda f, i: [f(i, X), f(0, [X] * i), f((), jnp.ones(i))], 0, ""),
    "ahead of time": (lambda f, i: (f.warm_up(i, X), f.lower(None, jnp.ones(i)).compile()), 0, ""),
    "unrolled in another trace": (_unrolled, 0, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_many_compilations_of_one_cause_are_told_once(name: str) -> None:
    call, quiet, expected = TOLD[name]
    f = (filterjit.nnx.jit if "nnx.jit" in name else filter_jit)(lambda a, b: b)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(22):
            call(f, i)
            assert caught == [] or (i >= quiet and expected)
    for warning in caught:
        assert warning.category is filterjit.RetraceWarning and warning.filename == __file__
        assert "was compiled 8 times" in str(warning.message)
        assert expected in str(warning.message)
    assert len(caught) == bool(expected)
    if expected.startswith("`") and "self" not in expected:  # else `f` itself is not traced
        assert f"was traced 22 times because of {expected.partition(',')[0]}" in first_line(f)


@pytest.mark.parametrize(("repeated", "is_told"), [(0, True), (8, True), (40, False)])
def test_strings_are_told_when_many_have_come_and_few_calls_repeat_one(
    repeated: int, is_told: bool
) -> None:
    f = filter_jit(lambda method, x: x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(repeated + 1):
            f("linear", X)
        for i in range(30):
            f(f"method {i}", X)
        assert caught == []
        for i in range(30, 40):
            f(f"method {i}", X)
    assert len(caught) == is_told
    assert all("was compiled 32 times because of `method`" in str(w.message) for w in caught)


def test_two_strings_that_alternate_are_not_told() -> None:
    f = filter_jit(lambda method, n, x: x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(20):
            for method in ("linear", "cubic"):
                f(method, bool, jnp.ones(i)) if i % 2 else f(method, (None,) * i, X)


FIT = """
def fit(i):
    k = {"equal": 1.0, "different": float(i)}[closure]
    @jit
    def step(x):
        name = "UNIQUE"
        return x * k
    for _ in range(calls):
        step(X)
    del step
    gc.collect()
for i in range(12):
    fit(i)
"""


@pytest.mark.parametrize("jit", [filterjit.jit, filter_jit])
@pytest.mark.parametrize("calls", [2, 3, 10, 16, 17])
@pytest.mark.parametrize("closure", ["equal", "different"])
def test_functions_that_are_jitted_again_for_short_runs(jit: Any, calls: int, closure: str) -> None:
    """Also if each was collected before the next one. A sweep of long runs isn't a mistake."""
    names = {"jit": jit, "calls": calls, "closure": closure, "X": X, "gc": gc}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(FIT.replace("UNIQUE", f"{jit.__name__} {calls} {closure}"), names)
    expected = (
        [] if calls > 16 and closure == "different" else ["defined or jitted again each time"]
    )
    told = [str(w.message) for w in caught if w.category is RetraceWarning]
    assert len(told) == len(expected)
    assert all(expected[0] in text for text in told)


STATICS: dict[str, tuple[Callable[[int], Any], bool]] = {
    "equal hashes": (lambda i: -1 - i, True),
    "texts in a dict": (lambda i: {"a": f"{i}", "b": [X, None, 1.5]}, True),
    "functions": (lambda i: [jnp.sin, jnp.cos][i], True),
    "classes": (lambda i: [Cell(X), Wide(X)][i], True),
    "new functions": (lambda i: lambda x: x, False),
    "new classes": (lambda i: type(f"A{i}", (), {}), False),
}


@pytest.mark.parametrize("name", STATICS)
def test_what_was_dropped_since_the_cache_was_full(name: str) -> None:
    make, is_told = STATICS[name]

    def kind() -> str:
        return f.explain(make(0), X).causes[0].kind

    f = filter_jit(lambda a, b: b, maxsize=1, on_retrace="ignore")
    f(make(1), X)
    assert kind() != "evicted"
    for _ in range(5):
        f(make(0), X), f(make(1), X)
        gc.collect()
        assert (kind() == "evicted") == is_told
    assert f.explain(make(0), jnp.ones(5)).causes[0].kind != "evicted"
    assert f.explain(0, X).causes[0].kind != "evicted" or not is_told
    f.clear_cache()
    f(make(1), X)
    assert kind() != "evicted"


def test_what_is_told_can_be_silenced_and_is_of_one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored, f = filter_jit(lambda n: n, on_retrace="ignore"), filter_jit(lambda n: n)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(12):
            ignored(i)
        for test in ("one", "two", "three"):
            monkeypatch.setenv("PYTEST_CURRENT_TEST", test)
            for i in range(7):
                f((test, i))
    with pytest.warns(RetraceWarning):
        f((test, 7))
