"""A jitted function with some of its arguments given once, for loops that pass the same model on each
call."""

import functools
from collections.abc import Iterable
from typing import Any, final

from jax import tree_util as jtu

from .. import _core
from .._base._generic import _T


class _Given:
    """What was given: copies of the arguments, which nothing changes."""

    __slots__ = ("_args", "_function", "_keywords")

    def __init__(
        self, function: _core.FilterJit[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        values = _copies(function, (*args, *keywords.values()))
        self._function = function
        self._args = tuple(values[: len(args)])
        self._keywords = dict(zip(keywords, values[len(args) :], strict=True))

    def __getattr__(self, name: str) -> Any:
        """Is asked for what neither this nor a PartialFilterJit has."""
        also = f"; its function has: `.func.{name}`" if hasattr(self._function, name) else ""
        raise AttributeError(f"`PartialFilterJit` has no attribute `{name}`{also}")


def _copies(function: _core.FilterJit[..., Any], values: Iterable[Any]) -> list[Any]:
    """Returns the values with containers of their own, and the same arrays and statics."""
    arrays, structure = _core.flatten(function._hooks.registry, list(values))
    return structure.unflatten(arrays)


@final
class PartialFilterJit(_core.CallProxy[..., _T]):
    """A FilterJit with some of its arguments given once. FilterJit.partial returns one.

    It shares the variants of its FilterJit, and predicts the next one by its own last call, so two
    partials of one function with other models do not lead each other astray.
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
        """Copies of the arguments that were given by position."""
        return tuple(_copies(self.func, self._attributes._args))

    @property
    def keywords(self) -> dict[str, Any]:
        """Copies of the arguments that were given by name."""
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
