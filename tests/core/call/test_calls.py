"""Calls: the hooks that they call, what they return, what they raise, and what they leave behind."""

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    Array,
    Hooks,
    Hostile,
    Linear,
    Unhashable,
    Value,
    called,
    core,
    deferred,
    make_jit,
    make_registry,
    variants,
)
from outcome_support import fail, raised


def test_a_hit_calls_no_hook() -> None:
    f = make_jit(lambda x, n: (x, n))
    x = Array()
    for _ in range(5):
        assert f(x, 3) == (x, 3)
    assert f._hooks.calls == ["prepare", "compile", "inspect_new_trace"]
    assert len(variants(f)) == 1


def test_functions_that_hold_arrays() -> None:
    class Model(Linear):
        def __call__(self, x: Any) -> Any:
            return self.weight, x, self.size

    options = Hooks(make_registry())
    one, two = (Model(weight=Array(), size=1) for _ in range(2))
    f, g = make_jit(one, options), make_jit(two, options)
    x = Array()
    assert f(x) == (one.weight, x, 1) and g(x) == (two.weight, x, 1)
    assert f._parts()[0] is g._parts()[0] and f._parts()[1] == (one.weight,)
    assert options.count("compile") == 1


def test_a_function_that_calls_itself() -> None:
    def fun(x: Any, n: int) -> Any:
        return (n, f(x, n - 1)) if n else x

    f, x = make_jit(fun), Array()
    assert f(x, 3) == f(x, 3) == (3, (2, (1, x)))
    assert f._hooks.count("compile") == 4


def test_a_function_that_calls_itself_forever() -> None:
    f = make_jit(lambda x: f(x))
    raised(RecursionError, f, Array())
    assert variants(f) == []


# ---- errors ----


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize(
    "hook, args",
    [
        *((hook, (Array(),)) for hook in ("prepare", "compile", "inspect_new_trace", "wait")),
        *(("before_raising_call", (Array(),)), ("raise_binding_error", (1, 2, 3))),
        ("translate_error", (Array(), "not a number")),
    ],
)
def test_a_hook_that_fails(hook: str, args: Any, error: type[BaseException]) -> None:
    f = make_jit(lambda x, n=0: 1 / n if n else x)
    options = f._hooks
    options.may_raise = True
    x = Array()
    if hook == "before_raising_call":  # in a hit only
        f(x)

    def fail_in_hook(*args: Any) -> None:
        raise error("on purpose")

    options.on[hook] = fail_in_hook
    ignored = hook == "translate_error" and issubclass(error, Exception)
    raised(TypeError if ignored else error, f, *args)
    del options.on[hook]
    assert f(x) is x and f(x) is x
    raised(TypeError, f, 1, 2, 3)
    assert len(variants(f)) == 1


def test_the_function_fails() -> None:
    f = make_jit(lambda x, n: 1 // n)
    for _ in range(3):
        raised(ZeroDivisionError, f, Array(), 0)
    assert variants(f) == [], "a variant that was never traced is not kept"
    assert f._hooks.count("translate_error") == 3
    assert f(Array(), 1) == 1
    f = make_jit(lambda x: 1 // (not isinstance(x.value, str)))
    f(Array(1))
    raised(ZeroDivisionError, f, Array("a"))
    f(Array(2))
    assert f._hooks.count("compile") == 1, "a retrace that fails keeps the variant"


def test_arguments_of_translate_error() -> None:
    seen: list[Any] = []
    f = make_jit(lambda x, n: 1 // n)
    f._hooks.on["translate_error"] = lambda *args: seen.append(args)
    x = Array()
    raised(ZeroDivisionError, f, x, 0)
    assert "unhashable" in str(raised(TypeError, f, [x], Unhashable()))
    (g, exception, variant, arrays), (_, second, none, more) = seen
    assert g is f and type(exception) is ZeroDivisionError and arrays == (x,)
    assert variant.structure.num_leaves == 1
    assert second.__filterjit_error_context__[:2] == ("hash", ["n"])
    assert none is None and more == (x,)


def test_answers_of_translate_error() -> None:
    """It may replace the exception, but is not asked about an interrupt."""
    f = make_jit(fail)
    for f._hooks.reason, error in (
        (KeyError("k"), KeyError),
        (3, ZeroDivisionError),
        (KeyError, ZeroDivisionError),
    ):
        raised(error, f)
    f._hooks.translate_error = lambda *args: None
    raised(ZeroDivisionError, f)

    def interrupt() -> None:
        raise KeyboardInterrupt

    f = make_jit(interrupt)
    raised(KeyboardInterrupt, f)
    assert f._hooks.count("translate_error") == 0


def test_errors_of_statics_in_a_match() -> None:
    """The look-up meets the error again and names its path; later calls work."""
    f = make_jit(lambda x, s: x)
    f(Array(), Hostile())
    for bad, operation in ((Hostile(on_hash=fail), "hash"), (Hostile(on_eq=fail), "compare")):
        for _ in range(2):
            error = raised(ZeroDivisionError, f, Array(), s=bad)
            assert error.__filterjit_error_context__[:2] == (operation, ["s"])
    f(Array(), Hostile())
    assert f._hooks.count("compile") == 1


# ---- answers of hooks that are wrong ----


@pytest.mark.parametrize(
    "answer", [None, (), (1, 2), ("cache", ()), [1, 2], "no arrays", "more arrays"]
)
def test_bad_answers_of_prepare(answer: Any) -> None:
    message = r"prepare\(\) must return"
    f = make_jit(type("Held", (Linear,), {"__call__": lambda self, x: x})(weight=Array()))
    g, cache = make_jit(lambda x: x), f._parts()[0]
    if isinstance(answer, str):
        answer = cache, (Array(),) * (2 * (answer == "more arrays"))
        message = f"{len(answer[1])} arrays, .* has 1"
    g._hooks.prepare = lambda g: answer
    for call in (lambda: g(1), g._parts, lambda: hash(g), lambda: g._find_or_compile(1)):
        with pytest.raises((TypeError, ValueError), match=message):
            call()
    for compare in (lambda: g == f, lambda: f == g):
        with pytest.raises((TypeError, ValueError), match=message):
            compare()


def test_prepare_that_calls_the_function_forever() -> None:
    f = make_jit(lambda x: x)
    f._hooks.on["prepare"] = lambda f: f(1)
    raised(RecursionError, f, 1)


@pytest.mark.parametrize("answer", [None, 3, (1, 2)])
def test_bad_answers_of_a_callable(answer: Any) -> None:
    f = make_jit(lambda x: x)
    f._hooks.compile = lambda f, variant: lambda *arrays: answer
    assert "not Output" in str(raised(TypeError, f, Array()))
    assert variants(f) == []
    f._hooks.compile = lambda f, variant: answer
    assert "not callable" in str(raised(TypeError, f, Array()))


def test_raise_binding_error_that_raises_nothing() -> None:
    f = make_jit(lambda x: x)
    f._hooks.raise_binding_error = lambda *args: None
    assert "do not fit" in str(raised(TypeError, f))


# ---- programs that can raise ----


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
    for _ in range(2):
        deferred.run_outside(variant, 0)
        assert ran == ["last", "first", "mine"] and variant.deferred == []


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
        *(functools.partial(setattr, variant, "call", value) for value in (3, None)),
        lambda: delattr(variant, "call"),
    ]
    for change in bad:
        assert "must be callable" in str(raised(TypeError, change))
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


# ---- outputs: what a trace returns to JAX, and the results that are built from it ----


def test_output() -> None:
    f = make_jit(lambda x: (x, 1))
    x = Array()
    variant, _ = f._find_or_compile(x)
    output = variant.finish((x, [x]), lambda: 1 / 0)
    assert output.arrays == (x, x) and output.trace == -1
    for _ in range(2):
        assert core.output_flatten(output) == ((x, x), 0), "it keeps its number"
    again = core.output_unflatten(0, [1, 2])
    assert variant.result(again) == (1, [2])
    assert core.output_flatten(again) == ((1, 2), 0)
    for without_arrays in (1, [Unhashable()]):
        raised(ZeroDivisionError, variant.finish, without_arrays, lambda: 1 / 0)
    assert variant.result(variant.finish({"a": 1}, lambda: "marker")) == {"a": 1}
    number = type("Number", (int,), {})(7)
    output = core.output_unflatten(number, [3])
    assert output.trace == 7 and core.output_flatten(output)[1] is number


@pytest.mark.parametrize("trace, arrays", [(0, ()), (5, (1,)), (-1, (1,)), (-7, (1,))])
def test_outputs_with_a_wrong_trace_or_number_of_arrays(trace: int, arrays: Any) -> None:
    f = make_jit(lambda x: x)
    f._hooks.compile = lambda f, variant: lambda *xs: core.output_unflatten(trace, arrays)
    assert "does not belong" in str(raised(RuntimeError, f, Array()))


def test_outputs_of_another_variant() -> None:
    f = make_jit(lambda x, n: [x] * n)
    f(Array(), 1), f(Array(), 2)
    one, two = (f._find_or_compile(Array(), n)[0] for n in (1, 2))
    assert "does not belong" in str(raised(RuntimeError, two.result, one.call(Array())))
    raised(TypeError, two.result, 3)


def test_the_outputs_of_a_variant() -> None:
    """There is one for each of its traces, and they outlive the variant."""
    f, x = make_jit(lambda x, n: (x, [x.value], Value("s"))), Array(1)
    variant, arrays = f._find_or_compile(x, 3)
    assert variant.outputs == () and repr(f._find(x, 3)[1]).startswith("Structure(")
    variant.call(*arrays)  # a trace outside of a call
    assert variant.outputs[0].unflatten([x]) == (x, [1], Value("s"))
    f(x, 3), f(Array("a"), 3)
    (variant,) = variants(f)
    first, second = variant.outputs
    assert variant.num_traces == 2 and first != second
    assert first == core.flatten(f._hooks.registry, (Array(), [1], Value("s")))[1]
    f(x, 3)
    assert repr(variant) == f"<Variant of {variant.structure!r}, traces: 2, hits: 1>"
    assert "n=3" in repr(variant)
    del f, variant
    assert "s" in repr(first)
