"""Calls of a VariableJit: which Variables are updated, what is handed over, and errors."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import variable_support as vs
from core_support import Array, Box, Linear, Maybe, OtherArray, Slots, core, nodes_of
from hooks_support import Hooks, make_jit
from outcome_support import attempt, raised
from variable_support import TraceState, Tree, Var, large, make_variable_jit, same_as_fresh, step

TWICE = ["a Variable or Module occurs twice in the arguments"]


def numbered(n: int = 9) -> list[Var]:
    return [Var(Array(i)) for i in range(n)]


def numbers(variables: Any) -> list[Any]:
    return [x._raw_value.value for x in variables]


# ---- which Variables are updated, and their order ----


def test_the_variables_with_the_given_indices_are_updated() -> None:
    for indices in ((), (0,), (1, 2), (2, 0), (8, 1, 4), tuple(range(9))):
        values = tuple([Array(100 + i) for i in indices])
        jit = make_variable_jit(step, traced=lambda tree, i=indices, v=values: (1, vs.pack(*i), v))
        variables = numbered()
        for _ in range(3):
            assert jit(variables) == 1
        expected = [100 + i if i in indices else i for i in range(9)]
        assert numbers(variables) == expected and jit.handed_over == []


def test_the_result_and_the_metadata() -> None:
    jit = make_variable_jit(step)
    tree = large()
    for _ in range(3):
        before = vs.looks(tree)
        result, none = jit(tree)
        assert vs.looks(result) == vs.looks(tree) != before and none is None
        assert result is not tree and result.blocks[0].w is not tree.blocks[0].w


# ---- what else is handed over ----


def without(name: str) -> Var:
    x = Var(Array(1))
    delattr(x, name)
    return x


NO_ARRAY = "an argument has a leaf that is no array and no number: `{}`"
IN_PYTHON = "an argument is a pytree that is flattened in Python: `{}`"
REASONS: list[tuple[Callable[[], Any], str | None]] = [
    (lambda: Var(Array(1), TraceState(False)), "a Variable is of another trace level"),
    (lambda: Var(1), NO_ARRAY.format("int")),
    (lambda: Var((Array(1),)), NO_ARRAY.format("tuple")),
    (lambda: "text", NO_ARRAY.format("str")),
    (lambda: Var(Maybe(True)), "an argument is a tracer"),
    (lambda: Maybe(True), "an argument is a tracer"),
    (lambda: Box([]), IN_PYTHON.format("Box")),
    (lambda: Linear(), IN_PYTHON.format("Linear")),
    (lambda: without("_raw_value"), "the arguments cannot be walked"),
    (lambda: without("_trace_state"), "a Variable has no value"),
    (lambda: type("V", (Var,), {})(Array(1)), None),
    (lambda: Tree(x=OtherArray(1)), None),
    (lambda: Tree(x=Array(1), y=1), None),
]


@pytest.mark.parametrize("make, reason", REASONS)
def test_reasons(make: Callable[[], Any], reason: str | None) -> None:
    jit = make_variable_jit(lambda tree, other=None: None)
    for _ in range(3):
        jit(make())
        jit([Var(Array(1)), make()], large())
        jit(large(), make())
        jit(large(), Var(Array(2)))
    assert jit.handed_over == [] if reason is None else jit.handed_over == [reason] * 9


def test_graph_mode() -> None:
    jit = make_variable_jit(step, graph=1)
    jit([OtherArray(1)]), jit(Var(OtherArray(1)))
    assert jit.handed_over == [] and jit.settled == 0
    jit(Tree(x=OtherArray(1))), jit([Tree(x=OtherArray(1))])
    assert jit.handed_over == ["a Module holds a leaf that is no array of JAX: `OtherArray`"] * 2


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_value_that_is_to_be_settled(is_warm: bool) -> None:
    for value, settled in ((Array(1), 0), (vs.Key(1), 0), (OtherArray(1), 1)):
        jit, tree = make_variable_jit(lambda tree: None, graph=2), large()
        if is_warm:
            vs.warm(jit, tree)
        tree.blocks[3].w._raw_value = value
        jit(tree), jit(tree)
        assert jit.settled == 2 * settled and jit.handed_over == []


def test_guards() -> None:
    level = SimpleNamespace(value=None)
    guards = ((level, "value", None, "one"), (level, "__dict__", level.__dict__, "two"))
    jit = make_variable_jit(step, guards=guards)
    x = Var(Array(1))
    jit(x)
    level.value = 1
    jit(x), jit(tree=x)
    assert jit.handed_over == ["one"] * 2
    level.value = None
    jit(x)
    del level.value
    assert type(raised(AttributeError, jit, x)) is AttributeError
    assert jit.handed_over == ["one"] * 2 and numbers([x]) == [5]


def test_escape() -> None:
    escapes = [True]

    def traced(tree: Any) -> Any:
        if escapes:
            raise vs.Escape("not this one")
        return None, vs.pack(0), (Array("new"),)

    jit = make_variable_jit(step, traced=traced)
    x = Var(Array(1))
    assert jit._reason is None
    jit(x), jit(x)
    escapes.clear()
    assert numbers([x]) == [3]
    jit(x)
    assert jit.handed_over == ["not this one"] * 3 and jit._reason == "not this one"
    del jit._reason
    jit(x)
    assert numbers([x]) == ["new"] and len(jit.handed_over) == 3
    jit._reason = 5
    jit(x)
    assert jit.handed_over[-1] == 5


@pytest.mark.parametrize(
    "error, handed_over",
    [
        *((error, []) for error in (KeyboardInterrupt, MemoryError, RecursionError)),
        (ZeroDivisionError, ["the arguments cannot be walked"]),
    ],
)
def test_other_exceptions(error: type[BaseException], handed_over: list[str]) -> None:
    def fails(*args: Any) -> Any:
        raise error

    x = Var(Array(1))
    jit = make_variable_jit(step, traced=fails)
    raised(error, jit, x)
    assert jit.handed_over == [] and jit._reason is None and numbers([x]) == [1]
    x._trace_state = TraceState(hook=fails)
    attempt(jit, x) if handed_over else raised(error, jit, x)
    assert jit.handed_over == handed_over


def test_wrong_arguments() -> None:
    jit = make_variable_jit(step)
    for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"unknown": 2}), ((1,), {"tree": 2})):
        raised(TypeError, jit, *args, **kwargs)
    assert jit.handed_over == []


NEW = Array(5)
ANSWERS: list[tuple[Any, type[Exception] | None]] = [
    # Those that are finished in Python.
    *(((1, None, ()), None), ((1, b"", []), None), ((1, [], ()), None), ((1, None, (NEW,)), None)),
    # Wrong ones.
    *((None, TypeError), ((1, b""), TypeError), ([1, b"", ()], TypeError)),
    *(((1, b"", (), 2), TypeError), ((1, b"", (NEW,)), SystemError)),
    *(((1, b"\0\0\0\0", ()), SystemError), ((1, b"\0\0\0", (NEW,)), SystemError)),
    *(((1, vs.pack(0, 1, i), (NEW, NEW, NEW)), SystemError) for i in (9, 2**32 - 1)),
]


def test_answers_that_store_nothing() -> None:
    variables = numbered()
    for answer, error in ANSWERS:
        jit = make_variable_jit(step, traced=lambda tree, answer=answer: answer)
        for _ in range(3):
            if error is None:
                assert jit(variables) == 1
            else:
                raised(error, jit, variables)
        assert numbers(variables) == list(range(9)) and jit.handed_over == []
        assert jit.finished == 3 * (error is None)


# ---- what is read ----


def test_without_the_methods_of_a_subclass() -> None:
    options = Hooks(vs.make_registry())
    inner = make_jit(lambda x: (None, None, None), options)
    jit = core.VariableJit(inner, options.registry, Var, vs.Key, (), vs.Escape, 0)
    raised(AttributeError, jit, Var(Array(1)))  # _finish
    raised(AttributeError, jit, "text")  # _hand_over


def test_nodes() -> None:
    jit = make_variable_jit(step)
    tree = large(2)
    one, two = tree.blocks
    expected = [tree, one, one.b, one.w, two, two.b, two.w, tree.rng]
    found = jit._nodes(tree)
    assert [id(x) for x in found[:-2]] == [id(x) for x in expected]
    assert found[-2:] == (tree.table["a"], tree.table["k"])
    assert jit._nodes([1, "a", Maybe(True), Var(1), Var(Array(1), TraceState(False))])
    assert str(raised(ValueError, jit._nodes, [one, one])) == TWICE[0]
    assert raised(ValueError, jit._nodes, Box([]))
    assert raised(AttributeError, jit._nodes, without("_raw_value"))
    jit(tree)  # is not disturbed
    assert jit.handed_over == []


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
    options = Hooks(vs.make_registry())
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
    refs = [(arity, cls, path) for kind, arity, cls, path, *_ in nodes_of(found) if kind == "ref"]
    assert refs == [(0, None, ["a", (0,), "v"]), (0, None, ["a", (0,)])]


class OtherLarge(vs.Large):
    pass


class OtherParam(vs.Param):
    __slots__ = ()


def shared() -> tuple[Any, Any]:
    """Two large trees with much in common."""
    tree, other = large(), large()
    tree.blocks[5].w = tree.blocks[2].w
    tree.blocks[9] = tree.blocks[1]
    other.blocks[3] = tree.blocks[4]
    other.rng = tree.rng
    other.table["a"] = tree.table["k"]
    return tree, other


def test_a_state_is_asked_once() -> None:
    jit = make_variable_jit(lambda tree: None, traced=lambda tree: (None, b"", ()))
    tree = large()
    vs.warm(jit, tree)
    tree.blocks[5].w._raw_value = Array("new")
    jit(tree)
    state = TraceState()
    tree.blocks[5].w._trace_state = state
    jit(tree), jit(tree)
    assert state.asked == 1 and jit.handed_over == []


# What is done to two trees; `b` is a block of the first.
CHANGES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "nothing": lambda t, o, b: None,
    "metadata": lambda t, o, b: b.w._var_metadata.update(axis="y"),
    "metadata of another dict": lambda t, o, b: setattr(b.w, "_var_metadata", {"axis": "z"}),
    "metadata of an equal dict": lambda t, o, b: setattr(b.w, "_var_metadata", {"axis": "x"}),
    "metadata that are no dict": lambda t, o, b: setattr(b.w, "_var_metadata", 3),
    "no metadata": lambda t, o, b: delattr(b.w, "_var_metadata"),
    "state": lambda t, o, b: setattr(b.w, "_trace_state", TraceState()),
    "state of another level": lambda t, o, b: setattr(b.w, "_trace_state", TraceState(False)),
    "state that is none": lambda t, o, b: setattr(b.w, "_trace_state", None),
    "no state": lambda t, o, b: delattr(b.w, "_trace_state"),
    "no value": lambda t, o, b: delattr(b.w, "_raw_value"),
    "class": lambda t, o, b: setattr(b.w, "__class__", OtherParam),
    "class of a tree": lambda t, o, b: setattr(t, "__class__", OtherLarge),
    "another variable": lambda t, o, b: setattr(b, "w", vs.Param(Array(3), axis="x")),
    "twice": lambda t, o, b: setattr(t.blocks[5], "w", b.w),
    "swapped": lambda t, o, b: swap(b, "w", t.blocks[5], "w"),
    "swapped blocks": lambda t, o, b: t.blocks.reverse(),
    "a block more": lambda t, o, b: t.blocks.append(vs.block(3)),
    "attribute added": lambda t, o, b: setattr(b, "new", Var(Array(3))),
    "attribute deleted": lambda t, o, b: delattr(b, "w"),
    "retyped": lambda t, o, b: setattr(b, "size", Var(Array(3))),
    "nodes": lambda t, o, b: setattr(b, "_pytree__nodes", vs.Nodes(b=True, more=True)),
    "equal nodes": lambda t, o, b: setattr(b, "_pytree__nodes", vs.Nodes(**b._pytree__nodes)),
    "no nodes": lambda t, o, b: vars(b).pop("_pytree__nodes"),
    "other dict of a tree": lambda t, o, b: setattr(b, "__dict__", dict(vars(b), w=Var(Array(3)))),
    "another block": lambda t, o, b: o.blocks.__setitem__(3, vs.block(4)),
    "shared block less": lambda t, o, b: t.blocks.__setitem__(9, vs.block(9)),
    "shared block more": lambda t, o, b: t.blocks.__setitem__(10, t.blocks[1]),
    "another original": lambda t, o, b: t.blocks.__setitem__(1, vs.block(1)),
    "another of the same": lambda t, o, b: t.blocks.__setitem__(9, t.blocks[0]),
    "no shared variable": lambda t, o, b: setattr(t.blocks[5], "w", vs.Param(Array(1), axis="x")),
    "between the trees": lambda t, o, b: setattr(o.blocks[0], "b", t.blocks[0].b),
    "another key of random numbers": lambda t, o, b: setattr(o, "rng", Var(vs.Key(0))),
    "another of a dict": lambda t, o, b: o.table.update(a=o.table["k"]),
    "all blocks shared": lambda t, o, b: setattr(o, "blocks", t.blocks),
    "state of a shared one": lambda t, o, b: setattr(t.blocks[2].w, "_trace_state", TraceState()),
    "value of a shared one": lambda t, o, b: setattr(t.blocks[2].w, "_raw_value", Array("new")),
    "class of a shared one": lambda t, o, b: setattr(t.blocks[2].w, "__class__", Var),
}


def swap(a: Any, name: str, b: Any, other: str) -> None:
    x, y = getattr(a, name), getattr(b, other)
    setattr(a, name, y)
    setattr(b, other, x)


@pytest.mark.parametrize("graph", [0, 1])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change(change: str, graph: int) -> None:
    """The next calls are right, and those after a new record."""
    jit = make_variable_jit(step, graph)
    tree, other = shared() if graph else (large(), large())
    small = [tree.blocks[2].w, Var(Array(1))]
    calls: list[Any] = [(tree, other), (tree,)]
    if graph:
        calls += [(other, tree), ([tree, small], other), (tree, tree)]
    for args in (*calls, calls[0]):
        vs.warm(jit, *args)
    CHANGES[change](tree, other, tree.blocks[3])
    for _ in range(2):
        for args in calls:
            same_as_fresh(jit, *args)
    for args in calls[:2]:
        attempt(vs.warm, jit, *args)
        same_as_fresh(jit, *args)


def test_classes_that_change() -> None:
    def local() -> tuple[Any, Any]:
        cls = type("Local", (Var,), {"__slots__": ()})
        return cls, vs.Large(items=[cls(Array(i)) for i in range(40)])

    for name, value in (
        ("_trace_state", property(lambda self: TraceState(False))),
        ("_raw_value", property(lambda self: Array(9))),
        ("_var_metadata", {}),
        ("__getattribute__", lambda self, name: object.__getattribute__(self, name)),
        ("unrelated", 3),
    ):
        cls, tree = local()
        jit = make_variable_jit(lambda tree: None)
        vs.warm(jit, tree)
        setattr(cls, name, value)
        for _ in range(3):
            same_as_fresh(jit, tree)
        delattr(cls, name)
        for _ in range(3):
            same_as_fresh(jit, tree)
