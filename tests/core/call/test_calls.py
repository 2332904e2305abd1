"""Calls: the hooks that they call, what they return, what they raise, and what they leave behind."""

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from core_support import Array, Hostile, Linear, Unhashable, Value, core
from direct_support import Backend
from hooks_support import called, make_jit, variants
from outcome_support import Interrupt, fail, interrupt, raised


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize(
    "hook, args",
    [
        *((hook, (Array(),)) for hook in ("prepare", "compile", "run")),
        *(("failed", (1, 2, 3)), ("failed", (Array(), "not a number"))),
    ],
)
def test_a_hook_that_fails(hook: str, args: Any, error: type[BaseException]) -> None:
    f = make_jit(lambda x, n=0: 1 / n if n else x)
    options = f._hooks
    options.may_raise = True
    x = Array()

    def fail_in_hook(*args: Any) -> None:
        raise error("on purpose")

    options.on[hook] = fail_in_hook
    ignored = hook == "failed" and issubclass(error, Exception)
    raised(TypeError if ignored else error, f, *args)
    del options.on[hook]
    assert f(x) is x and f(x) is x
    raised(TypeError, f, 1, 2, 3)
    assert len(variants(f)) == 1


def test_arguments_of_failed() -> None:
    seen: list[Any] = []
    f = make_jit(lambda x, n: 1 // n)
    f._hooks.on["failed"] = lambda *args: seen.append(args)
    x = Array()
    raised(ZeroDivisionError, f, x, 0)
    assert "unhashable" in str(raised(TypeError, f, [x], Unhashable()))
    raised(TypeError, f, x, m=1)
    (g, exception, variant, arrays, given), (_, second, none, more, _), misfit = seen
    assert g is f and type(exception) is ZeroDivisionError and arrays == (x,) and given is None
    assert variant.structure.num_leaves == 1
    assert second.__filterjit_error_context__[:2] == ("hash", ["n"])
    assert none is None and more == (x,)
    assert misfit[1:] == (None, None, (), ((x,), {"m": 1}))


def test_answers_of_failed() -> None:
    """It may replace the exception, or make the call, but is not asked about an interrupt."""
    f = make_jit(lambda: 1 // 0)
    for f._hooks.answer, error in ((KeyError("k"), KeyError), (3, ZeroDivisionError)):
        raised(error, f)
    f._hooks.failed = lambda *args: None
    raised(ZeroDivisionError, f)
    assert "do not fit" in str(raised(TypeError, f, 1))
    f._hooks.failed = lambda *args: lambda *args, **kwargs: (args, kwargs)
    assert f() == ((), {}) and f(1, k=2) == ((1,), {"k": 2})
    raised(TypeError, f._find_or_compile, 1)  # no call is replaced
    f._hooks.failed = lambda *args: fail
    assert "on purpose" in str(raised(ZeroDivisionError, f))

    f = make_jit(interrupt)
    raised(Interrupt, f)
    assert f._hooks.count("failed") == 0


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


@pytest.mark.parametrize("answer", [None, 3, (1, 2)])
def test_bad_answers_of_a_callable(answer: Any) -> None:
    f = make_jit(lambda x: x)
    f._hooks.compile = lambda f, variant: lambda *arrays: answer
    assert "not Output" in str(raised(TypeError, f, Array()))
    assert variants(f) == []
    f._hooks.compile = lambda f, variant: answer
    assert "not callable" in str(raised(TypeError, f, Array()))


# ---- programs that can raise ----


def test_programs_that_can_raise() -> None:
    f = make_jit(lambda x: x)
    f._hooks.may_raise = True
    f(Array()), f(Array())
    assert f._hooks.calls == ["prepare", "compile", *["run"] * 2]
    f = make_jit(lambda x: x)
    for f._hooks.may_raise in (None, None, False, False):  # it does not know yet
        f(Array())
    assert f._hooks.calls[2:] == ["run"] * 3


def test_a_trace_that_is_made_again() -> None:
    f = make_jit(lambda x: x)
    for value in (1, 2, 0.5, 3, 0.25):
        assert f(Array(value)).value == value
    assert f._hooks.calls == ["prepare", "compile", "run", "finish"]
    (variant,) = variants(f)
    assert variant.num_traces == 2 and variant._may_raise(1) is False


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_the_end_of_a_call_that_was_not_expected_to_trace(error: Any) -> None:
    """The hook is told of its failure, and once more if it fails itself."""
    f = make_jit(lambda x: 1 // x.value)
    f(Array(1))
    outputs: list[Any] = []
    f._hooks.on["finish"] = lambda variant, arrays, output: outputs.append(output)
    raised(ZeroDivisionError, f, Array(0))
    assert outputs == [None]

    def fails(variant: Any, arrays: Any, output: Any) -> None:
        outputs.append(output)
        raise error

    f._hooks.on["finish"] = fails
    raised(error, f, Array(0))
    assert outputs == [None] * 3
    raised(error, f, Array(1.0))
    assert type(outputs[-2]) is core.Output and outputs[-1] is None
    del f._hooks.on["finish"]
    assert f(Array(1.0)) == 1 and f._hooks.count("compile") == 1, "it keeps the variant"


def test_a_trace_of_another_thread() -> None:
    """A call that did not expect a trace which is not inspected asks about it afterwards."""
    f, variant = called(lambda x: x, Array(1))
    before = variant._call

    def call(*arrays: Any) -> Any:
        return core.output_unflatten(*reversed(core.output_flatten(variant._finish(*arrays, int))))

    variant._switch(call)
    del f._hooks.calls[:]
    f(Array(1))
    assert f._hooks.calls == ["finish"]
    variant._switch(before)
    f(Array(1))
    assert f._hooks.calls == ["finish"]


def test_what_is_known_of_traces() -> None:
    _, variant = called(lambda x: x, Array(1))
    assert variant._may_raise(0) is False
    variant._set_may_raise(0, True)
    assert variant._may_raise(0) is True
    for number in (-1, 1):
        raised(RuntimeError, variant._may_raise, number)
        raised(RuntimeError, variant._set_may_raise, number, True)
    raised(TypeError, variant._may_raise, "a")
    raised(TypeError, variant._set_may_raise, 0)


# ---- callables that are switched, and called again ----


def test_a_callable_that_is_switched() -> None:
    f, variant = called(lambda x: x, Array())
    before = variant._call
    ran: list[Any] = []

    def call(*arrays: Any) -> Any:
        ran.append(arrays)
        return before(*arrays)

    variant._switch(call)
    x = Array()
    assert f(x) is x and ran == [(x,)] and variant._call is call
    for bad in (3, None):
        assert "must be callable" in str(raised(TypeError, variant._switch, bad))
    raised(AttributeError, setattr, variant, "_call", before)
    assert variant._call is call


def test_a_call_owns_its_callable() -> None:
    """The callable switches to another one, drops every other reference to itself, and goes on."""
    f, variant = called(lambda x: x, Array())
    before = variant._call
    alive: list[bool] = []

    class Switches:
        def __call__(self, *arrays: Any) -> Any:
            variant._switch(before)
            gc.collect()
            alive.append(weak() is not None)
            return before(*arrays)

    variant._switch(switches := Switches())
    weak = weakref.ref(switches)
    del switches
    x = Array()
    assert f(x) is x and f(x) is x and alive == [True]


def in_direct(f: Any) -> Any:
    return core.Direct(Backend().context, f, f)


@pytest.mark.parametrize("wrap", [lambda f: f, functools.partial, in_direct])
def test_a_call_that_ends_in_itself(wrap: Callable[[Any], Any]) -> None:
    f, variant = called(lambda x: x, Array())
    before = variant._call
    variant._switch(wrap(f))
    for _ in range(3):
        raised(RecursionError, f, Array())
    variant._switch(before)
    x = Array()
    assert f(x) is x


def test_a_switched_callable_that_fails() -> None:
    """The hook replaces it, or its error is raised."""
    f, variant = called(lambda x: x, Array())
    before, x = variant._call, Array()
    seen: list[Any] = []
    errors: list[type[BaseException]] = [KeyError, ValueError]

    def fails(*arrays: Any) -> Any:
        raise errors[0]

    def run(f: Any, variant: Any, arrays: Any, failed: Any) -> None:
        seen.append((type(failed), arrays))
        variant._switch(before)

    def fails_too(*args: Any) -> None:
        raise errors[1]

    variant._switch(fails)
    del f._hooks.calls[:]
    raised(KeyError, f, x)
    assert f._hooks.count("run") == 1 and not seen
    f._hooks.again = True
    raised(KeyError, f, x)  # the second time
    f._hooks.on["run"] = fails_too
    raised(ValueError, f, x)
    errors[0] = KeyboardInterrupt
    raised(KeyboardInterrupt, f, x)  # the hook is not asked
    errors[0] = KeyError
    f._hooks.on["run"] = run
    assert f(x) is x and seen == [(KeyError, (x,))] and f(x) is x
    g = make_jit(lambda x: 1 // x.value)
    g(Array(1))
    raised(ZeroDivisionError, g, Array(0))
    assert g._hooks.count("run") == 1, "its callable was not switched"


# ---- outputs: what a trace returns to JAX, and the results that are built from it ----


def test_output() -> None:
    f = make_jit(lambda x: (x, 1))
    x = Array()
    variant = f._find_or_compile(x)[0]
    output = variant._finish((x, [x]), lambda: 1 / 0)
    assert output.arrays == (x, x) and output.trace == -1
    for _ in range(2):
        assert core.output_flatten(output) == ((x, x), 0), "it keeps its number"
    again = core.output_unflatten(0, [1, 2])
    assert variant._result(again) == (1, [2])
    raised(TypeError, variant._result, 3)
    assert core.output_flatten(again) == ((1, 2), 0)
    for without_arrays in (1, [Unhashable()]):
        raised(ZeroDivisionError, variant._finish, without_arrays, lambda: 1 / 0)
    assert variant._result(variant._finish({"a": 1}, lambda: "marker")) == {"a": 1}
    number = type("Number", (int,), {})(7)
    output = core.output_unflatten(number, [3])
    assert output.trace == 7 and core.output_flatten(output)[1] is number


@pytest.mark.parametrize("trace, arrays", [(0, ()), (5, (1,)), (-1, (1,)), (-7, (1,))])
def test_outputs_with_a_wrong_trace_or_number_of_arrays(trace: int, arrays: Any) -> None:
    f = make_jit(lambda x: x)
    f._hooks.compile = lambda f, variant: lambda *xs: core.output_unflatten(trace, arrays)
    assert "does not belong" in str(raised(RuntimeError, f, Array()))


def test_the_outputs_of_a_variant() -> None:
    """There is one for each of its traces, and they outlive the variant."""
    f, x = make_jit(lambda x, n: (x, [x.value], Value("s"))), Array(1)
    variant, _, arrays = f._find_or_compile(x, 3)
    assert variant.outputs == () and repr(f._find(x, 3)[1]).startswith("Structure(")
    variant._call(*arrays)  # a trace outside of a call
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
