"""Calling what was compiled elsewhere: Cache.insert_compiled, and a CallProxy of that."""

import gc
import weakref
from typing import Any

import pytest
from core_support import (
    Array,
    Hooks,
    Hostile,
    Linear,
    called,
    core,
    core_signature,
    make_jit,
    make_registry,
)
from node_support import Ambiguous
from thread_support import in_threads


class CompiledOptions(Hooks):
    """Hooks that make no variants."""

    def compile(self, f: Any, variant: Any) -> Any:
        raise LookupError(variant.structure)


def precompiled(fun: Any, *args: Any, may_raise: bool = False, maxsize: int = 1) -> tuple[Any, Any]:
    """A FilterJit with only the variant that was compiled for `args`, and the variant."""
    f, variant = called(fun, *args)
    cache, arrays = f._parts()
    options = CompiledOptions(cache.hooks.registry)
    own = core.Cache(
        options.registry,
        cache.function,
        cache.signature,
        options,
        maxsize,
        {"__name__": "precompiled"},
    )
    inserted = own.insert_compiled(variant.structure, variant.call, variant.outputs, may_raise)
    g = core.FilterJit._rebuild(own, arrays)
    g.keep = f  # the callable holds it weakly
    return g, inserted


class TestInsertCompiled:
    def test_a_call_is_a_hit(self) -> None:
        f, variant = precompiled(lambda x, n: {"x": x, "n": n}, Array(1), 3)
        x = Array(2)
        assert f(x, 3) == {"x": x, "n": 3} == f(n=3, x=x)
        assert f._hooks.calls == []
        assert (variant.hits, variant.num_traces) == (2, 1)
        assert f._parts()[0].variants() == [variant]

    def test_other_arguments_are_a_miss(self) -> None:
        f, variant = precompiled(lambda x, n: x, Array(1), 3)
        for args in [(Array(), 4), (Array(), 3.0), (3, 3), (Array(), [3]), (Array(), True)]:
            with pytest.raises(LookupError):
                f(*args)
        assert f._parts()[0].variants() == [variant]
        x = Array(5)
        assert f(x, 3) is x

    def test_a_function_with_arrays(self) -> None:
        linear = Linear(weight=Array(1), bias=None, size=2, activation=None)
        linear.__class__.__call__ = lambda self, x: (self.weight, x)  # type: ignore[attr-defined]
        try:
            f, variant = precompiled(linear, Array(2))
            x = Array(3)
            assert f(x) == (linear.weight, x) and variant.function.num_leaves == 1
        finally:
            del linear.__class__.__call__  # type: ignore[attr-defined]

    def test_no_arrays(self) -> None:
        f, _ = precompiled(lambda n: n, 3)
        assert f(3) == 3

    def test_waiting(self) -> None:
        for may_raise in (False, True):
            f, _ = precompiled(lambda x: x, Array(1), may_raise=may_raise)
            f(Array(2))
            assert f._hooks.calls == ["before_raising_call", "wait"] * may_raise

    def test_the_oldest_is_evicted(self) -> None:
        f, first = precompiled(lambda x, n: x, Array(1), 3)
        cache = f._parts()[0]
        _, other = called(lambda x, n: x, Array(1), 4)
        registry = cache.hooks.registry
        structure = (
            make_jit(lambda x, n: x, Hooks(registry))._find_or_compile(Array(1), 4)[0].structure
        )
        second = cache.insert_compiled(structure, first.call, first.outputs, False)
        assert cache.variants() == [second] and other is not second
        assert f._find_or_compile(Array(1), 4)[0] is second

    def test_an_output_of_a_trace_without_a_structure(self) -> None:
        f, variant = called(lambda x: x, Array(1))
        cache, arrays = f._parts()
        own = core.Cache(cache.hooks.registry, cache.function, cache.signature, cache.hooks, 1, {})
        own.insert_compiled(variant.structure, variant.call, (), False)
        with pytest.raises(RuntimeError, match="does not belong"):
            core.FilterJit._rebuild(own, arrays)(Array(2))

    def test_a_call_that_returns_no_output(self) -> None:
        f, variant = called(lambda x: x, Array(1))
        cache, arrays = f._parts()
        for call in (lambda x: x, None, 3):
            own = core.Cache(
                cache.hooks.registry, cache.function, cache.signature, cache.hooks, 1, {}
            )
            own.insert_compiled(variant.structure, call, variant.outputs, False)
            with pytest.raises(TypeError, match=r"not Output|not callable"):
                core.FilterJit._rebuild(own, arrays)(Array(2))

    def test_bad_arguments(self) -> None:
        f, variant = called(lambda x: x, Array(1))
        cache = f._parts()[0]
        structure, outputs = variant.structure, variant.outputs
        tree = core.flatten(cache.hooks.registry, (Array(),))[1]
        every = core.tree_flatten(cache.hooks.registry, (1, 2), True, None)[1]
        other = called(lambda x: x, Array(1))[1].structure
        before = cache.variants()
        for args, kind in [
            ((), TypeError),
            ((structure, variant.call, outputs), TypeError),
            ((None, variant.call, outputs, False), TypeError),
            ((structure, variant.call, list(outputs), False), TypeError),
            ((structure, variant.call, None, False), TypeError),
            ((tree, variant.call, outputs, False), ValueError),
            ((other, variant.call, outputs, False), ValueError),
            ((structure, variant.call, (1,), False), TypeError),
            ((structure, variant.call, (structure,), False), TypeError),
            ((structure, variant.call, (every,), False), TypeError),
            ((structure, variant.call, (outputs[0], None), False), TypeError),
        ]:
            with pytest.raises(kind):
                cache.insert_compiled(*args)
            assert cache.variants() == before

    def test_truth_that_raises(self) -> None:
        f, variant = called(lambda x: x, Array(1))
        with pytest.raises(ValueError, match="ambiguous"):
            f._parts()[0].insert_compiled(
                variant.structure, variant.call, variant.outputs, Ambiguous()
            )

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


def compiled(fun: Any, *args: Any) -> Any:
    return core.CallProxy(precompiled(fun, *args)[0], (), Details())


class TestProxy:
    def test_calls(self) -> None:
        c = compiled(lambda x, n, **kw: (x, n, kw), Array(1), 3)
        x = Array(2)
        assert c(x, 3) == c(x, n=3) == c(n=3, x=x) == (x, 3, {})
        assert c(*[x], n=3) == (x, 3, {})
        for args in [(), (x,), (x, 3, 4)]:
            with pytest.raises(TypeError):
                c(*args)
        with pytest.raises(LookupError):
            c(x, 4)
        with pytest.raises(LookupError):
            c(x, 3, other=x)

    @pytest.mark.parametrize(
        ("args", "kwargs"),
        [((), {}), ((1,), {}), ((None, None, None), {}), ((len, []), {}), ((), {"args": ()})],
    )
    def test_bad_arguments(self, args: Any, kwargs: Any) -> None:
        with pytest.raises(TypeError):
            core.CallProxy(*args, **kwargs)

    def test_attributes(self) -> None:
        c = compiled(lambda x: x, Array(1))
        details = c._attributes
        assert c.name == "details" and c.__doc__ == type(c).__doc__ != details.__doc__
        details.later = 3
        assert c.later == 3
        with pytest.raises(AttributeError, match="no_such"):
            _ = c.no_such
        for name in ("_attributes", "name", "other"):
            with pytest.raises((AttributeError, TypeError)):
                setattr(c, name, 1)
            with pytest.raises((AttributeError, TypeError)):
                delattr(c, name)
        with pytest.raises(TypeError):
            type(c).name = 3
        with pytest.raises(TypeError):
            getattr(c, 3)  # type: ignore[call-overload]

    def test_attributes_that_raise(self) -> None:
        class Raising:
            @property
            def broken(self) -> Any:
                raise ZeroDivisionError

        c = core.CallProxy(precompiled(lambda x: x, Array(1))[0], (), Raising())
        with pytest.raises(ZeroDivisionError):
            _ = c.broken

    def test_keywords_and_vectorcall(self) -> None:
        f, _ = precompiled(lambda x: x, Array(1))
        c = core.CallProxy(function=f, args=(), attributes=None)
        x = Array(2)
        assert list(map(c, [x, x])) == [x, x] and c.__call__(x) is x
        assert type(c).__call__(c, x) is x

    def test_a_cycle_is_freed(self) -> None:
        f, _ = precompiled(lambda x: x, Array(1))
        details = Details()
        c = core.CallProxy(f, (), details)
        details.compiled = c  # type: ignore[attr-defined]
        ref, inner = weakref.ref(c), weakref.ref(details)
        del c, details
        assert ref() is not None
        gc.collect()
        assert ref() is None is inner()

    def test_it_is_freed_at_once_without_a_cycle(self) -> None:
        c = compiled(lambda x: x, Array(1))
        details, ref = weakref.ref(c._attributes), weakref.ref(c)
        c(Array(2))
        assert gc.is_tracked(c) and c._attributes in gc.get_referents(c)
        del c
        assert ref() is None is details()

    def test_it_dies_in_its_own_call(self) -> None:
        box: list[Any] = []

        def fun(x: Any) -> Any:
            box.clear()
            gc.collect()
            return x

        box.append(compiled(fun, Array(1)))
        x = Array(2)
        assert box[0](x) is x and box == []

    def test_reentrancy(self) -> None:
        """The ``__eq__`` of a static calls it again."""
        hostile = Hostile()
        c = compiled(lambda x, n: x, Array(1), hostile)
        depth: list[int] = []
        x = Array(2)

        def again() -> None:
            if len(depth) < 5:
                depth.append(1)
                assert c(x, Hostile()) is x

        hostile.on_eq = again
        assert c(x, Hostile()) is x and len(depth) == 5

    def test_threads(self) -> None:
        c = compiled(lambda x, n: (x, n), Array(1), 3)

        def work(number: int) -> None:
            for _ in range(500):
                x = Array(2)
                assert c(x, 3) == (x, 3) and c.name == "details"

        in_threads(work)

    def test_many_die_in_cycles(self) -> None:
        for _ in range(200):
            c = compiled(lambda x: x, Array(1))
            c._attributes.me = c
        del c
        gc.collect()
        assert not [x for x in gc.get_objects() if type(x) is core.CallProxy]


def test_a_cache_of_another_registry() -> None:
    registry = make_registry()
    signature = core_signature(lambda x: x)
    function = core.flatten(registry, len)[1]
    cache = core.Cache(registry, function, signature, CompiledOptions(registry), 1, {})
    assert cache.variants() == [] and cache.maxsize == 1
    with pytest.raises(ValueError, match="not one of this cache's calls"):
        cache.insert_compiled(called(lambda x: x, Array())[1].structure, len, (), False)
