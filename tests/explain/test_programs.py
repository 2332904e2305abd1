"""What a program contains: unrolled Python loops, and captured arrays."""

import contextlib
import functools
import logging
import types
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from explain_support import X, row_of

from filterjit import filter_jit
from filterjit._call import _traced
from filterjit._compat import _jax_compat
from filterjit._observe import _jaxpr


def program_of(f: Any, *args: Any) -> tuple[int, Any]:
    """Returns how many equations a program has, and its loop."""
    equations = _traced.contents(filter_jit(f).trace(*args).jaxpr).equations
    return len(equations), _jaxpr.find_loop(equations)


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


def with_handlers(x: Any) -> Any:
    for _ in range(500):
        try:
            with contextlib.nullcontext():
                x = x * 2
            x = x + 1
        except ZeroDivisionError:
            continue
    with contextlib.nullcontext():
        x = jnp.sin(x)
    return x * 3


LAYERS = [eqx.nn.Linear(3, 3, key=jax.random.key(0))] * 100


def over_layers(x: Any) -> Any:
    for layer in LAYERS:
        x = jax.nn.relu(layer(x))
    return x


def few_copies(x: Any) -> Any:
    for _ in range(66):  # 198 equations
        x = body(x)
    return x


def half_of_it(x: Any, copies: int = 51) -> Any:
    x = library(x, 75)
    for _ in range(copies):
        x = body(x)
    return x


LOOPS: list[tuple[Any, Any, str, int, int]] = [
    (looped, looped, "for _", 1000, 3),
    (lambda x: jax.grad(lambda x: looped(x).sum())(x), looped, "for _", 1000, 8),
    (lambda x: jax.vmap(looped)(jnp.stack([x, x])), looped, "for _", 1000, 3),
    (lambda x: jax.lax.scan(lambda c, _: (looped(c), None), x, None, 3), looped, "for", 1000, 3),
    (comprehended, comprehended, "[jnp", 700, 2),
    (by_while, by_while, "while i", 600, 2),
    (nested, nested, "for _ in range(100)", 1000, 2),
    (with_handlers, with_handlers, "for _", 500, 2),
    (over_layers, over_layers, "for layer", 100, 3),
    (half_of_it, half_of_it, "for _", 51, 3),
]


@pytest.mark.parametrize(("f", "where", "text", "copies", "size"), LOOPS)
def test_a_python_loop_is_found(f: Any, where: Any, text: str, copies: int, size: int) -> None:
    _, loop = program_of(f, X)
    assert loop is not None
    assert (loop.file, loop.line) == (__file__, line_of(where, text))
    assert loop.copies == copies and abs(loop.size - size) <= 1
    said = (
        f"test_programs.py:{loop.line}, a Python loop, {copies:,} copies of {loop.size} equations"
    )
    assert str(loop).startswith(said)


def library(x: Any, lines: int = 800) -> Any:
    """A large program without a loop."""
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


def few(x: Any, lines: int = 200) -> Any:
    for _ in range(4):
        x = library(x, lines)
    return x


def recursive(x: Any, n: int = 400) -> Any:
    return x if n == 0 else recursive(jnp.sin(x) * 2 + 1, n - 1)


inner_jit = jax.jit(library)


def used_again(x: Any) -> Any:
    for _ in range(20):
        x = inner_jit(x)  # one program, used twenty times
    return x


# Programs, and how many equations they have at least.
STRAIGHT: list[tuple[Any, int]] = [
    *((f, 1000) for f in (library, over_a_tree, of_other_shapes, few, recursive, used_again)),
    (lambda x: list(map(body, [x] * 700)), 1000),
    # Less than half of it repeats, or it does less than eight times.
    (lambda x: half_of_it(x, 49), 297),
    (lambda x: few(x, 60), 480),
]


@pytest.mark.parametrize(("f", "least"), STRAIGHT)
def test_no_loop_is_found_without_one(f: Any, least: int) -> None:
    equations, loop = program_of(f, X)
    assert equations >= least and loop is None


def test_nested_programs_count_once() -> None:
    @jax.jit
    def inner(x: Any) -> Any:
        return x * 2 + 1

    assert program_of(lambda x: inner(inner(inner(x))), X)[0] == 3 + 2


def test_the_report_names_the_loop() -> None:
    f = filter_jit(looped)
    f(X)
    said = "1,000 copies of 3 equations, 100% of the program: jax.lax.scan or fori_loop would keep one copy"
    assert said in str(f.report())
    half = filter_jit(
        lambda x: looped(functools.reduce(lambda y, _: jnp.negative(-y), range(1000), x))
    )
    half(X)
    assert "1,000 copies of 3 equations, 60% of the program" in str(half.report())
    for small in (few_copies, lambda x: jax.lax.fori_loop(0, 1000, lambda _, x: body(x), x)):
        g = filter_jit(small)
        g(X)
        assert row_of(g)["remarks"] == []


def test_without_stacks_no_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_jax_compat, "stack_key", lambda equation: None)
    assert program_of(looped, X) == (3000, None)
    assert _jax_compat.raw_stack(types.SimpleNamespace()) == ((), ())


def test_captured_arrays_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    big, table = jnp.ones((600, 1000)), np.ones((500, 1000), np.float32)

    @filter_jit
    def f(x: Any, n: int) -> Any:
        return x * n + big.sum() + jnp.asarray(table).sum()

    with caplog.at_level(logging.WARNING, "filterjit"):
        f(X, 1), f(X, 2), f(X, 2)
    (record,) = [r for r in caplog.records if r.name == "filterjit"]
    said = record.getMessage()
    assert "captures 2 arrays of 4.2 MiB (`big`, `table`) as constants" in said
    assert "f (test_programs.py:" in said and "Pass them as arguments" in said
    (remark,) = row_of(f)["remarks"]
    assert "4.2 MiB" in remark


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
    assert "(`self`)" in record.getMessage() and "Jit the object itself" in record.getMessage()
