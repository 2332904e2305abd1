"""`Donation`: which arguments give their memory to the program, and what of it is of no use."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from .. import _core
from .._base import _errors
from .._compat import _jax_compat
from .._observe._retraces import stack_level
from .._trees._nodes import span
from .._trees._registry import leaves_of
from ._chosen import NOTHING, Chosen
from ._named import NONE, Named

_MODES = "a mode ('all', 'all-except-first', 'warn', 'warn-except-first' or 'none'), "


class _Hole:
    """Stands for an array, and knows its position."""

    def __init__(self, position: int) -> None:
        self.position = position


@dataclasses.dataclass(frozen=True)
class Donation:
    """Which arrays are donated.

    Attributes:
        arguments: those, all of whose arrays are donated.
        chosen: parameters by name, and filters of the arrays in their arguments.
    """

    arguments: Named = NONE
    chosen: Chosen = NOTHING

    @classmethod
    def of(cls, given: Any) -> "Donation":
        """Returns what `filter_jit` takes as `donate`, besides its modes.

        Raises:
            TypeError: if `given` is none of what `filter_jit` takes.
            ValueError: if a value in it is no filter.
        """
        return cls(chosen=Chosen.of("donate", given, _MODES))

    def __bool__(self) -> bool:
        return bool(self.arguments or self.chosen)

    def __repr__(self) -> str:
        return repr(self.chosen or self.arguments)

    @property
    def depends_on_leaves(self) -> bool:
        """Whether a filter looks at arrays, besides their paths."""
        return any(map(self.chosen.depends_on_leaves, self.chosen.names))

    def positions(
        self,
        variant: _core.Variant,
        signature: _core.Signature,
        missing: Any,
        tracers: tuple[Any, ...] | None = None,
    ) -> tuple[int, ...]:
        """Returns the positions of the donated arrays among those of a call; arrays in the
        function itself, which are none of them, come first.

        `tracers` stand for the arrays, for filters that look at them.
        """
        if not self:
            return ()
        own = variant.function.num_leaves
        count = own + variant.structure.num_leaves
        holes = tuple(map(_Hole, range(count)))
        arguments = variant.arguments(holes)[1]
        found: list[int] = []
        for path in self.arguments.paths(signature, arguments, missing):
            first, number = span(variant.structure, *path)
            found.extend(range(own + first, own + first + number))
        asked = arguments if tracers is None else variant.arguments(tracers)[1]
        for name in self.chosen.names:
            argument = _argument(signature, arguments, name, missing)
            if argument is not missing:
                shown = _argument(signature, asked, name, missing)
                found.extend(self._filtered(name, argument, shown))
        return tuple(found)

    def _filtered(self, name: str, argument: Any, asked: Any) -> list[int]:
        """Returns the positions of the arrays of an argument that its filter takes."""
        mask = self.chosen.mask(name, asked, ("arrays",))
        leaves = leaves_of(argument)
        holes = [x for x, taken in zip(leaves, mask, strict=True) if taken]
        found = [x.position for x in holes if isinstance(x, _Hole)]
        self.chosen.check_any(name, argument, bool(found), "array")
        return found


def _argument(signature: _core.Signature, arguments: Sequence[Any], name: str, missing: Any) -> Any:
    """Returns the argument of a parameter, or of one of ``**kwargs``."""
    if name in signature.names:
        return arguments[signature.names.index(name)]
    keywords = arguments[signature.varkw] if signature.varkw >= 0 else missing
    return missing if keywords is missing else keywords.get(name, missing)


def same_memory(x: Any, y: Any) -> bool:
    """Returns whether one array can take the memory of the other."""
    a, b = _jax_compat.aval(x), _jax_compat.aval(y)
    return (a.shape, a.dtype) == (b.shape, b.dtype)


def tell_unused(
    donated: Sequence[int],
    variant: _core.Variant,
    arrays: Sequence[Any],
    results: Sequence[Any],
    *,
    taken: Mapping[int, int] = MappingProxyType({}),
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
) -> None:
    """Warns of donated arrays whose memory no result can take, by their paths.

    Arguments:
        donated: the positions of the donated arrays.
        arrays, results: the tracers of a trace.
        taken: the results that take the memory of an array for sure.
        inputs, outputs: the specs of `arrays` and `results`; empty without shardings.
    """
    from .._shardings._specs import same_spec  # which no trace needs that donates nothing so

    paths = _errors.array_paths(variant.function, variant.structure)
    free = [j for j in range(len(results)) if j not in taken.values()]
    lines = []
    for i in donated:
        if i in taken:
            continue
        equal = [j for j in free if same_memory(arrays[i], results[j])]
        spec = inputs[i] if inputs else None
        fitting = [
            j for j in equal if spec is None or outputs[j] is None or same_spec(outputs[j], spec)
        ]
        if fitting:
            free.remove(fitting[0])
            continue
        aval = _jax_compat.aval(arrays[i])
        why = f"all results of that shape are {outputs[equal[0]]}" if equal else "no such result"
        where = _errors.format_path(paths[i])
        placed = "" if spec is None else f", {spec}"
        lines.append(f"  `{where}`: {aval.dtype}{list(aval.shape)}{placed}: {why}")
    if lines:
        text = "\n".join(["donated arrays whose memory no result can take:", *lines])
        warnings.warn(text, stacklevel=stack_level())
