"""Times calls with trees of other nodes than Equinox's: plain jax.jit and filterjit, over flat.

    python benchmarks/nodes.py                    all trees, some 3 minutes
    python benchmarks/nodes.py --quick nnx_64     rough times of some trees
    python benchmarks/nodes.py --markdown         the table of the documentation
    python benchmarks/nodes.py --plot FILE        the growth of Equinox's and NNX's trees, as a picture

*Flat* is ``jax.jit`` of the same program on a flat list of the arrays. Each tree is measured twice:
where the program returns one number, so that the call only takes the tree apart, and where it
returns the tree with new arrays, so that the call also builds one. All are timed alternately.
"""

import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import flax.core
import flax.struct
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import optax
from flax import nnx

import command
import filterjit
from layout import lay_out, progress
from pictures import SERIES, save
from timing import in_a_row, in_batches, interleaved

BATCH = 5e-3  # the least seconds of a batch of calls
ROUNDS = 10  # the least number of batches on each implementation
SECONDS = 4.0  # for all batches of a measurement together
NODES = 50  # of one kind in a tree, with two arrays each


# ---- the kinds of nodes ----


class Module(eqx.Module):
    a: Any
    b: Any
    c: int = eqx.field(static=True)


@functools.partial(jtu.register_dataclass, data_fields=["a", "b"], meta_fields=["c"])
@dataclasses.dataclass
class Registered:
    a: Any
    b: Any
    c: int


@functools.partial(jtu.register_dataclass, data_fields=["a", "b"], meta_fields=["c"])
@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    a: Any
    b: Any
    c: int


@flax.struct.dataclass
class Struct:
    a: Any
    b: Any
    c: int = flax.struct.field(pytree_node=False)


@jtu.register_pytree_node_class
class Custom:
    def __init__(self, a: Any, b: Any, c: int) -> None:
        self.a, self.b, self.c = a, b, c

    def tree_flatten(self) -> tuple[Any, Any]:
        return (self.a, self.b), (self.c,)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> "Custom":
        return cls(*children, *aux)


class Linears(nnx.Module):
    def __init__(self, number: int) -> None:
        rngs = nnx.Rngs(0)
        self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs) for _ in range(number)])


# ---- the trees ----


def _array(i: int) -> jax.Array:
    return jnp.full((2,), float(i))


def _nodes_of(make: Callable[[jax.Array, jax.Array], Any]) -> list[Any]:
    return [make(_array(i), _array(-i)) for i in range(NODES)]


def _adam() -> Any:
    layers = {f"layer_{i:03}": {"kernel": _array(i), "bias": _array(i)} for i in range(100)}
    return layers, optax.adam(1e-3).init(layers)


TREES: Mapping[str, tuple[str, Callable[[], Any]]] = {
    "module": ("50 `equinox.Module`", lambda: _nodes_of(lambda a, b: Module(a, b, 3))),
    "registered": (
        "50 of `register_dataclass`",
        lambda: _nodes_of(lambda a, b: Registered(a, b, 3)),
    ),
    "slotted": (
        "50 of the same, frozen, with slots",
        lambda: _nodes_of(lambda a, b: Slotted(a, b, 3)),
    ),
    "struct": ("50 `flax.struct.dataclass`", lambda: _nodes_of(lambda a, b: Struct(a, b, 3))),
    "frozen_dict": (
        "50 `FrozenDict`",
        lambda: _nodes_of(lambda a, b: flax.core.FrozenDict({"a": a, "b": b})),
    ),
    "partial": (
        "50 `jax.tree_util.Partial`",
        lambda: _nodes_of(lambda a, b: jtu.Partial(jnp.add, a, b=b)),
    ),
    "custom": (
        "50 of `register_pytree_node_class`",
        lambda: _nodes_of(lambda a, b: Custom(a, b, 3)),
    ),
    "adam": ("dict of 100 layers, with Adam's state", _adam),
    "state": ("`nnx.State` of 64 Variables", lambda: nnx.state(Linears(32))),
    "nnx_10": ("NNX Module of 10 Variables", lambda: Linears(5)),
    "nnx_64": ("NNX Module of 64 Variables", lambda: Linears(32)),
    "nnx_384": ("NNX Module of 384 Variables", lambda: Linears(192)),
}
# Trees of a number of arrays, for the picture.
GROWTH: Mapping[str, Callable[[int], Any]] = {
    "Equinox": lambda number: [Module(_array(i), _array(i), 3) for i in range(number // 2)],
    "Flax NNX": lambda number: Linears(number // 2),
}
SIZES = (8, 32, 128, 512)


# ---- measuring ----


class Ratios(NamedTuple):
    """The microseconds of a flat call, and how much longer the others take.

    `built` is a flat call followed by `filterjit.unflatten`: the floor of what returns a tree.
    """

    flat: float
    ours: float
    jax: float
    built: float


class Row(NamedTuple):
    summary: str
    match: Ratios
    returned: Ratios


def _total(tree: Any) -> jax.Array:
    return functools.reduce(jnp.add, [jnp.sum(x) for x in jtu.tree_leaves(tree)])


def _new_arrays(tree: Any) -> Any:
    return jtu.tree_map(lambda x: x + 1, tree)


def _ratios(function: Callable[[Any], Any], tree: Any, seconds: float) -> Ratios:
    leaves = jtu.tree_leaves(tree)
    flat, ours, plain = jax.jit(function), filterjit.filter_jit(function), jax.jit(function)
    structure = filterjit.flatten(tree)[1]
    calls = {"flat": lambda: flat(leaves), "ours": lambda: ours(tree), "jax": lambda: plain(tree)}
    if function is _new_arrays:
        calls["built"] = lambda: structure.unflatten(flat(leaves))
    for call in calls.values():
        jax.block_until_ready(jtu.tree_leaves(call()))
    timers = {name: functools.partial(in_a_row, call) for name, call in calls.items()}
    times = interleaved(in_batches(timers, BATCH), seconds, ROUNDS)
    ratios = {name: times[name] / times["flat"] for name in calls if name != "flat"}
    return Ratios(times["flat"] * 1e6, **({"built": 1.0} | ratios))


def measure(summary: str, tree: Any, seconds: float) -> Row:
    """Times the calls with one tree."""
    return Row(summary, _ratios(_total, tree, seconds), _ratios(_new_arrays, tree, seconds))


def table(rows: Sequence[Row], markdown: bool) -> str:
    """Returns the rows as text."""
    head = ["tree", "flat", "filterjit", "`jax.jit`"]
    head += ["flat, returned", "then `unflatten`", "filterjit", "`jax.jit`"]
    cells = [
        [
            row.summary,
            f"{row.match.flat:.0f} us",
            *(f"{ratio:.2f}" for ratio in (row.match.ours, row.match.jax)),
            f"{row.returned.flat:.0f} us",
            *(
                f"{ratio:.2f}"
                for ratio in (row.returned.built, row.returned.ours, row.returned.jax)
            ),
        ]
        for row in rows
    ]
    return lay_out([head, *cells], markdown=markdown)


def plot(rows: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Saves a picture of how the cost grows with the number of arrays, for each kind of tree."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    for axes, (kind, measured) in zip(
        figure.subplots(1, len(rows), sharey=True), rows.items(), strict=True
    ):
        axes.set_prop_cycle(color=SERIES)
        found = [row.match for row in measured]
        for label, times in (
            ("jax.jit", [r.flat * r.jax for r in found]),
            ("filterjit", [r.flat * r.ours for r in found]),
            ("flat", [r.flat for r in found]),
        ):
            axes.loglog(
                SIZES, times, marker=".", linewidth=3 if label == "filterjit" else 1.5, label=label
            )
        axes.set_title(kind)
        axes.set_xlabel("arrays, two in each module")
        axes.set_ylabel("microseconds until a call returns")
        axes.grid(color="#dddddd", linewidth=0.8)
        axes.legend(frameon=False)
    save(figure, path)


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.parser(
        "Times trees of several kinds of nodes.",
        quick="0.5 seconds a tree",
        metavar="TREE",
        names=TREES,
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot the growth instead")
    options = parser.parse_args(argv)
    seconds = 0.25 if options.quick else SECONDS

    def growth() -> list[Row]:
        grown: dict[str, list[Row]] = {kind: [] for kind in GROWTH}
        for name in progress([f"{kind} {size}" for kind in GROWTH for size in SIZES]):
            kind, _, size = name.rpartition(" ")
            grown[kind].append(measure(name, GROWTH[kind](int(size)), seconds))
        plot(grown, options.plot)
        return [row for measured in grown.values() for row in measured]

    def trees() -> list[Row]:
        return [
            measure(TREES[name][0], TREES[name][1](), seconds) for name in progress(options.names)
        ]

    return command.run(lambda: table(growth() if options.plot else trees(), options.markdown))


if __name__ == "__main__":
    sys.exit(main())
