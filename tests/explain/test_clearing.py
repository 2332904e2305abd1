"""`cache_info`, and the four ways to clear caches."""

import gc
import weakref
from typing import Any

import equinox as eqx
import jax
import pytest
from explain_support import X, row_of

import filterjit
from filterjit import filter_jit


@pytest.mark.parametrize("options", [{}, {"in_shardings": None, "out_shardings": jax.P()}], ids=str)
def test_calls_under_disable_jit_are_no_hits(options: Any) -> None:
    mesh = jax.make_mesh((1,), ("a",))
    f = filter_jit(
        lambda x: x * 2, on_retrace="raise", **options, **({"mesh": mesh} if options else {})
    )
    for calls in (3, 2):
        before = f.cache_info()
        with jax.disable_jit():
            for _ in range(calls):
                f(X)
        assert f.cache_info().hits == before.hits
        assert f.cache_info().misses == before.misses + calls
        f(X), f(X)
    assert f.cache_info().hits == 3 == row_of(f)["hits"]


def test_counters() -> None:
    @filter_jit(maxsize=2)
    def f(x: Any, n: Any) -> Any:
        return x / n

    f(X, 1), f(X, 1), f(X, 2), f(X, 3)
    assert f.cache_info()[:3] == (1, 3, 2) and len(f.variants) == 2
    with pytest.raises(TypeError, match="missing"):
        f(X)
    assert f.cache_info()[:3] == (1, 3, 2)
    with pytest.raises(TypeError):
        f(X, "1")
    with pytest.raises(filterjit.StaticArgumentError):
        f(X, {1})
    assert f.cache_info() == (1, 4, 2, 2, 2)
    f.clear_cache()
    assert f.cache_info() == (1, 4, 0, 2, 0)


CLEARS = [jax.clear_caches, eqx.clear_caches, filterjit.clear_caches, "clear_cache"]


@pytest.mark.parametrize("clear", CLEARS)
def test_all_is_traced_again_after_clearing(clear: Any) -> None:
    traces = []

    @filter_jit
    def f(x: Any, static: Any) -> Any:
        traces.append(1)
        return x * 2

    for i in range(3):
        f(X, "static"), f(X, "static")
        assert (f(X, "static") == 2).all()
        assert len(traces) == i + 1
        assert len(f.variants) == 1 and len(f.variants[0]._record.traces) == 1
        (getattr(f, clear) if isinstance(clear, str) else clear)()
        assert f.variants == []
    row = row_of(f)
    assert [row[k] for k in ("calls", "hits", "traces", "compiles")] == [9, 6, 3, 3]


@pytest.mark.parametrize("clear", CLEARS)
@pytest.mark.parametrize("jit", [filter_jit, lambda f: filterjit.jit(f, static_argnums=1)])
def test_cleared_programs_are_freed(clear: Any, jit: Any) -> None:
    """With the statics of their last calls, also of a call that clears."""

    class Static:
        is_clearing = False

    @jit
    def f(x: Any, static: Any) -> Any:
        if static.is_clearing:
            cleared()
        return x + 0

    cleared: Any = getattr(f, clear) if isinstance(clear, str) else clear
    for is_clearing in (False, True):
        static = Static()
        static.is_clearing = is_clearing
        ref = weakref.ref(static)
        f(X, static)
        if not is_clearing:
            cleared()
        del static
        gc.collect()
        assert ref() is None
