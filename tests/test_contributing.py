"""Applies tests/new_kind.diff and tests/new_type.diff, the examples of CONTRIBUTING.md, to a copy of
the sources, and runs a program with each: one row of a table adds a type to hits, functions and files.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import ROOT, environment, run
from support.versions import needs_saved_executables

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("git") is None, reason="git applies the changes"),
]

KIND = """
import collections

import jax
import jax.numpy as jnp

import filterjit
from filterjit import _core
from filterjit._trees._registry import registry

def flatten(deque):
    return [(jax.tree_util.SequenceKey(i), x) for i, x in enumerate(deque)], deque.maxlen

jax.tree_util.register_pytree_with_keys(
    collections.deque, flatten, lambda maxlen, items: collections.deque(items, maxlen)
)
traces = []

@filterjit.filter_jit
def f(x):
    traces.append(0)
    return collections.deque([x[0] + 1, x[1]], x.maxlen)

deque = collections.deque([jnp.ones(2), "a"], 3)
for _ in range(2):
    result = f(deque)
    assert result[0].tolist() == [2, 2] and result[1] == "a" and result.maxlen == 3
assert len(traces) == 1
for other in (collections.deque(deque, 4), collections.deque(deque), list(deque)):
    print(f.explain(other).causes[0])
assert f(collections.deque(deque, 4)).maxlen == 4 and len(traces) == 2
_, structure = _core.flatten(registry, [deque])
print(structure, structure._node(1)[0])
"""
OF_KIND = """\
`x`: different static value: was aux data the int 3, is the int 4
`x`: different type: was aux data the int 3, is None
`x`: different structure: was a deque, is a list of 2 items
Structure([deque(0: *, 1: 'a')]) deque
"""

TYPE = """
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
OF_TYPE = """\
2
2
[2. 2.]
MismatchError
`file` cannot be loaded: the function `held` of `module` has changed since, by its code, defaults or closure.
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both changes, built."""
    folder = tmp_path_factory.mktemp("changed")
    for name in ("csrc", "python", "setup.py", "pyproject.toml", "README.md"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    for name in ("new_kind.diff", "new_type.diff"):
        subprocess.run(["git", "apply", ROOT / "tests" / name], cwd=folder, check=True)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=folder, check=True
    )
    return folder


@pytest.mark.parametrize(
    ("program", "printed"),
    [(KIND, OF_KIND), pytest.param(TYPE, OF_TYPE, marks=needs_saved_executables)],
    ids=["kind", "type"],
)
def test_a_change(program: str, printed: str, changed: Path) -> None:
    env = environment([changed / "python"])
    assert run("-W", "error", "-c", program, timeout=120, cwd=changed, env=env).stdout == printed
