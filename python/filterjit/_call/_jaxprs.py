"""The equations and the constants of a traced program."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class Contents(NamedTuple):
    """The equations and constants of a closed jaxpr and of all jaxprs nested in it. A jaxpr that
    is used several times counts once."""

    equations: list[Any]
    constants: list[Any]

    @property
    def callbacks(self) -> bool:
        """Whether the program calls back into Python, at any depth."""
        return any("callback" in equation.primitive.name for equation in self.equations)


def contents(closed: Any) -> Contents:
    equations: list[Any] = []
    constants: dict[int, Any] = {id(x): x for x in getattr(closed, "consts", ())}
    for jaxpr, consts in _jaxprs(closed):
        equations += jaxpr.eqns
        constants.update((id(x), x) for x in consts)
    return Contents(equations, list(constants.values()))


# The types of most parameters of equations; none of them holds a jaxpr.
_WITHOUT_JAXPRS = frozenset({type(None), bool, int, float, str})


def _jaxprs(root: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Yields each jaxpr in `root` once, with the constants that it is closed over."""
    seen: dict[int, Any] = {}  # by id; holds the objects, so that no id is reused
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
