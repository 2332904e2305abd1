"""`switches`: process-wide settings."""

import os
import warnings
from collections.abc import Callable

from ._checks import check_bool, did_you_mean

_WORDS = {"1": True, "true": True, "on": True, "yes": True}
_WORDS |= {"0": False, "false": False, "off": False, "no": False}
_DEFAULTS = {"direct": True, "explain": False, "progress": True, "time_calls": False}


def _initial(name: str) -> bool:
    """Reads a switch from the environment, or returns its default."""
    variable, default = f"FILTERJIT_{name.upper()}", _DEFAULTS[name]
    given = os.environ.get(variable, "")
    if given.lower() not in _WORDS and given:
        warnings.warn(
            f"The environment variable {variable} is {given!r} and has no effect: set it to 1 or 0.",
            stacklevel=3,
        )
    return _WORDS.get(given.lower(), default)


def _warn_of_typos() -> None:
    known = [name.upper() for name in _DEFAULTS]
    for variable in os.environ:
        name = variable.removeprefix("FILTERJIT_")
        if name not in (variable, *known) and (question := did_you_mean(name, known, 0.75)):
            question = question.replace("'", "'FILTERJIT_", 1)
            text = f"The environment variable {variable} has no effect.{question}"
            warnings.warn(text, stacklevel=3)


class Switches:
    """Process-wide settings of all jitted functions. `filterjit.switches` is the only instance.

    Environment variables such as ``FILTERJIT_DIRECT=0`` or ``FILTERJIT_EXPLAIN=1`` set initial
    values: "0", "false", "off" or "no"; "1", "true", "on" or "yes". Assign to change a value.

    Attributes:
        direct: whether hits like earlier ones run their executable without ``jax.jit``. On by
            default. `filterjit.report` counts these calls, and says why the rest differed.
        explain: whether to log why any function retraces, to the logger ``"filterjit"`` at level
            WARNING. ``on_retrace="log"`` does so for one function. Off by default. The reason is
            cut to one line for functions in installed libraries, and for a function that compiles
            for the same causes at least four times in a row.
        progress: whether a terminal or notebook shows each function that compiles for more than
            two seconds, and its time so far. On by default.
        time_calls: whether to time hits, until they return, for `filterjit.report`. Off by default.

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
        set_(self, "_listeners", {})
        for name in _DEFAULTS:
            set_(self, name, _initial(name))
        _warn_of_typos()

    def __setattr__(self, name: str, value: bool) -> None:
        if name not in _DEFAULTS:
            question = did_you_mean(name, list(_DEFAULTS))
            raise AttributeError(f"`filterjit.switches` has no {name!r}.{question}")
        check_bool(f"filterjit.switches.{name}", value)
        object.__setattr__(self, name, value)
        listeners: dict[str, Callable[[bool], None]] = self.__dict__["_listeners"]
        if name in listeners:
            listeners[name](value)

    def __repr__(self) -> str:
        return f"<switches: {', '.join(f'{name}={getattr(self, name)}' for name in _DEFAULTS)}>"


switches = Switches()


def on_switch(name: str, function: Callable[[bool], None]) -> None:
    """Calls a function with the value of a switch, now and after each change."""
    switches.__dict__["_listeners"][name] = function
    function(getattr(switches, name))
