"""``python -m filterjit run``: the program behaves as without it, as far as can be seen from outside."""

import os
import re
import signal
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

from support.processes import run, started

PROGRAM = """
import sys, pickle
import equinox as eqx, jax.numpy as jnp

class Thing:
    pass

@eqx.filter_jit
def f(x, n):
    return x * n

@eqx.filter_jit
def kind(x):
    return type(x).__name__

if __name__ == "__main__":
    assert type(pickle.loads(pickle.dumps(Thing()))) is Thing
    assert sys.modules["__main__"].Thing is Thing
    print(sys.argv[1:], __name__, [f(jnp.array(2), i).item() for i in (1, 2, 1)])
    print(kind(1), kind(True))
    if "fail" in sys.argv:
        raise KeyError("on purpose")
    if "exit" in sys.argv:
        sys.exit(7)
"""


def run_installed(*args: str, cwd: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs ``python -m filterjit run`` with `args`."""
    return run("-m", "filterjit", "run", *args, cwd=cwd, status=status, timeout=120)


def run_alone(*args: str, cwd: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs ``python`` with `args`."""
    return run(*args, cwd=cwd, status=status, timeout=120)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_script(program: Path) -> None:
    theirs = run_alone("program.py", "a", "--b", cwd=program.parent)
    ours = run_installed("program.py", "a", "--b", cwd=program.parent)
    assert ours.stderr == ""
    assert theirs.stdout.splitlines() == ["['a', '--b'] __main__ [2, 4, 2]", "int int"]
    assert ours.stdout.splitlines() == ["['a', '--b'] __main__ [2, 4, 2]", "int bool"]


@pytest.mark.parametrize("how", ["fail", "exit"])
def test_exit_status_and_traceback(program: Path, how: str) -> None:
    status = {"fail": 1, "exit": 7}[how]
    theirs = run_alone("program.py", how, cwd=program.parent, status=status)
    ours = run_installed("program.py", how, cwd=program.parent, status=status)
    assert ours.stderr.replace(str(program), "program.py") == theirs.stderr.replace(
        str(program), "program.py"
    )


def test_module(program: Path) -> None:
    package = program.parent / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(PROGRAM)
    for module in ("package", "program"):
        ours = run_installed("-m", module, "x", cwd=program.parent)
        assert ours.stderr == ""
        assert ours.stdout.splitlines() == ["['x'] __main__ [2, 4, 2]", "int bool"]


def test_missing_script_and_module(tmp_path: Path) -> None:
    theirs = run_alone("nothing.py", cwd=tmp_path, status=2)
    ours = run_installed("nothing.py", cwd=tmp_path, status=2)
    assert ours.stderr == theirs.stderr
    ours = run_installed("-m", "no_such_module_at_all", cwd=tmp_path, status=1)
    assert "No module named" in ours.stderr


def test_no_program(tmp_path: Path) -> None:
    ours = run_installed(cwd=tmp_path, status=2)
    assert "usage" in ours.stderr


def test_interrupt(tmp_path: Path) -> None:
    path = tmp_path / "sleeper.py"
    path.write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    with started("-m", "filterjit", "run", path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "filterjit" not in stderr.replace(str(tmp_path), "")


def test_options_of_jax_can_still_be_set(tmp_path: Path) -> None:
    (tmp_path / "devices.py").write_text(
        textwrap.dedent("""
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"
        os.environ["JAX_ENABLE_X64"] = "1"
        import equinox as eqx, jax, jax.numpy as jnp
        print(len(jax.devices()), eqx.filter_jit(lambda x: x)(jnp.array(1.0)).dtype)
        """)
    )
    ours = run_installed("devices.py", cwd=tmp_path)
    assert (ours.stdout, ours.stderr) == ("3 float64\n", "")


def test_report(program: Path) -> None:
    ours = run_installed("--report", "program.py", cwd=program.parent)
    lines = [re.split(r"\s{2,}", line) for line in ours.stderr.splitlines()]
    rows = [line for line in lines if line[0].startswith("__main__.")]
    table = {row[0]: dict(zip(lines[1], row, strict=True)) for row in rows}
    row = table["__main__.f"]
    assert [row[name] for name in ("calls", "hits", "traces")] == ["3", "1", "2"]
    for name in ("dispatch", "tracing", "lowering", "compiling", "first run"):
        number, unit = row[name].split()
        assert float(number) >= 0 and unit in ("s", "ms")
    assert float(row["compiling"].split()[0]) > 0
    row = table["__main__.kind"]
    assert [row[name] for name in ("calls", "hits", "traces")] == ["2", "0", "2"]


def test_report_of_a_program_that_fails(program: Path) -> None:
    ours = run_installed("--report", "program.py", "fail", cwd=program.parent, status=1)
    assert "__main__.f" in ours.stderr
    assert ours.stderr.splitlines()[-1] == "KeyError: 'on purpose'"


def test_program_without_equinox(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import sys; print('jax' in sys.modules)")
    ours = run_installed("plain.py", cwd=tmp_path)
    assert (ours.stdout, ours.stderr) == ("False\n", "")


def test_a_program_in_another_folder(program: Path) -> None:
    elsewhere = program.parent / "elsewhere"
    elsewhere.mkdir()
    (program.parent / "helper.py").write_text("value = 5")
    (program.parent / "uses.py").write_text("import helper, sys; print(helper.value, sys.path[0])")
    ours = run_installed(os.path.join("..", "uses.py"), cwd=elsewhere)
    assert ours.stdout.split()[0] == "5"
