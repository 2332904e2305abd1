"""``python -m filterjit run``: as the program alone, in all that can be seen from outside."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

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


def run(*args: str, cwd: Path, ours: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(["-m", "filterjit", "run"] if ours else []), *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_script(program: Path) -> None:
    theirs = run("program.py", "a", "--b", cwd=program.parent, ours=False)
    ours = run("program.py", "a", "--b", cwd=program.parent)
    assert (ours.returncode, ours.stderr) == (0, "")
    assert theirs.stdout.splitlines() == ["['a', '--b'] __main__ [2, 4, 2]", "int int"]
    assert ours.stdout.splitlines() == ["['a', '--b'] __main__ [2, 4, 2]", "int bool"]


@pytest.mark.parametrize("how", ["fail", "exit"])
def test_exit_status_and_traceback(program: Path, how: str) -> None:
    theirs = run("program.py", how, cwd=program.parent, ours=False)
    ours = run("program.py", how, cwd=program.parent)
    assert ours.returncode == theirs.returncode != 0
    assert ours.stderr.replace(str(program), "program.py") == theirs.stderr.replace(
        str(program), "program.py"
    )


def test_module(program: Path) -> None:
    package = program.parent / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(PROGRAM)
    for module in ("package", "program"):
        ours = run("-m", module, "x", cwd=program.parent)
        assert (ours.returncode, ours.stderr) == (0, "")
        assert ours.stdout.splitlines() == ["['x'] __main__ [2, 4, 2]", "int bool"]


def test_missing_script_and_module(tmp_path: Path) -> None:
    theirs = run("nothing.py", cwd=tmp_path, ours=False)
    ours = run("nothing.py", cwd=tmp_path)
    assert ours.returncode == theirs.returncode == 2
    assert ours.stderr == theirs.stderr
    ours = run("-m", "no_such_module_at_all", cwd=tmp_path)
    assert ours.returncode == 1
    assert "No module named" in ours.stderr


def test_no_program(tmp_path: Path) -> None:
    ours = run(cwd=tmp_path)
    assert ours.returncode == 2
    assert "usage" in ours.stderr


def test_interrupt(tmp_path: Path) -> None:
    path = tmp_path / "sleeper.py"
    path.write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "filterjit", "run", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
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
    ours = run("devices.py", cwd=tmp_path)
    assert (ours.stdout, ours.stderr) == ("3 float64\n", "")


def test_report(program: Path) -> None:
    ours = run("--report", "program.py", cwd=program.parent)
    assert ours.returncode == 0
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
    ours = run("--report", "program.py", "fail", cwd=program.parent)
    assert ours.returncode == 1
    assert "__main__.f" in ours.stderr
    assert ours.stderr.splitlines()[-1] == "KeyError: 'on purpose'"


def test_program_without_equinox(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import sys; print('jax' in sys.modules)")
    ours = run("plain.py", cwd=tmp_path)
    assert (ours.stdout, ours.stderr) == ("False\n", "")


def test_program_started_elsewhere(program: Path) -> None:
    elsewhere = program.parent / "elsewhere"
    elsewhere.mkdir()
    (program.parent / "helper.py").write_text("value = 5")
    (program.parent / "uses.py").write_text("import helper, sys; print(helper.value, sys.path[0])")
    ours = run(os.path.join("..", "uses.py"), cwd=elsewhere)
    assert ours.stdout.split()[0] == "5"
