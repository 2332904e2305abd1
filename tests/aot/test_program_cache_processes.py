"""The program cache in several processes: on several devices, run by a command, imported.

`test_program_cache_proofs.py` has four processes at once, `test_store.py` those that are killed.
"""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from aot_support import Program

from support.processes import run

# Prints what `main` returns, and how often the function was traced and loaded.
_RUNS = """
import json, os, sys, types
import equinox as eqx
import jax, jax.numpy as jnp, numpy as np
import filterjit
from filterjit import filter_jit

{source}

result = main()
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


class Answers(Program):
    def __init__(self, folder: Path, source: str, *command: str) -> None:
        super().__init__(folder, _RUNS.format(source=source))
        self.command = command

    def answer(self, *options: str, **variables: str) -> tuple[Any, int, int]:
        """Returns the result of a start, how often it traced, and how many programs it loaded."""
        output, said = self.start(*self.command, *options, **variables)
        assert said == ""
        return _last(output)

    def plain(self, **variables: str) -> Any:
        return self.answer(FILTERJIT_PROGRAM_CACHE="", **variables)[0]


def _last(output: str) -> tuple[Any, int, int]:
    found = json.loads(output.splitlines()[-1])
    return found["result"], found["traces"], found["loaded"]


def test_a_program_that_is_started_again(tmp_path: Path) -> None:
    """By ``python -m filterjit run``, with equinox.filter_jit, and after an edit."""
    source = _TRAINS.replace("@filter_jit", "@eqx.filter_jit")
    one = Answers(tmp_path, source, "-m", "filterjit", "run")
    cache = "--program-cache", str(tmp_path / "of the command")
    expected = one.plain()
    for traces, loaded in ((3, 0), (3, 3), (0, 3)):
        assert one.answer(*cache) == (expected, traces, loaded)
    assert one.answer(*cache, "--trust", "never") == (expected, 3, 3)
    one.path.write_text(one.path.read_text().replace("-0.1", "-0.2"))
    assert one.answer(*cache) == (one.plain(), 3, 0) != (expected, 3, 0)
    assert not one.cache.exists()


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
    eight, four = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
        for count in (8, 4)
    )
    one = Answers(tmp_path, _SHARDED)
    expected = one.plain(XLA_FLAGS=eight)
    assert expected[:2] == [list(range(8)), True]
    for traces, loaded in ((2, 0), (2, 2), (0, 2)):
        assert one.answer(XLA_FLAGS=eight) == (expected, traces, loaded)
    result, traces, _ = one.answer(XLA_FLAGS=four)
    assert result[:2] == [list(range(4)), True] and traces == 2
    assert one.answer(XLA_FLAGS=eight) == (expected, 0, 2)


_DISTRIBUTED = """
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
    one = Answers(tmp_path, _DISTRIBUTED)
    for _ in range(2):
        with socket.socket() as s:
            s.bind(("localhost", 0))
            port = str(s.getsockname()[1])
        for output, _ in one.starts([{"PORT": port, "PROCESS": process} for process in "01"]):
            assert _last(output) == (12.0, 1, 0)
    assert list(one.cache.rglob("*.fjit")) == []


_IMPORTS = """
import pickle, sys
import jax.numpy as jnp
import filterjit

def double(x):
    return 2 * x

def imported():
    return "filterjit._aot._program_cache" in sys.modules

filterjit.filter_jit(double)(jnp.ones(2))
found = [imported()]
how, folder = sys.argv[1:]
if how == "write":
    with open(folder + ".pickle", "wb") as f:
        pickle.dump(filterjit.filter_jit(double, program_cache=folder), f)
elif how == "read":
    with open(folder + ".pickle", "rb") as f:
        pickle.load(f)(jnp.ones(2))
elif how == "call":
    filterjit.program_cache(folder).close()
print(*found, imported())
"""


def test_the_program_cache_is_imported_where_a_folder_is_named(tmp_path: Path) -> None:
    """By `program_cache`, by the environment, or where a function with the option is called, also one that
    was pickled."""
    folder = tmp_path / "folder"
    one = Program(tmp_path, _IMPORTS)
    for how, cache, expected in (
        ("write", "", "False False"),
        ("read", "", "False True"),
        ("call", "", "False True"),
        ("none", str(tmp_path / "other"), "True True"),
    ):
        env = one.variables(FILTERJIT_PROGRAM_CACHE=cache)
        assert run(one.path, how, folder, env=env, timeout=300).stdout.strip() == expected, how
    assert len(list(folder.glob("*/*.fjit"))) == 1
