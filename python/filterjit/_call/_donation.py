"""`Donation`: selects the arrays to donate, and warns about donated memory that goes unused."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

from .. import _core
from .._base import _errors
from .._base._arrays import same_spec
from .._base._checks import one_of
from .._compat import _jax_compat
from .._trees._registry import leaves_of
from ._events import stack_level
from ._selection import NO_ARGUMENTS, NO_LEAVES, ArgumentSelection, LeafSelection

_MODES = ("all", "all-except-first", "warn", "warn-except-first", "none")


class _Hole:
    """A placeholder for an array."""

    def __init__(self, position: int) -> None:
        self.position = position


@dataclasses.dataclass(frozen=True)
class Donation:
    """Selects arrays to donate: by a mode of `filter_jit`, or all arrays in some `arguments`, or
    `chosen` ones by parameter and filter."""

    mode: str = "none"
    arguments: ArgumentSelection = NO_ARGUMENTS
    chosen: LeafSelection = NO_LEAVES

    @classmethod
    def of(cls, given: Any) -> "Donation":
        """Parses the `donate` option. Raises TypeError or ValueError."""
        if isinstance(given, str):
            names = f"a tuple of names of parameters, such as ({given!r},)"
            one_of("filter_jit(..., donate=...)", given, _MODES, also=names)
            return cls(given)
        modes = f"a mode ({', '.join(map(repr, _MODES[:-1]))} or {_MODES[-1]!r}), "
        return cls(chosen=LeafSelection.of("donate", given, modes))

    def __bool__(self) -> bool:
        return self.mode != "none" or bool(self.arguments or self.chosen)

    def __repr__(self) -> str:
        return repr(self.chosen or self.arguments or self.mode)

    def __hash__(self) -> int:
        return hash(self.mode)  # cheap: every jitted function's first call computes it

    @property
    def is_quiet(self) -> bool:
        """True to silence JAX's warning about unusable donated buffers."""
        return self.mode in ("all", "all-except-first") or bool(self.chosen)

    @property
    def spares_first(self) -> bool:
        return self.mode.endswith("-except-first")

    @property
    def depends_on_leaves(self) -> bool:
        """True if a filter looks at arrays, not only at their paths."""
        return bool(self.chosen.by_leaf)

    def positions(
        self,
        variant: _core.Variant,
        signature: _core.Signature,
        missing: Any,
        tracers: tuple[Any, ...] | None = None,
    ) -> tuple[int, ...]:
        """Returns the positions of the donated arrays among the arrays in the function itself and,
        after these, in the arguments. Filters that look at arrays get `tracers`."""
        if not self:
            return ()
        own = variant.function.num_leaves
        count = own + variant.structure.num_leaves
        if self.mode != "none":
            first, number = self._spared(variant, signature)
            spared = range(own + first, own + first + number)
            return tuple(i for i in range(count) if i not in spared)
        holes = tuple(map(_Hole, range(count)))
        arguments = variant.arguments(holes)[1]
        found: list[int] = []
        for path in self.arguments.paths(signature, arguments, missing):
            first, number = variant.structure._span(*path)
            found.extend(range(own + first, own + first + number))
        asked = arguments if tracers is None else variant.arguments(tracers)[1]
        for name in self.chosen.names:
            argument = _argument(signature, arguments, name, missing)
            if argument is not missing:
                shown = _argument(signature, asked, name, missing)
                found.extend(self._filtered(name, argument, shown))
        return tuple(found)

    def _spared(self, variant: _core.Variant, signature: _core.Signature) -> tuple[int, int]:
        """Returns (first, count) of the arrays in the arguments that the mode doesn't donate."""
        if not self.spares_first or not (signature.positional or signature.varargs == 0):
            return 0, 0
        path = (0,) if signature.positional else (0, 0)
        try:
            return variant.structure._span(*path)
        except IndexError:  # *args is empty
            return 0, 0

    def _filtered(self, name: str, argument: Any, asked: Any) -> list[int]:
        """Returns the positions of an argument's arrays that its filter selects."""
        mask = self.chosen.mask(name, asked, ("arrays",))
        leaves = leaves_of(argument)
        holes = [x for x, taken in zip(leaves, mask, strict=True) if taken]
        found = [x.position for x in holes if isinstance(x, _Hole)]
        self.chosen.check_any(name, argument, bool(found), "array")
        return found


NO_DONATION = Donation()


def _argument(signature: _core.Signature, arguments: Sequence[Any], name: str, missing: Any) -> Any:
    """Returns the argument of a parameter, or one of ``**kwargs``."""
    if name in signature.names:
        return arguments[signature.names.index(name)]
    keywords = arguments[signature.varkw] if signature.varkw >= 0 else missing
    return missing if keywords is missing else keywords.get(name, missing)


def same_memory(x: Any, y: Any) -> bool:
    """True if one array can reuse the other's memory."""
    a, b = _jax_compat.typeof(x), _jax_compat.typeof(y)
    return (a.shape, a.dtype) == (b.shape, b.dtype)


def warn_unused(
    donated: Sequence[int],
    variant: _core.Variant,
    arrays: Sequence[Any],
    results: Sequence[Any],
    *,
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
) -> None:
    """Warns about donated arrays that no result can reuse.

    `donated` are positions. `arrays` and `results` are the tracers of a trace, and `inputs` and
    `outputs` their specs, if any.
    """
    paths = _errors.array_paths(variant.function, variant.structure)
    specs = {i: inputs[i] if inputs else None for i in donated}
    free = list(range(len(results)))
    lines: dict[int, str] = {}
    # An array without a spec fits any result, and the reverse. Match the constrained ones first.
    for i in sorted(donated, key=lambda i: specs[i] is None):
        spec, equal = specs[i], [j for j in free if same_memory(arrays[i], results[j])]
        fitting = [
            j for j in equal if spec is None or outputs[j] is None or same_spec(outputs[j], spec)
        ]
        if fitting:
            free.remove(min(fitting, key=lambda j: spec is not None and outputs[j] is None))
            continue
        aval = _jax_compat.typeof(arrays[i])
        why = f"all results of that shape are {outputs[equal[0]]}" if equal else "no such result"
        where = _errors.format_path(paths[i])
        placed = "" if spec is None else f", {spec}"
        lines[i] = f"  `{where}`: {aval.dtype}{list(aval.shape)}{placed}: {why}"
    if lines:
        shown = [lines[i] for i in donated if i in lines]
        text = "\n".join(["donated arrays whose memory no result can take:", *shown])
        warnings.warn(text, stacklevel=stack_level())
