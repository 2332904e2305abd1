"""Runs in several processes with two devices each: ``distributed.py PORT INDEX COUNT CHECK [FOLDER]``."""

import enum
import functools
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
)

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import filterjit
from filterjit import filter_jit
from filterjit._aot._file import info_of
from filterjit._compat import _executable_compat, _jax_compat
from filterjit.sharding import ShardingRules, fsdp, place
from support.threads import at_once

port, index, count, check = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
jax.distributed.initialize(f"localhost:{port}", count, index)
assert jax.process_count() == count and jax.device_count() == 2 * count
MESH = jax.make_mesh((2 * count,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
RULES = ShardingRules({"**.weight": fsdp("data"), ...: P()})
sharded = functools.partial(filter_jit, in_shardings={"x": P("data")}, mesh=MESH)


def made(offset: float = 0) -> Any:
    return place(np.arange(8.0 * count, dtype=np.float32) + np.float32(offset), P("data"), MESH)


def make_model() -> Any:
    return eqx.nn.MLP(8, 8, 16, depth=2, key=jax.random.key(0))


def check_place() -> None:
    """Each process has the same tree on its host, and its devices receive their parts."""
    whole = make_model()
    for tree in (whole, jax.tree.map(lambda x: np.asarray(x) if eqx.is_array(x) else x, whole)):
        model = place(tree, RULES, MESH)
        for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(tree), strict=True):
            if eqx.is_array(a):
                for shard in a.addressable_shards:
                    np.testing.assert_array_equal(shard.data, np.asarray(b)[shard.index])
        assert model.layers[0].weight.addressable_shards[0].data.shape == (16 // (2 * count), 8)
    again = place(model, P(), MESH)
    np.testing.assert_array_equal(again.layers[0].weight, whole.layers[0].weight)


def error_of(f: Any, *args: Any, **kwargs: Any) -> tuple[BaseException | None, float]:
    """Returns what a call raises, and how long it takes."""
    start = time.monotonic()
    try:
        f(*args, **kwargs)
    except BaseException as e:
        return e, time.monotonic() - start
    return None, time.monotonic() - start


def raised(f: Any, *args: Any, within: float = 20) -> str:
    error, seconds = error_of(f, *args)
    assert isinstance(error, filterjit.ProcessMismatchError), error
    assert seconds < within, (seconds, error)
    return str(error)


class Config:
    pass


class Shown:
    """A value with a hash of its own, whose text has an address."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Shown({self.value!r}, at={object.__repr__(self)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shown) and self.value == other.value

    def __hash__(self) -> int:
        return 0


class Flags(enum.IntFlag):
    A = 1


def check_nothing_is_left() -> None:
    """The store has no key of what is not agreed."""
    multihost_utils.sync_global_devices("all waits have ended")
    client = _jax_compat.coordination_client()
    keys = [key for key, _ in client.key_value_dir_get_bytes("filterjit/")]
    assert not [key for key in keys if "/agreed/" not in key], keys


def check_disagree() -> None:
    x = made()
    f = sharded(lambda x, config: x * config["scale"] + config.get("new", 0))
    f(x, {"scale": 2.0, "name": "a"})
    f(x, {"scale": 2.0, "name": "a"})
    text = raised(f, x, {"scale": 5.0 + (index == 1), "name": "a"})
    assert "process 1 and process 0" in text and text.count("runs the program ") == count, text
    assert "dense<5.0" in text and "dense<6.0" in text, text
    assert "different programs of `check_disagree.<locals>.<lambda>`" in text, text
    assert "`config['scale']` is 5.0 on process 0, 6.0 on process 1" in text, text
    f(x, {"scale": 4.0, "name": "a"})  # all goes on
    last = count - 1
    text = raised(f, x, {"scale": 7.0, "name": "a", **({"new": 1} if index == last else {})})
    assert f"process {last} and process 0" in text and f" on process {last}" in text, text
    f(x, {"scale": 8.0, "name": str(index)})  # which the program does not use
    assert raised(f, x, {"scale": 10.0 + index})
    # What is passed, captured or a default.
    checked = functools.partial(filter_jit, same_on_all_processes=True)
    g = checked(lambda x, number, *static: x + number(*static))
    for number, *static in (
        (lambda s: len(s.value), Shown(frozenset("abc"[: 2 + (index == 1)]))),
        (lambda f: f(jnp.ones((2, 3))).shape[0], functools.partial(jnp.sum, axis=index == 1)),
        (int, Flags(8 + (index == 1))),
        (lambda s: len(s.__name__), [Config, Shown][index == 1]),
    ):
        assert raised(g, x, number, *static)
    text = raised(checked(lambda x, f: f(x)), x, [jnp.sin, jnp.cos][index == 1])
    assert "sine" in text and "cosine" in text, text
    assert "dense<3.0" in raised(checked([lambda x: x * 3, lambda x: x * 2][index == 1]), x)
    scale = 1.0 + (index == 1)
    inner, other = (lambda x: x * scale), (lambda x: x * 7)
    assert raised(checked(lambda x, *, by=scale: x * by), x)
    for make in (jax.jit, jax.checkpoint, functools.partial, jax.vmap, lambda f: f):
        wrapped, same = make(inner), make(other)
        assert raised(checked(lambda x, f=wrapped: f(x)), x)
        checked(lambda x, f=same: f(x))(x)
    # What a program does not use, or what is the same in it: a logger or a file may be another one.
    with open(__file__ if index else sys.executable, "rb") as here:
        checked(lambda x: (here.name, x * 2)[1])(x)
    held = logging.getLogger(str(index)), threading.Lock(), Path(str(index)), Shown(index), Config()
    k = checked(lambda x, *static: (held, x - 1)[1])
    k(x, *held)
    k(x, {str(index): index}, frozenset("abcdef"))
    sharded(lambda x, n: x, same_on_all_processes=False)(x, index)
    # Programs that each process runs on devices of its own.
    local = jax.make_mesh((2,), ("data",), devices=jax.local_devices())
    alone = filter_jit(lambda x, n: x + n, in_shardings={"x": NamedSharding(local, P("data"))})
    assert float(np.asarray(alone(jnp.ones(2), index))[0]) == 1 + index
    beside = checked(lambda x, n: x * n)
    for y in (jnp.ones(2), np.ones(3), jax.device_put(jnp.ones(2), jax.local_devices()[1])):
        assert float(np.asarray(beside(y, 3))[0]) == 3
        assert "different programs" in raised(beside, y, 4 + index)
    # A JAX that does not tell what a program is compiled with.
    _executable_compat.lowered_facts = lambda lowered: None
    f(x, {"scale": 30.0, "name": str(index)})
    assert "dense<3.2" in raised(f, x, {"scale": 31.0 + (index == 1)})
    check_nothing_is_left()


NUMBER = 1.0


def check_programs() -> None:
    """A program that is another one in two of four processes is an error in all of them."""
    global NUMBER
    x = made()
    odd = index % 2
    NUMBER = number = 1.0 + odd
    words = ["a", "bc", "def", "ghij", "klmno", "pqrstu", "vwxyzab", "cdefghij", "klmnopqrs"]
    table = np.arange(8.0 * count, dtype=np.float32)
    table[3] += odd

    def in_order(x: Any) -> Any:
        for word in frozenset(words):
            x = x * 2 + len(word)
        return x

    def sums(x: Any) -> Any:
        a, b = jnp.sum(x), jnp.max(x)
        return (a, b) if odd else (b, a)

    for what, f, texts in (
        ("a global", sharded(lambda x: x * NUMBER), ["dense<1.0", "dense<2.0"]),
        ("a closure", sharded(lambda x: x * 3 + number), ["dense<1.0", "dense<2.0"]),
        ("hash seeds", sharded(in_order), ["different programs"]),
        ("a constant", sharded(lambda x: x + table), ["dense<"]),
        ("kept", sharded(lambda x, y=None: (x if odd else y) - 5), ["kept_var_idx"]),
        ("weak", sharded(lambda x: (x, jnp.asarray(1.0) if odd else jnp.float32(1))),
         ["global_out_avals", "weak_type=True"]),
        ("donated", sharded(lambda x: x + 4, donate="all" if odd else "none"), []),
        ("placed", sharded(lambda x: x + 5, out_shardings=[P(), P("data")][odd]), []),
        ("options", sharded(lambda x: x + 6, compiler_options={
            "xla_cpu_enable_fast_math": bool(odd)}), ["xla_cpu_enable_fast_math"]),
        ("collectives", sharded(sums), []),
        ("shapes", sharded(lambda x: x[: 4 + odd].sum()), []),
    ):  # fmt: skip
        args = (x, x) if what == "kept" else (x,)
        text = raised(f, *args)
        assert "processes 1, 3 and process 0" in text or what == "hash seeds", (what, text)
        assert " on process 0, " in text and all(part in text for part in texts), (what, text)
        assert not x.is_deleted(), what
        if what == "a global":
            assert raised(f, *args) == text  # and again
    y = place(np.zeros(32 * (1 + odd), np.float32), P("data"), MESH)
    text = raised(sharded(lambda x: x * 2), y)
    assert "32" in text and "64" in text, text
    # What gives the same program agrees.
    traces: list[int] = []

    def step(x: Any, name: Any) -> Any:
        traces.append(1)
        jax.debug.callback(lambda y: None, x[0])  # its effect is shown by its address
        return x * 9, jnp.sum(x)

    lowered: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: lowered.append(name)
    )
    for own in ({}, {"out_shardings": P()}, {"donate": "all-except-first"}):
        f = sharded(step, **own)
        for name in (index, f"{index}", frozenset(words), len(words)):
            f(x, name)
            f(x, name)
            assert len(traces) == 1, (own, len(traces))  # before the comparison, and never again
            count_lowered = sum("jaxpr_to_mlir" in name for name in lowered)
            assert count_lowered <= 2, lowered
            traces.clear()
            lowered.clear()
    # Programs that depend on shapes, of one variant.
    rules = ShardingRules({...: fsdp("data", min_size=0)})
    f = filter_jit(lambda x: x + 11, in_shardings={"x": rules}, out_shardings=rules, mesh=MESH)
    for shape in ((8 * count,), (3,), (8, 8), (5, 3), (8 * count,), (3,), (8, 8)):
        out = f(place(np.ones(shape, np.float32), rules, MESH))
        np.testing.assert_array_equal(
            np.asarray(out.addressable_data(0)).ravel()[0], 12, err_msg=str(shape)
        )
    check_nothing_is_left()


def check_raises() -> None:
    """A process whose trace raises tells the others, and raises its own error."""
    x = made()

    def fails(x: Any, n: int, error: Any) -> Any:
        if error is not None:
            raise error
        return jnp.sum(x) + n

    for own in ({}, {"out_shardings": P()}):
        f = sharded(fails, **own)
        for n, who in enumerate(([1], [0], [count - 1], list(range(1, count)))):
            e, seconds = error_of(f, x, n, Shown(1) if index in who else None)
            assert seconds < 20, (n, seconds)
            if index in who:
                assert isinstance(e, TypeError) and "BaseException" in str(e), e
            else:
                assert isinstance(e, filterjit.ProcessMismatchError), e
                assert f"process {who[0]} raises TypeError: exceptions must derive" in str(e), e
            f(x, 100 + n, None)  # all goes on
        for n in range(20):  # it is quick where all raise the same
            e, seconds = error_of(f, x, n, ValueError)
            assert type(e) is ValueError and seconds < 5, (e, seconds)
        e, seconds = error_of(f, x, 50, [KeyError, ValueError][index % 2])
        assert type(e) is [KeyError, ValueError][index % 2] and seconds < 20, (e, seconds)
        f(x, 200, None)
        # What stops the process tells nobody: it comes again, or others wait for too long.
        if index == 1:
            e, seconds = error_of(f, x, 60, KeyboardInterrupt)
            assert type(e) is KeyboardInterrupt and seconds < 5, (e, seconds)
        f(x, 60, None)
    # Of different programs, and an error in a third process.
    if count > 2:
        e, _ = error_of(f, x, 70 + index, ValueError if index == 1 else None)
        if index == 1:
            assert type(e) is ValueError, e
        else:
            assert "process 1 raises ValueError" in str(e), e
            assert "dense<7.0" in str(e) and "dense<7.2" in str(e), e

    # A trace that is refused on one process.
    def refuse(explanation: Any) -> None:
        if index == 1:
            raise filterjit.RetraceError(str(explanation))

    k = sharded(lambda x, n: x * n, on_retrace=refuse)
    k(x, 1)
    e, _ = error_of(k, x, 2)
    if index == 1:
        assert isinstance(e, filterjit.RetraceError), e
    else:
        assert isinstance(e, filterjit.ProcessMismatchError), e
        assert "process 1 raises filterjit" in str(e) and "compiles again" in str(e), e
    # Rules that raise on one process.
    rules = ShardingRules({"**": lambda x, mesh: P("data") if index != 1 else P("data", "data")})
    r = filter_jit(lambda tree: tree["a"] + 1, in_shardings={"tree": rules}, mesh=MESH)
    e, seconds = error_of(r, {"a": x})
    assert isinstance(e, ValueError if index == 1 else filterjit.ProcessMismatchError), e
    assert seconds < 20, seconds
    f(x, 300, None)
    check_nothing_is_left()


def check_threads() -> None:
    """Threads that come in another order in each process agree; their programs have no
    collectives, whose order would matter."""
    x = made()
    f = sharded(lambda x, n: x * n)
    # One thread of each process traces for longer than waits are judged in, while the other waits.
    os.environ["TRACE_1"], os.environ["TRACE_2"] = ("6", "0") if index else ("0", "6")

    def slow(x: Any, n: int) -> Any:
        time.sleep(float(os.environ[f"TRACE_{n}"]))
        return x + n

    g = sharded(slow)

    def call_both(i: int) -> None:
        g(x, i + 1)
        f(x, i + 1)

    assert at_once(2, call_both) == [None, None]
    assert "different programs" in raised(f, x, 100 + index)
    f(x, 200)


def check_absent() -> None:
    """A process that does not come: the others raise when the time is over."""
    x = made()
    f = sharded(lambda x: x)
    if index != 1:
        assert "have not come to do the same in 3 seconds" in raised(f, x)
    else:
        time.sleep(6)


def check_hits(who: int) -> None:
    """One process hits, and waits in its program. The others compile another one."""
    x = made()
    f = sharded(lambda x, n: jnp.sum(x * n))
    for _ in range(30):
        float(f(x, 3))
    float(f(x, 3 if index == who else 4))
    raise AssertionError("it came to a result")


def check_files() -> None:
    """Each process saves and loads a file of its own."""
    folder = sys.argv[5]
    model, x = make_model(), np.arange(64.0 * count, dtype=np.float32).reshape(-1, 8)
    f = filter_jit(
        lambda model, x: jax.vmap(model)(x),
        in_shardings={"model": RULES, "x": P("data")}, out_shardings=P("data"), mesh=MESH,
    )  # fmt: skip
    placed = place(model, RULES, MESH), place(x, P("data"), MESH)
    expected = [np.asarray(s.data) for s in f(*placed).addressable_shards]
    assert f.save(f"{folder}/executable.{index}") == 1
    multihost_utils.sync_global_devices("saved")
    info = info_of(f"{folder}/executable.{index}")
    assert info["process"] == [index, count] and f"process {index} of {count}" in info["text"]
    y = filterjit.load(f"{folder}/executable.{index}")(*placed)
    for shard, whole in zip(y.addressable_shards, expected, strict=True):
        np.testing.assert_array_equal(shard.data, whole)
    beside = (index + 1) % count
    e, _ = error_of(filterjit.load, f"{folder}/executable.{beside}")
    text = f"the file of process {beside} of {count}, and this is process {index}"
    assert isinstance(e, ValueError) and text in str(e), e
    # A program of one process runs on devices of its own.
    alone = filter_jit(lambda x: x * 2)
    alone.warm_up(jax.ShapeDtypeStruct((4,), jnp.float32))
    alone.save(f"{folder}/alone.{index}")
    local = filterjit.load(f"{folder}/alone.{index}")
    assert local(np.ones(4, np.float32)).devices() == {jax.local_devices()[0]}
    multihost_utils.sync_global_devices("alone")
    e, _ = error_of(filterjit.load, f"{folder}/alone.{beside}")
    assert isinstance(e, ValueError), e
    assert f"the processes [{index}], and belong to [{beside}]" in str(e), e


if check == "hits":
    check_hits(int(sys.argv[5]))
globals()[f"check_{check}"]()
if check == "absent":
    time.sleep(10 if index == 0 else 0)  # the coordination service lives in the first one
    print("passed", flush=True)
    os._exit(0)
multihost_utils.sync_global_devices("done")
print("passed", flush=True)
