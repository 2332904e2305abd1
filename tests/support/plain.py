"""Runs the same program on ``jax.jit`` and on `filterjit.jit`, and compares what it observes."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax

import filterjit

from .comparison import Traces, _without_addresses, comparable, observed, without


def described(f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Returns what a call returns or raises: the type and the first line of an error."""
    try:
        return comparable(f(*args, **kwargs))
    except Exception as e:
        return type(e).__name__, _without_addresses(str(e).split("\n")[0])


def compare(
    program: Callable[[Any, Traces], Iterator[Any]], handed_over: bool | None = False
) -> None:
    """Runs a generator of observations on both, which `program` gets with a counter of traces.

    `handed_over`: whether ``jax.jit`` has made some of the calls of `filterjit.jit`; None if either
    will do.
    """
    expected, theirs, _ = observed(program, jax.jit, lambda x: x)
    found, ours, made = observed(program, filterjit.jit, lambda x: x)
    assert found == expected
    jitted = (f for f in made if isinstance(f, filterjit.types.FilterJit))
    reasons = {reason for f in jitted for reason in f._hooks.handed_over}  # type: ignore[attr-defined]
    assert handed_over is None or bool(reasons) == handed_over, reasons
    assert handed_over is not False or ours <= theirs  # f(1) and f(x=1) are one program here


def on_both_jits(
    program: Callable[..., Iterator[Any]] | None = None, handed_over: bool | None = False
) -> Any:
    """Makes a test of a program, which gets `jit` and `traces`: see `compare`."""
    if program is None:
        return functools.partial(on_both_jits, handed_over=handed_over)

    def call(given: dict[str, Any]) -> None:
        compare(lambda jit, traces: program(jit=jit, traces=traces, **given), handed_over)

    return without("jit", "traces")(program, call)
