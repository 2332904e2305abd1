"""User code in the middle of a walk or of a tree function: what its errors say, and what is right
although it changes things.  The hostile matrix (core/catalogue) has each place and each action."""

import collections
import gc
import operator
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Linear,
    Maybe,
    Record,
    Value,
    classify,
    core,
    flatten_with_keys,
    make_registry,
    partition_dict,
    same,
    testing,
    tree_leaves,
    tree_paths,
)
from hostile_support import Once
from node_support import Ambiguous, LoudStr
from outcome_support import attempt, fail, nothing, raised

ARRAYS = ("arrays",)

# ---- errors ----


def test_answers_that_are_neither_true_nor_false(registry: Any) -> None:
    tree = [Array(), {"a": 1}]
    bad = lambda x: Ambiguous()
    glob = ("path", (bad,))
    for call, note in (
        (lambda: tree_leaves(registry, tree, bad), None),
        (lambda: core.combine(registry, (tree,), bad, False), None),
        (lambda: core.tree_flatten(registry, tree, ("leaf", bad), None), "[0]"),
        (lambda: core.partition(registry, [1, tree[0]], (("array", bad),), None, None), "[1]"),
        (lambda: partition_dict(registry, tree, ("leaf", bad), (), None), "[0]"),
        (lambda: core.tree_flatten(registry, tree, glob, None), None),
        (lambda: core.tree_flatten(registry, tree[1], glob, None), None),
    ):
        with pytest.raises(ValueError, match="ambiguous") as info:
            call()
        notes = [f"(while a filter was asked about `{note}`)"] if note else None
        assert getattr(info.value, "__notes__", None) == notes
    registry = make_registry(is_array=bad)
    with pytest.raises(ValueError, match="ambiguous"):
        core.tree_flatten(registry, [Maybe(True)], ARRAYS, None)
    assert len(tree_leaves(registry, [Maybe(True)], None)) == 1, "tree_leaves does not ask is_array"


@pytest.mark.parametrize(
    "context",
    [
        *(("sort", [1], None), ("sort", [()], None), ("sort", ["a"]), ("unheard of", ["a"], None)),
        *(("sort", "a", None), (1, [], None), None),
    ],
)
def test_an_error_with_the_context_of_other_code(registry: Any, context: Any) -> None:
    def is_leaf(node: Any) -> Any:
        error = KeyError("mine")
        error.__filterjit_error_context__ = context  # type: ignore[attr-defined]
        raise error

    error = raised(KeyError, tree_leaves, registry, [1], is_leaf)
    assert error.args == ("mine",) and not hasattr(error, "__filterjit_error_context__")


def test_keys_that_fail(registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = [0, {LoudStr("b"): 1, LoudStr("a"): 2}]
    structure = core.tree_flatten(registry, tree, True, None)[1]
    other = [0, {LoudStr("a"): 1, LoudStr("b"): 2}]
    monkeypatch.setattr(LoudStr, "hook", staticmethod(fail))
    for call in (
        lambda: tree_leaves(registry, tree, None),
        lambda: partition_dict(registry, tree, True, (), None),
    ):
        notes = raised(ZeroDivisionError, call).__notes__
        assert notes == ["(while sorting the keys of the dict `[1]`)"]
    raised(ZeroDivisionError, structure._subtrees, other)
    monkeypatch.undo()
    assert structure._subtrees(other) == [0, 1, 2]


def test_keys_whose_text_fails(registry: Any) -> None:
    class Mute:
        text: Any = None

        def __hash__(self) -> int:
            return 1

        def __str__(self) -> str:
            return fail() if self.text is None else self.text  # type: ignore[no-any-return]

    tree = [0, {Mute(): [1, 2]}]
    structure = core.tree_flatten(registry, tree, True, None)[1]
    pattern = ("path", (..., "k", None))
    calls: list[Callable[[], Any]] = [
        lambda: tree_paths(registry, tree, None),
        lambda: structure.paths,
        lambda: structure.combine({}),
        lambda: partition_dict(registry, tree, True, (), None),
        lambda: core.tree_flatten(registry, tree, pattern, None),
    ]
    for text, error in ((None, ZeroDivisionError), (3, TypeError)):
        Mute.text = text
        for call in calls:
            raised(error, call)
    Mute.text = "k"
    assert structure.paths == ("0", "1.k.0", "1.k.1") == tuple(calls[0]())
    assert calls[4]()[0] == [1, 2]
    Mute.text = "other"
    assert structure.paths == ("0", "1.k.0", "1.k.1"), "the paths are kept"


BAD_LEVELS: list[Any] = [None, 3, (), ([],), (3, None), ([], None, 1)]
BAD_KEYS: list[Any] = [None, 3, (), ([], None, id), ([], None, id, ()), ((1,), None, id, ())]
BAD_KEYS += [((1,), None, id, (1,)), ((), 0, id)]


@pytest.mark.parametrize("answer", BAD_LEVELS)
def test_bad_answers_of_flatten_one_level(answer: Any) -> None:
    registry = make_registry(flatten_one_level=lambda x: answer)
    structure = core.tree_flatten(registry, [Box([])], True, None)[1]
    jitted = core.flatten(registry, [Box([])])[1]
    for call in (
        lambda: structure._subtrees([Box([])]),
        lambda: core.combine(registry, ([Box([])], [Box([])]), None, False),
        lambda: testing.match(jitted, [Box([])]),
    ):
        with pytest.raises(TypeError, match=r"flatten_one_level\(\) must return|not iterable"):
            call()


@pytest.mark.parametrize("answer", BAD_KEYS)
def test_bad_answers_of_flatten_with_keys(answer: Any) -> None:
    registry = make_registry(flatten_with_keys=lambda x: answer)
    for call in (
        lambda: tree_leaves(registry, [Box([])], None),
        lambda: core.partition(registry, Box([]), (), None, None),
        lambda: core.flatten(registry, Box([])),
    ):
        with pytest.raises((TypeError, ValueError), match=r"flatten_with_keys\(\) must return"):
            call()


def test_a_node_that_fails_to_flatten_is_named() -> None:
    def fails(x: Any) -> Any:
        return fail() if x.aux == "bad" else flatten_with_keys(x)

    registry = make_registry(flatten_with_keys=fails)
    tree = Linear(weight=[1, (2, Box([Box([], aux="bad")]))])
    error = raised(ZeroDivisionError, tree_leaves, registry, tree, None)
    assert error.__notes__ == ["(while flattening `weight[1][1][0]`)"]


def test_unflatten_that_fails(registry: Any) -> None:
    class Picky(Record):
        def __init__(self, data: Any, other: Any, tag: Any) -> None:
            if data is None:
                raise ZeroDivisionError
            super().__init__(data, other, tag)

    tree = [Array(), {"a": Picky(Array(), Array(), "tag")}]
    structure, group = partition_dict(registry, tree, ARRAYS, (), None)
    for call in (
        lambda: structure.unflatten([1, None, 2]),
        lambda: structure.combine({**group, "1.a.data": None}),
        lambda: structure._skeleton(None),
        lambda: core.partition(registry, tree, (True,), None, None),
        lambda: structure.unflatten(1 // (i - 1) for i in range(3)),
    ):
        raised(ZeroDivisionError, call)
    raised(TypeError, structure.unflatten, fail)


# ---- what is right all the same ----


def test_a_tree_that_changes_after_it_was_walked(registry: Any) -> None:
    """The function holds all leaves by then, so the result does not change."""

    def takes(leaf: Any) -> bool:
        hook()
        return isinstance(leaf, Array)

    def text(key: str) -> bool:
        hook()
        return key < "k2"

    leaf, array, path = ("leaf", takes), ("array", takes), ("path", (..., text))
    calls: list[Callable[[Any], Any]] = [
        lambda t: core.tree_flatten(registry, t, leaf, None),
        lambda t: core.tree_flatten(registry, t, ("not", ("or", leaf, path)), None),
        lambda t: core.partition(registry, t, (path, array), None, "none"),
        lambda t: core.partition(registry, t, (("and", leaf, leaf),), None, None),
        lambda t: partition_dict(registry, t, array, (path,), None),
    ]
    for make in (
        lambda: {f"k{i}": [Array(), Value(1), i] for i in range(4)},
        lambda: [[Array()]] * 3,
    ):
        for call in calls:
            tree = [make(), Array()]
            hook: Callable[[], Any] = nothing
            expected, again = call(tree), [type(x).copy(x) if x is tree[0] else x for x in tree]
            hook = Once(lambda t=again: (t[0].clear(), t.clear()), 2)  # type: ignore[misc]
            assert same(call(again), expected) and again == []


def test_classify_that_flattens_trees() -> None:
    """It flattens instances of the type that it is asked about, and others."""

    def ask(cls: type, x: Any) -> tuple[Any, ...]:
        if cls is list and x:
            core.flatten(registry, [])
            core.flatten(registry, [[], [1]])
        if cls is float:
            assert tree_leaves(registry, [1, [2]], None) == [1, 2]
        return classify(cls, x)

    registry = make_registry(classify=ask)
    tree: Any = [1, 2.5, ["a", Array()], {"k": Value(1)}]
    leaves, structure = core.tree_flatten(registry, tree, ARRAYS, None)
    assert leaves == [tree[2][1]] and same(structure.unflatten(leaves), tree)
    assert testing.num_types(registry) == 7


def test_paths_that_ask_for_paths(registry: Any) -> None:
    found: list[Any] = []
    fails: list[Any] = []

    class Asks:
        def __hash__(self) -> int:
            return 1

        def __str__(self) -> str:
            if len(found) < 2:
                found.append(None)
                found.append(structure.paths)
                if fails:
                    fail()
            return "asks"

    structure = core.tree_flatten(registry, {Asks(): [1, {"a": 2}]}, True, None)[1]
    assert structure.paths == ("asks.0", "asks.1.a") and found[-1] is structure.paths
    found.clear()
    fails.append(1)
    structure = core.tree_flatten(registry, {Asks(): 1}, True, None)[1]
    raised(ZeroDivisionError, lambda: structure.paths)
    assert structure.paths == ("asks",)


def test_equality_given_to_a_class_later(registry: Any) -> None:
    """The instances of a class compared by identity when they were flattened.  A match still
    compares them so; comparing structures calls the new ``__eq__``."""

    class Late:
        pass

    structure = core.flatten(registry, [[[Late(), Array()], Array()], Array()])[1]
    hash(structure)
    outer: list[Any] = [[[Late(), Array()], Array()], Array()]

    def eq(self: Any, other: Any) -> bool:
        outer.clear()
        gc.collect()
        return True

    Late.__eq__ = eq  # type: ignore[method-assign, assignment]
    Late.__hash__ = lambda self: 1  # type: ignore[method-assign, assignment]
    assert testing.match(structure, outer) is None and len(outer) == 2
    attempt(operator.eq, structure, core.flatten(registry, outer)[1])
    assert outer == []


def test_a_dict_dropped_during_a_look_up_in_it(registry: Any) -> None:
    """The name of an attribute is a subclass of str, which looking for a field compares."""
    for field in ("weight", "bias", "size", "__doc__"):
        tree = Linear(size=3)
        structure = core.flatten(registry, Linear(weight=Array(), bias=Array(), size=3))[1]
        hash(structure)

        def fresh(tree: Any = tree, field: str = field) -> None:
            tree.__dict__ = {LoudStr(field): Array(), "bias": Array(), "size": 3}
            gc.collect()

        fresh()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LoudStr, "hook", staticmethod(fresh))
            attempt(testing.match, structure, tree)
            attempt(core.flatten, registry, tree)


@pytest.mark.parametrize("cls", [Linear, type("OnException", (Linear, Exception), {})])
def test_a_collection_in_the_middle_of_a_python_free_match(registry: Any, cls: Any) -> None:
    """Finalizers run in any collection, and allocating an object can start one."""
    threshold = gc.get_threshold()

    class Litter:
        def __init__(self, victim: list[Any]) -> None:
            self.me, self.victim = self, victim

        def __del__(self) -> None:
            self.victim.clear()

    structure = core.flatten(registry, [[cls(), Array(), Array()], Array()])[1]
    hash(structure)
    try:
        for first in range(1, 12):
            victim = [cls.__new__(cls), Array(), Array()]
            gc.collect()
            gc.disable()
            for _ in range(3):
                Litter(victim)
            gc.enable()
            gc.set_threshold(first, 1, 1)
            attempt(testing.match, structure, [victim, Array()])
            gc.set_threshold(*threshold)
    finally:
        gc.set_threshold(*threshold)


def test_a_class_changed_by_classify() -> None:
    """Nothing holds the class that the registry was asked about."""

    class Answer(tuple):
        def __del__(self) -> None:
            gc.collect()

    def ask(cls: type, x: Any) -> tuple[Any, ...]:
        if cls.__name__ == "Brief":
            x.__class__ = cls.__base__
            gc.collect()
        return Answer(classify(cls, x))

    for base, values in ((Linear, {"weight": Array()}), (Value, {"value": 1})):
        registry = make_registry(classify=ask)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="changed its class"):
                core.flatten(registry, [type("Brief", (base,), {})(**values)])
            gc.collect()


# ---- what is held ----


def test_cycles_through_a_structure_are_collected(registry: Any) -> None:
    class Kind(Linear):
        pass

    make = lambda tree: core.tree_flatten(registry, tree, ARRAYS, None)[1]
    for place, of in {
        "a static": lambda owner: make([1, owner, Array()]),
        "a static of a call": lambda owner: core.flatten(registry, owner)[1],
        "one of many statics": lambda owner: make([1] * 5000 + [owner]),
        "a field": lambda owner: make(Linear(size=owner)),
        "aux data": lambda owner: make(Box([1], aux=owner)),
        "a factory": lambda owner: make(collections.defaultdict(lambda: owner, a=1)),
        "a leaf": lambda owner: partition_dict(registry, [owner], False, (), None)[0],
        "a skeleton": lambda owner: core.from_skeleton(registry, 0, [0, 0], (0, owner)),
    }.items():
        owner: Any = Value(1)
        owner.structure = of(owner)
        dead = [weakref.ref(owner), weakref.ref(owner.structure)]
        del owner
        gc.collect()
        assert [ref() for ref in dead] == [None, None], place
    Kind.structure = core.tree_flatten(registry, [Kind(weight=1)], True, None)[1]  # type: ignore[attr-defined]
    dead_class = weakref.ref(Kind)
    del Kind
    gc.collect()
    assert dead_class() is None, "the class of a node"
