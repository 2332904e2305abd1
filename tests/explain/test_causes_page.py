"""docs/causes.md is what .ci/causes.py prints: 40 causes of a retrace and more, each of a real program."""

import re
from pathlib import Path

import jax
import pytest

from support.processes import run

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    jax.__version_info__ < (0, 12), reason="some texts are JAX's, and others in older versions"
)
def test_the_page_is_what_the_command_prints() -> None:
    page = (ROOT / "docs" / "causes.md").read_text(encoding="utf-8")
    assert run(ROOT / ".ci" / "causes.py", timeout=300).stdout == page
    rows = re.findall(r"^\| (\d+) \| (.*) \| (.*) \| (.*) \|$", page, re.M)
    assert [int(number) for number, *_ in rows] == list(range(1, len(rows) + 1))
    assert len(rows) >= 40 and len({(first, then) for _, first, then, _ in rows}) == len(rows)
