"""``python -m filterjit run``: the program behaves as without it, as far as can be seen from outside."""

import itertools
import os
import py_compile
import re
import signal
import subprocess
import textwrap
import time
import zipfile
from pathlib import Path

import pytest

from filterjit import __main__ as cli
from support.processes import environment, run, started

PROGRAM = """
import sys
import equinox as eqx, jax.numpy as jnp

@eqx.filter_jit
def f(x, n):
    return x * n

@eqx.filter_jit
def kind(x):
    return type(x).__name__

if __name__ == "__main__":
    print(sys.argv[1:], __name__, [f(jnp.array(2), i).item() for i in (1, 2, 1)])
    print(kind(1), kind(True))
    if "fail" in sys.argv:
        raise KeyError("on purpose")
"""


def run_installed(*args: str, cwd: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    return run("-m", "filterjit", "run", *args, cwd=cwd, status=status, timeout=120)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_options_after_the_script(tmp_path: Path) -> None:
    (tmp_path / "short.py").touch()
    late = run_installed("short.py", "--report", cwd=tmp_path).stderr
    assert late.startswith("run: the script gets `--report`: options of run come before")
    assert run_installed("--", "short.py", "--report", cwd=tmp_path).stderr == ""


USAGE: list[tuple[list[str], str]] = [
    ([], "expected SCRIPT, -m MODULE or -c CODE"),
    (["--report"], "expected SCRIPT, -m MODULE or -c CODE"),
    (["-m"], "expected -m MODULE"),
    (["-c"], "expected -c CODE"),
    (["--explain", "-m"], "expected -m MODULE"),
    (["--expain", "x.py"], "unrecognized arguments: --expain. Did you mean '--explain'?"),
    (
        ["--epochs", "x.py"],
        "unrecognized arguments: --epochs. Put the script's own options after SCRIPT.",
    ),
]


def test_what_cannot_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for args, error in USAGE:
        for prog in ("python -m filterjit", "filterjit"):
            with pytest.raises(SystemExit) as ended:
                cli.main(["run", *args], prog)
            shown = capsys.readouterr()
            usage, line = shown.err.splitlines()
            assert ended.value.code == 2 and shown.out == ""
            assert usage.startswith(f"usage: {prog} run [-h] [--jax]")
            assert usage.endswith("(SCRIPT | -m MODULE | -c CODE) [argument ...]")
            assert line == f"{prog} run: error: {error}"


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
        f = eqx.filter_jit(lambda x, n: x * n)
        print(len(jax.devices()), f(jnp.array(1.0), 1).dtype, f(jnp.array(1.0), 2).dtype)
        """)
    )
    ours = run_installed("--report", "--explain", "devices.py", cwd=tmp_path)
    assert ours.stdout == "3 float64 float64\n"
    assert "was the int 1, is the int 2" in ours.stderr and "__main__.<lambda>" in ours.stderr
    assert ours.stderr.splitlines()[-1].endswith("`run --compare` tells whether filterjit pays.")


def test_report(program: Path) -> None:
    """It is printed before the traceback. ENDS has programs that raise without a report."""
    ours = run_installed("--report", "program.py", "fail", cwd=program.parent, status=1)
    assert ours.stdout.splitlines() == ["['fail'] __main__ [2, 4, 2]", "int bool"]
    report, _, traceback = ours.stderr.partition("Traceback (most recent call last):\n")
    where, *_, last = traceback.splitlines()
    assert where.startswith(f'  File "{program}", line ') and last == "KeyError: 'on purpose'"
    lines = [re.split(r"\s{2,}", line) for line in report.splitlines()]
    rows = [line for line in lines if line[0].startswith("__main__.")]
    table = {row[0]: dict(zip(lines[1], row, strict=True)) for row in rows}
    row = table["__main__.f"]
    assert [row[name] for name in ("calls", "hits", "traces")] == ["3", "1", "2"]
    assert float(row["compiling"].split()[0]) > 0
    row = table["__main__.kind"]
    assert [row[name] for name in ("calls", "hits", "traces")] == ["2", "0", "2"]
    assert report.splitlines()[-1].startswith("`run --compare` tells whether filterjit pays. `run")


OF_JAX = "import jax\nf = jax.jit(lambda x: x + 1)\nfor i in range(5): f(1.0)\n"


@pytest.mark.parametrize(
    ("source", "last"),
    [
        (OF_JAX, "pass `--jax`."),
        pytest.param("1", "No jitted function was called.", marks=pytest.mark.slow),
    ],
)
def test_the_last_line_of_a_report(source: str, last: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(source)
    said = run_installed("--report", "train.py", cwd=tmp_path).stderr
    assert said.splitlines()[-1].endswith(last), said


def test_the_report_names_the_line_whose_operations_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "false")  # compiling takes its time
    (tmp_path / "train.py").write_text(
        "import jax.numpy as jnp, numpy as np\n"
        "for i in range(1, 12):\n"
        "    x = jnp.asarray(np.ones(i))\n"
        "    y = (x * 2.5).sum() + jnp.sin(x).max() + jnp.cumsum(x)[0]\n"
    )
    said = "(not jitted by filterjit): train.py:4: operations outside of a jitted function compiled"
    assert said in run_installed("--report", "train.py", cwd=tmp_path).stderr


SCRIPT = "import sys; from filterjit.__main__ import script; sys.argv[0] = 'filterjit'; script()"


def test_the_command_runs_programs_as_python_m_does(program: Path) -> None:
    (program.parent / "helper.py").write_text("value = 5")
    (program.parent / "uses.py").write_text("import helper, sys; print(sys.path[0], sys.argv)")
    (program.parent / "command.py").write_text(SCRIPT)
    elsewhere = program.parent / "elsewhere"
    elsewhere.mkdir()
    for cwd, args in ((program.parent, ("-m", "uses", "x")), (elsewhere, ("../uses.py", "-m"))):
        ours = run(program.parent / "command.py", "run", *args, cwd=cwd, timeout=120)
        theirs = run(*args, cwd=cwd, timeout=120)
        assert (ours.stdout, ours.stderr) == (theirs.stdout, theirs.stderr)


def test_a_program_without_equinox(tmp_path: Path) -> None:
    """JAX isn't imported for it."""
    (tmp_path / "plain.py").write_text("import sys; print('jax' in sys.modules)")
    ours = run_installed("plain.py", cwd=tmp_path)
    assert (ours.stdout, ours.stderr) == ("False\n", "")


# ---- the same as python, in all that a program can see ----

FACTS = """
'''A docstring.'''
import atexit, os, pickle, sys, threading

class Thing:
    pass

def facts(when):
    main = sys.modules["__main__"]
    same = type(pickle.loads(pickle.dumps(Thing()))) is Thing and main.__dict__ is globals()
    print(when, same, "__file__" in globals(), sys.excepthook is sys.__excepthook__, flush=True)

for name, value in dict(globals()).items():
    if name == "__builtins__":
        value = type(value), value.__name__
    if name in ("__loader__", "__spec__"):
        found = getattr(value, "loader", value)
        value = getattr(value, "name", None), getattr(value, "origin", None), found.__class__
    print(name, value)
print(sys.argv, sys.path[0], sys.flags.safe_path)
facts("running")
os.chdir("/")
if "__file__" in globals() and os.path.exists(__file__):
    print(len(open(__file__, "rb").read()))
atexit.register(facts, "at exit, first registered")
atexit.register(facts, "at exit, last registered")
ended = threading.main_thread().join
threading.Thread(target=lambda: (ended(), facts("in a thread after the end"))).start()
if __name__ == "__main__":
    print("main")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the program FACTS in all places from which python runs programs."""
    for name in ("script.py", "folder/__main__.py", "package/__main__.py", "package/module.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(FACTS)
    (tmp_path / "package" / "__init__.py").write_text("import sys; print(sys.argv)")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link.py").symlink_to(tmp_path / "folder" / "__main__.py")
    (tmp_path / "broken.py").write_text("import sys\nprint(1\n")
    (tmp_path / "imports.py").write_text("import no_such_module")
    with zipfile.ZipFile(tmp_path / "zip.zip", "w") as file:
        file.writestr("__main__.py", FACTS)
    py_compile.compile(str(tmp_path / "script.py"), str(tmp_path / "compiled.pyc"))
    return tmp_path


def assert_same(
    *args: str, cwd: Path, stdin: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Asserts that python with `args` does the same with and without filterjit, and returns what
    it did."""
    options = {"status": None, "cwd": cwd, "env": environment(**variables), "stdin": stdin}
    theirs = run(*args, timeout=120, **options)  # type: ignore[arg-type]
    ours = run("-m", "filterjit", "run", *args, timeout=120, **options)  # type: ignore[arg-type]
    ours.stderr = re.sub("^run: the script gets .*\n", "", ours.stderr)
    for text in (ours, theirs):
        text.stdout, text.stderr = (
            re.sub(r"0x[0-9a-f]+", "0x", x) for x in (text.stdout, text.stderr)
        )
    assert ours.stderr == theirs.stderr
    assert ours.stdout == theirs.stdout
    assert ours.returncode == theirs.returncode
    return theirs


@pytest.mark.parametrize("command", [
    "script.py", "script.py --report -m x -- --explain -h", "./script.py", "empty/../script.py",
    "{folder}/script.py", "link.py", "compiled.pyc", "folder", "folder/ --report", "zip.zip a b", "- --report x",
    "-m package -m x", "-m package.module --report", "-mpackage --explain", "-m script",
])  # fmt: skip
@pytest.mark.parametrize("safe_path", ["", "1"])
def test_what_the_program_sees(command: str, safe_path: str, folder: Path) -> None:
    variables = {"PYTHONSAFEPATH": safe_path}
    if safe_path:
        variables["PYTHONPATH"] = os.pathsep.join([environment()["PYTHONPATH"], str(folder)])
    stdin = FACTS if command.startswith("- ") else None
    command = command.format(folder=folder)
    done = assert_same(*command.split(), cwd=folder, stdin=stdin, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("at exit, first registered True")


@pytest.mark.parametrize("command", [
    "nothing.py", "../nothing.py", "empty", "broken.py", "imports.py", "-m nope", "-m nope.nope",
    "-m package.nope", "-m empty", "-m xml", "-m script.py", "-m broken", "-m imports", "-m .x",
])  # fmt: skip
def test_programs_that_cannot_run(command: str, folder: Path) -> None:
    done = assert_same(*command.split(), cwd=folder)
    assert done.returncode != 0 and done.stderr


ENDS = {
    "returns": "",
    "status": "sys.exit(3)",
    "message": "sys.exit('a message')",
    "SystemExit of its own": "class End(SystemExit): pass\nraise End(4)",
    "exception": "def f(): raise KeyError('on purpose')\nf()",
    "interrupt": "raise KeyboardInterrupt",
    "_exit": "sys.stdout.flush(); os._exit(5)",
    "excepthook": """
def hook(kind, value, tb):
    print(kind, value, len(traceback.extract_tb(tb)), sys.excepthook is hook)
    print(traceback.format_exception(value), sys.last_traceback is tb is value.__traceback__)
    atexit.register(lambda: print(sys.excepthook is hook))
sys.excepthook = hook
1 / 0""",
    "excepthook of threads": """
t = threading.Thread(target=lambda: 1 / 0, name="t")
t.start()
t.join()""",
    "exception in atexit": "atexit.register(lambda: 1 / 0)",
    "order": """
atexit.register(print, "atexit")
class C:
    def __del__(self): print("deleted", __name__)
c = C()
sys.stdout.write("buffered")
sys.exit(2)""",
    "warning": "import warnings\nwarnings.warn('careful', stacklevel=1)",
    "input": "print(input(), sys.stdin.read())",
    "main": "import __main__\nprint(__main__.ENDS, __main__ is sys.modules['__main__'])",
}


# Those that have a line or a name of the program in what they print.
NAMED = ("exception", "excepthook", "input", "main", "order", "warning")


@pytest.mark.parametrize(
    ("name", "how"),
    [*((name, "script") for name in ENDS), *itertools.product(NAMED, ("module", "stdin"))],
)
def test_how_the_program_ends(name: str, how: str, tmp_path: Path) -> None:
    source = f"import atexit, os, sys, threading, traceback\nENDS = 1\n{ENDS[name]}\n"
    (tmp_path / "ends.py").write_text(source)
    command = {"script": ["ends.py", "x"], "module": ["-m", "ends", "x"], "stdin": ["-", "x"]}
    assert_same(*command[how], cwd=tmp_path, stdin=source if how == "stdin" else "a line\nanother")


def test_a_deep_recursion_has_few_frames_less(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(
        "def f(n):\n    try: return f(n + 1)\n    except RecursionError: return n\nprint(f(0))"
    )
    theirs = run("deep.py", cwd=tmp_path, timeout=120)
    ours = run_installed("deep.py", cwd=tmp_path)
    assert 0 < int(theirs.stdout) - int(ours.stdout) < 15


def test_interactive_after_the_program(tmp_path: Path) -> None:
    (tmp_path / "sets.py").write_text("x = 41")
    done = run("-i", "-m", "filterjit", "run", "sets.py", cwd=tmp_path, timeout=120,
               stdin="print(x + 1)\n")  # fmt: skip
    assert "42" in done.stdout and "Traceback" not in done.stderr


CHILDREN = """
import concurrent.futures, multiprocessing
import equinox as eqx

@eqx.filter_jit
def double(x):
    return 2 * x

def call(f):
    return f(2), type(f).__name__

if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, spawn) as executor:
        print(executor.submit(call, double).result())
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("first", "jitted"),
    [("", "_JitWrapper"), ("import filterjit; filterjit.install()", "FilterJit")],
)
def test_a_spawned_child_installs_at_module_level(first: str, jitted: str, tmp_path: Path) -> None:
    (tmp_path / "children.py").write_text(first + CHILDREN)
    assert run_installed("children.py", cwd=tmp_path).stdout == f"(4, '{jitted}')\n"


COMMANDS = {
    "a text": (("-c", "import sys; print(sys.argv, __name__)", "a", "-m"), 0, "['-c', 'a', '-m'] __main__\n", ""),
    "a text without a space": (("-cprint(1)",), 0, "1\n", ""),
    "a text that fails": (("-c", "1/0"), 1, "", "ZeroDivisionError"),
    "a notebook": (("train.ipynb",), 2, "", "call `filterjit.install()` in its first cell"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_programs_as_text_and_notebooks(name: str, tmp_path: Path) -> None:
    arguments, status, out, err = COMMANDS[name]
    done = run_installed(*arguments, cwd=tmp_path, status=status)
    assert done.stdout == out and err in done.stderr
