"""`Chosen`: the leaves that an option selects, by parameter names and filters of their
arguments."""

import dataclasses
from typing import Any

from .. import _core
from .._base._checks import did_you_mean
from .._base._errors import short
from .._base._words import some_of
from .._trees._filters import Expression, as_expression, depends_on_leaves, may_take_none
from .._trees._nodes import tree_of
from .._trees._registry import is_traced, leaves_of, registry
from .._trees._tree_functions import tree_paths


@dataclasses.dataclass(frozen=True, eq=False)
class Chosen:
    """Parameters by name, each with a filter of the leaves of its argument.

    Attributes:
        option: the name of the option.
        filters: pairs of a parameter name and a filter, sorted, so that equal options are equal.
    """

    option: str = ""
    filters: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, option: str, given: Any, also: str = "") -> "Chosen":
        """Returns what `filter_jit` takes as an option; `also` is what else that may be.

        Raises:
            TypeError: if `given` is no collection of names and no dict of filters by name.
            ValueError: if a value in it is no filter.
        """
        if isinstance(given, (tuple, list, set, frozenset)):
            given = dict.fromkeys(given, True)
        if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
            such = f", such as ({given!r},)" if isinstance(given, str) else ""
            raise TypeError(
                f"`filter_jit(..., {option}=...)` must be {also}a tuple of names of parameters{such}, "
                "or a dict from such names to True, False, path patterns or other filters, not "
                f"{short(given)}."
            )
        for name, chosen in given.items():
            as_expression(chosen, f"`{option}` of {name!r}")  # raises
        return cls(option, tuple(sorted(given.items(), key=lambda item: item[0])))

    def __bool__(self) -> bool:
        return bool(self.filters)

    def __repr__(self) -> str:
        if all(chosen is True for _, chosen in self.filters):
            return repr(tuple(name for name, _ in self.filters))
        return repr(dict(self.filters))

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is Chosen
            and self.names == other.names
            and all(_same(a, b) for (_, a), (_, b) in zip(self.filters, other.filters, strict=True))
        )

    def __hash__(self) -> int:
        return hash(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of parameters that were given."""
        return tuple(name for name, _ in self.filters)

    def depends_on_leaves(self, name: str) -> bool:
        """Whether the filter of a parameter looks at leaves, besides their paths."""
        return depends_on_leaves(self.expression(name))

    def expression(self, name: str) -> Expression:
        """Returns the filter of a parameter, as an expression."""
        return as_expression(dict(self.filters)[name], f"`{self.option}` of {name!r}")

    def mask(self, name: str, argument: Any, asked: Expression) -> bytes:
        """Returns a byte for each leaf of the argument of a parameter, which is 1 if it is meant.

        A filter that looks at leaves is asked about those that the expression `asked` takes.
        """
        expression = self.expression(name)
        by_path = not depends_on_leaves(expression)
        filters = (expression if by_path else ("and", asked, expression),)
        try:
            groups = _core.tree_groups(registry, argument, True, filters, None)[2]
        except ValueError as e:
            if by_path:  # a pattern that matches no leaf
                raise ValueError(f"`{self.option}` does not fit {name!r}: {e}") from None
            raise
        return bytes([not group for group in groups])

    def check_any(self, name: str, argument: Any, found: bool, what: str) -> None:
        """Raises ValueError if a filter that looks at paths alone has `found` nothing of an
        argument, and may not do so; `what` is what it looks for."""
        expression = self.expression(name)
        by_path = not (isinstance(expression, bool) or depends_on_leaves(expression))
        if by_path and not found and not may_take_none(expression):
            raise self.refused(name, argument, f"matches no {what}")

    def refused(self, name: str, argument: Any, why: str) -> ValueError:
        """Returns the error of a filter that does not fit an argument; `why` goes on after
        "which"."""
        paths = tree_paths(argument)
        chosen = dict(self.filters)[name]
        return ValueError(
            f"`{self.option}` has {chosen!r} for {name!r}, which {why}: the argument has "
            f"{some_of(paths)}." + did_you_mean(chosen, paths, 0.5)  # a pattern is shorter
        )


NOTHING = Chosen()


def check_no_texts(traced: Chosen, structure: _core.Structure) -> None:
    """Raises ValueError if an argument whose numbers are traced is a str."""
    for node in tree_of(structure).children:
        is_text = node.kind == "static" and isinstance(node.detail, str)
        if is_text and (node.key, True) in traced.filters:
            raise ValueError(
                f"`{traced.option}` names {node.key!r}, which is the str {short(node.detail)}: leave it out, as "
                "no number is in it."
            )


def _same(a: Any, b: Any) -> bool:
    """Whether two filters are certainly equal. Functions and trees are compared by identity."""
    return a is b or (type(a) is type(b) and isinstance(a, (str, bool)) and a == b)


def numbers_of(traced: Chosen, name: str, argument: Any) -> bytes:
    """Returns a byte for each leaf of the argument of a parameter: 1 if numbers in it are traced.

    Raises:
        ValueError: if a path pattern matches no leaf, or one that is neither an array nor a number.
    """
    mask = traced.mask(name, argument, ("leaf", is_traced))
    traced.check_any(name, argument, any(mask), "leaf")
    if not traced.depends_on_leaves(name):
        for i, leaf in enumerate(leaves_of(argument)):
            if mask[i] and not is_traced(leaf):
                path = tree_paths(argument)[i]
                why = (
                    f"matches `{path}`, a `{type(leaf).__name__}`, which is no array and no number"
                )
                raise traced.refused(name, argument, why)
    return mask
