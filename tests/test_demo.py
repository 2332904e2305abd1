"""The demo, as users run it."""

import gc
import os
import re
import signal
import sys
import time
import types
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import filterjit
from filterjit import __main__ as cli
from filterjit._commands import _demo
from support.processes import environment, run_code, started

EQUAL = ["final loss", "test accuracy", "traces"]
ROWS = ["a step, µs", "above jax.jit, µs", "steps per second of training", *EQUAL]


# ``python -m filterjit`` with fewer rounds of timed calls: no test looks at the times.
QUICK = """
import runpy
from filterjit._commands import _demo
_demo._ROUNDS = 20
runpy.run_module("filterjit", run_name="__main__", alter_sys=True)
"""


CPU = environment(JAX_PLATFORMS="cpu")


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder that a short demo ran in, and its output."""
    folder = tmp_path_factory.mktemp("demo")
    arguments = ("demo", "--steps", "150", "--seed", "3")
    return folder, run_code(QUICK, *arguments, cwd=folder, env=CPU, timeout=300)


def test_demo_writes_plain_text_when_piped(shown):
    _, done = shown
    assert done.stderr == ""
    assert "\x1b" not in done.stdout and "\r" not in done.stdout
    assert all(line == line.rstrip() and len(line) <= 100 for line in done.stdout.splitlines())


def test_demo_table(shown):
    _, done = shown
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    names = ["equinox.filter_jit", "filterjit.filter_jit", "jax.jit, flat arrays"]
    assert cells[0] == ["", *names]
    assert [row[0] for row in cells[2:]] == ROWS
    values = {row[0]: row[1:] for row in cells[2:]}
    times = [int(x) for x in values["a step, µs"]]
    for time_, above in zip(times, values["above jax.jit, µs"], strict=True):
        if above and "noise" not in above:
            assert abs(int(above) - (time_ - times[2])) <= 1
    for row in EQUAL:
        assert values[row][0] == values[row][1] and values[row][2] == "", row
    said = " ".join(done.stdout.split("\n\n")[-2].split())
    assert re.fullmatch(
        r"The same losses to the bit; filterjit.filter_jit is \d+\.\d times as fast as "
        r"equinox.filter_jit, and (level with|\d+ % (above|below)) jax.jit on a flat list of arrays.",
        said,
    )
    assert values["traces"][:2] == ["1", "1"]
    assert float(values["test accuracy"][0].rstrip("%")) > 60  # it learns


def test_the_demo_started_again_says_what_it_saved(tmp_path):
    arguments = ("demo", "--steps", "150", "--no-plot", "--program-cache", "kept")
    starts = [run_code(QUICK, *arguments, cwd=tmp_path, env=CPU, timeout=300) for _ in range(3)]
    assert [done.stderr for done in starts] == [""] * 3
    said = [" ".join(done.stdout.split("\n\n")[-2].split()) for done in starts]
    number = re.compile(r"\d+")
    assert number.sub("N", said[0]) == (
        "The first step with filterjit.filter_jit took N ms; started again, the demo looks for its "
        "program in kept."
    )
    assert (
        number.sub("N", said[1])
        == number.sub("N", said[2])
        == (
            "The first step with filterjit.filter_jit took N ms, as an earlier start had compiled it; "
            "equinox.filter_jit, which traces and compiles in each start, took N ms."
        )
    )
    rows = [line.split("|") for done in starts for line in done.stdout.splitlines()]
    traces = [list(map(int, row[2:4])) for row in rows if row[1:2] and row[1].strip() == "traces"]
    assert traces == [[1, 1], [1, 1], [1, 0]]


def test_demo_picture(shown):
    folder, _ = shown
    assert sorted(os.listdir(folder)) == ["demo.png", "demo.svg"]
    png = (folder / "demo.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n") and png.endswith(b"IEND\xaeB`\x82")
    assert ET.parse(folder / "demo.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_an_interrupted_demo_leaves_no_files(tmp_path):
    command = ("-m", "filterjit", "demo", "--steps", "10000000")
    with started(*command, cwd=tmp_path, env=CPU) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Training")
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, "interrupted\n")
    assert os.listdir(tmp_path) == []


# ---- in this process ----


def test_an_interrupt_is_not_lost_in_the_garbage_collector():
    def lose(phase, info):
        if phase == "start":  # a second signal would interrupt the next test
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), cli._no_lost_interrupt():
        gc.callbacks.append(lose)
        try:
            gc.collect(0)
        finally:
            gc.callbacks.remove(lose)
        for _ in range(1000):
            time.sleep(0.01)


def test_other_unraisable_exceptions_are_still_shown():
    seen = []
    before, sys.unraisablehook = sys.unraisablehook, seen.append
    try:
        with cli._no_lost_interrupt():
            sys.unraisablehook(types.SimpleNamespace(exc_type=ValueError))
    finally:
        sys.unraisablehook = before
    assert len(seen) == 1


def trainee(name="filterjit.filter_jit", **differing):
    """Returns a trainee as it is after training."""
    one = _demo.Trainee(name, lambda f: f, lambda *args: args)
    one.losses = [2.0, 1.0, 0.5]
    one.parameters = [b"abcd"]
    one.accuracy, one.traces, one.seconds, one.call = 0.9, 1, 1.0, 50.0
    vars(one).update(differing)
    return one


DIFFERENCES = [
    ({"losses": [2.0, 1.0, 0.5000000001]}, "the loss of step 3"),
    ({"losses": [2.0, 1.0]}, "the loss of step 3"),
    ({"losses": [2.0, float("nan"), 0.5]}, "the loss of step 2"),
    ({"losses": [2.0, 1.0, -0.0]}, "the loss of step 3"),
    ({"accuracy": 0.8}, "the test accuracy"),
    ({"traces": 2}, "the number of traces"),
    ({"parameters": [b"abce"]}, "the trained parameters"),
]


def test_equal_trainings_do_not_differ():
    assert _demo.compare(trainee(), trainee()) == []
    nan = [2.0, float("nan"), float("nan")]
    assert _demo.compare(trainee(losses=nan), trainee(losses=list(nan))) == []


def test_what_the_sentence_says():
    flat = _demo.Flat(call=40.0, noise=2.0)

    def said(call, equal=True):
        text = _demo._conclusion(trainee("theirs", call=100.0), trainee(call=call), flat, equal)
        return " ".join(text.split())

    assert "2.0 times as fast as theirs, and 25 % above jax.jit" in said(50.0)
    assert "4.0 times as fast as theirs, and 38 % below jax.jit" in said(25.0)
    assert "2.4 times as fast as theirs, and level with jax.jit" in said(41.9)
    assert said(50.0, equal=False).startswith("DIFFERENT results; ")


@pytest.mark.parametrize(("differing", "what"), DIFFERENCES)
def test_differences_are_found(differing, what):
    (found,) = _demo.compare(trainee("theirs"), trainee("ours", **differing))
    assert found.startswith(what)


def test_zeros_of_two_signs_differ():
    losses = [[0.0], [-0.0]]
    assert _demo.compare(*(trainee(losses=x) for x in losses)) != []


def test_differing_filter_jit_fails_the_demo(monkeypatch, capsys, tmp_path):
    """For example one that traces again on each call."""
    real = filterjit.filter_jit

    def wasteful(f):
        jitted = real(f)

        def call(*args):
            jitted.clear_cache()
            return jitted(*args)

        call.report = jitted.report
        return call

    monkeypatch.setattr(filterjit, "filter_jit", wasteful)
    monkeypatch.setattr(_demo, "_ROUNDS", 1)
    monkeypatch.setattr(_demo, "_CALLS", 1)
    arguments = ["demo", "--steps", "2", "--output", str(tmp_path / "x"), "--no-plot"]
    assert cli.main(arguments) == 1
    out, err = capsys.readouterr()
    assert "DIFFERENT" in out
    assert (
        err.startswith("demo: the trainings differ in the number of traces")
        and err.count("\n") == 1
    )
    assert os.listdir(tmp_path) == []


def test_missing_package(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert cli.main(["demo"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "demo: missing rich, scikit-learn: pip install 'filterjit[demo]'\n"


def test_matplotlib_is_only_needed_to_draw(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert _demo._missing(_demo._NEEDED) is None
    assert cli.main(["demo"]) == 2
    assert "matplotlib" in capsys.readouterr().err


def test_a_folder_that_does_not_exist(capsys, tmp_path):
    assert cli.main(["demo", "--output", str(tmp_path / "none" / "demo")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("demo: cannot write") and err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["demo", "--steps", "0"], ["demo", "--steps", "x"], ["demo", "--batch-size=-1"], ["no"]],
)
def test_bad_usage(arguments, capsys):
    with pytest.raises(SystemExit) as e:
        cli.main(arguments)
    assert e.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_output_names_a_folder_or_either_file(tmp_path):
    assert _demo._prefix(str(tmp_path)) == str(tmp_path / "demo")
    assert _demo._prefix("a/b.svg") == _demo._prefix("a/b.png") == _demo._prefix("a/b") == "a/b"
    assert _demo._prefix("run.1") == "run.1"


def test_a_drawing_that_fails_keeps_the_old_picture(monkeypatch, tmp_path):
    from matplotlib.figure import Figure

    prefix = str(tmp_path / "demo")
    paths = [Path(p) for p in _demo.draw(prefix, trainee("theirs"), trainee(), 40.0)]
    before = [p.read_bytes() for p in paths]
    savefig = Figure.savefig

    def interrupted(self, path, **options):
        savefig(self, path, **options)
        if options["format"] == "png":
            raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _demo.draw(prefix, trainee("theirs", losses=[9.0]), trainee(losses=[9.0]), 40.0)
    assert [p.read_bytes() for p in paths] == before
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_the_command_line_imports_no_optional_package():
    heavy = ("equinox", "optax", "rich", "matplotlib", "sklearn")
    code = f"import sys, filterjit.__main__; sys.exit(any(m in sys.modules for m in {heavy}))"
    run_code(code)
