"""Times calls with shardings on eight devices of the CPU: filterjit and Equinox, over flat.

*Flat* is ``jax.jit`` of the same program on a flat list of the arrays, with the same shardings in
`in_shardings`. *Without rules* is filterjit without options, and Equinox has no such options: both
take the arrays where they are placed. All calls of a case are timed alternately, each on idle
devices.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
)

import equinox as eqx
import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import command
import filterjit
from cases import CASES, Case
from timing import best_times, one_by_one

NAMES = ("mlp", "mlp_update", "transformer_4", "transformer", "transformer_update")


def _calls(case: Case, mesh: Any) -> dict[str, Callable[[], Any]]:
    rules = filterjit.sharding.ShardingRules(
        {"**": filterjit.sharding.fsdp("data", min_size=256), ...: P()}
    )
    model, x = case.args
    model, x = filterjit.sharding.place(model, rules, mesh), filterjit.sharding.place(x, P(), mesh)
    updates = case.name.endswith("update")
    leaves, structure = filterjit.flatten((model, x))

    def flat_function(leaves: list[Any]) -> list[Any]:
        return jax.tree.leaves(
            filterjit.partition(case.function(*structure.unflatten(leaves)), eqx.is_array)[0]
        )

    shardings = [leaf.sharding for leaf in leaves]
    replicated = NamedSharding(mesh, P())
    flat = jax.jit(
        flat_function,
        in_shardings=(shardings,),
        out_shardings=shardings[:-1] if updates else replicated,
    )
    model_name, x_name = case.function.__code__.co_varnames[:2]
    ours = filterjit.filter_jit(
        case.function,
        in_shardings={model_name: rules, x_name: P()},
        out_shardings=rules if updates else P(),
        mesh=mesh,
    )
    without = filterjit.filter_jit(case.function)
    equinox = eqx.filter_jit(case.function)
    return {
        "flat": lambda: flat(leaves),
        "ours": lambda: ours(model, x),
        "without": lambda: without(model, x),
        "equinox": lambda: equinox(model, x),
    }


def rows_of(name: str, seconds: float) -> Iterator[list[str]]:
    case = CASES[name]()
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    times = best_times(_calls(case, mesh), seconds, timer=one_by_one)
    ratios = [f"{times[name] / times['flat']:.2f}" for name in ("ours", "without", "equinox")]
    last = f"{times['equinox'] / times['ours']:.1f}"
    yield [case.summary, f"{times['flat'] * 1e6:.0f} us", *ratios, last]


HEAD = ["case, on 8 devices", "flat `jax.jit`", "filterjit, rules", "without rules",
        "`eqx.filter_jit`", "eqx / filterjit"]  # fmt: skip

if __name__ == "__main__":
    sys.exit(command.table(__doc__, NAMES, HEAD, rows_of, amounts=(1.0, 10.0)))
