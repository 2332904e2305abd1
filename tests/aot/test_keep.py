"""`keep_programs`: what a second start loads, what it compiles, and what is never kept."""

import functools
import json
import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from aot_support import full_disk
from flax import nnx

import filterjit
from filterjit import __main__ as command_line
from filterjit import filter_jit
from filterjit._call import _direct
from support.direct import counts
from support.processes import environment, run

if not _direct.are_supported():
    pytest.skip("older versions of JAX lack what direct calls need", allow_module_level=True)

ONES = jnp.ones(2)
TRACES: list[str] = []


def traced(x: Any) -> Any:
    TRACES.append("")
    return x


def traces_of(f: Callable[..., Any], *args: Any) -> tuple[int, Any]:
    """Returns how often a call traces, and its result."""
    before = len(TRACES)
    result = f(*args)
    return len(TRACES) - before, result


@pytest.fixture
def folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Path:
    caplog.set_level(logging.INFO, "filterjit")
    return tmp_path / "programs"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [f"{x.levelname} {x.getMessage()}" for x in caplog.records if x.name == "filterjit"]
    caplog.clear()
    return found


def scale(x: Any, n: Any = 2) -> Any:
    return traced(x) * n


def holding(held: Any) -> Callable[..., Any]:
    return lambda x, n=2: traced(x) * n + (held(x) if callable(held) else held)


class Net(eqx.Module):
    w: jax.Array
    n: int = 1

    def __call__(self, x: Any, n: Any = 2) -> Any:
        return self.w * traced(x) * n + self.n

    @filter_jit
    def method(self, x: Any, n: Any = 2) -> Any:
        return self.w * traced(x) * n


class Config:
    scale = 2


def with_class(scale: Any) -> Callable[..., Any]:
    cls = type("Config", (), {"scale": scale})
    return lambda x, config=cls: traced(x) * config.scale


def net(w: float, n: int = 1) -> Net:
    return Net(jnp.full(2, w), n)


# What makes a function: a second start loads the program.
LOADED: dict[str, Callable[[], Any]] = {
    "a function": lambda: scale,
    "a closure": lambda: holding(3),
    "a closure over an array": lambda: holding(jnp.ones(2)),
    "a closure over a function": lambda: holding(holding(1)),
    "a closure over a Module": lambda: holding(net(1.0)),
    "a closure over a jitted function": lambda: holding(filter_jit(holding(1))),
    "a partial": lambda: functools.partial(scale, n=3),
    "a callable Module": lambda: net(2.0),
    "a bound method": lambda: net(2.0).__call__,
    "a function of jax.jit": lambda: jax.jit(scale),
    "a class as a default": lambda: lambda x, c=Config: traced(x) * c.scale,
    "a local class as a default": lambda: with_class(2),
}


@pytest.mark.parametrize("name", LOADED)
def test_a_second_start_loads(name: str, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with filterjit.keep_programs(folder, version="1"):
        traces, expected = traces_of(filter_jit(LOADED[name]()), ONES)
        assert traces > 0 and told(caplog) == []
        f = filter_jit(LOADED[name]())
        f.clear_cache()
        jax.clear_caches()  # of what is jitted inside
        for _ in range(30):
            traces, result = traces_of(f, ONES)
            assert traces == 0 and np.array_equal(result, expected)
        assert counts(f) == {"direct": 30}
        (line,) = told(caplog)
        assert line.startswith("INFO filterjit has loaded `")
        assert traces_of(f, jnp.ones(3))[0] > 0 if np.shape(expected) != (2,) else True


def apply(function: Any, x: Any) -> Any:
    return function(x)


def test_jitted_functions_as_static_arguments(folder: Path) -> None:
    with filterjit.keep_programs(folder, version="1"):
        for first_start in (True, False):
            f = filterjit.jit(apply, static_argnums=0)
            f.clear_cache()
            for i, jit in enumerate((filter_jit, filterjit.jit)):
                for held in (1, 2):
                    g = jit(holding(held))
                    g.clear_cache()
                    traces, result = traces_of(f, g, ONES)
                    assert (traces > 0) == first_start, (i, held)
                    assert result[0] == 2 + held


def both(make: Callable[[Any], Any], *values: Any) -> list[Callable[[], Any]]:
    return [functools.partial(make, value) for value in values]


def model(norm: Any) -> Any:
    return holding(norm(2))


# Functions, or functions with the arguments of a call, of which each is another program.
DIFFERENT: dict[str, list[Callable[[], Any]]] = {
    "closures of one factory": both(holding, 1, True, 1.0, 2, -0.0, 0.0),
    "weak types in a closure": both(holding, jnp.asarray(1.0), jnp.float32(1), np.float32(1)),
    "arrays in a closure": both(holding, jnp.zeros(2), jnp.ones(2), np.ones(2), jnp.ones(1)),
    "functions in a closure": both(holding, holding(1), holding(2), jnp.sin, jnp.cos),
    "objects that differ in class": both(model, eqx.nn.LayerNorm, eqx.nn.RMSNorm),
    "Modules in a closure": [lambda: holding(net(1.0)), lambda: holding(net(2.0))],
    "defaults": [
        lambda: lambda x, n=2: traced(x) * n,
        lambda: lambda x, n=3: traced(x) * n,
        lambda: lambda x, *, n=2: traced(x) * n,
        lambda: lambda x, n=2: traced(x) * n + 0,
    ],
    "attributes of a class": both(with_class, 2, 3, 2.0),
    "partials": both(lambda n: functools.partial(scale, n=n), 2, 3, 2.0),
    "jitted functions": both(lambda n: holding(filter_jit(holding(n))), 1, 2),
    "statics": both(lambda n: (lambda x, n: traced(x), ONES, n), 2, 3, 2.0, True, "", None, Config),
    "structures": both(
        lambda x: (lambda x: len(traced(x)), x), [ONES], (ONES,), {"a": ONES}, {"b": ONES}, [ONES] * 2
    ),
    "avals": both(
        lambda x: (scale, x),
        jnp.ones(2), jnp.ones(3), jnp.ones(2, int), jnp.ones((2, 1)), jnp.asarray(1.0), jnp.ones(()),
    ),
    "placements": [lambda: (scale, ONES), lambda: (scale, jax.device_put(ONES, jax.devices()[0]))],
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_another_program_is_compiled(name: str, folder: Path) -> None:
    with filterjit.keep_programs(folder, version="1"):
        for second in (False, True):
            for make in DIFFERENT[name]:
                made = make()
                fun, *args = made if isinstance(made, tuple) else (made, ONES)
                f = filter_jit(fun)
                f.clear_cache()
                traces, result = traces_of(f, *args)
                assert (traces == 0) is second, (make, traces)
                assert eqx.tree_equal(result, fun(*args))


@pytest.mark.parametrize("donate", ["none", "all", ("x",), ("y",)])
def test_donated_positions(donate: Any, folder: Path) -> None:
    def f(x: Any, y: Any) -> Any:
        return traced(x) + 1, y + 1

    with filterjit.keep_programs(folder, version="1"):
        filter_jit(f)(ONES + 0, ONES + 0)
        for traces in (donate != "none", False):
            g = filter_jit(f, donate=donate)
            g.clear_cache()
            x, y = ONES + 0, ONES + 0
            assert traces_of(g, x, y)[0] == traces
            assert x.is_deleted() == (donate in ("all", ("x",)))
            assert y.is_deleted() == (donate in ("all", ("y",)))


def test_another_version_or_setting(folder: Path) -> None:
    f = filter_jit(scale)

    def start(version: str) -> int:
        f.clear_cache()
        with filterjit.keep_programs(folder, version=version):
            return traces_of(f, ONES)[0]

    assert [start(v) for v in ("1", "1", "2", "1", "2")] == [1, 0, 1, 0, 0]
    with jax.default_matmul_precision("float32"):
        assert [start("1"), start("1")] == [1, 0]
    f.clear_cache()
    assert traces_of(f, ONES)[0] == 1, "outside of the context"


class Plain:
    """Equals itself alone."""


def with_object(held: Any) -> Any:
    return lambda x: traced(x) if held else x


def generator() -> Any:
    yield 1


def printing(x: Any) -> Any:
    jax.debug.print("{}", x)
    return traced(x)


NOT_KEPT: dict[str, tuple[Callable[[], Any], tuple[Any, ...], str]] = {
    "an object": (lambda: lambda x, o: traced(x), (Plain(),), "`o`: <.*Plain"),
    "a lock": (lambda: with_object(threading.Lock()), (), "`held` in the closure of .*lock"),
    "a generator": (lambda: with_object(generator()), (), "`held` in the closure.*generator"),
    "a callback": (lambda: printing, (), "effects or callbacks"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_KEPT)
def test_what_is_not_kept(name: str, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    make, args, words = NOT_KEPT[name]
    made = make()
    f = made if isinstance(made, filterjit.types.FilterJit) else filter_jit(made)
    with filterjit.keep_programs(folder, version="1"):
        for _ in range(2):
            f.clear_cache()
            assert traces_of(f, ONES, *args)[0] == 1
    (line,) = told(caplog)
    assert re.search(f"INFO .* is not kept: .*{words}", line), line
    assert list(folder.iterdir()) == []


def test_under_transformations_and_settings(folder: Path) -> None:
    """What cannot be a direct call is traced as usual, beside the loaded program."""
    with filterjit.keep_programs(folder, version="1"):
        f = filter_jit(scale)
        for _ in range(2):
            f.clear_cache()
            f(ONES)
        f.clear_cache()
        assert traces_of(f, ONES)[0] == 0
        assert np.array_equal(jax.vmap(f)(jnp.ones((3, 2))), 2 * np.ones((3, 2)))
        assert jax.grad(lambda x: f(x).sum())(ONES).sum() == 4
        with jax.debug_nans(True):
            assert f(ONES).sum() == 4
        with jax.disable_jit():
            assert f(ONES).sum() == 4
        assert traces_of(f, np.ones(2, np.float32))[1].sum() == 4
        assert traces_of(f, ONES)[0] == 0
        deleted = ONES + 0
        deleted.delete()
        with pytest.raises(RuntimeError, match="deleted"):
            f(deleted)
        constant = filter_jit(lambda: traced(jnp.ones(2)))
        for _ in range(2):
            constant.clear_cache()
            assert constant().sum() == 2
        constant.clear_cache()
        assert jax.jit(lambda x: x + constant())(ONES).sum() == 4  # no argument is a tracer


def test_sizes_of_a_server(folder: Path) -> None:
    """Ahead of time, both starts are one program; the second compiles nothing."""
    sizes = range(1, 9)
    predict = filter_jit(lambda model, x: jax.vmap(model)(traced(x)))
    mlp = eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0))
    for start in range(2):
        predict.clear_cache()
        with filterjit.keep_programs(folder, version="1"), filterjit.forbid_compile() as forbid:
            if start == 0:
                forbid.close()
            loads = predict.report().as_dict()["functions"][0]["loads"]
            for n in sizes:
                predict.warm_up(mlp, jax.ShapeDtypeStruct((n, 2), jnp.float32))
            loads = predict.report().as_dict()["functions"][0]["loads"] - loads
            assert loads == start * len(sizes)
            all_of_them = [((mlp, jax.ShapeDtypeStruct((n, 2), "float32")), {}) for n in sizes]
            assert predict.warm_up_all(all_of_them) == {}
            forbid.close()
            inputs = [np.ones((n, 2), np.float32) for n in sizes]
            with filterjit.forbid_compile():
                for x in inputs * 40:
                    assert traces_of(predict, mlp, x)[0] == 0
                compiled = predict.compile(mlp, inputs[2])
                assert np.array_equal(compiled(mlp, inputs[2]), predict(mlp, inputs[2]))


def test_other_decorators(folder: Path) -> None:
    class Layer(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.linear = nnx.Linear(2, 3, rngs=rngs)
            self.norm = nnx.BatchNorm(3, rngs=rngs)
            self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def step(layer: Layer, optimizer: Any, x: Any) -> Any:
        def loss(layer: Layer) -> Any:
            return jnp.mean(layer.dropout(layer.norm(layer.linear(traced(x)))) ** 2)

        value, gradients = nnx.value_and_grad(loss)(layer)
        optimizer.update(layer, gradients)
        return value

    def train(graph: bool) -> tuple[int, list[float]]:
        layer = Layer(nnx.Rngs(0))
        optimizer = nnx.Optimizer(layer, optax.adam(0.1), wrt=nnx.Param)
        f = filterjit.nnx.jit(step, graph=graph, graph_updates=graph)
        f.clear_cache()
        before = len(TRACES)
        losses = [float(f(layer, optimizer, jnp.ones((4, 2)) * i)) for i in range(20)]
        assert not f.handed_over
        return len(TRACES) - before, losses

    with filterjit.keep_programs(folder, version="1"):
        for graph in (False, True):
            traces, losses = train(graph)
            assert (traces > 0, train(graph)) == (True, (0, losses))
        f = filterjit.jit(scale, static_argnames="n")
        for expected in (1, 0):
            f.clear_cache()
            assert traces_of(lambda: f(ONES, n=3))[0] == expected


def test_the_arguments(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="version"):
        filterjit.keep_programs(tmp_path)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"must be a str, such as '1\.0', not 1"):
        filterjit.keep_programs(tmp_path, version=1)  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        filterjit.keep_programs(tmp_path / "file", version="1")
    filterjit.keep_programs(tmp_path / "a" / "b", version="1").close()
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "a").chmod(0o777)
    with pytest.raises(
        ValueError, match=r"^other users can write `.*`, .*: use a folder of your own$"
    ):
        filterjit.keep_programs(tmp_path / "a", version="1")


def test_bad_files(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are told in one warning, compiled and replaced."""
    f = filter_jit(scale)
    f.clear_cache()
    with filterjit.keep_programs(folder, version="1"):
        f(ONES)
        (path,) = folder.iterdir()
        assert path.stat().st_mode & 0o777 == 0o600
        good = path.read_bytes()
        other = folder / "other"
        other.write_bytes(good)
        for change in (
            lambda: path.write_bytes(b""),
            lambda: path.write_bytes(good[: len(good) // 2]),
            lambda: path.write_bytes(good[:-1] + bytes([good[-1] ^ 1])),
            lambda: path.chmod(0o666),
            lambda: (path.unlink(), path.symlink_to(other)),
            lambda: (path.unlink(), os.mkfifo(path)),
        ):
            told(caplog)
            change()
            f.clear_cache()
            assert traces_of(f, ONES)[0] == 1
            lines = told(caplog)
            assert len(lines) == 1 and "WARNING" in lines[0] and str(path) in lines[0], lines
            assert (path.is_file() and not path.is_symlink()) or os.path.islink(path)
            path.unlink()
            path.write_bytes(good)
            path.chmod(0o600)


def test_a_folder_that_cannot_be_written(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    f = filter_jit(scale)
    f.clear_cache()
    with filterjit.keep_programs(folder, version="1"), full_disk():
        assert traces_of(f, ONES)[1].sum() == 4
    folder.rmdir()  # nothing is left over
    with filterjit.keep_programs(folder, version="1"):
        folder.rmdir()
        f.clear_cache()
        assert traces_of(f, ONES)[1].sum() == 4
    lines = told(caplog)
    assert len(lines) == 2 and all(x.startswith("WARNING filterjit cannot keep") for x in lines)


PROGRAM = """
import json, sys
import equinox as eqx, jax, jax.numpy as jnp, numpy as np
import filterjit
from filterjit import filter_jit
filterjit.keep_programs("programs", version=sys.argv[1])
TRACES, args = [], (np.ones(2, np.float32),)
def traced(x):
    TRACES.append(1)
    return x
{body}
print(json.dumps([np.asarray(f(*args)).tolist(), len(TRACES)]))
"""
F = "f = filter_jit(lambda x: traced(x) * {v})"
MESH = """
mesh = jax.sharding.Mesh(np.array(jax.devices())[{v} - 2 :][:2], "x")
args = (jax.device_put(args[0] * {v}, jax.sharding.NamedSharding(mesh, jax.P("x"))),)
f = filter_jit(lambda x: traced(x))
"""
FORK = "f = filter_jit(lambda x: traced(x) * {v})\nimport os\nif child := os.fork(): sys.exit(os.waitpid(child, 0)[1])"
OTHER = {"other.py": "def g(x): return x * {v}"}
SUM = "f = filter_jit(lambda x: traced(x) * {v}" + " + x * 0" * 1000 + ")"
# Programs with a number, and whether a change of it is one of the call; else the version stands for
# it, and an unchanged version runs the old program. None if it is never kept.
STARTS: dict[str, tuple[str, str, dict[str, str], bool | None]] = {
    "a constant": (F, "main.py", {}, True),
    "a global variable": ("K = {v}\nf = filter_jit(lambda x: traced(x) * K)", "main.py", {}, False),
    "a function that is called": (
        "def g(x): return x * {v}\nf = filter_jit(lambda x: g(traced(x)))", "main.py", {}, False),
    "a module that is imported": (
        "import other\nf = filter_jit(lambda x: other.g(traced(x)))", "main.py", OTHER, False),
    "python folder": (F, "folder", {}, True),
    "python -m package": (F, "-mfolder", {}, True),
    "devices of a mesh": (MESH, "main.py", {}, True),
    "a sum of 1,000 terms": (SUM, "main.py", {}, True),
    "a forked worker": (FORK, "main.py", {}, True),
    "python -c": (F, "-c", {}, None),
}  # fmt: skip


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What the starts of each program print: with the number 2 twice, then with 3 under the same
    version and under another one."""
    folder = tmp_path_factory.mktemp("starts")
    todo: list[Any] = []
    for i, (body, what, files, _) in enumerate(STARTS.values()):
        for v, version in ((2, "1"), (2, "1"), (3, "1"), (3, "2")):
            text = PROGRAM.format(body=body.format(v=v)).replace('"programs"', f'"programs{i}"')
            path = what if what in ("-c", "main.py") else "folder/__main__.py"
            all_files = {path: text, **{name: x.format(v=v) for name, x in files.items()}}
            todo.append((all_files, what, [version]))
    flags = "--xla_force_host_platform_device_count=4"
    script = Path(__file__).with_name("starts.py")
    env = environment(XLA_FLAGS=flags)
    done = run(script, timeout=600, cwd=folder, stdin=json.dumps(todo), env=env)
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: found[4 * i :][:4] for i, name in enumerate(STARTS)}


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_starts(name: str, starts: dict[str, list[Any]]) -> None:
    in_call, (first, second, other, renamed) = STARTS[name][3], starts[name]
    two, three = [2.0, 2.0], [3.0, 3.0]
    assert first == [two, 1]
    assert second == [two, int(in_call is None)]
    assert other == ([two, 0] if in_call is False else [three, 1])
    assert renamed == [three, 1]


def test_show_and_prune(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    f = filter_jit(scale)
    for version in ("1", "2"):
        f.clear_cache()
        with filterjit.keep_programs(folder, version=version):
            f(ONES, 3)
    (folder / "mine.jit").touch()
    assert command_line.main(["show", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for line, version in zip(sorted(lines), ("1", "2"), strict=True):
        assert re.search(
            rf"\.scale .*: x=an array float32\[2\], n=the int 3; version '{version}', \d.* [KM]iB, new",
            line,
        )
    assert command_line.main(["prune", str(folder), "--keep", "2", "--keep", "3"]) == 0
    assert capsys.readouterr().out == "deleted 1 program, kept 1\n"
    assert len(list(folder.iterdir())) == 2
    assert command_line.main(["prune", str(folder / "no"), "--keep", "2"]) == 1


def test_reports(folder: Path) -> None:
    f, g = filter_jit(scale), filter_jit(with_object(threading.Lock()))
    f.clear_cache()
    with filterjit.keep_programs(folder, version="1"):
        for loads in (0, 1):
            f.clear_cache()
            f(ONES)
            (variant,) = f.report().as_dict()["functions"][0]["variants"]
            assert (variant["loads"], variant["traces"]) == (loads, 1 - loads)
        assert "loaded" in str(f.report())
        assert f.explain(jnp.ones(3)).kinds == (("shape", "x"),)
        g(ONES)
    assert re.search("is not kept: .*lock", str(g.report()))
