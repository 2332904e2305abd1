"""``python -m filterjit run --compare``: a program without and with filterjit, in processes."""

import re
import subprocess
from pathlib import Path

import pytest

from filterjit import __main__ as cli
from filterjit._commands import _pays
from support.processes import environment, run

BEGIN = """
import pathlib, sys, time
import equinox as eqx, jax, jax.numpy as jnp

f = eqx.filter_jit(lambda model, x: model(x))
model, x = eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), jnp.ones(2)
for _ in range(100):
    x = f(model, x)
print("sum", x.sum())
file, n = pathlib.Path("state"), 0
if file.exists():
    n = int(file.read_text())
file.write_text(str(n + 1))
"""


def compare(
    source: str, *options: str, folder: Path, status: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(source)
    arguments = ["-m", "filterjit", "run", "--compare", *options, "program.py", "--seed", "1"]
    env = environment(**variables)
    return run(*arguments, cwd=folder, env=env, status=status, timeout=300)


def test_a_script_with_a_clock(tmp_path: Path) -> None:
    """Its output is shown once, and its time isn't a difference. Each run is a process."""
    source = BEGIN + "print(time.time())\nprint(sys.argv[1:], input.__name__, sys.stdin.read())"
    done = compare(source, folder=tmp_path)
    first, _, arguments, *table, verdict, output = done.stdout.splitlines()
    assert first.startswith("sum ") and arguments == "['--seed', '1'] input "
    assert table[0].split() == ["fastest", "run", "plain", "filterjit"]
    labels = ["wall", "processor", "compiling", "without compiling"]
    assert [re.split(r"\s{2,}", row)[0] for row in table[1:]] == labels
    wall, _, compiling, rest = ([float(x) for x in re.findall(r"[\d.]+", row)] for row in table[1:])
    for i in range(2):
        assert 0 < compiling[i] < wall[i] and abs(wall[i] - compiling[i] - rest[i]) < 0.02
    ratio = r"plain / filterjit, without compiling: [\d.]+ \([\d.]+ to [\d.]+\)"
    assert re.fullmatch(f"(no difference beyond noise: )?{ratio}", verdict)
    assert output == "the same output, except for 1 line that differs between plain runs too"
    sides = "plain", "filterjit", "filterjit", "plain"
    expected = [f"run {i} of 4, {side}" for i, side in enumerate(sides, 1)]
    assert done.stderr.splitlines() == expected
    assert (tmp_path / "state").read_text() == "4"


@pytest.mark.slow
def test_a_script_that_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    source = BEGIN + "print('from step', n)\nprint('step', n > 0)"
    *_, output = compare(source, folder=tmp_path).stdout.splitlines()
    assert output == "the same output, except for 2 lines that differ between plain runs too"


@pytest.mark.slow
def test_other_output_and_jaxs_cache(tmp_path: Path) -> None:
    """Of lines that differ, three are shown. No run reads what an earlier one has compiled."""
    source = (
        BEGIN + "import filterjit._install as i\nfor _ in range(4):\n    print(i._equinox.wanted)\n"
    )
    source += "from jax._src import monitoring\n"
    cache = tmp_path / "cache"
    done = compare(
        source, folder=tmp_path, JAX_COMPILATION_CACHE_DIR=str(cache),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
    )  # fmt: skip
    assert not cache.exists() or not any(cache.iterdir())
    *_, head, a, b, _, _, _, last = done.stdout.splitlines()
    assert head == "different output: 4 of 5 lines"
    assert (a, b) == ("  line 2, plain: False", "  line 2, filterjit: True")
    assert last == "  line 4, filterjit: True"


OF_JAX = "import jax\nprint(jax.jit(lambda x: x + 1)(1))"
# By what is said: the program, options, and the number of runs.
STOPS: dict[str, tuple[str, list[str], int]] = {
    "run 2 of 4, filterjit failed with status 1: ValueError: no state": (
        BEGIN + "if n == 1:\n    raise ValueError('no state')", [], 2
    ),
    "the script uses filterjit itself. Compare it before its conversion.": (
        BEGIN + "import filterjit\nfilterjit.filter_jit(lambda x: x)(x)", [], 1
    ),
    "nothing was replaced. For functions of `jax.jit`, pass `--jax`.": (OF_JAX, [], 2),
    "run 1 of 4, plain ended by `os._exit`, before it was measured.": (
        "import os\nos._exit(0)", ["--jax"], 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", STOPS)
def test_no_verdict(text: str, tmp_path: Path) -> None:
    source, options, runs = STOPS[text]
    done = compare(source, *options, folder=tmp_path, status=1)
    *shown, last = done.stderr.splitlines()
    assert last == f"run --compare: {text}" and len(shown) == runs
    assert "plain / filterjit" not in done.stdout


def test_with_jax(tmp_path: Path) -> None:
    done = compare(OF_JAX, "--jax", "--times", "1", folder=tmp_path)
    assert done.stdout.splitlines()[-1] == "the same output"


USAGE = {
    "standard input can be read only once": ["-"],
    "leave out --report and --explain": ["--report", "x.py"],
    "--times must be at least 1": ["--times", "0", "x.py"],
    "expected SCRIPT": ["--times", "2"],
}


@pytest.mark.parametrize("text", USAGE)
def test_what_it_refuses(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--compare", *USAGE[text]])
    assert ended.value.code == 2 and text in capsys.readouterr().err


def test_the_fastest_runs_count() -> None:
    plain, ours = ([_pays._Run(n + 1, n, 1, n, []) for n in side] for side in ([8, 2], [1, 6]))
    *_, verdict = _pays._times(plain, ours)
    ratio = "plain / filterjit, without compiling: 2.00 (0.33 to 8.00)"
    assert verdict == f"no difference beyond noise: {ratio}"


def test_spans_within_others_count_once() -> None:
    assert _pays._length([(0, 2), (1, 2), (1, 1.5), (3, 4), (3.5, 5)]) == 4
    assert _pays._length([]) == 0
