"""Bounds on instructions: how callgrind's output is read and compared with the bounds. The counting
itself is done by .ci/instructions."""

import pytest

import count_instructions
from count_instructions import STEPS, instructions, judge, judge_growth, main, read_calls, table

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


def test_a_step_is_the_sum_of_its_functions():
    calls = {name: (10, 1000 + i) for i, name in enumerate(STEPS["look-up"])}
    assert instructions(calls, "look-up") == 200


def test_a_function_that_is_not_found_is_named():
    with pytest.raises(SystemExit, match="fj_match_arguments"):
        instructions(read_calls(PROFILE), "match")


def test_a_count_over_its_bound_is_reported_with_both_figures():
    bounds = dict.fromkeys(("same", "slower", "within", "faster"), 1000)
    worse, better = judge({"same": 1000, "slower": 1031, "within": 1030, "faster": 969}, bounds)
    assert worse == ["slower: 1,031 instructions, +3.1 % of 1,000"]
    assert better == ["faster: 969 instructions, -3.1 % of 1,000"]


def test_growth_out_of_proportion_is_reported():
    small = {"build, 100 dicts alone": 1000, "match, 100 dicts alone": 500, "build, MLP": 9}
    large = {"build, 1,000 dicts alone": 12_500, "match, 1,000 dicts alone": 10}
    assert judge_growth({**small, **large}) == []
    (found,) = judge_growth({**small, **large, "build, 1,000 dicts alone": 12_501})
    assert found == "build, 1,000 dicts alone: 12.5 times the instructions of 100"


def test_the_table_is_aligned():
    lines = table({"a": 1000, "another": 20}, {"a": 1234}).splitlines()
    assert lines[1].split() == ["a", "1,000", "1,234", "-19.0", "%"]
    assert lines[2].split() == ["another", "20", "-"]
    assert len(lines[0]) == len(lines[1])


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


def test_without_valgrind_nothing_is_counted(counted, monkeypatch, capsys):
    monkeypatch.setattr(count_instructions.shutil, "which", lambda name: None)
    assert main(["--check"]) == 0
    assert main([]) == main(["--update"]) == 1
    assert "valgrind is not installed" in capsys.readouterr().err
