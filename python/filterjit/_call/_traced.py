"""The results of a trace: its equations, and tracers in static values."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from .. import _core
from .._base._errors import format_path, holds_arrays, leaves_within
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


# ---- tracers in static values ----

_MOST_STATICS = 1000  # to search


def refuse_tracers(result: _core.Structure | None, is_class: bool) -> None:
    """Raises TypeError if one of the first statics in a result is a tracer of the current trace, or
    holds one in an attribute. `is_class` is True if the jitted function is a class."""
    assert result is not None
    for index, x in itertools.islice(result._statics(), _MOST_STATICS):
        if any(map(_is_of_trace, leaves_within(x))):
            path = format_path(["result", *result._key_path(index)])
            raise TypeError(
                f"the result holds a tracer in `{path}`, which is static (a `{type(x).__qualname__}`), "
                f"so it cannot leave the trace. {holds_arrays(x) or 'Make the field not static.'}"
                + " Or jit the methods of the class, one by one."
                * is_class
            )


def _is_of_trace(x: Any) -> bool:
    return isinstance(x, jax.core.Tracer) and _jax_compat.is_of_current_trace(x)
