"""FilterJit and Cache: hits and misses, eviction, errors, a call within a call."""

import contextlib
import copy
import gc
import inspect
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    Array,
    Hostile,
    Linear,
    Options,
    Record,
    Unhashable,
    Value,
    core,
    make_jit,
    variants,
)


class Held(Linear):
    def __call__(self, x: Any) -> Any:
        return x


class HeldRecord(Record):
    def __call__(self, x: Any) -> Any:
        return x


class TestHits:
    def test_a_hit_calls_no_hook(self) -> None:
        f = make_jit(lambda x, n: (x, n))
        x = Array()
        for _ in range(5):
            assert f(x, 3) == (x, 3)
        assert f.options.calls == ["prepare", "compile", "settle"]
        assert len(variants(f)) == 1

    def test_statics_make_variants(self) -> None:
        f = make_jit(lambda x, n: type(n).__name__)
        names = [f(Array(), n) for n in (1, True, 1.0, 1, True, 1.0)]
        assert names == ["int", "bool", "float"] * 2
        assert f.options.count("compile") == 3 == len(variants(f))

    def test_by_keyword_or_position(self) -> None:
        f = make_jit(lambda x, y=2, *, z=3: (x, y, z))
        x = Array()
        assert f(x, 1) == f(x, y=1) == f(y=1, x=x) == f(x=x, y=1) == (x, 1, 3)
        assert f.options.count("compile") == 1
        assert f(x) == (x, 2, 3)
        # Defaults are not filled in.
        assert f(x, 2, z=3) == (x, 2, 3)
        assert f.options.count("compile") == 3

    def test_alternating_variants_are_found_again(self) -> None:
        f = make_jit(lambda n, x: n)
        for _ in range(3):
            assert [f(n, Array()) for n in range(50)] == list(range(50))
        assert f.options.count("compile") == 50

    def test_another_trace_of_one_variant(self) -> None:
        """The arrays' types are the callable's business; each trace has its own result."""
        f = make_jit(lambda x: (x, type(x.value)))
        for value in (1, 2.0, 1, "a", 2.0):
            x = Array(value)
            assert f(x) == (x, type(value))
        assert f.options.count("compile") == 1
        (variant,) = variants(f)
        assert variant.num_traces == 3

    def test_the_result_needs_no_arrays(self) -> None:
        f = make_jit(lambda x: {"n": [1, None]})
        assert f(Array()) == f(Array()) == {"n": [1, None]}

    def test_without_any_arrays(self) -> None:
        f = make_jit(lambda: None)
        assert f() is None and f() is None
        assert f.options.count("compile") == 1

    def test_a_changed_argument_is_seen(self) -> None:
        f = make_jit(lambda m: (m.weight, m.size, m.bias))
        m = Linear(weight=Array(), size=1, bias=[Array()])
        assert f(m) == (m.weight, 1, m.bias)
        m.size = 2
        assert f(m) == (m.weight, 2, m.bias)
        m.weight = Array()
        m.bias.append(Array())
        assert f(m) == (m.weight, 2, m.bias)
        assert f.options.count("compile") == 3

    def test_a_mutated_static(self) -> None:
        f = make_jit(lambda x, v: v.value)
        value = Value(1)
        assert f(Array(), value) == 1
        value.value = 2
        assert f(Array(), value) == 2
        value.value = 1
        assert f(Array(), value) == 1
        assert f.options.count("compile") == 2

    def test_many_arrays(self) -> None:
        f = make_jit(lambda *xs: xs[::-1])
        xs = tuple(Array(i) for i in range(1000))
        assert f(*xs) == f(*xs) == xs[::-1]
        assert f(*xs[1:]) == xs[:0:-1]

    def test_functions_that_hold_arrays(self) -> None:
        class Model(Linear):
            def __call__(self, x: Any) -> Any:
                return self.weight, x, self.size

        options = Options(make_jit(lambda: 0).options.registry)
        one, two = (Model(weight=Array(), size=1) for _ in range(2))
        f, g = make_jit(one, options), make_jit(two, options)
        x = Array()
        assert f(x) == (one.weight, x, 1)
        assert g(x) == (two.weight, x, 1)
        assert f.parts()[0] is g.parts()[0]
        assert options.count("compile") == 1
        assert f.parts()[1] == (one.weight,)


class TestHooks:
    def test_programs_that_can_raise(self) -> None:
        f = make_jit(lambda x: x)
        f.options.waits = True
        f(Array())
        assert f.options.calls == ["prepare", "compile", "settle", "wait"]
        f(Array())
        assert f.options.calls[4:] == ["guard", "wait"]

    def test_not_known_yet(self) -> None:
        f = make_jit(lambda x: x)
        f.options.waits = None
        f(Array())
        f(Array())
        f.options.waits = False
        f(Array())
        f(Array())
        assert f.options.calls[2:] == ["settle"] * 3

    @pytest.mark.parametrize(
        "hook", ["prepare", "compile", "settle", "wait", "guard", "misfit", "failed"]
    )
    @pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
    def test_an_error_leaves_it_usable(self, hook: str, error: type[BaseException]) -> None:
        f = make_jit(lambda x, n=0: 1 / n if n else x)
        options = f.options
        options.waits = True
        x = Array()

        def fail(*args: Any) -> None:
            raise error("on purpose")

        def attempt() -> None:
            if hook == "guard":
                f(x)
            if hook == "misfit":
                f(1, 2, 3)
            elif hook == "failed":
                f(x, "not a number")
            else:
                f(x)

        options.on[hook] = fail
        ignored = hook == "failed" and issubclass(error, Exception)
        with pytest.raises(TypeError if ignored else error):
            attempt()
        del options.on[hook]
        assert f(x) is x and f(x) is x
        with pytest.raises(TypeError):
            f(1, 2, 3)
        assert len(variants(f)) <= 2

    def test_the_function_fails(self) -> None:
        f = make_jit(lambda x, n: 1 // n)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                f(Array(), 0)
        assert variants(f) == [], "a variant that was never traced is not kept"
        assert f.options.count("failed") == 3
        assert f(Array(), 1) == 1
        with pytest.raises(ZeroDivisionError):
            f(Array(), 0)
        assert len(variants(f)) == 1

    def test_a_failing_retrace_keeps_the_variant(self) -> None:
        def fun(x: Any) -> Any:
            if isinstance(x.value, str):
                raise ZeroDivisionError
            return x

        f = make_jit(fun)
        f(Array(1))
        with pytest.raises(ZeroDivisionError):
            f(Array("a"))
        f(Array(2))
        assert f.options.count("compile") == 1

    def test_failed_gets_what_there_is(self) -> None:
        seen: list[Any] = []
        f = make_jit(lambda x, n: 1 // n)
        f.options.on["failed"] = lambda *args: seen.append(args)
        x = Array()
        with pytest.raises(ZeroDivisionError):
            f(x, 0)
        with pytest.raises(TypeError, match="unhashable"):
            f([x], Unhashable())
        (g, exception, variant, arrays), (_, second, none, more) = seen
        assert g is f and type(exception) is ZeroDivisionError and arrays == (x,)
        assert variant.structure.num_leaves == 1
        assert second.__filterjit_blame__[:2] == ("hash", ["n"])
        assert none is None and more == (x,)

    def test_failed_replaces_the_exception(self) -> None:
        class Translating(Options):
            answer: Any = None

            def failed(self, f: Any, exception: Any, variant: Any, arrays: Any) -> Any:
                return self.answer

        options = Translating(make_jit(lambda: 0).options.registry)
        f = make_jit(lambda: 1 // 0, options)
        for options.answer, expected in (
            (KeyError("k"), KeyError),
            (None, ZeroDivisionError),
            (3, ZeroDivisionError),
            (KeyError, ZeroDivisionError),
        ):
            with pytest.raises(expected):
                f()

    def test_interrupts_are_not_translated(self) -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        f = make_jit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            f()
        assert f.options.count("failed") == 0

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    @pytest.mark.parametrize("where", ["on_eq", "on_hash"])
    def test_interrupts_in_a_match(self, error: type[BaseException], where: str) -> None:
        """Ctrl-C while a static's ``__eq__`` runs: not to be lost."""
        f = make_jit(lambda x, s: x)
        f(Array(), Hostile())
        armed = [True]

        def interrupt() -> None:
            if armed:
                armed.clear()
                raise error

        with pytest.raises(error):
            f(Array(), Hostile(**{where: interrupt}))
        f(Array(), Hostile())
        assert f.options.count("compile") == 1

    def test_errors_of_statics_in_a_match(self) -> None:
        """Met again by the look-up, which names the path; then all is as before."""
        f = make_jit(lambda x, s: x)
        f(Array(), Hostile())

        def fail() -> None:
            raise ZeroDivisionError

        for bad, deed in ((Hostile(on_hash=fail), "hash"), (Hostile(on_eq=fail), "compare")):
            for _ in range(2):
                with pytest.raises(ZeroDivisionError) as info:
                    f(Array(), s=bad)
                assert info.value.__filterjit_blame__[:2] == (deed, ["s"])  # type: ignore[attr-defined]
        f(Array(), Hostile())
        assert f.options.count("compile") == 1

    def test_misfit_that_raises_nothing(self) -> None:
        f = make_jit(lambda x: x)
        f.options.misfit = lambda *args: None
        with pytest.raises(TypeError, match="do not fit"):
            f()

    @pytest.mark.parametrize("answer", [None, (), (1, 2), ("cache", ()), [1, 2]], ids=repr)
    def test_bad_answers_of_prepare(self, answer: Any) -> None:
        f = make_jit(lambda x: x)
        f.options.prepare = lambda f: answer
        for call in (lambda: f(1), f.parts, lambda: hash(f), lambda: f.lookup(1)):
            with pytest.raises((TypeError, SystemError)):
                call()

    @pytest.mark.parametrize("arrays", [(), (Array(), Array())], ids=len)
    def test_prepare_gives_other_arrays_than_the_function_holds(self, arrays: Any) -> None:
        f = make_jit(Held(weight=Array()))
        cache, _ = f.parts()
        g = make_jit(lambda x: x)
        g.options.prepare = lambda g: (cache, arrays)
        for call in (lambda: g(1), g.parts, lambda: hash(g), lambda: g == f, lambda: f == g):
            with pytest.raises(ValueError, match=f"{len(arrays)} arrays, .* has 1"):
                call()

    def test_prepare_that_calls_it_without_end(self) -> None:
        f = make_jit(lambda x: x)
        f.options.on["prepare"] = lambda f: f(1)
        with pytest.raises(RecursionError):
            f(1)

    def test_what_a_broken_wrapper_wraps(self) -> None:
        f = make_jit(HeldRecord(Array(), 1, 2))
        g = core.rebuild(*f.parts())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HeldRecord, "__init__", lambda *args, **kwargs: 1 / 0)
            for call in (lambda: g.__wrapped__, lambda: repr(g)):
                with pytest.raises(ZeroDivisionError):
                    call()
        assert repr(g).startswith("<filter_jit of HeldRecord(")

    def test_rebuild_of_what_is_no_sequence(self) -> None:
        cache, _ = make_jit(lambda x: x).parts()
        with pytest.raises(TypeError, match="not iterable"):
            core.rebuild(cache, 1)

    @pytest.mark.parametrize("answer", [None, 3, (1, 2)])
    def test_bad_answers_of_a_callable(self, answer: Any) -> None:
        f = make_jit(lambda x: x)
        f.options.compile = lambda f, variant: lambda *arrays: answer
        with pytest.raises(TypeError, match="not Output"):
            f(Array())
        assert variants(f) == []

    def test_what_compile_returns_must_be_callable(self) -> None:
        f = make_jit(lambda x: x)
        f.options.compile = lambda f, variant: 3
        with pytest.raises(TypeError, match="not callable"):
            f(Array())

    @pytest.mark.parametrize("trace, arrays", [(0, ()), (5, (1,)), (-1, (1,)), (-7, (1,))])
    def test_outputs_of_another(self, trace: int, arrays: Any) -> None:
        f = make_jit(lambda x: x)
        f.options.compile = lambda f, variant: lambda *xs: core.output_unflatten(trace, arrays)
        with pytest.raises(RuntimeError, match="does not belong"):
            f(Array())

    def test_outputs_of_another_variant(self) -> None:
        f = make_jit(lambda x, n: [x] * n)
        f(Array(), 1), f(Array(), 2)
        one, two = (f.lookup(Array(), n)[0] for n in (1, 2))
        with pytest.raises(RuntimeError, match="does not belong"):
            two.result(one.call(Array()))
        with pytest.raises(TypeError):
            two.result(3)

    def test_an_output_that_was_never_taken_apart(self) -> None:
        """As under ``jax.disable_jit``: the callable returns what `finish` gave."""

        class Eager(Options):
            def compile(self, f: Any, variant: Any) -> Any:
                return super().compile(f, variant).flat  # type: ignore[no-any-return]

        f = make_jit(lambda x, n: (x, n), Eager(make_jit(lambda: 0).options.registry))
        x = Array()
        assert f(x, 1) == f(x, 1) == (x, 1)
        assert f.options.calls == ["prepare", "compile"]

    def test_deferred(self) -> None:
        f = make_jit(lambda x: 1 // x.value)
        ran: list[Any] = []

        def guard(variant: Any) -> None:
            variant.defer(lambda: ran.append("first"))
            variant.defer(lambda: ran.append("last"))

        f.options.waits = True
        f(Array(1))
        f.options.on["guard"] = guard
        f(Array(1))
        assert ran == ["last", "first"]
        with pytest.raises(ZeroDivisionError):
            f(Array(0.0))
        assert ran == ["last", "first"] * 2

    def test_deferred_that_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import sys

        unraisable: list[Any] = []
        monkeypatch.setattr(sys, "unraisablehook", lambda u: unraisable.append(u.exc_type))
        f = make_jit(lambda x: x)
        f.options.waits = True
        f(Array())
        f.options.on["guard"] = lambda variant: variant.defer(lambda: 1 / 0)
        x = Array()
        assert f(x) is x
        assert unraisable == [ZeroDivisionError]


class TestCache:
    def test_the_least_recently_used_goes(self) -> None:
        options = Options(make_jit(lambda: 0).options.registry, maxsize=3)
        f = make_jit(lambda n: n, options)

        def statics() -> list[int]:
            return sorted(v.slots(())[1][0] for v in variants(f))

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

    def test_maxsize_one(self) -> None:
        options = Options(make_jit(lambda: 0).options.registry, maxsize=1)
        f = make_jit(lambda n, x: n, options)
        for n in (0, 0, 1, 1, 0):
            assert f(n, Array()) == n
        assert options.count("compile") == 3 and len(variants(f)) == 1

    def test_maxsize_must_be_positive(self) -> None:
        f = make_jit(lambda: 0)
        cache, _ = f.parts()
        for maxsize in (0, -1):
            with pytest.raises(ValueError, match="maxsize"):
                core.Cache(
                    f.options.registry, cache.function, cache.signature, f.options, maxsize, {}
                )

    def test_clear(self) -> None:
        f = make_jit(lambda n: n)
        f(1), f(2)
        f.parts()[0].clear()
        assert variants(f) == []
        assert f(2) == 2, "the last variant is no longer the guess"
        assert f(1) == 1
        assert f.options.count("compile") == 4

    def test_wrappers_share_it(self) -> None:
        def fun(x: Any) -> Any:
            return x

        options = Options(make_jit(lambda: 0).options.registry)
        f, g = make_jit(fun, options), make_jit(fun, options)
        f(Array()), g(Array())
        assert options.count("compile") == 1
        assert f == g and hash(f) == hash(g) and f is not g
        other = make_jit(lambda: 0, options)
        assert f != other and f != 3

    def test_wrappers_of_arrays_are_equal_to_themselves_alone(self) -> None:
        class Model(Linear):
            def __call__(self) -> Any:
                return self.weight

        options = Options(make_jit(lambda: 0).options.registry)
        model = Model(weight=Array())
        f, g = make_jit(model, options), make_jit(model, options)
        assert f == f and f != g
        with pytest.raises(TypeError, match="unhashable"):
            hash(f)

    def test_lookup(self) -> None:
        f = make_jit(lambda x, n: (n, x))
        x = Array()
        variant, arrays = f.lookup(x, 1)
        assert arrays == (x,) and variant.num_traces == 0
        assert variants(f) == [], "it has not been traced"
        assert variant.slots(arrays)[1] == [x, 1]
        with pytest.raises(ValueError, match="takes 1 arrays"):
            variant.slots(())
        with pytest.raises(ValueError, match="takes 1 arrays"):
            variant.slots([x])
        assert f(x, 1) == (1, x)
        (listed,) = variants(f)
        assert f.lookup(x, 1)[0] is listed is not variant

    def test_keep(self) -> None:
        f = make_jit(lambda n: n, Options(make_jit(lambda: 0).options.registry, maxsize=2))
        f(1), f(2)
        cache, _ = f.parts()
        made, again = (f.lookup(3)[0] for _ in range(2))
        cache.keep(made)
        assert made not in variants(f), "it has not been traced"
        core.output_flatten(made.call.flat())
        core.output_flatten(again.call.flat())
        for _ in range(2):
            cache.keep(made)
            assert made in variants(f) and len(variants(f)) == 2, "the oldest has gone"
        cache.keep(again)
        assert again not in variants(f), "there is an equal one"
        cache.clear()
        cache.keep(made)
        assert variants(f) == [], "it was cleared"
        other = make_jit(lambda n: -n)
        for wrong in (1, other.lookup(1)[0]):
            with pytest.raises(TypeError, match="of this cache"):
                cache.keep(wrong)


class TestReentrance:
    def test_it_calls_itself(self) -> None:
        def fun(x: Any, n: int) -> Any:
            return (n, f(x, n - 1)) if n else x

        f = make_jit(fun)
        x = Array()
        assert f(x, 3) == f(x, 3) == (3, (2, (1, x)))
        assert f.options.count("compile") == 4

    def test_the_same_variant_inside_itself(self) -> None:
        depth = [0]

        def fun(x: Any) -> Any:
            depth[0] += 1
            return f(x) if depth[0] < 5 else x

        f = make_jit(fun)
        x = Array()
        assert f(x) is x

    def test_without_end(self) -> None:
        f = make_jit(lambda x: f(x))
        with pytest.raises(RecursionError):
            f(Array())
        f.options.calls.clear()
        assert variants(f) == []

    @pytest.mark.parametrize("hook", ["compile", "settle", "wait", "guard", "function"])
    def test_the_cache_is_cleared_in_the_middle(self, hook: str) -> None:
        def clear(*args: Any) -> None:
            f.parts()[0].clear()
            gc.collect()

        def fun(x: Any, n: int) -> Any:
            if hook == "function":
                clear()
            return x, n

        f = make_jit(fun)
        f.options.waits = True
        f.options.on[hook] = clear
        x = Array()
        for n in (1, 1, 2, 2, 1):
            assert f(x, n) == (x, n)

    def test_the_last_reference_to_a_variant_goes_in_the_middle(self) -> None:
        """Eviction by a call inside the call: what runs is kept to the end."""

        def fun(x: Any, n: int) -> Any:
            if n < 10:
                f(x, n + 10)
                gc.collect()
            return x, n

        f = make_jit(fun, Options(make_jit(lambda: 0).options.registry, maxsize=1))
        x = Array()
        for n in (1, 2, 1):
            assert f(x, n) == (x, n)

    def test_eq_that_calls_it(self) -> None:
        def again() -> None:
            if depth:
                depth.pop()
                f(Array(), Hostile(on_eq=again))
                f.parts()[0].clear()

        depth = [1, 1, 1]
        f = make_jit(lambda x, s: x)
        for _ in range(3):
            x = Array()
            assert f(x, Hostile(on_eq=again)) is x

    def test_eq_that_clears_the_cache(self) -> None:
        f = make_jit(lambda x, s: x)

        def clear() -> None:
            f.parts()[0].clear()
            gc.collect()

        for i in range(5):
            x = Array()
            assert f(x, Hostile(on_eq=clear, equal=i % 2)) is x

    def test_compile_that_compiles_the_same(self) -> None:
        f = make_jit(lambda x: x)
        x = Array()

        def again(*args: Any) -> None:
            del f.options.on["compile"]
            assert f(x) is x

        f.options.on["compile"] = again
        assert f(x) is x
        assert len(variants(f)) == 1

    def test_its_name_is_deleted_in_the_middle(self) -> None:
        holder: dict[str, Any] = {}

        def fun(x: Any) -> Any:
            holder.clear()
            gc.collect()
            return x

        holder["f"] = make_jit(fun)
        x = Array()
        assert holder["f"](x) is x

    def test_threads(self) -> None:
        f = make_jit(lambda x, n: (x, n), Options(make_jit(lambda: 0).options.registry, maxsize=4))
        errors: list[BaseException] = []

        def work(seed: int) -> None:
            try:
                for i in range(300):
                    x = Array()
                    n = (i * seed) % 7
                    assert f(x, n) == (x, n)
            except BaseException as e:
                errors.append(e)

        threads = [threading.Thread(target=work, args=(s,)) for s in (1, 2, 3, 4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert errors == []


class TestObjects:
    def test_attributes(self) -> None:
        def fun(x: Any) -> Any:
            return x

        attributes = {"__name__": "fun", "__doc__": "Doc."}
        signature = inspect.signature(fun)
        f = core.FilterJit(fun, make_jit(fun).options, signature, attributes)
        assert f.__wrapped__ is fun and f.__name__ == "fun" and f.__doc__ == "Doc."
        assert f.given_signature is signature
        assert repr(f) == f"<filter_jit of {fun!r}>"
        f.anything = 1
        assert f.__dict__["anything"] == 1
        f.__dict__ = {"other": 2}
        assert f.other == 2 and not hasattr(f, "anything")

    def test_rebuild(self) -> None:
        class Model(Linear):
            def __call__(self, x: Any) -> Any:
                return self.weight, x

        f = make_jit(Model(weight=Array(), size=2))
        cache, arrays = f.parts()
        with pytest.raises(ValueError, match="holds 1 arrays, not 2"):
            core.rebuild(cache, [1, 2])
        new = Array()
        g = core.rebuild(cache, [new])
        x = Array()
        assert g(x) == (new, x) and f(x) == (arrays[0], x)
        assert g.__wrapped__.weight is new and g.__wrapped__ is g.__wrapped__
        assert type(g.__wrapped__) is Model and g.parts() == (cache, (new,))
        assert f.options.count("prepare") == f.options.count("compile") == 1

    def test_methods(self) -> None:
        class Thing(Linear):
            pass

        f = make_jit(lambda self, x, *rest, **more: (self, x, rest, more), attributes={"tag": 7})
        Thing.method = f  # type: ignore[attr-defined]
        thing: Any = Thing()
        assert Thing.method is f  # type: ignore[attr-defined]
        bound = thing.method
        assert type(bound) is core.BoundFilterJit
        assert bound.__self__ is thing and bound.__func__ is f and bound.tag == 7
        x = Array()
        built, *rest = bound(x)
        assert type(built) is Thing and rest == [x, (), {}]
        assert thing.method(x, 1, 2, 3, 4, 5, 6, 7, 8, k=1)[1:] == (x, tuple(range(1, 9)), {"k": 1})
        assert bound(*[x] * 20, **{f"k{i}": i for i in range(20)})[3]["k19"] == 19
        assert thing.method == bound and hash(thing.method) == hash(bound)
        assert Thing().method != bound and bound != f
        assert bound.lower(x, k=2) == (f, (thing, x), {"k": 2})
        assert bound.__wrapped__ == f.__wrapped__.__get__(thing)
        assert repr(bound).startswith("<bound <filter_jit of")
        assert bound.__reduce__() == (core.BoundFilterJit, (f, thing))
        with pytest.raises(AttributeError):
            _ = bound.nothing

    def test_bound_called_without_room_before_the_arguments(self) -> None:
        f = make_jit(lambda self, *args, **kw: (self, args, kw))
        bound = core.BoundFilterJit(f, 5)
        for n in (0, 1, 6, 7, 8, 30):
            args = tuple(range(n))
            assert bound(*args) == (5, args, {})
            assert list(map(bound, args)) == [(5, (a,), {}) for a in args]
            assert bound.__call__(*args, k=n) == (5, args, {"k": n})

    def test_hooks_for_lower_and_pickle(self) -> None:
        def fun() -> None:
            pass

        f = make_jit(fun)
        assert f.lower(1, a=2) == (f, (1,), {"a": 2})
        assert f.lower() == (f, (), {})
        assert copy.copy(f) is fun
        with pytest.raises((pickle.PicklingError, AttributeError)):
            pickle.dumps(f)

    def test_hooks_of_methods(self) -> None:
        f = make_jit(lambda self, x: x)
        f.__dict__["__module__"] = "somewhere"
        bound = core.BoundFilterJit(f, 5)
        assert bound.__module__ == "somewhere"
        for name in ("trace", "eval_shape", "explain", "warm_up"):
            setattr(f.options, name, lambda f, args, kwargs, name=name: (name, f, args, kwargs))
            assert getattr(f, name)(1, a=2) == (name, f, (1,), {"a": 2})
            assert getattr(f, name)() == (name, f, (), {})
        for name in ("trace", "eval_shape", "explain"):
            assert getattr(bound, name)(1, a=2) == (name, f, (5, 1), {"a": 2})
        f.options.warm_up = lambda f, args, kwargs: (f, args, kwargs)
        f.__dict__["options"] = f.options
        assert bound.warm_up(1, a=2) == (bound, (1,), {"a": 2})
        assert bound.warm_up() == (bound, (), {})
        for name in ("report", "cache_info", "clear_cache"):
            setattr(f.options, name, lambda f, name=name: (name, f))
            assert getattr(f, name)() == (name, f)
        f.options.variants = lambda f: [f]
        assert f.variants == [f]

    def test_methods_of_what_cannot_be_compared(self) -> None:
        f, g = (make_jit(lambda self: 1) for _ in "ab")
        g.options.on["prepare"] = lambda g: 1 / 0
        a, b = (core.BoundFilterJit(x, 5) for x in (f, g))
        for call in (lambda: a == b, lambda: hash(b), lambda: f == g):
            with pytest.raises(ZeroDivisionError):
                call()

    def test_a_trace_outside_of_a_call(self) -> None:
        f = make_jit(lambda x: [x, 1])
        x = Array()
        variant, arrays = f.lookup(x)
        assert variant.outputs == ()
        variant.call(*arrays)
        (structure,) = variant.outputs
        assert structure.unflatten([x]) == [x, 1]
        done: list[int] = []
        for i in range(3):
            variant.defer(lambda i=i: done.append(i))
        variant.run_deferred()
        variant.run_deferred()
        assert done == [2, 1, 0]
        assert repr(f.peek(x)[1]).startswith("Structure(")

    def test_hits_are_timed(self) -> None:
        f = make_jit(lambda x: x)
        f(Array())
        cache = f.parts()[0]
        assert cache.hit_time == 0
        cache.timed = 1
        f(Array())
        (variant,) = cache.variants()
        assert cache.hit_time > 0 and variant.hit_time == cache.hit_time

    @pytest.mark.parametrize("name", ["NodeKind", "Structure", "Variant", "Output"])
    def test_types_that_cannot_be_made(self, name: str) -> None:
        cls = getattr(core, name, None)
        if cls is not None:
            with pytest.raises(TypeError):
                cls()

    def test_arguments_of_constructors(self) -> None:
        bad: list[Callable[[], Any]] = [
            lambda: core.FilterJit(),
            lambda: core.FilterJit(1, 2, 3, 4),
            lambda: core.Cache(),
            lambda: core.Cache(1, 2, 3, 4, 5, {}),
            lambda: core.BoundFilterJit(1),
            lambda: core.Signature(),
        ]
        for call in bad:
            with pytest.raises(TypeError):
                call()

    def test_output(self) -> None:
        f = make_jit(lambda x: (x, 1))
        x = Array()
        variant, arrays = f.lookup(x)
        output = variant.finish((x, [x]), lambda: 1 / 0)
        assert output.arrays == (x, x) and output.trace == -1
        assert core.output_flatten(output) == ((x, x), 0)
        assert core.output_flatten(output) == ((x, x), 0), "once"
        again = core.output_unflatten(0, [1, 2])
        assert variant.result(again) == (1, [2])
        assert core.output_flatten(again) == ((1, 2), 0)
        with pytest.raises(ZeroDivisionError):
            variant.finish(1, lambda: 1 / 0)
        with pytest.raises(TypeError):
            variant.finish(1)
        with contextlib.suppress(ZeroDivisionError):
            variant.finish([Unhashable()], lambda: 1 / 0)
        assert variant.result(variant.finish({"a": 1}, lambda: "marker")) == {"a": 1}
        assert len(arrays) == 1


def test_a_call_that_fails_evicts_nobody(registry: Any) -> None:
    f = make_jit(lambda x, n: 1 // n, Options(registry, maxsize=3))
    for n in (1, 2, 3):
        f(Array(), n)
    before = set(f.parts()[0].variants())
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            f(Array(), 0)
    assert set(f.parts()[0].variants()) == before
    f(Array(), 4)
    after = set(f.parts()[0].variants())
    assert len(after) == 3 and len(after - before) == 1
    f.lookup(Array(), 5)
    assert len(f.parts()[0].variants()) == 3


def test_an_interrupt_while_an_error_is_explained(options: Options) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    f = make_jit(lambda x: 1 // 0, options)
    options.on["failed"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        f(Array())
