"""The option `program_cache` of a function, and the program cache of the process.

Importing `_program_cache` takes milliseconds, so it is imported where a folder is named: by the
option, by the environment, or by the first use of ``filterjit.program_cache``.
"""

import os
from typing import Literal

from .._call import _keepers

VARIABLE = "FILTERJIT_PROGRAM_CACHE"
Path = str | os.PathLike[str] | Literal[False] | None

current: _keepers.Keeper | None = None
"""The cache of the process, which `_program_cache` sets."""


def folder_of(path: Path) -> str | bool | None:
    """Returns the option `program_cache` of one function as `Settings` has it.

    Raises TypeError or ValueError if it is none of None, False and a path."""
    if path is None or path is False:
        return path
    from ._program_cache import cache_of

    return cache_of(path).store.path


def _keeper_for(path: str | bool | None) -> _keepers.Keeper | None:
    """Returns the cache for the option `program_cache` of `Settings`."""
    if not isinstance(path, str):
        return current if path is None else None
    from ._program_cache import cache_of

    return cache_of(path)


_keepers.keeper_for = _keeper_for
if os.environ.get(VARIABLE):
    from . import _program_cache as _program_cache
