"""`filterjit.forbid_compile` and `allow_compile`."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.experimental import io_callback

import filterjit
from filterjit import ForbiddenCompileError, allow_compile, forbid_compile
from filterjit._observe import _forbid
from support.threads import at_once

REMEDY = "forbids it: make such a call before"


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert _forbid._forbids == [] and _forbid._here.get() == ()


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


class Function:
    """A jitted function, and how often its body has run."""

    def __init__(self, decorator: Callable[..., Any], **options: Any) -> None:
        self.traces = 0

        def f(x: Any, *statics: Any) -> Any:
            self.traces += 1
            return x * 2

        self.jitted = decorator(f, **options)


# What jits, the arguments that are warmed up, other ones, and what the text says of these.
REFUSED: dict[str, tuple[Any, tuple[Any, ...], tuple[Any, ...], str]] = {
    "shape": (filterjit.filter_jit, (ones(3),), (ones(4),), "`x`: different shape"),
    "static": (filterjit.filter_jit, (ones(3), "a"), (ones(3), "b"), "`statics[0]`"),
    "first": (filterjit.filter_jit, (), (ones(3),), "would compile"),
    "jit": (filterjit.jit, (ones(3),), (ones(4),), "`x`: different shape"),
    "nnx": (filterjit.nnx.jit, (ones(3),), (ones(4),), "`x`: different shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_miss_is_refused_before_the_function_runs(name: str) -> None:
    decorator, warm, other, said = REFUSED[name]
    function = Function(decorator)
    f = function.jitted
    if warm:
        f(*warm)
    before, programs = function.traces, f.cache_info().variants
    with forbid_compile():
        if warm:
            f(*warm)
        for call in (f, f, f.lower if decorator is filterjit.filter_jit else f):
            with pytest.raises(
                ForbiddenCompileError, match=f"(?s)would compile.*{REMEDY}"
            ) as error:
                call(*other)
            assert said in str(error.value)
        assert (function.traces, f.cache_info().variants) == (before, programs)
        with allow_compile():
            f(*other)
        f(*other)
    assert function.traces == before + 1


def test_programs_that_are_not_ours() -> None:
    plain = jax.jit(lambda x: x - 1)
    plain(ones(3))
    with forbid_compile():
        plain(ones(3))
        for call, name in ((plain, "jit(<lambda>)"), (jnp.cosh, "jit(cosh)")):
            with pytest.raises(ForbiddenCompileError) as error:
                call(ones(17))
            assert f"`{name}`" in str(error.value) and ": would compile:" in str(error.value)
        with allow_compile():
            plain(ones(17))
        plain(ones(17))


def test_a_function_in_the_program_of_another() -> None:
    function = Function(filterjit.filter_jit)
    outer = jax.jit(lambda x: function.jitted(x))
    with forbid_compile(), pytest.raises(ForbiddenCompileError, match="`Function"):
        outer(ones(3))
    assert function.traces == 0
    outer(ones(3))
    with forbid_compile(), jax.disable_jit():
        function.jitted(ones(3))  # compiles nothing


CALLBACKS: dict[str, Callable[[Any, Any], Any]] = {
    "pure": lambda call, x: jax.pure_callback(call, x, x),
    "io": lambda call, x: io_callback(call, x, x),
    "debug": lambda call, x: (jax.debug.callback(call, x), x)[1],
}


@pytest.mark.parametrize("decorator", [filterjit.filter_jit, filterjit.jit])
@pytest.mark.parametrize("kind", CALLBACKS)
def test_what_a_callback_would_compile(kind: str, decorator: Any) -> None:
    inner = filterjit.filter_jit(lambda x: 2 * x)
    f = decorator(lambda x: CALLBACKS[kind](lambda x: np.asarray(inner(x)), x))
    f(ones(3))
    jax.effects_barrier()
    inner.clear_cache()
    with (
        forbid_compile(),
        pytest.raises(ForbiddenCompileError, match=r"(?s)^`test_.*was dropped") as e,
    ):
        f(ones(3))
    assert "INTERNAL" in str(e.value.__cause__) and str(e.value).endswith("allow_compile()`.")


def test_a_trace_that_is_not_compiled_yet() -> None:
    f = filterjit.filter_jit(lambda x: x * 3)
    lowered = f.lower(ones(3))
    with (
        forbid_compile(),
        pytest.raises(ForbiddenCompileError, match="was traced for such arguments"),
    ):
        f(ones(3))
    with forbid_compile(), pytest.raises(ForbiddenCompileError):
        lowered.compile()
    with forbid_compile(), pytest.raises(ForbiddenCompileError):
        f.warm_up(ones(4))
    with forbid_compile(), allow_compile():
        assert f.warm_up_all([((ones(n),), {}) for n in (3, 4, 5)]) == {}
    with forbid_compile():
        f(ones(5))


def test_the_users_objects_are_as_they_were() -> None:
    class Counter(nnx.Module):
        def __init__(self) -> None:
            self.n = nnx.Variable(jnp.zeros(()))

    @filterjit.nnx.jit
    def count(counter: Counter, x: Any) -> Any:
        counter.n[...] += 1
        return x

    counter = Counter()
    count(counter, ones(3))
    step = filterjit.filter_jit(lambda state, x: state + x, donate="all-except-first")
    donated, one = jnp.ones(5), jnp.ones(())
    with forbid_compile():
        with pytest.raises(ForbiddenCompileError):
            count(counter, ones(4))
        with pytest.raises(ForbiddenCompileError):
            step(one, donated)
    assert float(counter.n[...]) == 1 and not donated.is_deleted()
    count(counter, ones(4))
    assert float(counter.n[...]) == 2 and step(one, donated).shape == (5,)


def test_log_tells_each_cause_once(caplog: pytest.LogCaptureFixture) -> None:
    f = filterjit.filter_jit(lambda x, act: act(x))
    f(ones(1), jnp.sin)
    with caplog.at_level(logging.WARNING, "filterjit"), forbid_compile("log"):
        for n in range(2, 6):
            assert f(ones(n), jnp.sin).shape == (n,)
        f(ones(1), jnp.cos)
        jax.jit(lambda x: f(x, jnp.tan))(ones(2))
        with allow_compile():
            f(ones(9), jnp.exp)
    told = [record.getMessage() for record in caplog.records]
    assert ["shape" in text for text in told] == [True, False, False]
    assert "`cos`" in told[1] and told[2].startswith("`jit(<lambda>)`: compiles")
    assert not any(REMEDY in text for text in told)


def test_the_last_one_rules_and_close_ends() -> None:
    f = filterjit.filter_jit(lambda x: x)
    forbidden = forbid_compile()
    with forbid_compile("log"):
        f(ones(3))
    with pytest.raises(ForbiddenCompileError):
        f(ones(4))
    forbidden.close()
    f(ones(4))
    with pytest.raises(ValueError, match="forbid_compile"):
        forbid_compile("warn")  # type: ignore[arg-type]


def test_a_portable_file_is_compiled_when_it_is_loaded(tmp_path: Path) -> None:
    """It is no damaged file."""
    path = tmp_path / "program.jit"
    filterjit.filter_jit(lambda x: x * 2).lower(ones(3)).save(path)
    with forbid_compile(), pytest.raises(ForbiddenCompileError, match=REMEDY):
        filterjit.load(path)


def test_one_thread_is_allowed_to_compile() -> None:
    """It loads a model, while others are answered for known shapes and refused for others."""
    function = Function(filterjit.filter_jit)
    f = function.jitted
    for n in (1, 2):
        f(ones(n))

    def work(i: int) -> None:
        if i == 0:
            with allow_compile():
                for n in range(10, 15):
                    f(ones(n))
        for n in range(200 * (i > 0)):
            with pytest.raises(ForbiddenCompileError) if n % 4 > 1 else contextlib.nullcontext():
                f(ones(n % 4 + 1))

    with forbid_compile():
        assert at_once(9, work) == [None] * 9
    assert function.traces == 7


def test_an_array_in_another_place() -> None:
    """JAX would compile the call for a committed array, without a trace."""
    f = filterjit.filter_jit(lambda x: x * 2)
    there = jax.device_put(ones(3), jax.devices()[0])
    f(ones(3))
    with forbid_compile():
        f(ones(3))
        with pytest.raises(
            ForbiddenCompileError, match=r"traced for such arguments|different device"
        ):
            f(there)
        with allow_compile():
            f(there)
        f(there)


X = jnp.arange(5.0)
KEY = jax.random.key(0)
OPERATIONS: dict[str, Callable[[], Any]] = {
    "an index": lambda: X[0],
    "a split key": lambda: jax.random.split(KEY, 17),
    "a function of jnp": lambda: jnp.cumsum(jnp.asarray(np.ones(23))),
    "a loop": lambda: jax.lax.fori_loop(0, 3, lambda i, x: x * 1.75, X),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_outside_of_a_jitted_function_is_forbidden(name: str) -> None:
    jax.clear_caches()
    with filterjit.forbid_compile(), pytest.raises(filterjit.ForbiddenCompileError) as raised:
        OPERATIONS[name]()
    text = str(raised.value)
    assert "(test_forbid.py:" in text and "an operation outside of a jitted function" in text
    assert "move it into a jitted function, or use NumPy" in text and "before" not in text


@pytest.mark.parametrize("calls", [1, 2, 20])
def test_another_functions_clear_cache_drops_nothing_of_a_call_that_was_refused(calls: int) -> None:
    traces = []

    @filterjit.filter_jit
    def f(x: Any) -> Any:
        traces.append(None)
        return x * 2

    other = filterjit.filter_jit(lambda x: x + 1)
    f(X), other(X)
    y = jnp.ones(7)
    with filterjit.forbid_compile(), pytest.raises(filterjit.ForbiddenCompileError):
        f(y)
    for _ in range(calls):
        f(y)
    other.clear_cache()
    assert f.explain(y).hit
    f(y)
    assert len(traces) == 2
