"""The output of reports: as text and on a terminal."""

import sys

import pytest
from explain_support import X

import filterjit
from filterjit import filter_jit
from support.terminals import terminal


@pytest.mark.parametrize("functions", [0, 1, 3])
def test_text(functions: int) -> None:
    rows = []
    for n in range(functions):
        f = filter_jit(lambda x, n=n: x + n)
        f(X)
        rows += f.report().as_dict()["functions"]
    report = filterjit.types.Report(rows, False)
    text = str(report)
    assert "\x1b" not in text and all(line == line.rstrip() for line in text.splitlines())
    assert len(text.splitlines()) == 3 + max(0, functions - 1) + (functions > 0) or functions == 0


@pytest.mark.parametrize("width", [40, 80, 160])
def test_on_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    f = filter_jit(lambda x, n: x + n, on_retrace="ignore")
    for n in range(8):
        f(X, n)
    monkeypatch.setenv("COLUMNS", str(width))
    with terminal() as opened:
        monkeypatch.setattr(sys, "stdout", opened.file)
        lines = str(f.report()).splitlines()
    assert any("3 oth" in line for line in lines) and ("compiling" in lines[1]) == (width > 40)
    assert all(len(line) <= width for line in lines[1:-1])
