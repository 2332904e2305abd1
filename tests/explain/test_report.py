"""Where the time went, what made a program large, what it captured, and what is shown meanwhile.

No absolute times are held against anything: only that they are there, and add up.
"""

import concurrent.futures
import gc
import json
import logging
import os
import pickle
import pty
import subprocess
import sys
import textwrap
import threading
import time
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from filterjit import filter_jit
from filterjit._base import _jax_compat, _progress
from filterjit._observe import _program, _report

X = jnp.ones(3)
# The older JAX tells neither the names of what it compiles nor when it begins.
tells = hasattr(jax.monitoring, "register_scalar_listener")
needs_names = pytest.mark.skipif(not tells, reason="this JAX does not name what it compiles")


@pytest.fixture
def timed() -> Iterator[None]:
    filterjit.time_calls()
    yield
    filterjit.time_calls(False)


def row_of(f: Any) -> dict[str, Any]:
    (row,) = f.report().as_dict()["functions"]
    return row


def in_all(name: str) -> dict[str, Any]:
    rows = filterjit.report().as_dict()["functions"]
    (row,) = [row for row in rows if row["name"].endswith(name)]
    return row


def made(row: dict[str, Any]) -> float:
    return row["tracing"] + row["lowering"] + row["compiling"]


def run(code: str, *, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=240,
    )


def environment(**more: str) -> dict[str, str]:
    forcing = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "FILTERJIT_PROGRESS", "COLUMNS")
    package = str(Path(filterjit.__file__).parent.parent)
    kept = {k: v for k, v in os.environ.items() if k not in forcing}
    return kept | {"PYTHONPATH": package, "JAX_PLATFORMS": "cpu", "TERM": "xterm"} | more


# ---- the report ----


def test_counts_and_times_of_a_function_and_its_variants() -> None:
    @filter_jit
    def f(model: Any, x: Any, n: int) -> Any:
        return model(x) * n

    model = eqx.nn.MLP(3, 3, 8, 2, key=jax.random.key(0))
    start = time.perf_counter()
    for n in (2, 2, 2, 3):
        f(model, X, n)
    f(model, jnp.ones((3,), jnp.float16), 3)
    wall = time.perf_counter() - start
    row = row_of(f)
    assert row["name"].endswith("f") and row["file"] == __file__
    assert [row[k] for k in ("functions", "calls", "hits", "traces", "compiles")] == [1, 5, 2, 3, 3]
    assert row["from_disk"] == 0
    assert min(row["tracing"], row["lowering"], row["compiling"]) > 0
    assert made(row) <= wall
    assert row["dispatch"] is None and row["first_run"] is None
    variants = {v["arguments"][-4:]: v for v in row["variants"]}
    assert sorted(variants) == ["n=2)", "n=3)"]
    assert [variants["n=2)"][k] for k in ("hits", "traces", "compiles")] == [2, 1, 1]
    assert [variants["n=3)"][k] for k in ("hits", "traces", "compiles")] == [0, 2, 2]
    assert sum(map(made, row["variants"])) == pytest.approx(made(row))
    assert variants["n=2)"]["arrays"][-1] == "float32[3]"
    assert variants["n=2)"]["equations"] > 5
    if tells:  # found without compiling again
        assert variants["n=2)"]["bytes"] > 0
        assert row["bytes"] == sum(v["bytes"] for v in row["variants"])
    assert row_of(f)["compiles"] == 3
    json.dumps(f.report().as_dict())


def test_calls_are_timed_where_that_is_asked_for(timed: None) -> None:
    @filter_jit
    def f(x: Any) -> Any:
        return x @ x

    x = jnp.ones((300, 300))
    start = time.perf_counter()
    for _ in range(20):
        jax.block_until_ready(f(x))
    wall = time.perf_counter() - start
    row = row_of(f)
    assert row["dispatch"] > 0 and row["first_run"] > 0
    assert made(row) + row["dispatch"] + row["first_run"] <= wall
    assert row["variants"][0]["dispatch"] == pytest.approx(row["dispatch"])
    filterjit.time_calls(False)
    f(x)
    assert row_of(f)["dispatch"] == row["dispatch"]


@needs_names
def test_a_nested_functions_seconds_are_its_own() -> None:
    @filter_jit
    def inner_of_report(x: Any) -> Any:
        time.sleep(0.2)  # a slow trace
        with jax.ensure_compile_time_eval():
            jnp.zeros(7) + 1  # compiled at once
        return x * 2

    @filter_jit
    def outer_of_report(x: Any) -> Any:
        time.sleep(0.1)
        return inner_of_report(x) + 1

    start = time.perf_counter()
    outer_of_report(X)
    wall = time.perf_counter() - start
    inner, outer = row_of(inner_of_report), row_of(outer_of_report)
    assert inner["traces"] == outer["traces"] == 1
    assert inner["tracing"] >= 0.2 and 0.1 <= outer["tracing"] < wall - 0.2
    assert made(inner) + made(outer) <= wall
    assert outer["compiles"] == 1

    inner_of_report(X)  # already traced: known by its name
    again = row_of(inner_of_report)
    assert again["traces"] == 1 and again["compiles"] == inner["compiles"] + 1
    assert again["variants"][0]["compiles"] == again["compiles"]


@needs_names
def test_what_is_compiled_in_a_hit_is_not_dispatch(timed: None) -> None:
    @filter_jit
    def known_by_name(x: Any) -> Any:
        for _ in range(30):
            x = jnp.sin(x) @ x
        return x

    x = jnp.ones((4, 4))
    filter_jit(lambda x: known_by_name(x))(x)
    start = time.perf_counter()
    known_by_name(x)
    wall = time.perf_counter() - start
    row = row_of(known_by_name)
    assert row["traces"] == 1 and row["compiles"] == 1 and row["compiling"] > 0
    assert row["lowering"] + row["compiling"] + row["dispatch"] <= wall


def test_programs_of_others_are_not_ours() -> None:
    @filter_jit
    def same_name(x: Any) -> Any:
        return x + 1

    same_name(X)
    before = row_of(same_name), filterjit.report().as_dict()["others"]

    def other(x: Any) -> Any:
        return x + 2

    other.__name__ = "same_name"
    theirs = jax.jit(other)
    theirs(X)
    row, others = row_of(same_name), filterjit.report().as_dict()["others"]
    assert row == before[0]
    assert others["compiles"] > before[1]["compiles"]


def test_lower_and_compile_are_counted() -> None:
    @filter_jit
    def f(x: Any) -> Any:
        return x * 3

    lowered = f.lower(X)
    row = row_of(f)
    assert (row["traces"], row["compiles"]) == (1, 0) and row["lowering"] > 0
    lowered.compile()
    row = row_of(f)
    assert (row["traces"], row["compiles"]) == (1, 1) and row["compiling"] > 0


def test_a_failed_trace_takes_time_and_is_none() -> None:
    @filter_jit
    def f(x: Any, fail: bool) -> Any:
        if fail:
            time.sleep(0.05)
            raise KeyError("on purpose")
        return x

    f(X, False)
    with pytest.raises(KeyError):
        f(X, True)
    row = row_of(f)
    assert (row["calls"], row["traces"]) == (2, 1) and row["tracing"] >= 0.05
    assert _report.recorder._thread.stack == []


def test_functions_made_anew_are_summed_up() -> None:
    def made_anew(n: int) -> Any:
        def anew(x: Any) -> Any:
            return x * n

        return filter_jit(anew)

    for n in range(6):
        made_anew(n)(X)
    gc.collect()
    row = in_all("made_anew.<locals>.anew")
    assert [row[k] for k in ("functions", "calls", "hits", "traces")] == [6, 6, 0, 6]
    assert row["compiling"] > 0


def test_a_report_keeps_no_function() -> None:
    class Held:
        pass

    def make() -> weakref.ref[Any]:
        held = Held()

        @filter_jit
        def f(x: Any, static: Any) -> Any:
            return x * 2

        f(X, held)
        f.report()
        filterjit.report()
        return weakref.ref(held)

    ref = make()
    gc.collect()
    assert ref() is None


def test_bytes_are_unknown_rather_than_compiled_for() -> None:
    traces = []

    @filter_jit
    def f(x: Any) -> Any:
        traces.append(1)
        return x * 4

    f(X)
    (variant,) = f.variants
    variant.call.clear_cache()
    variant.record.spent.compiles += 1  # forget the size that was known
    _jax_compat.private("jax._src.util", "clear_all_caches")()
    f.report()
    assert len(traces) == 1


def test_a_report_while_something_is_traced() -> None:
    f = filter_jit(lambda x: x * 5)
    f(X)

    @filter_jit
    def g(x: Any) -> Any:
        f.variants[0].record.size = (None, None)
        assert row_of(f)["traces"] == 1
        return f(x)

    assert (g(X) == 5).all()
    assert row_of(f)["compiles"] == 1


def test_a_program_that_cannot_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_program, "look_at", lambda jaxpr: 1 / 0)
    f = filter_jit(lambda x: x * 2)
    assert (f(X) == 2).all()
    assert row_of(f)["variants"][0]["equations"] is None


@pytest.mark.parametrize("functions", [0, 1, 3])
def test_text_and_picture(functions: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = []
    for n in range(functions):
        f = filter_jit(lambda x, n=n: x + n)
        f(X)
        rows += f.report().as_dict()["functions"]
    report = filterjit.Report(rows, False)
    text = str(report)
    assert "\x1b" not in text and all(line == line.rstrip() for line in text.splitlines())
    assert len(text.splitlines()) == 3 + max(0, functions - 1) + (functions > 0) or functions == 0
    path = report.plot(tmp_path / "report.svg")
    assert path == str(tmp_path / "report.svg") and "</svg>" in Path(path).read_text()
    assert Path(report.plot(tmp_path / "report.png")).read_bytes().startswith(b"\x89PNG")
    assert sorted(os.listdir(tmp_path)) == ["report.png", "report.svg"]


def test_a_failed_drawing_leaves_the_old_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Figure = pytest.importorskip("matplotlib.figure").Figure
    path = tmp_path / "report.png"
    path.write_text("old")

    def fail(self: Any, path: str, **_: Any) -> None:
        Path(path).write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(KeyboardInterrupt):
        filterjit.Report([], False).plot(path)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["report.png"]


@pytest.mark.parametrize("width", [40, 80, 160])
def test_on_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    f = filter_jit(lambda x, n: x + n)
    for n in range(8):
        f(X, n)
    master, slave = pty.openpty()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(slave, "w") as file:
        text = f.report().text(file)
    os.close(master)
    assert width == 40 or ("compil" in text and "3 oth" in text)
    from rich.text import Text

    assert all(len(Text.from_ansi(line)) <= width for line in text.splitlines())


def test_threads_each_have_their_own() -> None:
    def make(i: int) -> Any:
        def threaded(x: Any) -> Any:
            for _ in range(20):
                x = jnp.sin(x) * i
            return x

        threaded.__qualname__ = f"threaded_{i}"
        return filter_jit(threaded)

    functions = [make(i) for i in range(12)]
    shared = filter_jit(lambda x, n: x * n)

    def work(i: int) -> float:
        start = time.perf_counter()
        functions[i](X)
        for n in range(5):
            shared(X, n)
        return time.perf_counter() - start

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(12)))
    for i, f in enumerate(functions):
        row = row_of(f)
        assert row["name"].endswith(f"threaded_{i}")
        assert [row[k] for k in ("calls", "traces", "compiles")] == [1, 1, 1]
        assert made(row) > 0
    row = row_of(shared)
    assert row["calls"] == 60 and 5 <= row["traces"] <= 30
    assert row["traces"] == sum(v["traces"] for v in row["variants"])


def test_programs_from_the_persistent_cache(tmp_path: Path) -> None:
    code = """
        import json, os
        import jax, jax.numpy as jnp
        jax.config.update("jax_compilation_cache_dir", os.path.join(os.getcwd(), "cache"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        from filterjit import filter_jit
        f = filter_jit(lambda x, n: jnp.sin(x) * n)
        f(jnp.ones(3), 2), f(jnp.ones(3), 3)
        (row,) = f.report().as_dict()["functions"]
        print(json.dumps([row["compiles"], row["from_disk"], "from disk" in str(f.report())]))
    """
    first, second = (run(code, cwd=tmp_path) for _ in range(2))
    assert first.stderr == second.stderr == ""
    assert json.loads(first.stdout) == [2, 0, False]
    assert json.loads(second.stdout) == [2, 2, True]


# ---- what made it large ----


def program_of(f: Any, *args: Any) -> _program.Program:
    return _program.look_at(_program.contents(filter_jit(f).trace(*args).jaxpr))


def body(x: Any) -> Any:
    y = x * 2
    return y + jnp.cos(y)


def looped(x: Any) -> Any:
    for _ in range(1000):
        x = body(x)
    return x


def line_of(f: Any, text: str) -> int:
    code = f.__code__
    lines = Path(__file__).read_text().splitlines()[code.co_firstlineno - 1 :]
    return code.co_firstlineno + next(i for i, line in enumerate(lines) if text in line)


def comprehended(x: Any) -> Any:
    return sum([jnp.sin(x) * i for i in range(700)])


def by_while(x: Any) -> Any:
    i = 0
    while i < 600:
        x = x * 2 + 1
        i += 1
    return x


def nested(x: Any) -> Any:
    for _ in range(10):
        for _ in range(100):
            x = x * 2 + 1
        x = jnp.sin(x)
    return x


LOOPS: list[tuple[Any, Any, str, int, int]] = [
    (looped, looped, "for _", 1000, 3),
    (lambda x: jax.grad(lambda x: looped(x).sum())(x), looped, "for _", 1000, 8),
    (lambda x: jax.vmap(looped)(jnp.stack([x, x])), looped, "for _", 1000, 3),
    (lambda x: jax.lax.scan(lambda c, _: (looped(c), None), x, None, 3), looped, "for", 1000, 3),
    (comprehended, comprehended, "[jnp", 700, 2),
    (by_while, by_while, "while i", 600, 2),
    (nested, nested, "for _ in range(100)", 1000, 2),
]


@pytest.mark.parametrize(("f", "where", "text", "copies", "size"), LOOPS)
def test_a_python_loop_is_found(f: Any, where: Any, text: str, copies: int, size: int) -> None:
    loop = program_of(f, X).loop
    assert loop is not None
    assert (loop.file, loop.line) == (__file__, line_of(where, text))
    assert loop.copies == copies and abs(loop.size - size) <= 1
    said = f"test_report.py:{loop.line}, a Python loop, {copies:,} copies of {loop.size} equations"
    assert str(loop).startswith(said)


def test_a_loop_over_layers_is_found() -> None:
    layers = [eqx.nn.Linear(3, 3, key=jax.random.key(i)) for i in range(200)]

    def apply(layers: Any, x: Any) -> Any:
        for layer in layers:
            x = jax.nn.relu(layer(x))
        return x

    program = program_of(eqx.filter_value_and_grad(lambda m, x: apply(m, x).sum()), layers, X)
    assert program.loop is not None and abs(program.loop.copies - 200) <= 1
    assert (program.loop.file, program.loop.line) == (__file__, line_of(apply, "for layer"))
    assert program.lines[0][:2] == (__file__, line_of(apply, "relu"))  # not Equinox's own


def library(x: Any, lines: int = 800) -> Any:
    """Large, straight on."""
    names: dict[str, Any] = {}
    text = "\n".join(f"    x = x * {i} + 1" for i in range(lines))
    exec(f"def f(x):\n{text}\n    return x", names)
    return names["f"](x)


def over_a_tree(x: Any) -> Any:
    for _ in range(3):
        tree = jax.tree.map(lambda x: x * 2 + 1, [x] * 600)
    return tree


def of_other_shapes(x: Any) -> Any:
    out = x
    for i in range(300):
        out = out + (jnp.zeros(i + 2) * 2).sum()
    return out


def few(x: Any) -> Any:
    for _ in range(4):
        x = library(x, 200)
    return x


def recursive(x: Any, n: int = 400) -> Any:
    return x if n == 0 else recursive(jnp.sin(x) * 2 + 1, n - 1)


inner_jit = jax.jit(library)


def used_again(x: Any) -> Any:
    for _ in range(20):
        x = inner_jit(x)  # one program, however often
    return x


STRAIGHT = [library, over_a_tree, of_other_shapes, few, recursive, used_again]
STRAIGHT += [lambda x: list(map(body, [x] * 700))]


@pytest.mark.parametrize("f", STRAIGHT)
def test_what_is_no_loop_is_not_called_one(f: Any) -> None:
    program = program_of(f, X)
    assert program.equations >= _program.LARGE
    assert program.loop is None
    assert program.lines


def test_small_programs_are_not_looked_at() -> None:
    def f(x: Any) -> Any:
        for _ in range(20):
            x = x * 2
        return x

    assert program_of(f, X) == _program.Program(20)


def test_nested_programs_count_once() -> None:
    @jax.jit
    def inner(x: Any) -> Any:
        return x * 2 + 1

    assert program_of(lambda x: inner(inner(inner(x))), X).equations == 3 + 2


def test_the_report_says_it() -> None:
    f = filter_jit(looped)
    f(X)
    (row,) = f.report().as_dict()["functions"]
    (variant,) = row["variants"]
    assert variant["equations"] == 3000
    assert variant["loop"]["copies"] == 1000 and variant["loop"]["size"] == 3
    assert variant["lines"][0]["equations"] == 2000
    said = "1,000 copies of 3 equations, 100% of the program: jax.lax.scan or fori_loop keeps one"
    assert said in str(f.report())
    g = filter_jit(lambda x: jax.lax.fori_loop(0, 1000, lambda _, x: body(x), x))
    g(X)
    assert row_of(g)["remarks"] == []


def test_without_stacks_nothing_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_jax_compat, "stack_key", lambda equation: None)
    program = program_of(looped, X)
    assert (program.equations, program.lines, program.loop) == (3000, (), None)
    assert _jax_compat.raw_stack(types.SimpleNamespace()) == ((), ())


# ---- what it captured ----


def test_captured_arrays_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    big, table = jnp.ones((600, 1000)), np.ones((500, 1000), np.float32)

    @filter_jit
    def f(x: Any, n: int) -> Any:
        return x * n + big.sum() + jnp.asarray(table).sum()

    with caplog.at_level(logging.WARNING, "filterjit"):
        f(X, 1), f(X, 2), f(X, 2)
    (record,) = [r for r in caplog.records if r.name == "filterjit"]
    said = record.getMessage()
    assert "2 arrays, 4.2 MiB (`big`, `table`), the largest float32[600,1000] of 2.3 MiB" in said
    assert "f (test_report.py:" in said and "Pass them as arguments" in said
    (remark,) = row_of(f)["remarks"]
    assert "4.2 MiB" in remark
    assert row_of(f)["variants"][0]["captured"]["bytes"] == 4_400_000


def test_arguments_and_small_arrays_are_not_captured(caplog: pytest.LogCaptureFixture) -> None:
    small = jnp.ones(1000)
    model = eqx.nn.Linear(1000, 1000, key=jax.random.key(0))
    with caplog.at_level(logging.WARNING, "filterjit"):
        filter_jit(lambda x: x + small.sum())(X)
        filter_jit(model)(small)  # its arrays are arguments
        filter_jit(lambda model, x: model(x))(model, small)
    assert caplog.records == []


def test_a_bound_method_captures_its_object(caplog: pytest.LogCaptureFixture) -> None:
    model = eqx.nn.Linear(1000, 1000, key=jax.random.key(0))
    with caplog.at_level(logging.WARNING, "filterjit"):
        filter_jit(model.__call__)(jnp.ones(1000))
    (record,) = caplog.records
    assert "(`self`)" in record.getMessage() and "jit the object itself" in record.getMessage()


# ---- clearing ----


@needs_names
def test_cache_info() -> None:
    f = filter_jit(lambda x, n: x * n)
    for n in (1, 2, 2, 2):
        f(X, n)
    info = f.cache_info()
    assert info[:4] == (2, 2, 2, 4096) and info.bytes > 0
    f.clear_cache()
    assert f.cache_info() == (2, 2, 0, 4096, None)


@pytest.mark.parametrize(
    "clear", [jax.clear_caches, eqx.clear_caches, filterjit.clear_caches, "clear_cache"]
)
def test_all_is_traced_again_after_clearing(clear: Any) -> None:
    traces = []

    @filter_jit
    def f(x: Any, static: Any) -> Any:
        traces.append(1)
        return x * 2

    partial = f.partial(X)
    for i in range(3):
        f(X, "static"), f(X, "static"), partial("static")
        assert (f(X, "static") == 2).all()
        assert len(traces) == i + 1
        assert len(f.variants) == 1 and len(f.variants[0].record.traces) == 1
        (getattr(f, clear) if isinstance(clear, str) else clear)()
        assert f.variants == []
    row = row_of(f)
    assert [row[k] for k in ("calls", "hits", "traces", "compiles")] == [12, 9, 3, 3]


def test_clearing_while_tracing() -> None:
    @filter_jit
    def f(x: Any, clear: bool) -> Any:
        if clear:
            jax.clear_caches()
        return x * 2

    assert (f(X, True) == 2).all()
    assert (f(X, True) == 2).all()
    assert (f(X, False) == 2).all()


def test_cleared_programs_are_freed() -> None:
    class Static:
        pass

    @filter_jit
    def f(x: Any, static: Any) -> Any:
        return x

    static = Static()
    ref = weakref.ref(static)
    f(X, static)
    filterjit.clear_caches()
    f(X, None)  # the wrapper's guess is another now
    del static
    gc.collect()
    assert ref() is None


# ---- while it waits ----

SLOW = """
    import sys, threading, time
    import jax, jax.numpy as jnp
    import filterjit
    from filterjit._base import _progress
    _progress._PATIENCE = float(sys.argv[1]) if len(sys.argv) > 1 else 0.02
    {setup}

    @filterjit.filter_jit
    def slow(x):
        for _ in range(40):
            x = jnp.sin(x) @ jnp.cos(x) + jnp.sort(x)
        {inside}
        return x

    try:
        slow(jnp.ones((20, 20)))
    except KeyError as e:
        print("failed", e)
    assert threading.active_count() == 1, threading.enumerate()
    print("done")
"""


def on_a_terminal(
    cwd: Path, setup: str = "", inside: str = "", *args: str, **env: str
) -> tuple[int, str]:
    """Exit status, and all that comes on a terminal."""
    (cwd / "slow.py").write_text(textwrap.dedent(SLOW.format(setup=setup, inside=inside)))
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "slow.py", *args],
        cwd=cwd,
        env=environment(**env),
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    chunks = []
    try:
        while chunk := os.read(master, 65536):
            chunks.append(chunk)
    except OSError:  # the other end is closed
        pass
    os.close(master)
    return process.wait(timeout=240), b"".join(chunks).decode()


def test_a_long_compile_is_shown_and_gone(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    status, shown = on_a_terminal(tmp_path)
    assert status == 0, shown
    assert "compiling __main__.slow (slow.py:9): 0 s" in shown or ": 1 s" in shown
    assert shown.index("\x1b[?25l") < shown.index("\x1b[?25h")  # the cursor is back
    last = shown.rsplit("\x1b[2K", 1)[1]
    assert last.strip() == "done"


def test_without_rich_there_is_a_line(tmp_path: Path) -> None:
    status, shown = on_a_terminal(tmp_path, "sys.modules['rich.console'] = None")
    assert status == 0, shown
    assert shown.split("\r\n") == [
        "filterjit: compiling __main__.slow (slow.py:9) ...",
        "done",
        "",
    ]


@pytest.mark.parametrize(
    ("setup", "inside", "args", "env"),
    [
        ("filterjit.show_progress(False)", "", (), {}),
        ("", "", (), {"FILTERJIT_PROGRESS": "0"}),
        ("", "", ("60",), {}),  # not long enough
    ],
)
def test_silence(tmp_path: Path, setup: str, inside: str, args: Any, env: Any) -> None:
    status, shown = on_a_terminal(tmp_path, setup, inside, *args, **env)
    assert (status, shown) == (0, "done\r\n")


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    """What fails while it traces is not shown: only JAX's own work is."""
    inside = "time.sleep(1); raise KeyError('on purpose')"
    status, shown = on_a_terminal(tmp_path, inside=inside)
    assert (status, shown) == (0, "failed 'on purpose'\r\ndone\r\n")


def test_a_piped_program_is_silent(tmp_path: Path) -> None:
    done = run(SLOW.format(setup="", inside=""), cwd=tmp_path, FORCE_COLOR="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


class Terminal:
    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


def test_jobs_of_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(_progress, "_PATIENCE", 0.02)
    monkeypatch.setattr(_progress, "_REFRESH", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("FILTERJIT_PROGRESS", raising=False)
    watcher = _progress._Watcher()

    def work(i: int) -> None:
        for k in range(10):
            job = watcher.job(f"job {i}")
            watcher.begin(job)
            time.sleep(0.005 * ((i + k) % 8))
            watcher.end(job)
            watcher.end(job)  # twice is no matter

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert _progress._display._tasks == {}
    assert not any(t.name == "filterjit-progress" for t in threading.enumerate())
    assert "compiling job" in terminal.text
    assert terminal.text.count("\x1b[?25l") == terminal.text.count("\x1b[?25h") > 0


def test_a_terminal_that_fails_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(_progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(terminal, "write", lambda text: 1 / 0)
    watcher = _progress._Watcher()
    job = watcher.job("job")
    watcher.begin(job)
    time.sleep(0.2)
    watcher.end(job)
    assert not any(t.name == "filterjit-progress" for t in threading.enumerate())


def test_there_may_be_no_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert _progress.watcher.job("job") is None


def test_records_are_not_pickled() -> None:
    f = pickle.loads(pickle.dumps(filter_jit(body)))
    f(X)
    assert row_of(f)["traces"] >= 1
