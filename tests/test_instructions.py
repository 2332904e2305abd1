"""Bounds on instructions: how callgrind's output is read and compared with the bounds. The counting
itself is done by .ci/instructions."""

import pytest

import count_instructions
from count_instructions import instructions, judge, main, read_calls

PROFILE = """\
fl=csrc/call.c
fn=fj_call
12 30
cob=/usr/lib/libc.so.6
cfn=malloc
calls=3 0
14 90
cfi=csrc/bind.c
cfn=fj_bind
calls=2 78
15 150
fn=run
cfn=fj_bind
calls=1 78
9 60
"""


def test_calls_are_read_with_their_inclusive_costs():
    calls = read_calls(PROFILE)
    assert calls == {"malloc": (3, 90), "fj_bind": (3, 210)}
    assert instructions(calls, "bind") == 70


def test_a_count_over_its_bound_is_reported_with_both_figures():
    bounds = dict.fromkeys(("same", "slower", "within", "faster"), 1000)
    worse, better = judge({"same": 1000, "slower": 1031, "within": 1030, "faster": 969}, bounds)
    assert worse == ["slower: 1,031 instructions, +3.1 % of 1,000"]
    assert better == ["faster: 969 instructions, -3.1 % of 1,000"]


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """The counts that `main` will see; its bounds are in a temporary file."""
    counts = {"bind, x": 1000}
    monkeypatch.setattr(count_instructions, "BOUNDS", tmp_path / "bounds.json")
    monkeypatch.setattr(count_instructions, "count", counts.copy)
    monkeypatch.setattr(count_instructions.shutil, "which", str)
    return counts


def test_check_fails_above_the_bound_only(counted, monkeypatch, capsys):
    assert main(["--check"]) == 0
    assert "no bounds for" in capsys.readouterr().err
    assert main(["--update"]) == 0
    for count, status in ((1000, 0), (1030, 0), (1031, 1), (500, 0)):
        monkeypatch.setattr(count_instructions, "count", lambda n=count: {"bind, x": n})
        capsys.readouterr()
        assert main(["--check"]) == status
        out, err = capsys.readouterr()
        assert f"{count:,}" in out and ("worse: bind, x" in err) == bool(status)
    assert "better: bind, x: 500" in err
