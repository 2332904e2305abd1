"""User code that fails in the middle of the tree functions, and reference counts afterwards."""

import collections
import gc
import sys
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
    tree_leaves,
    tree_paths,
)
from hostile_support import ARRAYS, CHANGES, CONTAINERS, Once, early, filled, late
from node_support import Ambiguous, LoudStr
from outcome_support import attempt, fail, nothing

# ---- errors ----


@pytest.mark.parametrize("at", [1, 4, 9])
@pytest.mark.parametrize("kind", CONTAINERS)
def test_an_error_is_passed_on_as_it_is(registry: Any, kind: str, at: int) -> None:
    tree = [filled(kind), Array()]
    for calls in (early, late):
        for name in calls(registry, tree, nothing):
            error = ZeroDivisionError("on purpose")

            def throw(error: Exception = error) -> None:
                raise error

            hook = Once(throw, at)
            found = attempt(calls(registry, tree, hook)[name])
            assert found is error and hook.calls == at, name
            assert not hasattr(found, "__filterjit_error_context__")


def test_answers_that_are_neither_true_nor_false(registry: Any) -> None:
    tree = [Array(), {"a": 1}]
    bad = lambda x: Ambiguous()
    for call, note in (
        (lambda: tree_leaves(registry, tree, bad), None),
        (lambda: core.combine(registry, (tree,), bad, False), None),
        (lambda: core.tree_flatten(registry, tree, ("leaf", bad), None), "[0]"),
        (lambda: core.partition(registry, [1, tree[0]], (("array", bad),), None, None), "[1]"),
        (lambda: partition_dict(registry, tree, ("leaf", bad), (), None), "[0]"),
        (lambda: core.tree_flatten(registry, tree, ("path", (("glob", bad),)), None), None),
        (
            lambda: core.tree_flatten(registry, tree[1], ("path", (("glob", bad),)), None),
            None,
        ),
    ):
        with pytest.raises(ValueError, match="ambiguous") as info:
            call()
        notes = [f"(while a filter was asked about `{note}`)"] if note else None
        assert getattr(info.value, "__notes__", None) == notes
    registry = make_registry(is_array=bad)
    with pytest.raises(ValueError, match="ambiguous"):
        core.tree_flatten(registry, [Maybe(True)], ARRAYS, None)
    assert len(tree_leaves(registry, [Maybe(True)], None)) == 1, "tree_leaves does not ask is_array"


def test_errors_that_take_no_notes(registry: Any) -> None:
    class Sealed(Exception):
        def add_note(self, note: str) -> None:
            raise ZeroDivisionError

        def __getattr__(self, name: str) -> Any:
            raise ZeroDivisionError

    def throws(x: Any) -> Any:
        raise Sealed

    class Silent:
        def __hash__(self) -> int:
            return 1

        def __repr__(self) -> str:
            raise ZeroDivisionError

    for call in (
        lambda: tree_leaves(registry, [1], throws),
        lambda: core.partition(registry, [1], (("leaf", throws),), None, None),
        lambda: core.partition(registry, {Silent(): 1}, (("leaf", throws),), None, None),
    ):
        with pytest.raises(Sealed):
            call()


@pytest.fixture
def loud_keys() -> Any:
    yield LoudStr
    LoudStr.hook = staticmethod(nothing)  # type: ignore[method-assign]


def test_keys_that_fail(registry: Any, loud_keys: Any) -> None:
    tree = [0, {LoudStr("b"): 1, LoudStr("a"): 2}]
    _, structure = core.tree_flatten(registry, tree, True, None)
    loud_keys.hook = staticmethod(fail)
    for call in (
        lambda: tree_leaves(registry, tree, None),
        lambda: partition_dict(registry, tree, True, (), None),
    ):
        with pytest.raises(ZeroDivisionError) as info:
            call()
        assert info.value.__notes__ == ["(while sorting the keys of the dict `[1]`)"]
    loud_keys.hook = staticmethod(nothing)
    other = [0, {LoudStr("a"): 1, LoudStr("b"): 2}]
    loud_keys.hook = staticmethod(fail)
    with pytest.raises(ZeroDivisionError):
        structure._subtrees(other)
    loud_keys.hook = staticmethod(nothing)
    assert structure._subtrees(other) == [0, 1, 2]


@pytest.mark.parametrize("change", CHANGES)
def test_a_dict_changed_by_its_own_keys(
    registry: Any, loud_keys: Any, change: Callable[[Any], Any]
) -> None:
    make = lambda: {LoudStr(f"k{i}"): [Array()] for i in range(6)}
    for at in range(1, 14):
        loud_keys.hook = staticmethod(nothing)
        _, structure = core.tree_flatten(registry, [make(), 1], True, None)
        for call in (
            structure._subtrees,
            lambda tree: tree_leaves(registry, tree, None),
            lambda tree, s=structure: core.combine(
                registry, (s.unflatten(range(7)), tree), None, False
            ),
        ):
            loud_keys.hook = staticmethod(nothing)
            tree = [make(), 1]
            loud_keys.hook = Once(lambda t=tree: change(t[0]), at)  # type: ignore[misc]
            found = attempt(call, tree)
            loud_keys.hook = staticmethod(nothing)
            if isinstance(found, Exception):
                assert isinstance(found, (RuntimeError, ValueError, TypeError)), found


def test_keys_whose_text_fails(registry: Any) -> None:
    class Mute:
        text: Any = None

        def __hash__(self) -> int:
            return 1

        def __str__(self) -> str:
            if self.text is None:
                raise ZeroDivisionError
            return self.text

    tree = [0, {Mute(): [1, 2]}]
    structure = core.tree_flatten(registry, tree, True, None)[1]
    pattern = ("path", (("deep",), ("name", "k"), ("any",)))
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
            with pytest.raises(error):
                call()
    Mute.text = "k"
    assert structure.paths == ("0", "1.k.0", "1.k.1") == tuple(calls[0]())
    assert calls[4]()[0] == [1, 2]
    Mute.text = "other"
    assert structure.paths == ("0", "1.k.0", "1.k.1"), "the paths are kept"


@pytest.mark.parametrize("answer", [None, 3, (), ([],), (3, None), ([], None, 1)])
def test_bad_answers_of_flatten_one_level(answer: Any) -> None:
    registry = make_registry(flatten_one_level=lambda x: answer)
    structure = core.tree_flatten(registry, [Box([])], True, None)[1]
    for call in (
        lambda: structure._subtrees([Box([])]),
        lambda: core.combine(registry, ([Box([])], [Box([])]), None, False),
    ):
        with pytest.raises(TypeError, match=r"flatten_one_level\(\) must return|not iterable"):
            call()


@pytest.mark.parametrize(
    "answer",
    [None, 3, (), ([], None, id, ()), ((1,), None, id, ()), ((1,), None, id, (1,)), ((), 0, id)],
)
def test_bad_answers_of_flatten_with_keys(answer: Any) -> None:
    registry = make_registry(flatten_with_keys=lambda x: answer)
    for call in (
        lambda: tree_leaves(registry, [Box([])], None),
        lambda: core.partition(registry, Box([]), (), None, None),
    ):
        with pytest.raises((TypeError, ValueError), match=r"flatten_with_keys\(\) must return"):
            call()


def test_a_node_that_fails_to_flatten_is_named() -> None:
    def fails(x: Any) -> Any:
        return fail() if x.aux == "bad" else flatten_with_keys(x)

    registry = make_registry(flatten_with_keys=fails)
    tree = Linear(weight=[1, (2, Box([Box([], aux="bad")]))])
    with pytest.raises(ZeroDivisionError) as info:
        tree_leaves(registry, tree, None)
    assert info.value.__notes__ == ["(while flattening `weight[1][1][0]`)"]


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
    ):
        with pytest.raises(ZeroDivisionError):
            call()
    with pytest.raises(TypeError):
        structure.unflatten(fail)
    with pytest.raises(ZeroDivisionError):
        structure.unflatten(1 // (i - 1) for i in range(3))


def test_groups_with_keys_of_their_own(registry: Any) -> None:
    """A key with the hash of a path is compared with the path, which may change the group."""

    class Path:
        def __init__(self, text: str, hook: Callable[[], Any]) -> None:
            self.text, self.hook = text, hook

        def __hash__(self) -> int:
            return hash(self.text)

        def __eq__(self, other: object) -> bool:
            self.hook()
            return False

    structure, full = partition_dict(registry, {"a": 1, "b": [2, 3]}, True, (), None)
    group: dict[Any, Any] = {Path("a", fail): 1}
    with pytest.raises(ZeroDivisionError):
        structure.combine(full, group)
    group = {Path("b.0", nothing): 1}
    with pytest.raises(ValueError, match=r"unknown: .<.*Path"):
        structure.combine(full, group)
    for at in (1, 2, 3):
        for victim in ("self", "other"):
            other = {k: [Array()] for k in full}
            group = {}
            hook = Once(lambda g=group, o=other, v=victim: (g if v == "self" else o).clear(), at)  # type: ignore[misc]
            group.update({Path(path, hook): [Array()] for path in full})
            found = attempt(structure.combine, group, other)
            assert isinstance(found, (ValueError, RuntimeError, dict)) and hook.calls > 0


def test_statics_that_change_while_they_are_read() -> None:
    hole = Value("hole")
    for change in (list.clear, lambda statics: statics.append(1), list.reverse):
        statics = [hole, "a", hole]

        def ask(cls: type, x: Any, change: Any = change, statics: Any = statics) -> tuple[Any, ...]:
            if cls is float:
                change(statics)
            return classify(cls, x)

        registry = make_registry(classify=ask)
        found = attempt(core.from_skeleton, registry, hole, [hole, 1.5, hole], statics)
        if change is list.reverse:
            assert found.unflatten([1, 2]) == [1, "a", 2]
        else:
            assert isinstance(found, ValueError)


# ---- references ----


def error_of(call: Callable[[], Any]) -> Any:
    """The type of the exception that the call raises, or None.  The result is dropped."""
    found = attempt(call)
    return type(found) if isinstance(found, Exception) else None


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("at", [0, 1, 4, 9])
def test_reference_counts(registry: Any, kind: str, at: int) -> None:
    """`at` is the number of the call of the hook that fails, or 0 for none."""
    tree = [filled(kind), Array(), None, Value(1)]
    leaves = tree_leaves(registry, tree, None)
    structure = core.tree_flatten(registry, tree, True, None)[1]
    hole, short = Value("hole"), [1]
    watched = [*leaves, tree, tree[0], registry, structure, hole, short, None, Linear, Record]
    counts = lambda: [sys.getrefcount(x) for x in watched]
    for calls in (early, late):
        for name in calls(registry, tree, nothing):
            run = lambda c=calls, n=name: error_of(c(registry, tree, Once(fail, at))[n])
            run()
            gc.collect()
            before = counts()
            for _ in range(20):
                assert run() is (ZeroDivisionError if at else None)
            gc.collect()
            assert all(abs(now - then) < 5 for now, then in zip(counts(), before, strict=True)), (
                name
            )
    others: list[tuple[Callable[[], Any], Any]] = [
        (lambda: structure._subtrees(tree), None),
        (lambda: structure._subtrees([tree[0], *tree]), ValueError),
        (lambda: structure._subtrees([tree[0], 1, 2, 3]), ValueError),
        (lambda: core.combine(registry, (tree, tree), None, False), None),
        (lambda: core.combine(registry, (tree, tree, short), None, False), ValueError),
        (lambda: core.combine(registry, (tree, tree), None, False), None),
        (lambda: core.combine(registry, (tree, tree), None, True), ValueError),
        (lambda: core.combine(registry, (tree, short), None, True), ValueError),
        (lambda: structure.unflatten(leaves), None),
        (lambda: structure.unflatten(leaves[1:]), ValueError),
        (lambda: structure.combine(dict(zip(structure.paths, leaves, strict=True))), None),
        (lambda: structure.combine({"0": leaves[0]}, {"0": leaves[0]}), ValueError),
        (lambda: core.from_skeleton(registry, hole, *structure._skeleton(hole)), None),
        (lambda: core.from_skeleton(registry, hole, tree, short), ValueError),
        (lambda: core.partition(registry, tree, (ARRAYS, None), None, hole), ValueError),
        (lambda: core.partition(registry, tree, (("tree", short, max),), None, 0), ValueError),
        (lambda: core.tree_flatten(registry, tree, ("path", (("any",), 3)), None), TypeError),
    ]
    for call, error in others:
        error_of(call)
        gc.collect()
        before = counts()
        for _ in range(20):
            assert error_of(call) is error
        gc.collect()
        assert all(abs(now - then) < 5 for now, then in zip(counts(), before, strict=True))


def test_nothing_is_held_longer_than_necessary(registry: Any) -> None:
    tree = {"a": Array(), "b": [Array(), Value(1)], "c": Linear(weight=Array(), size=Value(2))}
    array, static, field = map(weakref.ref, (tree["a"], tree["b"][1], tree["c"].size))  # type: ignore[index,attr-defined]
    structure = core.tree_flatten(registry, tree, ARRAYS, None)[1]
    group = partition_dict(registry, tree, ARRAYS, (), None)[1]
    parts = core.partition(registry, tree, (ARRAYS,), None, None)
    del tree
    assert array() is not None
    del group, parts
    assert array() is None and static() is not None and field() is not None
    del structure
    assert static() is None and field() is None


def test_cycles_through_a_structure_are_collected(registry: Any) -> None:
    class Kind(Linear):
        pass

    def dies(make: Callable[[Any], Any]) -> bool:
        owner = Value(1)
        owner.structure = make(owner)  # type: ignore[attr-defined]
        assert owner.structure is not None  # type: ignore[attr-defined]
        dead = [weakref.ref(owner), weakref.ref(owner.structure)]  # type: ignore[attr-defined]
        del owner
        gc.collect()
        return all(ref() is None for ref in dead)

    make = lambda tree: core.tree_flatten(registry, tree, ARRAYS, None)[1]
    assert dies(lambda owner: make([1, owner, Array()])), "a static"
    assert dies(lambda owner: make([1] * 5000 + [owner])), "one of many statics"
    assert dies(lambda owner: make(Linear(size=owner))), "a field"
    assert dies(lambda owner: make(Box([1], aux=owner))), "aux data"
    assert dies(lambda owner: make(collections.defaultdict(lambda: owner, a=1))), "a factory"
    assert dies(lambda owner: partition_dict(registry, [owner], False, (), None)[0])
    assert dies(lambda owner: core.from_skeleton(registry, 0, [0, 0], [0, owner]))
    Kind.structure = core.tree_flatten(registry, [Kind(weight=1)], True, None)[1]  # type: ignore[attr-defined]
    dead = weakref.ref(Kind)
    del Kind
    gc.collect()
    assert dead() is None, "the class of a node"


def test_collections_all_the_time(registry: Any) -> None:
    """The collector meets Structures that are being made."""
    threshold = gc.get_threshold()
    trees = [[filled(kind), Array()] for kind in CONTAINERS]
    expected = [{n: call() for n, call in late(registry, t, nothing).items()} for t in trees]
    try:
        gc.set_threshold(1, 1, 1)
        for _ in range(3):
            fresh = make_registry()
            for tree, wanted in zip(trees, expected, strict=True):
                for name, call in late(registry, tree, nothing).items():
                    assert same(call(), wanted[name])
                assert len(tree_leaves(fresh, tree, None)) == len(tree_leaves(registry, tree, None))
    finally:
        gc.set_threshold(*threshold)
