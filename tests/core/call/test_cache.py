"""The cache of a function: the variants in it, and which of them is evicted."""

from typing import Any

import pytest
from core_support import Array, Hooks, called, core, make_jit, make_registry, variants


def test_the_least_recently_used_is_evicted() -> None:
    options = Hooks(make_registry(), maxsize=3)
    f = make_jit(lambda n: n, options)

    def statics() -> list[int]:
        return sorted(v.arguments(())[1][0] for v in variants(f))

    for n in (0, 1, 2):
        f(n)
    f(0)
    f(3)
    assert statics() == [0, 2, 3]
    f(2)
    f(4)
    assert statics() == [2, 3, 4]
    f(0)
    assert statics() == [0, 2, 4]
    assert options.count("compile") == 6


class Eager(Hooks):
    """As under ``jax.disable_jit``, the callable runs the function, and there is no trace."""

    def compile(self, f: Any, variant: Any) -> Any:
        return super().compile(f, variant).flat  # type: ignore[no-any-return]


class TestWithoutTraces:
    def test_the_least_recently_used_is_evicted(self) -> None:
        options = Eager(make_registry(), maxsize=3)
        f = make_jit(lambda n: n, options)
        for n in (0, 1, 2, 0, 3):
            assert f(n) == n
        assert sorted(v.arguments(())[1][0] for v in variants(f)) == [0, 2, 3]
        for n in range(300):
            assert f(n) == n
        assert len(variants(f)) == 3
        assert all(v.num_traces == 0 for v in variants(f))
        calls = options.count("compile")
        assert f(299) == 299 and options.count("compile") == calls

    def test_a_call_that_fails_leaves_the_cache_as_it_was(self) -> None:
        fails = False

        def fun(n: int) -> int:
            if fails:
                raise ZeroDivisionError
            return n

        f = make_jit(fun, Eager(make_registry()))
        f(1), f(2)
        before = set(variants(f))
        fails = True
        for n in (1, 2, 3):
            with pytest.raises(ZeroDivisionError):
                f(n)
        assert set(variants(f)) == before

    def test_traces_come_later(self) -> None:
        """The same variants are traced once jit is enabled again."""
        options = Eager(make_registry(), maxsize=2)
        f = make_jit(lambda n: n, options)
        f(1), f(2)
        for variant in variants(f):
            core.output_flatten(variant.call())
        assert [v.num_traces for v in variants(f)] == [1, 1]
        assert f(3) == 3 and len(variants(f)) == 2

    def test_calls_that_still_run_do_not_count(self) -> None:
        def fun(n: int) -> Any:
            if n == 0:
                return n
            inner = f(n - 1)
            assert len(variants(f)) <= 2 + (6 - n), "those around this one, and maxsize"
            return inner

        f = make_jit(fun, Eager(make_registry(), maxsize=1))
        assert f(5) == 0 and len(variants(f)) == 1


def test_clear() -> None:
    f = make_jit(lambda n: n)
    f(1), f(2)
    f._parts()[0].clear()
    assert variants(f) == []
    assert f(2) == 2, "the last variant is not predicted"
    assert f(1) == 1
    assert f._hooks.count("compile") == 4


def test_wrappers_share_it() -> None:
    def fun(x: Any) -> Any:
        return x

    options = Hooks(make_registry())
    f, g = make_jit(fun, options), make_jit(fun, options)
    f(Array()), g(Array())
    assert options.count("compile") == 1
    assert f == g and hash(f) == hash(g) and f is not g
    other = make_jit(lambda: 0, options)
    assert f != other and f != 3


def test_lookup() -> None:
    f = make_jit(lambda x, n: (n, x))
    x = Array()
    variant, arrays = f._find_or_compile(x, 1)
    assert arrays == (x,) and variant.num_traces == 0
    assert variants(f) == [], "it has not been traced"
    assert variant.arguments(arrays)[1] == [x, 1]
    assert f(x, 1) == (1, x)
    (in_cache,) = variants(f)
    assert f._find_or_compile(x, 1)[0] is in_cache is not variant


def test_hits_are_timed() -> None:
    f = make_jit(lambda x: x)
    f(Array())
    cache = f._parts()[0]
    assert cache.hit_time == 0
    cache.timed = 1
    f(Array())
    (variant,) = variants(f)
    assert cache.hit_time > 0 and variant.hit_time == cache.hit_time


class TestInsertTraced:
    """A variant from a look-up is inserted once it has been traced."""

    def test_after_the_first_trace(self) -> None:
        f = make_jit(lambda x, n: n)
        cache = f._parts()[0]
        variant, arrays = f._find_or_compile(Array(), 3)
        assert cache.variants() == []
        cache.insert_traced(variant)
        assert cache.variants() == []
        core.output_flatten(variant.call(*arrays))  # as JAX does: the trace gets its number
        for _ in range(2):
            cache.insert_traced(variant)
            assert cache.variants() == [variant]
        assert f(Array(), 3) == 3 and cache.variants() == [variant]

    def test_an_equal_variant_is_in_the_cache(self) -> None:
        f = make_jit(lambda x, n: n)
        cache = f._parts()[0]
        variant, arrays = f._find_or_compile(Array(), 3)
        core.output_flatten(variant.call(*arrays))
        f(Array(), 3)
        (first,) = cache.variants()
        assert first is not variant
        cache.insert_traced(variant)
        assert cache.variants() == [first]

    def test_cleared_variants_are_not_inserted(self) -> None:
        f, variant = called(lambda x: x, Array(1))
        cache = f._parts()[0]
        cache.clear()
        cache.insert_traced(variant)
        assert cache.variants() == []

    def test_the_oldest_is_evicted(self) -> None:
        f = make_jit(lambda n: n, Hooks(make_registry(), maxsize=2))
        f(1), f(2)
        cache, oldest = f._parts()[0], f._find_or_compile(1)[0]
        variant, _ = f._find_or_compile(3)
        core.output_flatten(variant.call())
        cache.insert_traced(variant)
        assert variant in variants(f) and oldest not in variants(f) and len(variants(f)) == 2
