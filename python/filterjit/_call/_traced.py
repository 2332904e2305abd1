"""The equations and constants of a trace."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


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
