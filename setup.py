"""Builds the C extension; everything else is in pyproject.toml.

Environment variables, for development:

- ``FILTERJIT_CFLAGS``: more compiler flags (sanitizers, coverage, ``-Werror``).
- ``FILTERJIT_TESTING=1``: also builds ``filterjit._testing``, which drives the core for tests.
"""

import os
import shlex
from glob import glob

from setuptools import Extension, setup

FLAGS = [
    "-std=c11",
    "-O3",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
    *shlex.split(os.environ.get("FILTERJIT_CFLAGS", "")),
]
LINK_FLAGS = [flag for flag in FLAGS if flag.startswith(("-fsanitize", "--coverage"))]


def extension(name: str, sources: list[str]) -> Extension:
    return Extension(
        name,
        sources=sources,
        depends=glob("csrc/*.h"),
        include_dirs=["csrc"],
        extra_compile_args=FLAGS,
        extra_link_args=LINK_FLAGS,
    )


extensions = [extension("filterjit._core", sorted(glob("csrc/*.c")))]
if os.environ.get("FILTERJIT_TESTING") == "1":
    extensions.append(extension("filterjit._testing", ["csrc/testing/testing.c", "csrc/table.c"]))
setup(ext_modules=extensions)
