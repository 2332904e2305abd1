"""`filterjit.jit` ahead of time: JAX's stages, `compile`, `warm_up`, and files."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import filterjit
from filterjit import MismatchError, load
from support.comparison import Traces, comparable

x = jnp.arange(3.0)
SPEC = jax.ShapeDtypeStruct((3,), jnp.float32)


def scaled(state: Any, rate: Any, n: Any = 2, *rest: Any, k: Any = ()) -> Any:
    assert isinstance(rate, jax.core.Tracer)
    return {key: value * rate**n for key, value in state.items()}, rest, len(k)


OPTIONS: Any = {"static_argnames": ("n", "k"), "donate_argnames": "state"}


def test_stages_are_those_of_jax() -> None:
    f, plain = filterjit.jit(scaled, **OPTIONS), jax.jit(scaled, **OPTIONS)
    for method in ("lower", "trace"):
        ours, theirs = (getattr(g, method)({"w": SPEC}, 0.5, 3, k=(1, "a")) for g in (f, plain))
        assert type(ours) is type(theirs) and ours.args_info == theirs.args_info
        assert ours.out_info == theirs.out_info
    assert ours.lower().as_text() == theirs.lower().as_text()
    compiled = f.lower({"w": SPEC}, 0.5, 3).compile()
    assert isinstance(compiled, jax.stages.Compiled)
    assert comparable(compiled({"w": x + 0}, 2.0)) == comparable(plain({"w": x + 0}, 2.0, 3))


def test_compile_and_calls() -> None:
    traces = Traces()
    f = filterjit.jit(functools.wraps(scaled)(traces.counting(scaled)), **OPTIONS)
    compiled = f.compile({"w": SPEC}, 0.5, 3, 1.5, k=("a", 1))
    state = {"w": x + 0}
    for call in (compiled, f):
        state = {"w": x + 0}
        found = call(state, 2.0, 3, 7.0, k=("a", 1))
        assert comparable(found) == comparable(jax.jit(scaled, **OPTIONS)(
            {"w": x + 0}, 2.0, 3, 7.0, k=("a", 1)))  # fmt: skip
        assert state["w"].is_deleted()
    assert traces.count == 1 and f.cache_info()[:2] == (1, 0)
    for n, k in ((2, ("a", 1)), (3.0, ("a", 1)), (3, ("a", True))):
        with pytest.raises(MismatchError):
            compiled({"w": x + 0}, 2.0, n, 7.0, k=k)
    with pytest.raises(MismatchError):
        compiled({"w": jnp.ones(4)}, 2.0, 3, 7.0, k=("a", 1))


def test_what_jax_alone_compiles() -> None:
    f = filterjit.jit(lambda y: (y, "text"))
    with pytest.raises(ValueError, match=r"a leaf of the result .*`lower\(\.\.\.\)\.compile\(\)`"):
        f.compile(x)
    (error,) = f.warm_up_all([((x,), {})]).errors
    assert isinstance(error, ValueError) and "`jax.jit` does" in str(error)
    g = filterjit.jit(lambda y: y)
    with pytest.raises(ValueError, match="a leaf of the arguments is no array and no number"):
        g.compile({"a": "text"})
    h = filterjit.jit(lambda y, *rest: y, static_argnums=-1)
    with pytest.raises(ValueError, match="counts from the end"):
        h.compile(x, 1)
    assert g.compile(x)(x) is not None and g.cache_info().variants == 1


@pytest.mark.parametrize("portable", [False, True])
def test_files(portable: bool, tmp_path: Path) -> None:
    if portable:
        pytest.importorskip("flatbuffers")
    f = filterjit.jit(scaled, **OPTIONS)
    f.compile({"w": SPEC}, 0.5, 5, 1, k=("a", (1,))).save(tmp_path / "f", portable=portable)
    loaded = load(tmp_path / "f")
    for rate in (0.5, 0.25):
        state = {"w": x + 0}
        found = loaded(state, rate, 5, 1, k=("a", (1,)))
        expected = jax.jit(scaled, **OPTIONS)({"w": x + 0}, float(rate), 5, 1, k=("a", (1,)))
        assert comparable(found[0]) == comparable(expected[0])  # a portable file has no weak types
        assert state["w"].is_deleted()
    for n, k in ((4, ("a", (1,))), (5, ("a", (True,))), (5, ())):
        with pytest.raises(MismatchError):
            loaded({"w": x + 0}, 0.5, n, 1, k=k)


def test_files_of_arguments_by_number(tmp_path: Path) -> None:
    f = filterjit.jit(lambda *args: args[0] * args[1] + args[2], static_argnums=1)
    f.compile(x, 4, 0.5).save(tmp_path / "f")
    loaded = load(tmp_path / "f")
    assert (loaded(x, 4, 1.5) == 4 * x + 1.5).all()
    with pytest.raises(MismatchError):
        loaded(x, 5, 1.5)
