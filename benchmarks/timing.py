"""How the benchmarks measure: by turns in one process, so that what else goes on in the machine
meets all, without garbage collection; the best turn of each counts."""

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu

from cases import Call, Case, arrays_in


def interleaved(
    turns: Mapping[str, Callable[[], float]],
    seconds: float,
    rounds: int,
    pick: Callable[[list[float]], float] = min,
) -> dict[str, float]:
    """The best time that each turn returned, or what else `pick` takes, of `rounds` or more, in
    `seconds` or more.

    Garbage is collected before each turn and not during it.
    """
    found: dict[str, list[float]] = {name: [] for name in turns}
    order = list(turns)
    gc.collect()
    gc.freeze()  # what is there by now is no garbage: collecting in between is quick
    gc.disable()
    try:
        start = time.perf_counter()
        for done in itertools.count(1):
            for name in order:
                gc.collect()
                found[name].append(turns[name]())
            order.append(order.pop(0))  # nobody always follows the same one
            if done >= rounds and time.perf_counter() - start >= seconds:
                break
    finally:
        gc.enable()
        gc.unfreeze()
    return {name: pick(times) for name, times in found.items()}


def in_a_row(call: Call, number: int) -> float:
    """Seconds that a call takes, of so many in a row. The last result is waited for afterwards."""
    out = None
    repeat = itertools.repeat(None, number)
    start = time.perf_counter()
    for _ in repeat:
        out = call()
    seconds = time.perf_counter() - start
    jax.block_until_ready(arrays_in(out))
    return seconds / number


def _way_to_last_array(tree: Any) -> Callable[[Any], jax.Array]:
    """A function that takes the last array out of trees like this one, at next to no cost."""
    *_, path = (p for p, x in jtu.tree_leaves_with_path(tree) if eqx.is_array(x))

    def last(tree: Any) -> jax.Array:
        for key in path:
            if isinstance(key, jtu.GetAttrKey):
                tree = object.__getattribute__(tree, key.name)
            else:
                tree = tree[key.idx if isinstance(key, jtu.SequenceKey) else key.key]
        return tree

    return last


def one_by_one(call: Call, number: int) -> float:
    """Seconds until a call returns, the median of so many, each begun when the device is idle.

    The device is waited for in between, off the clock and wide awake: a sleep, or a walk through
    the results, would leave the next call with cold caches, and more so for some than for others.
    """
    last = _way_to_last_array(call())
    clock = time.perf_counter
    found = []
    for _ in range(number):
        start = clock()
        out = call()
        found.append(clock() - start)
        while not last(out).is_ready():
            pass
    return statistics.median(found)


def way_to_time(case: Case) -> Callable[[Call, int], float]:
    """One by one where the device may still be at work when a call returns, else in a row."""
    return one_by_one if case.lasts or jax.default_backend() != "cpu" else in_a_row


def calls_in(seconds: float, turn: Callable[[int], float]) -> int:
    """How many calls fill a turn of so many seconds, at the pace of the fastest of a few tries."""
    number = 1
    while True:
        spent = min(turn(number) for _ in range(3)) * number
        if spent >= seconds:
            return number
        number = max(number + 1, min(number * 10, int(number * seconds / spent * 1.2)))
