"""Times calls that miss: they trace and compile.

    python benchmarks/misses.py                all rows, some 5 minutes
    python benchmarks/misses.py --quick tiny   rough times of some rows
    python benchmarks/misses.py --markdown     the table of the documentation

Each miss is made by filterjit, by its peer (Equinox, or Flax for `nnx.jit`) and by `jax.jit` of the
same function of a flat list of arrays, alternately. The figures are milliseconds of processor time
of the whole call, compilation included: the least of several. The last columns make the same misses
with ``on_retrace="log"`` and ``"raise"``; the error is caught, and nothing is compiled.

A miss is for a new *static*, a new *shape*, or a new *lambda*: a static function that is recreated.
"""

import dataclasses
import gc
import itertools
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from flax import nnx

import command
import filterjit
from cases import CASES, dict_of
from filterjit import RetraceError

ROUNDS = 9
MISSES = ("static", "shape", "lambda")


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


class _Layer(eqx.Module):
    weight: jax.Array
    words: list[str] = eqx.field(static=True)


def _returned() -> Row:
    layers = [_Layer(jnp.ones(2), [f"word {i}" for i in range(50_000)]) for _ in range(100)]

    def function(tree: Any, x: Any, static: Any) -> Any:
        return _apply(static, x), layers

    return Row("a result of 100 layers, each with 50,000 static words", function, None)


def _rows() -> dict[str, Callable[[], Row]]:
    def of_transformer() -> Row:
        case = CASES["transformer"]()
        read = _used(lambda model: model.norm.weight)
        return Row("transformer of 24 layers (339 arrays)", read, case.args[0])

    def nnx_row() -> Row:
        options = {"static_argnums": 2}
        return Row(
            "`nnx.jit` of 64 Variables",
            lambda tree, x, static: _apply(static, tree(x)),
            _variables(),
            lambda f: nnx.jit(f, **options),
            lambda f, **more: filterjit.nnx.jit(f, **options, **more),
        )

    used_weight = _used(lambda tree: tree["weight_000"])
    strings = [jnp.ones(()), [f"string {i}" for i in range(100_000)]]
    return {
        "tiny": lambda: Row("a tiny function", _tiny, None),
        "mlp": lambda: Row("MLP 8-32x4-8, inference", _model, CASES["mlp"]().args[0]),
        "transformer": of_transformer,
        "strings": lambda: Row("one array and 100,000 str", _used(lambda tree: tree[0]), strings),
        "method": lambda: Row(
            "a method of an object with 300,000 dicts", _Holder(300_000).call, None
        ),
        "dict": lambda: Row("dict of 10,000 arrays", used_weight, dict_of(10_000)[0]),
        "nnx": nnx_row,
        "returned": _returned,
    }


def _processor_time(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
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


def _flat(row: Row, tree: Any, x: Any, static: Any) -> Callable[[], Any]:
    """Returns a call of `jax.jit` of the row's function on a flat list of arrays, which misses."""
    if isinstance(tree, nnx.Module):
        graph, state = nnx.split(tree)
        leaves, treedef = jtu.tree_flatten(state)

        def build(leaves: Any) -> Any:
            return nnx.merge(graph, jtu.tree_unflatten(treedef, leaves))
    else:
        arrays, statics = eqx.partition(tree, eqx.is_array)
        leaves, treedef = jtu.tree_flatten(arrays)

        def build(leaves: Any) -> Any:
            return eqx.combine(jtu.tree_unflatten(treedef, leaves), statics)

    def of_arrays(leaves: Any, x: Any) -> Any:
        return jtu.tree_leaves(row.function(build(leaves), x, static))

    jitted = jax.jit(of_arrays)
    return lambda: jitted(leaves, x)


def _quiet(call: Callable[[], Any]) -> Callable[[], Any]:
    def quiet() -> None:
        try:
            call()
        except RetraceError:
            pass

    return quiet


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
        _quiet(lambda jit=jit: jit(*new()))()
    calls: dict[str, Callable[[tuple[Any, ...]], Callable[[], Any]]] = {
        name: lambda args, jit=jit: _quiet(lambda: jit(*args)) for name, jit in jits.items()
    }
    calls["flat"] = lambda args: _flat(row, *args)
    found: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for _ in range(rounds):
        for name in order:
            call = calls[name](new())
            gc.collect()
            found[name].append(_processor_time(call))
        order.append(order.pop(0))
    return {name: min(times) for name, times in found.items()}


def main() -> int:
    makers = _rows()
    warnings.simplefilter("ignore", filterjit.RetraceWarning)
    logging.getLogger("filterjit").addHandler(logging.NullHandler())

    def rows_of(name: str, quick: bool) -> Iterator[list[str]]:
        row = makers[name]()
        for miss in MISSES:
            found = measure(row, miss, 3 if quick else ROUNDS)
            ms = {name: 1e3 * seconds for name, seconds in found.items()}
            times = (f"{ms[name]:.1f}" for name in ("ours", "peer", "flat"))
            ratio, more = f"{ms['ours'] / ms['peer']:.2f}", f"{ms['ours'] - ms['flat']:.2f}"
            logs = (f"{ms[name]:.1f}" for name in ("log", "raise"))
            yield [row.summary, miss, *times, ratio, more, *logs]

    return command.table(
        __doc__.splitlines()[0],
        makers,
        ["", "a new", "filterjit", "peer", "flat", "/ peer", "- flat", "log", "raise"],
        rows_of,
        quick="three misses of each",
    )


if __name__ == "__main__":
    sys.exit(main())
