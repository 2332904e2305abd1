"""``f.compile(..., file=path)``: a file that fits the call is loaded, and any other is written."""

import functools
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aot_support import HERE, full_disk

import filterjit
from filterjit import filter_jit
from filterjit.types import Compiled
from support.processes import run, run_code

ONES = jnp.ones(2)
TRACES: list[str] = []


def scale(x: Any, n: Any = 2) -> Any:
    TRACES.append("scale")
    return x * n


def other(x: Any, n: Any = 2) -> Any:
    return x * n + 1


def holding(held: Any, sign: int = 1) -> Callable[..., Any]:
    def f(x: Any, n: Any = 2) -> Any:
        TRACES.append("f")
        return x * n + (held(x) if callable(held) else held)

    def g(x: Any, n: Any = 2) -> Any:
        return x * n - held

    return f if sign > 0 else g


def with_a_module() -> Callable[..., Any]:
    import math as module

    def f(x: Any) -> Any:
        TRACES.append("f")
        return x * module.pi

    return f


class Callable_(eqx.Module):
    w: jax.Array
    n: int = 1

    def __call__(self, x: Any, n: Any = 2) -> Any:
        TRACES.append("module")
        return self.w * x * n + self.n

    @filter_jit
    def method(self, x: Any, n: Any = 2) -> Any:
        TRACES.append("method")
        return self.w * x * n + self.n


class NoValue:
    """A static that no file can hold."""


@pytest.fixture
def path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Path:
    caplog.set_level(logging.INFO, "filterjit")
    tmp_path.chmod(0o700)
    return tmp_path / "f.jit"


def same(x: Any, y: Any) -> bool:
    return bool(eqx.tree_equal(x, y))


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [f"{x.levelname} {x.getMessage()}" for x in caplog.records if x.name == "filterjit"]
    caplog.clear()
    return found


def kind(w: float, n: int = 1) -> Callable_:
    return Callable_(jnp.full(2, w), n)


# What makes a function, twice; the second one may be another.
FITS: dict[str, list[Callable[[], Any]]] = {
    "a function": [lambda: scale],
    "its method": [lambda: kind(2.0), lambda: kind(3.0)],
    "a closure": [lambda: holding(3)],
    "a closure over an array": [lambda: holding(jnp.ones(2))],
    "a closure over a function": [lambda: holding(holding(1))],
    "a closure over a Module": [lambda: holding(kind(1.0))],
    "a closure over a jitted one": [lambda: holding(filter_jit(holding(1)))],
    "a closure over a module": [with_a_module],
    "a partial": [lambda: functools.partial(scale, n=3)],
}


@pytest.mark.parametrize("name", FITS)
def test_what_fits_is_loaded(name: str, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = FITS[name][0], FITS[name][-1]
    compiled = filter_jit(first()).compile(ONES, file=path)
    assert re.fullmatch(r"INFO .* has compiled .*: the file does not exist", *told(caplog))
    TRACES.clear()
    loaded = filter_jit(second()).compile(ONES, file=path)
    assert re.fullmatch(r"INFO filterjit has loaded `.*` from .*", *told(caplog))
    assert not TRACES
    assert type(compiled) is type(loaded) is Compiled
    # The arrays of the function itself are those of now.
    assert same(compiled(ONES), first()(ONES)) and same(loaded(ONES), second()(ONES))
    with pytest.raises(filterjit.MismatchError, match=r"called with float32\[3\]"):
        loaded(jnp.ones(3))
    with pytest.raises(ValueError, match="copy that file"):
        loaded.save(path)


def test_what_else_fits(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Specs stand for arrays, NumPy's arrays are JAX's, and jits of one function are the same."""
    filter_jit(scale).compile(ONES, file=path)
    spec = jax.ShapeDtypeStruct((2,), jnp.float32)
    for f in (filter_jit(scale), filter_jit(scale, maxsize=3)):
        for x in (spec, np.ones(2, np.float32), jnp.zeros(2)):
            f.compile(x, file=str(path))
    with filterjit.forbid_compile():
        filter_jit(scale).compile(ONES, file=path)
    assert [line.split(" `")[0] for line in told(caplog)] == [
        "INFO filterjit has compiled", *["INFO filterjit has loaded"] * 7]  # fmt: skip


@pytest.mark.parametrize("jit", [filterjit.jit, filter_jit], ids=["jit", "filter_jit"])
def test_methods_and_other_decorators(jit: Any, path: Path) -> None:
    f = jit(lambda x: x + 1)
    assert same(f.compile(ONES, file=path)(ONES), ONES + 1)
    assert same(f.compile(ONES, file=path)(ONES), ONES + 1)
    TRACES.clear()
    for _ in range(2):
        bound = kind(2.0).method
        compiled = bound.compile(ONES, file=path)
        assert same(compiled(bound.__self__, ONES), bound(ONES))
    assert TRACES.count("method") <= 3  # one of `compile`, and two of the calls


def call(f: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, tuple[Any, ...]]:
    return filter_jit(f, **options), args or (ONES,)


def frozen(w: float) -> tuple[Any, tuple[Any, ...]]:
    return filter_jit(lambda m, x: m(x)).freeze(kind(w)), (ONES,)


# A call that a file is written by, another one, and by what they differ.
OTHERS: dict[str, tuple[Any, Any, str]] = {
    "function": (call(scale), call(other), "function"),
    "lambda": (call(lambda x: x + 1), call(lambda x: x + 2), "function"),
    "closure": (call(holding(1)), call(holding(2)), "function"),
    "closure's type": (call(holding(1)), call(holding(1.0)), "function"),
    "closure's array": (call(holding(ONES)), call(holding(ONES + 1)), "function"),
    "closure's function": (call(holding(holding(1))), call(holding(holding(2))), "function"),
    "code in a closure": (call(holding(holding(1))), call(holding(holding(1, -1))), "function"),
    "partial": (
        call(functools.partial(scale, n=2)),
        call(functools.partial(scale, n=3)),
        "function",
    ),
    "static of the function": (call(kind(1.0)), call(kind(1.0, 2)), "function"),
    "frozen array": (frozen(1.0), frozen(2.0), "function"),
    "static": (call(scale), call(scale, ONES, 3), "structure and static values"),
    "static's type": (call(scale, ONES, 2), call(scale, ONES, 2.0), "static values"),
    "structure": (call(scale, ONES, 1), call(scale, ONES, ONES), "structure"),
    "shape": (call(scale), call(scale, jnp.ones(3)), "shapes, dtypes and shardings"),
    "dtype": (call(scale), call(scale, jnp.ones(2, int)), "shapes, dtypes and shardings"),
    "weak type": (call(scale, jnp.asarray(1.0)), call(scale, jnp.float32(1.0)), "dtypes"),
    "committed": (call(scale), call(scale, jax.device_put(ONES, jax.devices()[0])), "shardings"),
    "option": (call(scale), call(scale, jnp.ones(2), donate=("x",)), "options"),
    "option of jax.jit": (call(scale), call(scale, keep_unused=True), "options"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_does_not_fit_is_compiled_and_written(
    name: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (f, args), (g, others), what = OTHERS[name]
    f.compile(*args, file=path)
    told(caplog)
    compiled = g.compile(*others, file=path)
    (line,) = told(caplog)
    assert line.startswith("INFO") and "it is of another call, by the " in line and what in line
    expected = g.__wrapped__(*others)
    assert same(compiled(*others), expected)
    g.compile(*others, file=path)
    assert "has loaded" in told(caplog)[0]


def test_settings_of_jax(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    f = filter_jit(scale)
    f.compile(ONES, file=path)
    with jax.default_matmul_precision("highest"):
        f.compile(ONES, file=path)
    assert "the settings of JAX" in told(caplog)[-1]


# What happens to a file or to its folder, what is told of it, and whether a file is written then.
BAD: dict[str, tuple[Callable[[Path], object], str, bool]] = {
    "damaged": (
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"x"),
        "is damaged: a checksum is wrong",
        True,
    ),
    "empty": (lambda path: path.write_bytes(b""), "was not written by filterjit", True),
    "of others": (lambda path: path.chmod(0o666), "can be written by other users", True),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "Is a directory", False),
    "no folder": (lambda path: (path.unlink(), path.parent.rmdir()), "there is no folder", False),
    "a folder of others": (
        lambda path: path.parent.chmod(0o777), "can be written by other users", False),
}  # fmt: skip


def test_a_bad_file_is_told_and_replaced(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    f = filter_jit(scale)
    for name, (change, message, is_written) in BAD.items():
        file = path.parent / name / "f.jit"
        file.parent.mkdir(mode=0o700)
        f.compile(ONES, file=file)
        told(caplog)
        change(file)
        assert same(f.compile(ONES, file=file)(ONES), 2 * ONES)
        warned, _, *more = told(caplog)
        assert warned.startswith("WARNING filterjit does not load") and message in warned
        if is_written:
            f.compile(ONES, file=file)
            assert not more and "has loaded" in told(caplog)[0]
        else:
            assert more[0].startswith("WARNING filterjit does not write")


def test_a_full_disk(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with full_disk():
        assert same(filter_jit(scale).compile(ONES, file=path)(ONES), 2 * ONES)
    assert told(caplog)[-1].startswith("WARNING filterjit does not write")
    assert not list(path.parent.iterdir())


def test_what_no_file_can_hold(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for f, args in [
        (filter_jit(scale), (ONES, NoValue)),
        (filter_jit(holding(NoValue())), (ONES,)),
    ]:
        with pytest.raises(TypeError):
            f.compile(*args, file=path)  # of the function itself
    said: Any = NoValue()
    compiled = filter_jit(lambda x, _: x + 1).compile(ONES, said, file=path)
    assert same(compiled(ONES, said), ONES + 1)
    assert any("a file cannot hold" in line for line in told(caplog))
    assert not path.exists()


@pytest.mark.parametrize("file", [3, object()])
def test_a_path_is_needed(file: Any) -> None:
    with pytest.raises(TypeError, match=r"`compile\(..., file=...\)` must be the path of a file"):
        filter_jit(scale).compile(ONES, file=file)


def _edits(seed: int, edits: int, folder: Path) -> dict[str, int]:
    done = run(HERE / "restarts.py", str(seed), str(edits), folder, timeout=1200)
    *wrong, counts = done.stdout.splitlines()
    assert not wrong
    found: dict[str, int] = json.loads(counts)
    assert found.keys() <= {"compiled", "loaded"}
    return found


def test_edits_between_starts(path: Path) -> None:
    assert len(_edits(0, 4, path.parent / "programs")) == 2


@pytest.mark.slow
def test_many_edits_between_starts(path: Path) -> None:
    for seed in range(1, 4):
        assert len(_edits(seed, 100, path.parent / str(seed))) == 2


def test_a_program_without_a_file(path: Path) -> None:
    """What a prompt or a notebook defines cannot be compared; what it imports is."""
    (path.parent / "model.py").write_text("def scale(x): return x * 2\n")
    code = """
    import logging, filterjit, jax.numpy as jnp, model
    logging.basicConfig(level="INFO")
    filterjit.filter_jit(model.scale).compile(jnp.ones(2), file={0!r})
    filterjit.filter_jit(model.scale).compile(jnp.ones(2), file={0!r})
    def f(x): return x
    filterjit.filter_jit(f).compile(jnp.ones(2), file={0!r})
    filterjit.filter_jit(f).compile(jnp.ones(2), file={0!r})
    """
    told = run_code(code.format(str(path)), cwd=path.parent, timeout=300).stderr
    lines = [line.removeprefix("INFO:filterjit:filterjit has ") for line in told.splitlines()]
    assert [line.partition(" `")[0] for line in lines] == ["compiled", "loaded", *["compiled"] * 2]
    assert "`__main__` has no source file" in lines[3]


def test_a_module_that_was_edited_while_the_process_ran(path: Path) -> None:
    """The process has imported the text before it, and filterjit only after it."""
    (path.parent / "model.py").write_text("def scale(x): return x * 2\n")
    code = f"""
    import sys, time, model
    time.sleep(0.1)  # the system tells a process's start in ticks
    if len(sys.argv) > 1:
        open(model.__file__, "w").write("def scale(x): return x * 3")
    import logging, filterjit, jax.numpy as jnp
    logging.basicConfig(level="INFO")
    filterjit.filter_jit(model.scale).compile(jnp.ones(2), file={str(path)!r})
    """
    written = run_code(code, cwd=path.parent, timeout=300).stderr
    edited = run_code(code, "edit", cwd=path.parent, timeout=300).stderr
    assert "the file does not exist" in written
    told = "`model` was changed after this process began"
    assert re.fullmatch(f"INFO.*{told}.*\nWARNING.* does not write .*{told}.*\n", edited)
