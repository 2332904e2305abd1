"""Mistakes that people reported as hard to understand: each row has a program, and words of its
error or warning."""

import importlib
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

import filterjit
from filterjit import filter_jit
from support.processes import run

X = jnp.ones(3)
MLP = eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0))


class Tensor:
    """Is compared item by item, and hashed by identity, as those of other libraries are."""

    def __init__(self) -> None:
        self.values = np.ones(2)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values

    def __eq__(self, other: object) -> Any:
        return self.values == np.asarray(other)

    __hash__ = object.__hash__


class Values:
    """An array that is static on purpose."""

    def __init__(self) -> None:
        self.values = np.ones(2)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values

    def __eq__(self, other: object) -> bool:
        return type(other) is Values and bool((self.values == other.values).all())

    def __hash__(self) -> int:
        return 1


class Series(Tensor):
    __hash__ = None  # type: ignore[assignment]


def messages(program: Callable[[], Any]) -> str:
    """What a program raises, with the notes, and what it warns of."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            program()
            raised = []
        except Exception as e:
            raised = [str(e), *getattr(e, "__notes__", ())]
    return "\n".join([*raised, *(str(w.message) for w in warned)])


def compiled() -> Any:
    def step(x: jax.Array) -> jax.Array:
        return (x * x).sum()

    return filter_jit(step).compile(X)


def loaded(folder: Path) -> Any:
    compiled().save(folder / "step.jit")
    return filterjit.load(folder / "step.jit")


def decorated(decorator: Any) -> None:
    @decorator
    def serve() -> None: ...


OF_NUMPY = {
    "a size": (lambda n: jnp.zeros(n), np.int32(3), "`n` is np.int32(3), .*Pass `int(n)`"),
    "in a dict": (lambda m: jnp.zeros(m["n"]), {"n": np.int64(3)}, r"Pass `int\(m\['n'\]\)`"),
    "a range": (lambda n: list(range(n)), np.int32(3), "Pass `int(n)`"),
    "a condition": (lambda n: 1 if n else 2, np.bool_(True), "Pass `bool(n)`"),
    "a float": (lambda n: float(n), np.float32(1), "Pass `float(n)`"),
    "a text": (lambda n: n, np.str_("a"), "`n` is np.str_('a'), .*Pass `str(n)`"),
    "bytes": (lambda n: n, np.bytes_(b"a"), "Pass `bytes(n)`"),
}


@pytest.mark.parametrize("name", OF_NUMPY)
def test_a_numpy_scalar_whose_value_is_needed(name: str) -> None:
    fun, x, words = OF_NUMPY[name]
    pattern = words if "\\" in words else words.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(TypeError) as raised:
        filter_jit(fun)(x)
    assert any(map(re.compile(pattern).search, raised.value.__notes__))


def test_a_numpy_scalar_that_is_only_computed_with_has_no_note() -> None:
    def fun(n: Any, x: jax.Array) -> Any:
        return jnp.zeros(x.sum()) + n  # type: ignore[arg-type]

    assert "Pass `int" not in messages(lambda: filter_jit(fun)(np.int32(3), X))
    assert "Pass `int" not in messages(
        lambda: filterjit.jit(lambda n: jnp.zeros(n))(np.int32(3))  # its hint fits
    )


PROGRAMS: dict[str, tuple[Callable[[], Any], str]] = {
    "an object with __array__": (
        lambda: filter_jit(lambda t: jnp.asarray(t) + 1)(Tensor()),
        "`t` is a `Tensor`, which is static: .*Pass `np.asarray",
    ),
    "an object with __array__ and without a hash": (
        lambda: filter_jit(lambda t: t)(Series()), "Pass `np.asarray"),
    "jit: a string": (lambda: filterjit.jit(lambda x: x)("a"), "`filterjit.filter_jit` takes"),
    "jit: a Module": (lambda: filterjit.jit(lambda m: m)(MLP), "`filterjit.filter_jit` takes"),
    "jit: a result": (lambda: filterjit.jit(lambda x: "a")(X), "`filterjit.filter_jit` returns"),
    "nnx.jit: a string": (
        lambda: filterjit.nnx.jit(lambda x: x)("a"), "static, but does not update Variables"),
    "nnx.jit: a Module of Equinox": (
        lambda: filterjit.nnx.jit(lambda m: m)(MLP), "static, but does not update Variables"),
    "a PartitionSpec without a mesh": (
        lambda: filter_jit(lambda x: x, in_shardings=P())(X), "pass `mesh=` to `filter_jit`"),
    "filter_jit(func=)": (lambda: filter_jit(func=len), "Did you mean 'fun'"),  # type: ignore[call-overload]
    "jit(func=)": (lambda: filterjit.jit(func=len), "function by position"),  # type: ignore[call-overload]
    "nnx.jit(donate=)": (lambda: filterjit.nnx.jit(len, donate="all"), "Use `donate_argnames`"),
    "nnx.jit(traced=)": (lambda: filterjit.nnx.jit(len, traced=("x",)), "numbers are traced"),
    "nnx.jit(static_argnmes=)": (
        lambda: filterjit.nnx.jit(len, static_argnmes="x"), "Did you mean 'static_argnames'"),
    "@forbid_compile()": (
        lambda: decorated(filterjit.forbid_compile()), r"write `with filterjit.forbid_compile\(\):`"),
    "@forbid_compile": (
        lambda: decorated(filterjit.forbid_compile), r"write `with filterjit.forbid_compile\(\):`"),
    "@install()": (lambda: decorated(filterjit.install()), r"write `with filterjit.install\(\):`"),
    "grad of a compiled program": (lambda: jax.grad(compiled())(X), "step` is a compiled program"),
    "vmap of a compiled program": (
        lambda: jax.vmap(compiled())(X[None]), "call the function itself"),
    "nnx.jit(f).compile": (lambda: filterjit.nnx.jit(len).compile, "`warm_up` compiles before"),
    "nnx.jit(f).save": (lambda: filterjit.nnx.jit(len).save, "`warm_up` compiles before"),
    "from filterjit import filter_grad": (
        lambda: exec("from filterjit import filter_grad"), "keep `equinox.filter_grad`"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_messages(name: str) -> None:
    program, words = PROGRAMS[name]
    found = messages(program)
    assert re.search(words, found, re.DOTALL), found
    assert filter_jit(lambda x: x + 1)(X).tolist() == [2, 2, 2]  # and nothing is left behind


QUIET: dict[str, Callable[[], Any]] = {
    "an array that is static on purpose": lambda: filter_jit(lambda t: t)(Values()),
    "warm_up of a static tuple": lambda: filter_jit(lambda x, s: x).warm_up(X, (3, 2)),
    "warm_up of a spec": lambda: filter_jit(lambda x: x).warm_up(
        jax.ShapeDtypeStruct((3, 2), jnp.float32)
    ),
    "a private module": lambda: exec("from filterjit import _jit, _core"),
}


@pytest.mark.parametrize("name", QUIET)
def test_programs_without_a_message(name: str) -> None:
    assert messages(QUIET[name]) == ""


def test_an_attribute_that_another_library_has() -> None:
    assert not hasattr(filterjit, "filter_grad")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from filterjit import nothing")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("filterjit.filter_grad")


def test_grad_of_a_loaded_program(tmp_path: Path) -> None:
    assert "step` is a compiled program" in messages(lambda: jax.grad(loaded(tmp_path))(X))


class Counter(nnx.Module):
    def __init__(self) -> None:
        self.count = nnx.Param(jnp.zeros(3))
        self.dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(0))


@pytest.mark.parametrize("abstract", [False, True])
@pytest.mark.parametrize("options", [{}, {"graph": False}, {"graph": True, "graph_updates": True}])
def test_warm_up_of_nnx_jit(options: dict[str, Any], abstract: bool) -> None:
    traces = []

    def add(counter: Counter, x: jax.Array) -> jax.Array:
        traces.append(1)
        counter.count[...] += x
        return counter.dropout(counter.count[...])

    f, expected = filterjit.nnx.jit(add, **options), nnx.jit(add, **options)
    mine, theirs = Counter(), Counter()
    given = nnx.eval_shape(Counter) if abstract else mine
    f.warm_up(given, X)
    f.warm_up_all([((given, X), {})])
    assert mine.count[...].tolist() == [0, 0, 0] and len(traces) == 1
    with filterjit.forbid_compile():
        found = f(mine, X)
    assert f.handed_over == {} and f.cache_info()[:2] == (1, 0) and len(traces) == 1
    assert found.tolist() == expected(theirs, X).tolist()
    assert mine.count[...].tolist() == theirs.count[...].tolist() == [1, 1, 1]


COMMANDS = {
    "a text": (("-c", "import sys; print(sys.argv, __name__)", "a", "-m"), 0, "['-c', 'a', '-m'] __main__\n", ""),
    "a text without a space": (("-cprint(1)",), 0, "1\n", ""),
    "a text that fails": (("-c", "1/0"), 1, "", "ZeroDivisionError"),
    "no text": (("-c",), 2, "", "expected -c CODE"),
    "a notebook": (("train.ipynb",), 2, "", "call `filterjit.install()` in its first cell"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_run(name: str, tmp_path: Path) -> None:
    arguments, status, out, err = COMMANDS[name]
    done = run("-m", "filterjit", "run", *arguments, cwd=tmp_path, status=status, timeout=120)
    assert done.stdout == out and err in done.stderr
