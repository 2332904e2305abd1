"""The program cache in programs that are started again."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, os, sys
import equinox as eqx
import jax
import jax.numpy as jnp
import {module} as jitting

class Model(eqx.Module):
    layers: list
    act: object = eqx.field(static=True)
    names: frozenset = eqx.field(static=True)

    def __call__(self, x):
        for layer in self.layers:
            x = self.act(layer(x))
        return x

@jitting.filter_jit
def step(model, x):
    loss, grads = eqx.filter_value_and_grad(lambda m: jnp.sum(jax.vmap(m)(x) ** 2))(model)
    return eqx.apply_updates(model, jax.tree_util.tree_map(lambda g: -0.1 * g, grads)), loss

keys = jax.random.split(jax.random.key(0), 3)
model = Model([eqx.nn.Linear(4, 4, key=k) for k in keys], lambda x: jnp.tanh(x), frozenset("abcdef"))
x = jnp.ones((8, 4))
{place}
losses = []
for _ in range(20):
    model, loss = step(model, x)
    losses.append(float(loss))
import filterjit
(row,) = [f for f in filterjit.report().as_dict()["functions"] if f["name"].endswith("step")]
print(json.dumps([losses, row["traces"], row["loaded"], row["remarks"]]))
"""


def start(*argv: str, **variables: str) -> Any:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"} | variables
    done = subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[-1])


def write(path: Path, module: str = "filterjit", place: str = "") -> str:
    path.write_text(PROGRAM.format(module=module, place=place))
    return str(path)


def test_a_program_that_is_started_again(tmp_path: Path) -> None:
    program = write(tmp_path / "train.py")
    folder = str(tmp_path / "cache")
    first, second, third = (start(program, FILTERJIT_PROGRAM_CACHE=folder) for _ in range(3))
    assert [one[1:3] for one in (first, second, third)] == [[1, 0], [1, 1], [0, 1]]
    assert first[0] == second[0] == third[0]
    Path(program).write_text(Path(program).read_text().replace("-0.1", "-0.2"))
    edited = start(program, FILTERJIT_PROGRAM_CACHE=folder)
    without = start(program)
    assert edited[1:3] == without[1:3] == [1, 0] and edited[0] == without[0] != first[0]


def test_the_command_run(tmp_path: Path) -> None:
    program = write(tmp_path / "train.py", module="equinox")
    argv = ["-m", "filterjit", "run", "--program-cache", str(tmp_path / "cache")]
    first, second, third = (start(*argv, program) for _ in range(3))
    assert [one[1:3] for one in (first, second, third)] == [[1, 0], [1, 1], [0, 1]]
    assert first[0] == second[0] == third[0]
    assert start(*argv, "--trust", "never", program)[1:3] == [1, 1]


@pytest.mark.thorough
def test_eight_devices(tmp_path: Path) -> None:
    place = """
mesh = jax.make_mesh((8,), ("d",))
def put(x, *spec):
    return jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)))
x = put(x, "d")
model = jax.tree_util.tree_map(put, model)
"""
    program = write(tmp_path / "train.py", place=place)
    variables = {
        "FILTERJIT_PROGRAM_CACHE": str(tmp_path / "cache"),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    first, second, third = (start(program, **variables) for _ in range(3))
    # The second call takes the results of the first, which are placed in another way.
    assert third[0] == second[0] == first[0]
    assert [one[1:3] for one in (first, second, third)] == [[1, 0], [1, 2], [0, 2]]
    four = variables | {"XLA_FLAGS": "--xla_force_host_platform_device_count=16"}
    assert start(program, **four)[2] == 0


def test_the_program_cache_is_imported_where_a_folder_is_named(tmp_path: Path) -> None:
    """By a call, by the environment, or by the option of a function, also of one that was pickled."""
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
    pickled, folder = str(tmp_path / "pickled"), tmp_path / "cache"
    for path in ("write", "read", "call"):
        assert start(str(program), path, pickled, str(folder)) == [False, True], path
    assert len(list(folder.glob("*/*.fjit"))) == 1
    found = start(str(program), "none", "", "", FILTERJIT_PROGRAM_CACHE=str(tmp_path / "other"))
    assert found == [True, True]
