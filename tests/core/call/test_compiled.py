"""Calling what was compiled elsewhere: Cache.insert_compiled, and a CallProxy of that."""

import gc
import weakref
from typing import Any

import pytest
from core_support import Array, Hooks, Hostile, Linear, called, core, make_jit


class CompiledOptions(Hooks):
    """Hooks that make no variants."""

    def compile(self, f: Any, variant: Any) -> Any:
        raise LookupError(variant.structure)


def precompiled(fun: Any, *args: Any, may_raise: bool = False, call: Any = None) -> tuple[Any, Any]:
    """A FilterJit with only the variant that was compiled for `args`, and the variant."""
    f, variant = called(fun, *args)
    cache, arrays = f._parts()
    options = CompiledOptions(cache.hooks.registry)
    own = core.Cache(options.registry, cache.function, cache.signature, options, 1, {})
    given = variant.call if call is None else call
    inserted = own.insert_compiled(variant.structure, given, variant.outputs, may_raise)
    g = core.FilterJit._rebuild(own, arrays)
    g.keep = f  # the callable holds it weakly
    return g, inserted


class TestInsertCompiled:
    def test_hits_and_misses(self) -> None:
        f, variant = precompiled(lambda x, n: {"x": x, "n": n}, Array(1), 3)
        x = Array(2)
        assert f(x, 3) == {"x": x, "n": 3} == f(n=3, x=x)
        assert f._hooks.calls == [] and (variant.hits, variant.num_traces) == (2, 1)
        for args in [(x, 4), (x, 3.0), (3, 3), (x, [3]), (x, True)]:
            with pytest.raises(LookupError):
                f(*args)
        assert f._parts()[0].variants() == [variant] and f(x, 3)["x"] is x
        assert precompiled(lambda n: n, 3)[0](3) == 3

    def test_a_function_with_arrays(self) -> None:
        cls: Any = type("Model", (Linear,), {"__call__": lambda self, x: (self.weight, x)})
        linear = cls(weight=Array(1), bias=None, size=2, activation=None)
        f, variant = precompiled(linear, Array(2))
        x = Array(3)
        assert f(x) == (linear.weight, x) and variant.function.num_leaves == 1

    def test_waiting(self) -> None:
        for may_raise in (False, True):
            f, _ = precompiled(lambda x: x, Array(1), may_raise=may_raise)
            f(Array(2))
            assert f._hooks.calls == ["before_raising_call", "wait"] * may_raise

    def test_the_oldest_is_evicted(self) -> None:
        f, first = precompiled(lambda x, n: x, Array(1), 3)
        cache = f._parts()[0]
        other = make_jit(lambda x, n: x, Hooks(cache.hooks.registry))
        structure = other._find_or_compile(Array(1), 4)[0].structure
        second = cache.insert_compiled(structure, first.call, first.outputs, False)
        assert cache.variants() == [second]
        assert f._find_or_compile(Array(1), 4)[0] is second

    def test_calls_that_return_no_output_of_theirs(self) -> None:
        for call in (lambda x: x, len, 3):
            f, _ = precompiled(lambda x: x, Array(1), call=call)
            with pytest.raises(TypeError, match=r"not Output|not callable|no len"):
                f(Array(2))
        f, variant = called(lambda x: x, Array(1))
        cache, arrays = f._parts()
        own = core.Cache(cache.hooks.registry, cache.function, cache.signature, cache.hooks, 1, {})
        own.insert_compiled(variant.structure, variant.call, (), False)
        with pytest.raises(RuntimeError, match="does not belong"):
            core.FilterJit._rebuild(own, arrays)(Array(2))

    def test_a_static_that_raises_or_clears(self) -> None:
        hostile = Hostile()
        f, variant = precompiled(lambda x, n: x, Array(1), hostile)
        cache = f._parts()[0]
        assert f(Array(2), Hostile()) is not None
        hostile.on_eq = cache.clear
        with pytest.raises(LookupError):
            for _ in range(3):
                f(Array(2), Hostile())
        hostile.on_eq = lambda: 1 / 0
        with pytest.raises((ZeroDivisionError, LookupError)):
            f(Array(2), Hostile())
        assert variant.num_traces == 1


class Details:
    """The attributes of a proxy."""

    __doc__ = "Not the proxy's."
    name = "details"
    broken = property(lambda self: 1 / 0)


def compiled(fun: Any, *args: Any) -> Any:
    return core.CallProxy(precompiled(fun, *args)[0], (), Details())


class TestProxy:
    def test_calls(self) -> None:
        c = compiled(lambda x, n, **kw: (x, n, kw), Array(1), 3)
        x = Array(2)
        assert c(x, 3) == c(x, n=3) == c(n=3, x=x) == c(*[x], n=3) == (x, 3, {})
        for args in [(), (x,), (x, 3, 4)]:
            with pytest.raises(TypeError):
                c(*args)
        for args, kwargs in (((x, 4), {}), ((x, 3), {"other": x})):
            with pytest.raises(LookupError):
                c(*args, **kwargs)

    def test_keywords_and_vectorcall(self) -> None:
        c = core.CallProxy(function=precompiled(lambda x: x, Array(1))[0], args=(), attributes=None)
        x = Array(2)
        assert list(map(c, [x, x])) == [x, x] and c.__call__(x) is type(c).__call__(c, x) is x

    @pytest.mark.parametrize("cycle", [False, True])
    def test_it_is_freed(self, cycle: bool) -> None:
        c = compiled(lambda x: x, Array(1))
        c(Array(2))
        ref, inner = weakref.ref(c), weakref.ref(c._attributes)
        assert gc.is_tracked(c) and c._attributes in gc.get_referents(c)
        if cycle:
            c._attributes.me = c
        del c
        assert (ref() is not None) == cycle
        gc.collect()
        assert ref() is None is inner()

    def test_it_dies_in_its_own_call(self) -> None:
        box: list[Any] = []

        def fun(x: Any) -> Any:
            box.clear()
            gc.collect()
            return x

        box.append(compiled(fun, Array(1)))
        x = Array(2)
        assert box[0](x) is x and box == []
