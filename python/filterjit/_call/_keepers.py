"""What a keeper of programs is, and what makes calls of a variant again: what a hook asks in each
process, also where nothing is kept."""

import weakref
from collections.abc import Callable
from typing import Any, Protocol

from .. import _core

Keep = Callable[[Any], None]
"""Keeps the program that a call has traced. It takes the ``jax.stages.Compiled``, or None if JAX has
compiled it for a call."""


def keep_nothing(_: Any) -> None:
    """Is what keeps a program where there is nothing to keep, or no keeper."""


class Keeper(Protocol):
    """Where programs are kept."""

    def find(self, call: Any, arrays: tuple[Any, ...]) -> tuple[Any, Keep]:
        """Returns the ``jax.stages.Compiled`` of a call (a `_kept.KeptCall`), or None, and what keeps a
        program that is not found.

        The variant then has the structure of the result. It may trace the call, and raises what the
        trace raises.
        """
        ...

    def settle(self) -> Any:
        """Is called before a trace that `find` does not make."""
        ...


# The `KeptCall` or the `ShardedCall` of a variant that has one; it lives as long as the variant, whatever
# its `call` is. A variant belongs to a cache, and so to the FilterJits that share it, each with hooks of
# its own.
calls: weakref.WeakKeyDictionary[_core.Variant, Any] = weakref.WeakKeyDictionary()

# Returns the keeper for the option `program_cache` of a function, if there is one.
# `_aot._program_option` sets it.
keeper_for: Callable[[Any], Keeper | None] | None = None
