"""Places of the hostile matrix in a call of a VariableJit.

Each is met in a small argument. Some are met beside a large one too, of which there is a record, and
in which Variables and Pytrees occur twice. Where nothing has acted in a call, the Variables have the
values that the function gives them without a jit.
"""

from collections.abc import Callable
from typing import Any

import variable_support as vs
from core_support import Array, Maybe, OtherArray
from hooks_support import Hooks
from places import World, place
from variable_support import Tree, Var


def variables(
    name: str,
    child: Callable[[World], Any] = lambda w: None,
    *,
    large: bool = False,
    unraisable: bool = False,
    **traps: Any,
) -> None:
    """Registers a place beside few Variables, and beside `large` arguments. `child` makes an attribute
    of a Tree. Other traps are the functions below."""
    for many in (False, True)[: 1 + large]:
        place(
            f"{name} of {'many' if many else 'few'} Variables",
            lambda w, many=many: calls_with_variables(w, child, many, **traps),
            unraisable=unraisable,
        )


def calls_with_variables(
    w: World,
    child: Callable[[World], Any],
    large: bool,
    *,
    state: Callable[[World], Any] = lambda w: vs.TOP,
    value: Callable[[World], Any] = lambda w: Array(4),
    guard: Callable[[World], Any] = lambda w: None,
    function: Callable[[World], Any] = lambda w: None,
    classify: Callable[[World, type, Any], Any] = lambda w, cls, x: vs.classify(cls, x),
) -> Any:
    def fun(tree: Any, model: Any) -> None:
        function(w)
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

    w.hooks = Hooks(vs.make_registry(classify=lambda cls, x: classify(w, cls, x)), maxsize=6)
    trap = Tree(w=Var(value(w), state(w)), table={}, size=5, child=child(w))
    model: Any = vs.large(6) if large else Tree()
    if large:
        model.blocks[4:] = [model.blocks[0], Tree(w=model.blocks[1].w)]
    guards = ((Guard(lambda: guard(w)), "value", None, "guard"),)
    jit = vs.make_variable_jit(fun, int(large), guards, w.hooks)
    for _ in range(10):  # enough for a record of the large one
        jit(Var(Array(1)), model)
    w.caches = lambda: [w.f._parts()[0], jit._inner._parts()[0]]
    w.others = lambda: ([Array(1), Var(Array(2))], (Var(Array(3)), None))
    w.run = run
    return trap


class Guard:
    """Has a value that a function returns."""

    def __init__(self, look: Callable[[], Any]) -> None:
        self.look = look

    @property
    def value(self) -> Any:
        return self.look()


class New(Tree):
    pass


class State:
    def is_valid(self) -> bool:
        return True


def loud_class(w: World, cls: type, x: Any) -> Any:
    found = vs.classify(cls, x)
    return w.answer(found) if issubclass(cls, New) else found


def dying(w: World) -> Any:
    """Its class dies with it."""
    return type("Dying", (Array,), {"__slots__": (), "__del__": lambda self: w.hook()})(3)


variables("in_a_state", state=lambda w: w.loud(State, "is_valid")(), large=True)
variables("in_a_description", lambda w: w.loud(Tree, "describe")(w=Var(Array(5))))
# In `classify`, of a type that is new in each World.
variables("in_a_class", lambda w: w.loud(New, "describe")(w=Var(Array(5))), classify=loud_class)
variables("in_a_key", lambda w: {w.loud(str, "__lt__")(name): Var(Array(5)) for name in "zb"})
variables("in_a_guard", guard=lambda w: w.answer(None))
variables("in_is_array", lambda w: Maybe(True, w.hook))
# Of a value that the call replaces.
variables("in_a_finalizer", lambda w: Var(OtherArray(4)), value=dying, large=True,
    unraisable=True)  # fmt: skip
variables("in_the_function", function=lambda w: w.hook(), large=True)
