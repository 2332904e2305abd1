"""Calls of a VariableJit in graph mode, with Variables and Pytrees that occur more than once.

What occurs again, and where, is a part of the structure: a call does what the function does without
a jit, whatever calls were made before.
"""

import random
from typing import Any

import pytest
from core_support import Array, Keyed, Maybe, Slots, make_jit
from outcome_support import raised
from variable_support import (
    Hooks,
    Key,
    Param,
    TraceState,
    Tree,
    Var,
    large,
    looks,
    make_registry,
    make_variable_jit,
    outcome,
    put_values,
    values_of,
    variables_in,
)


def shape_of(x: Any, seen: dict[int, int]) -> Any:
    """The places in a tree that are the same Variable or Tree, as numbers."""
    if isinstance(x, (Var, Tree)):
        if id(x) in seen:
            return seen[id(x)]
        seen[id(x)] = len(seen)
    if isinstance(x, (list, tuple)):
        return [shape_of(y, seen) for y in x]
    if isinstance(x, dict):
        return {k: shape_of(x[k], seen) for k in sorted(x)}
    if isinstance(x, Tree):
        items = vars(x)
        return {k: shape_of(items[k], seen) for k in sorted(items) if x._pytree__nodes.get(k)}
    return None


def tell(a: Any, b: Any = None, c: Any = None) -> Any:
    """Updates each Variable by what it is shared with; returns what is shared."""
    shape = shape_of([a, b, c], {})
    for i, x in enumerate(variables_in([a, b, c])):
        if type(x._raw_value) is Array and type(x._raw_value.value) is int:
            x._raw_value = Array((x._raw_value.value * 31 + i) % 1009)
    return str(shape)


def tells(**options: Any) -> Any:
    return make_variable_jit(tell, graph=1, **options)


def same_as_eager(jit: Any, *args: Any) -> None:
    variables = variables_in(list(args))
    before = values_of(variables)
    expected = looks(jit.fun(*args)), [looks(x) for x in values_of(variables)], []
    put_values(variables, before)
    assert outcome(jit, *args) == expected


def sequences() -> dict[str, tuple[int, list[tuple[Any, ...]]]]:
    """Calls, and how many Structures there are in them."""
    x, y = Var(Array(1)), Var(Array(2))
    t, u = Tree(v=x, w=Var(Array(3))), Tree(v=Var(Array(4)), w=Var(Array(5)))
    patterns = [
        ([x, y], [t, u], x),
        ([x, x], [t, u], x),
        ([x, x], [t, t], y),
        ([x, y], [t, t], x),
        ([y, x], [t, u], y),
        ([y, y], [u, t], x),
        ([y, y], [u, u], y),
        ([Var(Array(7)), Var(Array(8))], [u, t], Var(Array(9))),
        ([x, y], [u, t], y),
    ]
    # As many objects occur again, but others: two that are one hold one each.
    one, pairs = Tree(v=x, w=Var(Array(2))), [Tree(v=x, w=Var(Array(2))) for _ in range(2)]
    hiding = [(x, *pairs), (x, one, one), (pairs[0], x, pairs[1]), (one, x, one)]
    a, b, c = (Tree(v=Var(Array(i))) for i in range(3))
    others = Array(2), None, [], (), Var(Array(3))
    keyed = Tree(tag=Keyed(3), v=Var(Array(9)))
    return {
        "patterns": (len({str(shape_of(list(args), {})) for args in patterns}), patterns),
        "hiding": (4, hiding),
        "trees": (4, [(a, b, a), (a, b, b), (a, a, b), (a, a, a)]),
        # Comparing the key takes Python code, and the walk in which it runs changes no Structure.
        **{repr(other): (2, [(keyed, x, x), (keyed, x, other)]) for other in others},
        "few": (5, [(x, y), (x, x), (y, x), (x, x, y), (x, y, y), (x, y, x)]),
        "none": (1, [(a, b, c), (b, c, a), (c, b, a)]),
    }


def test_what_is_shared_is_a_part_of_the_structure() -> None:
    for name, (structures, calls) in sequences().items():
        jit, source = tells(), random.Random(0)
        # A FilterJit that is called by itself does not know which objects are one.
        alone = make_jit(tell, Hooks(make_registry()))
        for args in [*calls * 3, *(source.choice(calls) for _ in range(30))]:
            same_as_eager(jit, *args)
            assert alone(*args) == str(shape_of([*args, None][:3], {}))
        assert jit._inner._hooks.count("compile") == structures, name
        assert jit.handed_over == []


def test_the_trace_sees_one_object() -> None:
    t = Tree(v=Var(Array(1)), more=[Param(Array(2)), {"k": Tree(w=Var(Key(1)))}])
    args = ([t, t.more], {"a": t.v, "b": t.more[1]["k"]}, (t, t.more[0]))
    found: list[Any] = []

    def keep(a: Any, b: Any, c: Any) -> None:
        found.append((a, b, c))

    jit = make_variable_jit(keep, graph=1)
    jit(*args), jit(*args)
    a, b, c = found[-1]
    assert a[0] is c[0] and a[1] is not a[0].more
    assert b["a"] is a[0].v and b["b"] is a[1][1]["k"] is a[0].more[1]["k"]
    assert c[1] is a[1][0] and shape_of([a, b, c], {}) == shape_of(list(args), {})
    assert jit._nodes(list(args)) == (t, t.more[0], t.more[1]["k"], t.more[1]["k"].w, t.v)


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
    x, jit = Var(Array(1)), tells()
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
    jit = make_jit(tell, options)

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
