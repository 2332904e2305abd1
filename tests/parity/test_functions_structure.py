"""``functions="structure"``: lambdas made anew share programs, and nothing that could behave
differently does."""

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

X = jnp.arange(3.0)
SLOPE = 2.0
TABLE: dict[str, Any] = {}


class Layer(eqx.Module):
    weight: Any
    act: Any
    tag: Any = eqx.field(static=True, default=None)

    def __call__(self, x: Any) -> Any:
        return self.act(self.weight * x)


@dataclasses.dataclass(frozen=True)
class Config:
    scale: Any


class Plain:
    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def act(self, x: Any) -> Any:
        return x * self.scale


class Counted:
    """A jitted `apply(act, x)` that counts its traces."""

    def __init__(self, **options: Any) -> None:
        self.traces = Traces()
        fun = self.traces.counting(lambda act, x: act(x))
        self.call = filterjit.filter_jit(fun, functions="structure", **options)

    def __call__(self, act: Any, x: Any = X) -> Any:
        return self.call(act, x)

    @property
    def count(self) -> int:
        return self.traces.count


@pytest.fixture
def apply() -> Counted:
    return Counted()


def scaled(s: Any) -> Callable[[Any], Any]:
    return lambda x: x * s


def holding(cell: Any) -> Callable[[Any], Any]:
    return lambda x: (x, repr(cell))[0]


# ---- what shares a program ----


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
    "partial with attributes": lambda: _set(functools.partial(lambda x: x), note=1),
    "bound method": lambda: Plain.act.__get__(PLAIN),
    "bound lambda": lambda: types.MethodType(lambda self, x: x * self.scale, PLAIN),
    "defaults": lambda: lambda x, s=2.0, *, t=(1, 2.0): x * s + t[1],
    "recursion": _recursive,
    "mutual recursion": _mutual,
    "decorated": _decorated,
    "annotated, documented, with attributes": _documented,
    "cells of all sorts": lambda: holding(
        (1, True, 1.0, "a", b"b", None, ..., 2j, range(3), slice(1), frozenset([1]), jnp, Layer,
         Config(1.0), PLAIN, np.float32(1), jnp.sin, len, X, frozenset([(1, scaled)]))
    ),
    "a jitted function in a cell": lambda: holding(jax.nn.relu),
    "a function in a tuple": lambda: holding((scaled(1.0), [].append.__name__)),
}  # fmt: skip


def _set(x: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(x, name, value)
    return x


@pytest.mark.parametrize("name", SHARED)
def test_made_anew(apply: Counted, name: str) -> None:
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
    """All these lambdas have one cell, whose content is another each time."""
    for _ in range(2):
        for s in (1.0, 2.0, 3.0, 1.0, 2.0):
            assert comparable(apply(lambda x: x * s)) == comparable(X * s)  # noqa: B023
    assert apply.count == 3


# ---- what does not ----


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
        [len, repr, [].append, int, float, jnp, np, Plain(), Plain(), PLAIN, PLAIN.act],
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
        return _set(_documented(), **changes)

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
    """Functions that share a cell, and such as have one each."""

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
    "a cell in a list": (lambda: [scaled(1)], lambda v: _fill(v[0], True)),
    "a cell in a frozenset": (lambda: frozenset([scaled(1)]), lambda v: _fill(*v, True)),
    "a long list": (lambda: [0.0] * 5000, lambda v: v.__setitem__(4000, -0.0)),
}


def _fill(f: Any, value: Any) -> None:
    f.__closure__[0].cell_contents = value


@pytest.mark.parametrize("name", MUTABLE)
@pytest.mark.parametrize("place", ["cell", "default", "keyword default", "attribute", "partial"])
def test_mutable_contents(apply: Counted, name: str, place: str) -> None:
    """In doubt: no two functions share a program; and a change is seen."""
    make, change = MUTABLE[name]

    def put(v: Any) -> Any:
        act = lambda x, y=0, *, z=0: x
        match place:
            case "cell":
                return holding(v)
            case "default":
                return _set(act, __defaults__=(v,))
            case "keyword default":
                return _set(act, __kwdefaults__={"z": v})
            case "attribute":
                return _set(act, note=v)
        return functools.partial(act, y=v)

    value = make()
    act = put(value)
    apply(act), apply(act)
    assert apply.count == 1
    apply(put(make())), apply(put(value))
    doubted = 0 if name == "a cell in a frozenset" else 2
    assert apply.count == 1 + doubted
    change(value)
    apply(act), apply(act)
    assert apply.count == 2 + doubted


def test_arrays_by_identity(apply: Counted) -> None:
    one, same = jnp.ones(3), np.ones(3)
    for _ in range(2):
        apply(holding(one))
    assert apply.count == 1  # nobody can change it
    act = holding(same)
    for _ in range(2):
        apply(act)
    assert apply.count == 2
    apply(holding(same))  # somebody can
    assert apply.count == 3


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


# ---- changes after the trace ----


def settable(s: Any) -> tuple[Callable[[Any], Any], Callable[[Any], None]]:
    def act(x: Any) -> Any:
        return x * s

    def change(value: Any) -> None:
        nonlocal s
        s = value

    return act, change


@pytest.mark.parametrize("how", ["nonlocal", "cell_contents"])
def test_change_of_a_cell(apply: Counted, how: str) -> None:
    act, change = settable(1.0)
    if how == "cell_contents":
        change = lambda value: _fill(act, value)
    for values in ([1.0, 2.0, 3.0], [1.0, 2.0, 1.0, 3.0]):
        for value in values:
            change(value)
            assert comparable(apply(act)) == comparable(X * value)
    assert apply.count == 3


@pytest.mark.parametrize(
    "values", [[-1, -2], [0, 2**61 - 1], [True, 1, 1.0], [0.0, -0.0], [1, (1,)], [None, ...]]
)
def test_change_to_what_is_hard_to_tell(values: list[Any]) -> None:
    f = filterjit.filter_jit(
        lambda act, x: (x, act.__closure__[0].cell_contents), functions="structure"
    )
    act = holding(None)
    for _ in range(2):
        for v in values:
            _fill(act, v)
            assert comparable(f(act, X)[1]) == comparable(v)
            assert comparable(f(holding(v), X)[1]) == comparable(v)


def test_another_object_at_the_same_address() -> None:
    """What was there is held for as long as the program lives."""
    f = filterjit.filter_jit(lambda act, x: act(x), functions="structure")
    act = lambda x: plain.act(x)
    plain = Plain(0.0)
    for scale in range(40):
        del plain
        plain = Plain(float(scale))
        assert comparable(f(act, X)) == comparable(X * float(scale))


def test_change_of_the_rest(apply: Counted) -> None:
    def act(x: Any, s: Any = 1.0, *, t: Any = 0.0) -> Any:
        return x * s + t

    def check(count: int) -> None:
        for _ in range(2):
            assert comparable(apply(act)) == comparable(act(X))
        assert apply.count == count

    check(1)
    act.__defaults__ = (2.0,)
    check(2)
    act.__defaults__ = (2,)
    check(3)
    act.__kwdefaults__["t"] = 1.0  # type: ignore[index]
    check(4)
    act.__kwdefaults__ = {"t": 1.5}
    check(5)
    act.__code__ = (lambda x, s=0, *, t=0: x - s - t).__code__
    check(6)
    act.__name__ = "other"
    check(7)
    act.note = 1  # type: ignore[attr-defined]
    check(8)
    act.__annotations__["x"] = int
    check(9)
    act.__annotations__["x"] = float
    check(10)


def test_change_of_a_partial(apply: Counted) -> None:
    p = functools.partial(lambda x, s=1.0: x * s, s=2.0)
    assert comparable(apply(p)) == comparable(X * 2.0)
    p.keywords["s"] = 3.0
    assert comparable(apply(p)) == comparable(X * 3.0)
    p.__setstate__((p.func, (), {"s": 4.0}, {}))
    assert comparable(apply(p)) == comparable(X * 4.0)
    assert apply.count == 3


def test_change_of_an_inner_function(apply: Counted) -> None:
    inner, change = settable(1.0)
    act = functools.partial(lambda f, x: (lambda: f(x))(), inner)
    for s in (1.0, 2.0, 1.0):
        change(s)
        assert comparable(apply(act)) == comparable(X * s)
    assert apply.count == 2


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


def test_change_of_a_global(apply: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the function itself, or one that it makes, reads it by its name."""
    make = lambda: lambda x: (lambda: x * SLOPE)()
    for s in (2.0, 3.0, 2.0, 2, True):
        monkeypatch.setitem(globals(), "SLOPE", s)
        for _ in range(2):
            assert comparable(apply(make())) == comparable(X * s)
    assert apply.count == 4
    monkeypatch.delitem(globals(), "SLOPE")
    with pytest.raises(NameError):
        apply(make())
    monkeypatch.setitem(globals(), "SLOPE", [2.0])
    for _ in range(2):
        with pytest.raises(TypeError):
            apply(make())


def test_globals_that_can_change(apply: Counted) -> None:
    make = lambda: lambda x: x * TABLE.get("scale", 1.0)
    for s in (1.0, 2.0, 1.0):
        TABLE["scale"] = s
        assert comparable(apply(make())) == comparable(X * s)
    assert apply.count == 3


def test_retrace_after_a_change(apply: Counted) -> None:
    """For a new shape the caller's function counts, not the one that the variant was made for."""
    act, change = settable(2.0)
    assert comparable(apply(act)) == comparable(X * 2.0)
    change(5.0)
    longer = jnp.arange(7.0)
    for x in (longer, X, longer.astype(int)):
        assert comparable(apply(scaled_like(2.0), x)) == comparable(x * 2.0)
        assert comparable(apply(act, x)) == comparable(x * 5.0)
    change(2.0)
    other = jnp.arange(9.0)
    assert comparable(apply(act, other)) == comparable(other * 2.0)


def scaled_like(s: Any) -> Callable[[Any], Any]:
    return settable(s)[0]


def test_results_are_not_of_a_changed_function() -> None:
    traces = Traces()

    @filterjit.filter_jit(functions="structure")
    def f(layer: Any) -> Any:
        traces.tick()
        return Layer(layer.weight + 1, layer.act)

    act, change = settable(2.0)
    first = f(Layer(X, act))
    assert first.act is act
    assert f(Layer(X, scaled_like(2.0))).act is act and traces.count == 1
    change(5.0)
    other = scaled_like(2.0)
    again = f(Layer(X, other))
    assert again.act is other and traces.count == 2
    assert f(first).act is act and traces.count == 3


# ---- while tracing ----


def test_counting_traces_settles(apply: Counted) -> None:
    """A function that changes its own cells counts by its identity."""

    def make() -> Any:
        count = 0

        def act(x: Any) -> Any:
            nonlocal count
            count += 1
            return x * 2

        return act, lambda: count

    act, count = make()
    for _ in range(5):
        assert comparable(apply(act)) == comparable(X * 2)
    assert count() == apply.count == 2
    other, count = make()
    for _ in range(5):
        apply(other)
    assert count() == 1 and apply.count == 3


@pytest.mark.parametrize("where", ["list", "attribute", "default", "another's cell", "global"])
def test_other_changes_while_tracing(apply: Counted, where: str) -> None:
    seen: list[int] = []
    box = [0]

    def another() -> None:
        nonlocal depth
        depth += 1

    depth = 0

    def act(x: Any, log: Any = box) -> Any:
        match where:
            case "list":
                seen.append(1)
            case "attribute":
                act.calls = getattr(act, "calls", 0) + 1  # type: ignore[attr-defined]
            case "default":
                log.append(1)
            case "another's cell":
                another()
                return x + depth
            case "global":
                global SLOPE
                SLOPE = SLOPE + 0.0
        return x

    for _ in range(6):
        apply(act)
    assert apply.count <= 2


def test_only_what_changes_is_distrusted(apply: Counted) -> None:
    seen: list[int] = []

    def act(x: Any) -> Any:
        seen.append(1)
        return x * s

    for s in (1.0, 2.0, 1.0, 1, 2.0):
        for _ in range(3):
            assert comparable(apply(act)) == comparable(X * s)
    assert len(seen) == apply.count == 4  # 1.0 once more, after what was learnt


def test_reasons_are_given(apply: Counted) -> None:
    said: list[Any] = []
    f = filterjit.filter_jit(lambda act, x: act(x), functions="structure", on_retrace=said.append)
    for s in (1.0, 1.0, 2.0):
        f(scaled(s), X)
    assert len(said) == 1 and "act" in str(said[0])
    assert "functions='structure'" in str(f._options)


def test_what_changes_while_tracing_is_not_shared(apply: Counted) -> None:
    """Two functions equal before the trace: one is changed by it, the other would not be."""

    def make(n: int, step: Any = None) -> Any:
        if step is None:

            def step() -> None:
                nonlocal n
                n += 1

        def act(x: Any) -> Any:
            step()
            return x + n

        return act, step

    one, step = make(0)
    other, _ = make(0, step)
    assert comparable(apply(one)) == comparable(X + 1)
    assert comparable(apply(other)) == comparable(X + 0)
    assert apply.count == 2


# ---- together with the rest ----


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


def test_both_options_apart() -> None:
    traces = Traces()
    fun = traces.counting(lambda act, x: act(x))
    act = scaled(2.0)
    for options in ("identity", "structure", "identity", "structure"):
        filterjit.filter_jit(fun, functions=options)(act, X)
    assert traces.count == 2


def test_what_we_keep_in_functions_does_not_count(apply: Counted) -> None:
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
    assert copy.copy(f)._options.functions == "structure"  # type: ignore[attr-defined]
    again = pickle.loads(pickle.dumps(filterjit.filter_jit(os.getcwd, functions="structure")))
    assert again._options.functions == "structure"


@pytest.mark.parametrize("bad", ["", "Structure", None, True, "both"])
def test_unknown_word(bad: Any) -> None:
    with pytest.raises(ValueError, match="'identity' or 'structure'"):
        filterjit.filter_jit(scaled, functions=bad)


def test_nothing_is_kept() -> None:
    """Code, functions and what they held die with the jitted function."""
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
