"""`switches`: what holds for all jitted functions of the process."""

import os
from collections.abc import Callable

from ._checks import check_bool, did_you_mean

_DEFAULTS = {"direct": True, "explain": False, "progress": True, "time_calls": False}


class Switches:
    """What holds for all jitted functions of the process; `filterjit.switches` is the only instance.

    The environment variable with the name of a switch says how it is at the start, as
    ``FILTERJIT_DIRECT=0`` or ``FILTERJIT_EXPLAIN=1``; an assignment changes it.

    Attributes:
        direct: whether hits like earlier ones run their executable without ``jax.jit``, which
            returns the same. On by default. How many calls did, and why others did not, is in
            `filterjit.report`.
        explain: whether the reason of each retrace of any function is logged, to the logger
            ``"filterjit"`` with level WARNING, as ``on_retrace="log"`` does it for one function. Off
            by default. Of functions in installed libraries it is one line; so it is of a function
            that compiles again for the same causes for the fourth time in a row and more often.
        progress: whether a terminal or a notebook shows the name of each function that has been
            compiling for more than two seconds, and for how long. On by default.
        time_calls: whether hits are timed for `filterjit.report`, each until it returns, which takes
            less than a microsecond a call. Off by default.

    Examples:
        >>> filterjit.switches.progress = False
    """

    __module__ = "filterjit.types"

    direct: bool
    explain: bool
    progress: bool
    time_calls: bool

    def __init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "_told", {})
        for name, default in _DEFAULTS.items():
            given = os.environ.get(f"FILTERJIT_{name.upper()}", "")
            set_(self, name, given != "0" if given else default)

    def __setattr__(self, name: str, value: bool) -> None:
        if name not in _DEFAULTS:
            question = did_you_mean(name, list(_DEFAULTS))
            raise AttributeError(f"`filterjit.switches` has no {name!r}.{question}")
        check_bool(f"filterjit.switches.{name}", value)
        object.__setattr__(self, name, value)
        told: dict[str, Callable[[bool], None]] = self.__dict__["_told"]
        if name in told:
            told[name](value)

    def __repr__(self) -> str:
        return f"<switches: {', '.join(f'{name}={getattr(self, name)}' for name in _DEFAULTS)}>"


switches = Switches()


def tell(name: str, function: Callable[[bool], None]) -> None:
    """Calls a function with a switch, now and after each change."""
    switches.__dict__["_told"][name] = function
    function(getattr(switches, name))
