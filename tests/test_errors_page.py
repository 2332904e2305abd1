"""docs/errors.md and tests/messages.md show each message of the source that users meet, and each
cause of a retrace. test_pages.py runs their sessions."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from filterjit._observe import _table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "errors.md"  # the messages that need an explanation
OTHERS = ROOT / "tests" / "messages.md"
SHOWN = PAGE.read_text(encoding="utf-8") + OTHERS.read_text(encoding="utf-8")
# Exceptions that are caught where a call is made, and those of protocols of Python.
CAUGHT = {"HandOver", "AssertionError", "AttributeError"}
RAISED = re.compile(r"\w*(?:Error|Unsupported|damaged|Exit|warn)")
IN_C = re.compile(
    r'(?:PyErr_(?:Format|SetString)|fj_raise)\(\s*PyExc_\w+,\s*((?:"(?:[^"\\]|\\.)*"\s*)+)'
)
HOLE = "..."
# What a section shows: a session, or a text.
EXAMPLE = re.compile(r"^```(?:pycon|text)\n(.*?)^```$", re.M | re.S)
# Messages of the source that are in neither: where, what they say ("" for all), and why.
NOT_SHOWN: list[tuple[str, str, str]] = [
    ("csrc/base/", "", "the core's use by filterjit's own code"),
    ("csrc/call/", "", "the core's use by filterjit's own code"),
    ("__init__.py", "", "a checkout that is not built"),
    ("_base/_rooms.py", "", "a package that a part was taken out of"),
    ("csrc/structure/", "", "the core's own use, and classes that change in a walk"),
    ("csrc/tree/", "", "the core's use by filterjit's own code, which asks for paths first"),
    ("csrc/walk/kind_instances.c", "", "values that a user's registered functions return"),
    ("csrc/walk/build.c", "contains itself", "a tree that no function can be called with"),
    ("csrc/walk/kind_customs.c", "flatten_with_keys", "a mistake in a registered function"),
    ("csrc/walk/flatten.c", "a choice of leaves", "the core's use by filterjit's own code"),
    ("csrc/walk/flatten.c", "an argument changed", "a tree that changes while it is flattened"),
    ("_aot/_file.py", "", "other damages of a file"),
    ("_aot/_save.py", "which has no values", "a function made of specs"),
    ("_aot/_save.py", "JAX cannot serialize its", "a version of JAX without the names it needs"),
    ("_aot/_save.py", "of other leaves", "a class whose functions are not as JAX asks"),
    ("_aot/_compiled_calls.py", "no program takes", "replaced by the MismatchError that says why"),
    ("_aot/_load.py", "the number of", "other damages of a file"),
    ("_aot/_load.py", "JAX cannot call it", "a program that JAX exported and then refuses"),
    ("_aot/_load.py", "These are to belong", "several processes, other devices"),
    ("_aot/_program.py", "", "parts of `cannot be saved`, and of damaged files"),
    ("_compat/_direct_compat.py", "", "the core takes it: such a call is not direct"),
    ("_compat/_nnx_compat.py", "", "Flax's own message"),
    ("_trees/_codes.py", "", "parts of `a file cannot hold these parts` and of `cannot be loaded`"),
    ("_trees/_digests.py", "", "parts of `cannot be loaded`"),
    ("_shardings/_rules.py", "the tree changed", "a tree that a rule changes"),
]

NONE = ("first", "handed over")  # causes of a call that is no retrace


def test_each_cause_and_no_session_twice() -> None:
    of_retraces = section(SHOWN, "Causes of a retrace")
    titles = {title for kind, title in _table.TITLES.items() if kind not in NONE}
    assert {title for title in titles if title not in of_retraces} == set()
    assert len(set(EXAMPLE.findall(SHOWN))) == len(EXAMPLE.findall(SHOWN))


def text_of(node: ast.expr) -> str:
    """Returns the text that an expression of strings gives, with HOLE for what is not known."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(text_of, values))
        case ast.BinOp(left=left, right=right):
            return text_of(left) + text_of(right)
    return HOLE


def messages() -> Iterator[tuple[str, str]]:
    """Gives the file and the text of each message in the source that tells anything."""
    for path in sorted((ROOT / "python" / "filterjit").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2]
                if RAISED.fullmatch(name) and name not in CAUGHT:
                    file = path.relative_to(ROOT / "python" / "filterjit").as_posix()
                    yield from ((file, text_of(argument)) for argument in node.args[:2])
    for path in sorted((ROOT / "csrc").rglob("*.[ch]")):
        if path.parent.name != "testing":
            for found in IN_C.findall(path.read_text(encoding="utf-8")):
                text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', found))
                text = re.sub(r"%(?:\.\d+)?(?:z?[di]|s|U|R|S)", HOLE, text)
                yield path.relative_to(ROOT).as_posix(), text


def words(text: str) -> str:
    return " ".join(text.split())


def section(shown: str, title: str) -> str:
    """Returns the sections of that title of both files."""
    parts = shown.split(f"\n## {title}\n")
    assert len(parts) == 3
    return "".join(part.partition("\n## ")[0] for part in parts[1:])


def has(example: str, parts: list[str]) -> bool:
    """Returns whether an example has the parts, one after the other."""
    at = 0
    for part in parts:
        at = example.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def test_each_row_of_the_table_of_causes_is_shown() -> None:
    for name, row in vars(_table).items():
        # tests/explain has those for an `__eq__` whose answers change and for notebooks.
        if isinstance(row, _table.Row) and name not in ("EQUALITY", "CELL_CLASS"):
            assert all(part in SHOWN for part in re.split(r"\{\w+\}", row.remedy)), name


def test_each_message_is_shown() -> None:
    parts_of = re.compile(r"^(?=>>> )", re.M)  # a session has several statements
    examples = [words(x) for block in EXAMPLE.findall(SHOWN) for x in parts_of.split(block)]
    missing, named = [], set()
    for path, text in messages():
        parts = words(text).split(HOLE)
        if not re.search(r"\w", text) or any(has(example, parts) for example in examples):
            continue
        entry = next((x for x in NOT_SHOWN if path.startswith(x[0]) and x[1] in text), None)
        if entry is None:
            missing.append(f"{path}: {text}")
        named.add(entry)
    assert not missing, "show it in tests/messages.md or docs/errors.md\n" + "\n".join(missing)
    assert set(NOT_SHOWN) - named == set()


def test_messages_without_a_program_are_in_the_source() -> None:
    last = section(SHOWN, "With other machines, processes or versions")
    shown = [line for example in EXAMPLE.findall(last) for line in example.splitlines()]
    assert len(shown) > 5
    assert set(map(words, shown)) - {words(text) for _, text in messages()} == set()
