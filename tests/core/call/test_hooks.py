"""The hooks of `options`, which the core calls."""

import functools
import gc
import sys
import threading
import weakref
from typing import Any

import pytest
from core_support import Array, Linear, called, deferred, make_jit, variants


def test_programs_that_can_raise() -> None:
    f = make_jit(lambda x: x)
    f._hooks.may_raise = True
    f(Array())
    assert f._hooks.calls == ["prepare", "compile", "inspect_new_trace", "wait"]
    f(Array())
    assert f._hooks.calls[4:] == ["before_raising_call", "wait"]


def test_inspect_new_trace_that_does_not_know_yet() -> None:
    f = make_jit(lambda x: x)
    f._hooks.may_raise = None
    f(Array())
    f(Array())
    f._hooks.may_raise = False
    f(Array())
    f(Array())
    again = ["before_raising_call", "inspect_new_trace"]
    assert f._hooks.calls[2:] == ["inspect_new_trace", *again, *again]


def test_deferred() -> None:
    f = make_jit(lambda x: 1 // x.value)
    ran: list[Any] = []

    def before_raising_call(variant: Any) -> None:
        variant.defer(lambda: ran.append("first"))
        variant.defer(lambda: ran.append("last"))

    f._hooks.may_raise = True
    f(Array(1))
    f._hooks.on["before_raising_call"] = before_raising_call
    f(Array(1))
    assert ran == ["last", "first"]
    with pytest.raises(ZeroDivisionError):
        f(Array(0.0))
    assert ran == ["last", "first"] * 2


def test_deferred_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda u: unraisable.append(u.exc_type))
    f = make_jit(lambda x: x)
    f._hooks.may_raise = True
    f(Array())
    f._hooks.on["before_raising_call"] = lambda variant: variant.defer(lambda: 1 / 0)
    x = Array()
    assert f(x) is x
    assert unraisable == [ZeroDivisionError]


@pytest.mark.parametrize("answer", [None, (), (1, 2), ("cache", ()), [1, 2]], ids=repr)
def test_bad_answers_of_prepare(answer: Any) -> None:
    f = make_jit(lambda x: x)
    f._hooks.prepare = lambda f: answer
    for call in (lambda: f(1), f._parts, lambda: hash(f), lambda: f._find_or_compile(1)):
        with pytest.raises(TypeError, match=r"prepare\(\) must return"):
            call()


@pytest.mark.parametrize("arrays", [(), (Array(), Array())], ids=len)
def test_prepare_that_returns_another_number_of_arrays(arrays: Any) -> None:
    class Held(Linear):
        def __call__(self, x: Any) -> Any:
            return x

    f = make_jit(Held(weight=Array()))
    cache, _ = f._parts()
    g = make_jit(lambda x: x)
    g._hooks.prepare = lambda g: (cache, arrays)
    for call in (lambda: g(1), g._parts, lambda: hash(g), lambda: g == f, lambda: f == g):
        with pytest.raises(ValueError, match=f"{len(arrays)} arrays, .* has 1"):
            call()


def test_prepare_that_calls_the_function_forever() -> None:
    f = make_jit(lambda x: x)
    f._hooks.on["prepare"] = lambda f: f(1)
    with pytest.raises(RecursionError):
        f(1)


@pytest.mark.parametrize("answer", [None, 3, (1, 2)])
def test_bad_answers_of_a_callable(answer: Any) -> None:
    f = make_jit(lambda x: x)
    f._hooks.compile = lambda f, variant: lambda *arrays: answer
    with pytest.raises(TypeError, match="not Output"):
        f(Array())
    assert variants(f) == []


def test_a_callable_that_is_set() -> None:
    f, variant = called(lambda x: x, Array())
    before = variant.call
    ran: list[Any] = []

    def call(*arrays: Any) -> Any:
        ran.append(arrays)
        return before(*arrays)

    variant.call = call
    x = Array()
    assert f(x) is x and ran == [(x,)] and variant.call is call
    for bad in (3, None):
        with pytest.raises(TypeError, match="must be callable"):
            variant.call = bad
    with pytest.raises(TypeError, match="must be callable"):
        del variant.call
    assert variant.call is call


def test_call_again() -> None:
    """A callable that was set and fails is replaced by the hook, or its error is raised."""
    f, variant = called(lambda x: x, Array())
    before, x = variant.call, Array()
    seen: list[Any] = []

    def fail(*arrays: Any) -> Any:
        raise KeyError("mine")

    def call_again(variant: Any, exception: Exception, arrays: Any) -> None:
        seen.append((type(exception), arrays))
        variant.call = before

    variant.call = fail
    with pytest.raises(KeyError, match="mine"):
        f(x)
    assert f._hooks.count("call_again") == 1 and not seen
    f._hooks.on["call_again"] = call_again
    f._hooks.again = True
    assert f(x) is x and seen == [(KeyError, (x,))] and f(x) is x


def test_call_again_that_fails() -> None:
    f, variant = called(lambda x: x, Array())
    errors: list[type[BaseException]] = [KeyError, ValueError]

    def fail(*arrays: Any) -> Any:
        raise errors[0]

    def call_again(*args: Any) -> None:
        raise errors[1]

    variant.call = fail
    f._hooks.again = True
    with pytest.raises(KeyError):  # the second time
        f(Array())
    f._hooks.on["call_again"] = call_again
    with pytest.raises(ValueError):
        f(Array())
    errors[0] = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):  # the hook is not asked
        f(Array())


def test_callables_that_are_not_set_are_not_called_again() -> None:
    f = make_jit(lambda x: 1 // x.value)
    with pytest.raises(ZeroDivisionError):
        f(Array(0))
    assert "call_again" not in f._hooks.calls


def test_what_is_deferred_belongs_to_a_thread() -> None:
    """Each thread runs its own, and what it deferred last first."""
    ran: list[Any] = []
    _, variant = called(lambda x: x, Array())

    def defer(name: str) -> None:
        for i in range(2):
            variant.defer(lambda: ran.append((name, i)))  # noqa: B023

    def other() -> None:
        assert len(variant.deferred) == 1
        variant.defer(lambda: ran.append("first"))
        variant.defer(lambda: ran.append("last"))
        deferred.run_outside(variant, variant.deferrals)
        assert ran == [] and len(variant.deferred) == 3
        deferred.run_outside(variant, variant.deferrals - 1)
        deferred.run_outside(variant, 0)
        assert ran == ["last", "first"]

    mine = lambda: ran.append("mine")
    variant.defer(mine)
    thread = threading.Thread(target=other)
    thread.start(), thread.join()
    assert [function for _, _, function in variant.deferred] == [mine]
    deferred.run_outside(variant, 0)
    assert ran == ["last", "first", "mine"] and variant.deferred == []


def test_what_is_deferred_is_freed_with_the_variant() -> None:
    f, variant = called(lambda x: x, Array())
    work = functools.partial(id, variant)
    variant.defer(work)
    assert variant.deferred[0] in gc.get_referrers(work)
    dead = weakref.ref(work)
    del work, variant, f
    gc.collect()
    assert dead() is None
