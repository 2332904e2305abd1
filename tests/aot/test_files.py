"""Files that must be refused: damaged ones, other formats, and malicious ones."""

import builtins
import copy
import functools
import itertools
import json
import operator
import os
import random
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aot_support
import aot_zoo
import jax
import jax.numpy as jnp
import numpy as np
import numpy.random  # imported here, because Hypothesis would import it during a test
import pytest
from aot_support import full_disk, saved, sizes
from aot_zoo import Setting, layer, use
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import filterjit
from filterjit import _core, filter_jit
from filterjit._aot._file import info_of
from filterjit._trees import _codes, _registry
from support.nodes import Bag, Point
from support.statics import Colour

X = jnp.arange(3.0)
KINDS = ["executable", "portable"]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each kind, with static values and with an array in the function itself."""
    folder = tmp_path_factory.mktemp("files")
    arguments = {
        "layer": layer(X), "point": Point(X, Setting(0.5, ("a",))), "function": aot_zoo.scale,
        "enum": Colour.RED, "bag": Bag([X, 1], None), "type": np.dtype("float32"),
    }  # fmt: skip
    f = filter_jit(jax.tree_util.Partial(use, n=3))
    paths = {kind: folder / kind for kind in KINDS}
    for kind, path in paths.items():
        saved(path, kind, f, arguments, X)
        filterjit.load(path)
        info_of(str(path))
    return paths


class Happened(BaseException):
    pass


@pytest.fixture
def nothing_happens(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Makes functions that run programs raise; checks that no module was imported."""

    def happened(*args: Any, **kwargs: Any) -> Any:
        raise Happened(args)

    own = lambda: {name for name in sys.modules if not name.startswith("hypothesis")}
    modules = own()
    for module, name in [
        (os, "system"), (os, "popen"), (os, "execv"), (os, "remove"), (subprocess, "Popen"),
        (builtins, "eval"), (builtins, "input"), (os, "_exit"), (sys, "exit"),
    ]:  # fmt: skip
        monkeypatch.setattr(module, name, happened)

    def check() -> None:
        assert own() == modules

    yield check
    check()


def refuse(path: Path) -> str:
    with pytest.raises(ValueError) as raised:
        filterjit.load(path)
    assert str(path) in str(raised.value)
    return str(raised.value)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """The error names the path that was given, and leaves nothing behind."""
    f = filter_jit(lambda x: x + 1)
    f(X)
    for path, error in (
        (tmp_path / "none" / "x.jit", FileNotFoundError),
        (tmp_path, IsADirectoryError),
        (tmp_path / "file", OSError),
    ):
        with full_disk(), pytest.raises(error, match=re.escape(str(path))) as raised:
            f.save(path)
        assert raised.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


# ---- damage ----


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(
    kind: str, good: dict[str, Path], tmp_path: Path, nothing_happens: Callable[[], None]
) -> None:
    """In each bit of the head, and in several hundred other ways."""
    source, path = random.Random(0), tmp_path / "file"
    data, other = (good[k].read_bytes() for k in (kind, KINDS[kind == KINDS[0]]))
    head = aot_support.HEAD.size + 4
    bits = [(at, bit) for at in range(head) for bit in range(8)]
    bits += [(source.randrange(head, len(data)), source.randrange(8)) for _ in range(200)]
    cases = [data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :] for at, bit in bits]
    cases += [data[:at] for at in range(head)]
    for _ in range(50):
        at, end = sorted(source.randrange(len(data)) for _ in range(2))
        noise, rest = source.randbytes(end - at + 1), data[end + 1 :]
        cases += [data[:at], data + noise[:8], data[:at] + rest, data[:at] + noise + rest]
        cases += [data[:at] + b"\0" * len(noise) + rest, data[:at] + other[at:]]
        cases += [noise, data[:8] + noise]
    for changed in cases:
        if changed in (data, other):
            continue
        path.write_bytes(changed)
        text = refuse(path)
        assert "is damaged" in text or "was not written by" in text or "is of format" in text
        if changed[head:] == data[head:]:
            with pytest.raises(ValueError):
                info_of(str(path))


def test_other_formats(good: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "file"
    np.save(tmp_path / "array", np.ones(3))
    exported = jax.export.export(jax.jit(lambda x: x))(X).serialize()
    for data in [
        b"", b"\x89", b"\x89FJIT\r\n\x1a", b"{}", b"\x80\x04N.", b"PK\x03\x04" + b"\0" * 100,
        b"\x7fELF" + b"\0" * 100, (tmp_path / "array.npy").read_bytes(), bytes(exported),
        b"\x89FJIT\n\x1a" + good["executable"].read_bytes()[8:],  # as after a conversion of line ends
    ]:  # fmt: skip
        path.write_bytes(data)
        refuse(path)
    assert "not written by filterjit" in refuse(tmp_path / "array.npy")
    for text in (
        b"", b"[]", b"null", b"{", b"[" * 10**5, b'{"kind": 1}', b"\xff", b"9" * 10**5, b"NaN",
        *(b'{"blobs": [[%s]]}' % entry for entry in (b'"1", "a"', b'-1, "a"', b"1, 2", b"1")),
    ):  # fmt: skip
        aot_support.write(path, text, [])
        assert "is damaged: its contents are malformed" in refuse(path)


# ---- malformed headers with correct checksums ----


def _changed(json: Any, path: tuple[Any, ...], *value: Any) -> Any:
    """Returns a copy with a value at a path (a tuple is several values), or without what is there."""
    copied = at = copy.deepcopy(json)
    for key in path[:-1]:
        at = at[key]
    if value and type(value[0]) is tuple and type(at) is list:
        at[path[-1] : path[-1] + 1] = value[0]
    elif value:
        (at[path[-1]],) = value
    else:
        del at[path[-1]]
    return copied


def _write(path: Path, header: Any, blobs: list[bytes]) -> None:
    """Writes a file; a text ``@n@`` becomes a list nested n deep, which `json.dumps` refuses."""
    text = re.sub(r'"@(\d+)@"', lambda m: "[" * int(m[1]) + "]" * int(m[1]), json.dumps(header))
    aot_support.write(path, text.encode(), blobs)


REFERENCES = [
    ["os", "system"], ["builtins", "eval"], ["builtins", "exec"], ["subprocess", "Popen"],
    ["antigravity", "geohash"], ["this", "s"], ["aot_zoo", "Layer"], ["support.statics", "Colour"],
    ["support.nodes", "Point"], ["aot_zoo", "scale"], ["aot_zoo", "no.such"], ["builtins", "object"],
    ["builtins", "type"], ["builtins", "tuple"], ["types", "FunctionType"], ["", ""],
    ["aot_zoo", "__builtins__"], ["aot_zoo", "Layer.__init__"], ["aot_zoo", "Lazy"],
]  # fmt: skip


VALUES = st.one_of(
    st.sampled_from(
        [
            *(None, True, "", "a", [], {}, [[]], 0, 1, -1, 2, 0.5, float("nan"), 1e400),
            *(2**31, 2**63, -(2**63), 10**30, "@20@", "@300@", "@5000@", "float32", "O", "f4,O"),
            *("array", "custom", "instance", "list", "object", "enum", "slice", "dtype", "V1000000"),
        ]
    ),
    st.sampled_from(REFERENCES),
    st.tuples(st.sampled_from(["object", "instance", "custom", "enum", "namedtuple", "dict"]),
              st.integers(0, 9)).map(list),
    st.integers(0, 9).map(lambda i: (["instance", 3], ["object", i], "__class__", None)),
    st.integers(-10, 300),
)  # fmt: skip
PROGRAM = st.sampled_from(
    [
        *(None, True, "", "a", [], {}, 0, 1, -1, 0.5, 2**31, 2**63, 10**30, [1], [-1], "@500@"),
        *((["list", 1], 0), (["list", 1], -5), (["set", 0],)),
        (["sharding", 3], ["object", 0], None, "no such"),
        (["mesh", 3], ["tuple", 1], "a", ["tuple", 1], 3, ["tuple", 1], "Auto"),
        (["layout", 3], ["tuple", 1], 0, ["tuple", 1], ["tuple", 1], -1, -3),
        (["aval", 4], ["tuple", 1], -1, "float32", False, None),
    ]
)


def _mutated(data: st.DataObject, header: Any, inside: tuple[Any, ...]) -> Any:
    """Changes places of a header, inside of one of its entries or outside of the program."""
    for _ in range(data.draw(st.integers(1, 3))):
        # Descends from the top and stops at each level with the same chance: most entries of the
        # header are in one list, so choosing among all paths would rarely choose the others.
        path, at = inside, functools.reduce(operator.getitem, inside, header)
        while isinstance(at, (dict, list)) and at and data.draw(st.integers(0, 5)):
            keys = sorted(at) if isinstance(at, dict) else range(len(at))
            path += (data.draw(st.sampled_from(keys)),)
            at = at[path[-1]]
        if path in (inside, ("blobs",)) or (not inside and "program" in path):
            continue
        if data.draw(st.booleans()):
            header = _changed(header, path, data.draw(PROGRAM if inside else VALUES))
        else:
            header = _changed(header, path)
    return header


class _Lazy:
    """An object that raises when any attribute except ``__class__`` is read."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return _Lazy
        raise Happened(name)


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aot_zoo, "Lazy", _Lazy(), raising=False)


@pytest.mark.parametrize("examples", [50, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("kind", "inside"),
    [*((kind, ()) for kind in KINDS), ("executable", ("signatures", 0, "program"))],
)
def test_mutated_headers(
    examples: int,
    kind: str,
    inside: tuple[Any, ...],
    good: dict[str, Path],
    tmp_path: Path,
    nothing_happens: Callable[[], None],
    lazy: None,
) -> None:
    """Reading a program takes long, and most files fail before that: it is mutated by itself."""
    header, blobs = aot_support.read(good[kind])
    path = tmp_path / "file"
    loaded = []

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def fuzz(data: st.DataObject) -> None:
        _write(path, _mutated(data, header, inside), blobs)
        for read in (filterjit.load, info_of):
            try:
                loaded.append(read(path))
            except ValueError as e:
                assert str(path) in str(e)
        nothing_happens()

    fuzz()
    assert loaded


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_blobs(kind: str, good: dict[str, Path], tmp_path: Path) -> None:
    """Programs that are malformed, with correct checksums: JAX's errors become a ValueError."""
    header, (program, *own) = aot_support.read(good[kind])
    path = tmp_path / "file"
    whole = zlib.decompress(program)
    wrong = [
        [zlib.compress(x), *own] for x in (b"", b"nonsense", b"\0" * 1000, whole[: len(whole) // 2])
    ]
    wrong += [[], [program, b"\0"], [program, *own, b"more"], [b"\0", *own], [program] * bool(own)]
    for blobs in wrong:
        aot_support.write(path, {**header, "blobs": sizes(blobs)}, blobs)
        assert "damaged" in refuse(path)


def test_arguments_of_another_function(tmp_path: Path) -> None:
    path, headers = tmp_path / "file", []
    for args in ((X,), (X, X)):
        header, blobs = aot_support.read(saved(path, "executable", lambda *xs: xs[0], *args))
        headers.append(header)
    _write(path, headers[1] | {"structures": headers[0]["structures"]}, blobs)
    assert "is damaged" in refuse(path) and "the number of arrays" in refuse(path)


def test_references(nothing_happens: Callable[[], None], lazy: None) -> None:
    """Objects are looked up, but not called, and none of their attributes is read."""
    it = ["object", 0]
    trees = [
        [it], [["namedtuple", 1], it], [["instance", 1], it], [["custom", 2], it, None],
        [["enum", 2], it, "RED"], [["instance", 3], it, "__class__", 1], [["default_dict", 1], it],
    ]  # fmt: skip
    for place, tree in itertools.product(REFERENCES, trees):
        try:
            found = _codes.decode_tree([[place], tree])
            _core.flatten(_registry.registry, found)
        except Exception:
            pass
        nothing_happens()


def test_malformed_codes() -> None:
    for codes in (
        *([["list", 1]], [["list", "1"]], [["list", -1]], [["dtype", 1], 3], [["object", -1]]),
        *([["dict", 1], "a"], [["dict", 2], ["list", 0], 1], [["array", 1], 1], [1, 2], [1.0], []),
    ):
        with pytest.raises((ValueError, TypeError)):
            _codes.decode_tree([[], codes])


class Watched:
    """A class that raises when its attributes are set or read, or when it is called."""

    __dataclass_fields__ = Setting.__dataclass_fields__

    def _happened(self, *args: Any) -> Any:
        raise Happened

    rate = property(_happened, _happened)
    __new__ = __init__ = __setattr__ = _happened  # type: ignore[assignment]


def test_names_that_are_no_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    Watched.__module__ = "aot_zoo"
    monkeypatch.setattr(aot_zoo, "Watched", Watched, raising=False)
    coder = _codes.Coder(names=[["aot_zoo", "Watched"]])
    # A field, set without calling the constructor or __setattr__.
    assert coder.decode([["instance", 3], ["object", 0], "names", None]).names is None
    for name in ("__class__", "__dict__", "__weakref__", "other", 3):
        with pytest.raises((ValueError, TypeError)):
            coder.decode([["instance", 3], ["object", 0], name, None])
