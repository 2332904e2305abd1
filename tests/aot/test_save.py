"""`save`, `load` and `info_of` in one process: what a file holds, what it tells, how it is
written, and under which settings. `test_compiled_calls.py` calls what is loaded.
"""

import contextlib
import copy
import dataclasses
import enum
import functools
import json
import os
import stat
from pathlib import Path
from typing import Any

import aot_zoo
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aot_support import equal, read, saved, write
from aot_zoo import Layer, Setting, use
from jax.experimental import io_callback

import filterjit
from filterjit import MismatchError, _core, filter_jit
from filterjit import __main__ as command_line
from filterjit._aot._file import info_of
from filterjit._trees import _codes
from filterjit._trees._registry import registry
from support.nodes import Custom
from support.settings import OTHERS
from support.statics import Thing
from support.threads import at_once

X = jnp.arange(3.0)


@pytest.fixture(params=["executable", "portable"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---- structures and static values, without a file ----


def encoded(tree: Any) -> Any:
    return _codes.encode_structure(registry, _core.flatten(registry, tree)[1], "it")


def decoded(tree: Any) -> Any:
    found = _codes.decode_tree(json.loads(json.dumps(encoded(tree))))
    leaves, structure = _core.flatten(registry, found)
    return structure.unflatten([X] * len(leaves))


def test_sets_have_one_order() -> None:
    """In all processes."""
    for cls in (set, frozenset):
        assert _codes.Coder().encode(cls((3, 1, 2)))[1:] == [1, 2, 3]
        with pytest.raises(ValueError, match="whose order differs between processes"):
            _codes.Coder().encode(cls("yzx"))


def unnamed() -> Any:
    def act(x: Any) -> Any:
        return x

    return act


def test_names_that_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not where it says is looked for in its module."""
    lying = type("Lying", (), {"__module__": "aot_zoo", "__qualname__": "nowhere"})
    with pytest.raises(ValueError, match="`nowhere` cannot be found in `aot_zoo`"):
        encoded((lying, X))
    with pytest.raises(ValueError, match=r"`Thing\.method` is bound to an object"):
        encoded((Thing().method, X))
    with pytest.raises(ValueError, match=r"<locals>\.act` is made by a function"):
        encoded((unnamed(), X))
    monkeypatch.setattr(aot_zoo.Inner.Deep, "Lying", lying, raising=False)
    assert decoded((lying, X))[0] is lying


def test_fields_that_were_never_set() -> None:
    bare = object.__new__(Layer)
    object.__setattr__(bare, "weight", X)
    assert "sizes" not in vars(decoded(bare))


@dataclasses.dataclass
class Unset:
    size: int = dataclasses.field(init=False)


# Static values that no file can hold, and why. A file has the name of a dtype, which does not tell
# its metadata.
UNSUPPORTED: dict[str, tuple[Any, str]] = {
    "object": (Thing(), ""),
    "lambda": (lambda x: x, ""),
    "partial": (functools.partial(aot_zoo.scale, by=2.0), ""),
    "bound": (Layer(1.0).__call__, ""),
    "local class": (type("Local", (), {}), ""),
    "module": (json, ""),
    "structured dtype": (np.dtype([("a", "f4")]), ""),
    "metadata": (np.dtype("i4", metadata={"unit": "m"}), "would not be equal after loading"),
    "combined flag": (aot_zoo.Bits.A | aot_zoo.Bits.B, ""),
    "no member": (enum.Flag("Flags", "A B")(3), "which is no member of its class"),
    "in a set": (frozenset({Thing()}), ""),
    "of __main__": (type("Main", (), {"__module__": "__main__"}), "is in `__main__`"),
    "attributes": ((lambda s: object.__setattr__(s, "extra", 1) or s)(Setting(1.0)), ""),
    "field": (Unset(), "a `Unset` with a field that is not set"),
    "dtype of arrays": (np.dtype(("f4", (2,))), ""),
    "deep": (Setting(1.0, functools.reduce(lambda x, _: (x,), range(2000), ())), ""),
}


def test_unsupported_values_are_named_by_their_paths() -> None:
    """As leaves, in aux data and as keys."""
    for value, why in UNSUPPORTED.values():
        with pytest.raises(ValueError) as raised:
            encoded({"a": [1, value], "x": X, "b": value})
        text = str(raised.value)
        assert "`['a'][1]" in text and "`['b']" in text and why in text
    for tree in (lambda x: Custom(X, label=x), lambda x: {x: X}):
        with pytest.raises(ValueError, match="would not be equal after loading"):
            encoded(tree(UNSUPPORTED["metadata"][0]))
        encoded(tree(np.dtype("i4")))
    for name in ("field", "no member"):
        with pytest.raises(ValueError, match=f"a file cannot hold .*{UNSUPPORTED[name][1]}"):
            encoded(Custom(X, label=UNSUPPORTED[name][0]))


class Matrix:
    """Takes no other leaves than those that it is made for."""

    def __init__(self, x: Any) -> None:
        self.x = x
        if x.ndim != 2:
            raise ValueError("not a matrix")


jax.tree_util.register_pytree_node(Matrix, lambda m: ((m.x,), None), lambda _, xs: Matrix(*xs))


# What is compiled for which argument, and why it cannot be saved.
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "leaves": (lambda m: m.x * 2, Matrix(jnp.ones((2, 2))), "cannot be built of other leaves"),
    "spec": (aot_zoo.layer(jax.ShapeDtypeStruct((3,), jnp.float32)), X, "which has no values"),
    "callback": (lambda x: jax.pure_callback(np.copy, x, x), X, "host callbacks"),
    "ordered callback": (lambda x: io_callback(np.copy, x, x), X, "effects"),
    "debug callback": (lambda x: (jax.debug.callback(print, x), x)[1], X, "effects"),
}


def test_what_cannot_be_saved(tmp_path: Path, kind: str) -> None:
    for f, x, why in REFUSED.values():
        # `jax.export` says it in other words.
        match = f"cannot be saved: (?s:.*){why * (kind == 'executable')}"
        with pytest.raises(ValueError, match=match):
            saved(tmp_path / "file", kind, f, x)
    assert list(tmp_path.iterdir()) == []


# ---- what a file tells ----


def test_what_a_file_tells(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    f = filter_jit(use)
    f.clear_cache()
    path = saved(tmp_path / "file", kind, f, {"a": X, "b": 2}, X, 3)
    info = info_of(str(path))
    assert (info["name"], info["devices"], info["platforms"]) == ("use", 1, ["cpu"])
    assert info["kind"] == kind
    assert info["nbytes"] == path.stat().st_size and b"pickle" not in path.read_bytes()
    (one,) = info["signatures"]
    assert dict(one["arguments"])["tree['b']"] == "the int 2"
    assert "float32[3]" in dict(one["arguments"])["x"]
    assert info["machine"]["jax"] == jax.__version__
    assert command_line.main(["show", str(path)]) == 0
    shown = capsys.readouterr().out
    for word in ("use", info["kind"], "tree['a']", f"{info['nbytes']:,} bytes", jax.__version__):
        assert word in info["text"] and word in shown
    header, blobs = read(path)
    write(path, header | {"structures": ["nonsense"], "signatures": ["nonsense"]}, blobs)
    assert info_of(str(path))["signatures"] == info["signatures"]  # it does not look at these


def test_other_machines(tmp_path: Path, kind: str) -> None:
    path = saved(tmp_path / "file", kind, lambda x: x * 2, X)
    header, blobs = read(path)
    names = "filterjit", "python", "jax", "jaxlib", "device", "machine", "processor", "XLA_FLAGS"
    for key in names:
        changed = copy.deepcopy(header)
        changed["info"]["machine"][key] = "other"
        write(path, changed, blobs)
        if kind == "portable":
            equal(filterjit.load(path)(X), X * 2)
        else:
            with pytest.raises(ValueError, match=f"is an executable for {key} 'other' \\(here: "):
                filterjit.load(path)
    if kind == "executable":
        changed = copy.deepcopy(header)
        changed["signatures"][0]["devices"] = [0, 1, 2]
        write(path, changed, blobs)
        with pytest.raises(ValueError, match=r"for 3 devices, numbered .*; here are 1 device: "):
            filterjit.load(path)


def test_platforms(tmp_path: Path) -> None:
    lowered = filter_jit(lambda x: x * 2).lower(X)
    lowered.save(tmp_path / "file", platforms=("cpu", "cuda"))
    assert info_of(str(tmp_path / "file"))["platforms"] == ["cpu", "cuda"]
    equal(filterjit.load(tmp_path / "file")(X), X * 2)


# ---- writing ----


@pytest.fixture(scope="module")
def jitted() -> Any:
    f = filter_jit(lambda x, n: x * n)
    f(X, 3)
    return f


def test_replaced(tmp_path: Path, jitted: Any) -> None:
    """Also through a link; the name may be of any kind."""
    (tmp_path / "folder").mkdir()
    path, link = tmp_path / "folder" / "file", tmp_path / "link"
    link.symlink_to(path)
    assert jitted.save(link) == 1
    path.write_bytes(b"old" * 10**6)
    for name in (path, str(path), os.fsencode(path), link):
        jitted.save(name)
        equal(filterjit.load(path)(X, 3), X * 3)
    assert link.is_symlink() and [p.name for p in path.parent.iterdir()] == ["file"]


def test_saving_in_threads(tmp_path: Path) -> None:
    made = [filter_jit(lambda n: n) for n in range(4)]
    for n, f in enumerate(made):
        f(n)
    assert at_once(12, lambda i: made[i % 4].save(tmp_path / "file")) == [1] * 12
    (one,) = info_of(str(tmp_path / "file"))["signatures"]
    n = int(dict(one["arguments"])["n"].split()[-1])
    assert filterjit.load(tmp_path / "file")(n) == n
    assert len(list(tmp_path.iterdir())) == 1


class Crash(BaseException):
    pass


@pytest.mark.parametrize("where", ["os.fsync", "os.replace", "hashlib.sha256", "json.dumps"])
def test_a_crash_leaves_the_old_file(
    tmp_path: Path, jitted: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    jitted.save(path)
    before = path.read_bytes()

    def crash(*args: Any, **kwargs: Any) -> Any:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(where, crash)
        with pytest.raises(Crash):
            jitted.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_permissions(tmp_path: Path, jitted: Any) -> None:
    mask = os.umask(0o027)
    try:
        for mode in (0o640, 0o600):
            jitted.save(tmp_path / "new")
            assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == mode
            os.chmod(tmp_path / "new", 0o600)
    finally:
        os.umask(mask)


def test_a_batch_of_any_size(tmp_path: Path) -> None:
    n, m = jax.export.symbolic_shape("n, m")
    specs = jax.ShapeDtypeStruct((n, 3), np.float32), jax.ShapeDtypeStruct((m,), np.int32)

    def f(model: Any, x: Any, y: Any, flag: bool) -> Any:
        return {"x": jax.vmap(model)(x) @ jnp.ones((2, n)), "y": [y * 2, flag]}

    model = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    filter_jit(f).lower(model, *specs, True).save(tmp_path / "file")
    assert "float32[n,3]" in info_of(str(tmp_path / "file"))["text"]
    loaded = filterjit.load(tmp_path / "file")
    ((args, _),) = loaded.signatures
    assert str(args[2].shape) == "(m,)"
    for sizes in [(1, 2), (4, 2), (1, 2), (5, 1)] * 10:  # in the end they are direct calls
        x, y = jnp.full((sizes[0], 3), 0.5), jnp.arange(sizes[1])
        result = loaded(model, x, y, True)
        expected = jnp.full((sizes[0], sizes[0]), jax.vmap(model)(x)[0].sum())
        np.testing.assert_allclose(result["x"], expected, rtol=1e-6)
        equal(result["y"], [y * 2, True])
    of_x = r"`x`: compiled for float32\[n,3\], called"
    for arguments, words in (
        ((jnp.ones((5, 4)), y, True), rf"{of_x} with float32\[5,4\]"),
        ((x, y, False), "`flag`: compiled for True"),
        ((x[:0], y, True), f"{of_x}(?s:.*)>= 1"),  # JAX's error says which
        ((x, y[:0], True), f"{of_x}(?s:.*)>= 1"),
    ):
        with pytest.raises(MismatchError, match=words):
            loaded(model, *arguments)
    (row,) = loaded.report().as_dict()["functions"]
    assert (row["hits"], row["compiles"]) == (40, 3) and row["compiling"] > 0


# ---- settings: what is saved is what was compiled, whatever they are when it is saved and loaded ----

# With some, a program has arguments of its own, and JAX does not tell where they are placed.
_REFUSED = {
    "jax_error_checking_behavior_divide": "JAX does not tell",
    "jax_error_checking_behavior_nan": "JAX does not tell",
    "xla_metadata_context_manager": "of type `XlaMetadata`",
}
# Those that change values, dtypes or what can be saved; `make test-slow` has the others.
_OFTEN = {
    *("jax_enable_x64", "jax_threefry_partitionable", "jax_random_seed_offset"),
    *("jax_default_matmul_precision", "jax_numpy_dtype_promotion", "mesh_context_manager"),
    *("jax_use_shardy_partitioner", "jax_error_checking_behavior_nan", "jax_disable_jit"),
    *("user_context", "abstract_mesh_context_manager"),
}


def depends_on_settings(x: Any, key: Any) -> Any:
    """Returns values and dtypes that settings change."""
    return {
        "arrays": [x @ x, jnp.asarray(1.0), jnp.arange(2), jnp.arange(1 << 12)[::-1] * 2],
        "functions": [jax.nn.sigmoid(x), jax.scipy.special.erfinv(x / 8), jnp.sum(x)],
        "seed": jax.random.key_data(jax.random.key(7)),
        "random": [jax.random.normal(key, (5, 3)), jax.random.gumbel(key, (5, 3))],
        "gradient": jax.grad(
            lambda x: jax.nn.softmax(x).sum() + jnp.sum(jax.checkpoint(jnp.sin)(x))
        )(x),
        "loop": jax.lax.scan(lambda carry, x: (carry + x, carry * x), x[0], x),
        "constant": x + np.arange(4.0).reshape(2, 2),
    }


def of_settings() -> tuple[Any, Any]:
    return jnp.arange(4.0).reshape(2, 2), jax.random.key(3)


@pytest.mark.filterwarnings("ignore")  # of settings that are deprecated
@pytest.mark.parametrize(
    "name", [x if x in _OFTEN else pytest.param(x, marks=pytest.mark.slow) for x in OTHERS]
)
def test_another_setting(name: str, tmp_path: Path) -> None:
    """Each setting that a trace depends on: programs of both values are in one file, and saved and
    loaded under the default."""
    args, path, f = of_settings(), tmp_path / "file", filter_jit(depends_on_settings)
    f.clear_cache()
    expected = {False: f(*args)}
    with OTHERS[name][0]():
        try:
            expected[True] = f(*args)
        except Exception as e:  # with some settings, it raises, and for JAX alone as well
            with pytest.raises(type(e)):
                jax.jit(depends_on_settings).lower(*args).compile()(*args)
            return
    is_saved = name not in _REFUSED
    is_saved &= f.cache_info().programs == 2  # JAX traces again
    refused = _REFUSED.get(name)
    with contextlib.nullcontext() if refused is None else pytest.warns(match=refused):
        assert f.save(path) == 1 + is_saved
    f.clear_cache()
    loaded = filterjit.load(path)
    for _ in range(2):
        equal(loaded(*args), expected[False])
        with OTHERS[name][0]():
            if is_saved or name == "jax_disable_jit":
                equal(loaded(*args), expected[is_saved])
            else:
                setting = name.removesuffix("_context_manager")
                with pytest.raises(MismatchError, match=f"JAX's setting {setting}"):
                    loaded(*args)


def test_a_portable_trace_is_saved_as_it_was(tmp_path: Path) -> None:
    """It is lowered later, under another setting, and saving traces nothing."""
    scale, traces = 2.0, []

    def f(*args: Any) -> Any:
        traces.append(scale)
        return depends_on_settings(*args), args[0] * scale

    with jax.threefry_partitionable(False):
        traced = filter_jit(f).trace(*of_settings())
    lowered = traced.lower()
    compiled = lowered.compile()
    scale = 3.0
    jax.clear_caches()
    expected = compiled(*of_settings())
    lowered.save(tmp_path / "file")
    equal(filterjit.load(tmp_path / "file")(*of_settings()), expected)
    assert traces == [2.0]
