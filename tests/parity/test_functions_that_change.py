"""``functions="structure"``: functions that change after or during their trace."""

import dataclasses
import functools
import sys
import types
from typing import Any

import jax.numpy as jnp
import pytest

import filterjit
from filterjit import filter_jit
from support.comparison import Traces, comparable
from support.functions import (
    Counted,
    Layer,
    Plain,
    X,
    fill_cell,
    holding,
    scaled,
    scaled_like,
    settable,
)

SLOPE = 2.0
TABLE: dict[str, Any] = {}


# ---- changes after the trace ----


@pytest.mark.parametrize("how", ["nonlocal", "cell_contents"])
def test_change_of_a_cell(apply: Counted, how: str) -> None:
    act, change = settable(1.0)
    if how == "cell_contents":
        change = lambda value: fill_cell(act, value)
    for values in ([1.0, 2.0, 3.0], [1.0, 2.0, 1.0, 3.0]):
        for value in values:
            change(value)
            assert comparable(apply(act)) == comparable(X * value)
    assert apply.count == 3


@pytest.mark.parametrize(
    "values", [[-1, -2], [0, 2**61 - 1], [True, 1, 1.0], [0.0, -0.0], [1, (1,)], [None, ...]]
)
def test_change_to_a_value_that_compares_equal(values: list[Any]) -> None:
    f = filterjit.filter_jit(
        lambda act, x: (x, act.__closure__[0].cell_contents), functions="structure"
    )
    act = holding(None)
    for _ in range(2):
        for v in values:
            fill_cell(act, v)
            assert comparable(f(act, X)[1]) == comparable(v)
            assert comparable(f(holding(v), X)[1]) == comparable(v)


def test_another_object_at_the_same_address() -> None:
    """The program keeps the former object alive, so its address is not reused."""
    f = filterjit.filter_jit(lambda act, x: act(x), functions="structure")
    act = lambda x: plain.act(x)
    plain = Plain(0.0)
    for scale in range(40):
        del plain
        plain = Plain(float(scale))
        assert comparable(f(act, X)) == comparable(X * float(scale))


def test_change_of_other_parts(apply: Counted) -> None:
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
    """A global that the function, or a function that it makes, reads by name."""
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
    assert apply.count == 2


def test_modules_that_a_function_imports(apply: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new function that imports a module of the user is traced; one that imports NumPy shares."""
    settings: Any = types.ModuleType("settings_of_this_test")
    monkeypatch.setitem(sys.modules, settings.__name__, settings)

    def importing() -> Any:
        def act(x: Any) -> Any:
            import settings_of_this_test as settings  # type: ignore[import-not-found]

            return x * settings.slope

        return act

    def importing_numpy() -> Any:
        def act(x: Any) -> Any:
            import numpy as np

            return x * np.pi

        return act

    for slope in (2.0, 3.0):
        settings.slope = slope
        assert comparable(apply(importing())) == comparable(X * slope)
    assert apply.count == 2
    for _ in range(2):
        apply(importing_numpy())
    assert apply.count == 3


def test_retrace_after_a_change(apply: Counted) -> None:
    """A retrace for a new shape uses the caller's function, not the one of the first trace."""
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


# ---- changes while tracing ----


def test_a_function_that_counts_its_traces(apply: Counted) -> None:
    """A function that changes its own cells is compared by identity."""

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


def test_only_changing_cells_are_compared_by_identity(apply: Counted) -> None:
    seen: list[int] = []

    def act(x: Any) -> Any:
        seen.append(1)
        return x * s

    for s in (1.0, 2.0, 1.0, 1, 2.0):
        for _ in range(3):
            assert comparable(apply(act)) == comparable(X * s)
    assert len(seen) == apply.count == 4  # 1.0 is traced again after the first change


def test_reasons_are_given() -> None:
    said: list[Any] = []
    f = filterjit.filter_jit(lambda act, x: act(x), functions="structure", on_retrace=said.append)
    for s in (1.0, 1.0, 2.0):
        f(scaled(s), X)
    assert len(said) == 1 and "act" in str(said[0])
    assert "functions='structure'" in str(f._hooks.settings)


def test_functions_that_change_while_traced_do_not_share(apply: Counted) -> None:
    """Two functions are equal before the trace, which changes one of them only."""

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


@pytest.mark.parametrize(
    ("name", "value"),
    [("default", 4), ("metadata", types.MappingProxyType({"scale": 4})), ("kw_only", True)],
)
def test_a_field_of_a_dataclass_that_changes(name: str, value: Any) -> None:
    @dataclasses.dataclass
    class Config:
        scale: int = 3

    def read() -> Any:
        field = Config.__dataclass_fields__["scale"]
        return field.default + len(field.metadata) * 10 + bool(field.kw_only) * 100

    f = filter_jit(lambda g, y: y + g(), functions="structure")
    for _ in range(2):
        assert f(lambda: read(), 0.0 * jnp.ones(())) == 3
    assert f.cache_info().misses == 1
    setattr(Config.__dataclass_fields__["scale"], name, value)
    assert f(lambda: read(), jnp.zeros(())) == read() != 3
    assert f.cache_info().misses == 2


def test_a_member_that_is_added_to_a_class() -> None:
    class Config:
        scale = 3

    def read() -> Any:
        return Config.scale + getattr(Config, "more", 0)

    f = filter_jit(lambda g, y: y + g(), functions="structure")
    for expected in (3, 3):
        assert f(lambda: read(), jnp.zeros(())) == expected
    assert f.cache_info().misses == 1
    Config.more = 4  # type: ignore[attr-defined]
    assert f(lambda: read(), jnp.zeros(())) == 7
    Config.scale = 5
    assert f(lambda: read(), jnp.zeros(())) == 9
    del Config.more  # type: ignore[attr-defined]
    assert f(lambda: read(), jnp.zeros(())) == 5
