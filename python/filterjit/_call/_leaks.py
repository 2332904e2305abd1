"""The error of a result that holds tracers outside of pytrees: in an object, an iterator, a
closure."""

import collections
import gc
import itertools
import types
from collections.abc import Iterable
from typing import Any

import jax

from .. import _core
from .._base._errors import attributes_of, format_path, holds_arrays
from .._base._unwrap import closure_of, innermost, is_function
from .._compat import _jax_compat
from .._trees._nodes import walk

_jax_compat.hide_from_tracebacks(__file__)

_MOST_OBJECTS = 1000  # that are looked at
_NO_HOLDERS = (type, types.ModuleType, str, bytes, int, float, *_jax_compat.ARRAY_TYPES)


def refuse_tracers(result: _core.Structure | None, is_class: bool) -> None:
    """Raises TypeError if a static part of a result holds a tracer of the trace that ends.

    Arguments:
        result: the structure of the result.
        is_class: whether a class was jitted as a whole, and made it.
    """
    assert result is not None
    found = [(node.detail, path) for node, path in walk(result) if node.kind == "static"]
    todo = collections.deque((x, format_path(["result", *path]), x) for x, path in found)
    seen: dict[int, Any] = {}
    while todo and len(seen) < _MOST_OBJECTS:
        x, path, static = todo.popleft()
        if isinstance(x, jax.core.Tracer) and _jax_compat.is_of_current_trace(x):
            how = holds_arrays(static)
            how = how or "Return a pytree: a list, a dict, or a `jax.tree_util.Partial`."
            raise TypeError(
                f"the result holds a tracer at `{path}`, in an object of type "
                f"`{type(static).__qualname__}`, which is no pytree, so it cannot leave the trace. {how}"
                + " Or jit the methods of the class, one by one."
                * is_class
            )
        if id(x) not in seen and not isinstance(x, _NO_HOLDERS):
            seen[id(x)] = x
            held = itertools.islice(_held_by(x), _MOST_OBJECTS)
            todo.extend((y, path + name, static) for name, y in held)


def _held_by(x: Any) -> Iterable[tuple[str, Any]]:
    """Returns what an object refers to, each with what it adds to a path."""
    if isinstance(x, dict):
        return [(f"[{key!r}]", y) for key, y in x.items()]
    if isinstance(x, list | tuple):
        return [(f"[{i}]", y) for i, y in enumerate(x)]
    if is_function(x):
        parts = getattr(x, "__self__", None), innermost(x), getattr(x, "__defaults__", None)
        return [*[(f".{name}", y) for name, y in closure_of(x)], *[("", y) for y in parts]]
    found = [(f".{name}", y) for name, y in attributes_of(x)]
    return found or [("", y) for y in gc.get_referents(x)]
