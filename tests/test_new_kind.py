"""Applies tests/new_kind.diff, of *How to add a kind of node* in CONTRIBUTING.md, to a copy of the
sources, and runs a program with it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """
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
PRINTED = """\
`x`: different static value: was aux data the int 3, is the int 4
`x`: different type: was aux data the int 3, is None
`x`: different structure: was a deque, is a list of 2 items
Structure([deque(0: *, 1: 'a')]) deque
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the change")
def test_the_change_adds_a_kind(tmp_path: Path) -> None:
    def run(*command: str, given: str | None = None) -> str:
        done = subprocess.run(command, cwd=tmp_path, input=given, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for name in ("csrc", "python", "setup.py", "pyproject.toml", "README.md"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    run("git", "apply", "-", given=(ROOT / "tests" / "new_kind.diff").read_text())
    run(sys.executable, "setup.py", "-q", "build_ext", "--inplace")
    (tmp_path / "python" / "program.py").write_text(PROGRAM)
    assert run(sys.executable, "-W", "error", "python/program.py") == PRINTED
