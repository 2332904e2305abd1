"""`switches`: the settings of all jitted functions of the process."""

import os
import warnings
from collections.abc import Callable

from ._checks import check_bool, did_you_mean

_WORDS = {"1": True, "true": True, "on": True, "yes": True}
_WORDS |= {"0": False, "false": False, "off": False, "no": False}
_DEFAULTS = {"direct": True, "explain": False, "progress": True, "time_calls": False}


def _initial(name: str) -> bool:
    """Returns the value that the environment has for a switch, or its default."""
    variable, default = f"FILTERJIT_{name.upper()}", _DEFAULTS[name]
    given = os.environ.get(variable, "")
    if given.lower() not in _WORDS and given:
        warnings.warn(
            f"The environment variable {variable} is {given!r} and has no effect: set it to 1 or 0.",
            stacklevel=3,
        )
    return _WORDS.get(given.lower(), default)


class Switches:
    """Settings of all jitted functions of the process; `filterjit.switches` is the only instance.

    An environment variable sets the initial value of a switch: ``FILTERJIT_DIRECT=0`` or
    ``FILTERJIT_EXPLAIN=1``. "false", "off" and "no" mean 0; "true", "on" and "yes" mean 1. An
    assignment changes the value.

    Attributes:
        direct: whether hits like earlier ones run their executable without ``jax.jit``. On by
            default. `filterjit.report` says how many calls did, and why others did not.
        explain: whether to log the reason of each retrace of any function, to the logger
            ``"filterjit"`` with level WARNING. ``on_retrace="log"`` does it for one function. Off
            by default. The reason takes one line for a function in an installed library, and for a
            function that compiles for the same causes for the fourth time in a row or more.
        progress: whether a terminal or a notebook shows the name of each function that has been
            compiling for more than two seconds, and for how long. On by default.
        time_calls: whether to time hits for `filterjit.report`. A hit is timed until it returns.
            Off by default.

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
        for name in _DEFAULTS:
            set_(self, name, _initial(name))

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
    """Calls a function with the value of a switch, now and after each change."""
    switches.__dict__["_told"][name] = function
    function(getattr(switches, name))
