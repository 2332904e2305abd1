"""The line of the program that made a call, for warnings."""

import os
import sys

import jax

from .._base._package import PACKAGE

_FILTERJIT_AND_JAX = (PACKAGE + os.sep, os.path.dirname(jax.__file__) + os.sep)


def stack_level() -> int:
    """Returns the `stacklevel` with which the function that asks for it warns at the line that called
    the jitted function: the innermost frame that is neither filterjit's nor JAX's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FILTERJIT_AND_JAX):
        level, frame = level + 1, frame.f_back
    return level
