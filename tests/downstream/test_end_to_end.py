"""The programs of benchmarks/end_to_end.py compute the same on both implementations. No test
checks times."""

import equinox as eqx
import jax.tree_util as jtu
import pytest

from end_to_end import HEADERS, IMPLEMENTATIONS, PROGRAMS, Row, main, start, table
from support.comparison import comparable


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_results(name: str) -> None:
    """Each step's result depends on all steps before it."""
    steps = {x: start(name, x) for x in IMPLEMENTATIONS}
    found = {}
    for implementation, step in steps.items():
        with IMPLEMENTATIONS[implementation]():
            found[implementation] = [step() for _ in range(5)]
    assert comparable(found["filterjit"]) == comparable(found["equinox"])
    assert jtu.tree_structure(found["filterjit"]) == jtu.tree_structure(found["equinox"])
    assert any(eqx.is_array(x) for x in jtu.tree_leaves(found["filterjit"]))


def test_each_program_has_a_line_of_text() -> None:
    for name, make in PROGRAMS.items():
        assert make.__doc__ and "\n" not in make.__doc__, name


def test_tables() -> None:
    rows = [Row("decode_step", {"equinox": 1234.5, "filterjit": 100.0})]
    header, rule, row = table(rows, markdown=True).splitlines()
    assert [x.strip() for x in header.strip("|").split("|")] == list(HEADERS)
    assert set(rule) <= set("|-: ")
    assert [x.strip() for x in row.strip("|").split("|")][1:] == ["1,234", "100", "12.3x"]
    assert len({len(line) for line in table(rows, markdown=False).splitlines()}) == 1


def test_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--program", "environment_step"]) == 0
    out, err = capsys.readouterr()
    assert str(PROGRAMS["environment_step"].__doc__) in out
    assert "\x1b" not in out and err == ""
