"""Times frozen functions: calls of ``f.freeze(model)``, over flat ``jax.jit`` of the same program.

    python benchmarks/frozen.py                        all models, some 1 minute
    python benchmarks/frozen.py --quick transformer    rough times of some models
    python benchmarks/frozen.py --markdown             the table of the documentation
    python benchmarks/frozen.py --sizes --markdown     where constants pay, by the size of the arrays

*Flat* is ``jax.jit`` of the program on a flat list of all its arrays. *Closed* is ``jax.jit`` of a
closure, which has the arrays of the model as constants too. All are timed alternately.
"""

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import flax.linen
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from flax import nnx

import command
import filterjit
from cases import CASES, arrays_in
from layout import lay_out, progress
from timing import each_awaited, in_batches, interleaved, one_by_one

BATCH = 5e-3  # the least seconds of a batch of calls
ROUNDS = 10  # the least number of batches on each implementation
SECONDS = 6.0  # for all batches of a measurement together


# ---- the models: a function, the model and another argument ----


class Model(NamedTuple):
    summary: str
    function: Callable[[Any, Any], Any]
    model: Any
    x: Any


def _case(name: str) -> Callable[[], Model]:
    def make() -> Model:
        case = CASES[name]()
        return Model(case.summary, case.function, *case.args)

    return make


class _Dense(flax.linen.Module):
    @flax.linen.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(16):
            x = flax.linen.relu(flax.linen.Dense(8)(x))
        return x


def _linen() -> Model:
    module, x = _Dense(), jnp.ones(8)
    return Model("Linen MLP of 16 layers", module.apply, module.init(jax.random.key(0), x), x)


class _Layers(nnx.Module):
    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.layers = nnx.List([nnx.Linear(8, 8, rngs=rngs) for _ in range(32)])

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = nnx.relu(layer(x))
        return x


def _nnx() -> Model:
    return Model("NNX MLP of 32 layers", lambda model, x: model(x), _Layers(), jnp.ones(8))


MODELS: Mapping[str, Callable[[], Model]] = {
    "mlp": _case("mlp"),
    "transformer_4": _case("transformer_4"),
    "transformer": _case("transformer"),
    "linen": _linen,
    "nnx": _nnx,
}


# ---- measuring ----


class Row(NamedTuple):
    """The microseconds until a flat call returns, how much longer the others take, and the same
    where each result is awaited."""

    summary: str
    arrays: int
    flat: float
    ours: float
    frozen: float
    closed: float
    awaited: float
    awaited_frozen: float
    awaited_closed: float


def _calls(model: Model) -> dict[str, Callable[[], Any]]:
    """Returns the four calls. Each is compiled."""
    function, tree, x = model.function, model.model, model.x
    structure = filterjit.flatten(tree)[1]
    leaves = arrays_in(filterjit.flatten(tree)[0])
    flat = jax.jit(lambda leaves, x: function(structure.unflatten(leaves), x))
    ours = filterjit.filter_jit(function)
    frozen = ours.freeze(tree)
    closed = jax.jit(lambda x: function(tree, x))
    calls = {
        "flat": lambda: flat(leaves, x),
        "ours": lambda: ours(tree, x),
        "frozen": lambda: frozen(x),
        "closed": lambda: closed(x),
    }
    for call in calls.values():
        jax.block_until_ready(jtu.tree_leaves(call()))
    return calls


def measure(model: Model, seconds: float) -> Row:
    """Times the calls of one model."""
    calls = _calls(model)
    found = []
    for timer in (one_by_one, each_awaited):
        timers = {name: functools.partial(timer, call) for name, call in calls.items()}
        found.append(interleaved(in_batches(timers, BATCH), seconds, ROUNDS))
    times, awaited = found
    return Row(
        model.summary,
        len(arrays_in(filterjit.flatten(model.model)[0])),
        times["flat"] * 1e6,
        *(times[name] / times["flat"] for name in ("ours", "frozen", "closed")),
        awaited["flat"] * 1e6,
        *(awaited[name] / awaited["flat"] for name in ("frozen", "closed")),
    )


def table(rows: Sequence[Row], markdown: bool) -> str:
    """Returns the rows as text."""
    head = ["model, inference", "arrays", "flat", "filterjit", "frozen", "closed"]
    head += ["frozen / closed", "awaited: flat", "frozen", "closed"]
    cells = [
        [
            row.summary.removesuffix(", inference"),
            str(row.arrays),
            f"{row.flat:.1f} us",
            *(f"{ratio:.2f}" for ratio in (row.ours, row.frozen, row.closed)),
            f"{row.frozen / row.closed:.2f}",
            f"{row.awaited:.1f} us",
            *(f"{ratio:.2f}" for ratio in (row.awaited_frozen, row.awaited_closed)),
        ]
        for row in rows
    ]
    return lay_out([head, *cells], markdown=markdown)


# ---- by size ----

COUNTS = (1, 16, 64)
WIDTHS = (16, 64, 128, 256, 512, 1024, 2048)
MOST = 64 << 20  # bytes in all


class Size(NamedTuple):
    """A chain of matrices: the seconds of compiling and of an awaited call, with arguments, and how
    much longer these take with constants."""

    count: int
    nbytes: int  # of one matrix
    compiling: float
    compiling_frozen: float
    running: float
    running_frozen: float


def measure_size(count: int, width: int, seconds: float) -> Size:
    """Compiles and times a chain of `count` matrices."""
    random = np.random.default_rng(0)
    shape = (count, width, width)
    matrices = list(jnp.asarray(random.normal(size=shape) / width**0.5, "float32"))
    x = jnp.ones(width)

    def chain(matrices: Any, x: Any) -> Any:
        return functools.reduce(lambda x, w: jnp.tanh(w @ x), matrices, x)

    def compiled(f: Any, *args: Any) -> float:
        start = time.perf_counter()
        f.lower(*args).compile()
        return time.perf_counter() - start

    tries = []
    for _ in range(2):
        jax.clear_caches()
        f = filterjit.filter_jit(chain)
        frozen = f.freeze(matrices)
        tries.append((compiled(f, matrices, x), compiled(frozen, x)))
    compiling, compiling_frozen = map(min, zip(*tries, strict=True))
    calls: dict[str, Callable[[], Any]] = {
        "arguments": lambda: f(matrices, x),
        "frozen": lambda: frozen(x),
    }
    for call in calls.values():
        call().block_until_ready()
    timers = {name: functools.partial(each_awaited, call) for name, call in calls.items()}
    times = interleaved(in_batches(timers, BATCH), seconds, ROUNDS)
    return Size(
        count,
        4 * width**2,
        compiling,
        compiling_frozen / compiling,
        times["arguments"],
        times["frozen"] / times["arguments"],
    )


def table_of_sizes(sizes: Sequence[Size], markdown: bool) -> str:
    """Returns the rows as text."""
    head = ["matrices", "of each", "together", "compiling", "frozen", "a call, awaited", "frozen"]
    cells = [
        [
            str(size.count),
            f"{size.nbytes / 1024:,.0f} KiB",
            f"{size.count * size.nbytes / 1024:,.0f} KiB",
            f"{size.compiling * 1e3:,.0f} ms",
            f"{size.compiling_frozen:.2f}",
            f"{size.running * 1e6:,.1f} us",
            f"{size.running_frozen:.2f}",
        ]
        for size in sizes
    ]
    return lay_out([head, *cells], markdown=markdown)


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.parser(
        "Times frozen functions.", quick="0.5 seconds a model", metavar="MODEL", names=MODELS
    )
    parser.add_argument("--sizes", action="store_true", help="matrices by their size instead")
    options = parser.parse_args(argv)
    seconds = 0.25 if options.quick else SECONDS

    def sizes() -> str:
        chains = [(c, w) for c in COUNTS for w in WIDTHS if 4 * c * w * w <= MOST]
        names = progress([f"{count} of {width}" for count, width in chains])
        measured = [
            measure_size(*chain, seconds / 3) for chain, _ in zip(chains, names, strict=True)
        ]
        return table_of_sizes(measured, options.markdown)

    def models() -> str:
        rows = [measure(MODELS[name](), seconds) for name in progress(options.names)]
        return table(rows, options.markdown)

    return command.run(sizes if options.sizes else models)


if __name__ == "__main__":
    sys.exit(main())
