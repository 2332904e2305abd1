"""Operations with a Direct.

A call whose arrays cannot be looked at, or of which nothing can be noted, is passed on.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

from core_support import Array, core
from direct_support import new_plan
from operations import SHARED, X, Y, after, operation
from outcome_support import nothing, raised

CONFIGURATION = ("configuration", X)
CONSTANTS = (Y,)
HANDLERS: list[Any] = [X, Y]
RESULTS = (X, Y)
KINDS = tuple(Array(f"kind {i}") for i in range(6))


def execute(inputs: Any) -> Any:
    assert inputs[0] is Y and len(inputs) == 2
    return RESULTS


def execute_many(inputs: Any) -> Any:
    assert len(inputs) == 31 and inputs[30] is X
    return RESULTS


def consume(results: Any, handlers: Any) -> Any:
    return results


def consume_lists(results: Any, handlers: Any) -> Any:
    return iter(handlers)


def configuration() -> Any:
    return CONFIGURATION


def no() -> bool:
    return False


def plan(source: Any, arrays: Any) -> Any:
    more = {"handlers": HANDLERS, "constants": CONSTANTS, "trace": 3}
    if len(arrays) == 30:
        return new_plan(execute_many, MANY_FLAGS, **more)
    if arrays[1] is not Y:
        return "refused"
    puts = PUTS if arrays[0] is HOST else ()
    return new_plan(execute, b"\1\0", checks_deleted=True, puts=puts, **more)


def jitted(a: Any, b: Any) -> Any:
    return core.output_unflatten(3, RESULTS)


MANY_FLAGS = b"\1" * 30
NAMES = [f"a{i}" for i in range(30)]
take_many = eval(f"lambda {', '.join(NAMES)}: jitted(a0, a1)")  # `*args` would leak


class Host:
    """An array of the host's."""

    dtype, shape = "float32", (3,)

    def copy(self) -> Host:
        return self


HOST = Host()
PUTS = ((X, Y, [X]),)


def put(aval: Any, sharding: Any, values: Any, devices: Any, committed: Any, copies: Any) -> Any:
    assert aval is X and sharding is Y and devices[0] is X and values[0] is HOST
    assert copies and not committed
    return X


# The value of an array is its aval, its text its sharding: a new object each time it is asked for.
PARTS = {
    "array_type": Array,
    "get_aval": operator.attrgetter("value"),
    "get_sharding": repr,
    "get_committed": callable,
    "get_layout": type,
    "is_deleted": callable,
    "key_type": list,  # lists stand for keys
    "get_data": operator.itemgetter(0),
    "get_impl": type,
    "host_array": Host,
    "host_scalar": Host,
    "put": put,
    "configuration": configuration,
    "get_setting": type,
    "settings": (X, Y),
    **dict.fromkeys(("is_disabled", "is_profiled", "collect"), no),
}
SHARED += [
    *(CONFIGURATION, CONSTANTS, HANDLERS, RESULTS, execute, consume, plan, jitted, *KINDS),
    *(repr, callable, HOST, *PUTS, put),
]


class Kept:
    """A Direct that was called with each of these arguments."""

    def __init__(self, *calls: Any, jitted: Any = jitted, consume: Any = consume) -> None:
        self.context = core.DirectContext(**PARTS, make_arrays=consume, plan=plan)
        self.context.enabled = 1
        self.jit = core.Direct(self.context, jitted, self)
        for args in calls:
            self.jit(*args)

    def called(self, args: Any, kwargs: Any) -> None: ...

    def is_right(self, output: Any) -> bool:
        return output.arrays[0] is X and output.arrays[1] is Y and output.trace == 3


def call(
    name: str, last: Any, *before: Any, same: int = 0, change: Any = None, **options: Any
) -> None:
    """Registers a call with the `last` arguments, after others."""
    new = functools.partial(Kept, *before, **options)
    after(f"direct_call_{name}", new, lambda: (last, {}), same=same, change=change)


call("that_is_noted", (X, Y))
call("that_is_planned", (X, Y), same=1)
call("that_is_refused", (X, X), same=1)
call("that_is_direct", (X, Y), same=2)
call("with_known_arrays", (X, Y), same=5)
call("whose_results_are_iterated", (X, Y), same=2, consume=consume_lists)
call("of_an_array_of_the_host_that_is_planned", (HOST, Y), same=1)
call("that_puts_an_array_of_the_host", (HOST, Y), same=2)
call("of_another_kind", (X, Y), *[(kind, Y) for kind in KINDS for _ in range(3)])
call("with_another_array", (Array("x"), Y), (X, Y), (X, Y))
call("after_forgetting", (X, Y), same=2, change=lambda kept, args: kept.context.forget())
# The result X was the first argument of the last call.
call("with_results", (X, Y), *[args for _ in range(3) for args in ((Array("x"), Y), (X, Y))])


def is_right(kept: Kept, output: Any) -> bool:
    return kept.is_right(output)


MANY = (X,) * 30  # Python keeps no tuples of that length for the next one


@operation(lambda: Kept(MANY, jitted=take_many), check=is_right)
def direct_call_with_many_arrays(kept: Kept) -> Any:
    """Calls rest where one was compared in vain."""
    kept.jit(*MANY)
    return kept.jit(*MANY)


@operation(Kept, check=is_right)
def direct_calls_that_evict(kept: Kept) -> Any:
    for kind in KINDS:
        for _ in range(30):
            output = kept.jit(kind, Y)
    return output


@operation(Kept, check=is_right)
def direct_call_with_an_added_entry(kept: Kept) -> Any:
    loaded = core.Direct(kept.context, jitted, None)
    loaded.add(plan(None, (X, Y)), (X, Y))
    return loaded(X, Y)


@operation(nothing, [2, True, None])
def new_directs(_: None) -> Any:
    """They are in cycles with what they hold."""
    direct = Kept((X, Y), (X, Y)).jit
    found = [sum(direct.counts.values()), direct.jitted is jitted, direct.why_no_plan]
    raised(AttributeError, getattr, direct, "nothing")
    raised(TypeError, core.Direct, None), raised(TypeError, core.DirectContext, 1)
    return found
