"""Reports: the counts and times of each function and variant.

No test compares an absolute time: the times must exist, and add up to no more than the wall time.
"""

import gc
import json
import re
import sys
import time
import weakref
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from explain_support import X, build_seconds, row_of, switched

import filterjit
from filterjit import filter_jit
from filterjit._call import _direct
from filterjit._observe._recorder import recorder
from support.lifetimes import freed
from support.terminals import terminal
from support.threads import at_once


def in_all(name: str) -> dict[str, Any]:
    rows = filterjit.report().as_dict()["functions"]
    (row,) = [row for row in rows if row["name"].endswith(name)]
    return row


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
    assert min(row["tracing"], row["compiling"]) > 0
    assert build_seconds(row) <= wall
    assert row["dispatch"] is None
    variants = {v["arguments"][-4:]: v for v in row["variants"]}
    assert sorted(variants) == ["n=2)", "n=3)"]
    assert [variants["n=2)"][k] for k in ("hits", "traces", "compiles")] == [2, 1, 1]
    assert [variants["n=3)"][k] for k in ("hits", "traces", "compiles")] == [0, 2, 2]
    assert sum(map(build_seconds, row["variants"])) == pytest.approx(build_seconds(row))
    (shape,) = variants["n=2)"]["shapes"]
    assert shape["arrays"][-1] == "float32[3]"
    labels = {s["label"] for s in variants["n=3)"]["shapes"]}
    assert labels == {"x=float32[3]", "x=float16[3]"}
    for variant in variants.values():
        costs = [[s[k] for k in ("traces", "compiles")] for s in variant["shapes"]]
        assert costs == [[1, 1]] * variant["traces"]
        built = sum(map(build_seconds, variant["shapes"]))
        assert built == pytest.approx(build_seconds(variant))
    assert row_of(f)["compiles"] == 3
    json.dumps(f.report().as_dict())


class Sub(np.ndarray):
    pass


has_direct_calls = pytest.mark.skipif(
    _direct._context is None, reason="this version of JAX lacks what direct calls need"
)


@has_direct_calls
def test_direct_calls_and_why_others_were_not() -> None:
    f = filter_jit(lambda x, n: x * n)
    for _ in range(40):
        f(X, 2)
    for _ in range(200):
        f(np.asarray(X).view(Sub), 2)
    row = row_of(f)
    assert row["calls"] == row["direct"] + sum(row["passed_on"].values()) == 240
    assert row["direct"] == row["variants"][0]["direct"] > 10
    (remark,) = row["remarks"]
    said = "200 of its calls fell back to jax.jit: an argument had a different type"
    assert remark.startswith(said)
    assert " direct" in str(f.report()).splitlines()[1]
    with switched(direct=False):
        for _ in range(5):
            assert (f(X, 2) == 2 * X).all()
    assert row_of(f)["passed_on"]["direct calls are turned off"] == 5
    for _ in range(257):  # calls rest after many that matched nothing
        f(X, 2)
    assert row_of(f)["direct"] > row["direct"]


@has_direct_calls
def test_calls_are_timed_on_request(timed: None) -> None:
    f, x = filter_jit(lambda x: x @ x), jnp.ones((300, 300))
    start = time.perf_counter()
    for _ in range(20):
        jax.block_until_ready(f(x))
    wall = time.perf_counter() - start
    row = row_of(f)
    assert row["dispatch"] > 0 and build_seconds(row) + row["dispatch"] <= wall
    assert row["variants"][0]["dispatch"] == pytest.approx(row["dispatch"])


def test_seconds_of_a_nested_function_are_its_own(timed: None) -> None:
    @filter_jit
    def inner_of_report(x: Any) -> Any:
        time.sleep(0.2)  # a slow trace
        with jax.ensure_compile_time_eval():
            jnp.zeros(7) + 1  # compiled during the trace
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
    assert build_seconds(inner) + build_seconds(outer) <= wall
    assert outer["compiles"] == 1

    start = time.perf_counter()
    inner_of_report(X)  # already traced: attributed by its name, and no dispatch
    wall = time.perf_counter() - start
    again = row_of(inner_of_report)
    assert again["traces"] == 1 and again["compiles"] == inner["compiles"] + 1
    assert again["variants"][0]["compiles"] == again["compiles"]
    assert again["compiling"] > inner["compiling"]
    assert again["compiling"] - inner["compiling"] <= wall


def test_programs_of_jax_jit_are_not_attributed() -> None:
    @filter_jit
    def same_name(x: Any) -> Any:
        return x + 1

    same_name(X)
    before = row_of(same_name), filterjit.report().as_dict()["others"]

    def other(x: Any) -> Any:
        return x + 2

    other.__name__ = "same_name"
    jax.jit(other)(X)
    row, others = row_of(same_name), filterjit.report().as_dict()["others"]
    assert row == before[0]
    assert others["compiles"] > before[1]["compiles"]


@has_direct_calls
def test_a_program_that_can_raise_has_no_dispatch(timed: None) -> None:
    @filter_jit
    def f(x: Any, checked: bool) -> Any:
        return eqx.error_if(x, x[0] > 5, "too large") if checked else x * 2

    for _ in range(4):
        f(X, True)
    row = row_of(f)
    assert row["hits"] == 3 and row["dispatch"] is None is row["variants"][0]["dispatch"]
    assert "not measured" not in str(f.report())
    for _ in range(20):
        f(X, False)
    row = row_of(f)
    times = {v["label"]: v["dispatch"] for v in row["variants"]}
    assert times == {"checked=True": None, "checked=False": row["dispatch"]}
    assert row["dispatch"] > 0


def figures(text: str, column: str) -> list[float]:
    """Returns the figures in a column of a report, in order: one for each row."""
    _, _, table = text.partition("first\n")
    lines = [line for line in table.splitlines() if not line.endswith("first.")]
    end = lines[0].index(column) + len(column)
    found = []
    for line in lines[1:]:
        cell = re.search(r"([\d.,]+)( s| ms)?$", line[:end])
        assert cell is not None or line[end - 1] == " ", line
        number, unit = ("0", None) if cell is None else cell.groups()
        found.append(float(number.replace(",", "")) * (1000 if unit == " s" else 1))
    return found


@has_direct_calls
def test_rows_of_variants_add_up(timed: None) -> None:
    f = filter_jit(lambda x, n: x * n, on_retrace="ignore")
    for n in range(8):
        for _ in range(20):
            f(X, n)
    f.clear_cache()
    for n in range(8):
        f(X, n)
    text = str(f.report())
    assert "3 other variants" in text and "n=" in text
    for column in ("hits", "traces", "compiling", "dispatch"):
        whole, *parts = figures(text, column)
        assert len(parts) == 6
        # Half of the last digit of each figure: 0.1 ms, and 10 ms where it is "1.23 s".
        shown_to = 1e-6 + sum(0.05 if figure < 1000 else 5.0 for figure in (whole, *parts))
        assert sum(parts) == pytest.approx(whole, abs=shown_to)
    g = filter_jit(lambda x, n: x * n)
    g(X, 1)
    g.clear_cache()
    g(X, 1)
    text = str(g.report())
    assert "other programs" in text and figures(text, "traces") == [2, 1, 1]


def mlp(activation: Any) -> eqx.nn.MLP:
    return eqx.nn.MLP(3, 3, 4, 1, activation=activation, key=jax.random.key(0))


LAMBDAS = [lambda x: x,
           lambda x: -x]  # fmt: skip
# The first arguments of some calls, and the labels of their variants.
LABELS: dict[str, tuple[list[tuple[Any, Any]], list[str]]] = {
    "what differs": (
        [(mlp(jax.nn.relu), 1), (mlp(jax.nn.gelu), 1), (mlp(jax.nn.gelu), 2)],
        ["b=1, a.activation=gelu", "b=1, a.activation=relu", "b=2, a.activation=gelu"],
    ),
    "lambdas of other lines": (
        [(fun, 0) for fun in LAMBDAS],
        [f"a=<lambda> of test_report.py:{fun.__code__.co_firstlineno}" for fun in LAMBDAS],
    ),
    "the same words": (
        [(jnp.sin, 0), *(((lambda x: x), 0) for _ in range(2))],
        ["a=sin", "variant n: a", "variant n: a"],
    ),
}


@pytest.mark.parametrize("name", LABELS)
def test_variants_are_called_by_what_differs(name: str) -> None:
    calls, labels = LABELS[name]
    f = filter_jit(lambda a, b, x: x)
    for a, b in calls:
        f(a, b, X)
    found = [v["label"] for v in row_of(f)["variants"]]
    assert len({*found}) == len(calls)
    assert sorted(re.sub(r"variant \d", "variant n", label) for label in found) == labels


def test_each_shape_has_a_row() -> None:
    f = filter_jit(lambda x, n: x["b"] * n, on_retrace="ignore")
    for n in (1, 2):
        for size in range(1, 3 + 5 * (n == 2)):
            f({"a": jnp.ones(3), "b": jnp.ones(size)}, n)
    rows = [line.strip().split("  ")[0] for line in str(f.report()).splitlines()]
    assert {"n=1", "n=2", "x['b']=float32[1]", "2 other shapes"} <= {*rows}
    assert sum(row.startswith("x['b']=float32[") for row in rows) == 7


def test_functions_of_one_place_that_differ_by_shape_only() -> None:
    def make() -> Any:
        def placed(x: Any) -> Any:
            return x + 1

        return filter_jit(placed)

    f, g = make(), make()
    f(jnp.ones(4)), g(jnp.ones(5))
    labels = [v["label"] for v in in_all("make.<locals>.placed")["variants"]]
    assert sorted(labels) == ["x=float32[4]", "x=float32[5]"]


def test_what_tells_variants_apart_comes_first_in_their_names() -> None:
    """It stands in the table and on the page, however many other leaves differ, and however long
    they are."""
    f = filter_jit(lambda state, x, *, schedule, clip, training: x)
    for training in (True, False):
        for end in ("one", "two"):
            state = {f"key_{i}": f"{'the same ' * 30}{training}" for i in range(30)}
            f(state, X, schedule="a schedule " * 50 + end, clip=1.0, training=training)
    labels = [v["label"] for v in row_of(f)["variants"]]
    assert len({label[:80] for label in labels}) == 4
    assert all("clip" not in label for label in labels)
    assert sum("training=True" in label[:20] for label in labels) == 2
    assert sum("schedule one" in label[:80] for label in labels) == 2
    shown = [line[:40] for line in str(f.report()).splitlines() if "training=" in line]
    assert len(shown) == len({*shown}) == 4


def test_a_function_without_a_name_is_called_by_its_class() -> None:
    model = eqx.nn.MLP(3, 3, 8, 2, key=jax.random.key(0))
    f = filter_jit(model)
    assert str(f.explain(X)).startswith("`MLP`: compiles")
    f(X)
    assert row_of(f)["name"].endswith(".MLP")


def test_lower_and_compile_are_counted() -> None:
    f = filter_jit(lambda x: x * 3)
    lowered = f.lower(X)
    row = row_of(f)
    assert (row["traces"], row["compiles"]) == (1, 0) and row["compiling"] > 0
    lowered.compile()
    row = row_of(f)
    assert (row["traces"], row["compiles"]) == (1, 1) and row["compiling"] > 0


def test_a_failed_trace_takes_time_but_is_not_counted() -> None:
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
    assert recorder._thread.stack == []


@pytest.mark.recompiles
def test_recreated_functions_are_added_up() -> None:
    def make(n: int) -> Any:
        def recreated(x: Any) -> Any:
            return x * n

        return filter_jit(recreated)

    builds = []
    for n in range(6):
        f = make(n)
        f(X), f(X), f(X)
        builds.append(build_seconds(row_of(f)))
    assert min(builds) > 0
    del f
    gc.collect()
    row = in_all("make.<locals>.recreated")
    assert [row[k] for k in ("functions", "calls", "hits", "traces")] == [6, 18, 12, 6]
    assert build_seconds(row) == pytest.approx(sum(builds))
    alive = [make(n) for n in range(2)]
    for f in alive:
        f(X)
    (rows,) = [r for r in filterjit.report().as_dict()["functions"] if r["name"] == row["name"]]
    assert [v["label"] for v in rows["variants"]] == ["variant 1", "variant 2"]


@freed
def test_a_report_keeps_no_static_alive() -> list[weakref.ref[Any]]:
    f, held = filter_jit(lambda x, static: x * 2), type("Held", (), {})()
    f(X, held)
    f.report(), filterjit.report()
    return [weakref.ref(held)]


def test_each_thread_has_its_own_stack() -> None:
    def make(i: int) -> Any:
        def threaded(x: Any) -> Any:
            for _ in range(20):
                x = jnp.sin(x) * i
            return x

        threaded.__qualname__ = f"threaded_{i}"
        return filter_jit(threaded)

    functions = [make(i) for i in range(12)]
    shared = filter_jit(lambda x, n: x * n)

    at_once(12, lambda i: (functions[i](X), [shared(X, n) for n in range(5)]))
    for i, f in enumerate(functions):
        row = row_of(f)
        assert row["name"].endswith(f"threaded_{i}")
        assert [row[k] for k in ("calls", "traces", "compiles")] == [1, 1, 1]
        assert build_seconds(row) > 0
    row = row_of(shared)
    assert row["calls"] == 60 and 5 <= row["traces"] <= 30
    assert row["traces"] == sum(v["traces"] for v in row["variants"])


# ---- the text ----


@pytest.mark.parametrize("width", [40, 80, 160])
def test_on_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    f = filter_jit(lambda x, n: x + n, on_retrace="ignore")
    for n in range(8):
        f(X, n)
    monkeypatch.setenv("COLUMNS", str(width))
    with terminal() as opened:
        monkeypatch.setattr(sys, "stdout", opened.file)
        lines = str(f.report()).splitlines()
    assert any("3 oth" in line for line in lines) and ("compiling" in lines[1]) == (width > 40)
    assert all(len(line) <= width for line in lines[1:-1])


def checked(x: jax.Array) -> jax.Array:
    return jax.pure_callback(lambda y: y, x, x)


TIMES = "dispatch", "program", "waiting"
# What is called, for what, how often, and the times in its row: if they are more than zero, or None.
TIMED: dict[str, tuple[Any, Any, int, tuple[bool | None, ...]]] = {
    "direct calls": (jnp.linalg.svd, jnp.ones((120, 120)), 40, (True, True, False)),
    "a callback": (checked, X, 30, (None, None, True)),
    "calls by jax.jit": (jnp.linalg.svd, jnp.ones((10, 10)), 5, (None, None, False)),
}


@has_direct_calls
@pytest.mark.parametrize("name", TIMED)
def test_the_time_of_a_call_is_split(name: str, timed: None) -> None:
    fun, x, calls, expected = TIMED[name]
    f = filter_jit(lambda x: fun(x))
    for _ in range(calls):
        jax.block_until_ready(f(x))
    row, shown = row_of(f), str(f.report()).split()
    assert tuple(row[k] if row[k] is None else row[k] > 0 for k in TIMES) == expected
    assert ("the program has effects or callbacks" in row["passed_on"]) == (fun is checked)
    assert {*TIMES} & {*shown} == {k for k, is_more in zip(TIMES, expected, strict=True) if is_more}
    filterjit.switches.time_calls = False
    f(x)
    assert [row_of(f)[k] for k in TIMES] == [row[k] for k in TIMES]


@has_direct_calls
def test_advice_on_arrays_of_numpy_says_which() -> None:
    f = filter_jit(lambda *xs: sum(xs))
    for _ in range(150):
        f(*map(np.float32, range(8)))
    (text,) = {*row_of(f)["passed_on"]} - {"such calls had not been made often enough"}
    assert "convert values that never change to JAX arrays, once" in text


class Unnamed:
    def __repr__(self) -> str:
        raise AttributeError("path")


def test_a_static_whose_repr_raises() -> None:
    f = filter_jit(lambda x, n: x)
    f(X, Unnamed())
    assert "Unnamed object at" in row_of(f)["variants"][0]["arguments"]


def test_lines_of_operations_as_numbers() -> None:
    filter_jit(lambda x: x)(X)  # from now on, JAX's events are heard
    jax.clear_caches()
    X + 5.5
    lines = filterjit.report().as_dict()["others"]["operations"]
    assert any(x["file"] == __file__ and x["compiles"] > 0 < x["compiling"] for x in lines)
