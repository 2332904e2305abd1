"""Whole programs, written as users of the libraries would, print the same on filterjit."""

from pathlib import Path

import pytest

from support.processes import run

PROGRAMS = Path(__file__).parent / "programs"
OPTIONS = {path.stem: ["--jax"] * (path.stem == "sharded_step") for path in PROGRAMS.glob("*.py")}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_the_same_output(name: str) -> None:
    arguments = ["-m", "filterjit", "run", "--compare", *OPTIONS[name], f"{name}.py"]
    done = run(*arguments, cwd=PROGRAMS, timeout=900)
    verdict, output, *more = done.stdout.splitlines()[-2:]
    assert "plain / filterjit, without compiling: " in verdict
    assert output.startswith("the same output") and not more
