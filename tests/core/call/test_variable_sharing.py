"""Calls of a VariableJit in graph mode, with Variables and Pytrees that occur more than once.

That such calls do what Flax's do is in nnx/test_nnx_jit_sharing.py.
"""

from typing import Any

import pytest
from core_support import Array, Maybe, Slots
from hooks_support import make_jit
from outcome_support import raised
from variable_support import (
    Hooks,
    TraceState,
    Tree,
    Var,
    large,
    make_registry,
    make_variable_jit,
)


def test_an_object_that_is_no_pytree_of_variables_is_copied() -> None:
    x = Var(Array(1))
    slots = Slots(x=x, y=Array(1), tag=1)
    found: list[Any] = []
    jit = make_variable_jit(lambda a, b: found.append((a, b)), graph=1)
    jit(slots, [slots, x])
    a, b = found[-1]
    assert a is not b[0] and a.x is b[0].x is b[1]


@pytest.mark.parametrize("make", [lambda t: t, lambda t: [t], lambda t: Tree(v=t.v, up=t)])
def test_a_tree_that_contains_itself(make: Any) -> None:
    t = Tree(v=Var(Array(1)))
    t.child = make(t)
    jit = make_variable_jit(lambda a, b=None: None, graph=1)
    for args in ((t,), (Var(Array(1)), t), (t.v, t), (large(), t)) * 2:
        jit(*args)
    assert jit.handed_over == ["a Module contains itself"] * 8
    assert raised(ValueError, jit._nodes, t)
    assert "a=" in repr(jit._inner._find(t)[1])
    raised(RecursionError, jit._inner, t)  # no tree can be built from its Structure
    t.child = t.v
    jit(t, t), jit(t, t)
    assert len(jit.handed_over) == 8


def test_other_reasons() -> None:
    x, jit = Var(Array(1)), make_variable_jit(lambda a, b, c=None: None, graph=1)
    for args in ((x, x, "text"), (Tree(a=x, b=Maybe(True)), x)):
        jit(*args)
    assert len(jit.handed_over) == 2
    x._trace_state = TraceState(False)
    jit(x, x)
    assert jit.handed_over[2:] == ["a Variable is of another trace level"]


# ---- Structures ----


def test_structures() -> None:
    x, y, t = Var(Array(1)), Var(Array(2)), Tree(v=Var(Array(3)))
    options = Hooks(make_registry())
    jit = make_jit(lambda a, b=None, c=None: None, options)

    def structure(*args: Any) -> Any:
        return jit._find(*args)[1]

    assert structure(x, y) == structure(y, x) != structure(x, x)
    assert hash(structure(x, y, x)) == hash(structure(y, x, y))
    assert structure(x, y, x) != structure(x, y, y)
    assert structure(t, t.v) == structure(t, t.v) != structure(t, y)
    found = structure([t, x], t.v, t)
    assert found.num_leaves == 2
    assert "b=`a[0].v`, c=`a[0]`" in repr(found)
    refs = [(arity, cls, path) for kind, arity, cls, path, _ in found._nodes() if kind == "ref"]
    assert refs == [(0, None, ["a", (0,), "v"]), (0, None, ["a", (0,)])]
