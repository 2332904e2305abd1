"""Operations  with a Direct.

A call whose arrays cannot be looked at, or of which nothing can be noted, is passed on.
"""

from __future__ import annotations

import operator
from typing import Any

from core_support import Array, Value, core
from operations import OPERATIONS, SHARED, Operation, X, Y, equals, expect, operation
from outcome_support import raised

CONFIGURATION = ("configuration", X)
CONSTANTS = (Y,)
HANDLERS: list[Any] = [X, Y]
RESULTS = (X, Y)
KINDS = tuple(Array(f"kind {i}") for i in range(6))


def execute(inputs: Any) -> Any:
    expect(inputs[0] is Y and len(inputs) == 2)
    return RESULTS


def consume(results: Any, handlers: Any) -> Any:
    return results


def consume_lists(results: Any, handlers: Any) -> Any:
    return iter(handlers)


def configuration() -> Any:
    return CONFIGURATION


def nothing() -> Any:
    return False


def plan(source: Any, arrays: Any) -> Any:
    if arrays[1] is not Y:
        return "refused"
    return execute, HANDLERS, CONSTANTS, b"\1\0", 3, True, PUTS if arrays[0] is HOST else ()


def jitted(a: Any, b: Any) -> Any:
    return core.output_unflatten(3, RESULTS)


class Host:
    """An array of the host's."""

    dtype, shape = "float32", (3,)

    def copy(self) -> Host:
        return self


HOST = Host()
PUTS = ((X, Y, [X]),)


def put(aval: Any, sharding: Any, values: Any, devices: Any, committed: Any, copies: Any) -> Any:
    expect(aval is X and sharding is Y and devices[0] is X and values[0] is HOST)
    expect(copies and not committed)
    return X


# The value of an array is its aval, its text its sharding: a new object each time it is asked for.
PARTS = (
    *(Array, operator.attrgetter("value"), repr, callable, type, callable),
    *(list, operator.itemgetter(0), type),  # lists stand for keys
    *(Host, Host, put),
    *(configuration, type, (X, Y), nothing, nothing, nothing),
)
SHARED += [
    *(CONFIGURATION, CONSTANTS, HANDLERS, RESULTS, execute, consume, plan, jitted, *KINDS),
    *(repr, callable, HOST, *PUTS, put),
]


def new_direct(consume: Any = consume) -> Any:
    context = core.DirectContext(*PARTS, consume, plan)
    context.enabled = 1
    return core.Direct(context, jitted, None)


def calls(direct: Any, *args: Any) -> Operation:
    def call() -> Any:
        return direct(*args)

    return call, is_right


def is_right(output: Any) -> None:
    expect(output.arrays[0] is X and output.arrays[1] is Y and output.trace == 3)


def after(name: str, *before: tuple[Any, Any], last: Any = (X, Y), consume: Any = consume) -> None:
    """Registers a call with the arguments `last`, after others."""

    def make() -> Operation:
        direct = new_direct(consume)
        for args in before:
            direct(*args)
        return calls(direct, *last)

    OPERATIONS[f"direct_call_{name}"] = make


after("that_is_noted")
after("that_is_planned", (X, Y))
after("that_is_refused", (X, X), last=(X, X))
after("that_is_direct", *[(X, Y)] * 2)
after("with_known_arrays", *[(X, Y)] * 5)
after("whose_results_are_iterated", *[(X, Y)] * 2, consume=consume_lists)
after("that_puts_an_array_of_the_host", *[(HOST, Y)] * 2, last=(HOST, Y))
after("of_an_array_of_the_host_that_is_planned", (HOST, Y), last=(HOST, Y))
after("of_another_kind", *[(kind, Y) for kind in KINDS for _ in range(3)])


@operation
def direct_call_with_fresh_arrays() -> Operation:
    direct = new_direct()
    direct(X, Y), direct(X, Y)

    def call() -> Any:
        return direct(Array("x"), Y)

    return call, is_right


@operation
def direct_call_with_results() -> Operation:
    """The result X was the first argument of the last call."""
    direct = new_direct()
    for _ in range(3):
        direct(Array("x"), Y)
        direct(X, Y)
    return calls(direct, X, Y)


NAMES = [f"a{i}" for i in range(30)]
take_many = eval(f"lambda {', '.join(NAMES)}: jitted(a0, a1)")  # `*args` would leak


def execute_many(inputs: Any) -> Any:
    expect(len(inputs) == 31 and inputs[30] is X)
    return RESULTS


def plan_many(source: Any, arrays: Any) -> Any:
    return execute_many, HANDLERS, CONSTANTS, MANY_FLAGS, 3, False, ()


MANY_FLAGS = b"\1" * 30


@operation
def direct_call_with_many_arrays() -> Operation:
    """Python keeps no tuples of that length for the next one."""
    context = core.DirectContext(*PARTS, consume, plan_many)
    context.enabled = 1
    direct = core.Direct(context, take_many, None)
    arrays = (X,) * 30
    direct(*arrays)

    def call() -> Any:
        direct(*arrays)
        return direct(*arrays)

    return call, is_right


@operation
def direct_calls_that_evict() -> Operation:
    direct = new_direct()

    def call() -> Any:
        for kind in KINDS:
            for _ in range(30):
                output = direct(kind, Y)
        return output

    return call, is_right


@operation
def direct_call_after_forgetting() -> Operation:
    context = core.DirectContext(*PARTS, consume, plan)
    context.enabled = 1
    direct = core.Direct(context, jitted, None)
    direct(X, Y), direct(X, Y)

    def call() -> Any:
        context.forget()
        return direct(X, Y)

    return call, is_right


@operation
def directs_in_cycles() -> Operation:
    def call() -> Any:
        holder: Any = Value(1)
        holder.direct = core.Direct(core.DirectContext(*PARTS, consume, plan), jitted, holder)

    return call, equals(None)


@operation
def new_directs() -> Operation:
    def call() -> Any:
        direct = new_direct()
        direct(X, Y), direct(X, Y)
        found = direct.counts, direct.jitted, direct.refusal
        raised(AttributeError, getattr, direct, "nothing")
        raised(TypeError, core.Direct, None), raised(TypeError, core.DirectContext, 1)
        return found

    def check(found: Any) -> None:
        counts, inner, refusal = found
        expect(sum(counts.values()) == 2 and inner is jitted and refusal is None)

    return call, check
