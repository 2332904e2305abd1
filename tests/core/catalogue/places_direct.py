"""Places of the hostile matrix in a direct call: variants are called through a ``_core.Direct``.

With no calls to wait for, the first call of a variant is noted, the second one is planned, and the
third one only goes to the executable.
"""

from collections.abc import Callable
from typing import Any

from core_support import Array, core
from direct_support import ONE, ROWS, Layout, Sharding, new_plan
from outcome_support import nothing
from places import World, place

Function = Callable[..., Any]
# The types and functions of a context. No array is a key or of the host.
PARTS: dict[str, Any] = {
    "array_type": Array,
    "get_aval": lambda x: type(x.value),
    "get_sharding": lambda x: ONE,
    "get_committed": lambda x: True,
    "get_layout": lambda x: ROWS,
    "is_deleted": lambda x: False,
    "key_type": type(None),
    "get_data": nothing,
    "get_impl": nothing,
    "host_array": type(None),
    "host_scalar": type(None),
    "put": nothing,
    "configuration": lambda: (None, True),
    "get_setting": lambda setting: setting,
    "settings": ("setting", "other"),
    "is_disabled": lambda: False,
    "is_profiled": lambda: False,
    "collect": lambda: None,
    "make_arrays": lambda results, handlers: list(results),
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
        return new_plan(
            lambda inputs: run(jitted, inputs),
            bytes([flag]) * len(arrays),
            handlers=[None] * len(arrays),
            trace=number(trace),
            checks_deleted=number(loud == "is_deleted"),
        )

    all_parts = {**PARTS, **parts, "plan": plan}
    context = core.DirectContext(**{k: with_trap(k, part) for k, part in all_parts.items()})
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
    *("get_aval", "get_sharding", "get_committed", "get_layout", "is_deleted", "configuration"),
    *("get_setting", "is_profiled", "make_arrays", "plan", "execute", "jitted"),
):
    place(f"direct.{_name.removeprefix('get_')}", lambda w, name=_name: use_direct(w, name),
        passed_on=_name not in ("make_arrays", "jitted"))  # fmt: skip
# It comes each 16 direct calls of all variants.
place("collection_of_a_direct_call", lambda w: use_direct(w, "collect"), run=call_much)
PARTS_WITH_TRAPS: dict[str, Callable[[World], dict[str, Any]]] = {
    "sharding_that_is_compared": lambda w: {"get_sharding": lambda x: loud_sharding(w)},
    "configuration_that_is_compared": lambda w: {
        "configuration": lambda: (1, loud_layout(w), "end")},
    "layout_that_is_compared": lambda w: {"get_layout": lambda x: loud_layout(w)},
    "truth_of_a_sharding": lambda w: {"get_sharding": lambda x: w.loud(Loud, "__eq__")("one")},
    "numbers_of_a_plan": lambda w: {"number": w.loud(w.loud(Number, "__index__"), "__bool__")},
    # Where a plan says that the layout of an argument does not matter.
    "finalizer_of_a_layout": lambda w: {"flag": 1, "get_layout": lambda x: mortal_before(w)},
    "finalizer_of_a_layout_that_was_compared": lambda w: {
        "get_layout": lambda x: w.mortal(Layout, "rows")},
    # Where another equal one is remembered.
    "finalizer_of_a_sharding": lambda w: {"get_sharding": lambda x: w.mortal(Sharding, "one")},
    "finalizer_of_an_entry": lambda w: {"configuration": lambda: (w.mortal(Layout, "rows"),)},
    # Where the raw results are dropped, and where the list of arrays is.
    "finalizer_of_a_result": lambda w: {
        "execute": lambda jitted, inputs: w.mortal(list, jitted.run(*inputs)),
        "make_arrays": lambda results, handlers: w.mortal(list, results)},
}  # fmt: skip
for _name, _parts in PARTS_WITH_TRAPS.items():
    place(_name, lambda w, parts=_parts: use_direct(w, **parts(w)),
        run=call_and_forget if "entry" in _name else None, unraisable="finalizer" in _name,
        passed_on="compared" in _name)  # fmt: skip
