"""A program that is edited between its starts: ``python restarts.py SEED EDITS FOLDER``.

The program loads a file, and compiles a function with ``compile(..., file=path)``. Its sources, its arguments and an
installed package have numbers, of which each edit changes one; other edits change comments, docstrings
or lines only. Each start compares the compiled function with the plain one. One that differs is
*silent*; one that was compiled after an edit of text alone is a *miss*. One that was loaded after
another edit is right if the result is, as where a number was changed back. `load` refuses the file
after each edit of what it compares, and after no other one. The first two starts are at once.

Starts are forked from this process, which has imported JAX and has not started it: importing takes
longer than all the rest. The last line on standard output is a JSON object of counts.
"""

import json
import os
import random
import runpy
import sys
from collections import Counter
from pathlib import Path
from typing import Any

PROGRAM = '''{comment}
import json, logging, sys
import equinox as eqx, jax, jax.numpy as jnp, numpy as np
import filterjit, installed, model
from filterjit import filter_jit
{lines}
LOG = []
handler = logging.Handler()
handler.emit = lambda record: LOG.append((record.levelname, record.getMessage()))
logging.getLogger("filterjit").addHandler(handler)
logging.getLogger("filterjit").setLevel("INFO")
MAIN = {main}.0
def make(held, kept):
    def body(net, x, n, by=None):
        """{docstring}"""
        import late  # in a trace, and not before
        LOG.append("traced")
        local = lambda y: y * {in_lambda}
        y = net(x) * n + held * model.helper(x) + MAIN + late.scale(x) + installed.add(x)
        return local(y) + kept.sum() + (0 if by is None else by)
    return body
body = make({closure}, jnp.full(2, {array}.0))
net = model.Net(jnp.arange(2.0), {field})
x = jnp.ones({shape}, {dtype!r})
if {device}:
    x = jax.device_put(x, jax.devices()[{device} % 2])
args = (net, x, {static}) + ((np.float32({given}),) if {given} else ())
try:
    filterjit.load({file!r})
    refused = ""
except (OSError, ValueError) as e:
    refused = str(e)
with jax.default_matmul_precision({precision!r}):
    f = filter_jit(body, donate={donate!r})
    compiled = f.compile(*args, file={file!r})
log, traced = [x for x in LOG if x != "traced"], "traced" in LOG
expected = body(*args)
result = compiled(*args)
print(json.dumps([np.asarray(result).tolist(), np.asarray(expected).tolist(), traced, log, refused]))
'''
FILES = {
    "model.py": '''{comment}
"""{docstring}"""
import equinox as eqx, jax
import base
{lines}
CONSTANT = {constant}.0
def helper(x, by={default}.0, *, more={keyword}.0):
    """{docstring}"""
    return x * by * CONSTANT + more
class Net(base.Base):
    """{docstring}"""
    w: jax.Array
    n: int = eqx.field(static=True)
    def __call__(self, x):
        return super().__call__(x) + self.w.sum() * self.n
''',
    "base.py": """{comment}
import equinox as eqx
class Base(eqx.Module):
    FACTOR = {of_class}.0
    def __call__(self, x):
        {comment}
        return x * self.FACTOR + {method}.0
""",
    "late.py": '''{lines}
def scale(x):
    """{docstring}"""
    return x * {late}.0
''',
    "site-packages/installed.py": """import jax
__version__ = "1.{version}"
def add(x):
    return x + {version}.0
""",
}
TEXT = ("comment", "docstring", "lines")
NUMBERS = (
    *("main", "in_lambda", "closure", "array", "field", "static", "given", "constant", "default"),
    *("keyword", "of_class", "method", "late", "version", "shape", "device"),
)
# What `load` names after an edit; it does not compare what is imported later.
WHERE = dict.fromkeys(NUMBERS, "`program`") | dict.fromkeys((*TEXT, "late"), "")
WHERE |= dict.fromkeys(("constant", "default", "keyword"), "`model`")
WHERE |= dict.fromkeys(("of_class", "method"), "`base`") | {"version": "`installed`"}
WORDS = {
    "dtype": ("float32", "float16", "int32"),
    "precision": ("float32", "bfloat16"),
    "donate": ("none", "all-except-first"),
}
WHERE |= dict.fromkeys(WORDS, "`program`")


class Program:
    """The files of a program, and its state: what its templates are filled with."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.state: dict[str, Any] = dict.fromkeys((*NUMBERS, *TEXT), 1)
        self.state |= {key: words[0] for key, words in WORDS.items()}
        self.state |= {"given": 0, "device": 0}
        (folder / "site-packages").mkdir(parents=True)

    def edit(self) -> str:
        """Changes one thing, and returns what."""
        kinds = (*TEXT, *TEXT, *TEXT, *NUMBERS, *WORDS)
        kind = self.random.choice(kinds)
        old = self.state[kind]
        choices = WORDS.get(kind, range(1 if kind not in ("given", "device") else 0, 4))
        self.state[kind] = self.random.choice([x for x in choices if x != old])
        return kind

    def write(self) -> None:
        text = {
            "comment": "# " + "a comment " * self.state["comment"],
            "docstring": "What it does. " * self.state["docstring"],
            "lines": "\n" * self.state["lines"],
            "file": str(self.folder / "program.jit"),
        }
        for name, template in {"program.py": PROGRAM, **FILES}.items():
            path, source = self.folder / name, template.format(**{**self.state, **text})
            if not path.exists() or path.read_text() != source:
                path.write_text(source)

    def starts(self, count: int = 1) -> list[list[Any]]:
        """Returns what starts at once write: the result, the right one, whether it traced, its log, and
        why `load` refused the file."""
        children = [self._fork() for _ in range(count)]
        found: list[list[Any]] = []
        for child, output in children:
            with os.fdopen(output) as file:
                text = file.read()
            _, status = os.waitpid(child, 0)
            if status:
                raise RuntimeError(f"the program failed: {self.state}")
            found.append(json.loads(text))
        return found

    def _fork(self) -> tuple[int, int]:
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            os.dup2(write, 1)
            sys.path[:0] = [str(self.folder), str(self.folder / "site-packages")]
            runpy.run_path(str(self.folder / "program.py"), run_name="__main__")
            sys.exit()
        os.close(write)
        return child, read


def main(seed: int, edits: int, folder: Path) -> Counter[str]:
    """Returns the number of starts of each outcome; writes those that are wrong."""
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    sys.dont_write_bytecode = True  # the files change within the resolution of their times
    import equinox  # noqa: F401 (children find it imported)

    import filterjit

    assert filterjit.filter_jit
    program, counts = Program(folder, seed), Counter[str]()
    program.write()
    for result, expected, *_ in program.starts(2):  # both write the file
        if result != expected:
            print("silent at first", result, expected, flush=True)
    for _ in range(edits):
        kind = program.edit()
        program.write()
        ((result, expected, traced, log, refused),) = program.starts()
        outcome = "compiled" if traced else "loaded"
        if result != expected:
            outcome = "silent"
        elif traced and kind in TEXT:
            outcome = "miss"
        elif any(level != "INFO" for level, _ in log) or len(log) != 1:
            outcome = "told otherwise"
        elif (WHERE[kind] not in refused) if WHERE[kind] else refused:
            outcome = "load"
        counts[outcome] += 1
        if outcome not in ("compiled", "loaded"):
            print(outcome, kind, program.state, result, expected, log, refused, flush=True)
    known = {"program.py", "program.jit", "site-packages", *FILES}
    if left := {path.name for path in folder.iterdir()} - known:
        print("left over", left)
    return counts


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
