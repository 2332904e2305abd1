"""An extension of mkdocstrings: signatures show `maxsize=4096` instead of `maxsize=MAXSIZE`, the
alternatives of a type alias, and the result of the overload with a function.
"""

from collections.abc import Iterator
from typing import Any

import griffe


class Signatures(griffe.Extension):
    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        found = [*_members(pkg)]
        values = {x.path: x.value for x in found if isinstance(x, griffe.Attribute)}
        for function in found:
            if isinstance(function, griffe.Function):
                for parameter in function.parameters:
                    parameter.annotation = _shown(parameter.annotation, values)
                    parameter.default = _shown(parameter.default, values)
                known = [x.returns for x in function.overloads or () if str(x.returns) != "Any"]
                if known and str(function.returns) == "Any":
                    function.returns = known[0]


def _members(module: griffe.Object) -> Iterator[griffe.Object]:
    for x in module.members.values():
        if not isinstance(x, griffe.Alias):
            yield x
            yield from _members(x)


def _shown(x: Any, values: dict[str, Any]) -> Any:
    """Replaces names of constants and type aliases by their values."""
    if isinstance(x, griffe.ExprBinOp):
        return griffe.ExprBinOp(_shown(x.left, values), x.operator, _shown(x.right, values))
    if not isinstance(x, griffe.ExprName) or x.canonical_path not in values:
        return x
    value = values[x.canonical_path]
    if isinstance(value, griffe.ExprCall):  # a type variable, or the mark of a missing argument
        return "..." if x.name == "NOT_GIVEN" else x
    return _shown(value, values)
