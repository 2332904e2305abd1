"""Places of the hostile matrix in a direct call: variants are called through a ``_core.Direct``.

With no calls to wait for, the first call of a variant is noted, the second one is planned, and the
third one only goes to the executable.
"""

from collections.abc import Callable
from typing import Any

from core_support import Array, core
from direct_support import ONE, ROWS, Layout, Sharding
from outcome_support import nothing
from places import World, place

Function = Callable[..., Any]
# The types and functions of a context, in the order of its parameters. No array is a key or of the host.
PARTS: dict[str, Any] = {
    "array": Array,
    "aval": lambda x: type(x.value),
    "sharding": lambda x: ONE,
    "committed": lambda x: True,
    "layout": lambda x: ROWS,
    "is_deleted": lambda x: False,
    "keys": type(None),
    "data": nothing,
    "impl": nothing,
    "host": type(None),
    "scalar": type(None),
    "put": nothing,
    "configuration": lambda: (None, True),
    "setting": lambda setting: setting,
    "settings": ("setting", "other"),
    "is_disabled": lambda: False,
    "is_profiled": lambda: False,
    "collect": lambda: None,
    "consume": lambda results, handlers: list(results),
}


def use_direct(
    w: World,
    loud: str = "",
    flag: int = 3,
    number: Function = lambda x: x,
    execute: Function = lambda jitted, inputs: jitted.run(*inputs),
    **parts: Function,
) -> Any:
    """Makes the `call` of each variant a Direct, with these functions in its context. The trap answers
    in the place of the one named `loud`."""

    def with_trap(name: str, right: Any) -> Any:
        return w.after(right) if name == loud else right

    run = with_trap("execute", execute)

    def plan(jitted: Any, arrays: Any) -> Any:
        trace = jitted.traces[tuple([type(x.value) for x in arrays])]
        numbers = number(trace), number(loud == "is_deleted")
        flags = bytes([flag]) * len(arrays)
        return lambda inputs: run(jitted, inputs), [None] * len(arrays), (), flags, *numbers, ()

    all_parts = {**PARTS, **parts, "plan": plan}
    context = core.DirectContext(*[with_trap(name, part) for name, part in all_parts.items()])
    context.enabled = 1
    compile = w.hooks.compile

    def make(f: Any, variant: Any) -> Any:
        jitted = compile(f, variant)
        return core.Direct(context, with_trap("jitted", jitted), jitted)

    w.hooks.compile = make  # type: ignore[method-assign]
    w.forget = context.forget


class Loud(Sharding):
    __hash__ = Sharding.__hash__

    def __eq__(self, other: object) -> Any:
        return True


class Number:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self) -> Any:
        return self.value

    __bool__ = __index__


def mortal_before(w: World) -> Any:
    """A layout with the trap in its finalizer, if it was asked for before the trap is armed."""
    layout = w.mortal(Layout, "rows")
    layout.quiet = w.armed
    return layout


def call_much(w: World, tree: Any) -> Any:
    for _ in range(17):
        result = w.f(tree)
    return result


def call_and_forget(w: World, tree: Any) -> Any:
    w.f(tree)
    w.forget()
    return w.f(tree)


def loud_sharding(w: World) -> Any:
    return Sharding("one", lambda: w.answer(None))


def loud_layout(w: World) -> Any:
    return Layout("rows", lambda: w.answer(None))


for _name in (
    *("aval", "sharding", "committed", "layout", "is_deleted", "configuration", "setting"),
    *("is_profiled", "consume", "plan", "execute", "jitted"),
):
    place(
        f"direct.{_name}",
        lambda w, name=_name: use_direct(w, name),
        passed_on=_name not in ("consume", "jitted"),
    )
# It comes each 16 direct calls of all variants.
place("collection_of_a_direct_call", lambda w: use_direct(w, "collect"), run=call_much)
PARTS_WITH_TRAPS: dict[str, Callable[[World], dict[str, Any]]] = {
    "sharding_that_is_compared": lambda w: {"sharding": lambda x: loud_sharding(w)},
    "configuration_that_is_compared": lambda w: {
        "configuration": lambda: (1, loud_layout(w), "end")},
    "layout_that_is_compared": lambda w: {"layout": lambda x: loud_layout(w)},
    "truth_of_a_sharding": lambda w: {"sharding": lambda x: w.loud(Loud, "__eq__")("one")},
    "numbers_of_a_plan": lambda w: {"number": w.loud(w.loud(Number, "__index__"), "__bool__")},
    # Where a plan says that the layout of an argument does not matter.
    "finalizer_of_a_layout": lambda w: {"flag": 1, "layout": lambda x: mortal_before(w)},
    "finalizer_of_a_layout_that_was_compared": lambda w: {
        "layout": lambda x: w.mortal(Layout, "rows")},
    # Where another equal one is remembered.
    "finalizer_of_a_sharding": lambda w: {"sharding": lambda x: w.mortal(Sharding, "one")},
    "finalizer_of_an_entry": lambda w: {"configuration": lambda: (w.mortal(Layout, "rows"),)},
    # Where the raw results are dropped, and where the list of arrays is.
    "finalizer_of_a_result": lambda w: {
        "execute": lambda jitted, inputs: w.mortal(list, jitted.run(*inputs)),
        "consume": lambda results, handlers: w.mortal(list, results)},
}  # fmt: skip
for _name, _parts in PARTS_WITH_TRAPS.items():
    place(
        _name,
        lambda w, parts=_parts: use_direct(w, **parts(w)),
        run=call_and_forget if "entry" in _name else None,
        unraisable="finalizer" in _name,
        passed_on="compared" in _name,
    )
