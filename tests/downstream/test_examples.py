"""The programs in examples/ run as they are."""

import re
from pathlib import Path

import jax
import pytest

from support.processes import environment, run

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.slow


def losses(*arguments: str | Path) -> list[str]:
    """Returns what a program prints, but for its speed."""
    done = run(*arguments, timeout=300, env=environment())
    return [line for line in done.stdout.splitlines() if not line.endswith(" a second")]


def printed(name: str, *arguments: str) -> list[str]:
    """Returns the lines that a program prints, with `#` in the place of each number."""
    done = run("-W", "error", EXAMPLES / name, *arguments, timeout=300, env=environment())
    # XLA before JAX 0.10 logs what it finds in an executable that it loads.
    said = [line for line in done.stderr.splitlines() if not re.match(r"[WE]\d{4} ", line)]
    assert said == []
    return [re.sub(r"\d[\d,]*(\.\d+)?", "#", line) for line in done.stdout.splitlines()]


def test_demo(tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    lines = printed("demo.py", "100", str(picture))
    assert [line.split("|")[1].strip() for line in lines[2:4]] == [
        "equinox.filter_jit",
        "filterjit.filter_jit",
    ]
    assert lines[2].replace("equinox  ", "filterjit").split()[3:] == lines[3].split()[3:]
    assert lines[4] == "the same losses to the bit: True; # times as many steps a second"
    assert "</svg>" in picture.read_text()


def test_a_fit_of_diffrax() -> None:
    assert printed("diffrax_fit.py", "20") == [
        "loss #, then #",
        "the same losses to the bit: True",
        "# steps of the fit a second, with Equinox's #: # times as many",
        "# solves a second, with Equinox's #: # times as many",
    ]


def test_adapters() -> None:
    assert printed("lora.py", "50") == [
        "trained # of # arrays",
        "the saved adapters restore the model: True",
        "loss #, then #",
        "# steps a second, with eqx.filter_jit #: # times as many",
    ]


def test_a_policy() -> None:
    assert printed("cartpole.py", "2") == [
        "the pole stays up for # steps, then # of #",
        "# calls a second, with eqx.filter_jit #: # times as many",
    ]


def test_a_retrace_and_a_large_program_are_found() -> None:
    program = EXAMPLES / "find_retrace.py"
    command = ("-m", "filterjit", "run", "--explain", "--report", program)
    done = run(*command, timeout=300, env=environment())
    told, said = done.stderr, done.stdout.splitlines()
    assert said[:2] == ["the same training: True", "the same simulation: True"]
    assert "`rate`: different static value: was the float 0.1, is the float 0.05" in told
    (found,) = (text for text in told.splitlines() if "a Python loop" in text)
    assert re.match(r"__main__\.simulate: has \d,\d{3} equations, ", found)
    assert "`train` was compiled 8 times because of `rate`" in told


@pytest.mark.parametrize("name", ["digits", "transformer", "vae"])
def test_programs_of_flax_nnx(name: str) -> None:
    """The losses are those of ``flax.nnx.jit``, to the bit; with older versions of JAX, whose XLA
    compiles a program with fewer results otherwise, but for rounding."""
    pytest.importorskip("flax.nnx")
    program = EXAMPLES / f"nnx_{name}.py"
    found, expected = losses("-m", "filterjit", "run", program), losses(program)
    assert sum("loss" in line for line in found) >= 3
    if jax.__version_info__ >= (0, 12):
        assert found == expected
    else:
        numbers = [[float(x) for x in re.findall(r"\d+\.\d+", line)] for line in found]
        others = [[float(x) for x in re.findall(r"\d+\.\d+", line)] for line in expected]
        assert numbers == [pytest.approx(x, rel=1e-3) for x in others]
