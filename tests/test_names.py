"""Names in backticks exist: in Markdown, in docstrings, and in comments.

A name is known if the code has it, apart from its comments and docstrings, or if one of the libraries
has it. A page may also name what its own programs define.
"""

import ast
import builtins
import inspect
import io
import keyword
import re
import subprocess
import sys
import tokenize
from collections.abc import Set
from functools import cache
from pathlib import Path

import equinox  # noqa: F401
import jax
import jax.experimental.checkify
import jax.experimental.serialize_executable
import jax.export
import optax  # noqa: F401
import pytest
from flax import linen, nnx  # noqa: F401

from filterjit import types

pytestmark = pytest.mark.skipif(
    jax.__version_info__ < (0, 12), reason="pages and comments name what newer versions of JAX have"
)

ROOT = Path(__file__).parents[1]
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
CODE = re.compile(r"(`+)(.+?)\1(?!`)", re.S)
PLACEHOLDER = re.compile(r"\w*<\w+>\w*")
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
C_COMMENT = re.compile(r"/\*.*?\*/", re.S)


def tracked(*patterns: str) -> list[Path]:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", *patterns], capture_output=True, check=True
    )
    return [ROOT / name for name in done.stdout.decode().split("\0") if name]


def parts_of_python(text: str) -> tuple[str, str]:
    """Returns the code of a module, and its docstrings and comments."""
    lines, said = text.splitlines(), []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(words)) as string):
                said.append(words)
                assert string.end_lineno is not None
                for number in range(string.lineno - 1, string.end_lineno):
                    lines[number] = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            said.append(token.string)
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(lines), "\n".join(said)


def parts(path: Path) -> tuple[str, str]:
    """Returns the code of a file, and what its docstrings and comments say."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix in (".py", ".pyi"):
        return parts_of_python(text)
    if path.suffix in (".c", ".h"):
        return C_COMMENT.sub("", text), "\n".join(C_COMMENT.findall(text))
    return text, ""


@cache
def known() -> set[str]:
    """Returns the words of the code, the names of files, and those of the libraries."""
    found = {*keyword.kwlist, *dir(builtins), *sys.stdlib_module_names}
    for path in tracked():
        found |= {word for part in path.relative_to(ROOT).parts for word in WORD.findall(part)}
        if path.suffix not in (".md", ".svg", ".json") and path != Path(__file__):
            found |= set(WORD.findall(parts(path)[0]))
    for module in [m for name, m in sys.modules.items() if not name.startswith("tests.")]:
        found |= set(WORD.findall(module.__name__)) if module else set()
        for name, value in list(vars(module).items()) if module else ():
            found.add(name)
            if inspect.isclass(value):
                found |= set(dir(value))
    return found


def is_known(word: str) -> bool:
    """Returns whether a library or a setting has a name."""
    switch = word.removeprefix("FILTERJIT_").lower()
    # JAX makes some names when they are asked for. Settings are also environment variables.
    return (
        word in known()
        or switch in inspect.get_annotations(types.Switches)
        or hasattr(jax, word)
        or hasattr(jax.config, word.lower())
    )


def unknown(text: str, others: Set[str] = frozenset()) -> list[str]:
    spans = (PLACEHOLDER.sub("", code) for _, code in CODE.findall(text))
    words = {word for code in spans for word in WORD.findall(code)} - others
    return sorted(word for word in words if not is_known(word))


# Names that stand for others in a docstring or a comment, and a field of CPython's.
EXAMPLES = {"step_size", "DIGEST", "PROCESS", "embedded"}


def test_names() -> None:
    found = {}
    for path in tracked("*.md"):
        text = path.read_text(encoding="utf-8")
        own = {word for block in FENCE.findall(text) for word in WORD.findall(block)}
        found[path.relative_to(ROOT).as_posix()] = unknown(FENCE.sub("", text), own)
    for path in tracked("python/*.py", "csrc/*.c", "csrc/*.h"):
        found[path.relative_to(ROOT).as_posix()] = unknown(parts(path)[1], EXAMPLES)
    assert {name: words for name, words in found.items() if words} == {}
