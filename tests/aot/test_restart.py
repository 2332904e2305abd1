"""``f.compile(..., file=path)``: a file that fits the call is loaded, and any other is written."""

import functools
import json
import logging
import re
import subprocess
import sys
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
from support.processes import environment

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


FITS: dict[str, tuple[Callable[[], Any], Callable[[], Any], tuple[Any, ...]]] = {
    "a function": (lambda: scale, lambda: scale, (ONES,)),
    "its method": (lambda: kind(2.0), lambda: kind(3.0), (ONES,)),
    "a closure": (lambda: holding(3), lambda: holding(3), (ONES,)),
    "a closure over an array": (lambda: holding(ONES), lambda: holding(jnp.ones(2)), (ONES,)),
    "a closure over a function": (lambda: holding(holding(1)), lambda: holding(holding(1)), (ONES,)),
    "a closure over a Module": (lambda: holding(kind(1.0)), lambda: holding(kind(1.0)), (ONES,)),
    "a closure over a jitted one": (
        lambda: holding(filter_jit(holding(1))), lambda: holding(filter_jit(holding(1))), (ONES,)),
    "a closure over a module": (with_a_module, with_a_module, (ONES,)),
    "a partial": (
        lambda: functools.partial(scale, n=3), lambda: functools.partial(scale, n=3), (ONES,)),
}  # fmt: skip


@pytest.mark.parametrize("name", FITS)
def test_what_fits_is_loaded(name: str, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second, args = FITS[name]
    compiled = filter_jit(first()).compile(*args, file=path)
    assert re.fullmatch(r"INFO .* has compiled .*: the file does not exist", *told(caplog))
    TRACES.clear()
    loaded = filter_jit(second()).compile(*args, file=path)
    assert re.fullmatch(r"INFO filterjit has loaded `.*` from .*", *told(caplog))
    assert not TRACES
    assert type(compiled) is type(loaded) is Compiled
    # The arrays of the function itself are those of now.
    assert same(compiled(*args), first()(*args)) and same(loaded(*args), second()(*args))
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


ONE = (filter_jit(scale), (ONES,))
OTHERS: dict[str, tuple[Any, Any, str]] = {
    "function": (ONE, (filter_jit(other), (ONES,)), "function"),
    "lambda": ((filter_jit(lambda x: x + 1), (ONES,)), (filter_jit(lambda x: x + 2), (ONES,)), "function"),
    "closure": ((filter_jit(holding(1)), (ONES,)), (filter_jit(holding(2)), (ONES,)), "function"),
    "closure's type": ((filter_jit(holding(1)), (ONES,)), (filter_jit(holding(1.0)), (ONES,)), "function"),
    "closure's array": ((filter_jit(holding(ONES)), (ONES,)), (filter_jit(holding(ONES + 1)), (ONES,)), "function"),
    "closure's function": (
        (filter_jit(holding(holding(1))), (ONES,)), (filter_jit(holding(holding(2))), (ONES,)), "function"),
    "code in a closure": (
        (filter_jit(holding(holding(1))), (ONES,)), (filter_jit(holding(holding(1, -1))), (ONES,)), "function"),
    "partial": (
        (filter_jit(functools.partial(scale, n=2)), (ONES,)),
        (filter_jit(functools.partial(scale, n=3)), (ONES,)), "function"),
    "static of the function": ((filter_jit(kind(1.0)), (ONES,)), (filter_jit(kind(1.0, 2)), (ONES,)), "function"),
    "frozen array": (
        (filter_jit(lambda m, x: m(x)).freeze(kind(1.0)), (ONES,)),
        (filter_jit(lambda m, x: m(x)).freeze(kind(2.0)), (ONES,)), "function"),
    "static": (ONE, (filter_jit(scale), (ONES, 3)), "structure and static values"),
    "static's type": ((filter_jit(scale), (ONES, 2)), (filter_jit(scale), (ONES, 2.0)), "static values"),
    "structure": ((filter_jit(scale), (ONES, 1)), (filter_jit(scale), (ONES, ONES)), "structure"),
    "shape": (ONE, (filter_jit(scale), (jnp.ones(3),)), "shapes, dtypes and shardings"),
    "dtype": (ONE, (filter_jit(scale), (jnp.ones(2, int),)), "shapes, dtypes and shardings"),
    "weak type": (
        (filter_jit(scale), (jnp.asarray(1.0),)), (filter_jit(scale), (jnp.float32(1.0),)), "dtypes"),
    "committed": (ONE, (filter_jit(scale), (jax.device_put(ONES, jax.devices()[0]),)), "shardings"),
    "option": (ONE, (filter_jit(scale, donate=("x",)), (jnp.ones(2),)), "options"),
    "option of jax.jit": (ONE, (filter_jit(scale, keep_unused=True), (ONES,)), "options"),
}  # fmt: skip


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


def _write_garbage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"x")


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "damaged": (_write_garbage, "is damaged: a checksum is wrong"),
    "empty": (lambda path: path.write_bytes(b""), "was not written by filterjit"),
    "of others": (lambda path: path.chmod(0o666), "can be written by other users"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "Is a directory"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_told_and_replaced(
    name: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    f = filter_jit(scale)
    f.compile(ONES, file=path)
    told(caplog)
    change, message = BAD[name]
    change(path)
    assert same(f.compile(ONES, file=path)(ONES), 2 * ONES)
    warned, *more = told(caplog)
    assert warned.startswith("WARNING filterjit does not load") and message in warned
    if name == "a folder":
        assert "does not write" in more[1]
        return
    f.compile(ONES, file=path)
    assert "has loaded" in told(caplog)[0]


@pytest.mark.parametrize("where", ["missing", "of others", "full"])
def test_where_no_file_can_be_written(
    where: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    f = filter_jit(scale)
    if where == "missing":
        compiled = f.compile(ONES, file=path.parent / "missing" / "f.jit")
    elif where == "of others":
        path.parent.chmod(0o777)
        compiled = f.compile(ONES, file=path)
    else:
        with full_disk():
            compiled = f.compile(ONES, file=path)
    assert same(compiled(ONES), 2 * ONES)
    (warned,) = (x for x in told(caplog) if x.startswith("WARNING filterjit does not write"))
    assert where != "missing" or "there is no folder" in warned
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


def test_processes_that_write_at_once(path: Path) -> None:
    program = path.parent / "program.py"
    program.write_text(
        "import filterjit, jax.numpy as jnp\n"
        "def f(x): return x + 1\n"
        f"print(filterjit.filter_jit(f).compile(jnp.ones(2), file={str(path)!r})(jnp.ones(2)))\n"
    )
    command, env = [sys.executable, str(program)], environment()
    children = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE) for _ in range(2)]
    assert [child.communicate(timeout=300)[0] for child in children] == [b"[2. 2.]\n"] * 2
    assert filterjit.aot.saved_info(path).name == "f"
    assert not [x for x in path.parent.iterdir() if x.suffix not in (".py", ".jit")]


def _edits(seed: int, edits: int, folder: Path) -> dict[str, int]:
    command = [sys.executable, str(HERE / "restarts.py"), str(seed), str(edits), str(folder)]
    env = {**environment(), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, text=True, timeout=1200, check=True
    )
    *wrong, counts = done.stdout.splitlines()
    assert not wrong
    found: dict[str, int] = json.loads(counts)
    assert found.keys() <= {"compiled", "loaded"}
    return found


def test_edits_between_starts(path: Path) -> None:
    assert len(_edits(0, 6, path.parent / "programs")) == 2


@pytest.mark.slow
def test_many_edits_between_starts(path: Path) -> None:
    for seed in range(1, 4):
        assert len(_edits(seed, 100, path.parent / str(seed))) == 2


NO_FILE = """
import filterjit, jax.numpy as jnp, test_restart
{}
for _ in range(2):
    filterjit.filter_jit({}).compile(jnp.ones(2), file={!r})
"""


@pytest.mark.parametrize(
    ("defined", "function", "loaded"),
    [("", "test_restart.scale", 1), ("def f(x): return x", "f", 0)],
)
def test_a_program_without_a_file(defined: str, function: str, loaded: int, path: Path) -> None:
    """What a prompt or a notebook defines cannot be compared; what it imports is."""
    code = "import logging; logging.basicConfig(level='INFO')" + NO_FILE
    command = [sys.executable, "-c", code.format(defined, function, str(path))]
    done = subprocess.run(
        command, env=environment([HERE]), capture_output=True, text=True, timeout=300
    )
    assert done.stderr.count("INFO:filterjit:filterjit has loaded") == loaded
    assert loaded or "`__main__` has no source file" in done.stderr
