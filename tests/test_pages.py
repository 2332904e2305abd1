"""The programs in README.md and docs/ run as printed, print what is shown, and do what the text
around them says.

Each block runs by itself, in an empty folder. `...` in an output stands for anything.

- A block of `python`: the block of `text` that follows it is what it prints. Microseconds aren't
  compared. The block's title is the name of its file.
- A block of `pycon`: a session that begins after the page's first block of `python`. What is shown
  below a statement is its warnings, its error or its value. A value that isn't shown isn't
  compared; a warning or an error that isn't shown fails the test. A session that ends in
  ``f.explain(...)`` is followed by the call itself, which must do as explained. An empty line begins
  another session.
"""

import ast
import doctest
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import draw
import filterjit
from filterjit._call import _direct
from filterjit._compat import _nnx_compat
from filterjit._observe import _forbid
from support.public import public_names

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MESSAGES = ROOT / "docs" / "errors.md"
# Sessions that go on from the first block of MESSAGES.
OTHER_MESSAGES = ROOT / "tests" / "messages.md"


class Block(NamedTuple):
    page: str
    line: int
    title: str
    code: str
    said: str | None


def blocks(page: Path) -> list[Block]:
    """Returns the blocks of Python of a page, in order, with the text that each is to print."""
    text = page.read_text()
    found = re.finditer(
        r"^```python(?: title=\"(.*?)\")?\n(.*?)^```$(?:\s*^```text\n(.*?)^```$)?",
        text,
        re.M | re.S,
    )
    name = page.relative_to(ROOT).as_posix()
    return [
        Block(name, text.count("\n", 0, m.start()) + 1, m[1] or page.name, m[2], m[3])
        for m in found
    ]


ALL = {f"{block.page}:{block.line}": block for page in PAGES for block in blocks(page)}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_forbid, "_forbids", [])
    yield
    jax.config.update("jax_default_matmul_precision", None)


def execute(block: Block) -> dict[str, Any]:
    """Runs a block, and returns the names that it defines."""
    found: dict[str, Any] = {"__name__": Path(block.title).stem}
    exec(compile(block.code, block.title, "exec"), found)
    return found


def only(page: str, text: str) -> Block:
    """Returns the block of a page that contains a text."""
    (block,) = (x for x in ALL.values() if x.page == page and text in x.code)
    return block


@pytest.mark.parametrize("name", ALL)
def test_it_runs_and_prints_what_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    block = ALL[name]
    if "filterjit.nnx" in block.code and not _nnx_compat.supported:
        pytest.skip("filterjit.nnx hands over all calls with this version of Flax")
    needs_direct = 'row["direct"]' in block.code
    if needs_direct and not _direct.are_supported():
        pytest.skip("older versions of JAX lack what direct calls need")
    execute(block)
    said, shown = (
        re.sub(r"\d+ us\b", "n us", text) for text in (capsys.readouterr().out, block.said or "")
    )
    if not doctest.OutputChecker().check_output(shown, said, doctest.ELLIPSIS):
        assert said == shown


class Session(NamedTuple):
    page: Path
    title: str
    text: str

    @property
    def needs_devices(self) -> bool:
        return re.search(r"\b(devices|mesh)\b", self.text) is not None


def titled(page: Path) -> list[tuple[str, str]]:
    """Returns the blocks of sessions of a page with their titles."""
    return re.findall(r"^### ([^\n]*)\n\n```pycon\n(.*?)^```$", page.read_text(), re.M | re.S)


def sessions(page: Path) -> list[Session]:
    return [
        Session(page, title, x + "\n") for title, text in titled(page) for x in text.split("\n\n")
    ]


SESSIONS = [session for page in [*PAGES, OTHER_MESSAGES] for session in sessions(page)]
# Some texts are JAX's.
new_jax = pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="JAX says it otherwise")

compiled: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **kwargs: (
        compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
)


def name_of(cls: type) -> str:
    module = cls.__module__.partition(".")[0]
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"


def said_by(source: str, line: int, names: dict[str, Any], want: str) -> tuple[bool, str]:
    """Runs a statement of train.py. Returns whether it warned or raised, and what it said."""
    (node,) = ast.parse("\n" * line + source).body
    code: ast.Expression | ast.Module = ast.Module([node], [])
    if isinstance(node, ast.Expr):
        code = ast.Expression(node.value)
    value, raised = "None", []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if "RetraceWarning" not in want:  # all sessions are one file that defines `f` again
            warnings.simplefilter("ignore", filterjit.RetraceWarning)
        try:
            mode = "eval" if isinstance(code, ast.Expression) else "exec"
            value = repr(eval(compile(code, "train.py", mode), names))
        except (Exception, SystemExit) as e:
            text = e.args[0] if isinstance(e, KeyError) else e
            notes = [note for note in getattr(e, "__notes__", []) if not note.startswith("-----")]
            raised = ["\n".join([f"{name_of(type(e))}: {text}", *notes])]
    loud = [f"{name_of(x.category)}: {x.message}" for x in warned] + raised
    return bool(loud), "\n".join(loud or [value]) + "\n"


def check(session: Session) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    begin = MESSAGES if session.page == OTHER_MESSAGES else session.page
    exec(compile(blocks(begin)[0].code, "begin.py", "exec"), names)
    examples = doctest.DocTestParser().get_examples(session.text)
    for example in examples:
        is_loud, said = said_by(example.source, example.lineno, names, example.want)
        if is_loud or example.want:
            same = doctest.OutputChecker().check_output(example.want, said, doctest.ELLIPSIS)
            assert same or said == example.want
    assert examples[-1].want
    if ".explain(" in examples[-1].source:
        compiled.clear()
        is_loud, said = said_by(examples[-1].source.replace(".explain(", "(", 1), 0, names, "")
        if "raises an error" in examples[-1].want:
            assert is_loud and "deleted" in said
        else:
            assert compiled and not is_loud, said


@new_jax
@pytest.mark.parametrize(
    "session", [x for x in SESSIONS if not x.needs_devices], ids=lambda session: session.title
)
def test_a_session(session: Session) -> None:
    check(session)


@new_jax
@pytest.mark.skipif(len(jax.devices()) < 2, reason="tests/sharding runs these with eight devices")
@pytest.mark.parametrize(
    "session", [x for x in SESSIONS if x.needs_devices], ids=lambda session: session.title
)
def test_a_session_with_devices(session: Session) -> None:
    check(session)


def test_all_code_is_found() -> None:
    """A fence that is indented, or that names Python in another way, would not be run."""
    assert len(ALL) >= 10
    for page in [*PAGES, OTHER_MESSAGES]:
        fences = re.findall(r"^ *(?:```+|~~~+) *(.*?)$", page.read_text(), re.M)[::2]
        languages = {fence.partition(" ")[0] for fence in fences}
        assert languages <= {"python", "text", "console", "pycon"}
        assert sum(fence == "pycon" for fence in fences) == len(titled(page)), page
        assert sum(fence.startswith("python") for fence in fences) == len(blocks(page)), page


def test_many_devices() -> None:
    found = execute(only("docs/sharding.md", "ShardingRules("))
    model, losses = found["model"], []
    for _ in range(5):
        model, loss = found["step"](model, np.ones((16, 8), np.float32))
        losses.append(float(loss))
    assert losses == sorted(losses, reverse=True) and found["step"].cache_info().hits == 4


def test_the_reference_has_each_public_name() -> None:
    text = (ROOT / "docs/reference.md").read_text()
    named = re.findall(r"^- `filterjit\.([\w.]+)`: ", text, re.M)
    assert len(named) == len(set(named))
    found = {name.removeprefix("types.") for name in named}
    assert found == public_names().keys() - {"switches"}  # the instance of the type Switches


def test_the_lines_that_contributing_changes_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    files = re.findall(r"PYTEST_ARGS=(\S+)", text)
    changes = re.findall(r"`(\S+)` says \"([^\"]+)\"", text)
    assert len(files) == len(changes) == 2
    for name, words in changes:
        assert words in (ROOT / name).read_text()
    # The words of the core are expected by the first of the tests, in the test that is named.
    test = (ROOT / files[0]).read_text()
    assert changes[0][1] in test and "def test_bad_arguments_are_named" in test
    assert changes[1][1] in (ROOT / files[1]).read_text()


def test_figures_of_the_first_page_are_those_of_the_tables() -> None:
    found = re.findall(
        r"\| \[([\d.]+(?: to [\d.]+)?)\]\(([\w/.-]+)", (ROOT / "README.md").read_text()
    )
    assert len(found) > 4
    for figures, page in found:
        shown = re.findall(r"\d+\.\d+", (ROOT / page).read_text())
        assert set(figures.split(" to ")) <= set(shown), f"{figures} isn't in {page}"


@pytest.mark.parametrize("name", draw.PICTURES)
def test_a_picture_shows_its_table(name: str) -> None:
    assert (draw.ASSETS / name).read_text() == draw.PICTURES[name](), "run benchmarks/draw.py"


def test_the_first_picture_is_described() -> None:
    text = re.search(r"!\[(.*?)\]\(docs/assets/bars.svg\)", (ROOT / "README.md").read_text())
    assert text and re.findall(r"\d+%", text[1]) == re.findall(r"\d+%", draw.bars())
