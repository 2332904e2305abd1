"""Several processes: files, JAX's persistent cache, several devices, large constants, and functions
that only a process registers."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aot_zoo  # noqa: F401 (a file names it)
import jax
import jax.numpy as jnp
import pytest
from aot_support import HERE

import filterjit
from filterjit._aot._file import info_of
from support.processes import environment, run_code

_START = """
import json, sys
import jax, jax.numpy as jnp, numpy as np, equinox as eqx
from jax.experimental import sparse
import aot_zoo, filterjit
from filterjit import filter_jit
folder = sys.argv[1]
answers, hits = {}, []
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

def lists(tree):
    return [x.tolist() for x in jax.tree.leaves(tree) if eqx.is_array(x)]

def save(name, f, *args):
    f = f if hasattr(f, "lower") else filter_jit(f)
    with jax.enable_x64(name == "wide"):
        expected = lists(f(*args))
    f.save(f"{folder}/{name}")
    # `jax.export` refuses these, and a portable file has the setting of `lower`
    if name not in ("registered", "others", "sharded", "explicit", "wide"):
        f.lower(*args).save(f"{folder}/{name}.portable")
    return expected

def load(name, *args):
    loaded = filterjit.load(f"{folder}/{name}")
    with jax.enable_x64(name == "wide"):
        return lists(loaded(*args)) + [True for x in args if isinstance(x, jax.Array) and x.is_deleted()]

def times(x, n): return x * n
def lapack(a): return jnp.linalg.cholesky(a), jnp.linalg.svd(a), jnp.linalg.eigh(a), jnp.linalg.qr(a)
def others(a, v):
    both = sparse.BCSR((v, jnp.arange(3), jnp.arange(4)), shape=(3, 3)) @ a
    return both, jnp.abs(jnp.fft.fft2(a)), jax.lax.top_k(v, 2), jnp.sort(a), jax.random.normal(KEY, (3,))
def total(x, n): return x.sum() * n, x * n
def register():
    from jaxlib.lapack import registrations
    (f,) = [f for name, f, _ in registrations()["cpu"] if name == "lapack_spotrf_ffi"]
    jax.ffi.register_ffi_target("filterjit_test", f)
def registered(x):
    call = jax.ffi.ffi_call("filterjit_test", (x, jax.ShapeDtypeStruct((), "int32")))
    return jnp.linalg.cholesky(x) + call(x, uplo=np.uint8(ord("L")))[0]

x = jnp.arange(4.0)
a = np.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]], np.float32)
KEY = jax.random.key(0)
def second(): return jax.device_put(x, jax.devices()[1])
CASES = {
    "lapack": lambda: (lapack, a),
    "others": lambda: (others, a, a[0]),
    "times": lambda: (times, x, 3),
    "layer": lambda: (aot_zoo.use, {"f": aot_zoo.scale, "m": aot_zoo.layer(x)}, x),
    "model": lambda: (eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), jnp.ones(2)),
    "sharded": lambda: (total, sharded(4), 2),
    "explicit": lambda: (total, sharded(4, True), 2),
    "second": lambda: (times, second(), 2),
    "registered": lambda: (registered, jnp.diag(x + 1)),
    "named": lambda: (aot_zoo.use, {"p": aot_zoo.Loose(x, 1), "e": aot_zoo.Colour.RED}, x),
    "weak": lambda: (times, jnp.asarray(0.1), 3),
    "wide": lambda: (times, np.asarray([0.1, 1 / 3]), 3),
    "donated": lambda: (filter_jit(times, donate="all"), x + 0.1, 3),
}
KINDS = ("", ".portable")
"""
_END = "\nprint('\\n' + json.dumps(answers))\n"


def answers(folder: Path, script: str, devices: int = 1, **variables: str) -> dict[str, Any]:
    """Runs `script` in a new process and returns its answers."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    env = environment([HERE], XLA_FLAGS=flags, TF_CPP_MIN_LOG_LEVEL="3", **variables)
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
    script = """
register()
for name, case in CASES.items():
    ask(name, lambda: save(name, *case()))
compiled = filter_jit(total).lower(sharded(4), 2).compile()
ask("replicated", lambda: compiled(x, 2)[0].item())
ask("committed", lambda: compiled(second(), 2))
spec = jax.ShapeDtypeStruct((4,), jnp.float32, sharding=sharded(4).sharding)
of_spec = filter_jit(total).lower(spec, 2).compile()
ask("spec", lambda: [*of_spec.input_shardings[0][0].spec, of_spec(sharded(4), 2)[0].item()])
one = filter_jit(times).lower(x, 2).compile()
ask("second device", lambda: one(second(), 2).tolist())
def of_no_sharding():  # XLA chooses that of an argument
    sharding = sharded(4).sharding
    f = lambda x, y: jax.lax.with_sharding_constraint(x, sharding) + y.sum()
    f = filter_jit(f)
    f.warm_up(x, jnp.ones(3))
    f.save(f"{folder}/chosen")
    return filterjit.load(f"{folder}/chosen")(x, jnp.ones(3)).tolist()
ask("of no sharding", of_no_sharding)
"""
    return answers(folder, script, devices=2)


def test_saving(saved: dict[str, Any]) -> None:
    assert saved["times"] == [[0.0, 3.0, 6.0, 9.0]]
    assert saved["sharded"] == saved["explicit"] == [12.0, [0, 2, 4, 6]]
    assert saved["spec"] == ["a", 12.0]
    assert saved["of no sharding"] == [3, 4, 5, 6]


def test_wrong_shardings_are_named(saved: dict[str, Any]) -> None:
    assert saved["replicated"] == 12.0  # not committed, so JAX moves it, as it does for jax.jit
    for text, words in (
        (saved["committed"], "`x`: compiled for NamedSharding"),
        (saved["second device"], "`x`: compiled for"),
    ):
        assert text.startswith("MismatchError") and words in text and "SingleDeviceShard" in text


@pytest.fixture(scope="module")
def loaded(folder: Path, saved: dict[str, Any]) -> dict[str, Any]:
    """Loads in another process, in which the same functions have other globals."""
    script = """
ask("lapack first", lambda: load("lapack", a))  # before this process lowers such a call
ask("not registered", lambda: load("registered", jnp.diag(x + 1)))
register()
for kind in KINDS:
    for name, case in CASES.items():
        ask(name + kind, lambda: load(name + kind, *case()[1:]))
    ask("other" + kind, lambda: load("times" + kind, x, 4))
    ask("on the first" + kind, lambda: load("second" + kind, x, 2))
ask("wrong", lambda: load("sharded", second(), 2))
ask("strong", lambda: load("weak", jnp.asarray(0.1, "float32"), 3))
ask("blue", lambda: load("named", {"p": aot_zoo.Loose(x, 1), "e": aot_zoo.Colour.BLUE}, x))
"""
    return answers(folder, script, devices=2)


@pytest.mark.parametrize("kind", ["", ".portable"])
def test_loading_in_another_process(
    kind: str, saved: dict[str, Any], loaded: dict[str, Any]
) -> None:
    names = ["times", "layer", "model", "lapack", "named", "weak", "donated"]
    if not kind:
        names += ["sharded", "explicit", "others", "wide"]
    for name in names:
        assert loaded[name + kind] == saved[name] + [True] * (name == "donated"), name
    # An executable runs on the device that it was compiled for, a portable program on the default.
    assert loaded[("second" if kind == "" else "on the first") + kind] == [[0, 2, 4, 6]]
    assert loaded["other" + kind].startswith("MismatchError: `times` was compiled for other")
    for name, path in (("wrong", "x"), ("strong", "x"), ("blue", "tree['e']")):
        assert loaded[name].startswith("MismatchError") and f"`{path}`" in loaded[name]


def test_functions_outside_of_a_program(saved: dict[str, Any], loaded: dict[str, Any]) -> None:
    """Such as LAPACK's, in a process that has lowered no call of them."""
    assert loaded["lapack first"] == saved["lapack"] and len(saved["lapack"]) == 8


def test_a_function_that_a_process_registers(saved: dict[str, Any], loaded: dict[str, Any]) -> None:
    assert loaded["registered"] == saved["registered"] != []
    assert "`filterjit_test`, which is not registered in this process" in loaded["not registered"]


def test_loading_with_fewer_devices(
    folder: Path, saved: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, which has one."""
    x = jnp.arange(4.0)
    assert filterjit.load(folder / "times.portable")(x, 3).tolist() == saved["times"][0]
    for name, what in (
        ("sharded", "is a program for 2 devices"),
        ("second", r"is a program for 1 device, numbered \[1\]; here are 1"),
        ("times", "is an executable for XLA_FLAGS '.*--xla_force_host_platform_device_count=2'"),
    ):
        with pytest.raises(ValueError, match=f"{name}` cannot be loaded: it {what}"):
            filterjit.load(folder / name)
    assert filterjit.load(folder / "second.portable")(x, 2).tolist() == [0.0, 2.0, 4.0, 6.0]
    assert info_of(str(folder / "sharded"))["devices"] == 2
    assert filterjit.load(folder / "layer.portable")
    monkeypatch.delitem(sys.modules, "aot_zoo")
    with pytest.raises(ValueError, match="`aot_zoo` is not imported; import it first"):
        filterjit.load(folder / "layer.portable")
    assert "aot_zoo" not in sys.modules


@pytest.mark.slow
@pytest.mark.parametrize("lacking", ["", "jax._src.compiler", "jax._src.compilation_cache"])
def test_the_persistent_cache(lacking: str, tmp_path: Path) -> None:
    """A process finds what another process compiled, as with jax.jit. It saves the bytes of JAX's
    cache, or if JAX lacks a private name, compiles again."""
    script = """
from filterjit._compat import _private
private = _private.private
_private.private = lambda module, *names: None if module == LACKING else private(module, *names)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
x = jnp.arange(6.0)
def cached(x, n): return jnp.sort(jnp.tanh(x)) * n
def count(f, *args):
    hits.clear()
    f(*args)
    return len(hits)
ask("jit", lambda: count(jax.jit(lambda x: jnp.tanh(x) * 5), x))
ask("call", lambda: count(filter_jit(cached), x, 3))
ask("lower", lambda: count(lambda: filter_jit(cached).lower(x, 4).compile()))
ask("other", lambda: count(filter_jit(cached), x, SEED))
report = filter_jit(cached).report()
(row,) = report.as_dict()["functions"]
ask("report", lambda: [row["compiles"], row["from_disk"], "from disk" in str(report)])
ask("save", lambda: save("cached" + str(SEED), cached, x, 9) and "saved")
ask("load", lambda: load("cached" + str(SEED), x, 9))
"""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    cache["JAX_ENABLE_COMPILATION_CACHE"] = "true"  # off in the tests of this folder
    first, second = (
        answers(tmp_path, f"SEED, LACKING = {seed}, {lacking!r}{script}", **cache)
        for seed in (10, 11)
    )
    assert [first[name] for name in ("jit", "call", "lower", "other")] == [0, 0, 0, 0]
    assert [second[name] for name in ("jit", "call", "lower", "other")] == [1, 1, 1, 0]
    assert first["report"] == [3, 0, False] and second["report"] == [3, 2, True]
    assert first["save"] == second["save"] == "saved"
    assert second["load"] == first["load"]
    third = answers(tmp_path, 'ask("load", lambda: load("cached11", jnp.arange(6.0), 9))')
    assert third["load"] == first["load"]


@pytest.mark.slow
@pytest.mark.parametrize("here", "01")
@pytest.mark.parametrize("there", "01")
def test_large_constants(here: str, there: str, tmp_path: Path) -> None:
    """Also where JAX keeps them outside the executable."""
    if here == "1" and jax.__version_info__ < (0, 10):
        pytest.skip("JAX 0.9 does not tell the shardings of such a program: `save` refuses it")
    save = """
big = jnp.arange(90_000.0).reshape(300, 300) / 90_000
model = {"big": big, "bias": jnp.arange(300.0), "one": jnp.asarray(2.0), "half": big.astype("bfloat16")}
def predict(model, x):
    return (model["big"] @ x + model["bias"]) * model["one"] + model["half"].sum().astype("float32")
serve = filter_jit(lambda x: predict(model, x))
ask("it", lambda: sum(save("it", serve, jnp.ones(300))[0]))
"""
    load = """
for kind in KINDS:
    loaded = filterjit.load(f"{folder}/it{kind}")
    ask(kind, lambda: [float(loaded(jnp.ones(300)).sum()) for _ in range(2)])
"""
    name = "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS"
    saved = answers(tmp_path, save, **{name: here})
    loaded = answers(tmp_path, load, **{name: there})
    assert loaded[".portable"] == pytest.approx([saved["it"]] * 2)
    if here == there:
        assert loaded[""] == pytest.approx([saved["it"]] * 2)
    else:  # a setting of the trace
        assert "MismatchError" in loaded[""] and name.lower() in loaded[""]
