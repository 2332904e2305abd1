"""`f.save` and `load` of several signatures: what is in the file, what a loaded function runs, and the
checks of `load`.
"""

import os
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import aot_zoo
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aot_support import equal, saved

import filterjit
from filterjit import MismatchError, filter_jit
from filterjit._call import _direct
from support.processes import environment

if not _direct.are_supported():
    pytest.skip("executables cannot be saved with this version of JAX", allow_module_level=True)

X = jnp.arange(3.0)


def f(x: Any, n: Any = 2) -> Any:
    return {"x": x * 2, "n": n, "sorted": jnp.sort(jnp.ravel(x))}


# Calls of one function, of which each is a signature of its own.
CALLS: list[tuple[Any, ...]] = [
    (X,), (X, 3), (X, 3.0), (X, True), (X, "text"), (X, None), (X, aot_zoo.scale), (X, jnp.float32),
    (X, aot_zoo.Setting(0.5)), (X, aot_zoo.Colour.RED), (X, aot_zoo.layer(X)), (X, (X, [1])),
    (jnp.arange(4.0),), (X.astype(int),), (X > 1,), (jnp.asarray(2.0),), (jnp.float32(2),),
    (X, {"a": 1, "b": 2}), (X, {"b": 2}), (np.arange(5.0),),
]  # fmt: skip


def test_each_signature_runs_its_program(tmp_path: Path) -> None:
    jitted = filter_jit(f)
    expected = [jitted(*args) for args in CALLS]
    with jax.enable_x64(True):
        wide = jnp.arange(3.0)
        expected_wide = jitted(wide)
    assert jitted.save(tmp_path / "f") == len(CALLS) + 1
    with filterjit.forbid_compile():
        loaded = filterjit.load(tmp_path / "f")
        for _ in range(3):
            for args, result in zip(CALLS, expected, strict=True):
                equal(loaded(*args), result)
            with jax.enable_x64(True):
                equal(loaded(wide), expected_wide)
    (row,) = loaded.report().as_dict()["functions"]
    assert row["direct"] == 2 * (len(CALLS) + 1), "from the second call on, no Python runs"
    assert len(loaded.signatures) == len(CALLS) + 1
    again = filter_jit(f)
    again.clear_cache()
    assert again.warm_up_all(loaded.signatures[:5]) == {}
    with pytest.raises(MismatchError) as raised:
        loaded(jnp.ones(9))
    lines = str(raised.value).splitlines()
    assert lines[1] == "  `x`: compiled for float32[3], called with float32[9]"
    assert lines[2] == f"It has {len(CALLS) + 1} signatures:" and "and 9 more" in lines[-2]


def test_the_closest_signature_is_named(tmp_path: Path) -> None:
    """Another shape is closer than another dtype or rank."""
    jitted = filter_jit(lambda x, y: x)
    for x in (jnp.ones((2, 2)), jnp.ones(2, int), jnp.ones(2)):
        jitted(x, X)
    jitted.save(tmp_path / "f")
    loaded = filterjit.load(tmp_path / "f")
    for x, closest in (
        (jnp.ones(7), "float32[2]"),
        (jnp.ones(7, int), "int32[2]"),
        (jnp.ones((7, 1)), "float32[2,2]"),
    ):
        with pytest.raises(MismatchError) as raised:
            loaded(x, X)
        now = f"{x.dtype}{list(x.shape)}".replace(" ", "")
        expected = f"  `x`: compiled for {closest}, called with {now}"
        assert str(raised.value).splitlines()[1] == expected


def test_programs_that_are_not_there(tmp_path: Path) -> None:
    path, jitted = tmp_path / "f", filter_jit(lambda x, n: x + 1, maxsize=2)
    with pytest.raises(ValueError, match="it has compiled nothing: call it or `warm_up` first"):
        jitted.save(path)
    x = X + 0
    for n in range(3):  # the first is evicted
        jitted(x, n)
    x.delete()
    assert jitted.save(path) == 2
    jitted(X, lambda: 1)
    with pytest.warns(
        UserWarning, match=r"without 1 of 2 signatures:\n  \(x=.*n=the function"
    ) as told:
        assert jitted.save(path) == 1
    assert told[0].filename == __file__
    before = path.read_bytes()
    jitted.clear_cache()
    with pytest.raises(ValueError, match="compiled nothing"):
        jitted.save(path)
    jitted(X, lambda: 1)
    with pytest.raises(ValueError, match="a file cannot hold these parts of the arguments: `n`: "):
        jitted.save(path)
    assert path.read_bytes() == before and filterjit.load(path)(X, 2)[1] == 2


def test_each_way_to_compile(tmp_path: Path) -> None:
    jitted, spec = filter_jit(lambda x: x + 1), jax.ShapeDtypeStruct
    jitted(X)
    jitted.compile(spec((4,), "float32"))
    jitted.lower(spec((5,), "float32")).compile()
    jitted.warm_up(spec((6,), "float32"))
    jitted.warm_up_all([((spec((n,), "float32"),), {}) for n in (7, 8)])
    jitted.trace(spec((9,), "float32")).lower()  # not compiled
    with filterjit.forbid_compile():
        assert jitted.save(tmp_path / "f") == 6
    loaded = filterjit.load(tmp_path / "f")
    shapes = [args[0].shape for args, _ in loaded.signatures]
    assert sorted(shapes) == [(n,) for n in range(3, 9)]


class Model(eqx.Module):
    weight: jax.Array
    factor: int = 2

    @filter_jit
    def step(self, x: Any) -> Any:
        return self.weight * x * self.factor


def test_methods_and_arrays_in_the_function(tmp_path: Path) -> None:
    model = Model(X)
    expected = model.step(X)
    assert model.step.save(tmp_path / "f") == Model.step.save(tmp_path / "f") == 1
    equal(filterjit.load(tmp_path / "f")(model, X), expected)
    with pytest.raises(MismatchError, match=r"`self\.factor`"):
        filterjit.load(tmp_path / "f")(Model(X, 3), X)
    # Equal functions share programs; each file has the arrays of its function.
    partials = [eqx.Partial(lambda w, x: w * x, w) for w in (X, X + 1, jnp.ones(3, int))]
    results = [filter_jit(one)(X) for one in partials]
    for one, result in zip(partials, results, strict=True):
        assert filter_jit(one).save(tmp_path / "f") == 1
        equal(filterjit.load(tmp_path / "f")(X), result)
    donating = filter_jit(eqx.Partial(lambda w, x: (w * x, w + x), X + 0), donate="all")
    donating(X + 0)
    with pytest.raises(ValueError, match=r"its array `the function\..*` was donated"):
        donating.save(tmp_path / "f")


def test_matrices(tmp_path: Path) -> None:
    loaded = filterjit.load(saved(tmp_path / "f", "executable", lambda x: x @ x, jnp.ones((2, 2))))
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1, 2], [3, 4]], dtype=np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(loaded(matrix), matrix @ matrix)


def test_functions_of_transformations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX puts sentinels into their closures."""
    for transform in (jax.vmap, jax.grad, jax.checkpoint, jax.jit):
        g = transform(jnp.sin)
        jitted = filter_jit(lambda h, x: h(x))
        x = jnp.asarray(1.0) if transform is jax.grad else X
        monkeypatch.setattr(aot_zoo, "g", g, raising=False)
        monkeypatch.setattr(g, "__module__", "aot_zoo", raising=False)
        result = jitted(g, x)
        assert jitted.save(tmp_path / "f") == 1
        equal(filterjit.load(tmp_path / "f")(g, x), result)
        # Jitted itself, nothing of it is in the file.
        assert filter_jit(transform(lambda x: jnp.sin(x))).warm_up(x) is None


CODE = """
import dataclasses, enum
from typing import NamedTuple
import equinox as eqx
import jax.numpy as jnp
class Base(eqx.Module):
    rate = 2
    def scale(self, x):
        return x * self.rate
class Net(Base):
    w: float
    name: str = eqx.field(static=True, default="a")
    def __call__(self, x, by=1):
        return self.scale(x) + self.w * by
    @property
    def size(self):
        return 1
    @staticmethod
    def helper(x):
        return x
@dataclasses.dataclass(frozen=True)
class Config:
    n: int = 1
    note: str = dataclasses.field(default="", compare=False)
    def twice(self):
        return 2 * self.n
class Kind(enum.Enum):
    A = 1
    B = 2
    def plus(self):
        return self.value + 1
class Point(NamedTuple):
    x: object
    y: object = 0
def act(x, by=1, *, table={"a": 1}, kind=Config(1)):
    return x * by
"""
# What is replaced in the code, and which name the error has; "" if it doesn't matter.
CHANGES: list[tuple[str, str, str]] = [
    ("rate = 2", "rate = 3", "class `Net`"),
    ("return x * self.rate", "return x + self.rate", "class `Net`"),
    ("self.w * by", "self.w - by", "class `Net`"),
    ("by=1):", "by=2):", "class `Net`"),
    ('default="a")', 'default="b")', "class `Net`"),
    ("        return 1\n", "        return 2\n", "class `Net`"),
    ("helper(x):\n        return x\n", "helper(x):\n        return -x\n", "class `Net`"),
    ("class Net(Base)", "class Net(Base, strict=False)", ""),
    ("n: int = 1", "n: int = 2", "class `Config`"),
    ("2 * self.n", "3 * self.n", "class `Config`"),
    ("    B = 2", "    B = 3", "class `Kind`"),
    ("self.value + 1", "self.value + 2", "class `Kind`"),
    ("y: object = 0", "y: object = 1", "class `Point`"),
    ("return x * by", "return x - by", "function `act`"),
    ("x, by=1, *", "x, by=2, *", "function `act`"),
    ('{"a": 1}', '{"a": 2}', "function `act`"),
    ("kind=Config(1)", 'kind=Config(1, "note")', "function `act`"),
    ("import dataclasses, enum", "# a comment\n\nimport dataclasses, enum", ""),
]


def module(code: str) -> Any:
    made = sys.modules["changing"] = types.ModuleType("changing")
    exec(compile(code, "changing.py", "exec"), vars(made))
    return made


@pytest.fixture(scope="module")
def of_changing(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = module(CODE)
    path = tmp_path_factory.mktemp("changing") / "f"
    args = X, made.Net(1.0), made.Config(3), made.Kind.A, made.Point(X), made.act
    saved(path, "executable", lambda *args: args[0] + 1, *args)
    yield path
    sys.modules.pop("changing", None)


@pytest.mark.parametrize("change", CHANGES, ids=lambda x: x[1])
def test_changes(change: tuple[str, str, str], of_changing: Path) -> None:
    old, new, name = change
    assert CODE.count(old) >= 1
    made = module(CODE.replace(old, new, 1))
    args = X, made.Net(1.0), made.Config(3), made.Kind.A, made.Point(X), made.act
    if not name:
        equal(filterjit.load(of_changing)(*args), X + 1)
        return
    match = f"the {name} of `changing` has changed since, by its (fields|code)"
    with pytest.raises(ValueError, match=match):
        filterjit.load(of_changing)


_WRITE = """
import sys
from filterjit._base._files import replacing
while True:
    with replacing(sys.argv[1]) as file:
        for _ in range(64):
            file.write(sys.argv[2].encode() * 4096)
            file.flush()
"""


def test_processes_that_write_one_file(tmp_path: Path) -> None:
    """Some are killed. The file is always a whole one, and the next writer deletes what they left."""
    path = tmp_path / "file"
    command = [sys.executable, "-c", _WRITE, str(path)]
    writers = [subprocess.Popen([*command, str(i)], env=environment()) for i in range(8)]
    try:
        end, reads = time.monotonic() + 60, 0
        while reads < 200:
            assert time.monotonic() < end
            if path.exists():
                data = path.read_bytes()
                assert len(data) == 64 * 4096 and len(set(data)) == 1
                reads += 1
            if reads in (50, 100):
                writers[reads // 50].kill()
    finally:
        for writer in writers:
            writer.kill()
        for writer in writers:
            writer.wait()
    other = tmp_path / f".filterjit-{'0' * 16}-{writers[0].pid}-00"
    other.touch()  # of another file
    saved(path, "executable", lambda x: x, X)
    assert sorted(os.listdir(tmp_path)) == sorted([other.name, "file"])
