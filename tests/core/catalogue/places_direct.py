"""Places of the hostile matrix in a direct call: variants are called through a ``_core.Direct``.

With no calls to wait for, the first call of a variant is noted, the second one is planned, and the
third one only goes to the executable.
"""

from collections.abc import Callable
from typing import Any

from core_support import Array, core
from direct_support import ONE, ROWS, Layout, Sharding
from places import World, place


class Host:
    """An array of the host's, which `put` turns into `array`."""

    dtype, shape = "float32", ()

    def __init__(self, array: Any) -> None:
        self.array = array


class Direct:
    """Makes the `call` of each variant a Direct.  `parts` has the functions of its context."""

    def __init__(self, w: World, checks_deleted: bool = False, flag: int = 3) -> None:
        self.w, self.checks_deleted, self.flag = w, checks_deleted, flag
        self.parts: dict[str, Callable[..., Any]] = {
            "aval": lambda x: type(x.value),
            "sharding": lambda x: ONE,
            "committed": lambda x: True,
            "layout": lambda x: ROWS,
            "is_deleted": lambda x: False,
            "data": lambda x: x,
            "impl": lambda x: None,
            "put": lambda aval, sharding, values, *_: values[0].array,
            "configuration": lambda: (None, True),
            "setting": lambda setting: setting,
            "is_disabled": lambda: False,
            "is_profiled": lambda: False,
            "collect": lambda: None,
            "consume": lambda results, handlers: list(results),
            "plan": self.plan,
            "execute": lambda jitted, inputs: jitted.run(*inputs),
            "jitted": lambda jitted, arrays: jitted(*arrays),
        }
        names = list(self.parts)[:-2]
        parts: list[Any] = [self.function(name) for name in names]
        parts.insert(names.index("setting") + 1, ("setting", "other"))
        parts.insert(names.index("data"), type(None))
        at = parts.index(type(None)) + 3
        parts[at:at] = [Host, Host]
        self.context = core.DirectContext(Array, *parts)
        self.context.enabled = 1
        compile = w.hooks.compile

        def make(f: Any, variant: Any) -> Any:
            jitted = compile(f, variant)
            return core.Direct(self.context, self.function("jitted", jitted), jitted)

        w.hooks.compile = make  # type: ignore[method-assign]

    def function(self, name: str, jitted: Any = None) -> Callable[..., Any]:
        if name == "jitted":
            return lambda *arrays: self.parts[name](jitted, arrays)
        return lambda *args: self.parts[name](*args)

    def plan(self, jitted: Any, arrays: Any) -> Any:
        execute = lambda inputs: self.parts["execute"](jitted, inputs)
        trace = jitted.traces[tuple(type(x.value) for x in arrays)]
        flags = bytes([self.flag]) * len(arrays)
        puts = tuple([(None, ONE, []) for x in arrays if type(x) is Host])
        return execute, [None] * len(arrays), (), flags, trace, self.checks_deleted, puts

    def trap(self, name: str) -> None:
        """Lets the trap answer in the place of one of the functions."""
        right = self.parts[name]
        self.parts[name] = lambda *args: self.w.answer(right(*args))


def part_of_a_direct_call(name: str) -> None:
    def make(w: World) -> Any:
        Direct(w, checks_deleted=name == "is_deleted").trap(name)
        return None

    make.__name__ = f"direct.{name}"
    place()(make)


for _name in (
    *("aval", "sharding", "committed", "layout", "is_deleted", "configuration", "setting"),
    *("is_profiled", "consume", "plan", "execute", "jitted"),
):
    part_of_a_direct_call(_name)


@place()
def collection_of_a_direct_call(w: World) -> Any:
    """It comes each 16 direct calls of all variants."""
    direct = Direct(w)
    direct.trap("collect")

    def run(tree: Any) -> Any:
        for _ in range(17):
            result = w.f(tree)
        return result

    w.run = run
    return None


@place()
def sharding_that_is_compared(w: World) -> Any:
    Direct(w).parts["sharding"] = lambda x: Sharding("one", lambda: w.answer(None))
    return None


@place()
def configuration_that_is_compared(w: World) -> Any:
    Direct(w).parts["configuration"] = lambda: (1, Layout("rows", lambda: w.answer(None)), "end")
    return None


@place()
def layout_that_is_compared(w: World) -> Any:
    Direct(w).parts["layout"] = lambda x: Layout("rows", lambda: w.answer(None))
    return None


@place()
def truth_of_a_sharding(w: World) -> Any:
    class Loud(Sharding):
        __hash__ = Sharding.__hash__

        def __eq__(self, other: object) -> Any:
            return w.answer(True)

    Direct(w).parts["sharding"] = lambda x: Loud("one")
    return None


@place()
def numbers_of_a_plan(w: World) -> Any:
    class Loud:
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def __index__(self) -> Any:
            return w.answer(self.answer)

        def __bool__(self) -> Any:
            return w.answer(self.answer)

    direct = Direct(w)
    plan = direct.plan
    direct.parts["plan"] = lambda *args: (
        lambda found: (*found[:4], Loud(found[4]), Loud(found[5]), found[6])
    )(plan(*args))
    return None


class Mortal(Layout):
    def __init__(self, hook: Callable[[], Any]) -> None:
        super().__init__("rows")
        self.hook = hook

    def __del__(self) -> None:
        self.hook()


@place(unraisable=True)
def finalizer_of_a_layout(w: World) -> Any:
    """Runs when a plan says that the layout of an argument does not matter."""
    Direct(w, flag=1).parts["layout"] = lambda x: Mortal((lambda: None) if w.armed else w.hook)
    return None


@place(unraisable=True)
def finalizer_of_a_layout_that_was_compared(w: World) -> Any:
    Direct(w).parts["layout"] = lambda x: Mortal(w.hook)
    return None


@place(unraisable=True)
def finalizer_of_a_sharding(w: World) -> Any:
    """Runs when another equal one is remembered."""

    class MortalSharding(Sharding):
        def __del__(self) -> None:
            w.hook()

    Direct(w).parts["sharding"] = lambda x: MortalSharding("one")
    return None


@place(unraisable=True)
def finalizer_of_an_entry(w: World) -> Any:
    direct = Direct(w)
    direct.parts["configuration"] = lambda: (Mortal(w.hook),)

    def run(tree: Any) -> Any:
        w.f(tree)
        direct.context.forget()
        return w.f(tree)

    w.run = run
    return None


@place(unraisable=True)
def finalizer_of_a_result(w: World) -> Any:
    """Runs where the raw results are dropped, and where the list of arrays is."""

    class Results(list):  # type: ignore[type-arg]
        def __del__(self) -> None:
            w.hook()

    direct = Direct(w)
    direct.parts["execute"] = lambda jitted, inputs: Results(jitted.run(*inputs))
    direct.parts["consume"] = lambda results, handlers: Results(results)
    return None
