"""Calls that fail: what they raise, and the state of the cache afterwards."""

from typing import Any

import pytest
from core_support import Array, Hooks, Hostile, Unhashable, make_jit, make_registry, variants
from outcome_support import fail, raised


@pytest.mark.parametrize(
    "hook",
    [
        *("prepare", "compile", "inspect_new_trace", "wait", "before_raising_call"),
        *("raise_binding_error", "translate_error"),
    ],
)
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_error_leaves_it_usable(hook: str, error: type[BaseException]) -> None:
    f = make_jit(lambda x, n=0: 1 / n if n else x)
    options = f._hooks
    options.may_raise = True
    x = Array()

    def fail_in_hook(*args: Any) -> None:
        raise error("on purpose")

    def attempt() -> None:
        if hook == "before_raising_call":  # called in a hit only
            f(x)
        if hook == "raise_binding_error":
            f(1, 2, 3)
        elif hook == "translate_error":
            f(x, "not a number")
        else:
            f(x)

    options.on[hook] = fail_in_hook
    ignored = hook == "translate_error" and issubclass(error, Exception)
    raised(TypeError if ignored else error, attempt)
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
    raised(ZeroDivisionError, f, Array(), 0)
    assert len(variants(f)) == 1
    f = make_jit(lambda x: 1 // (not isinstance(x.value, str)))
    f(Array(1))
    raised(ZeroDivisionError, f, Array("a"))
    f(Array(2))
    assert f._hooks.count("compile") == 1, "a retrace that fails keeps the variant"


def test_a_call_that_fails_evicts_no_variant(registry: Any) -> None:
    f = make_jit(lambda x, n: 1 // n, Hooks(registry, maxsize=3))
    for n in (1, 2, 3):
        f(Array(), n)
    before = set(variants(f))
    for _ in range(3):
        raised(ZeroDivisionError, f, Array(), 0)
    assert set(variants(f)) == before
    f(Array(), 4)
    after = set(variants(f))
    assert len(after) == 3 and len(after - before) == 1
    f._find_or_compile(Array(), 5)
    assert len(variants(f)) == 3


def test_arguments_of_translate_error() -> None:
    seen: list[Any] = []
    f = make_jit(lambda x, n: 1 // n)
    f._hooks.on["translate_error"] = lambda *args: seen.append(args)
    x = Array()
    raised(ZeroDivisionError, f, x, 0)
    with pytest.raises(TypeError, match="unhashable"):
        f([x], Unhashable())
    (g, exception, variant, arrays), (_, second, none, more) = seen
    assert g is f and type(exception) is ZeroDivisionError and arrays == (x,)
    assert variant.structure.num_leaves == 1
    assert second.__filterjit_error_context__[:2] == ("hash", ["n"])
    assert none is None and more == (x,)


def test_translate_error_replaces_the_exception() -> None:
    class Translating(Hooks):
        answer: Any = None

        def translate_error(self, f: Any, exception: Any, variant: Any, arrays: Any) -> Any:
            self._note("translate_error")
            return self.answer

    options = Translating(make_registry())
    f = make_jit(fail, options)
    for options.answer, expected in (
        (KeyError("k"), KeyError),
        (None, ZeroDivisionError),
        (3, ZeroDivisionError),
        (KeyError, ZeroDivisionError),
    ):
        raised(expected, f)
    assert options.count("translate_error") == 4


def test_interrupts_are_not_translated() -> None:
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


def test_raise_binding_error_that_raises_nothing() -> None:
    f = make_jit(lambda x: x)
    f._hooks.raise_binding_error = lambda *args: None
    with pytest.raises(TypeError, match="do not fit"):
        f()
