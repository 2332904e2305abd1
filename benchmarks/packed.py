"""Times training steps whose state is packed, over flat.

    python benchmarks/packed.py                   all steps, some 10 minutes
    python benchmarks/packed.py --quick mlp       rough times of some steps
    python benchmarks/packed.py --markdown        the tables of benchmarks/README.md
    python benchmarks/packed.py --plot FILE       when it pays, by width and layers, as a picture

*Flat* is ``jax.jit`` of the same step on a flat list of the state's arrays. All programs take a
state and return it, donated, and each call gets the result of the last. *Packed* runs the same step
on the unpacked state; *not exact* is the same with ``unpack(exact=False)``. *Packed vector* and
*ravel_pytree* give the optimizer a vector in the place of
the parameters, which is another program: it has fewer operations, and is right for optimizers that
treat all numbers alike. All are timed alternately: until a call returns, and in a loop that waits for
its last result.
"""

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import optax
from jax.flatten_util import ravel_pytree

import command
import filterjit
from cases import Transformer
from layout import lay_out, progress
from pictures import SERIES, save
from timing import in_a_row, in_batches, interleaved, last_awaited, one_by_one

BATCH = 10e-3  # the least seconds of a batch of calls
ROUNDS = 10  # the least number of batches of each program
SECONDS = 6.0  # for all batches of a measurement together

Step = Callable[[Any, Any], Any]  # (state, data) -> state


class Task(NamedTuple):
    """A model, what it is trained on, and how."""

    summary: str
    model: Any
    loss: Callable[[Any, Any], jax.Array]
    data: Any
    optimizer: Any


def _mean_square(model: Any, x: jax.Array) -> jax.Array:
    return jnp.mean((model(x) - 1.0) ** 2)


def _transformer(depth: int, optimizer: Any, summary: str) -> Task:
    return Task(
        summary, Transformer(2, depth, key=jr.key(0)), _mean_square, jnp.ones((1, 2)), optimizer
    )


def _mlp(width: int, layers: int, optimizer: Any, summary: str) -> Task:
    model = eqx.nn.MLP(width, width, width_size=width, depth=layers - 1, key=jr.key(0))
    return Task(
        summary, model, lambda m, x: _mean_square(jax.vmap(m), x), jnp.ones((8, width)), optimizer
    )


SGD, ADAM = optax.sgd(1e-3), optax.adam(1e-3)
TASKS: Mapping[str, Callable[[], Task]] = {
    "adam_24": lambda: _transformer(24, ADAM, "Adam, transformer, 24 layers"),
    "sgd_24": lambda: _transformer(24, SGD, "SGD, transformer, 24 layers"),
    "sgd_4": lambda: _transformer(4, SGD, "SGD, transformer, 4 layers"),
    "mlp": lambda: _mlp(8, 5, SGD, "SGD, MLP of 5 layers"),
}
PEERS = (
    "flat",
    "filterjit",
    "packed",
    "not exact",
    "optax_flatten",
    "packed_vector",
    "ravel_pytree",
)


# ---- the programs ----


def programs(task: Task, names: Sequence[str]) -> dict[str, tuple[Step, Any]]:
    """Returns the programs of a step, each with its first state."""
    params, static = eqx.partition(task.model, eqx.is_inexact_array)

    def loss(params: Any, data: Any) -> jax.Array:
        return task.loss(eqx.combine(params, static), data)

    def step(optimizer: Any, state: Any, data: Any) -> Any:
        params, inner = state
        updates, inner = optimizer.update(jax.grad(loss)(params, data), inner, params)
        return optax.apply_updates(params, updates), inner

    def flat() -> tuple[Step, Any]:
        leaves, treedef = jtu.tree_flatten((params, task.optimizer.init(params)))

        def flat_step(leaves: Any, data: Any) -> Any:
            state = step(task.optimizer, jtu.tree_unflatten(treedef, leaves), data)
            return jtu.tree_leaves(state)

        return jax.jit(flat_step, donate_argnums=0), leaves

    def ours(optimizer: Any) -> tuple[Step, Any]:
        jitted = filterjit.filter_jit(
            lambda data, state: step(optimizer, state, data), donate="all-except-first"
        )
        return lambda state, data: jitted(data, state), (params, optimizer.init(params))

    def packed(exact: bool) -> tuple[Step, Any]:
        @filterjit.filter_jit(donate="all-except-first")
        def packed_step(data: Any, state: Any) -> Any:
            return state.replace(step(task.optimizer, state.unpack(exact=exact), data))

        state = filterjit.pack((params, task.optimizer.init(params)))
        return lambda state, data: packed_step(data, state), state

    def packed_vector() -> tuple[Step, Any]:
        @filterjit.filter_jit(donate="all-except-first")
        def vector_step(data: Any, state: Any) -> Any:
            def packed_loss(packed: Any) -> jax.Array:
                return loss(packed.unpack(exact=False), data)

            packed, inner = state
            updates, inner = task.optimizer.update(jax.grad(packed_loss)(packed), inner, packed)
            return optax.apply_updates(packed, updates), inner

        packed = filterjit.pack(params)
        return lambda state, data: vector_step(data, state), (packed, task.optimizer.init(packed))

    def raveled() -> tuple[Step, Any]:
        vector, unravel = ravel_pytree(params)

        def vector_step(state: Any, data: Any) -> Any:
            vector, inner = state
            gradient = ravel_pytree(jax.grad(loss)(unravel(vector), data))[0]
            updates, inner = task.optimizer.update(gradient, inner, vector)
            return optax.apply_updates(vector, updates), inner

        return jax.jit(vector_step, donate_argnums=0), (vector, task.optimizer.init(vector))

    makers = {
        "flat": flat,
        "filterjit": lambda: ours(task.optimizer),
        "packed": lambda: packed(True),
        "not exact": lambda: packed(False),
        "optax_flatten": lambda: ours(optax.flatten(task.optimizer)),
        "packed_vector": packed_vector,
        "ravel_pytree": raveled,
    }
    return {name: makers[name]() for name in names}


class Loop:
    """Calls a program with the state that it returned last."""

    def __init__(self, program: Step, state: Any, data: Any) -> None:
        self.program, self.data = program, data
        self.state = jtu.tree_map(jnp.copy, state)  # the first one is donated
        start = time.perf_counter()
        self()
        jax.block_until_ready(jtu.tree_leaves(self.state))
        self.first = time.perf_counter() - start

    def __call__(self) -> Any:
        self.state = self.program(self.state, self.data)
        return self.state


# ---- measuring ----


class Row(NamedTuple):
    """Seconds of a step, by program: until a call returns, and in a loop; and of the first call."""

    summary: str
    arrays: int
    bytes: int
    returned: dict[str, float]
    looped: dict[str, float]
    first: dict[str, float]


def measure(task: Task, seconds: float, names: Sequence[str] = PEERS) -> Row:
    """Times the programs of a task."""
    made = programs(task, names)
    arrays = jtu.tree_leaves(made["flat"][1])
    loops = {name: Loop(*program, task.data) for name, program in made.items()}
    times = []
    for timer in (one_by_one, last_awaited):
        timers = {name: functools.partial(timer, loop) for name, loop in loops.items()}
        times.append(interleaved(in_batches(timers, BATCH), seconds, ROUNDS))
    first = {name: loop.first for name, loop in loops.items()}
    return Row(task.summary, len(arrays), sum(x.nbytes for x in arrays), *times, first)


def conversions(task: Task, seconds: float) -> dict[str, float]:
    """Returns the seconds of `pack` and `unpack`, and of a flat program with as many arrays as
    arguments and as results."""
    state = task.model, task.optimizer.init(eqx.filter(task.model, eqx.is_inexact_array))
    arrays = [x for x in jtu.tree_leaves(state) if eqx.is_array(x)]
    packed = filterjit.pack(state)

    def together(xs: Any) -> Any:
        return jnp.concatenate([x.ravel() for x in xs if x.dtype == jnp.float32])

    def apart(x: Any) -> Any:
        parts = jnp.split(x, [(i + 1) * (len(x) // len(arrays)) for i in range(len(arrays) - 1)])
        return list(parts)

    joined, split = jax.jit(together, keep_unused=True), jax.jit(apart)
    vector = joined(arrays)
    calls: dict[str, Callable[[], Any]] = {
        "pack": lambda: filterjit.pack(state),
        "arguments": lambda: joined(arrays),
        "unpack": packed.unpack,
        "results": lambda: split(vector),
    }
    for call in calls.values():
        jax.block_until_ready(call())
    timers = {name: functools.partial(in_a_row, call) for name, call in calls.items()}
    return interleaved(in_batches(timers, BATCH), seconds, ROUNDS)


# ---- output ----


def table(rows: Sequence[Row], markdown: bool) -> str:
    """Returns the rows as text: over flat, until a call returns and in a loop."""
    others = PEERS[1:]
    head = ["step", "arrays", "flat", *others, "flat, in a loop", *others, "first call"]
    cells = [
        [
            row.summary,
            f"{row.arrays:,}",
            *_over_flat(row.returned),
            *_over_flat(row.looped),
            f"{row.first['packed'] / row.first['flat']:.1f}",
        ]
        for row in rows
    ]
    return lay_out([head, *cells], markdown=markdown)


def _over_flat(times: Mapping[str, float]) -> list[str]:
    flat = times["flat"]
    return [f"{flat * 1e6:,.0f} us", *(f"{times[name] / flat:.2f}" for name in PEERS[1:])]


WIDTHS, LAYERS = (8, 32, 64, 128, 256, 512), (4, 12, 24, 48)


def grid(seconds: float) -> dict[str, list[list[Row]]]:
    """Times MLPs of all widths and numbers of layers, without and with `pack`."""
    optimizers = {"SGD": SGD, "Adam": ADAM}
    names = [f"{o} {width} x {n}" for o in optimizers for width in WIDTHS for n in LAYERS]
    rows = []
    for name in progress(names):
        kind, width, _, layers = name.split()
        task = _mlp(int(width), int(layers), optimizers[kind], name)
        rows.append(measure(task, seconds, ("flat", "packed")))
        jax.clear_caches()
    count = len(WIDTHS) * len(LAYERS)
    return {
        kind: [
            rows[k * count + i : k * count + i + len(LAYERS)] for i in range(0, count, len(LAYERS))
        ]
        for k, kind in enumerate(optimizers)
    }


def plot(rows: Mapping[str, Sequence[Sequence[Row]]], path: Path) -> None:
    """Saves a picture of the time of a packed step over flat, in a loop."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    for axes, (kind, by_width) in zip(
        figure.subplots(1, len(rows), sharey=True), rows.items(), strict=True
    ):
        axes.set_prop_cycle(color=SERIES)
        for column, layers in enumerate(LAYERS):
            found = [row[column] for row in by_width]
            axes.semilogx(
                WIDTHS,
                [row.looped["packed"] / row.looped["flat"] for row in found],
                base=2,
                marker=".",
                label=f"{layers} layers, {found[0].arrays} arrays",
            )
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_title(f"{kind}, MLP, batch of 8")
        axes.set_xlabel("width")
        axes.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
        axes.set_ylabel("a packed step over flat, in a loop")
        axes.set_ylim(bottom=0)
        axes.grid(color="#dddddd", linewidth=0.8)
        axes.legend(frameon=False)
    save(figure, path)


def grid_table(rows: Mapping[str, Sequence[Sequence[Row]]], markdown: bool) -> str:
    cells = [
        [
            row.summary,
            str(row.arrays),
            f"{row.bytes / row.arrays / 1024:.1f} KiB",
            f"{row.looped['flat'] * 1e6:,.0f} us",
            f"{100 * row.returned['flat'] / row.looped['flat']:.0f} %",
            f"{row.looped['packed'] / row.looped['flat']:.2f}",
            f"{row.first['packed'] / row.first['flat']:.1f}",
        ]
        for by_width in rows.values()
        for of_width in by_width
        for row in of_width
    ]
    head = ["width x layers", "arrays", "mean size", "flat, in a loop", "of it until return"]
    return lay_out([[*head, "packed / flat", "first call"], *cells], markdown=markdown)


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.parser(
        "Times training steps with a packed state.",
        quick="0.25 seconds a program",
        metavar="TASK",
        names=TASKS,
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot when it pays instead")
    options = parser.parse_args(argv)
    seconds = 0.25 if options.quick else SECONDS

    def when_it_pays() -> str:
        measured = grid(seconds / 4)
        plot(measured, options.plot)
        return grid_table(measured, options.markdown)

    def steps() -> str:
        first = options.names[0]
        # Before the steps, since a process with many programs collects garbage for longer.
        found = conversions(TASKS[first](), seconds)
        rows = [measure(TASKS[name](), seconds) for name in progress(options.names)]
        lines = [table(rows, options.markdown), ""]
        for ours, flat in (("pack", "arguments"), ("unpack", "results")):
            ratio = found[ours] / found[flat]
            lines.append(f"`{ours}` of {first}: {found[ours] * 1e6:,.0f} us, {ratio:.2f} of flat")
        return "\n".join(lines)

    return command.run(when_it_pays if options.plot else steps)


if __name__ == "__main__":
    sys.exit(main())
