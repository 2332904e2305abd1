"""Who is timed: each peer turns a `Case` into a call that takes nothing.

The call has been warmed up: it is traced and compiled. It does not wait for its results (but
Equinox does inside). `arrays_in` of what it returns are the same arrays for each peer.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

import filterjit
from cases import Call, Case, Decorator, arrays_in

Peer = Callable[[Case], Call]


def flat(case: Case) -> Call:
    """``jax.jit`` of the same function from arrays to arrays: nothing to take apart or to put
    together. The floor of what goes through ``jax.jit``."""
    if case.makes_function:
        return functools.partial(jax.jit, case.function)
    traced, static = eqx.partition((case.args, dict(case.kwargs)), eqx.is_array)
    arrays, treedef = jax.tree.flatten(traced)

    def function(*arrays: Any) -> list[Any]:
        args, kwargs = eqx.combine(jax.tree.unflatten(treedef, arrays), static)
        return arrays_in(case.function(*args, **kwargs))

    carried = len(arrays_in(case.args[: case.carried]))
    return _warm(_calling(jax.jit(function), tuple(arrays), {}, carried))


def pytree(case: Case) -> Call:
    """``jax.jit`` of the same function on the same pytrees, less what is static: that was taken
    out beforehand, and the time for it is not counted."""
    if case.makes_function:
        return functools.partial(jax.jit, case.function)
    traced, static = eqx.partition((case.args, dict(case.kwargs)), eqx.is_array)

    def function(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = eqx.combine((args, kwargs), static)
        return eqx.filter(case.function(*args, **kwargs), eqx.is_array)

    args, kwargs = traced
    return _warm(_calling(jax.jit(function), args, kwargs, case.carried))


def equinox(case: Case) -> Call:
    """``equinox.filter_jit``."""
    return _filter_jitted(case, eqx.filter_jit)


def ours(case: Case) -> Call:
    """``filterjit.filter_jit``."""
    return _filter_jitted(case, filterjit.filter_jit)


def _filter_jitted(case: Case, decorator: Decorator) -> Call:
    if case.decorated is not None:
        return _warm(case.decorated(decorator))
    return _warm(_calling(decorator(case.function), case.args, case.kwargs, case.carried))


def _calling(jitted: Any, args: tuple[Any, ...], kwargs: Any, carried: int) -> Call:
    if not carried:
        return functools.partial(jitted, *args, **kwargs)  # no Python frame on the way
    rest = args[carried:]
    first = args[:carried]

    def call() -> Any:
        nonlocal first
        out = jitted(*first, *rest, **kwargs)
        first = out[:carried]
        return out

    return call


def _warm(call: Call) -> Call:
    for _ in range(3):
        jax.block_until_ready(arrays_in(call()))
    return call


PEERS: dict[str, Peer] = {"flat": flat, "pytree": pytree, "equinox": equinox, "ours": ours}
