"""`Donation`: which arguments give their memory to the program, and what of it is of no use."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

from .. import _core
from .._base import _errors
from .._base._errors import short
from .._compat import _jax_compat
from .._shardings._specs import Spec, same_spec
from .._trees._filters import as_expression
from .._trees._registry import registry
from ._named import NONE, Named

UNUSED = ("ignore", "warn", "raise")


class _Hole:
    """Stands for an array while a filter is asked which ones it takes."""

    def __init__(self, position: int) -> None:
        self.position = position


def _is_by_path(expression: Any) -> bool:
    match expression:
        case bool() | ("path", _):
            return True
        case ("and" | "or" | "not", *operands):
            return all(map(_is_by_path, operands))
    return False


@dataclasses.dataclass(frozen=True)
class Donation:
    """Which arrays are donated.

    Attributes:
        arguments: those, all of whose arrays are donated.
        parameters: names of parameters, each with what it donates: True, False, or path patterns.
    """

    arguments: Named = NONE
    parameters: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, given: Any) -> "Donation":
        """Returns what `filter_jit` takes as `donate`, besides its modes.

        Raises:
            TypeError: if `given` is none of what `filter_jit` takes.
            ValueError: if a filter depends on more than paths.
        """
        if isinstance(given, (tuple, list, set, frozenset)):
            given = dict.fromkeys(given, True)
        if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
            raise TypeError(
                "`filter_jit(..., donate=...)` must be a mode, a tuple of names of parameters, or "
                f"a dict from such names to True, False or path patterns, not {short(given)}. The "
                "modes are 'all', 'all-except-first', 'warn', 'warn-except-first' and 'none'."
            )
        for name, chosen in given.items():
            if not _is_by_path(as_expression(chosen, f"`donate` of {name!r}")):
                raise ValueError(
                    f"`filter_jit(..., donate=...)`: the filter of {name!r} must consist of path "
                    f"patterns, not {short(chosen)}: what is donated is known before the values."
                )
        return cls(parameters=tuple(sorted(given.items(), key=lambda item: item[0])))

    def __bool__(self) -> bool:
        return bool(self.arguments or self.parameters)

    def __repr__(self) -> str:
        if not self.parameters:
            return repr(self.arguments)
        whole = all(chosen is True for _, chosen in self.parameters)
        return repr(tuple(name for name, _ in self.parameters) if whole else dict(self.parameters))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of parameters that were given."""
        return tuple(name for name, _ in self.parameters)

    def positions(
        self, variant: _core.Variant, signature: _core.Signature, missing: Any
    ) -> tuple[int, ...]:
        """Returns the positions of the donated arrays among those of a call; arrays in the
        function itself, which are none of them, come first."""
        if not self:
            return ()
        own = variant.function.num_leaves
        count = own + variant.structure.num_leaves
        arguments = variant.arguments(tuple(map(_Hole, range(count))))[1]
        found: list[int] = []
        for path in self.arguments.paths(signature, arguments, missing):
            first, number = variant.structure._span(*path)
            found.extend(range(own + first, own + first + number))
        given = dict(zip(signature.names, arguments, strict=True))
        keywords = arguments[signature.varkw] if signature.varkw >= 0 else missing
        for name, chosen in self.parameters:
            argument = given.get(name, missing)
            if name not in given and keywords is not missing:
                argument = keywords.get(name, missing)
            if argument is not missing:
                found.extend(_filtered(name, chosen, argument))
        return tuple(found)


def _filtered(name: str, chosen: Any, argument: Any) -> list[int]:
    """Returns the positions of the arrays of an argument that a filter takes."""
    part = _core.partition(registry, argument, (as_expression(chosen, "`donate`"),), None, None)[0]
    found = [x.position for x in _core.tree_leaves(registry, part, None) if isinstance(x, _Hole)]
    if not found and not isinstance(chosen, bool):
        paths = _core.tree_paths(registry, argument, None)
        some = ", ".join(f"`{path}`" for path in paths[:5]) + (", ..." if len(paths) > 5 else "")
        raise ValueError(
            f"`donate` has {chosen!r} for {name!r}, which matches no array: the argument has "
            f"{some or 'no leaves'}"
        )
    return found


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
    raises: bool,
    taken: dict[int, int],
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
) -> None:
    """Tells of donated arrays whose memory no result can take, by their paths.

    Arguments:
        donated: the positions of the donated arrays.
        arrays, results: the tracers of a trace.
        raises: whether to raise a ValueError; else it is a warning.
        taken: the results that take the memory of an array for sure.
        inputs, outputs: the specs of `arrays` and `results`.
    """
    paths = _errors.array_paths(variant.function, variant.structure)
    free = [j for j in range(len(results)) if j not in taken.values()]
    lines = []
    for i in donated:
        if i in taken:
            continue
        equal = [j for j in free if same_memory(arrays[i], results[j])]
        spec = inputs[i]
        fitting = [j for j in equal if None in (spec, outputs[j]) or same_spec(outputs[j], spec)]
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
        if raises:
            raise ValueError(text)
        warnings.warn(text, stacklevel=2)
