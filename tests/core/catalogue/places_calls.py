"""Places of the hostile matrix in a call, outside of the walks."""

import weakref
from typing import Any

import core_support as cs
from core_support import Array, Linear, core
from places import (
    NOTHING,
    PLACES,
    World,
    echo,
    place,
    static,
)


@place(unraisable=True)
def finalizer_of_a_leaf(w: World) -> Any:
    """Runs when the arguments of the second call are dropped, or the result of the trace."""

    class Mortal(Array):
        def __del__(self) -> None:
            w.hook()

    w.registry(flatten_one_level=lambda x: ((Mortal(), 1), x.aux))
    w.run = lambda tree: (w.f(tree), tree)[1]
    return cs.Box([Array(), 1], aux=2)


@place(unraisable=True)
def weakref_callback(w: World) -> Any:
    def watch(x: Any) -> Any:
        array = Array()
        w.spare.append(weakref.ref(array, w.hook))
        return (array, 1), x.aux

    w.registry(flatten_one_level=watch)
    w.run = lambda tree: (w.f(tree), tree)[1]
    return cs.Box([Array(), 1], aux=2)


@place(unraisable=True)
def finalizer_of_an_old_variant(w: World) -> Any:
    class Mortal:
        def __del__(self) -> None:
            w.hook()

    w.hooks.on["inspect_new_trace"] = lambda variant, arrays, outputs: setattr(
        variant, "record", Mortal()
    )
    w.run = lambda tree: [w.f(tree), [w.ordinary_call(n) for n in range(8)]][0]
    return None


def hook_of_options(name: str) -> None:
    def make(w: World) -> Any:
        original = getattr(w.hooks, name)

        def hook(*args: Any) -> Any:
            given = w.hook()
            return original(*args) if given is NOTHING else given

        setattr(w.hooks, name, hook)
        w.hooks.may_raise = True
        if name in ("translate_error", "raise_binding_error"):
            w.run = lambda tree: failing_call(w, tree, name)
        return None

    PLACES[f"options.{name}"] = make


def failing_call(w: World, tree: Any, name: str) -> Any:
    try:
        if name == "raise_binding_error":
            if not w.jits:
                w.jits.append(cs.make_jit(lambda tree: tree, w.hooks))
            w.jits[-1](tree, tree)
        else:
            w.f([tree, cs.Unhashable()])
    except TypeError:
        pass
    return tree


for _name in (
    "prepare",
    "compile",
    "translate_error",
    "raise_binding_error",
    "before_raising_call",
    "inspect_new_trace",
    "wait",
):
    hook_of_options(_name)


@place()
def leaves_that_are_chosen(w: World) -> Any:
    w.registry(traced_in=(int,))
    registry = w.hooks.registry
    signature = core.Signature(("tree",), 0, 1, False, False, b"\31")
    structure = core.flatten(registry, echo)[1]
    w.hooks.caches[structure] = core.Cache(registry, structure, signature, w.hooks, 6, {})
    original = w.hooks.choose
    w.hooks.choose = lambda *args: w.answer(original(*args))  # type: ignore[method-assign]
    return None


@place()
def the_function_itself(w: World) -> Any:
    w.jits.append(cs.make_jit(lambda tree: w.answer(tree), w.hooks))
    return None


@place()
def the_callable_of_a_variant(w: World) -> Any:
    original = w.hooks.compile

    def compile(f: Any, variant: Any) -> Any:
        call = original(f, variant)
        return lambda *arrays: w.answer(call(*arrays))

    w.hooks.compile = compile  # type: ignore[method-assign]
    return None


@place(unraisable=True)
def deferred_work(w: World) -> Any:
    w.hooks.may_raise = True
    w.hooks.on["before_raising_call"] = lambda variant: variant.defer(w.hook)
    return None


@place()
def marker_of_a_result_without_arrays(w: World) -> Any:
    f = cs.make_jit(echo, w.hooks)

    def run(tree: Any) -> Any:
        variant, _ = f._find_or_compile(tree)
        variant.finish(1, lambda: w.answer(Array()))
        return f(tree)

    w.run = run
    return None


@place()
def reprs(w: World) -> Any:
    """Of a variant, which shows the static arguments."""

    f = cs.make_jit(lambda tree: w.x, w.hooks)
    w.run = lambda tree: (f(tree), *map(repr, cs.variants(f)))[0]
    return Linear(weight=w.x, size=static(__repr__=lambda self: w.answer("a static")))


@place()
def instance_of_a_bound_method(w: World) -> Any:
    class Thing(Linear):
        method = cs.make_jit(lambda self, tree: tree, w.hooks)

    thing = Thing(weight=w.y, size=static(__hash__=lambda self: w.answer(1)))
    w.run = lambda tree: thing.method(tree)
    return None
