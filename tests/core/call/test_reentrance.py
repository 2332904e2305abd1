"""Calls within a call, and user code there that changes the cache."""

import gc
from typing import Any

import pytest
from core_support import Array, Hooks, Hostile, make_jit, make_registry, variants


def test_a_function_that_calls_itself() -> None:
    def fun(x: Any, n: int) -> Any:
        return (n, f(x, n - 1)) if n else x

    f = make_jit(fun)
    x = Array()
    assert f(x, 3) == f(x, 3) == (3, (2, (1, x)))
    assert f._hooks.count("compile") == 4


def test_the_same_variant_inside_itself() -> None:
    depth = [0]

    def fun(x: Any) -> Any:
        depth[0] += 1
        return f(x) if depth[0] < 5 else x

    f = make_jit(fun)
    x = Array()
    assert f(x) is x


def test_calls_itself_forever() -> None:
    f = make_jit(lambda x: f(x))
    with pytest.raises(RecursionError):
        f(Array())
    assert variants(f) == []


@pytest.mark.parametrize(
    "hook", ["compile", "inspect_new_trace", "wait", "before_raising_call", "function"]
)
def test_the_cache_is_cleared_in_the_middle(hook: str) -> None:
    def clear(*args: Any) -> None:
        f._parts()[0].clear()
        gc.collect()

    def fun(x: Any, n: int) -> Any:
        if hook == "function":
            clear()
        return x, n

    f = make_jit(fun)
    f._hooks.may_raise = True
    f._hooks.on[hook] = clear
    x = Array()
    for n in (1, 1, 2, 2, 1):
        assert f(x, n) == (x, n)
    assert hook == "function" or f._hooks.count(hook) > 0


def test_the_last_reference_to_a_variant_goes_in_the_middle() -> None:
    """A call inside the call evicts the variant, which lives until its own call ends."""

    def fun(x: Any, n: int) -> Any:
        if n < 10:
            f(x, n + 10)
            gc.collect()
        return x, n

    f = make_jit(fun, Hooks(make_registry(), maxsize=1))
    x = Array()
    for n in (1, 2, 1):
        assert f(x, n) == (x, n)


def test_eq_that_calls_it() -> None:
    def again() -> None:
        if depth:
            depth.pop()
            f(Array(), Hostile(on_eq=again))
            f._parts()[0].clear()

    depth = [1, 1, 1]
    f = make_jit(lambda x, s: x)
    for _ in range(3):
        x = Array()
        assert f(x, Hostile(on_eq=again)) is x
    assert depth == []


def test_eq_that_clears_the_cache() -> None:
    f = make_jit(lambda x, s: x)
    cleared: list[int] = []

    def clear() -> None:
        cleared.append(len(variants(f)))
        f._parts()[0].clear()
        gc.collect()

    for i in range(5):
        x = Array()
        assert f(x, Hostile(on_eq=clear, equal=i % 2)) is x
    assert any(cleared)


def test_compile_that_compiles_the_same() -> None:
    f = make_jit(lambda x: x)
    x = Array()

    def again(*args: Any) -> None:
        del f._hooks.on["compile"]
        assert f(x) is x

    f._hooks.on["compile"] = again
    assert f(x) is x
    assert len(variants(f)) == 1


def test_its_name_is_deleted_in_the_middle() -> None:
    holder: dict[str, Any] = {}

    def fun(x: Any) -> Any:
        holder.clear()
        gc.collect()
        return x

    holder["f"] = make_jit(fun)
    x = Array()
    assert holder["f"](x) is x
