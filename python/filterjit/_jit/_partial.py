"""A jitted function with bound arguments, for loops that pass the same model in each call."""

import functools
from collections.abc import Iterable
from typing import Any, final

from jax import tree_util as jtu

from .. import _core
from .._base._generic import _T


class _Given:
    """The bound arguments: copies, which nothing changes."""

    __slots__ = ("_args", "_function", "_keywords")

    def __init__(
        self, function: _core.FilterJit[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        values = _copies(function, (*args, *keywords.values()))
        self._function = function
        self._args = tuple(values[: len(args)])
        self._keywords = dict(zip(keywords, values[len(args) :], strict=True))

    def __getattr__(self, name: str) -> Any:
        """Is called for a name that neither this object nor a PartialFilterJit has."""
        also = f"; its function has: `.func.{name}`" if hasattr(self._function, name) else ""
        raise AttributeError(f"`PartialFilterJit` has no attribute `{name}`{also}")


def _copies(function: _core.FilterJit[..., Any], values: Iterable[Any]) -> list[Any]:
    """Returns the values with new containers, and the same arrays and statics."""
    arrays, structure = _core.flatten(function._hooks.registry, list(values))
    return structure.unflatten(arrays)


@final
class PartialFilterJit(_core.CallProxy[..., _T]):
    """A `FilterJit` with bound arguments, which FilterJit.partial returns.

    It shares the variants of its `FilterJit`, and predicts the next variant from its own last call.
    So two partials of one function with different models do not disturb each other.
    """

    __slots__ = ()
    __module__ = "filterjit.types"

    def __new__(
        cls, function: _core.FilterJit[..., _T], args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> "PartialFilterJit[_T]":
        types = (function, _core.FilterJit), (args, tuple), (keywords, dict)
        if not all(isinstance(x, expected) for x, expected in types):
            raise TypeError("PartialFilterJit takes a FilterJit, a tuple and a dict")
        if not all(isinstance(name, str) for name in keywords):
            raise TypeError("keywords must be strings")
        given = _Given(function, args, dict(keywords))
        call: Any = type(function)._rebuild(*function._parts())  # it predicts by its own last call
        if given._keywords:
            call = functools.partial(call, **given._keywords)
        return super().__new__(cls, call, given._args, given)

    @property
    def func(self) -> "_core.FilterJit[..., _T]":
        """The FilterJit."""
        function: _core.FilterJit[..., _T] = self._attributes._function
        return function

    @property
    def args(self) -> tuple[Any, ...]:
        """Copies of the arguments that were bound by position."""
        return tuple(_copies(self.func, self._attributes._args))

    @property
    def keywords(self) -> dict[str, Any]:
        """Copies of the arguments that were bound by name."""
        given = self._attributes._keywords
        return dict(zip(given, _copies(self.func, given.values()), strict=True))

    def __repr__(self) -> str:
        given = self._attributes
        return (
            f"<partial of {self.func!r}, given {len(given._args)} by position and "
            f"{list(given._keywords)} by name>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return PartialFilterJit, (self.func, self.args, self.keywords)


jtu.register_pytree_node(
    PartialFilterJit,
    lambda f: ((f.func, f.args, f.keywords), None),
    lambda _, children: PartialFilterJit(*children),
)
