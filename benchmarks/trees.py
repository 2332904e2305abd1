"""Times filterjit's functions on trees, such as partition and flatten, and their peers.

    python benchmarks/trees.py [--quick] [--markdown] [NAME ...]

Each row compares two calls that do the same. They run alternately in one process.
"""

import dataclasses
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu

import command
import filterjit
from cases import CASES, Call
from layout import lay_out, progress
from timing import in_a_row, in_batches, interleaved

BATCH = 2e-2  # the least seconds of a batch of calls: several calls even of the slow functions
ROUNDS = 8  # the least number of batches of each call


@dataclasses.dataclass(frozen=True)
class Pair:
    """A call of filterjit, and a call of a peer that does the same.

    Attributes:
        what: the label of the row.
        peer: the name of the peer's function.
        call: the call of filterjit.
        peer_call: the call of the peer.
    """

    what: str
    peer: str
    call: Call
    peer_call: Call


def statics() -> list[Any]:
    """One array and 100,000 strings."""
    return [jnp.zeros(()), *(f"static {i}" for i in range(100_000))]


def nested() -> dict[str, Any]:
    """120 arrays in dicts, lists and tuples."""
    x = jnp.zeros(())
    return {f"layer {i}": [x, (x, x), {"scale": x, "shift": [x, x]}] for i in range(20)}


def transformer() -> Any:
    return CASES["transformer"]().args[0]


def is_matrix(x: Any) -> bool:
    return eqx.is_array(x) and x.ndim == 2


def is_vector(x: Any) -> bool:
    return eqx.is_array(x) and x.ndim == 1


def partition_statics() -> Pair:
    tree = statics()
    return Pair(
        "`partition`, 1 array among 100,000 strings",
        "equinox.partition",
        lambda: filterjit.partition(tree, eqx.is_array),
        lambda: eqx.partition(tree, eqx.is_array),
    )


def partition_dict_statics() -> Pair:
    import inox.tree

    tree = statics()
    return Pair(
        "`partition_dict` of the same",
        "inox.tree.partition",
        lambda: filterjit.partition_dict(tree),
        lambda: inox.tree.partition(tree, eqx.is_array),
    )


def combine_statics() -> Pair:
    parts = filterjit.partition(statics(), eqx.is_array)
    return Pair(
        "`combine` of its two parts",
        "equinox.combine",
        lambda: filterjit.combine(*parts),
        lambda: eqx.combine(*parts),
    )


def _three_nested(model: Any) -> tuple[Any, ...]:
    matrices, rest = eqx.partition(model, is_matrix)
    vectors, rest = eqx.partition(rest, is_vector)
    return matrices, vectors, *eqx.partition(rest, eqx.is_array)


def three_ways() -> Pair:
    model = transformer()
    return Pair(
        "3-way `partition` of a transformer of 24 layers, by functions",
        "3 equinox.partition",
        lambda: filterjit.partition(model, is_matrix, is_vector, eqx.is_array),
        lambda: _three_nested(model),
    )


def three_ways_by_path() -> Pair:
    model = transformer()
    return Pair(
        "the same by paths: `**.weight`, `**.bias`, arrays",
        "3 equinox.partition",
        lambda: filterjit.partition(model, "**.weight", "**.bias", eqx.is_array),
        lambda: _three_nested(model),
    )


def combine_transformer() -> Pair:
    parts = eqx.partition(transformer(), eqx.is_array)
    return Pair(
        "`combine` of a transformer's arrays and statics",
        "equinox.combine",
        lambda: filterjit.combine(*parts),
        lambda: eqx.combine(*parts),
    )


def jit_of_group() -> Pair:
    """The peer is the floor: a call without the dict."""
    _, group = filterjit.partition_dict(statics())
    (path, array), *_ = group.items()
    of_group = jax.jit(lambda group: group[path] + 1)
    of_array = jax.jit(lambda array: array + 1)
    return Pair(
        "`jax.jit` called on the dict of `partition_dict`",
        "on the bare array",
        lambda: of_group(group),
        lambda: of_array(array),
    )


def _flatten(kind: str, tree: Any) -> Pair:
    import optree

    return Pair(
        f"`flatten` of {kind}",
        "optree.tree_flatten",
        lambda: filterjit.flatten(tree, True),
        lambda: optree.tree_flatten(tree),
    )


def _unflatten(kind: str, tree: Any) -> Pair:
    import optree

    leaves, structure = filterjit.flatten(tree, True)
    treespec = optree.tree_structure(tree)
    return Pair(
        f"`unflatten` of {kind}",
        "optree.tree_unflatten",
        lambda: filterjit.unflatten(structure, leaves),
        lambda: optree.tree_unflatten(treespec, leaves),
    )


def flatten_modules() -> Pair:
    model = transformer()
    return Pair(
        "`flatten` of the transformer, all leaves",
        "jax.tree_util",
        lambda: filterjit.flatten(model, True),
        lambda: jtu.tree_flatten(model),
    )


def unflatten_modules() -> Pair:
    leaves, structure = filterjit.flatten(transformer(), True)
    treedef = jtu.tree_structure(transformer())
    return Pair(
        "`unflatten` of the same",
        "jax.tree_util",
        lambda: filterjit.unflatten(structure, leaves),
        lambda: jtu.tree_unflatten(treedef, leaves),
    )


def _flat_trees() -> dict[str, tuple[str, Any]]:
    x = jnp.zeros(())
    return {
        "dict": ("a dict of 100", {f"key {i}": x for i in range(100)}),
        "list": ("a list of 100", [x] * 100),
        "tuple": ("a tuple of 100", (x,) * 100),
        "nested": ("120 in dicts, lists and tuples", nested()),
    }


PAIRS: dict[str, Callable[[], Pair]] = {
    make.__name__: make
    for make in (
        partition_statics,
        partition_dict_statics,
        combine_statics,
        jit_of_group,
        three_ways,
        three_ways_by_path,
        combine_transformer,
        flatten_modules,
        unflatten_modules,
    )
}
for _name, (_kind, _tree) in _flat_trees().items():
    PAIRS[f"flatten_{_name}"] = functools.partial(_flatten, _kind, _tree)
    PAIRS[f"unflatten_{_name}"] = functools.partial(_unflatten, _kind, _tree)

_NEEDS = {"partition_dict_statics": "inox"} | {
    name: "optree" for name in PAIRS if name.startswith(("flatten_", "unflatten_"))
}
MISSING = [name for name in PAIRS if importlib.util.find_spec(_NEEDS.get(name, "jax")) is None]


def measure(pair: Pair, seconds: float) -> tuple[float, float]:
    """Returns the microseconds of the two calls."""
    calls = {"filterjit": pair.call, "peer": pair.peer_call}
    timers = {name: functools.partial(in_a_row, call) for name, call in calls.items()}
    best = interleaved(in_batches(timers, BATCH), seconds, ROUNDS)
    return 1e6 * best["filterjit"], 1e6 * best["peer"]


def _time(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints the table, and returns the exit status."""
    options = command.parser(
        "Times filterjit's functions on trees.",
        quick="0.3 seconds each",
        metavar="NAME",
        names=[name for name in PAIRS if name not in MISSING],
    ).parse_args(argv)

    def measured() -> str:
        lines = [["what", "filterjit, µs", "peer", "peer, µs", "peer / filterjit"]]
        for name in progress(options.names):
            pair = PAIRS[name]()
            time, of_peer = measure(pair, 0.3 if options.quick else 4.0)
            ratio = f"{of_peer / time:#.3g}x"
            lines.append([pair.what, _time(time), pair.peer, _time(of_peer), ratio])
        missing = f"Left out, because their peers are not installed: {', '.join(MISSING)}."
        text = lay_out(lines, markdown=options.markdown)
        return f"{text}\n{missing}" if MISSING else text

    return command.run(measured)


if __name__ == "__main__":
    sys.exit(main())
