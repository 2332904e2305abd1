"""`Settings`: the options of a jitted function."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypedDict

import jax

from .._base._checks import one_of
from .._compat import _jax_compat
from ._caches import MAXSIZE
from ._donation import NO_DONATION, Donation
from ._selection import NO_ARGUMENTS, NOTHING_TRACED, ArgumentSelection, TracedNumbers

OnRetrace = Literal["log", "warn", "raise", "ignore"] | Callable[[Any], Any] | None
"""The action on a retrace. A callable gets the `Explanation`."""


def check_on_retrace(function: str, on_retrace: Any) -> None:
    """Raises ValueError for an invalid `on_retrace` option of `function`."""
    if on_retrace is not None and not callable(on_retrace):
        also = "a callable that takes an explanation, or None"
        option = f"{function}(..., on_retrace=...)"
        one_of(option, on_retrace, ("log", "warn", "raise", "ignore"), also=also)


class OptionsOfJax(TypedDict, total=False):
    """Options that are passed on to ``jax.jit``."""

    keep_unused: bool
    device: jax.Device | None
    backend: str | None
    inline: Any
    compiler_options: dict[str, Any] | None


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options of `filter_jit`.

    Functions with equal settings share their programs. Unhashable `jitkwargs` make the settings
    unhashable.

    Attributes:
        shardings: `in_shardings`, `out_shardings`, `mesh`: a `_shardings._options.Shardings`.
        jitkwargs: options of ``jax.jit``, sorted.
        numbers_traced: whether to trace all Python numbers, like ``jax.jit``.
        static: the static arguments of ``jax.jit``.
        traced: leaves to trace if they are Python numbers.
    """

    donate: Donation = NO_DONATION
    functions: str = "identity"
    maxsize: int = MAXSIZE
    on_retrace: OnRetrace = None
    shardings: Any = None
    same_on_all_processes: bool | None = None
    jitkwargs: tuple[tuple[str, Any], ...] = ()
    numbers_traced: bool = False
    static: ArgumentSelection = NO_ARGUMENTS
    traced: TracedNumbers = NOTHING_TRACED

    def __post_init__(self) -> None:
        # Copy `compiler_options`, which the caller might change.
        kwargs = ((k, dict(v) if isinstance(v, dict) else v) for k, v in self.jitkwargs)
        object.__setattr__(self, "jitkwargs", tuple(sorted(kwargs)))
        if self.jitkwargs:
            _jax_compat.jit(lambda: None, **dict(self.jitkwargs))  # raises for an unknown option

    def __str__(self) -> str:
        """Returns the options as written in a call of `filter_jit`."""
        given = [
            (field.name, getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.name not in ("shardings", "jitkwargs")
        ]
        defaults = vars(Settings())
        shown = [
            f"{name}={value!r}"
            for name, value in [*given, *self.jitkwargs]
            if name == "donate" or value != defaults.get(name)
        ]
        return ", ".join(shown + [repr(self.shardings)] * (self.shardings is not None))

    @property
    def compares_processes(self) -> bool:
        """True to compare programs across processes before they run."""
        if self.same_on_all_processes is None:
            return self.shardings is not None
        return self.same_on_all_processes
