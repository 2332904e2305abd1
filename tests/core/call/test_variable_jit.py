"""Calls of a VariableJit: which Variables are updated, what is handed over, and errors."""

import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from core_support import Array, Box, Linear, Maybe, OtherArray, core
from hooks_support import Hooks, make_jit
from outcome_support import attempt, raised
from variable_support import (
    Escape,
    Key,
    Param,
    TraceState,
    Tree,
    Var,
    VariableJit,
    large,
    looks,
    make_registry,
    make_variable_jit,
    pack,
    step,
    variables_in,
    warm,
)

TWICE = ["a Variable or Module occurs twice in the arguments"]


def numbered(n: int = 9) -> list[Var]:
    return [Var(Array(i)) for i in range(n)]


def numbers(variables: Any) -> list[Any]:
    return [x._raw_value.value for x in variables]


# ---- which Variables are updated, and their order ----


def test_the_variables_with_the_given_indices_are_updated() -> None:
    for indices in ((), (0,), (1, 2), (2, 0), (8, 1, 4), tuple(range(9))):
        values = tuple([Array(100 + i) for i in indices])
        jit = make_variable_jit(step, traced=lambda tree, i=indices, v=values: (1, pack(*i), v))
        variables = numbered()
        for _ in range(3):
            assert jit(variables) == 1
        expected = [100 + i if i in indices else i for i in range(9)]
        assert numbers(variables) == expected and jit.handed_over == []


def all_kinds(a: Any, /, b: Any, c: Any = None, *args: Any, d: Any = None, **kwargs: Any) -> Any:
    for i, x in enumerate(variables_in([a, b, c, args, d, kwargs])):
        x._raw_value = Array(i)


@pytest.mark.parametrize(
    "args, kwargs",
    [
        *(("ab", ""), ("abc", "d"), ("abcxyz", "zyxd"), ("abc", "kj")),
        *(("a", "kbj"), ("a", "cb"), ("a", "dzcyb"), ("abcx", "zd")),
    ],
)
def test_the_order_is_by_parameter(args: str, kwargs: str) -> None:
    jit = make_variable_jit(all_kinds)

    def give(name: str) -> Any:
        return {"z": Var(Array(name), kind=name), "a": [Param(Array(name)), Tree(x=Var(Array(1)))]}

    for _ in range(3):
        given = [give(x) for x in args], {x: give(x) for x in kwargs}
        jit(*given[0], **given[1])
        bound = dict(zip("abc", given[0][:3], strict=False)) | given[1]
        in_order = [bound.get(x) for x in "abc"] + given[0][3:] + [bound.get("d")]
        in_order += [bound[x] for x in sorted(bound) if x not in "abcd"]
        assert numbers(variables_in(in_order)) == list(range(len(variables_in(in_order))))
    assert jit.handed_over == [] and jit._inner._hooks.count("compile") == 1


def test_the_result_and_the_metadata() -> None:
    jit = make_variable_jit(step)
    tree = large()
    for _ in range(3):
        before = looks(tree)
        result, none = jit(tree)
        assert looks(result) == looks(tree) != before and none is None
        assert result is not tree and result.blocks[0].w is not tree.blocks[0].w


# ---- what occurs twice ----


@pytest.mark.parametrize("is_warm", [False, True])
def test_what_occurs_twice_is_handed_over_each_time(is_warm: bool) -> None:
    tree, other = large(), large()
    small = [Var(Array(1))]
    jit = make_variable_jit(step)
    if is_warm:
        warm(jit, tree, other), warm(jit, tree, small)
    assert jit.handed_over == []
    deep, again = tree.blocks[3].w, tree.blocks[5]
    for args in (
        (tree, tree),
        ([deep, deep], None),
        (tree, deep),
        (deep, tree),
        (tree, [again]),
        ([again], tree),
        ([Var(Array(1)), tree, again.b], other),
        (tree, {"a": other, "b": other.rng}),
    ):
        for _ in range(3):
            jit.handed_over.clear()
            jit(*args)
            assert jit.handed_over == TWICE
            jit(tree, other), jit(other, small)
            assert jit.handed_over == TWICE


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
    for value, settled in ((Array(1), 0), (Key(1), 0), (OtherArray(1), 1)):
        jit, tree = make_variable_jit(lambda tree: None, graph=2), large()
        if is_warm:
            warm(jit, tree)
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
            raise Escape("not this one")
        return None, pack(0), (Array("new"),)

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
    *(((1, pack(0, 1, i), (NEW, NEW, NEW)), SystemError) for i in (9, 2**32 - 1)),
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


# ---- subclasses, and what is read ----


class Mixed(type("Mixin", (), {}), VariableJit):  # type: ignore[misc]
    pass


class New(Mixed):
    def __new__(cls, *args: Any) -> Any:
        return super().__new__(cls, *args)


@pytest.mark.parametrize("cls", [VariableJit, Mixed, New, type("Last", (New,), {})])
def test_subclasses(cls: Any) -> None:
    jit, x = make_variable_jit(step, cls=cls), Var(Array(1))
    jit(x)
    assert numbers([x]) == [2] and type(jit) is cls
    ref = weakref.ref(jit)
    del jit
    gc.collect()
    assert ref() is None


def test_without_the_methods_of_a_subclass() -> None:
    options = Hooks(make_registry())
    inner = make_jit(lambda x: (None, None, None), options)
    jit = core.VariableJit(inner, options.registry, Var, Key, (), Escape, 0)
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
