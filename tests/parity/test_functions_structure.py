"""``functions="structure"``: recreated functions share programs, and functions that could behave
differently do not.
"""

import collections
import copy
import dataclasses
import functools
import gc
import os
import pickle
import types
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from support.comparison import Traces, comparable
from support.functions import (
    Config,
    Counted,
    Layer,
    Plain,
    X,
    fill_cell,
    holding,
    scaled,
    scaled_like,
    settable,
    with_attributes,
)

# ---- functions that share a program ----


def _recursive() -> Callable[[Any], Any]:
    def power(x: Any, n: int = 3) -> Any:
        return x if n == 0 else x * power(x, n - 1)

    return power


def _mutual(s: float = 2.0) -> Callable[[Any], Any]:
    def even(x: Any, n: int = 4) -> Any:
        return x * s if n == 0 else odd(x, n - 1)

    def odd(x: Any, n: int) -> Any:
        return x if n == 0 else even(x, n - 1)

    return even


def _decorated() -> Callable[[Any], Any]:
    @functools.wraps(scaled)
    def wrapper(x: Any) -> Any:
        return inner(x)

    inner = scaled(3.0)
    return wrapper


def _documented() -> Callable[[Any], Any]:
    def act(x: jax.Array, *, s: float = 2.0) -> jax.Array:
        """Scales."""
        return x * s

    act.note = "a note", (1, 2)  # type: ignore[attr-defined]
    return act


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
    "partial with attributes": lambda: with_attributes(functools.partial(lambda x: x), note=1),
    "bound method": lambda: Plain.act.__get__(PLAIN),
    "bound lambda": lambda: types.MethodType(lambda self, x: x * self.scale, Config(3.0)),
    "defaults": lambda: lambda x, s=2.0, *, t=(1, 2.0): x * s + t[1],
    "recursion": _recursive,
    "mutual recursion": _mutual,
    "decorated": _decorated,
    "annotated, documented, with attributes": _documented,
    "cells of all sorts": lambda: holding(
        (1, True, 1.0, "a", b"b", None, ..., 2j, range(3), slice(1), frozenset([1]), jnp, Layer,
         Config(1.0), np.float32(1), jnp.sin, len, X, frozenset([(1, scaled)]))
    ),
    "a jitted function in a cell": lambda: holding(jax.nn.relu),
    "a function in a tuple": lambda: holding((scaled(1.0), [].append.__name__)),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_recreated_functions_share(apply: Counted, name: str) -> None:
    make = SHARED[name]
    expected = comparable(make()(X))
    assert make() is not make() or name == "a jitted function in a cell"
    for _ in range(4):
        assert comparable(apply(make())) == expected
    act = make()
    for _ in range(3):
        apply(act)
    assert apply.count == 1


@pytest.mark.parametrize("name", SHARED)
def test_identity_is_the_default(name: str) -> None:
    traces = Traces()
    for options in ({}, {"functions": "identity"}):
        traces.count = 0
        f = filterjit.filter_jit(traces.counting(lambda act, x: act(x)), **options)
        acts = [SHARED[name]() for _ in range(2)]
        for act in acts:
            f(act, X)
        assert traces.count == (1 if name == "bound method" else 2)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: f,
        lambda f: (f, 1),
        lambda f: [f],
        lambda f: {"k": f},
        lambda f: Layer(X, f),
        lambda f: Layer(X, None, f),
        lambda f: Layer(X, None, (1, (f, "a"))),
        lambda f: Layer(X, None, [f]),
        lambda f: Layer(X, None, {"k": f}),
        lambda f: Layer(X, None, Config(f)),
        lambda f: Layer(X, None, {f}),
        lambda f: frozenset([f]),
        lambda f: Config((f, 1)),
        lambda f: jax.tree_util.Partial(f, X),
        lambda f: eqx.Partial(f, X),
        lambda f: {f: X},
    ],
)
def test_places(wrap: Callable[[Any], Any]) -> None:
    traces = Traces()

    @filterjit.filter_jit(functions="structure")
    def f(tree: Any, x: Any) -> Any:
        traces.tick()
        return x

    for _ in range(2):
        for s in (1, 1.0, True, 2, 0.0, -0.0):
            for _ in range(2):
                f(wrap(scaled(s)), X)
    assert traces.count == 6


def test_modules_made_in_a_loop() -> None:
    traces = Traces()

    @filterjit.filter_jit(functions="structure")
    def step(model: Any, x: Any) -> Any:
        traces.tick()
        grads = eqx.filter_grad(lambda m: jnp.sum(jax.vmap(m)(x) ** 2))(model)
        return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, grads))

    def make(scale: float) -> Any:
        final = lambda y: jnp.tanh(y) * scale
        return eqx.nn.MLP(3, 2, 4, 1, jax.nn.relu, final, key=jax.random.key(0))

    x = jnp.ones((2, 3))
    for _ in range(2):
        for scale in (1.0, 2.0):
            model = make(scale)
            for _ in range(3):
                model = step(model, x)
            expected = make(scale)
            plain = eqx.filter_jit(step.__wrapped__)  # type: ignore[attr-defined]
            before = traces.count
            for _ in range(3):
                expected = plain(expected, x)
            traces.count = before
            assert comparable(eqx.filter(model, eqx.is_array)) == comparable(
                eqx.filter(expected, eqx.is_array)
            )
            assert model.final_activation(2.0) == expected.final_activation(2.0)
    assert traces.count == 2


def test_in_a_loop_of_one_scope(apply: Counted) -> None:
    """All these lambdas share one cell, whose content changes."""
    for _ in range(2):
        for s in (1.0, 2.0, 3.0, 1.0, 2.0):
            assert comparable(apply(lambda x: x * s)) == comparable(X * s)  # noqa: B023
    assert apply.count == 3


# ---- functions that do not ----


@pytest.mark.parametrize(
    "values",
    [
        [1, True, 1.0, 1 + 0j, np.float32(1), np.float64(1), np.int32(1)],
        [0.0, -0.0, 0, False, np.float64(0.0), np.float64(-0.0)],
        [complex(0.0, 0.0), complex(-0.0, 0.0), complex(0.0, -0.0)],
        [-1, -2, 0, 2**61 - 1, 2**61 - 2, 2**70],
        ["a", b"a", ("a",), None, (), frozenset(), ((),), (None,), ..., NotImplemented],
        [range(0), range(0, 0, 2), range(1, 1), slice(0), slice(0.0)],
        [("function", 0), ("cell", 0, 1), ("tuple", 1), (1,), scaled, "function"],
        [Config(1), Config(1.0), Config(True), Config((1,)), Config(Config(1))],
        [len, repr, [].append, [].append, int, float, jnp, np, Config, Layer(1, 2), Layer(1, True)],
        [jnp.ones(3), jnp.ones(3), jnp.ones(4)],
        [scaled(1), scaled(1.0), lambda x: x, lambda x: x + 0, lambda x: x + 0.0],
        [scaled(X), scaled(X + 0)],
        [functools.partial(f, *a, **k) for f in (scaled, holding)
         for a, k in [((), {}), ((1,), {}), ((1.0,), {}), ((), {"s": 1}), ((), {"s": 1.0}),
                      ((), {"s": 1, "t": 2}), ((), {"t": 2, "s": 1})]],
    ],
)  # fmt: skip
def test_contents_are_exact(values: list[Any]) -> None:
    traces = Traces()

    @filterjit.filter_jit(functions="structure")
    def f(act: Any, x: Any) -> Any:
        traces.tick()
        return x, type(act.__closure__[0].cell_contents), repr(act.__closure__[0].cell_contents)

    for _ in range(2):
        for order in (values, values[::-1]):
            for v in order:
                assert f(holding(v), X)[1:] == (type(v), repr(v))
    assert traces.count == len(values)


def test_constants_of_code_are_exact(apply: Counted) -> None:
    texts = ["x+0.0", "x+-0.0", "x+0", "x+1", "x+True", "x+1.0", "(x, (0.0,))[0]",
             "(x, (-0.0,))[0]", "(x, (0,))[0]", "(lambda y: y + 0.0)(x)", "(lambda y: y - -0.0)(x)"]  # fmt: skip
    names = dict(globals())
    for _ in range(2):
        for text in texts:
            act = eval(compile(f"lambda x: {text}", "<test>", "eval"), names)
            apply(act)
    # Another file, another dict of globals.
    apply(eval(compile("lambda x: x+0.0", "<other>", "eval"), names))
    apply(eval(compile("lambda x: x+0.0", "<test>", "eval"), dict(names)))
    apply(eval(compile("lambda x: x+0.0", "<test>", "eval"), names))
    assert apply.count == len(texts) + 2


def test_attributes_are_exact(apply: Counted) -> None:
    def make(**changes: Any) -> Any:
        return with_attributes(_documented(), **changes)

    variants: list[dict[str, Any]] = [
        {},
        {"note": ("a note", (1, 2.0))},
        {"other": 1},
        {"__name__": "b"},
        {"__qualname__": "b"},
        {"__module__": "b"},
        {"__doc__": "b"},
        {"__wrapped__": scaled(1)},
        {"__wrapped__": scaled(True)},
        {"__annotations__": {}},
        {"__annotations__": {"x": int}},
        {"__annotations__": {"x": "int"}},
        {"__defaults__": (1,)},
        {"__defaults__": (1.0,)},
        {"__kwdefaults__": {"s": 2}},
        {"__kwdefaults__": {"s": 2.0, "t": 1}},
    ]
    for _ in range(2):
        for changes in variants:
            apply(make(**changes))
    assert apply.count == len(variants)


def test_classes_of_one_name(apply: Counted) -> None:
    def make() -> Any:
        class Local:
            def act(self, x: Any) -> Any:
                return x

        return Local

    one, other = make(), make()
    for _ in range(2):
        apply(holding(one)), apply(holding(other)), apply(one().act)
    assert apply.count == 4  # the two instances are two


def test_shared_cells_are_not_apart(apply: Counted) -> None:
    """Functions that share a cell, and functions with a cell each."""

    def shared() -> Any:
        n = 1.0
        f, g = (lambda x: x * n), (lambda x: x + n)
        return holding((f, g))

    def apart() -> Any:
        def one(n: float) -> Any:
            return (lambda x: x * n), (lambda x: x + n)

        return holding((one(1.0)[0], one(1.0)[1]))

    for _ in range(2):
        apply(shared()), apply(apart())
    assert apply.count == 2


MUTABLE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "list": (lambda: [1], lambda v: v.append(2)),
    "type in a list": (lambda: [1], lambda v: v.__setitem__(0, True)),
    "hash in a list": (lambda: [-1], lambda v: v.__setitem__(0, -2)),
    "large hash in a list": (lambda: [0], lambda v: v.__setitem__(0, 2**61 - 1)),
    "dict": (lambda: {"a": 1}, lambda v: v.update(a=1.0)),
    "order of a dict": (lambda: {"a": 1, "b": 2}, lambda v: v.update(a=v.pop("a"))),
    "defaultdict": (lambda: collections.defaultdict(int, a=1), lambda v: v["b"]),
    "deque": (lambda: collections.deque([1]), lambda v: v.append(1)),
    "set": (lambda: {1}, lambda v: v.add(2)),
    "bytearray": (lambda: bytearray(b"a"), lambda v: v.append(1)),
    "nested": (lambda: ([{"k": [1]}],), lambda v: v[0][0]["k"].append(1)),
    "a cell in a list": (lambda: [scaled(1)], lambda v: fill_cell(v[0], True)),
    "a cell in a frozenset": (lambda: frozenset([scaled(1)]), lambda v: fill_cell(*v, True)),
    "a long list": (lambda: [0.0] * 5000, lambda v: v.__setitem__(4000, -0.0)),
}


@pytest.mark.parametrize("name", MUTABLE)
@pytest.mark.parametrize("place", ["cell", "default", "keyword default", "attribute", "partial"])
def test_mutable_contents(apply: Counted, name: str, place: str) -> None:
    """Functions that hold different mutable objects share no program, and a change is noticed."""
    make, change = MUTABLE[name]

    def put(v: Any) -> Any:
        act = lambda x, y=0, *, z=0: x
        match place:
            case "cell":
                return holding(v)
            case "default":
                return with_attributes(act, __defaults__=(v,))
            case "keyword default":
                return with_attributes(act, __kwdefaults__={"z": v})
            case "attribute":
                return with_attributes(act, note=v)
        return functools.partial(act, y=v)

    value = make()
    act = put(value)
    apply(act), apply(act)
    assert apply.count == 1
    apply(put(make())), apply(put(value))
    own_traces = 0 if name == "a cell in a frozenset" else 1
    assert apply.count == 1 + own_traces
    change(value)
    apply(act), apply(act)
    assert apply.count == 2 + own_traces


def test_arrays_by_identity(apply: Counted) -> None:
    one, same = jnp.ones(3), np.ones(3)
    for _ in range(2):
        apply(holding(one))
    assert apply.count == 1  # a JAX array is immutable
    act = holding(same)
    for _ in range(2):
        apply(act)
    assert apply.count == 2
    apply(holding(same)), apply(holding(np.ones(3)))  # a NumPy array is mutable
    assert apply.count == 3
    act = holding(np.ones(1 << 16))  # too large to be compared by contents in each call
    apply(act), apply(act)
    assert apply.count == 4
    apply(holding(act.__closure__[0].cell_contents))
    assert apply.count == 5


def test_objects_without_a_hash(apply: Counted) -> None:
    @dataclasses.dataclass
    class Mutable:
        v: Any

    for value in (Mutable(1), Layer(X, None)):
        act, before = holding(value), apply.count
        apply(act), apply(act)
        assert apply.count == before + 1
    assert apply.count == 2
    apply(holding(Mutable(1)))
    assert apply.count == 3


def test_failing_hash_and_eq(apply: Counted) -> None:
    class Bad:
        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

        def __hash__(self) -> int:
            raise ZeroDivisionError

    bad = Bad()
    act = holding(bad)
    apply(act), apply(act)
    assert apply.count == 1
    apply(holding(bad))
    assert apply.count == 2


# ---- combined with other features ----


def test_donation() -> None:
    apply = Counted(donate="all")
    for s in (2.0, 2.0, 3.0):
        x = jnp.arange(4.0) + 0
        assert comparable(apply(scaled(s), x)) == comparable(jnp.arange(4.0) * s)
        assert x.is_deleted()
    assert apply.count == 2


def test_partial(apply: Counted) -> None:
    act, change = settable(2.0)
    p = apply.call.partial(act)
    for _ in range(2):
        assert comparable(p(X)) == comparable(X * 2.0)
        assert comparable(apply.call.partial(scaled_like(2.0))(X)) == comparable(X * 2.0)
    assert apply.count == 1
    change(3.0)
    assert comparable(p(X)) == comparable(X * 3.0)
    assert apply.count == 2


def test_ahead_of_time(apply: Counted) -> None:
    compiled = apply.call.lower(scaled(2.0), X).compile()
    assert comparable(compiled(scaled(2.0), X)) == comparable(X * 2.0)
    with pytest.raises(TypeError, match="other arguments"):
        compiled(scaled(2), X)


def test_transforms(apply: Counted) -> None:
    for _ in range(2):
        got = jax.vmap(lambda x: apply(scaled(2.0), x))(X)
        assert comparable(got) == comparable(X * 2.0)
        assert jax.grad(lambda x: apply(scaled(3.0), x))(1.0) == 3.0


def test_missing_arguments_and_fields() -> None:
    traces = Traces()
    f = filterjit.filter_jit(
        traces.counting(lambda layer, act=jnp.negative, *, x=X: (layer, act(x))),
        functions="structure",
    )
    partly = object.__new__(Layer)
    object.__setattr__(partly, "weight", X)
    for _ in range(2):
        assert comparable(f(Layer(X, lambda x: x))[1]) == comparable(-X)
        assert comparable(f(1, scaled(3.0))[1]) == comparable(X * 3.0)
        assert not hasattr(f(partly)[0], "act") or f(partly)[0].act is not None
    assert traces.count == 3


def test_the_two_options_do_not_share() -> None:
    traces = Traces()
    fun = traces.counting(lambda act, x: act(x))
    act = scaled(2.0)
    for options in ("identity", "structure", "identity", "structure"):
        filterjit.filter_jit(fun, functions=options)(act, X)
    assert traces.count == 2


def test_attributes_that_filterjit_sets_do_not_count(apply: Counted) -> None:
    acts = [scaled(2.0) for _ in range(2)]
    filterjit.filter_jit(acts[1])(X)
    for act in acts:
        apply(act)
    assert apply.count == 1


def test_decorator_methods_and_copies() -> None:
    traces = Traces()

    class Model(eqx.Module):
        act: Any

        @filterjit.filter_jit(functions="structure")
        def __call__(self, x: Any) -> Any:
            traces.tick()
            return self.act(x)

    for _ in range(3):
        assert comparable(Model(scaled(2.0))(X)) == comparable(X * 2.0)
    assert traces.count == 1
    f = filterjit.filter_jit(scaled, functions="structure")
    assert copy.copy(f)._hooks.settings.functions == "structure"  # type: ignore[attr-defined]
    again = pickle.loads(pickle.dumps(filterjit.filter_jit(os.getcwd, functions="structure")))
    assert again._hooks.settings.functions == "structure"


@pytest.mark.parametrize("bad", ["", "Structure", None, True, "both"])
def test_unknown_value_of_the_option(bad: Any) -> None:
    with pytest.raises(ValueError, match="'identity' or 'structure'"):
        filterjit.filter_jit(scaled, functions=bad)


def test_nothing_is_kept_alive() -> None:
    """Code, functions and the objects they held die with the jitted function."""
    apply: Any = Counted()
    names = {"plain": Plain(2.0)}
    act = eval("(lambda s: lambda x: plain.act(x) * s)(plain)", names)
    act.__closure__[0].cell_contents = 3.0
    apply(act)
    watched = [weakref.ref(y) for y in (act, act.__code__, names["plain"])]
    del apply, act, names
    gc.collect()
    jax.clear_caches()
    gc.collect()
    assert [w() for w in watched] == [None] * 3


@dataclasses.dataclass
class Settings:
    value: float


@pytest.mark.parametrize(
    ("make", "shares"),
    [
        (lambda: (1, "a"), True),
        (lambda: frozenset([1]), True),
        (lambda: eqx.nn.Identity(), True),
        (lambda: [1], False),
        (lambda: {"a": 1}, False),
        (lambda: Settings(1.0), False),
        (lambda: np.ones(2), False),
        (lambda: Plain(1.0), False),
    ],
    ids=["tuple", "frozenset", "Module", "list", "dict", "dataclass", "ndarray", "object"],
)
def test_functions_that_hold_mutable_objects(make: Callable[[], Any], shares: bool) -> None:
    def hold(value: Any) -> Any:
        return lambda x: (x, value)[0]

    f = filterjit.filter_jit(lambda function, x: function(x), functions="structure")
    f(hold(make()), X), f(hold(make()), X)
    assert len(f.variants) == (1 if shares else 2)


# ---- functions that cannot be described ----


def _nested(depth: int) -> Any:
    return functools.reduce(lambda inner, _: [inner], range(depth), [])


class RaisingMeta(type):
    def __getattribute__(cls, name: str) -> Any:
        raise ZeroDivisionError


class OfRaisingMeta(metaclass=RaisingMeta):
    pass


@pytest.mark.parametrize(
    ("held", "error"),
    [(_nested(3000), RecursionError), (OfRaisingMeta, ZeroDivisionError)],
    ids=["deep", "raising"],
)
def test_what_cannot_be_described_is_logged(
    apply: Counted, described_functions: list[Any], held: Any, error: type[Exception]
) -> None:
    """Such a function equals itself only, and the exception is in the log at debug level."""

    def make() -> Callable[[Any], Any]:
        return lambda x: (x + 1, held)[0]

    act = make()
    for _ in range(3):
        apply(act)
    assert apply.count == 1
    apply(make())
    assert apply.count == 2
    assert {record.exc_info[0] for record in described_functions} == {error}
    assert "a function could not be described" in described_functions[0].getMessage()
    described_functions.clear()
