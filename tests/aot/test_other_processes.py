"""Several processes: files, JAX's persistent cache, several devices."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.processes import environment, run_code

HERE = Path(__file__).parent

_START = """
import json, sys
import jax, jax.numpy as jnp, numpy as np, equinox as eqx
import aot_zoo, filterjit
from filterjit import filter_jit
folder = sys.argv[1]
answers = {}
hits = []
compiles = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compiles.append(event) if "backend_compile" in event else None)
jax.monitoring.register_event_listener(
    lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None)

def ask(name, question):
    try:
        answers[name] = question()
    except Exception as e:
        answers[name] = type(e).__name__ + ": " + str(e)

def sharded(n, explicit=False):
    kinds = jax.sharding.AxisType
    kind = kinds.Explicit if explicit else kinds.Auto
    mesh = jax.make_mesh((2,), ("a",), axis_types=(kind,))
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
    return jax.device_put(jnp.arange(float(n)), spec)

def save(name, f, *args, **kwargs):
    compiled = filter_jit(f).lower(*args, **kwargs).compile()
    compiled.save(f"{folder}/{name}")
    compiled.save(f"{folder}/{name}.portable", portable=True)
    return jax.tree.map(lambda x: np.asarray(x).tolist(), compiled(*args, **kwargs))

def load(name, *args, **kwargs):
    loaded = filterjit.load(f"{folder}/{name}")
    return jax.tree.map(lambda x: np.asarray(x).tolist(), loaded(*args, **kwargs))

def times(x, n): return x * n
def total(x, n): return x.sum() * n, x * n
model = lambda seed=0: eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(seed))
KINDS = ("", ".portable")
"""
_END = "\nprint('\\n' + json.dumps(answers))\n"


def answers(folder: Path, script: str, devices: int = 1) -> dict[str, Any]:
    """Runs `script` in a new process and returns its answers."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    env = environment([HERE], XLA_FLAGS=flags, TF_CPP_MIN_LOG_LEVEL="3")
    code = _START + script + _END
    done = run_code(code, folder, options=("-W", "error"), env=env, timeout=300)
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def saved(folder: Path) -> dict[str, Any]:
    """Files saved by a process with two devices."""
    return answers(
        folder,
        """
x = jnp.arange(4.0)
ask("times", lambda: save("times", times, x, 3))
ask("layer", lambda: save("layer", aot_zoo.use, {"f": aot_zoo.scale, "m": aot_zoo.layer(x)}, x)[1])
ask("model", lambda: save("model", model(), jnp.ones(2)))
ask("sharded", lambda: save("sharded", total, sharded(4), 2))
ask("explicit", lambda: save("explicit", total, sharded(4, True), 2))
compiled = filter_jit(total).lower(sharded(4), 2).compile()
ask("replicated", lambda: compiled(x, 2)[0].item())
def committed():
    return compiled(jax.device_put(x, jax.devices()[1]), 2)
ask("committed", committed)
spec = jax.ShapeDtypeStruct((4,), jnp.float32, sharding=sharded(4).sharding)
ask("spec", lambda: [*filter_jit(total).lower(spec, 2).compile().input_shardings[0][0].spec])
ask("spec hit", lambda: filter_jit(total).lower(spec, 2).compile()(sharded(4), 2)[0].item())
one = filter_jit(times).lower(x, 2).compile()
ask("second device", lambda: one(jax.device_put(x, jax.devices()[1]), 2).tolist())
second = jax.device_put(x, jax.devices()[1])
ask("on the second", lambda: save("second", times, second, 2))
def called():
    f, y = filter_jit(times), sharded(4) + 1
    f.lower(spec, 5).compile()
    compiles.clear()
    f(y, 5)
    return len(compiles)
ask("a hit", called)
def warmed():
    specs = [spec, jax.ShapeDtypeStruct((4,), jnp.float32), spec]
    return [one.same_as for one in filter_jit(times).warm_up_all([((s, 6), {}) for s in specs]).signatures]
ask("warmed", warmed)
""",
        devices=2,
    )


def test_saving(saved: dict[str, Any]) -> None:
    assert saved["times"] == [0.0, 3.0, 6.0, 9.0]
    assert saved["sharded"] == saved["explicit"] == [12.0, [0, 2, 4, 6]]


def test_wrong_shardings_are_named(saved: dict[str, Any]) -> None:
    text = saved["committed"]
    assert text.startswith("MismatchError") and "`x`: compiled for NamedSharding" in text
    assert "SingleDeviceSharding" in text
    text = saved["second device"]
    assert text.startswith("MismatchError") and "`x`: compiled for" in text
    assert saved["replicated"] == 12.0  # not committed, so JAX moves it, as it does for jax.jit
    assert (saved["spec"], saved["spec hit"]) == (["a"], 12.0)
    assert saved["warmed"] == [None, None, 0]
    assert saved["a hit"] == 0


@pytest.fixture(scope="module")
def loaded(folder: Path, saved: dict[str, Any]) -> dict[str, Any]:
    """Loads in another process, in which the same functions have other globals."""
    return answers(
        folder,
        """
x = jnp.arange(4.0)
for kind in KINDS:
    ask("times" + kind, lambda: load("times" + kind, x, 3))
    ask("other" + kind, lambda: load("times" + kind, x, 4))
    tree = {"f": aot_zoo.scale, "m": aot_zoo.layer(x)}
    ask("layer" + kind, lambda: load("layer" + kind, tree, x)[1])
    ask("model" + kind, lambda: load("model" + kind, jnp.ones(2)))
    ask("sharded" + kind, lambda: load("sharded" + kind, sharded(4), 2))
    ask("explicit" + kind, lambda: load("explicit" + kind, sharded(4, True), 2))
    ask("on the second" + kind, lambda: load("second" + kind, jax.device_put(x, jax.devices()[1]), 2))
    ask("on the first" + kind, lambda: load("second" + kind, x, 2))
    ask("spec" + kind, lambda: [*filterjit.load(f"{folder}/sharded{kind}").output_shardings[1].spec])
    wrong = jax.device_put(x, jax.devices()[1])
    ask("wrong" + kind, lambda: load("sharded" + kind, wrong, 2))
""",
        devices=2,
    )


@pytest.mark.parametrize("kind", ["", ".portable"])
def test_loading_in_another_process(
    kind: str, saved: dict[str, Any], loaded: dict[str, Any]
) -> None:
    for name in ("times", "layer", "model", "sharded", "explicit"):
        assert loaded[name + kind] == saved[name], name
    # An executable runs on the device that it was compiled for, a portable program on the default.
    assert loaded[("on the second" if kind == "" else "on the first") + kind] == [0, 2, 4, 6]
    assert loaded["other" + kind].startswith("MismatchError: `times` was compiled for other")
    assert loaded["spec" + kind] == ["a"]
    assert loaded["wrong" + kind].startswith("MismatchError") and "`x`" in loaded["wrong" + kind]


def test_loading_with_fewer_devices(folder: Path, saved: dict[str, Any]) -> None:
    found = answers(
        folder,
        """
for name in ("times", "sharded", "second"):
    for kind in KINDS:
        ask(name + kind, lambda: load(name + kind, jnp.arange(4.0), 2 + (name == "times")))
ask("info", lambda: filterjit.saved_info(f"{folder}/sharded").devices)
ask("module", lambda: filterjit.load(f"{folder}/layer") and "loaded")
del sys.modules["aot_zoo"]
ask("no module", lambda: filterjit.load(f"{folder}/layer"))
ask("not imported", lambda: "aot_zoo" in sys.modules)
""",
        devices=1,
    )
    assert found["times"] == found["times.portable"] == [0.0, 3.0, 6.0, 9.0]
    for name in ("sharded", "sharded.portable"):
        assert found[name].startswith("ValueError") and "for 2 devices" in found[name]
    text = found["second"]
    assert text.startswith("ValueError") and "for 1 device, numbered [1]; here are 1" in text
    assert found["second.portable"] == [0.0, 2.0, 4.0, 6.0]
    assert (found["info"], found["module"], found["not imported"]) == (2, "loaded", False)
    assert "`aot_zoo` is not imported; import it first" in found["no module"]


_CACHED = """
jax.config.update("jax_compilation_cache_dir", folder + "/cache")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
x = jnp.arange(6.0)
def cached(x, n): return jnp.tanh(x) * n
def count(f, *args):
    hits.clear()
    f(*args)
    return len(hits)
ask("jit", lambda: count(jax.jit(lambda x: jnp.tanh(x) * 5), x))
ask("call", lambda: count(filter_jit(cached), x, 3))
ask("lower", lambda: count(lambda: filter_jit(cached).lower(x, 4).compile()))
ask("other", lambda: count(filter_jit(cached), x, SEED))
ask("save", lambda: save("cached" + str(SEED), cached, x, 9) and "saved")
ask("portable", lambda: filter_jit(cached).lower(x, 9).compile().save(folder + "/p", portable=True))
ask("load", lambda: load("p", x, 9))
"""


def test_the_persistent_cache(tmp_path: Path) -> None:
    """A process finds what another process compiled, as with jax.jit."""
    first = answers(tmp_path, "SEED = 10" + _CACHED)
    second = answers(tmp_path, "SEED = 11" + _CACHED)
    assert [first[name] for name in ("jit", "call", "lower", "other")] == [0, 0, 0, 0]
    assert [second[name] for name in ("jit", "call", "lower", "other")] == [1, 1, 1, 0]
    assert first["save"] == "saved"
    text = second["save"]  # XLA cannot serialize an executable that it deserialized
    assert "persistent compilation cache" in text and "portable=True" in text
    assert second["portable"] is None and second["load"] == first["load"]
