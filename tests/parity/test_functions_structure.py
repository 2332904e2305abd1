"""``functions="structure"``: recreated functions share programs, and functions that could behave
differently do not, as far as their code, defaults, closures and attributes tell.

The zoo (tests/zoo) has the values that functions hold, in the place "closure".
"""

import enum
import functools
import logging
import operator
import pathlib
import threading
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import filterjit
from filterjit._trees import _digests
from support.comparison import Traces, comparable
from support.lifetimes import freed
from support.statics import Constant as Config
from zoo.objects import Plain
from zoo.zoo_support import attributed

X = jnp.arange(3.0)


class Layer(eqx.Module):
    weight: Any
    act: Any
    tag: Any = eqx.field(static=True, default=None)


class Counted(Traces):
    """A jitted `apply(act)` that counts its traces."""

    def __init__(self) -> None:
        super().__init__()
        fun = self.counting(lambda act, x: act(x))
        self.call = filterjit.filter_jit(fun, functions="structure")

    def __call__(self, act: Any) -> Any:  # type: ignore[override]
        return self.call(act, X)


@pytest.fixture
def apply() -> Counted:
    return Counted()


def scaled(s: Any) -> Callable[[Any], Any]:
    return lambda x: x * s


def holding(cell: Any) -> Callable[[Any], Any]:
    return lambda x: (x, repr(cell))[0]


# ---- functions that share a program ----


def _mutual(s: float = 2.0) -> Callable[[Any], Any]:
    def even(x: Any, n: int = 4) -> Any:
        return x * s if n == 0 else odd(x, n - 1)

    def odd(x: Any, n: int) -> Any:
        return x if n == 0 else even(x, n - 1)

    return even


def _documented() -> Callable[[Any], Any]:
    def act(x: jax.Array, *, s: float = 2.0) -> jax.Array:
        """Scales."""
        return x * s

    act.note = "a note", (1, 2)  # type: ignore[attr-defined]
    return act


class Acting(eqx.Module):
    f: Any

    @filterjit.filter_jit
    def act(self, x: Any) -> Any:
        return self.f(x)


LABELS = {"w": "a", "b": "b"}
OF_MODULES = (
    logging.getLogger(__name__), threading.Lock(), pathlib.Path("data"), typing.TypeVar("T"),
    optax.adamw(optax.cosine_decay_schedule(1e-3, 100)), nn.Dense, nnx.Linear, jax.random.key(0),
    eqx.filter_value_and_grad(scaled(2.0)), jax.checkpoint(scaled(1.0)), jnp.float32,
)  # fmt: skip
# What does not prevent sharing where functions hold it: what is known.
HELD: dict[str, Callable[[], Any]] = {
    "what modules commonly have": lambda: OF_MODULES,
    "functions of libraries": lambda: (
        *(jnp.sum, np.sum, jax.jit, len, jax.nn.relu, np.add, jax.vmap(scaled(2.0))),
        *(operator.itemgetter(1), str.upper, functools.partial(jax.nn.gelu, approximate=False)),
    ),
    "a device, a module and a class": lambda: (jax.devices()[0], jnp, Layer),
    "Modules": lambda: (eqx.nn.Lambda(jax.nn.relu), Layer(X, scaled(1.0)), eqx.nn.Identity()),
    # Optimizers.
    "a cosine schedule": lambda: optax.adam(optax.cosine_decay_schedule(1e-3, 100)),
    "a mask": lambda: optax.adamw(1e-3, mask={"w": True, "b": False}),
    "several": lambda: optax.multi_transform({"a": optax.adam(1e-3), "b": optax.sgd(0.1)}, LABELS),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=1e-3),
    "several steps": lambda: optax.MultiSteps(optax.adam(1e-3), 4).gradient_transformation(),
    "an array": lambda: optax.adam(jnp.asarray(1e-3)),
}
PLAIN = Plain(3.0)
SHARED: dict[str, Callable[[], Any]] = {
    "lambda": lambda: lambda x: x + 1,
    "closure": lambda: scaled(2.0),
    "closure over a closure": lambda: functools.reduce(
        lambda f, _: lambda x: f(x) + 1, range(30), scaled(2.0)
    ),
    "partial": lambda: functools.partial(lambda s, x, t=0: x * s + t, 2.0, t=1),
    "partial of a partial": lambda: functools.partial(
        functools.partial(lambda s, t, x: (x * s, t)[0], 2.0), (1,)
    ),
    "partial with attributes": lambda: attributed(functools.partial(lambda x: x), note=1),
    "bound method": lambda: PLAIN.apply,
    "jitted method": lambda: Acting(lambda x: x + 1).act,
    "bound lambda": lambda: types.MethodType(lambda self, x: x * self.value, Config(3.0)),
    "defaults": lambda: lambda x, s=2.0, *, t=(1, 2.0): x * s + t[1],
    "mutual recursion": _mutual,
    "annotated, documented, with attributes": _documented,
    "of a library": lambda: jax.vmap(scaled(2.0)),
    **{f"holding {name}": lambda make=make: holding(make()) for name, make in HELD.items()},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", SHARED)
def test_recreated_functions_share(apply: Counted, name: str) -> None:
    make = SHARED[name]
    expected = comparable(make()(X))
    assert make() is not make()
    for _ in range(4):
        assert comparable(apply(make())) == expected
    act = make()
    for _ in range(3):
        apply(act)
    assert apply.count == 1
    by_default, acts = filterjit.filter_jit(lambda act, x: act(x)), [make(), make()]
    for act in acts:
        by_default(act, X)
    assert len(by_default.variants) == (1 if name == "bound method" else 2)


def test_flags_keep_their_inverses(apply: Counted) -> None:
    flag = enum.Flag("Choice", ["A", "B"]).A
    for _ in range(2):
        apply(lambda x, flag=flag: x)
        assert ~flag
    assert apply.count == 1
    digest = _digests.digest(type(flag))
    assert type(flag)(3) and _digests.digest(type(flag)) == digest


WRAPS: list[Callable[[Any], Any]] = [
    lambda f: f, lambda f: (f, 1), lambda f: [f], lambda f: {"k": f}, lambda f: {f: X},
    lambda f: Layer(X, f), lambda f: Layer(X, None, f), lambda f: Layer(X, None, (1, (f, "a"))),
    lambda f: Layer(X, None, [f]), lambda f: Layer(X, None, {"k": f}), lambda f: Layer(X, None, {f}),
    lambda f: Layer(X, None, Config(f)), lambda f: Config((f, 1)), lambda f: frozenset([f]),
    lambda f: jax.tree_util.Partial(f, X), lambda f: eqx.Partial(f, X),
]  # fmt: skip


@pytest.mark.parametrize("wrap", WRAPS)
def test_places_of_functions(wrap: Callable[[Any], Any], traces: Traces) -> None:
    @filterjit.filter_jit(functions="structure")
    def f(tree: Any, x: Any) -> Any:
        traces.tick()
        return x

    for _ in range(2):
        for s in (1, 1.0, True, 2, 0.0, -0.0):
            for _ in range(2):
                f(wrap(scaled(s)), X)
    assert traces.count == 6


# ---- what functions hold ----


def _in_cell(value: Any) -> Any:
    return lambda x: (x, value)


def _in_inner(value: Any) -> Any:
    inner = _in_cell(value)
    return lambda x: inner(x)


def _in_wrapper(value: Any) -> Any:
    inner = _in_cell(value)
    return functools.wraps(inner)(lambda x: inner(x))


def _in_attribute(value: Any) -> Any:
    act: Any = lambda x: (x, act.value)
    return attributed(act, value=value)


# Each returns a new function that returns the value.
PLACES: dict[str, Callable[[Any], Any]] = {
    "cell": _in_cell,
    "default": lambda value: lambda x, v=value: (x, v),
    "keyword default": lambda value: lambda x, *, v=value: (x, v),
    "attribute": _in_attribute,
    "partial": lambda value: functools.partial(lambda x, v: (x, v), v=value),
    "inner function": _in_inner,
    "wrapped function": _in_wrapper,
    "self": lambda value: types.MethodType(lambda self, x: (x, self.value), Config(value)),
}


@pytest.mark.recompiles
@pytest.mark.parametrize("place", PLACES)
def test_places_of_values(apply: Counted, place: str) -> None:
    """Values that differ, and one that changes in place, in the same function and in new ones."""
    put, held = PLACES[place], [1]
    for _ in range(2):
        for value in (1, True, 1.0, 0.0, -0.0, (1, "a"), Config(1), Config(1.0), None):
            assert comparable(apply(put(value))) == comparable((X, value))
    assert apply.count == 9
    act = put(held)
    for count, value in enumerate((1, True, -1, -2, (1,)), 10):
        held[0] = value  # type: ignore[call-overload]
        for f in (act, put(held), act):
            assert comparable(apply(f)) == comparable((X, [value]))
        assert apply.count == count
    apply(put([(1,)]))
    assert apply.count == 15  # an equal list may change


# ---- functions that do not share ----


def test_constants_of_code_are_exact(apply: Counted) -> None:
    texts = ["x+0.0", "x+-0.0", "x+0", "x+1", "x+True", "x+1.0", "(x, (0.0,))[0]",
             "(x, (-0.0,))[0]", "(x, (0,))[0]", "(lambda y: y + 0.0)(x)", "(lambda y: y - -0.0)(x)"]  # fmt: skip
    names = dict(globals())
    for _ in range(2):
        for text in texts:
            apply(eval(compile(f"lambda x: {text}", "<test>", "eval"), names))
    # Another file, another dict of globals.
    apply(eval(compile("lambda x: x+0.0", "<other>", "eval"), names))
    apply(eval(compile("lambda x: x+0.0", "<test>", "eval"), dict(names)))
    apply(eval(compile("lambda x: x+0.0", "<test>", "eval"), names))
    assert apply.count == len(texts) + 2


CHANGES: list[dict[str, Any]] = [
    {"note": ("a note", (1, 2.0))}, {"other": 1}, {"__name__": "b"}, {"__qualname__": "b"},
    {"__module__": "b"}, {"__doc__": "b"}, {"__wrapped__": scaled(1)},
    {"__wrapped__": scaled(True)}, {"__annotations__": {}}, {"__annotations__": {"x": int}},
    {"__annotations__": {"x": "int"}}, {"__defaults__": (1,)}, {"__defaults__": (1.0,)},
    {"__defaults__": (1.0, 2.0, 3.0)}, {"__kwdefaults__": {"s": 2}},
    {"__kwdefaults__": {"s": 2.0, "t": 1}}, {"__code__": (lambda x, *, s=0: x - s).__code__},
]  # fmt: skip


@pytest.mark.recompiles
@pytest.mark.parametrize("same", [False, True])
def test_parts_of_functions_are_exact(apply: Counted, same: bool) -> None:
    """Of new functions, and of one function that changes."""
    act: Any = _documented()
    apply(act)
    for count, changes in enumerate(CHANGES, 2):
        attributed(act if same else (act := _documented()), **changes)
        for f in (act, act, *([] if same else [attributed(_documented(), **changes)])):
            assert comparable(apply(f)) == comparable(act(X))
        assert apply.count == count
    if same:  # in place
        act.__kwdefaults__["t"] = 2
        apply(act)
        act.__annotations__["y"] = float
        apply(act), apply(act)
        assert apply.count == len(CHANGES) + 3


def test_shared_cells_are_not_apart(apply: Counted) -> None:
    """Functions that share a cell, and functions with a cell each."""
    pair = lambda n: ((lambda x: x * n), (lambda x: x + n))
    for _ in range(2):
        apply(holding(pair(1.0))), apply(holding((pair(1.0)[0], pair(1.0)[1])))
    assert apply.count == 2


# ---- changes ----

SLOPE = 2.0


def test_names_are_not_followed(apply: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change is not seen, as ``jax.jit`` does not see it."""
    make = lambda: lambda x: x * SLOPE
    jitted = jax.jit(act := make())
    jitted(X), apply(act)
    monkeypatch.setitem(globals(), "SLOPE", 3.0)
    assert comparable(act(X)) == comparable(X * 3.0)
    for f in (act, make()):
        assert comparable(apply(f)) == comparable(jitted(X)) == comparable(X * 2.0)
    assert apply.count == 1


def test_empty_cells(apply: Counted) -> None:
    def act(x: Any) -> Any:
        try:
            return x * later
        except NameError:
            return x

    assert comparable(apply(act)) == comparable(X)
    later = 2.0
    assert comparable(apply(act)) == comparable(X * 2.0)
    del later
    assert comparable(apply(act)) == comparable(X)
    assert apply.count == 2


def test_results_are_not_of_a_changed_function(traces: Traces) -> None:
    @filterjit.filter_jit(functions="structure")
    def f(layer: Any) -> Any:
        traces.tick()
        return Layer(layer.weight + 1, layer.act)

    act, other = scaled(2.0), scaled(2.0)
    first = f(Layer(X, act))
    assert first.act is act
    assert f(Layer(X, scaled(2.0))).act is act and traces.count == 1
    act.__closure__[0].cell_contents = 5.0  # type: ignore[index]
    assert f(Layer(X, other)).act is other and traces.count == 2
    assert f(first).act is act and traces.count == 3


@pytest.mark.parametrize("where", ["cell", "list", "attribute", "default", "another's cell"])
def test_changes_while_tracing(apply: Counted, where: str) -> None:
    """A function that changes what it holds is another one after its trace."""
    seen: list[int] = []
    count = other = 0

    def another() -> None:
        nonlocal other
        other += 1

    def act(x: Any, log: Any = [0]) -> Any:  # noqa: B006
        nonlocal count
        match where:
            case "cell":
                count += 1
            case "list":
                seen.append(1)
            case "attribute":
                act.calls = getattr(act, "calls", 0) + 1  # type: ignore[attr-defined]
            case "default":
                log.append(1)
            case "another's cell":
                another()
        return x + count + other + len(seen) + len(log) + getattr(act, "calls", 0)

    for calls in range(1, 5):
        assert comparable(apply(act)) == comparable(X + calls + 1)
        assert apply.count == calls


# ---- combined with other features ----


@freed
def test_nothing_is_kept_alive() -> list[Any]:
    """Code, functions and the objects they held die with the jitted function."""
    apply, plain = Counted(), Plain(2.0)
    act = eval("lambda plain: lambda x: plain.apply(x)")(plain)
    apply(act)
    return [weakref.ref(y) for y in (act, act.__code__, plain)]


# ---- functions that cannot be described ----


class RaisingMeta(type):
    def __getattribute__(cls, name: str) -> Any:
        raise ZeroDivisionError


class OfRaisingMeta(metaclass=RaisingMeta):
    pass


@pytest.mark.parametrize(
    ("hold", "error"),
    [
        (lambda: functools.reduce(lambda x, _: [x], range(3000), []), RecursionError),
        (OfRaisingMeta, ZeroDivisionError),
    ],
    ids=["deep", "raising"],
)
def test_what_cannot_be_described_is_logged(
    apply: Counted, described_functions: list[Any], hold: Any, error: type[Exception]
) -> None:
    """Such a function equals itself only, and the exception is in the log at debug level."""
    held = hold()
    make = lambda: lambda x: (x + 1, held)[0]
    act = make()
    for _ in range(3):
        apply(act)
    assert apply.count == 1
    apply(make())
    assert apply.count == 2
    assert {record.exc_info[0] for record in described_functions} == {error}
    assert "a function could not be described" in described_functions[0].getMessage()
    described_functions.clear()


def test_what_a_library_holds_is_compared_by_contents() -> None:
    def step(x: Any, o: Any) -> Any:
        return o.update({"w": x, "b": x}, o.init({"w": x, "b": x}))[0]

    f, mask = filterjit.filter_jit(step, functions="structure"), {"w": True, "b": False}
    o = optax.masked(optax.scale(2.0), mask)
    assert [float(y[0]) for y in f(X + 1, o).values()] == [1.0, 2.0]
    mask["b"] = True
    assert [float(y[0]) for y in f(X + 1, o).values()] == [2.0, 2.0]
    for rate in (3.0, 4.0):
        o = optax.scale(jnp.asarray(rate))
        assert float(f(X + 1, o)["w"][0]) == rate
    assert len(f.variants) == 4
