"""The hooks of `options`, which the core calls."""

import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from core_support import Array, Linear, called, deferred, make_jit, variants
from outcome_support import fail, raised


def test_programs_that_can_raise() -> None:
    f = make_jit(lambda x: x)
    f._hooks.may_raise = True
    f(Array()), f(Array())
    assert f._hooks.calls[:4] == ["prepare", "compile", "inspect_new_trace", "wait"]
    assert f._hooks.calls[4:] == ["before_raising_call", "wait"]
    f = make_jit(lambda x: x)
    for f._hooks.may_raise in (None, None, False, False):  # it does not know yet
        f(Array())
    again = ["before_raising_call", "inspect_new_trace"]
    assert f._hooks.calls[2:] == ["inspect_new_trace", *again, *again]


def test_deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda u: unraisable.append(u.exc_type))
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
    raised(ZeroDivisionError, f, Array(0.0))
    assert ran == ["last", "first"] * 2 and unraisable == []
    f._hooks.on["before_raising_call"] = lambda variant: variant.defer(fail)
    assert f(Array(1)) == 1 and unraisable == [ZeroDivisionError]


def test_what_is_deferred_belongs_to_a_thread() -> None:
    """Each thread runs its own, and what it deferred last first."""
    ran: list[Any] = []
    _, variant = called(lambda x: x, Array())

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


# ---- answers that are wrong ----


@pytest.mark.parametrize("answer", [None, (), (1, 2), ("cache", ()), [1, 2]], ids=repr)
def test_bad_answers_of_prepare(answer: Any) -> None:
    f = make_jit(lambda x: x)
    f._hooks.prepare = lambda f: answer
    for call in (lambda: f(1), f._parts, lambda: hash(f), lambda: f._find_or_compile(1)):
        with pytest.raises(TypeError, match=r"prepare\(\) must return"):
            call()


@pytest.mark.parametrize("arrays", [(), (Array(), Array())], ids=len)
def test_prepare_that_returns_another_number_of_arrays(arrays: Any) -> None:
    f = make_jit(type("Held", (Linear,), {"__call__": lambda self, x: x})(weight=Array()))
    cache, _ = f._parts()
    g = make_jit(lambda x: x)
    g._hooks.prepare = lambda g: (cache, arrays)
    for call in (lambda: g(1), g._parts, lambda: hash(g), lambda: g == f, lambda: f == g):
        with pytest.raises(ValueError, match=f"{len(arrays)} arrays, .* has 1"):
            call()


def test_prepare_that_calls_the_function_forever() -> None:
    f = make_jit(lambda x: x)
    f._hooks.on["prepare"] = lambda f: f(1)
    raised(RecursionError, f, 1)


@pytest.mark.parametrize("answer", [None, 3, (1, 2)])
def test_bad_answers_of_a_callable(answer: Any) -> None:
    f = make_jit(lambda x: x)
    f._hooks.compile = lambda f, variant: lambda *arrays: answer
    with pytest.raises(TypeError, match="not Output"):
        f(Array())
    assert variants(f) == []
    f._hooks.compile = lambda f, variant: answer
    with pytest.raises(TypeError, match="not callable"):
        f(Array())


# ---- callables that are set, and called again ----


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
    bad: list[Callable[[], Any]] = [
        lambda: setattr(variant, "call", 3),
        lambda: setattr(variant, "call", None),
        lambda: delattr(variant, "call"),
    ]
    for change in bad:
        with pytest.raises(TypeError, match="must be callable"):
            change()
    assert variant.call is call


def test_call_again() -> None:
    """A callable that was set and fails is replaced by the hook, or its error is raised."""
    f, variant = called(lambda x: x, Array())
    before, x = variant.call, Array()
    seen: list[Any] = []
    errors: list[type[BaseException]] = [KeyError, ValueError]

    def fails(*arrays: Any) -> Any:
        raise errors[0]

    def call_again(variant: Any, exception: Exception, arrays: Any) -> None:
        seen.append((type(exception), arrays))
        variant.call = before

    def fails_too(*args: Any) -> None:
        raise errors[1]

    variant.call = fails
    raised(KeyError, f, x)
    assert f._hooks.count("call_again") == 1 and not seen
    f._hooks.again = True
    raised(KeyError, f, x)  # the second time
    f._hooks.on["call_again"] = fails_too
    raised(ValueError, f, x)
    errors[0] = KeyboardInterrupt
    raised(KeyboardInterrupt, f, x)  # the hook is not asked
    errors[0] = KeyError
    f._hooks.on["call_again"] = call_again
    assert f(x) is x and seen == [(KeyError, (x,))] and f(x) is x
    g = make_jit(lambda x: 1 // x.value)
    raised(ZeroDivisionError, g, Array(0))
    assert "call_again" not in g._hooks.calls, "its callable was not set"
