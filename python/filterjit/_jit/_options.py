"""`Options`: how a function is jitted."""

import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _core
from .._base import _jax_compat
from .._call._caches import CACHES_ATTRIBUTE
from .._call._options import CallOptions
from .._observe import _retraces

_jax_compat.hide_from_tracebacks(__file__)

DONATE = ("all", "all-except-first", "warn", "warn-except-first", "none")


class Options(CallOptions):
    """How a function is jitted, and the hooks of its calls."""

    def check_given(
        self, f: _core.FilterJit, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Raises ValueError if `f` donates one of the arguments that were given to a method."""
        if self.donate == "none":
            return
        given = [f"argument {i}" for i in range(len(args))] + [f"`{k}`" for k in kwargs]
        if self.donate.endswith("-except-first"):
            signature = f._parts()[0].signature
            first = [f"`{name}`" for name in signature.names[: min(signature.positional, 1)]]
            given = given[1:] if args else [x for x in given if x not in first]
        if given:
            raise ValueError(
                f"{given[0]} of `{method}` would be donated by the first call, and be deleted "
                f"before the second: this function was jitted with donate={self.donate!r}."
            )

    def given(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the options that were given to `filter_jit`, for pickles: those of ``jax.jit``,
        and the others."""
        options = {"donate": self.donate, "functions": self.functions, "maxsize": self.maxsize}
        if (given := self.shardings) is not None:
            options["shardings"] = (given.inputs, given.outputs, given.mesh)
        options["same_on_all_processes"] = self.same_on_all_processes
        return self.jitkwargs, options | vars(self.retraces)


def make_retrace_options(
    on_retrace: _retraces.OnRetrace, max_traces: int | None
) -> _retraces.RetraceOptions | None:
    """Returns None if nothing is to be done when a function is traced again."""
    if on_retrace is None and max_traces is None:
        return None
    return _retraces.RetraceOptions(on_retrace, max_traces)


def attributes(fun: Any) -> dict[str, Any]:
    """Returns the attributes that ``functools.update_wrapper`` would copy."""
    found: dict[str, Any] = {}
    if isinstance(fun, types.FunctionType):  # of other objects, the __dict__ is their state
        found.update(fun.__dict__)
    found.pop(CACHES_ATTRIBUTE, None)
    found.pop("__wrapped__", None)
    for name in functools.WRAPPER_ASSIGNMENTS:
        try:
            found[name] = getattr(fun, name)
        except AttributeError:
            pass
    return found
