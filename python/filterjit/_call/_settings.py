"""`Settings`: what a jitted function was given besides the function."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypedDict

from .._base._checks import one_of
from .._compat import _jax_compat
from ._caches import MAXSIZE
from ._donation import NO_DONATION, Donation
from ._selection import NONE, NOTHING, Chosen, Named

OnRetrace = Literal["log", "warn", "raise", "ignore"] | Callable[[Any], Any] | None
"""What to do when a function compiles again; a function gets the `Explanation`."""


def check_on_retrace(function: str, on_retrace: Any) -> None:
    """Raises ValueError if `function`, such as ``"filter_jit"``, does not take this."""
    if on_retrace is not None and not callable(on_retrace):
        also = "a callable that takes an explanation, or None"
        option = f"{function}(..., on_retrace=...)"
        one_of(option, on_retrace, ("log", "warn", "raise", "ignore"), also=also)


class OptionsOfJax(TypedDict, total=False):
    """The options that are passed on to the ``jax.jit`` of a flat function."""

    keep_unused: bool
    device: Any
    backend: str | None
    inline: Any
    compiler_options: dict[str, Any] | None


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a function is jitted; the fields are the options of `filter_jit`.

    Functions with equal settings share their programs. Settings whose `jitkwargs` are not hashable
    are not hashable either.

    Attributes:
        shardings: `in_shardings`, `out_shardings` and `mesh`, a `_shardings._options.Shardings`; None
            without.
        jitkwargs: what is passed on to ``jax.jit``, sorted by name.
        numbers_traced: whether Python's numbers are traced, as under ``jax.jit``.
        static: the static arguments of ``jax.jit``.
        traced: the leaves of the arguments that are traced if they are Python's numbers.
    """

    donate: Donation = NO_DONATION
    functions: str = "identity"
    maxsize: int = MAXSIZE
    on_retrace: OnRetrace = None
    shardings: Any = None
    same_on_all_processes: bool | None = None
    jitkwargs: tuple[tuple[str, Any], ...] = ()
    numbers_traced: bool = False
    static: Named = NONE
    traced: Chosen = NOTHING

    def __post_init__(self) -> None:
        # `compiler_options` as they are now.
        kwargs = ((k, dict(v) if isinstance(v, dict) else v) for k, v in self.jitkwargs)
        object.__setattr__(self, "jitkwargs", tuple(sorted(kwargs)))
        if self.jitkwargs:
            _jax_compat.jit(lambda: None, **dict(self.jitkwargs))  # raises if it does not know one

    def __str__(self) -> str:
        """Returns the options as they are written in a call of `filter_jit`."""
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
        """Whether programs are compared with those of other processes before they run."""
        if self.same_on_all_processes is None:
            return self.shardings is not None
        return self.same_on_all_processes

    @property
    def tells_unused(self) -> bool:
        """Whether donated arrays whose memory no result can take are told by their paths.

        Without shardings, "warn" as a mode leaves that to JAX.
        """
        is_warned = self.shardings is not None and self.donate.mode.startswith("warn")
        return bool(self.donate.chosen) or is_warned
