"""Describes the file of a compiled function. `filterjit.load` loads it.

Importing this module imports JAX.
"""

from ._aot._file import saved_info

__all__ = ["saved_info"]
