"""`compiled.save`, `load` and `saved_info` in one process."""

import concurrent.futures
import functools
import gc
import json
import os
import stat
import weakref
from pathlib import Path
from typing import Any

import aot_zoo
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aot_files import read, write
from aot_zoo import VALUES, Layer, Setting, layer, nodes, use

import filterjit
from filterjit import MismatchError, _core, filter_jit
from filterjit._aot import _encode
from filterjit._trees import _registry
from support.nodes import Custom, Point
from support.statics import Thing

X = jnp.arange(3.0)


@pytest.fixture(params=[False, True], ids=["executable", "portable"])
def portable(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def through(path: Path, function: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Compiles, saves and loads; returns the compiled and the loaded function.

    ``portable`` in `kwargs` is an option of ``save``.
    """
    portable = kwargs.pop("portable", False)
    f = function if hasattr(function, "lower") else filter_jit(function)
    compiled = f.lower(*args, **kwargs).compile()
    compiled.save(path / "file", portable=portable)
    return compiled, filterjit.load(path / "file")


def same(a: Any, b: Any) -> None:
    """Asserts that two trees have the same structure, classes, static values and arrays."""
    (xs, one), (ys, other) = (_core.flatten(_registry.registry, t) for t in (a, b))
    assert one == other, f"{one!r}\n{other!r}"
    for x, y in zip(xs, ys, strict=True):
        assert x.dtype == y.dtype
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


# ---- structures and static values, without a file ----


def encoded(tree: Any) -> Any:
    structure = _core.flatten(_registry.registry, tree)[1]
    return _encode.encode_structure(_registry.registry, structure, "it")


def decoded(tree: Any, array: Any = X) -> Any:
    text = json.dumps(encoded(tree))
    return _encode.decode_tree(json.loads(text), array, _registry.registry.missing)


@pytest.mark.parametrize("value", VALUES, ids=lambda x: type(x).__name__)
def test_values(value: Any) -> None:
    back = decoded((value, X))[0]
    assert type(back) is type(value)
    assert _core.same_static(_registry.registry, back, value)


def test_sets_have_one_order() -> None:
    """In all processes: a program cache finds programs by such JSON."""
    for cls in (set, frozenset):
        assert _encode.Coder().encode(cls("yzx"))[1] == ["x", "y", "z"]


@pytest.mark.parametrize("name", nodes(X))
def test_nodes(name: str) -> None:
    node = nodes(X)[name]
    back = decoded(node)
    assert _core.flatten(_registry.registry, back)[1] == _core.flatten(_registry.registry, node)[1]
    if name != "linear":
        same(back, node)
    if name == "default":  # it makes its values
        assert back["a"] == [] and list(back) == ["b", "a"]
    else:
        assert encoded(back) == encoded(node)


def test_modules_with_the_attributes_of_a_wrapper() -> None:
    @eqx.filter_jit
    def f(x: Any) -> Any:
        return x

    class Wrapper(eqx.Module):
        inner: Any

        @property
        def __wrapped__(self) -> Any:
            return self.inner

    aot_zoo.Wrapper = Wrapper  # type: ignore[attr-defined]
    Wrapper.__module__, Wrapper.__qualname__ = "aot_zoo", "Wrapper"
    module = eqx.module_update_wrapper(Wrapper(aot_zoo.scale))
    assert decoded(module).__name__ == "scale"
    del aot_zoo.Wrapper  # type: ignore[attr-defined]


def test_fields_that_were_never_set() -> None:
    class_ = Layer
    bare = object.__new__(class_)
    object.__setattr__(bare, "weight", X)
    back = decoded(bare)
    assert vars(back).keys() == {"weight"} or "sizes" not in vars(bare)


UNSUPPORTED: dict[str, Any] = {
    "object": Thing(),
    "lambda": lambda x: x,
    "partial": functools.partial(aot_zoo.scale, by=2.0),
    "bound": Layer(1.0).__call__,
    "local class": type("Local", (), {}),
    "module": json,
    "structured dtype": np.dtype([("a", "f4")]),
    "combined flag": aot_zoo.Bits.A | aot_zoo.Bits.B,
    "in a tuple": frozenset({Thing}) | {Thing()},
    "attributes": (lambda s: object.__setattr__(s, "extra", 1) or s)(Setting(1.0)),
    "dtype of arrays": np.dtype(("f4", (2,))),
    "deep": Setting(1.0, functools.reduce(lambda x, _: (x,), range(2000), ())),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_values_are_named_by_their_paths(name: str) -> None:
    value = UNSUPPORTED[name]
    with pytest.raises(ValueError) as raised:
        encoded({"a": [1, value], "x": X, "b": value})
    assert "`['a'][1]" in str(raised.value) and "`['b']" in str(raised.value)


@pytest.mark.parametrize("place", ["leaf", "aux data", "key"])
def test_what_would_not_be_equal_is_refused(place: str) -> None:
    """A file has the name of a dtype, which does not tell its metadata."""
    dtype: Any = np.dtype("i4", metadata={"unit": "m"})
    tree = {"leaf": [dtype], "aux data": Custom(X, label=dtype), "key": {dtype: X}}[place]
    with pytest.raises(ValueError, match="would not be equal after loading"):
        encoded(tree)
    plain: Any = np.dtype("i4")
    encoded({"leaf": [plain], "aux data": Custom(X, label=plain), "key": {plain: X}}[place])


# ---- files ----


def test_loaded_functions_are_freed(tmp_path: Path, portable: bool) -> None:
    model = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    refs = []
    for loaded in through(tmp_path, model, X, portable=portable):
        loaded(X)
        refs += [weakref.ref(loaded), weakref.ref(loaded.compiled)]
    del loaded
    gc.collect()
    assert [ref() for ref in refs] == [None] * 4


def test_saving_in_threads(tmp_path: Path) -> None:
    made = [filter_jit(lambda n: n).lower(n).compile() for n in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(one.save, tmp_path / "file") for one in made * 3]:
            done.result()
    info = filterjit.saved_info(tmp_path / "file")
    n = int(dict(info.arguments)["n"].split()[-1])
    assert filterjit.load(tmp_path / "file")(n) == n
    assert len(list(tmp_path.iterdir())) == 1


def test_everything(tmp_path: Path, portable: bool) -> None:
    tree = {**nodes(X), "values": [x for x in VALUES if type(x) is not set], "module": layer(X)}
    compiled, loaded = through(tmp_path, use, tree, X, 3, name="b", portable=portable)
    for call in (compiled, loaded):
        same(call(tree, X + 1, 3, name="b"), use(tree, X + 1, 3, name="b"))
    assert isinstance(loaded, filterjit.types.Compiled) and repr(loaded) == "<Compiled of use>"
    with pytest.raises(MismatchError, match="`n`: compiled for the int 3, called with the int 4"):
        loaded(tree, X, 4, name="b")
    with pytest.raises(MismatchError, match=r"`x`: compiled for float32\[3\], called with int32"):
        loaded(tree, jnp.ones(3, int), 3, name="b")
    with pytest.raises(MismatchError, match=r"tree\['point'\]\.y"):
        loaded({**tree, "point": Point(X, 2)}, X, 3, name="b")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        loaded(tree)


def test_attributes_of_a_loaded_function(tmp_path: Path, portable: bool) -> None:
    compiled, loaded = through(tmp_path, use, Point(X, 1), X, portable=portable)
    assert str(loaded.args_info) == str(compiled.args_info)
    assert loaded.in_tree == compiled.in_tree and loaded.out_tree == compiled.out_tree
    for name in ("out_info", "in_avals"):
        assert str(getattr(loaded, name)) == str(getattr(compiled, name))
    assert str(loaded.output_shardings) == str(compiled.output_shardings)
    assert type(loaded.cost_analysis()) is type(compiled.cost_analysis())
    assert "HloModule" in loaded.as_text()


DTYPES = {
    "complex": lambda: jnp.ones(3, jnp.complex64) * 1j,
    "bfloat16": lambda: jnp.ones(3, jnp.bfloat16),
    "bool": lambda: jnp.ones(3, bool),
    "int8": lambda: jnp.ones((2, 0), jnp.int8),
    "key": lambda: jax.random.split(jax.random.key(1), 2),
    "rbg": lambda: jax.random.key(1, impl="rbg"),
    "weak": lambda: jnp.asarray(2.0),
}


def test_dtypes(tmp_path: Path, portable: bool) -> None:
    values = {name: make() for name, make in DTYPES.items()}
    _, loaded = through(tmp_path, lambda t: (t, t["bool"]), values, portable=portable)
    same(loaded(values), (values, values["bool"]))


def arrays_in_the_function() -> dict[str, tuple[Any, Any]]:
    """Functions that hold arrays, and whether JAX has 64 bits."""
    multiply = lambda w, x: w * x
    found = {"model": (eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0)), False)}
    found["key"] = eqx.Partial(lambda key, n, x: (key, x * n), jax.random.key(3), 2), False
    for dtype in ("float64", "int64", "complex128", "float32"):  # which it takes with 32 bits
        found[dtype] = eqx.Partial(multiply, np.arange(3).astype(dtype)), False
    with jax.enable_x64(True):  # a file is loaded as it was saved
        found["x64"] = eqx.Partial(multiply, jnp.asarray([1 + 2**-40, 2.0, 3.0])), True
    return found


@pytest.mark.parametrize("name", arrays_in_the_function())
def test_functions_that_hold_arrays(tmp_path: Path, portable: bool, name: str) -> None:
    f, is_wide = arrays_in_the_function()[name]
    with jax.enable_x64(is_wide):
        x = jnp.ones(3)
        compiled = filter_jit(f).lower(x).compile()
        compiled.save(tmp_path / "file", portable=portable)
    same(filterjit.load(tmp_path / "file")(x), compiled(x))


def test_signatures(tmp_path: Path, portable: bool) -> None:
    def f(a: Any, /, b: Any, c: Any = 1, *rest: Any, d: Any, e: Any = None, **more: Any) -> Any:
        return a, b, c, rest, d, e, more

    compiled, loaded = through(tmp_path, f, X, 2, d=X, z="s", portable=portable)
    same(loaded(X, 2, d=X, z="s"), compiled(X, b=2, z="s", d=X))
    for args, kwargs in [((X, 2, 1), {"d": X}), ((X, 2), {"d": X}), ((X, 2, 1, 4), {"d": X})]:
        with pytest.raises(MismatchError):
            loaded(*args, **kwargs)
    with pytest.raises(TypeError, match="'d'"):
        loaded(X, 2)


def test_few_arguments(tmp_path: Path, portable: bool) -> None:
    _, loaded = through(tmp_path, lambda: (3, None), portable=portable)
    assert loaded() == (3, None)
    _, loaded = through(tmp_path, lambda x, y, z: y, X, X + 1, X, portable=portable)
    np.testing.assert_array_equal(loaded(X, X + 2, X), X + 2)  # the others are not used


def test_donation(tmp_path: Path, portable: bool) -> None:
    f = filter_jit(lambda x, y: (x + 1, y + 1), donate="all-except-first")
    _, loaded = through(tmp_path, f, X, X + 0, portable=portable)
    x, y = X + 1, X + 2
    loaded(x, y)
    assert (x.is_deleted(), y.is_deleted()) == (False, True)
    with pytest.raises((RuntimeError, ValueError), match=r"deleted|donated"):
        loaded(x, y)


def test_functions_by_structure(tmp_path: Path) -> None:
    f = filter_jit(lambda g, x: g(x), functions="structure")
    _, loaded = through(tmp_path, f, aot_zoo.scale, X)
    np.testing.assert_array_equal(loaded(aot_zoo.scale, X), X * 2)
    with pytest.raises(MismatchError, match="`g`"):
        loaded(jnp.sin, X)


def test_host_callbacks_cannot_be_saved(tmp_path: Path, portable: bool) -> None:
    spec = jax.ShapeDtypeStruct((3,), jnp.float32)
    f = lambda x: jax.pure_callback(np.sin, spec, x)
    with pytest.raises(ValueError, match="cannot be saved"):
        through(tmp_path, f, X, portable=portable)
    assert list(tmp_path.iterdir()) == []


def test_loaded_functions_cannot_be_saved(tmp_path: Path, portable: bool) -> None:
    _, loaded = through(tmp_path, lambda x: x, X, portable=portable)
    with pytest.raises(ValueError, match="loaded from a file; copy that"):
        loaded.save(tmp_path / "again")
    with pytest.raises(ValueError, match="loaded from a file; copy that"):
        loaded.save(tmp_path / "again", portable=True)


def test_platforms(tmp_path: Path) -> None:
    compiled = filter_jit(lambda x: x * 2).lower(X).compile()
    with pytest.raises(ValueError, match="portable=True"):
        compiled.save(tmp_path / "file", platforms=("cpu",))
    with pytest.raises(TypeError, match="must be a sequence of names"):
        compiled.save(tmp_path / "file", portable=True, platforms="cpu")
    compiled.save(tmp_path / "file", portable=True, platforms=("cuda",))
    assert filterjit.saved_info(tmp_path / "file").platforms == ("cuda",)
    with pytest.raises(ValueError, match="is a program for cuda; this is cpu"):
        filterjit.load(tmp_path / "file")
    compiled.save(tmp_path / "file", portable=True, platforms=("cpu", "cuda"))
    np.testing.assert_array_equal(filterjit.load(tmp_path / "file")(X), X * 2)


def test_saved_info(tmp_path: Path, portable: bool) -> None:
    through(tmp_path, use, {"a": X, "b": 2}, X, 3, portable=portable)
    info = filterjit.saved_info(tmp_path / "file")
    assert (info.name, info.devices, info.platforms) == ("use", 1, ("cpu",))
    assert info.kind == ("portable" if portable else "executable")
    assert info.nbytes == (tmp_path / "file").stat().st_size
    assert dict(info.arguments)["tree['b']"] == "the int 2"
    assert "float32[3]" in dict(info.arguments)["x"]
    assert info.machine["jax"] == jax.__version__
    header, blobs = read(tmp_path / "file")
    header["arguments"] = header["result"] = ["nonsense"]  # which it does not look at
    write(tmp_path / "file", header, blobs)
    assert filterjit.saved_info(tmp_path / "file").arguments == info.arguments
    for word in ("use", info.kind, "tree['a']", f"{info.nbytes:,} bytes", jax.__version__):
        assert word in str(info)


# ---- machines that have changed ----


@pytest.mark.parametrize("key", ["jax", "jaxlib", "device", "machine", "processor"])
def test_other_machines(tmp_path: Path, key: str, portable: bool) -> None:
    if portable and key != "jax":
        return
    through(tmp_path, lambda x: x * 2, X, portable=portable)
    header, blobs = read(tmp_path / "file")
    header["info"]["machine"][key] = "other"
    write(tmp_path / "file", header, blobs)
    if portable:
        np.testing.assert_array_equal(filterjit.load(tmp_path / "file")(X), X * 2)
    else:
        with pytest.raises(ValueError, match=f"is an executable for {key} 'other' \\(here: "):
            filterjit.load(tmp_path / "file")


def test_another_number_of_devices(tmp_path: Path, portable: bool) -> None:
    through(tmp_path, lambda x: x * 2, X, portable=portable)
    header, blobs = read(tmp_path / "file")
    header["devices"] = [0, 1, 2]
    write(tmp_path / "file", header, blobs)
    with pytest.raises(ValueError, match=r"for 3 devices, numbered .*; here are 1 device: "):
        filterjit.load(tmp_path / "file")


# ---- writing ----


@pytest.fixture(scope="module")
def compiled() -> Any:
    return filter_jit(lambda x, n: x * n).lower(X, 3).compile()


def test_replaced(tmp_path: Path, compiled: Any) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old" * 10**6)
    compiled.save(path)
    np.testing.assert_array_equal(filterjit.load(path)(X, 3), X * 3)
    compiled.save(str(path))
    compiled.save(os.fsencode(path))
    assert filterjit.load(os.fsencode(path))(X, 3) is not None
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


class Crash(BaseException):
    pass


@pytest.mark.parametrize("where", ["fsync", "replace", "write", "dumps"])
def test_a_crash_leaves_the_old_file(
    tmp_path: Path, compiled: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    compiled.save(path)
    before = path.read_bytes()

    def crash(*args: Any, **kwargs: Any) -> Any:
        raise Crash

    with monkeypatch.context() as patch:
        if where == "dumps":
            patch.setattr(json, "dumps", crash)
        elif where == "write":
            patch.setattr(filterjit._aot._file.hashlib, "sha256", crash)  # type: ignore[attr-defined]
        else:
            patch.setattr(os, where, crash)
        with pytest.raises(Crash):
            compiled.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_symlinks_are_followed(tmp_path: Path, compiled: Any) -> None:
    (tmp_path / "folder").mkdir()
    link, target = tmp_path / "link", tmp_path / "folder" / "target"
    link.symlink_to(target)
    compiled.save(link)
    assert link.is_symlink() and target.is_file()
    compiled.save(link)
    assert link.is_symlink() and filterjit.load(target)(X, 3) is not None
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["target"]


def test_permissions(tmp_path: Path, compiled: Any) -> None:
    mask = os.umask(0o027)
    try:
        compiled.save(tmp_path / "new")
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
        os.chmod(tmp_path / "new", 0o600)
        compiled.save(tmp_path / "new")
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    finally:
        os.umask(mask)


def test_a_file_is_the_same_each_time(tmp_path: Path, compiled: Any) -> None:
    for name in ("one", "two"):
        compiled.save(tmp_path / name, portable=True)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    header, _ = read(tmp_path / "one")
    assert b"pickle" not in (tmp_path / "one").read_bytes() and header["info"]["kind"] == "portable"


# ---- symbolic dimensions ----


def test_a_batch_of_any_size(tmp_path: Path) -> None:
    n, m = jax.export.symbolic_shape("n, m")
    specs = jax.ShapeDtypeStruct((n, 3), np.float32), jax.ShapeDtypeStruct((m,), np.int32)

    def f(model: Any, x: Any, y: Any, flag: bool) -> Any:
        return {"x": jax.vmap(model)(x) @ jnp.ones((2, n)), "y": [y * 2, flag]}

    model = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    filter_jit(f).lower(model, *specs, True).save(tmp_path / "file")
    assert "float32[n,3]" in str(filterjit.saved_info(tmp_path / "file"))
    loaded = filterjit.load(tmp_path / "file")
    assert str(loaded.out_info["y"][0].shape) == "(m,)"
    for sizes in [(1, 2), (4, 2), (1, 2), (5, 1)] * 10:  # in the end they are direct calls
        x, y = jnp.full((sizes[0], 3), 0.5), jnp.arange(sizes[1])
        result = loaded(model, x, y, True)
        expected = jnp.full((sizes[0], sizes[0]), jax.vmap(model)(x)[0].sum())
        np.testing.assert_allclose(result["x"], expected, rtol=1e-6)
        np.testing.assert_array_equal(result["y"][0], y * 2)
        assert result["y"][1] is True
    with pytest.raises(
        MismatchError, match=r"`x`: compiled for float32\[n,3\], called with float32\[5,4\]"
    ):
        loaded(model, jnp.ones((5, 4)), y, True)
    with pytest.raises(MismatchError, match=r"`flag`: compiled for True"):
        loaded(model, x, y, False)
    with pytest.raises(ValueError, match="loaded from a file"):
        loaded.save(tmp_path / "again")


def test_a_lowered_program_without_symbols(tmp_path: Path) -> None:
    """It is as the portable file of the compiled one."""
    filter_jit(lambda x: x + 1).lower(X).save(tmp_path / "file")
    loaded = filterjit.load(tmp_path / "file")
    assert "stablehlo" not in loaded.as_text()  # it is compiled
    np.testing.assert_array_equal(loaded(X), X + 1)
    with pytest.raises(MismatchError):
        loaded(jnp.ones(4))
