"""Scenarios of leaks.py with Directs."""

from typing import Any

from core_support import core
from direct_support import Backend, DirectArray, Sharding
from leaks_support import Step, scenario
from outcome_support import fail, raised


@scenario
def direct_calls(watched: list[Any]) -> Step:
    backend = Backend()
    x, y, kept = DirectArray(1), DirectArray(2, "f32[3,4]"), DirectArray(3)
    direct = backend.jit(lambda i: i != 1)
    direct(x, y, kept), direct(x, y, kept)
    program = direct.jitted.program([x, y, kept])
    watched += [direct, x, y, kept, backend.context, program.handlers, x.sharding, y.layout]
    state = [x]

    def step() -> None:
        direct(x, y, kept)
        state[0] = direct(state[0], DirectArray(1, "f32[3,4]"), kept).arrays[0]
        direct(DirectArray(sharding=Sharding("one")), y, kept)

    return step


@scenario
def directs_that_come_and_go(watched: list[Any]) -> Step:
    backend = Backend()
    x, y = DirectArray(1), DirectArray(2)
    watched += [backend, backend.context, x, y, x.sharding, x.layout, x.aval]

    def step() -> None:
        direct = backend.jit()
        for _ in range(3):
            direct(x, y)
        raised(AttributeError, getattr, direct, "nothing"), direct.counts, direct.refusal
        direct.clear_cache()
        direct.jitted.me = direct

    step.loops = 300  # type: ignore[attr-defined]
    return step


@scenario
def direct_entries_that_come_and_go(watched: list[Any]) -> Step:
    backend = Backend()
    arrays = [DirectArray(i, f"f32[{i}]") for i in range(6)]
    direct = backend.jit()
    watched += [direct, backend.context, *arrays, *(x.aval for x in arrays), arrays[0].sharding]

    def step() -> None:
        for x in arrays:
            for _ in range(5):
                direct(x)
        backend.configuration = (True, object())
        backend.context.forget()
        direct.jitted.programs.clear()

    step.loops = 100  # type: ignore[attr-defined]
    return step


@scenario
def failing_direct_calls(watched: list[Any]) -> Step:
    backend = Backend()
    x, broken = DirectArray(1), DirectArray(1, sharding=Sharding("one", fail))
    direct = backend.jit()
    direct(x), direct(x)
    program = direct.jitted.program([x])
    parts, plan = backend.parts, backend.parts["plan"]
    watched += [direct, backend.context, x, broken, program, program.handlers, fail, direct.jitted]

    def step() -> None:
        direct(x), direct(broken), direct(x=x)
        program.fails = ValueError()
        direct(x)
        program.fails = None
        for name in ("aval", "sharding", "committed", "setting", "configuration", "is_profiled"):
            right, parts[name] = parts[name], fail
            direct(DirectArray())
            parts[name] = right
        right, parts["consume"] = parts["consume"], fail
        raised(ZeroDivisionError, direct, x)
        parts["consume"] = right
        for wrong in (fail, lambda *args: "no", lambda *args: (plan(*args)[:-1], 1)):
            direct.clear_cache()
            parts["plan"] = wrong
            direct(x), direct(x)
        parts["plan"] = plan
        direct.clear_cache()
        direct(x), direct(x)
        raised(TypeError, core.Direct, backend.context), raised(TypeError, core.DirectContext, 1)

    step.loops = 200  # type: ignore[attr-defined]
    return step
