"""`Donation`: selects the arrays to donate."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from .. import _core
from .._base._checks import one_of
from .._base._errors import short_repr
from .._trees._nodes import Nodes
from ._selection import NO_ARGUMENTS, ArgumentSelection, check_names

_MODES = ("all", "all-except-first", "warn", "warn-except-first", "none")


@dataclasses.dataclass(frozen=True)
class Donation:
    """Selects arrays to donate: by a mode of `filter_jit`, or all arrays in some `arguments`, which
    are parameters of `filter_jit` if the mode is "names"."""

    mode: str = "none"
    arguments: ArgumentSelection = NO_ARGUMENTS

    @classmethod
    def of(cls, given: Any) -> "Donation":
        """Parses the `donate` option. Raises TypeError or ValueError."""
        if isinstance(given, str):
            names = f"a tuple of names of parameters, such as ({given!r},)"
            one_of("filter_jit(..., donate=...)", given, _MODES, also=names)
            return cls(given)
        is_collection = isinstance(given, (tuple, list, set, frozenset))
        if not is_collection or not all(isinstance(name, str) for name in given):
            raise TypeError(
                f"`filter_jit(..., donate=...)` must be a mode ({', '.join(map(repr, _MODES))}) or "
                f"a tuple of names of parameters, not {short_repr(given)}."
            )
        return cls("names", ArgumentSelection(names=frozenset(given))) if given else NO_DONATION

    def __bool__(self) -> bool:
        return self.mode != "none" or bool(self.arguments)

    def __repr__(self) -> str:
        return repr(self.arguments or self.mode)

    def __hash__(self) -> int:
        return hash(self.mode)  # cheap: every jitted function's first call computes it

    def check_names(self, signature: _core.Signature) -> None:
        """Raises ValueError if `filter_jit` names an unknown parameter."""
        if self.mode == "names":
            check_names("donate", self.arguments.names, signature)

    @property
    def is_quiet(self) -> bool:
        """True to silence JAX's warning about unusable donated buffers."""
        return self.mode in ("all", "all-except-first")

    def positions(
        self, variant: _core.Variant, signature: _core.Signature, missing: Any
    ) -> tuple[int, ...]:
        """Returns the positions of the donated arrays among the arrays in the function itself and,
        after these, in the arguments."""
        if not self:
            return ()
        own = variant.function.num_leaves
        count = own + variant.structure.num_leaves
        if self.arguments:
            arguments = variant._arguments((object(),) * count)[1]
            found: set[int] = set()
            nodes = Nodes(variant.structure)
            for path in self._paths(signature, arguments, missing):
                found.update(nodes.span(*path))
            return tuple(own + i for i in sorted(found))
        spared = range(0)
        if self.mode.endswith("-except-first"):
            spared = self._first_argument(variant, signature)
        return tuple(i for i in range(count) if i - own not in spared)

    def order(self, variant: _core.Variant, signature: _core.Signature) -> tuple[int, ...]:
        """Returns the order in which ``jax.jit`` takes the arrays, see `_direct.arrange`.

        A result gets the memory of the first donated array that fits. As in Equinox, the arrays of
        the first argument come before those of the function itself, which later calls need.
        """
        own = variant.function.num_leaves
        if not own or self.mode not in ("all", "warn"):
            return ()
        first = own + len(self._first_argument(variant, signature))
        count = own + variant.structure.num_leaves
        return (*range(own, first), *range(own), *range(first, count))

    def _paths(
        self, signature: _core.Signature, arguments: Sequence[Any], missing: Any
    ) -> Iterator[tuple[int, ...]]:
        yield from self.arguments.paths(signature, arguments, missing)
        if self.mode == "names":  # can be *args and **kwargs, unlike in `jax.jit`
            for i in (signature.varargs, signature.varkw):
                if i >= 0 and signature.names[i] in self.arguments.names:
                    yield (i,)

    def _first_argument(self, variant: _core.Variant, signature: _core.Signature) -> range:
        if not (signature.positional or signature.varargs == 0):
            return range(0)
        path = (0,) if signature.positional else (0, 0)
        try:
            return Nodes(variant.structure).span(*path)
        except IndexError:  # *args is empty
            return range(0)


NO_DONATION = Donation()
