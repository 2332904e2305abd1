"""The results of a trace: its equations, and tracers in objects."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from .. import _core
from .._base._errors import attributes_with, format_path, holds_arrays
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


# ---- tracers in objects that are no pytrees ----


def refuse_tracers(result: _core.Structure | None, is_class: bool) -> None:
    """Raises TypeError if an object in a result isn't a pytree and holds a tracer of the current
    trace in an attribute. `is_class` is True if the jitted function is a class."""
    assert result is not None
    for index, x in result._statics():
        for name in attributes_with(_is_of_trace, x):
            path = format_path(["result", *result._key_path(index), name])
            raise TypeError(
                f"the result holds a tracer at `{path}`, in an object of type "
                f"`{type(x).__qualname__}`, which is no pytree, so it cannot leave the trace. "
                f"{holds_arrays(x)}" + " Or jit the methods of the class, one by one." * is_class
            )


def _is_of_trace(x: Any) -> bool:
    return isinstance(x, jax.core.Tracer) and _jax_compat.is_of_current_trace(x)
