"""Calls within a call, and user code there that changes the cache."""

import gc
from typing import Any

import pytest
from core_support import Array, Hooks, make_jit, make_registry, variants


def test_a_function_that_calls_itself() -> None:
    def fun(x: Any, n: int) -> Any:
        return (n, f(x, n - 1)) if n else x

    f = make_jit(fun)
    x = Array()
    assert f(x, 3) == f(x, 3) == (3, (2, (1, x)))
    assert f._hooks.count("compile") == 4


def test_calls_itself_forever() -> None:
    f = make_jit(lambda x: f(x))
    with pytest.raises(RecursionError):
        f(Array())
    assert variants(f) == []


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
