"""Times calls that miss: they trace and compile.

Each miss is made by filterjit, by its peer (Equinox, or Flax for `nnx.jit`) and by `jax.jit` of the
same function of a flat list of arrays, alternately. The figures are milliseconds of processor time
of the whole call, compilation included: the least of several. The last columns make the same misses
with ``on_retrace="log"`` and ``"raise"``; the error is caught, and nothing is compiled.

A miss is for a new *static*, a new *shape*, or a new *lambda*: a static function that is recreated.
"""

import contextlib
import dataclasses
import functools
import gc
import itertools
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from flax import nnx

import command
import filterjit
from cases import CASES, dict_of
from filterjit import RetraceError


@dataclasses.dataclass(frozen=True)
class Row:
    """A function whose calls miss.

    Attributes:
        summary: one line for the table.
        function: takes a tree, an array, and a static, which it calls or adds.
        tree: the tree.
        peer: jits by what filterjit is compared with.
        ours: jits by filterjit.
    """

    summary: str
    function: Callable[..., Any]
    tree: Any
    peer: Callable[[Any], Any] = eqx.filter_jit
    ours: Callable[..., Any] = filterjit.filter_jit


def _apply(static: Any, x: jax.Array) -> jax.Array:
    return x + (static(x) if callable(static) else len(static))


def _tiny(tree: Any, x: Any, static: Any) -> Any:
    del tree
    return _apply(static, x)


def _model(tree: Any, x: Any, static: Any) -> Any:
    return _apply(static, jax.vmap(tree)(x).sum())


def _used(read: Callable[[Any], jax.Array]) -> Callable[..., Any]:
    """Returns a function that uses one array of its tree."""
    return lambda tree, x, static: _apply(static, x + read(tree).sum())


class _Holder:
    """A plain object that holds many small dicts."""

    def __init__(self, number: int) -> None:
        self.rows = [{"index": i} for i in range(number)]

    def call(self, tree: Any, x: Any, static: Any) -> Any:
        del tree
        return _apply(static, x) + len(self.rows)


def _variables() -> Any:
    class Net(nnx.Module):
        def __init__(self) -> None:
            self.weights = nnx.List([nnx.Param(jnp.ones(2)) for _ in range(64)])

        def __call__(self, x: Any) -> Any:
            return sum((w[...].sum() for w in self.weights), x)

    return Net()


def _nnx() -> Row:
    options = {"static_argnums": 2}
    return Row(
        "`nnx.jit` of 64 Variables",
        lambda tree, x, static: _apply(static, tree(x)),
        _variables(),
        lambda f: nnx.jit(f, **options),
        lambda f, **more: filterjit.nnx.jit(f, **options, **more),
    )


ROWS: dict[str, Callable[[], Row]] = {
    "tiny": lambda: Row("a tiny function", _tiny, None),
    "mlp": lambda: Row("MLP 8-32x4-8, inference", _model, CASES["mlp"]().args[0]),
    "transformer": lambda: Row(
        "transformer of 24 layers (339 arrays)",
        _used(lambda model: model.norm.weight),
        CASES["transformer"]().args[0],
    ),
    "strings": lambda: Row(
        "one array and 100,000 str",
        _used(lambda tree: tree[0]),
        [jnp.ones(()), [f"string {i}" for i in range(100_000)]],
    ),
    "method": lambda: Row("a method of an object with 300,000 dicts", _Holder(300_000).call, None),
    "dict": lambda: Row(
        "dict of 10,000 arrays", _used(lambda tree: tree["weight_000"]), dict_of(10_000)[0]
    ),
    "nnx": _nnx,
}


def _processor_time(call: Callable[..., Any], *args: Any) -> float:
    start = time.process_time()
    with contextlib.suppress(RetraceError):
        call(*args)
    return time.process_time() - start


def _arguments(row: Row, miss: str) -> Callable[[], tuple[Any, ...]]:
    """Returns a function that returns the arguments of the next miss."""
    number = itertools.count(2)

    def of_new() -> tuple[Any, ...]:
        i = next(number)
        if miss == "static":
            return row.tree, jnp.ones((4, 8)), f"static {i}"
        if miss == "shape":
            return row.tree, jnp.ones((i, 8)), "static"
        return row.tree, jnp.ones((4, 8)), lambda x: x * 2

    return of_new


def _flat(row: Row, tree: Any, _: Any, static: Any) -> Callable[..., Any]:
    """Returns a function that calls `jax.jit` of the row's function on a flat list of arrays."""
    if isinstance(tree, nnx.Module):
        graph, arrays = nnx.split(tree)
        build = functools.partial(nnx.merge, graph)
    else:
        arrays, statics = eqx.partition(tree, eqx.is_array)
        build = functools.partial(eqx.combine, statics)
    leaves, treedef = jtu.tree_flatten(arrays)

    @jax.jit
    def of_arrays(leaves: Any, x: Any) -> Any:
        return jtu.tree_leaves(row.function(build(jtu.tree_unflatten(treedef, leaves)), x, static))

    return lambda tree, x, static: of_arrays(leaves, x)


def measure(row: Row, miss: str, rounds: int) -> dict[str, float]:
    """Returns the least seconds of processor time of a miss, by column."""
    new = _arguments(row, miss)
    jits = {
        "ours": row.ours(row.function),
        "peer": row.peer(row.function),
        "log": row.ours(row.function, on_retrace="log"),
        "raise": row.ours(row.function, on_retrace="raise"),
    }
    for jit in jits.values():
        _processor_time(jit, *new())
    order = [*jits, "flat"]
    found: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(rounds):
        for name in order:
            args = new()
            call = jits[name] if name in jits else _flat(row, *args)
            gc.collect()
            found[name].append(_processor_time(call, *args))
        order.append(order.pop(0))
    return {name: min(times) for name, times in found.items()}


def rows_of(name: str, rounds: float) -> Iterator[list[str]]:
    row = ROWS[name]()
    for miss in ("static", "shape", "lambda"):
        found = measure(row, miss, int(rounds))
        ms = {name: 1e3 * seconds for name, seconds in found.items()}
        times = (f"{ms[name]:.1f}" for name in ("ours", "peer", "flat"))
        ratio, more = f"{ms['ours'] / ms['peer']:.2f}", f"{ms['ours'] - ms['flat']:.2f}"
        logs = (f"{ms[name]:.1f}" for name in ("log", "raise"))
        yield [row.summary, miss, *times, ratio, more, *logs]


HEAD = ["", "a new", "filterjit", "peer", "flat", "/ peer", "- flat", "log", "raise"]

if __name__ == "__main__":
    warnings.simplefilter("ignore", filterjit.RetraceWarning)
    logging.getLogger("filterjit").addHandler(logging.NullHandler())
    sys.exit(command.table(__doc__, ROWS, HEAD, rows_of, (3, 9), "misses of each"))
