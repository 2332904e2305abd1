"""Applies tests/new_type.diff, of *How to change the equality of statics* in CONTRIBUTING.md, to a
copy of the package, and runs a program with it: one row adds a type to hits, functions and files."""

import shutil
import subprocess
from pathlib import Path

import pytest

from filterjit._base._package import PACKAGE
from filterjit._compat import _executable_compat
from support.processes import ROOT, environment, run

PROGRAM = """
import re
import sys

import jax.numpy as jnp
import filterjit

x = jnp.ones(2)


def new(pattern):
    re.purge()
    return re.compile(pattern)


def holds(x, pattern):
    return lambda x: x * len(pattern.pattern)


def count(f, *calls):
    for args in calls:
        f(*args)
    print(len(f.variants))


static = filterjit.filter_jit(lambda x, pattern: x * len(pattern.pattern))
count(static, (x, new("a")), (x, new("a")), (x, new("ab")))
by_structure = filterjit.filter_jit(lambda f, x: f(x), functions="structure")
count(by_structure, *[(holds(x, new(p)), x) for p in ("a", "a", "ab")])
static.save("file")
loaded = filterjit.load("file")
print(loaded(x, new("ab")))
try:
    loaded(x, new("b"))
except filterjit.MismatchError as e:
    print(type(e).__name__)


def held(x, pattern=new("a")):
    return x


held.__module__ = "module"
sys.modules["module"] = type(sys)("module")
sys.modules["module"].held = held
f = filterjit.filter_jit(lambda f, x: f(x))
f(held, x)
f.save("file")
filterjit.load("file")
held.__defaults__ = (new("ab"),)
try:
    filterjit.load("file")
except ValueError as e:
    print(e)
"""
PRINTED = """\
2
2
[2. 2.]
MismatchError
`file` cannot be loaded: the function `held` of `module` has changed since, by its code, defaults or closure.
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the change")
@pytest.mark.skipif(not _executable_compat.can_save(), reason="needs JAX 0.7.2")
def test_a_row_adds_a_type(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "python" / "filterjit")
    change = (ROOT / "tests" / "new_type.diff").read_bytes()
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=change, check=True)
    env = environment([tmp_path / "python"])
    assert run("-c", PROGRAM, timeout=120, cwd=tmp_path, env=env).stdout == PRINTED
