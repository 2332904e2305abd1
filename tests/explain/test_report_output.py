"""The output of reports: as text, on a terminal, and as a plot."""

import os
from pathlib import Path
from typing import Any

import pytest
from explain_support import X

import filterjit
from filterjit import filter_jit
from support.terminals import terminal


@pytest.mark.parametrize("functions", [0, 1, 3])
def test_text_and_picture(functions: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = []
    for n in range(functions):
        f = filter_jit(lambda x, n=n: x + n)
        f(X)
        rows += f.report().as_dict()["functions"]
    report = filterjit.Report(rows, False)
    text = str(report)
    assert "\x1b" not in text and all(line == line.rstrip() for line in text.splitlines())
    assert len(text.splitlines()) == 3 + max(0, functions - 1) + (functions > 0) or functions == 0
    path = report.plot(tmp_path / "report.svg")
    assert path == str(tmp_path / "report.svg") and "</svg>" in Path(path).read_text()
    assert Path(report.plot(tmp_path / "report.png")).read_bytes().startswith(b"\x89PNG")
    assert sorted(os.listdir(tmp_path)) == ["report.png", "report.svg"]


def test_a_failed_plot_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Figure = pytest.importorskip("matplotlib.figure").Figure
    path = tmp_path / "report.png"
    path.write_text("old")

    def fail(self: Any, file: Any, **_: Any) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(KeyboardInterrupt):
        filterjit.Report([], False).plot(path)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["report.png"]


@pytest.mark.parametrize("width", [40, 80, 160])
def test_on_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    f = filter_jit(lambda x, n: x + n)
    for n in range(8):
        f(X, n)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    with terminal() as opened:
        text = f.report().text(opened.file)
    assert width == 40 or ("compil" in text and "3 oth" in text)
    from rich.text import Text

    assert all(len(Text.from_ansi(line)) <= width for line in text.splitlines())
