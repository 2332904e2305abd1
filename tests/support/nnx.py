"""Runs the same program on Flax's ``nnx.jit`` and on `filterjit.nnx.jit`, and compares all of it."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import filterjit.nnx
from filterjit._compat import _nnx_compat as compat

from .comparison import counting, observed

MODES = {
    "graph": {"graph": True, "graph_updates": True},
    "graph without updates": {"graph": True, "graph_updates": False},
    "tree": {"graph": False},
}
Program = Callable[[Any], Iterator[Any]]


def describe(x: Any, seen: dict[int, int] | None = None) -> Any:
    """Returns all that there is in a tree: types, values, metadata, and what occurs twice."""
    seen = {} if seen is None else seen
    if isinstance(x, (nnx.Variable, nnx.Pytree)):
        if id(x) in seen:
            return "again", seen[id(x)]
        seen[id(x)] = len(seen)
    if isinstance(x, nnx.Variable):
        metadata = {k: repr(v) for k, v in x.get_metadata().items()}
        return type(x).__name__, describe(x.get_raw_value(), seen), metadata
    if isinstance(x, nnx.Pytree):
        items = {k: v for k, v in vars(x).items() if k != "_pytree__state"}
        return type(x).__name__, {k: describe(items[k], seen) for k in sorted(items)}
    if isinstance(x, jax.core.Tracer):
        return "tracer"
    if isinstance(x, jax.Array):
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return "key", np.asarray(jax.random.key_data(x)).tolist()
        return "array", str(x.dtype), x.weak_type, np.asarray(x).tolist()
    if isinstance(x, np.ndarray):
        return "numpy", str(x.dtype), x.tolist()
    if isinstance(x, dict):
        return type(x).__name__, {k: describe(v, seen) for k, v in x.items()}
    if isinstance(x, nnx.State):
        return "State", describe(dict(x), seen)
    if isinstance(x, (tuple, list)):
        return type(x).__name__, [describe(y, seen) for y in x]
    return repr(x) if isinstance(x, (str, int, float, bool, type(None))) else type(x).__name__


def outcome(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns what a call returns or raises, described."""
    try:
        return "returned", describe(f(*args, **kwargs))
    except Exception as e:
        return "raised", type(e).__name__, str(e).split("\n")[0][:60]


class Node(nnx.Module):
    """A Module with a Variable, a static attribute, and others."""

    def __init__(self, value: float = 0.0, **children: Any) -> None:
        self.v = nnx.Param(jnp.full((2,), value))
        self.tag = 1
        for name, child in children.items():
            setattr(self, name, child)


needs_this_flax = pytest.mark.skipif(
    not compat.supported, reason="filterjit.nnx hands over all calls with this version of Flax"
)


def compare(program: Program, mode: str, handed_over: bool | None = False, again: int = 0) -> Any:
    """Runs a generator of observations on both; `program` gets the decorator. Counts the traces of
    all functions that it jits.

    `handed_over`: whether calls were handed over to upstream; None if either will do. `again`: how
    many of them were traced here before.
    """
    (expected, upstream_traces, _), (found, traces_here, made) = (
        observed(
            lambda make, traces: program(counting(make, traces)),
            functools.partial(jit, **MODES[mode]),
            describe,
        )
        for jit in (nnx.jit, filterjit.nnx.jit)
    )
    assert found == expected, [(a, b) for a, b in zip(found, expected, strict=False) if a != b]
    assert traces_here <= upstream_traces + again
    ours = [f for f in made if isinstance(f, filterjit.nnx.NNXJit)]
    assert ours
    if handed_over is not None:
        reasons = {reason for f in ours for reason in f.handed_over}
        assert bool(reasons) == handed_over, reasons
    return expected


def in_each_mode(
    program: Callable[..., Iterator[Any]] | None = None,
    handed_over: bool | None = False,
    modes: Iterable[str] = MODES,
    again: int = 0,
) -> Any:
    """Makes a test of a program, which gets `jit`, and `mode` if it asks for it: see `compare`."""
    if program is None:
        return functools.partial(in_each_mode, handed_over=handed_over, modes=modes, again=again)
    asks = "mode" in inspect.signature(program).parameters

    @pytest.mark.parametrize("mode", sorted(modes))
    @functools.wraps(program)
    def test(mode: str, **given: Any) -> None:
        if asks:
            given["mode"] = mode
        compare(lambda jit: program(jit=jit, **given), mode, handed_over, again)

    parameters = inspect.signature(program).parameters
    left = [x for name, x in parameters.items() if name not in ("jit", "mode")]
    mode = inspect.Parameter("mode", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    test.__signature__ = inspect.Signature([mode, *left])  # type: ignore[attr-defined]
    return test
