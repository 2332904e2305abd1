"""The warning about functions that change NNX Modules in place.

A trace gets copies of the Modules in its arguments, and `filter_jit` doesn't return the changes.
"""

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax

from .. import _core
from .._call._events import Listener, Trace, name_of, stack_level
from .._compat import _flax_compat, _jax_compat

_jax_compat.hide_from_tracebacks(__file__)

Variables = list[tuple[str, Any, Any]]
"""(path, Variable, value) of each Variable."""


def _why(decorator: str) -> str:
    """Explains why a change is lost, and what to do."""
    return (
        f"`{'filterjit.jit' if decorator == 'jit' else decorator}` traces a copy of its arguments. "
        "Jit the function with `filterjit.nnx.jit`, which updates them, or return the Module."
    )


def _variables_of(trace: Trace) -> Variables | None:
    """Returns the Variables in a trace's arguments, or None if one can't be flattened."""
    assert trace.cache is not None
    return _variables_in(trace.cache.signature.names, trace.arguments)


def _variables_in(names: Sequence[str], arguments: Sequence[Any]) -> Variables | None:
    cls: Any = _flax_compat.variable_type()
    try:
        return [
            (name + jax.tree_util.keystr(path), x, x.get_raw_value())
            for name, argument in zip(names, arguments, strict=True)
            for path, x in jax.tree_util.tree_leaves_with_path(
                argument, is_leaf=lambda x: isinstance(x, cls)
            )
            if isinstance(x, cls)
        ]
    except Exception:  # from user code; must not fail the call
        return None


class _LostChanges(Listener):
    def watches(self, trace: Trace) -> Callable[[Any], None] | None:
        """Warns once per function that changes Variables of its arguments in place."""
        if trace.hooks.updates_modules or trace.cache in _warned:
            return None
        cls = _flax_compat.variable_type()
        if cls is None or not trace.variant.structure._holds(cls):
            return None
        before = _variables_of(trace)
        return lambda out: _warn(trace, before, out)


listener = _LostChanges()
_warned: "weakref.WeakSet[_core.Cache]" = weakref.WeakSet()


def _warn(trace: Trace, before: Variables | None, result: Any) -> None:
    """Warns if a trace changed Variables of its arguments and doesn't return them. An NNX
    transformation inside the function hides its changes, because it gives all Variables new values.
    """
    after, results = _variables_of(trace), _variables_in(("",), (result,))
    if before is None or after is None or results is None:
        return
    returned = {id(variable) for _, variable, _ in results}
    now = {path: (variable, value) for path, variable, value in after}
    lost = [
        path
        for path, variable, value in before
        if (found := now.get(path)) is None
        or (
            id(found[0]) not in returned
            and (found[0] is not variable or found[1] is not value)
            and not _jax_compat.may_be_handed_back(found[1])
        )
    ]
    if lost:
        assert trace.cache is not None
        _warned.add(trace.cache)
        others = f" and {len(lost) - 1} other Variables" if len(lost) > 1 else ""
        warnings.warn(
            f"{name_of(trace.cache)} changes `{lost[0]}`{others} in place. That change is lost: {_why(trace.hooks.decorator)}",
            stacklevel=stack_level(),
        )
