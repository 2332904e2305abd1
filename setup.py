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
        depends=glob("csrc/**/*.h", recursive=True),
        include_dirs=["csrc"],
        extra_compile_args=FLAGS,
        extra_link_args=LINK_FLAGS,
    )


# Each folder of csrc/ but testing/, which is an extension of its own.
FOLDERS = ("base", "structure", "walk", "tree", "call")
CORE = sorted(path for folder in FOLDERS for path in glob(f"csrc/{folder}/*.c"))

extensions = [extension("filterjit._core", [*CORE, "csrc/module.c"])]
if os.environ.get("FILTERJIT_TESTING") == "1":
    extensions.append(extension("filterjit._testing", [*CORE, "csrc/testing/testing.c"]))
setup(ext_modules=extensions)
