"""What happens at a retrace: `on_retrace`, the switch `explain` and ``run --explain``."""

import gc
import importlib
import logging
import pickle
import pydoc
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from explain_support import jitted, switched

import filterjit
from filterjit import RetraceError, RetraceWarning, filter_jit
from filterjit.types import Explanation
from support import processes

X = jnp.ones(2)


def test_log(caplog: pytest.LogCaptureFixture) -> None:
    f, _ = jitted(on_retrace="log")
    with caplog.at_level(logging.WARNING, "filterjit"):
        f(X), f(X, 1), f(X, 2)
    assert [record.name for record in caplog.records] == ["filterjit"] * 2
    assert "`b`" in caplog.text and "int 2" in caplog.text


def test_explain_all(caplog: pytest.LogCaptureFixture) -> None:
    f, _ = jitted()
    with caplog.at_level(logging.WARNING, "filterjit"), switched(explain=True):
        f(X)
        caplog.clear()
        f(jnp.ones(3))
    f(jnp.ones(4))
    assert len(caplog.records) == 1 and "float32[3]" in caplog.text


def test_the_same_causes_again_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    f, _ = jitted(on_retrace="log")
    with caplog.at_level(logging.WARNING, "filterjit"):
        for i in range(8):
            f(X, i)
        f(jnp.ones(3), 7)  # another cause
        for i in range(10, 12):
            f(X, i)
    said = [record.getMessage() for record in caplog.records]
    # Of programs that are as close, that of the call before is told.
    assert [f"was the int {i}, is the int {i + 1}" in text for i, text in enumerate(said[:7])] == (
        [True] * 7
    )
    lines = [text.count("\n") for text in said]
    assert min(lines[:3]) > 0 and lines[3:7] == [0] * 4 and min(lines[7:]) > 0, said
    assert "compiles again because `b`" in said[3]


def test_the_variant_whose_arrays_differ() -> None:
    f, _ = jitted()
    f(X, 1), f(X, 2), f(jnp.ones(3), 2)
    assert "(in the variant b=1)" in str(f.explain(jnp.ones(3), 1))
    assert "(in the variant b=2)" in str(f.explain(jnp.ones(4), 2))
    alone, _ = jitted()
    alone(X, 1)
    assert "in the variant" not in str(alone.explain(jnp.ones(3), 1))


def test_retraces_in_installed_libraries_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "solver_of_test.py").write_text(
        "from filterjit import filter_jit\n@filter_jit\ndef solve(a, b):\n    return a\n"
    )
    monkeypatch.syspath_prepend(folder)
    solve = importlib.import_module("solver_of_test").solve
    with caplog.at_level(logging.WARNING, "filterjit"), switched(explain=True):
        solve(X, 1), solve(jnp.ones(3), 1), solve(X, 2.0), solve({"a": X, "b": X}, 3)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == (
        "solver_of_test.solve (solver_of_test.py:2) compiles again because `a`: different shape: compiled for "
        "float32[2], is float32[3]"
    )
    assert len(lines) == 3 and not any("\n" in line for line in lines)
    assert lines[2].endswith("is a dict, and 1 other difference")


def test_warn() -> None:
    f, _ = jitted(on_retrace="warn")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        f(X)
        f(X, 1)
    [warning] = found
    assert warning.category is RetraceWarning and warning.filename == __file__
    assert "`b`" in str(warning.message)


def test_raise_leaves_the_cache_as_it_was() -> None:
    f, traces = jitted(on_retrace="raise")
    f(X)
    for args in ((X, 1), (jnp.ones(3),)):
        for _ in range(2):
            with pytest.raises(RetraceError, match="compiles again because"):
                f(*args)
    assert len(traces) == 1 and len(f.variants) == 1
    f(X)
    assert len(traces) == 1


def test_the_first_call_of_another_instance_is_no_retrace() -> None:
    class Model(eqx.Module):
        weight: Any
        size: int = eqx.field(static=True)

        def __call__(self, x: Any) -> Any:
            return self.weight * x

        def method(self, x: Any) -> Any:
            return x

    class Plain:
        def method(self, x: Any) -> Any:
            return x

    functions = [Model(X, 1), Model(X, 2), Model(X, 1).method, Model(X, 2).method]
    functions += [Plain().method, Plain().method, lambda x: x, lambda x: x]
    for fun in functions:
        f = filter_jit(fun, on_retrace="raise")
        f(X), f(X)


def test_a_function_that_counts_allows_some() -> None:
    allowed = [1, 2]

    def limit(explanation: Explanation) -> None:
        if not allowed:
            raise RetraceError(str(explanation))
        allowed.pop()

    f, traces = jitted(on_retrace=limit)
    f(X), f(X, 1), f(X, 2)
    with pytest.raises(RetraceError, match=r"compiles again because\n.*`b`"):
        f(X, 3)
    assert len(traces) == 3
    assert f(X, 1) is not None


def test_what_is_traced_ahead_of_time_is_no_retrace(caplog: pytest.LogCaptureFixture) -> None:
    shapes = [jax.ShapeDtypeStruct((n,), jnp.float32) for n in (2, 3, 4)]
    f, traces = jitted(on_retrace="raise")
    with caplog.at_level(logging.WARNING, "filterjit"), switched(explain=True):
        assert not f.warm_up_all([((s,), {}) for s in shapes]).errors
        f.lower(X, 1).compile(), f.trace(X, 2), f.eval_shape(X, 3)
    assert len(traces) == 6 and caplog.records == []
    for n in (2, 3, 4):
        f(jnp.ones(n)), f(X, 1), f(X, 2)
    assert len(traces) == 6
    with pytest.raises(RetraceError, match=r"`a`: different shape"):
        f(jnp.ones(5))
    assert len(traces) == 6


def test_functions_that_are_traced_inside_ahead_of_time_are_not_retraced() -> None:
    inner, traces = jitted(on_retrace="raise")
    outer = filter_jit(lambda x: inner(x))
    outer.warm_up_all([((jnp.ones(n),), {}) for n in (2, 3)])
    assert len(traces) == 2
    with pytest.raises(RetraceError, match="compiles again"):
        outer(jnp.ones(4))
    assert len(traces) == 2


def test_a_callable_that_raises() -> None:
    def refuse(explanation: Explanation) -> None:
        raise ZeroDivisionError(explanation.causes[0].path)

    f, _ = jitted(on_retrace=refuse)
    f(X)
    with pytest.raises(ZeroDivisionError, match="b"):
        f(X, 1)
    assert len(f.variants) == 1


@pytest.mark.parametrize("options", [{"on_retrace": "shout"}, {"on_retrace": 3}])
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        filter_jit(lambda: 0, **options)


def test_wrappers_with_different_options_do_not_share_traces() -> None:
    explanations: list[Explanation] = []

    def f(a: Any, b: Any = None) -> Any:
        return a

    quiet, loud = filter_jit(f), filter_jit(f, on_retrace=explanations.append)
    quiet(X), quiet(X, 1)
    loud(X)
    assert explanations == []
    loud(X, 1)
    assert len(explanations) == 1


def test_threads() -> None:
    explanations: list[Explanation] = []
    f, traces = jitted(on_retrace=explanations.append)
    f(X)
    threads = [threading.Thread(target=f, args=(X, n)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(traces) == 9 and len(explanations) == 8


def test_run_explain(tmp_path: Any) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import equinox as eqx, jax.numpy as jnp\n"
        "@eqx.filter_jit\n"
        "def step(x, n):\n"
        "    return x * n\n"
        "for n in (1, 1, 2):\n"
        "    print(step(jnp.ones(()), n))\n"
    )
    done = processes.run("-m", "filterjit", "run", "--explain", script, timeout=240)
    assert done.stdout.split() == ["1.0", "1.0", "2.0"]
    assert done.stderr.count("compiles again because") == 1 and "`n`" in done.stderr


@pytest.mark.parametrize("cls", [RetraceError, RetraceWarning])
def test_pickling_of_exceptions(cls: type[Exception]) -> None:
    copy = pickle.loads(pickle.dumps(cls("the text")))
    assert type(copy) is cls and copy.args == ("the text",)


def test_pickling_of_explanations() -> None:
    f, _ = jitted()
    f(X)
    explanation = f.explain(X, 1)
    assert pickle.loads(pickle.dumps(explanation)) == explanation


OBSERVING = [
    "RetraceError",
    "RetraceWarning",
    "clear_caches",
    "report",
]
RETURNED = ["CacheInfo", "Explanation", "Report"]


@pytest.mark.parametrize(
    ("module", "name"),
    [*((filterjit, name) for name in OBSERVING), *((filterjit.types, name) for name in RETURNED)],
)
def test_public_names_belong_to_filterjit(module: Any, name: str) -> None:
    public = getattr(module, name)
    assert (public.__module__, public.__qualname__) == (module.__name__, name)
    assert f"in module {module.__name__}\n" in pydoc.render_doc(public)


def test_a_first_trace_that_failed_is_no_trace() -> None:
    fails = [True]

    @filter_jit(on_retrace="raise")
    def f(x: Any) -> Any:
        if fails:
            raise ValueError("a mistake")
        return x * 2

    with pytest.raises(ValueError, match="a mistake"):
        f(X)
    fails.clear()
    assert f.explain(X).causes[0].kind == "first"
    f(X)
    f.clear_cache()
    assert f.explain(X).causes[0].kind == "cleared"


def test_calls_under_disable_jit_are_no_traces() -> None:
    f = filter_jit(lambda x: x * 2, on_retrace="raise")
    with jax.disable_jit():
        for _ in range(3):
            f(X)
    assert f.explain(X).causes[0].kind == "first"
    f(X)
    assert f.explain(X).hit


class Cell(eqx.Module):
    weight: Any


class Wide(Cell):
    pass


class Plain:
    def method(self, x: Any) -> Any:
        return x

    decorated = filter_jit(method)


_defined: list[Any] = []  # so that none is collected


class Cycle:
    def __init__(self, i: int) -> None:
        self.f = filter_jit(lambda x: self and x + i)


def _table(f: Any, i: int) -> None:
    _defined.append(filter_jit(lambda x: x + i))
    _defined[-1](X)


def _unrolled(f: Any, i: int) -> None:
    def outer(x: Any) -> Any:
        return [f(n, x[:n]) for n in range(2, 30)] and x

    if i == 0:
        jax.jit(outer)(jnp.ones(40)), filter_jit(outer)(jnp.ones(41)), jax.make_jaxpr(outer)(X)


# What is called again and again, and what is told of it after eight compilations.
TOLD: dict[str, tuple[Callable[[Any, int], Any], str]] = {
    "a number": (lambda f, i: f({"step": i, "n": 2}, X), """`a['step']`: different static value, such as
        the int 6 and the int 7. If the function only computes with it, jit it with
        `filterjit.filter_jit(traced={"a": "step"})`"""),
    "two numbers": (lambda f, i: f([i, {"n": -i}], X), """`a[0]` and `a[1]['n']`: different static value,
        such as the int 6 and the int 7. If the function only computes with it, jit it with
        `filterjit.filter_jit(traced={"a": filterjit.Filter("0") | "1.n"})`"""),
    "a string": (lambda f, i: f("a" * i, X), "`a`: different static value, such as the str 'aaaaaa'"),
    "a shape": (
        lambda f, i: f(None, jnp.ones(i - 1) if i > 1 else i),
        "`b`: different shape, such as float32[1|2|3|4|5|6|7] and float32[8]. Pad it to one shape",
    ),
    "a length": (lambda f, i: f([X] * i, X), "`a`: different structure, such as a list of 6 items"),
    "a lambda": (lambda f, i: f(lambda x: x, X), "`a`: recreated function, such as the function"),
    "an object": (lambda f, i: f(object(), X), "`a`: different object, which is equal only to itself"),
    "a plain self": (lambda f, i: Plain().decorated(X), "`self`: different object, which is equal"),
    "a class": (lambda f, i: f(type("A", (), {}), X), "`a`: different class, such as the class `A` and"),
    "a bound method": (
        lambda f, i: filter_jit(Plain().method)(X),
        "the function: bound method of a different instance",
    ),
    "what was dropped": (
        lambda f, i: filter_jit(f.__wrapped__, maxsize=2)(-i % 3, X),
        "in a row: its program was dropped, since the cache was full. Raise `maxsize`, which is 2.",
    ),
    "in a cycle": (lambda f, i: Cycle(i).f(X), "in a row: it was defined or jitted again each time."),
    "defined again": (lambda f, i: filter_jit(lambda x: x + i)(X), "in a row: it was defined or jitted again each time. Jit it once"),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_many_compilations_of_one_cause_are_told_once(name: str) -> None:
    call, expected = TOLD[name]
    f = filter_jit(lambda a, b: b)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(7):
            call(f, i)
        assert caught == []
        for i in range(7, 30):
            call(f, i)
    (warning,) = caught
    assert warning.category is filterjit.RetraceWarning and warning.filename == __file__
    assert "was compiled 8 times in a row" in str(warning.message)
    assert " ".join(expected.split()) in str(warning.message)


NOT_TOLD: dict[str, Callable[[Any, int], Any]] = {
    "bool and others": lambda f, i: f(i % 2 == 0, [X] * (i // 2 % 4)),
    "used again": lambda f, i: [f(i, X) for _ in range(3)],
    "a table": _table,
    "other functions": lambda f, i: f([jnp.sin, jnp.cos, jax.nn.relu, len, min, max, abs, sum][i % 8], X),
    "other classes": lambda f, i: f([Cell(X), Wide(X), (X,), {1: X}, [X], None, 1, X, X > 1][i % 9], X),
    "other causes": lambda f, i: [f(i, X), f(0, [X] * i), f((), jnp.ones(i))],
    "ahead of time": lambda f, i: (f.warm_up(i, X), f.lower(None, jnp.ones(i)).compile()),
    "unrolled in another trace": _unrolled,
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_TOLD)
def test_other_misses_in_a_row_are_not_told(name: str) -> None:
    f = filter_jit(lambda a, b: b)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(30):
            NOT_TOLD[name](f, i)


STATICS: dict[str, tuple[Callable[[int], Any], bool]] = {
    "equal hashes": (lambda i: -1 - i, True),
    "texts in a dict": (lambda i: {"a": f"{i}", "b": [X, None, 1.5]}, True),
    "functions": (lambda i: [jnp.sin, jnp.cos][i], True),
    "classes": (lambda i: [Cell(X), Wide(X)][i], True),
    "new functions": (lambda i: lambda x: x, False),
    "new classes": (lambda i: type(f"A{i}", (), {}), False),
}


@pytest.mark.parametrize("name", STATICS)
def test_what_was_dropped_since_the_cache_was_full(name: str) -> None:
    make, is_told = STATICS[name]

    def kind() -> str:
        return f.explain(make(0), X).causes[0].kind

    f = filter_jit(lambda a, b: b, maxsize=1, on_retrace="ignore")
    f(make(1), X)
    assert kind() != "evicted"
    for _ in range(5):
        f(make(0), X), f(make(1), X)
        gc.collect()
        assert (kind() == "evicted") == is_told
    assert f.explain(make(0), jnp.ones(5)).causes[0].kind != "evicted"
    assert f.explain(0, X).causes[0].kind != "evicted" or not is_told
    f.clear_cache()
    f(make(1), X)
    assert kind() != "evicted"


def test_what_is_told_can_be_silenced_and_is_of_one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored, f = filter_jit(lambda n: n, on_retrace="ignore"), filter_jit(lambda n: n)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(20):
            ignored(i)
        for test in ("one", "two", "three"):
            monkeypatch.setenv("PYTEST_CURRENT_TEST", test)
            for i in range(7):
                f((test, i))
    with pytest.warns(RetraceWarning):
        f((test, 7))


def _python_calls(f: Callable[[], Any]) -> list[str]:
    """Returns the names of the Python functions that are called."""
    found: list[str] = []
    before = sys.getprofile()
    sys.setprofile(
        lambda frame, event, _: found.append(frame.f_code.co_qualname) if event == "call" else None
    )
    try:
        f()
    finally:
        sys.setprofile(before)
    return found


def test_explanations_cost_nothing_on_a_hit() -> None:
    plain = filter_jit(lambda x, n: x)
    explained = filter_jit(lambda x, n: x, on_retrace="raise")
    for f in (plain, explained):
        f(X, 1), f(X, 1)
    expected = _python_calls(lambda: plain(X, 1))
    with switched(explain=True):
        for f in (plain, explained):
            assert _python_calls(lambda f=f: f(X, 1)) == expected  # type: ignore[misc]
    assert len(expected) == 1  # the lambda
