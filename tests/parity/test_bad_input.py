"""Errors before the function runs: they name the place, and leave the cache unchanged."""

import re
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import pytest

import filterjit
from support.comparison import Jit, Traces
from support.modules import Module
from support.nodes import Custom, Point
from support.statics import Constant
from zoo.classes import Mutable

ONE = jnp.array(1.0)


class Unhashable:
    """Compares by value and has no hash."""

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Unhashable)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<unhashable>"


class BadRepr(Unhashable):
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


UNHASHABLE: dict[str, tuple[Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]], str]] = {
    "first": (lambda v: ((v,), {}), "x"),
    "in *args": (lambda v: ((1, 2, 3, v), {}), "rest[2]"),
    "keyword-only": (lambda v: ((1,), {"k": v}), "k"),
    "in **kwargs": (lambda v: ((1,), {"b": v, "a": 1}), "more['b']"),
    "in a list and a tuple": (lambda v: (([ONE, (1, v)],), {}), "x[1][1]"),
    "in dicts": (lambda v: (({"b": 1, "a": {3: v}},), {}), "x['a'][3]"),
    "deep": (lambda v: (([{"k": Module((1, Point(v)))}],), {}), "x[0]['k'].a[1].x"),
    "in a node": (lambda v: ((Custom(1, v),), {}), "x[1]"),
}


def target(x: Any, *rest: Any, k: Any = None, **more: Any) -> Any:
    return ONE


@pytest.mark.parametrize("name", UNHASHABLE)
def test_unhashable_statics(jit: Jit, traces: Traces, ours: bool, name: str) -> None:
    """The error names the place. The next good call traces no more often, whether the bad call was
    the first or came later."""
    f = jit(traces.counting(target))
    make, path = UNHASHABLE[name]
    args, kwargs = make(5)
    bad = [{1, 2}, bytearray(b"a"), Mutable(), Constant([1]), Constant(ONE)]
    bad += [Unhashable(), set(range(10_000)), *([BadRepr()] if ours else [])]
    for value in bad:
        bad_args, bad_kwargs = make(value)
        with pytest.raises((TypeError, ValueError)) as info:
            f(*bad_args, **bad_kwargs)
        # By decision: an error of both types that names the place. Equinox raises JAX's ValueError,
        # which shows all static values at once.
        if ours:
            text = str(info.value)
            assert type(info.value) is filterjit.StaticArgumentError
            assert isinstance(info.value, TypeError) and isinstance(info.value, ValueError)
            assert f"`{path}`" in text and f"{type(value).__name__}`" in text
            assert ("<unhashable>" in text) == (type(value) is Unhashable) and len(text) < 600
        assert f(*args, **kwargs) == 1
        assert traces.count == 1, value


def test_path_in_a_method() -> None:
    jit = filterjit.filter_jit

    class M(eqx.Module):
        a: Any

        @jit
        def method(self, x: Any) -> Any:
            return x

        def __call__(self, x: Any) -> Any:
            return x

    for call, path in (
        (lambda: M(Unhashable()).method(ONE), "self.a"),
        (lambda: M(1).method({"k": Unhashable()}), "x['k']"),
        (lambda: jit(M([Unhashable()]))(ONE), "the function"),
        (lambda: jit(eqx.Partial(target, Unhashable()))(ONE), "the function"),
    ):
        with pytest.raises(filterjit.StaticArgumentError) as info:
            call()
        assert f"`{path}" in str(info.value)


class Rebel:
    """Raises in `__hash__` or in `__eq__` while `hash_fails` or `eq_fails` is set."""

    def __init__(self, name: str = "") -> None:
        self.name, self.hash_fails, self.eq_fails = name, False, False

    def __hash__(self) -> int:
        if self.hash_fails:
            raise ZeroDivisionError("in __hash__")
        return 7

    def __eq__(self, other: Any) -> bool:
        if self.eq_fails or getattr(other, "eq_fails", False):
            raise ZeroDivisionError("in __eq__")
        return isinstance(other, Rebel) and self.name == other.name


def notes(error: BaseException) -> str:
    return " ".join(getattr(error, "__notes__", []))


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [1, {"k": v}], lambda v: Module(v),
                                  lambda v: Point(1, v)],
                         ids=["itself", "list", "Module", "named tuple"])  # fmt: skip
@pytest.mark.parametrize("method", ["hash", "eq"])
def test_methods_that_raise(jit: Jit, traces: Traces, ours: bool, wrap: Any, method: str) -> None:
    """JAX turns the error into a ValueError; filterjit raises it unchanged, with a note."""
    f = jit(traces.counting(target))
    good, bad = wrap(Rebel("one")), Rebel("one" if method == "hash" else "two")
    assert f(good) == 1
    for _ in range(2):
        setattr(bad, f"{method}_fails", True)
        with pytest.raises((ZeroDivisionError, ValueError)) as info:
            f(wrap(bad))
        if ours:
            assert type(info.value) is ZeroDivisionError
            doing = "hashing" if method == "hash" else "comparing"
            assert f"while {doing} the static `x" in notes(info.value)
        setattr(bad, f"{method}_fails", False)
        assert f(good) == 1
    assert f(wrap(bad)) == 1
    assert traces.count == (1 if method == "hash" else 2)


@pytest.mark.parametrize(
    "bad, path",
    [
        ({1: ONE, "a": ONE}, "x"),
        ([{"k": {None: 1, 0: 2}}], "x[0]['k']"),
        (Point({1: 1, "a": 2}), "x.x"),
        ({(1, "a"): 1, ("a", 1): 2}, "x"),
    ],
    ids=["top", "nested", "named tuple", "tuples"],
)
def test_keys_that_cannot_be_sorted(
    jit: Jit, traces: Traces, ours: bool, bad: Any, path: str
) -> None:
    f = jit(traces.counting(target))
    assert f({"a": 1}) == 1
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=r"sort|compar|<") as info:
            f(bad)
        assert f({"a": 1}) == 1
    assert traces.count == 1
    if ours:
        assert f"`{path}`" in str(info.value)
        with pytest.raises(filterjit.StaticArgumentError) as plain:
            filterjit.jit(target)(bad)
        assert str(plain.value) == str(info.value)
        where = re.escape(f"dict at `result{path[1:]}` can")
        with pytest.raises(filterjit.StaticArgumentError, match=where):
            filterjit.jit(lambda: bad)()


# Calls with an array, and its path.
GIVEN: dict[str, tuple[Callable[[Jit, Any], Any], str]] = {
    "in a Module": (lambda jit, x: jit(lambda m: m.a[0] + 1)(Module([x])), "m.a[0]"),
    "the function": (
        lambda jit, x: jit(eqx.Partial(lambda w, y: y, x), keep_unused=True)(ONE),
        "the function.args[0]",
    ),
    "keyword": (lambda jit, x: jit(lambda x, *, k: x + k["a"])(ONE, k={"a": x}), "k['a']"),
}


@pytest.mark.parametrize("where", GIVEN)
def test_deleted_arrays(jit: Jit, ours: bool, where: str) -> None:
    call, path = GIVEN[where]
    gone = jnp.arange(3.0)
    call(jit, gone)
    gone.delete()
    for _ in range(2):
        with pytest.raises((RuntimeError, ValueError), match="deleted") as info:
            call(jit, gone)
        if ours:
            assert path in notes(info.value)
