"""Builds the C extension; everything else is in pyproject.toml.

Environment variables, for development:

- ``FILTERJIT_CFLAGS``: more compiler flags (sanitizers, coverage, ``-Werror``).
- ``FILTERJIT_TESTING=1``: also builds ``filterjit._testing``, which drives the core for tests.
"""

import os
import re
import shlex
import shutil
import sys

if sys.version_info < (3, 11):  # noqa: UP036 (pip asks setup.py before it compares versions)
    sys.exit(f"filterjit needs Python 3.11 or newer; this is Python {sys.version.split()[0]}.")

import sysconfig
import tomllib
import zlib
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, ExecError, PlatformError

# By setuptools' name of the compiler's family. "unix" is gcc and clang.
GCC = [
    "-std=c11",
    "-O3",
    # A check of 100,000 strings is one loop of 30 us, and 41 where it happens to cross a cache line.
    "-falign-loops=64",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
]
FLAGS = {"unix": GCC, "mingw32": GCC, "cygwin": GCC, "msvc": ["/O2", "/std:c11"]}


class BuildExtensions(build_ext):
    """Gives each compiler its own flags, compiles only what has changed, and says what is missing
    where no compiler is found."""

    def build_extensions(self) -> None:
        own = shlex.split(os.environ.get("FILTERJIT_CFLAGS", ""))
        flags = [*FLAGS.get(self.compiler.compiler_type, []), *own]
        for extension in self.extensions:
            extension.extra_compile_args = flags
            extension.extra_link_args = [
                flag for flag in flags if flag.startswith(("-fsanitize", "--coverage"))
            ]
        self.keep_objects(flags)
        super().build_extensions()

    def keep_objects(self, flags: list[str]) -> None:
        """Compiles a file only if it or a header is newer than its object, which is in a folder of
        these flags. So the two extensions share the objects of the core."""
        compile_one = getattr(self.compiler, "_compile", None)  # msvc has none
        if compile_one is None:
            return
        command = repr([self.compiler.compiler_so, flags])
        self.build_temp = os.path.join(self.build_temp, f"{zlib.crc32(command.encode()):08x}")
        headers = max(map(os.path.getmtime, glob("csrc/**/*.h", recursive=True)))

        def compile_if_newer(obj: str, src: str, *rest: object) -> None:
            newest = max(headers, os.path.getmtime(src))
            if not os.path.exists(obj) or os.path.getmtime(obj) <= newest:
                compile_one(obj, src, *rest)

        self.compiler._compile = compile_if_newer

    def run(self) -> None:
        # The compiler is looked for by run() on Windows, and by build_extensions() elsewhere.
        try:
            super().run()
        except (CCompilerError, ExecError, PlatformError) as error:
            raise SystemExit(message(missing(self.compiler), error)) from None


def missing(compiler: object) -> str | None:
    """Says what the machine lacks to compile an extension; None if it seems to lack nothing."""
    if not hasattr(compiler, "compiler_type"):  # nothing was found
        return "no C compiler was found"
    command = getattr(compiler, "compiler", None)  # msvc has none
    if command and shutil.which(command[0]) is None:
        return f"the C compiler `{command[0]}` was not found"
    include = sysconfig.get_path("include")
    if not os.path.exists(os.path.join(include, "Python.h")):
        return f"the headers of Python were not found ({include} has no Python.h)"
    return None


def message(lacks: str | None, error: Exception) -> str:
    if lacks is None:
        return (
            f"filterjit could not be built: {error}\n"
            "The compiler's own messages are above. filterjit needs CPython 3.11 or newer and a "
            "compiler that knows C11."
        )
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"filterjit could not be built: {lacks}.\n"
        "Its C extension is compiled here because pip was given the source, or found no wheel of "
        f"filterjit for this machine. Install a C compiler and the headers of Python {version}:\n"
        f"  Debian, Ubuntu:  apt install gcc python{version}-dev\n"
        f"  Fedora:          dnf install gcc python{version}-devel\n"
        "  macOS:           xcode-select --install\n"
        "  conda:           conda install c-compiler\n"
        "CC=NAME chooses another compiler. A newer pip may find a wheel: "
        "pip install --upgrade pip"
    )


def extension(name: str, sources: list[str]) -> Extension:
    return Extension(
        name,
        sources=sources,
        depends=glob("csrc/**/*.h", recursive=True),
        include_dirs=["csrc"],
    )


def readme() -> str:
    """Returns the README with absolute links: PyPI has none of the files that it links to."""
    with open("README.md", encoding="utf-8") as file:
        text = file.read()
    with open("pyproject.toml", "rb") as file:
        source = tomllib.load(file)["project"]["urls"]["Source"]
    return re.sub(r"\]\((?!\w+:|#)", f"]({source}/blob/main/", text)


FOLDERS = ("base", "structure", "walk", "tree", "call")
CORE = sorted(path for folder in FOLDERS for path in glob(f"csrc/{folder}/*.c"))

extensions = [extension("filterjit._core", [*CORE, "csrc/module.c"])]
if os.environ.get("FILTERJIT_TESTING") == "1":
    extensions.append(extension("filterjit._testing", [*CORE, "tests/core/testing.c"]))
setup(
    ext_modules=extensions,
    cmdclass={"build_ext": BuildExtensions},
    long_description=readme(),
    long_description_content_type="text/markdown",
)
