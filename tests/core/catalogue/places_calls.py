"""Places of the hostile matrix in a call, outside of the walks."""

import weakref
from typing import Any

import core_support as cs
import hooks_support as hs
from core_support import Array, Linear, core
from places import NOTHING, Static, World, call_it, echo, place


class Named(Static):
    def __repr__(self) -> str:
        return "a static"


def watched(w: World) -> Any:
    array = Array()
    w.spare.append(weakref.ref(array, w.hook))
    return array


def evicted(w: World) -> None:
    w.hooks.on["run"] = lambda f, variant, *_: setattr(variant, "_record", w.mortal(object))


def call_eight(w: World, tree: Any) -> Any:
    result = w.f(tree)
    for n in range(8):
        w.ordinary_call(n)
    return result


def failing_call(w: World, tree: Any) -> Any:
    try:
        w.f([tree, cs.Unhashable()])
    except TypeError:
        pass
    return tree


def hook_of_options(w: World, name: str) -> None:
    original = getattr(w.hooks, name)

    def hook(*args: Any) -> Any:
        given = w.hook()
        return original(*args) if given is NOTHING else given

    setattr(w.hooks, name, hook)
    w.hooks.may_raise = None if name == "finish" else True
    if name == "finish":  # called for later traces than the first
        compile = w.hooks.compile

        def compile_again(f: Any, variant: Any) -> Any:
            output = variant._finish(None, Array)
            core.output_flatten(output)  # adds a trace
            variant._set_may_raise(output.trace, False)
            return compile(f, variant)

        w.hooks.compile = compile_again  # type: ignore[method-assign]


def leaves_that_are_chosen(w: World) -> None:
    registry = w.hooks.registry
    signature = core.Signature(("tree",), 0, 1, False, False, b"\11")
    structure = core.flatten(registry, echo)[1]
    w.hooks.caches[structure] = core.Cache(registry, structure, signature, w.hooks, 6, {})
    w.hooks.choose = w.after(w.hooks.choose)  # type: ignore[method-assign]


def the_callable_of_a_variant(w: World) -> None:
    compile = w.hooks.compile
    w.hooks.compile = lambda f, variant: w.after(compile(f, variant))  # type: ignore[method-assign]


def call_with_a_marker(w: World, tree: Any) -> Any:
    """The function has a result without arrays too."""
    f = w.once("marked", lambda: hs.make_jit(echo, w.hooks))
    variant = f._find_or_compile(tree)[0]
    variant._finish(1, lambda: w.answer(Array()))
    return f(tree)


def show_variants(w: World, tree: Any) -> Any:
    """They show the static arguments."""
    f = w.once("shown", lambda: hs.make_jit(lambda tree: w.x, w.hooks))
    result = f(tree)
    for variant in hs.variants(f):
        repr(variant)
    return result


def call_a_method(w: World, tree: Any) -> Any:
    def make() -> Any:
        class Thing(Linear):
            method = hs.make_jit(lambda self, tree: tree, w.hooks)

        return Thing(weight=w.y, size=w.loud(Static, "__hash__")())

    return w.once("thing", make).method(tree)


place(
    "finalizer_of_a_leaf",  # in the second call, as its arguments or the result of the trace go
    lambda w: cs.Box([Array(), 1], aux=2),
    registry=lambda w: {"flatten_one_level": lambda x: ((w.mortal(Array), 1), x.aux)},
    run=call_it,
    unraisable=True,
)
place("weakref_callback", lambda w: cs.Box([Array(), 1], aux=2),
    registry=lambda w: {"flatten_one_level": lambda x: ((watched(w), 1), x.aux)}, run=call_it,
    unraisable=True)  # fmt: skip
place("finalizer_of_an_old_variant", evicted, run=call_eight, unraisable=True)
for _name, _run in {
    **dict.fromkeys(("prepare", "compile", "run", "finish")),
    "failed": failing_call,
}.items():
    place(f"options.{_name}", lambda w, name=_name: hook_of_options(w, name), run=_run)
place("leaves_that_are_chosen", leaves_that_are_chosen, registry=lambda w: {"traced_in": (int,)})
place("the_function_itself",
    lambda w: w.jits.append(hs.make_jit(lambda tree: w.answer(tree), w.hooks)))  # fmt: skip
place("the_callable_of_a_variant", the_callable_of_a_variant)
place("marker_of_a_result_without_arrays", run=call_with_a_marker)
place("reprs", lambda w: Linear(weight=w.x, size=w.loud(Named, "__repr__")()), run=show_variants)
place("instance_of_a_bound_method", run=call_a_method)
