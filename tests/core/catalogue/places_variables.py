"""Places of the hostile matrix in a call of a VariableJit.

Each is met in a small argument. Some are met beside a large one too, of which there is a record, and
in which Variables and Pytrees occur twice. Where nothing has acted in a call, the Variables have the values that the
function gives them without a jit.
"""

from collections.abc import Callable
from typing import Any

import variable_support as vs
from core_support import Array, Hooks, Maybe, OtherArray
from places import PLACES, UNRAISABLE, World
from variable_support import Tree, Var

Put = Callable[[World, Any], Any]
LARGE = "in_a_state", "in_a_finalizer", "in_the_function"


def variables(put: Put, unraisable: bool = False) -> Put:
    """Registers a place: `put` puts the trap into a Tree, which has a Variable and attributes."""
    for large in (False, True)[: 1 + (put.__name__ in LARGE)]:
        name = f"{put.__name__} of {'many' if large else 'few'} Variables"
        PLACES[name] = lambda w, large=large: calls_with_variables(w, put, large)
        if unraisable:
            UNRAISABLE.add(name)
    return put


def calls_with_variables(w: World, put: Put, large: bool) -> Any:
    def fun(tree: Any, model: Any) -> None:
        if put is in_the_function:
            w.hook()
        vs.add_one([tree, model])

    def run(tree: Any) -> Any:
        acted, variables = w.acted, vs.variables_in([tree, model])
        before = vs.values_of(variables)
        try:
            jit(tree, model)
        except SystemError as e:  # another number of Variables than there were
            assert "VariableJit: " in str(e)
            raise ValueError from e
        if not w.armed and w.acted == acted:
            found = [vs.looks(x) for x in vs.values_of(variables)]
            vs.put_values(variables, before)
            fun(tree, model)
            assert found == [vs.looks(x) for x in vs.values_of(variables)]
        return tree

    w.hooks = Hooks(vs.make_registry(), maxsize=6)
    trap = Tree(w=Var(Array(4)), table={}, size=5)
    put(w, trap)
    model: Any = vs.large(6) if large else Tree()
    if large:
        model.blocks[4:] = [model.blocks[0], Tree(w=model.blocks[1].w)]
    guards = ((Guard(w if put is in_a_guard else None), "value", None, "guard"),)
    jit = vs.make_variable_jit(fun, int(large), guards, w.hooks)
    for _ in range(10):  # enough for a record of the large one
        jit(Var(Array(1)), model)
    w.caches = lambda: [w.f._parts()[0], jit._inner._parts()[0]]
    w.others = lambda: ([Array(1), Var(Array(2))], (Var(Array(3)), None))
    w.run = run
    return trap


class Guard:
    """Has a value that runs a hook."""

    def __init__(self, world: World | None) -> None:
        self.world = world

    @property
    def value(self) -> Any:
        return None if self.world is None else self.world.answer(None)


@variables
def in_a_state(w: World, x: Any) -> None:
    state: Any = type("State", (), {"is_valid": lambda self: w.answer(True)})()
    x.w._trace_state = state


@variables
def in_a_description(w: World, x: Any) -> None:
    class Loud(Tree):
        def describe(self) -> Any:
            return w.answer(super().describe())

    x.child = Loud(w=Var(Array(5)))


@variables
def in_a_class(w: World, x: Any) -> None:
    """In `classify`, of a type that is new in each call."""

    def classify(cls: type, node: Any) -> Any:
        found = vs.classify(cls, node)
        return w.answer(found) if cls.__name__ == "New" else found

    w.hooks.registry = vs.make_registry(classify=classify)
    x.child = type("New", (Tree,), {})(w=Var(Array(5)))


@variables
def in_a_key(w: World, x: Any) -> None:
    def less(self: Any, other: str) -> Any:
        return w.answer(str.__lt__(self, other))

    key = type("Key", (str,), {"__lt__": less})
    x.table = {key(name): Var(Array(5)) for name in "zb"}


@variables
def in_a_guard(w: World, x: Any) -> None:
    pass


@variables
def in_is_array(w: World, x: Any) -> None:
    x.child = Maybe(True, w.hook)


def in_a_finalizer(w: World, x: Any) -> None:
    """Of a value that the call replaces."""
    dying = type("Dying", (Array,), {"__slots__": (), "__del__": lambda self: w.hook()})
    x.w._raw_value = dying(3)
    x.child = Var(OtherArray(4))


variables(in_a_finalizer, unraisable=True)


@variables
def in_the_function(w: World, x: Any) -> None:
    pass
