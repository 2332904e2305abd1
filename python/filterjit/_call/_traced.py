"""The results of a trace: its equations, and tracers hidden in objects."""

import collections
import gc
import itertools
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from .. import _core
from .._base._errors import attributes_of, format_path, holds_arrays
from .._base._unwrap import closure_of, innermost, is_function
from .._compat import _jax_compat

_jax_compat.hide_from_tracebacks(__file__)

# ---- the equations and the constants of a program ----


class Contents(NamedTuple):
    """The equations and constants of a closed jaxpr and its nested jaxprs, each counted once."""

    equations: list[Any]
    constants: list[Any]

    @property
    def callbacks(self) -> bool:
        """True if the program calls back into Python."""
        return any("callback" in equation.primitive.name for equation in self.equations)


def contents(closed: Any) -> Contents:
    equations: list[Any] = []
    constants: dict[int, Any] = {id(x): x for x in getattr(closed, "consts", ())}
    for jaxpr, consts in _jaxprs(closed):
        equations += jaxpr.eqns
        constants.update((id(x), x) for x in consts)
    return Contents(equations, list(constants.values()))


# Types of most equation parameters, which never hold a jaxpr.
_WITHOUT_JAXPRS = frozenset({type(None), bool, int, float, str})


def _jaxprs(root: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Yields each jaxpr in `root` once, with its constants."""
    seen: dict[int, Any] = {}  # by id; holding the objects prevents reuse
    todo = [root]
    while todo:
        item = todo.pop()
        if type(item) in _WITHOUT_JAXPRS:
            continue
        if isinstance(item, Mapping):
            todo.extend(item.values())
        elif isinstance(item, (list, tuple)):
            todo.extend(item)
        elif id(item) not in seen and (hasattr(item, "eqns") or hasattr(item, "jaxpr")):
            seen[id(item)] = item
            jaxpr = getattr(item, "jaxpr", item)
            if not hasattr(jaxpr, "eqns"):
                todo.append(jaxpr)
            elif jaxpr is item or id(jaxpr) not in seen:
                seen[id(jaxpr)] = jaxpr
                yield jaxpr, getattr(item, "consts", ())
                for equation in jaxpr.eqns:
                    if equation.params:
                        todo.extend(equation.params.values())


# ---- tracers outside pytrees: in objects, iterators, closures ----

_MOST_OBJECTS = 1000  # to search
_NO_HOLDERS = (type, types.ModuleType, str, bytes, int, float, *_jax_compat.ARRAY_TYPES)


def refuse_tracers(result: _core.Structure | None, is_class: bool) -> None:
    """Raises TypeError if a static part of a result holds a tracer of the current trace. `is_class`
    is True if the jitted function is a class."""
    assert result is not None
    todo = collections.deque((x, "", x, i) for i, x in result._statics())
    seen: dict[int, Any] = {}
    while todo and len(seen) < _MOST_OBJECTS:
        x, below, static, index = todo.popleft()
        if isinstance(x, jax.core.Tracer) and _jax_compat.is_of_current_trace(x):
            path = format_path(["result", *result._key_path(index)]) + below
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
            todo.extend((y, below + name, static, index) for name, y in held)


def _held_by(x: Any) -> Iterable[tuple[str, Any]]:
    """Returns the objects that `x` refers to, each with its suffix for a path."""
    if isinstance(x, dict):
        return [(f"[{key!r}]", y) for key, y in x.items()]
    if isinstance(x, list | tuple):
        return [(f"[{i}]", y) for i, y in enumerate(x)]
    if is_function(x):
        parts = getattr(x, "__self__", None), innermost(x), getattr(x, "__defaults__", None)
        return [*[(f".{name}", y) for name, y in closure_of(x)], *[("", y) for y in parts]]
    found = [(f".{name}", y) for name, y in attributes_of(x)]
    return found or [("", y) for y in gc.get_referents(x)]
