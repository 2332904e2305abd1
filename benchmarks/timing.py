"""How the benchmarks measure time.

Several calls are timed alternately in one process, in batches of some milliseconds, so that other
load on the machine affects all of them. The garbage collector is off while a batch runs. The
fastest batch of each counts.
"""

import functools
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

BATCH = 5e-3  # the least seconds of a batch of calls
ROUNDS = 10  # the least number of batches of each

# Makes a number of calls and returns the seconds that one of them takes.
Timer = Callable[[int], float]


def interleaved(
    batches: Mapping[Any, Callable[[], float]], seconds: float, rounds: int = ROUNDS
) -> dict[Any, float]:
    """Runs the batches alternately, and returns the best time that each returned.

    Each batch runs at least `rounds` times, and for at least `seconds` all together. Garbage is
    collected before each batch.
    """
    found: dict[Any, list[float]] = {name: [] for name in batches}
    order = list(batches)
    gc.collect()
    gc.freeze()  # existing objects are skipped, so the collections below are fast
    gc.disable()
    try:
        start = time.perf_counter()
        for done in itertools.count(1):
            for name in order:
                gc.collect()
                found[name].append(batches[name]())
            order.append(order.pop(0))  # so that no batch always follows the same other one
            if done >= rounds and time.perf_counter() - start >= seconds:
                break
    finally:
        gc.enable()
        gc.unfreeze()
    return {name: min(times) for name, times in found.items()}


def best_of(timers: Mapping[str, Timer], seconds: float) -> dict[str, float]:
    """Times calls alternately for about `seconds`. Returns the seconds of one call of each."""
    batches = {x: functools.partial(timer, calls_in(BATCH, timer)) for x, timer in timers.items()}
    return interleaved(batches, seconds)


def in_a_row(call: Call, number: int) -> float:
    """Makes `number` calls without a pause, and returns the seconds of one.

    The last result is waited for after the clock has stopped.
    """
    out = None
    repeat = itertools.repeat(None, number)
    start = time.perf_counter()
    for _ in repeat:
        out = call()
    seconds = time.perf_counter() - start
    jax.block_until_ready(arrays_in(out))
    return seconds / number


def best_times(
    calls: Mapping[str, Call],
    seconds: float,
    *,
    timer: Callable[[Call, int], float] = in_a_row,
    before: int = 3,
) -> dict[str, float]:
    """Times the calls alternately for about `seconds`, after so many of each `before`. Returns the
    seconds of one call."""
    for call in calls.values():
        for _ in range(before):
            jax.block_until_ready(arrays_in(call()))
    return best_of({x: functools.partial(timer, call) for x, call in calls.items()}, seconds)


def _getter_of_last_array(tree: Any) -> Callable[[Any], jax.Array]:
    """Returns a function that takes the last array out of trees like `tree`, almost for free."""
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
    """Makes `number` calls, each on an idle device, and returns the median seconds of one.

    The device is waited for between calls, while the clock is stopped. The wait is a busy loop:
    after a sleep, or a walk through all results, the next call would find cold caches, and this
    slows down some peers more than others.
    """
    last = _getter_of_last_array(call())
    clock = time.perf_counter
    found = []
    for _ in range(number):
        start = clock()
        out = call()
        found.append(clock() - start)
        while not last(out).is_ready():
            pass
    return statistics.median(found)


def each_awaited(call: Call, number: int) -> float:
    """Makes `number` calls, waits for the result of each, and returns the seconds of one."""
    last = _getter_of_last_array(call())
    repeat = itertools.repeat(None, number)
    start = time.perf_counter()
    for _ in repeat:
        last(call()).block_until_ready()
    return (time.perf_counter() - start) / number


def timer_for(case: Case) -> Callable[[Call, int], float]:
    """Returns `one_by_one` if the device may still be busy when a call returns, else `in_a_row`."""
    return one_by_one if case.lasts or jax.default_backend() != "cpu" else in_a_row


def timers_for(case: Case) -> dict[str, Callable[[Call, int], float]]:
    """Returns the two ways to time a case: until a call returns, and with each result awaited.

    Cases whose calls run no program have no results to wait for.
    """
    timers = {"return": timer_for(case)}
    if not (case.makes_function or case.nested):
        timers["each"] = each_awaited
    return timers


def calls_in(seconds: float, timer: Timer) -> int:
    """Returns how many calls take at least `seconds`, by the fastest of three tries."""
    number = 1
    while True:
        spent = min(timer(number) for _ in range(3)) * number
        if spent >= seconds:
            return number
        number = max(number + 1, min(number * 10, int(number * seconds / spent * 1.2)))
