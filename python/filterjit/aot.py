"""Reading what a file of a compiled function says. `filterjit.load` loads such a file.

Importing this module imports JAX.
"""

from ._aot._file import saved_info

__all__ = ["saved_info"]
