"""The program cache in several processes: at once, killed, on several devices, in other environments,
with other packages."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from support.processes import environment, run

# Prints what `main` returns, and how often the function was traced and loaded.
_RUNS = """
import json, os, sys, types
import equinox as eqx
import jax, jax.numpy as jnp, numpy as np
import filterjit
from filterjit import filter_jit

{source}

result = main()
print("first", flush=True)
rows = filterjit.report().as_dict()["functions"]
rows = [row for row in rows if row["name"].endswith(".f")]
print(json.dumps({{
    "result": jax.tree.map(lambda x: np.asarray(x).tolist(), result),
    "traces": sum(row["traces"] for row in rows),
    "loaded": sum(row.get("loaded") or 0 for row in rows),
}}))
"""
_TRAINS = """
class Model(eqx.Module):
    mlp: eqx.nn.MLP
    act: object = eqx.field(static=True)
    names: frozenset = eqx.field(static=True)

    def __call__(self, x):
        return self.act(self.mlp(x))

@filter_jit
def f(model, x):
    def loss_of(model):
        return jnp.mean(jax.vmap(model)(x) ** 2)
    loss, gradients = eqx.filter_value_and_grad(loss_of)(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, gradients)), loss

def main():
    mlp = eqx.nn.MLP(3, 3, 4, 1, key=jax.random.key(0))
    model, losses = Model(mlp, lambda x: jnp.tanh(x), frozenset("abcdef")), []
    for n in (2, 3, 4):
        model, loss = f(model, jnp.ones((n, 3)))
        losses.append(loss)
    return losses
"""


def script(tmp_path: Path, source: str, name: str = "program.py") -> Path:
    path = tmp_path / name
    path.write_text(_RUNS.format(source=textwrap.dedent(source)))
    return path


def variables(cache: Path | None, **others: str) -> dict[str, str]:
    found = {} if cache is None else {"FILTERJIT_PROGRAM_CACHE": str(cache)}
    return environment(**found, **others)


def answer(path: Path, cache: Path | None, *options: str, **others: str) -> dict[str, Any]:
    done = run(*options, path, env=variables(cache, **others), timeout=300)
    assert done.stderr == ""
    return _last(done.stdout)


def _last(output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def files(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.fjit"))


def test_a_program_that_is_started_again(tmp_path: Path) -> None:
    """By ``python -m filterjit run``, with equinox.filter_jit, and after an edit."""
    path, cache = (
        script(tmp_path, _TRAINS.replace("@filter_jit", "@eqx.filter_jit")),
        tmp_path / "cache",
    )
    command = ["-m", "filterjit", "run", "--program-cache", str(cache)]
    expected = answer(path, None)["result"]
    for traces, loaded in ((3, 0), (3, 3), (0, 3)):
        assert answer(path, None, *command) == {
            "result": expected,
            "traces": traces,
            "loaded": loaded,
        }
    never = answer(path, None, *command, "--trust", "never")
    assert never == {"result": expected, "traces": 3, "loaded": 3}
    path.write_text(path.read_text().replace("-0.1", "-0.2"))
    edited = answer(path, None, *command)
    assert edited == {"result": answer(path, None)["result"], "traces": 3, "loaded": 0}
    assert edited["result"] != expected


@pytest.mark.slow
def test_processes_that_are_killed_while_writing(tmp_path: Path) -> None:
    path, cache = script(tmp_path, _TRAINS), tmp_path / "cache"
    expected = answer(path, None)["result"]
    for seed in range(4):
        with subprocess.Popen(
            [sys.executable, "-u", str(path)], env=variables(cache), stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None and process.stdout.readline() == b"first\n"
            time.sleep(random.Random(seed).random() / 5)
            process.send_signal(signal.SIGKILL)
    assert [answer(path, cache)["result"] for _ in range(2)] == [expected] * 2
    assert answer(path, cache) == {"result": expected, "traces": 0, "loaded": 3}


_SHARDED = """
@filter_jit
def f(model, x):
    return jax.vmap(model)(x).sum(), model

def main():
    mesh = jax.make_mesh((jax.device_count(),), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.device_put(jnp.arange(48.0).reshape(16, 3), jax.NamedSharding(mesh, jax.P("d")))
    model = jax.device_put(eqx.nn.Linear(3, 3, key=jax.random.key(0)), jax.NamedSharding(mesh, jax.P()))
    total, model = f(model, x)
    on = sorted(d.id for d in total.sharding.device_set)
    one, _ = f(eqx.nn.Linear(3, 3, key=jax.random.key(0)), jnp.arange(48.0).reshape(16, 3))
    return on, jnp.allclose(total, one, rtol=1e-5), model.weight
"""


@pytest.mark.slow
def test_eight_devices(tmp_path: Path) -> None:
    """And as many as there were: with others it is traced again."""
    path, cache = script(tmp_path, _SHARDED), tmp_path / "cache"

    def with_devices(count: int, cache: Path | None = cache) -> dict[str, Any]:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
        return answer(path, cache, XLA_FLAGS=flags)

    expected = with_devices(8, None)["result"]
    assert expected[:2] == [list(range(8)), True]
    for traces, loaded in ((2, 0), (2, 2), (0, 2)):
        assert with_devices(8) == {"result": expected, "traces": traces, "loaded": loaded}
    four = with_devices(4)
    assert four["result"][:2] == [list(range(4)), True] and four["traces"] == 2
    assert with_devices(8) == {"result": expected, "traces": 0, "loaded": 2}


_DISTRIBUTED = """
import os
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{os.environ['PORT']}", 2, int(os.environ["PROCESS"]))

@filter_jit
def f(x):
    return (x * 2.0).sum()

def main():
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    local = np.full(2, 1.0 + jax.process_index(), np.float32)
    x = jax.make_array_from_process_local_data(jax.NamedSharding(mesh, jax.P("d")), local)
    return f(x)
"""


@pytest.mark.slow
def test_two_processes_that_run_one_program(tmp_path: Path) -> None:
    """Nothing is kept, as one could load what the other one compiles: the results are right."""
    path, cache = script(tmp_path, _DISTRIBUTED), tmp_path / "cache"
    for _ in range(2):
        with socket.socket() as s:
            s.bind(("localhost", 0))
            port = str(s.getsockname()[1])
        running = [
            subprocess.Popen(
                [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=variables(cache, PORT=port, PROCESS=str(i)), encoding="utf-8",
            )
            for i in range(2)
        ]  # fmt: skip
        try:
            outputs = [process.communicate(timeout=300)[0] for process in running]
        finally:
            for process in running:
                process.kill()
        for output in outputs:
            line = next(line for line in output.splitlines() if line.startswith("{"))
            assert json.loads(line) == {"result": 12.0, "traces": 1, "loaded": 0}, output
    assert files(cache) == []


@pytest.mark.slow
def test_other_environments(tmp_path: Path) -> None:
    """What XLA or JAX read of the environment is in the key."""
    path, cache = script(tmp_path, _TRAINS), tmp_path / "cache"
    assert answer(path, cache)["traces"] == 3
    assert answer(path, cache)["loaded"] == 3
    for changed in (
        {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        {"JAX_ENABLE_X64": "1"},
        {"JAX_DEFAULT_MATMUL_PRECISION": "bfloat16"},
        {"PYTHONHASHSEED": "7"},
    ):
        other = answer(path, cache, **changed)
        assert (other["traces"], other["loaded"]) == (3, 0), changed
        assert other["result"] == answer(path, None, **changed)["result"]
    assert answer(path, cache) == {"result": answer(path, None)["result"], "traces": 0, "loaded": 3}


_PACKAGE = """
import fjpackage
import fjeditable

@filter_jit
def f(x):
    return fjpackage.scaled(x) + fjeditable.scaled(x)

def main():
    return f(jnp.ones(2))
"""


def _install(site: Path, name: str, version: str, scale: float, code: Path | None = None) -> None:
    """Installs a package of one module in `site`, or to be edited in `code`, as pip does."""
    info = next(site.glob(f"{name}-*.dist-info"), None)
    if info is not None:
        info.rename(info.with_name(f"{name}-{version}.dist-info"))
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "INSTALLER").write_text("pip\n")
    record = [f"{name}.py,,", f"{info.name}/METADATA,,", f"{info.name}/RECORD,,"]
    if code is not None:
        (site / f"{name}.pth").write_text(f"{code}\n")
        url = {"url": code.as_uri(), "dir_info": {"editable": True}}
        (info / "direct_url.json").write_text(json.dumps(url))
        record[0] = f"{name}.pth,,"
    (info / "RECORD").write_text("\n".join(record) + "\n")
    (info / "top_level.txt").write_text(f"{name}\n")
    place = site if code is None else code
    place.mkdir(exist_ok=True)
    (place / f"{name}.py").write_text(f"def scaled(x):\n    return x * {scale}\n")


@pytest.mark.slow
def test_packages(tmp_path: Path) -> None:
    """Another version of an installed package, and another code of one that is edited."""
    site, code, cache = tmp_path / "site-packages", tmp_path / "code", tmp_path / "cache"
    path = script(tmp_path, f"import site\nsite.addsitedir({str(site)!r})\n" + _PACKAGE)

    def found() -> list[tuple[list[float], int, int]]:
        """Starts three times: compiled, on trial, proven."""
        starts = [answer(path, cache, PYTHONDONTWRITEBYTECODE="1") for _ in range(3)]
        return [(one["result"], one["traces"], one["loaded"]) for one in starts]

    def expected(value: float) -> list[tuple[list[float], int, int]]:
        return [([value] * 2, 1, 0), ([value] * 2, 1, 1), ([value] * 2, 0, 1)]

    _install(site, "fjpackage", "1.0", 2.0)
    _install(site, "fjeditable", "1.0", 1.0, code)
    assert found() == expected(3.0)
    _install(site, "fjpackage", "1.1", 4.0)
    assert found() == expected(5.0)
    _install(site, "fjeditable", "1.0", 3.0, code)
    assert found() == expected(7.0)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes are of POSIX")
def test_a_folder_that_others_can_write(tmp_path: Path) -> None:
    """One line of warning, and the program runs as without a cache."""
    path, cache = script(tmp_path, _TRAINS), tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    done = run(path, env=variables(cache), timeout=300)
    assert _last(done.stdout)["traces"] == 3 and files(cache) == []
    (line,) = done.stderr.splitlines()
    assert str(cache) in line and "can be written by other users" in line and "chmod" in line


def test_the_program_cache_is_imported_where_a_folder_is_named(tmp_path: Path) -> None:
    """By `program_cache`, by the environment, or where a function with the option is called, also one that
    was pickled."""
    program = tmp_path / "program.py"
    program.write_text(
        """if True:
        import json, pickle, sys
        import jax.numpy as jnp
        import filterjit

        def double(x):
            return 2 * x

        def imported():
            return "filterjit._aot._program_cache" in sys.modules

        filterjit.filter_jit(double)(jnp.ones(2))
        found = [imported()]
        path, pickled, folder = sys.argv[1:]
        if path == "write":
            with open(pickled, "wb") as f:
                pickle.dump(filterjit.filter_jit(double, program_cache=folder), f)
        elif path == "read":
            with open(pickled, "rb") as f:
                pickle.load(f)(jnp.ones(2))
        elif path == "call":
            filterjit.program_cache(folder).close()
        found.append(imported())
        print(json.dumps(found))
        """
    )

    def started_with(*args: str, cache: Path | None = None) -> Any:
        return json.loads(run(program, *args, env=variables(cache), timeout=300).stdout)

    pickled, folder = str(tmp_path / "pickled"), tmp_path / "cache"
    for path, is_imported in (("write", False), ("read", True), ("call", True)):
        assert started_with(path, pickled, str(folder)) == [False, is_imported], path
    assert len(list(folder.glob("*/*.fjit"))) == 1
    assert started_with("none", "", "", cache=tmp_path / "other") == [True, True]
