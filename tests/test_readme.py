"""The programs in README.md and docs/ run as printed, print what is shown, and do what the text
around them says. Those of docs/errors.md are run by test_errors_page.py.

Each block of Python runs by itself, in an empty folder. A block of text that follows it is what it
prints, where `...` stands for anything and the number of microseconds may be another. The name of its file is the block's title, if it has one.
"""

import doctest
import re
import runpy
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from filterjit._compat import _nnx_compat
from filterjit._observe import _forbid
from support.processes import run

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted({*(ROOT / "docs").rglob("*.md")} - {ROOT / "docs/errors.md"})]


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
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_forbid, "_forbids", [])


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
    execute(block)
    said, shown = (
        re.sub(r"\d+ us\b", "n us", text) for text in (capsys.readouterr().out, block.said or "")
    )
    if not doctest.OutputChecker().check_output(shown, said, doctest.ELLIPSIS):
        assert said == shown


def test_all_code_is_found() -> None:
    """A fence that is indented, or that names Python in another way, would not be run."""
    assert len(ALL) >= 10
    for page in PAGES:
        fences = re.findall(r"^ *(?:```+|~~~+) *(.*?)$", page.read_text(), re.M)[::2]
        assert {fence.partition(" ")[0] for fence in fences} <= {"python", "text", "console"}
        assert sum(fence.startswith("python") for fence in fences) == len(blocks(page)), page


# ---- what the text says of a block ----


def test_each_label_has_its_own_rule() -> None:
    found = execute(only("docs/trees.md", "multi_transform"))
    labels = found["labels"]
    assert labels.layers[2].bias == labels.layers[2].weight == "head"
    assert (labels.layers[0].weight, labels.layers[0].bias) == ("body", "bias")
    state = found["optimizer"].init(found["params"])
    losses = []
    model = found["combine"](found["params"], found["static"])
    for _ in range(20):
        model, state, value = found["step"](model, state, found["x"], found["y"])
        losses.append(float(value))
    assert losses[-1] < losses[0] / 2


def test_many_small_arrays() -> None:
    names = execute(only("docs/training.md", "ravel_pytree"))
    losses = []
    vector, moments = names["vector"], names["moments"]
    for _ in range(40):
        vector, moments, loss = names["step"](jnp.ones((4, 2)), vector, moments)
        losses.append(float(loss))
    assert losses[-1] < losses[0]


def test_a_restored_state_has_no_weak_types() -> None:
    names = execute(only("docs/training.md", "BatchNorm"))
    state = [names[name] for name in ("model", "state", "moments", "xs", "ys")]
    (cause,) = names["step"].explain(*state).causes
    assert cause.kind == "weak type" and cause.path.startswith("state")


def test_many_devices(capsys: pytest.CaptureFixture[str]) -> None:
    found = execute(only("docs/sharding.md", "ShardingRules("))
    assert "layers[0].weight  float32[64,8]" in capsys.readouterr().out
    model, losses = found["model"], []
    for _ in range(5):
        model, loss = found["step"](model, np.ones((16, 8), np.float32))
        losses.append(float(loss))
    assert losses == sorted(losses, reverse=True) and found["step"].cache_info().hits == 4


# ---- the pages ----


def test_the_reference_is_what_the_command_prints() -> None:
    text = (ROOT / "docs/reference.md").read_text()
    assert run(ROOT / ".ci" / "reference.py", timeout=100).stdout == text
    named = re.findall(r"^### (.*)$", text, re.M)
    assert len(named) == len(set(named))
    public = {*filterjit.__all__, *filterjit.types.__all__} - {"switches"}  # of the type Switches
    assert public - set(named) == set() and "`filterjit.switches`" in text
    site = runpy.run_path(str(ROOT / ".ci" / "reference.py"))["on_site"](text)
    assert "###" not in site
    told = re.findall(r"^::: filterjit\.(?:_core\.|types\.)?(.*)$", site, re.M)
    assert told == named


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


def test_the_first_page_is_short() -> None:
    words = (ROOT / "README.md").read_text().split()
    assert len(words) <= 900
