"""Runs the same code on Equinox and on filterjit, and compares what the two did."""

import collections
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np
import pytest

import filterjit

Jit = Callable[..., Any]
Body = Callable[[Jit], Any]


class Traces:
    """Counts how often a function is traced: call it, or `tick`, in its body."""

    def __init__(self) -> None:
        self.count = 0

    def tick(self) -> None:
        self.count += 1

    __call__ = tick

    def counting(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `fun`, with its signature, made to tick each time its Python code runs."""

        @functools.wraps(fun)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return fun(*args, **kwargs)

        return counted


def counting(jit: Jit, traces: Traces) -> Jit:
    """Returns a decorator that jits functions and counts their traces; `__wrapped__` is `jit`."""

    def decorator(fun: Any = None, **options: Any) -> Any:
        if fun is None:
            return functools.partial(decorator, **options)
        return jit(traces.counting(fun) if inspect.isfunction(fun) else fun, **options)

    return functools.update_wrapper(decorator, jit)


def comparable(x: Any) -> Any:
    """Returns all that can be seen of a value, as something that compares with ``==``.

    Types are given by name, since each run of a body makes its own classes; arrays with their
    dtype and weak type; dicts in their order.
    """
    kind = type(x).__qualname__
    if isinstance(x, jax.Array):
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return "key", str(x.dtype), x.shape, np.asarray(jax.random.key_data(x)).tolist()
        values = np.asarray(x).astype(complex if x.dtype.kind == "c" else object).tolist()
        return "Array", str(x.dtype), x.shape, x.weak_type, repr(values)
    if isinstance(x, (np.ndarray, np.generic)):
        return kind, str(x.dtype), x.shape, repr(x.tolist())
    if isinstance(x, collections.defaultdict):
        items = tuple((k, comparable(v)) for k, v in x.items())
        return kind, comparable(x.default_factory), items
    if isinstance(x, dict):
        return kind, tuple((comparable(k), comparable(v)) for k, v in x.items())
    if isinstance(x, (tuple, list)):
        return (kind, *(comparable(y) for y in x))
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        names = [f.name for f in dataclasses.fields(x)]
        own = {name: x.__dict__[name] for name in names if name in x.__dict__}
        # Equinox leaves its sentinel of a missing field in the __dict__ of a rebuilt Module.
        rest = {
            name: v
            for name, v in x.__dict__.items()
            if name not in own and type(v).__qualname__ != "_Missing"
        }
        return kind, comparable(own), comparable(rest)
    if callable(x) and hasattr(x, "__qualname__"):
        return "callable", x.__qualname__
    return kind, _without_addresses(repr(x))


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def same(one: Any, other: Any) -> bool:
    """Whether two trees have the same structure, static fields included, and the identical
    leaves."""
    (xs, structure), (ys, another) = jtu.tree_flatten(one), jtu.tree_flatten(other)
    return structure == another and str(structure) == str(another) and identical(xs, ys)


def identical(xs: Any, ys: Any) -> bool:
    """Whether two sequences hold the same objects."""
    return len(xs) == len(ys) and all(x is y for x, y in zip(xs, ys, strict=True))


def outcome(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns what a call returns, or the type of the exception that it raises."""
    try:
        return f(*args, **kwargs)
    except Exception as e:
        return type(e)


def first_line(error: BaseException) -> str:
    return _without_addresses(str(error).split("\n", 1)[0])


def runtime_message(error: BaseException) -> str:
    """Returns the message that was given to ``eqx.error_if``, without the text around it."""
    found = re.search(r"^equinox\.EquinoxRuntimeError: (.*?)\n\n-----", str(error), re.M | re.S)
    assert found is not None, str(error)
    return found[1]


def check(body: Body, jits: Iterable[Jit] = (eqx.filter_jit, filterjit.filter_jit)) -> Any:
    """Runs `body` with each of them, asserts that all return the same, and returns the first result,
    which is Equinox's."""
    first, *others = (body(jit) for jit in jits)
    for other in others:
        assert comparable(other) == comparable(first)
    return first


def on(*jits: Jit) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Makes a test of a function whose `jit` is each of these: see `check`. If it asks for `traces`,
    they must trace equally often too."""

    def make(body: Callable[..., Any]) -> Callable[..., None]:
        asks = "traces" in inspect.signature(body).parameters

        def run(jit: Jit, given: dict[str, Any]) -> Any:
            if not asks:
                return body(jit=jit, **given)
            traces = Traces()
            return body(jit=jit, traces=traces, **given), traces.count

        return without("jit", "traces")(
            body, lambda given: check(lambda jit: run(jit, given), jits)
        )

    return make


on_both = on(eqx.filter_jit, filterjit.filter_jit)


def without(*names: str) -> Callable[..., Callable[..., None]]:
    """Returns a function that makes a test: with the signature of a function without these
    parameters, which calls another function with its arguments, as a dict."""

    def make(body: Callable[..., Any], call: Callable[[dict[str, Any]], Any]) -> Any:
        @functools.wraps(body)
        def test(**given: Any) -> None:
            call(given)

        parameters = inspect.signature(body).parameters
        left = [x for name, x in parameters.items() if name not in names]
        test.__signature__ = inspect.Signature(left)  # type: ignore[attr-defined]
        return test

    return make


def check_error(body: Body, kind: type[BaseException], match: str | None = None) -> BaseException:
    """Asserts that `body` raises the same with both: the type, and the first line of the text."""
    with pytest.raises(kind, match=match) as of_equinox:
        body(eqx.filter_jit)
    with pytest.raises(kind, match=match) as of_filterjit:
        body(filterjit.filter_jit)
    assert type(of_filterjit.value) is type(of_equinox.value)
    assert first_line(of_filterjit.value) == first_line(of_equinox.value)
    return of_equinox.value


def observed(
    program: Callable[[Any, Traces], Iterable[Any]], jit: Jit, describe: Callable[[Any], Any]
) -> tuple[list[Any], int, list[Any]]:
    """Runs a generator of observations, which gets a decorator and a counter of traces. Returns what it
    yields, described, how often it traced, and the functions that it jitted."""
    made: list[Any] = []

    def decorator(fun: Any = None, **options: Any) -> Any:
        if fun is None:
            return functools.partial(decorator, **options)
        made.append(jit(fun, **options))
        return made[-1]

    traces = Traces()
    return [describe(x) for x in program(decorator, traces)], traces.count, made
