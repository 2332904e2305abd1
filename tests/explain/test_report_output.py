"""The output of reports: as text, on a terminal, and as a plot."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from explain_support import X

import filterjit
from filterjit import filter_jit
from filterjit._observe._plot import draw
from filterjit._observe._words import TIMES
from support.terminals import terminal


@pytest.mark.parametrize("functions", [0, 1, 3])
def test_text_and_picture(functions: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = []
    for n in range(functions):
        f = filter_jit(lambda x, n=n: x + n)
        f(X)
        rows += f.report().as_dict()["functions"]
    report = filterjit.types.Report(rows, False)
    text = str(report)
    assert "\x1b" not in text and all(line == line.rstrip() for line in text.splitlines())
    assert len(text.splitlines()) == 3 + max(0, functions - 1) + (functions > 0) or functions == 0
    path = report.plot(tmp_path / "report.svg")
    assert path == str(tmp_path / "report.svg") and "</svg>" in Path(path).read_text()
    assert Path(report.plot(tmp_path / "report.png")).read_bytes().startswith(b"\x89PNG")
    assert sorted(os.listdir(tmp_path)) == ["report.png", "report.svg"]


def figures_of(name: str, seconds: float) -> dict[str, Any]:
    times = dict(zip(TIMES, (0.1, 0.25, 0.1, 0.5, 0.05), strict=True))
    return {"name": name} | {key: share * seconds for key, share in times.items()}


LONG = "package.module.Class.<locals>." + "name" * 50
PICTURES = {
    "one function": [figures_of("train.step", 2.0)],
    "sixty functions": [figures_of(f"module_{i}.function_{i}", 1e4 * 1.2**-i) for i in range(60)],
    "long names and numbers": [figures_of(LONG, 2e12), figures_of("f", 246913578024.0)],
    "short": [figures_of(f"f{i}", 1e-4) for i in range(3)],
    "one is nearly all": [figures_of("f$_1^x$", 0.4), figures_of("g", 1e-7), figures_of("h", 0.0)],
    "nothing": [],
}


@pytest.mark.parametrize("rows", PICTURES.values(), ids=PICTURES)
def test_nothing_lies_on_anything_else(rows: list[dict[str, Any]]) -> None:
    Text = pytest.importorskip("matplotlib.text").Text
    figure = draw(rows)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    left, right = axes.get_xlim()
    found = [*figure.legends]
    for text in axes.findobj(Text):
        beyond = text in axes.get_xticklabels() and not left <= text.get_position()[0] <= right
        of_axis = not axes.axison and text in [*axes.get_xticklabels(), *axes.get_yticklabels()]
        if text.get_text() and text.get_visible() and not beyond and not of_axis:
            found.append(text)
    assert len(found) >= (4 + 2 * len(rows[:13]) if rows else 2)
    extents = [one.get_window_extent() for one in found]
    bars = [bar.get_window_extent() for bar in axes.patches if bar.get_width()]
    page = figure.bbox
    for i, (one, extent) in enumerate(zip(found, extents, strict=True)):
        assert page.x0 <= extent.x0 and extent.x1 <= page.x1, one
        assert page.y0 <= extent.y0 and extent.y1 <= page.y1, one
        assert not any(extent.overlaps(other) for other in (*extents[i + 1 :], *bars)), one


def test_the_axis_has_one_unit_and_each_bar_its_sum() -> None:
    pytest.importorskip("matplotlib")
    axes = draw(PICTURES["sixty functions"]).axes[0]
    assert axes.get_xlabel() == "seconds"
    assert axes.get_yticklabels()[-1].get_text() == "48 other functions"
    rest = sum(1e4 * 1.2**-i for i in range(12, 60))
    assert axes.texts[-1].get_text() == f"{rest:,.0f} s"
    assert draw(PICTURES["short"]).axes[0].get_xlabel() == "milliseconds"


def test_a_failed_plot_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Figure = pytest.importorskip("matplotlib.figure").Figure
    path = tmp_path / "report.png"
    path.write_text("old")

    def fail(self: Any, file: Any, **_: Any) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(KeyboardInterrupt):
        filterjit.types.Report([], False).plot(path)
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


def test_a_picture_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        filterjit.report().plot(tmp_path / "report.svg")
    assert "pip install matplotlib" in caught.value.__notes__[0]
    assert not (tmp_path / "report.svg").exists()
