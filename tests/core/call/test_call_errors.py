"""Calls that fail: what they raise, and what they leave behind."""

from typing import Any

import pytest
from core_support import Array, Hostile, Options, Unhashable, make_jit, make_registry, variants


@pytest.mark.parametrize(
    "hook",
    [
        "prepare",
        "compile",
        "inspect_new_trace",
        "wait",
        "before_raising_call",
        "raise_binding_error",
        "translate_error",
    ],
)
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_error_leaves_it_usable(hook: str, error: type[BaseException]) -> None:
    f = make_jit(lambda x, n=0: 1 / n if n else x)
    options = f._options
    options.may_raise = True
    x = Array()

    def fail(*args: Any) -> None:
        raise error("on purpose")

    def attempt() -> None:
        if hook == "before_raising_call":  # asked in a hit alone
            f(x)
        if hook == "raise_binding_error":
            f(1, 2, 3)
        elif hook == "translate_error":
            f(x, "not a number")
        else:
            f(x)

    options.on[hook] = fail
    ignored = hook == "translate_error" and issubclass(error, Exception)
    with pytest.raises(TypeError if ignored else error):
        attempt()
    del options.on[hook]
    assert f(x) is x and f(x) is x
    with pytest.raises(TypeError):
        f(1, 2, 3)
    assert len(variants(f)) == 1


def test_the_function_fails() -> None:
    f = make_jit(lambda x, n: 1 // n)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            f(Array(), 0)
    assert variants(f) == [], "a variant that was never traced is not kept"
    assert f._options.count("translate_error") == 3
    assert f(Array(), 1) == 1
    with pytest.raises(ZeroDivisionError):
        f(Array(), 0)
    assert len(variants(f)) == 1


def test_a_failing_retrace_keeps_the_variant() -> None:
    def fun(x: Any) -> Any:
        if isinstance(x.value, str):
            raise ZeroDivisionError
        return x

    f = make_jit(fun)
    f(Array(1))
    with pytest.raises(ZeroDivisionError):
        f(Array("a"))
    f(Array(2))
    assert f._options.count("compile") == 1


def test_a_call_that_fails_evicts_nobody(registry: Any) -> None:
    f = make_jit(lambda x, n: 1 // n, Options(registry, maxsize=3))
    for n in (1, 2, 3):
        f(Array(), n)
    before = set(variants(f))
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            f(Array(), 0)
    assert set(variants(f)) == before
    f(Array(), 4)
    after = set(variants(f))
    assert len(after) == 3 and len(after - before) == 1
    f._lookup(Array(), 5)
    assert len(variants(f)) == 3


def test_failed_gets_what_there_is() -> None:
    seen: list[Any] = []
    f = make_jit(lambda x, n: 1 // n)
    f._options.on["translate_error"] = lambda *args: seen.append(args)
    x = Array()
    with pytest.raises(ZeroDivisionError):
        f(x, 0)
    with pytest.raises(TypeError, match="unhashable"):
        f([x], Unhashable())
    (g, exception, variant, arrays), (_, second, none, more) = seen
    assert g is f and type(exception) is ZeroDivisionError and arrays == (x,)
    assert variant.structure.num_leaves == 1
    assert second.__filterjit_error_context__[:2] == ("hash", ["n"])
    assert none is None and more == (x,)


def test_failed_replaces_the_exception() -> None:
    class Translating(Options):
        answer: Any = None

        def translate_error(self, f: Any, exception: Any, variant: Any, arrays: Any) -> Any:
            return self.answer

    options = Translating(make_registry())
    f = make_jit(lambda: 1 // 0, options)
    for options.answer, expected in (
        (KeyError("k"), KeyError),
        (None, ZeroDivisionError),
        (3, ZeroDivisionError),
        (KeyError, ZeroDivisionError),
    ):
        with pytest.raises(expected):
            f()


def test_an_interrupt_while_an_error_is_explained(options: Options) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    f = make_jit(lambda x: 1 // 0, options)
    options.on["translate_error"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        f(Array())


def test_interrupts_are_not_translated() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    f = make_jit(interrupt)
    with pytest.raises(KeyboardInterrupt):
        f()
    assert f._options.count("translate_error") == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["on_eq", "on_hash"])
def test_interrupts_in_a_match(error: type[BaseException], where: str) -> None:
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
    assert f._options.count("compile") == 1


def test_errors_of_statics_in_a_match() -> None:
    """Met again by the look-up, which names the path; then all is as before."""
    f = make_jit(lambda x, s: x)
    f(Array(), Hostile())

    def fail() -> None:
        raise ZeroDivisionError

    for bad, deed in ((Hostile(on_hash=fail), "hash"), (Hostile(on_eq=fail), "compare")):
        for _ in range(2):
            with pytest.raises(ZeroDivisionError) as info:
                f(Array(), s=bad)
            assert info.value.__filterjit_error_context__[:2] == (deed, ["s"])  # type: ignore[attr-defined]
    f(Array(), Hostile())
    assert f._options.count("compile") == 1


def test_misfit_that_raises_nothing() -> None:
    f = make_jit(lambda x: x)
    f._options.raise_binding_error = lambda *args: None
    with pytest.raises(TypeError, match="do not fit"):
        f()
