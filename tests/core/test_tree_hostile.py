"""User code in the middle of the functions over trees: it raises, changes the tree, comes back in.

Nothing here may crash, or raise a SystemError. What is known to crash runs in a process of its own.
"""

import collections
import gc
import random
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Hostile,
    Linear,
    Maybe,
    Module,
    Record,
    Value,
    classify,
    core,
    describe,
    make_registry,
    same,
)

ARRAYS = ("arrays",)


def attempt(call: Callable[..., Any], *args: Any) -> Any:
    """What it returns or raises, SystemError excepted."""
    try:
        return call(*args)
    except SystemError:
        raise
    except Exception as e:
        return e


class Once:
    """Runs `action` at the `at`-th call, and the garbage collector after it."""

    def __init__(self, action: Callable[[], Any], at: int = 1) -> None:
        self.action, self.at, self.calls = action, at, 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            self.action()
            gc.collect()


def nothing() -> None:
    pass


def fail() -> None:
    raise ZeroDivisionError("on purpose")


# ---- what is called, and what it is called with ----


def early(registry: Any, tree: Any, hook: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """Calls in which the hook runs while the tree is walked."""

    def is_leaf(x: Any) -> bool:
        hook()
        return False

    def program_of(filter: Any) -> Any:
        hook()
        return "leaf", lambda x: isinstance(x, Array)

    def filters() -> Any:
        """A filter for each leaf of the first two levels, and one for what is below."""
        return core.tree_map(
            registry, lambda x: "filter", (tree,), lambda x: x is not tree and x is not tree[0]
        )

    return {
        "leaves": lambda: core.tree_leaves(registry, tree, is_leaf),
        "paths": lambda: core.tree_paths(registry, tree, is_leaf),
        "map": lambda: core.tree_map(registry, lambda x: x, (tree,), is_leaf),
        "flatten": lambda: core.tree_flatten(registry, tree, ARRAYS, is_leaf),
        "partition": lambda: core.partition(registry, tree, (ARRAYS,), is_leaf, None),
        "partition_dict": lambda: core.partition_dict(registry, tree, True, (ARRAYS,), is_leaf),
        "combine": lambda: core.combine(registry, (tree, tree), is_leaf, False),
        "tree_of_filters": lambda: core.partition(
            registry, tree, (("tree", filters(), program_of),), None, None
        ),
    }


def late(registry: Any, tree: Any, hook: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """Calls in which the hook runs after the leaves have been taken out of the tree."""

    def f(*row: Any) -> Any:
        hook()
        return row[-1]

    def takes(leaf: Any) -> bool:
        hook()
        return isinstance(leaf, Array)

    def matches(text: str) -> bool:
        hook()
        return text < "k05"

    leaf, array, path = ("leaf", takes), ("array", takes), ("path", (("deep",), ("glob", matches)))
    return {
        "map": lambda: core.tree_map(registry, f, (tree,), None),
        "map_3": lambda: core.tree_map(registry, f, (tree, tree, tree), None),
        "flatten": lambda: core.tree_flatten(registry, tree, leaf, None),
        "flatten_not": lambda: core.tree_flatten(registry, tree, ("not", ("or", leaf, path)), None),
        "partition": lambda: core.partition(registry, tree, (path, array), None, "none"),
        "partition_and": lambda: core.partition(registry, tree, (("and", leaf, leaf),), None, None),
        "partition_dict": lambda: core.partition_dict(registry, tree, array, (path,), None),
    }


class Fields(Module):
    dynamic = tuple(f"f{i:02}" for i in range(10))


CONTAINERS: dict[str, Callable[[], Any]] = {
    "list": list,
    "dict": dict,
    "ordered": collections.OrderedDict,
    "default": lambda: collections.defaultdict(int),
    "module": Fields,
}


def filled(kind: str, trap: Any = None) -> Any:
    """A container of leaves and nodes that nothing else holds, with the trap in the middle."""
    container = CONTAINERS[kind]()
    items = [
        *(Array(i) for i in range(3)),
        [Array(), Value("x" * 50), [Array()]],
        Linear(weight=Array(), bias=(Array(), "text"), size=1),
        Array() if trap is None else trap,
        {"k00": Array(), "k": Array()},
        (1.5, 2),
        *(Array(i) for i in range(2)),
    ]
    if isinstance(container, list):
        container.extend(items)
    elif isinstance(container, dict):
        container.update({f"k{i:02}": item for i, item in enumerate(items)})
    else:
        for name, item in zip(Fields.dynamic, items, strict=True):
            object.__setattr__(container, name, item)
    return container


def _clear(c: Any) -> None:
    (c if hasattr(c, "clear") else vars(c)).clear()


def _shrink(c: Any) -> None:
    c.pop() if isinstance(c, list) else (c if isinstance(c, dict) else vars(c)).popitem()


def _replace(c: Any) -> None:
    """Other objects in the same places."""
    if isinstance(c, list):
        c[:] = [[Array()] for _ in c]
    else:
        d = c if isinstance(c, dict) else vars(c)
        for k in list(d):
            d[k] = [Array()]


def _grow(c: Any) -> None:
    if isinstance(c, list):
        c.extend(range(1000))
    else:
        (c if isinstance(c, dict) else vars(c)).update({f"new{i}": i for i in range(1000)})


def _rekey(c: Any) -> None:
    if isinstance(c, dict):
        items = list(c.items())
        c.clear()
        c.update((i, v) for i, (_, v) in enumerate(items))
    elif isinstance(c, list):
        c.reverse()
    else:
        c.__dict__ = {}


def _class(c: Any) -> None:
    if isinstance(c, Fields):
        c.__class__ = type("Elsewhere", (Fields,), {})
    else:
        _shrink(c)


DEEDS = [_clear, _shrink, _replace, _grow, _rekey, _class]


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("name", early(None, None, nothing))
def test_changed_while_it_is_walked(
    registry: Any, name: str, kind: str, deed: Callable[[Any], Any]
) -> None:
    for at in (1, 2, 5, 12):
        for change_root in (False, True):
            tree = [filled(kind), Array()]
            container = tree[0]
            hook = Once(lambda c=container, t=tree, r=change_root: (r and t.clear(), deed(c)), at)  # type: ignore[misc]
            del container
            found = attempt(early(registry, tree, hook)[name])
            assert hook.calls >= min(at, 2)
            if isinstance(found, Exception):
                assert isinstance(found, (RuntimeError, ValueError)), found
            # What is left is a tree like any other.
            rest = [tree, Array()]
            leaves, structure = early(registry, rest, nothing)["flatten"]()
            assert same(structure.unflatten(leaves), rest)


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("name", late(None, None, nothing))
def test_changed_after_it_was_walked(
    registry: Any, name: str, kind: str, deed: Callable[[Any], Any]
) -> None:
    """All leaves are held by then: it changes nothing."""
    for at in (1, 2, 7):
        tree = [filled(kind), Array()]
        container = tree[0]
        expected = late(registry, tree, nothing)[name]()
        hook = Once(lambda c=container, t=tree: (deed(c), t.clear()), at)  # type: ignore[misc]
        del container
        found = late(registry, tree, hook)[name]()
        assert hook.calls >= at and tree == []
        assert same(found, expected)


class Key(str):
    """A dict's key that runs code; its text is that of the str."""

    hook: Callable[[], Any] = staticmethod(nothing)

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        Key.hook()
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        Key.hook()
        return str.__lt__(self, other)


class Loud(Record):
    """A dataclass node that runs code when a field is read."""

    def __init__(self, hook: Any = None, other: Any = 1, tag: Any = 2, data: Any = None) -> None:
        self.__dict__.update(hook=hook, other=other, tag=tag)

    @property
    def data(self) -> Any:
        if callable(self.hook):
            self.hook()
        return Array()


TRAPS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "split": lambda hook: Box([Array(), 1], hook=hook),
    "aux": lambda hook: Box([Array()], aux=Hostile(on_eq=hook)),
    "static": lambda hook: Linear(weight=Array(), size=Hostile(on_eq=hook)),
    "tag": lambda hook: Record(Array(), [1], Hostile(on_eq=hook)),
    "getattr": lambda hook: Loud(hook),
    "factory": lambda hook: collections.defaultdict(Factory(on_eq=hook), a=Array()),
}


class Factory(Hostile):
    """A default_factory that runs code when it is compared."""

    __hash__ = Hostile.__hash__

    def __call__(self) -> int:
        return 0


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("trap", TRAPS)
def test_changed_while_it_is_held_against_another(
    registry: Any, trap: str, kind: str, deed: Callable[[Any], Any]
) -> None:
    calls: list[Callable[[Any, Any, Any], Any]] = [
        lambda model, structure, tree: structure.flatten_up_to(tree),
        lambda model, structure, tree: core.tree_map(registry, max, (model, tree), None),
        lambda model, structure, tree: core.combine(registry, (model, tree), None, False),
        lambda model, structure, tree: core.tree_map(
            registry, lambda *row: row, (model, model, tree, tree), None
        ),
    ]
    for call in calls:
        model = [filled(kind, TRAPS[trap](nothing)), Array()]
        structure = core.tree_flatten(registry, model, True, None)[1]
        tree: list[Any] = []
        hook = Once(lambda t=tree: deed(t[0]))  # type: ignore[misc]
        tree += [filled(kind, TRAPS[trap](hook)), Array()]
        found = attempt(call, model, structure, tree)
        assert hook.calls > 0
        if isinstance(found, Exception):
            assert isinstance(found, (RuntimeError, ValueError, TypeError)), found
        hook.at = -1
        assert structure.flatten_up_to(model) is not None


def test_a_root_that_is_dropped_while_it_is_held_against_another(registry: Any) -> None:
    for trap, make in TRAPS.items():
        structure = core.tree_flatten(registry, [[make(nothing), Array()], [Array()]], True, None)[
            1
        ]
        tree: list[Any] = []
        tree += [[make(Once(tree.clear)), Array()], [Array()]]
        found = attempt(structure.flatten_up_to, tree)
        assert isinstance(found, RuntimeError) and tree == [], trap


# ---- back in ----


@pytest.mark.parametrize("outer", late(None, None, nothing))
def test_the_same_functions_within(registry: Any, outer: str) -> None:
    for kind in CONTAINERS:
        tree = [filled(kind), Array()]
        expected = {name: call() for name, call in late(registry, tree, nothing).items()}
        inner: dict[str, Any] = {}

        def again(tree: Any = tree, inner: dict[str, Any] = inner) -> None:
            inner.update({name: call() for name, call in late(registry, tree, nothing).items()})

        assert same(late(registry, tree, Once(again))[outer](), expected[outer])
        assert inner.keys() == expected.keys()
        assert all(same(inner[name], expected[name]) for name in inner)


def test_is_leaf_that_takes_trees_apart(registry: Any) -> None:
    """The number of leaves below each node, asked for at each node."""
    sizes: list[int] = []

    def is_leaf(x: Any) -> bool:
        sizes.append(len(core.tree_leaves(registry, x, None)))
        return sizes[-1] == 2

    tree = [[1, 2], [3, [4, 5, 6]], {"a": (7, 8)}]
    assert core.tree_leaves(registry, tree, is_leaf) == [[1, 2], 3, 4, 5, 6, {"a": (7, 8)}]
    assert sizes == [8, 2, 4, 1, 3, 1, 1, 1, 2]


def test_classify_that_takes_trees_apart() -> None:
    def learn(cls: type, x: Any) -> tuple[Any, ...]:
        if cls is float and registry.known_types() < 3:
            assert core.tree_leaves(registry, [1, [2]], None) == [1, 2]
            core.partition(registry, [1, [(b"", {})]], (ARRAYS,), None, None)
        return classify(cls, x)

    registry = make_registry(classify=learn)
    tree = [1, 2.5, ["a", Array()], {"k": Value(1)}]
    leaves, structure = core.tree_flatten(registry, tree, ARRAYS, None)
    assert leaves == [tree[2][1]] and same(structure.unflatten(leaves), tree)  # type: ignore[index]


def test_paths_that_ask_for_paths(registry: Any) -> None:
    found: list[Any] = []

    class Asks:
        def __hash__(self) -> int:
            return 1

        def __str__(self) -> str:
            if len(found) < 2:
                found.append(None)
                found.append(structure.paths)
            return "asks"

    structure = core.tree_flatten(registry, {Asks(): [1, {"a": 2}]}, True, None)[1]
    assert structure.paths == ("asks.0", "asks.1.a")
    assert found[-1] is structure.paths


def test_building_builds(registry: Any) -> None:
    class Builds(Box):
        def __init__(self, children: Any, aux: Any = None) -> None:
            super().__init__(children, aux)
            if made and children[0] == "outer":
                inner.append(made[0].unflatten(["inner", 1, 2]))
                gc.collect()

    made: list[Any] = []
    inner: list[Any] = []
    leaves, structure = core.tree_flatten(registry, [Builds([1, 2]), {"a": 3}], True, None)
    made.append(structure)
    tree = structure.unflatten(["outer", *leaves[1:]])
    assert tree[0].children == ["outer", 2] and tree[1] == {"a": 3}
    assert inner[0][0].children == ["inner", 1] and inner[0][1] == {"a": 2}
    assert structure.unflatten(iter([*structure.unflatten(leaves)[0].children, 5]))[1] == {"a": 5}


# ---- errors ----


class Ambiguous:
    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


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
            assert not hasattr(found, "__filterjit_blame__")


def test_answers_that_are_neither_true_nor_false(registry: Any) -> None:
    tree = [Array(), {"a": 1}]
    bad = lambda x: Ambiguous()
    for call, note in (
        (lambda: core.tree_leaves(registry, tree, bad), None),
        (lambda: core.combine(registry, (tree,), bad, False), None),
        (lambda: core.tree_flatten(registry, tree, ("leaf", bad), None), "[0]"),
        (lambda: core.partition(registry, [1, tree[0]], (("array", bad),), None, None), "[1]"),
        (lambda: core.partition_dict(registry, tree, ("leaf", bad), (), None), "[0]"),
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
    assert len(core.tree_leaves(registry, [Maybe(True)], None)) == 1, "not asked: it is a leaf"


def test_a_map_function_may_return_anything(registry: Any) -> None:
    tree = [1, {"a": 2}, (3, 4)]
    assert core.tree_map(registry, lambda x: None, (tree,), None) == [
        None,
        {"a": None},
        (None, None),
    ]
    made = core.tree_map(registry, lambda x: tree, (tree,), None)
    assert made[0] is tree and made[1]["a"] is tree and made[2] == (tree, tree)


def test_the_notes_of_errors_are_no_obstacle(registry: Any) -> None:
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
        lambda: core.tree_leaves(registry, [1], throws),
        lambda: core.partition(registry, [1], (("leaf", throws),), None, None),
        lambda: core.partition(registry, {Silent(): 1}, (("leaf", throws),), None, None),
        lambda: core.tree_map(registry, throws, ([1],), None),
    ):
        with pytest.raises(Sealed):
            call()


@pytest.fixture
def loud_keys() -> Any:
    yield Key
    Key.hook = staticmethod(nothing)  # type: ignore[method-assign]


def test_keys_that_fail(registry: Any, loud_keys: Any) -> None:
    tree = [0, {Key("b"): 1, Key("a"): 2}]
    _, structure = core.tree_flatten(registry, tree, True, None)
    loud_keys.hook = staticmethod(fail)
    for call in (
        lambda: core.tree_leaves(registry, tree, None),
        lambda: core.partition_dict(registry, tree, True, (), None),
    ):
        with pytest.raises(ZeroDivisionError) as info:
            call()
        assert info.value.__notes__ == ["(while sorting the keys of the dict `[1]`)"]
    loud_keys.hook = staticmethod(nothing)
    other = [0, {Key("a"): 1, Key("b"): 2}]
    loud_keys.hook = staticmethod(fail)
    with pytest.raises(ZeroDivisionError):
        structure.flatten_up_to(other)
    loud_keys.hook = staticmethod(nothing)
    assert structure.flatten_up_to(other) == [0, 1, 2]


@pytest.mark.parametrize("deed", DEEDS)
def test_a_dict_changed_by_its_own_keys(
    registry: Any, loud_keys: Any, deed: Callable[[Any], Any]
) -> None:
    make = lambda: {Key(f"k{i}"): [Array()] for i in range(6)}
    for at in range(1, 14):
        loud_keys.hook = staticmethod(nothing)
        _, structure = core.tree_flatten(registry, [make(), 1], True, None)
        for call in (
            structure.flatten_up_to,
            lambda tree: core.tree_leaves(registry, tree, None),
            lambda tree, s=structure: core.tree_map(
                registry, max, (s.unflatten(range(7)), tree), None
            ),
        ):
            loud_keys.hook = staticmethod(nothing)
            tree = [make(), 1]
            loud_keys.hook = Once(lambda t=tree: deed(t[0]), at)  # type: ignore[misc]
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
        lambda: core.tree_paths(registry, tree, None),
        lambda: structure.paths,
        lambda: structure.combine({}),
        lambda: core.partition_dict(registry, tree, True, (), None),
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
    assert structure.paths == ("0", "1.k.0", "1.k.1"), "written once"


@pytest.mark.parametrize("answer", [None, 3, (), ([],), (3, None), ([], None, 1)])
def test_bad_answers_of_split(answer: Any) -> None:
    registry = make_registry(split=lambda x: answer)
    structure = core.tree_flatten(registry, [Box([])], True, None)[1]
    with pytest.raises((TypeError, SystemError)):
        structure.flatten_up_to([Box([])])
    with pytest.raises((TypeError, SystemError)):
        core.tree_map(registry, max, ([Box([])], [Box([])]), None)


@pytest.mark.parametrize(
    "answer",
    [None, 3, (), ([], None, id, ()), ((1,), None, id, ()), ((1,), None, id, (1,)), ((), 0, id)],
)
def test_bad_answers_of_describe(answer: Any) -> None:
    registry = make_registry(describe=lambda x: answer)
    for call in (
        lambda: core.tree_leaves(registry, [Box([])], None),
        lambda: core.partition(registry, Box([]), (), None, None),
    ):
        with pytest.raises((TypeError, ValueError, SystemError)):
            call()


def test_what_fails_to_come_apart_is_named() -> None:
    def fails(x: Any) -> Any:
        return fail() if x.aux == "bad" else describe(x)

    registry = make_registry(describe=fails)
    tree = Linear(weight=[1, (2, Box([Box([], aux="bad")]))])
    with pytest.raises(ZeroDivisionError) as info:
        core.tree_leaves(registry, tree, None)
    assert info.value.__notes__ == ["(while taking apart `weight[1][1][0]`)"]


def test_unflatten_that_fails(registry: Any) -> None:
    class Picky(Record):
        def __init__(self, data: Any, other: Any, tag: Any) -> None:
            if data is None:
                raise ZeroDivisionError
            super().__init__(data, other, tag)

    tree = [Array(), {"a": Picky(Array(), Array(), "tag")}]
    structure, group = core.partition_dict(registry, tree, ARRAYS, (), None)
    for call in (
        lambda: structure.unflatten([1, None, 2]),
        lambda: structure.combine({**group, "1.a.data": None}),
        lambda: structure.parts(None),
        lambda: core.tree_map(registry, lambda x: None, (tree,), None),
        lambda: core.partition(registry, tree, (True,), None, None),
    ):
        with pytest.raises(ZeroDivisionError):
            call()
    with pytest.raises(TypeError):
        structure.unflatten(fail)
    with pytest.raises(ZeroDivisionError):
        structure.unflatten(1 // (i - 1) for i in range(3))


def test_groups_with_keys_of_their_own(registry: Any) -> None:
    """A key that has the hash of a path is compared with it, which may change the group."""

    class Path:
        def __init__(self, text: str, hook: Callable[[], Any]) -> None:
            self.text, self.hook = text, hook

        def __hash__(self) -> int:
            return hash(self.text)

        def __eq__(self, other: object) -> bool:
            self.hook()
            return False

    structure, full = core.partition_dict(registry, {"a": 1, "b": [2, 3]}, True, (), None)
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
            deed = Once(lambda g=group, o=other, v=victim: (g if v == "self" else o).clear(), at)  # type: ignore[misc]
            group.update({Path(path, deed): [Array()] for path in full})
            found = attempt(structure.combine, group, other)
            assert isinstance(found, (ValueError, dict)) and deed.calls > 0


def test_statics_that_change_while_they_are_read() -> None:
    hole = Value("hole")
    for deed in (list.clear, lambda statics: statics.append(1), list.reverse):
        statics = [hole, "a", hole]

        def learn(cls: type, x: Any, deed: Any = deed, statics: Any = statics) -> tuple[Any, ...]:
            if cls is float:
                deed(statics)
            return classify(cls, x)

        registry = make_registry(classify=learn)
        found = attempt(core.from_parts, registry, hole, [hole, 1.5, hole], statics)
        if deed is list.reverse:
            assert found.unflatten([1, 2]) == [1, "a", 2]
        else:
            assert isinstance(found, ValueError)


# ---- references ----


def outcome(call: Callable[[], Any]) -> Any:
    """None, or the type of what was raised; nothing of it is kept."""
    try:
        call()
    except Exception as e:
        return type(e)
    return None


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("at", [0, 1, 4, 9])
def test_reference_counts(registry: Any, kind: str, at: int) -> None:
    """`at`: the call of the hook that fails, 0 for none."""
    tree = [filled(kind), Array(), None, Value(1)]
    leaves = core.tree_leaves(registry, tree, None)
    structure = core.tree_flatten(registry, tree, True, None)[1]
    hole, short = Value("hole"), [1]
    watched = [*leaves, tree, tree[0], registry, structure, hole, short, None, Linear, Record]
    counts = lambda: [sys.getrefcount(x) for x in watched]
    for calls in (early, late):
        for name in calls(registry, tree, nothing):
            run = lambda c=calls, n=name: outcome(c(registry, tree, Once(fail, at))[n])
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
        (lambda: structure.flatten_up_to(tree), None),
        (lambda: structure.flatten_up_to([tree[0], *tree]), ValueError),
        (lambda: structure.flatten_up_to([tree[0], 1, 2, 3]), ValueError),
        (lambda: core.tree_map(registry, lambda *row: row, (tree, tree), None), None),
        (lambda: core.tree_map(registry, max, (tree, tree, short), None), ValueError),
        (lambda: core.combine(registry, (tree, tree), None, False), None),
        (lambda: core.combine(registry, (tree, tree), None, True), ValueError),
        (lambda: core.combine(registry, (tree, short), None, True), ValueError),
        (lambda: structure.unflatten(leaves), None),
        (lambda: structure.unflatten(leaves[1:]), ValueError),
        (lambda: structure.combine(dict(zip(structure.paths, leaves, strict=True))), None),
        (lambda: structure.combine({"0": leaves[0]}, {"0": leaves[0]}), ValueError),
        (lambda: core.from_parts(registry, hole, *structure.parts(hole)), None),
        (lambda: core.from_parts(registry, hole, tree, short), ValueError),
        (lambda: core.partition(registry, tree, (ARRAYS, None), None, hole), ValueError),
        (lambda: core.partition(registry, tree, (("tree", short, max),), None, 0), ValueError),
        (lambda: core.tree_flatten(registry, tree, ("path", (("any",), 3)), None), TypeError),
    ]
    for call, error in others:
        outcome(call)
        gc.collect()
        before = counts()
        for _ in range(20):
            assert outcome(call) is error
        gc.collect()
        assert all(abs(now - then) < 5 for now, then in zip(counts(), before, strict=True))


def test_nothing_is_held_longer_than_it_has_to(registry: Any) -> None:
    tree = {"a": Array(), "b": [Array(), Value(1)], "c": Linear(weight=Array(), size=Value(2))}
    array, static, field = map(weakref.ref, (tree["a"], tree["b"][1], tree["c"].size))  # type: ignore[index,attr-defined]
    structure = core.tree_flatten(registry, tree, ARRAYS, None)[1]
    group = core.partition_dict(registry, tree, ARRAYS, (), None)[1]
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
    assert dies(lambda owner: core.partition_dict(registry, [owner], False, (), None)[0])
    assert dies(lambda owner: core.from_parts(registry, 0, [0, 0], [0, owner]))
    Kind.structure = core.tree_flatten(registry, [Kind(weight=1)], True, None)[1]  # type: ignore[attr-defined]
    dead = weakref.ref(Kind)
    del Kind
    gc.collect()
    assert dead() is None, "the class of a node"


def test_collections_all_the_time(registry: Any) -> None:
    """The collector sees Structures while they are made."""
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
                assert len(core.tree_leaves(fresh, tree, None)) == len(
                    core.tree_leaves(registry, tree, None)
                )
    finally:
        gc.set_threshold(*threshold)


# ---- many ----


def test_many_groups(registry: Any) -> None:
    source = random.Random(3)
    for count in (20, 100):
        tree = {"a": [list(range(i, i + 7)) for i in range(0, 200, 10)], "b": tuple(range(300))}
        leaves = core.tree_leaves(registry, tree, None)
        programs = tuple(("leaf", lambda n, i=i, m=count + 1: n % m == i) for i in range(count))
        parts = core.partition(registry, tree, programs, None, None)
        assert len(parts) == count + 1
        for i, part in enumerate(parts):
            assert core.tree_leaves(registry, part, None) == [
                n for n in leaves if n % (count + 1) == i
            ]
        source.shuffle(shuffled := list(parts))
        assert core.combine(registry, tuple(shuffled), None, True) == tree
        structure, *groups = core.partition_dict(registry, tree, True, programs, None)
        assert [list(g.values()) for g in groups] == [
            [n for n in leaves if n % (count + 1) == i] for i in range(count + 1)
        ]
        source.shuffle(groups)
        assert structure.combine(*groups) == tree


@pytest.mark.parametrize("count", [1, 7, 8, 9, 20, 300])
def test_many_trees(registry: Any, count: int) -> None:
    trees = tuple([k, (k + 1, {"a": k + 2})] for k in range(0, 10 * count, 10))
    rows = core.tree_map(registry, lambda *row: row, trees, None)
    wanted = lambda n: tuple(range(n, 10 * count, 10))
    assert rows == [wanted(0), (wanted(1), {"a": wanted(2)})]
    with pytest.raises(ValueError, match=f"tree {count + 1} differs from tree 1 at `\\[1\\]"):
        core.tree_map(registry, max, (*trees, [0, (1, {"b": 2})]), None)
    holes = tuple([None, (None, {"a": None})] for _ in range(count))
    assert core.combine(registry, (*holes, trees[-1], *holes), None, True) == trees[-1]


@pytest.mark.parametrize("count", [1023, 1024, 1025, 2049, 5000])
def test_many_leaves(registry: Any, count: int) -> None:
    numbers = range(count)
    for make in (
        list,
        tuple,
        lambda leaves: [(x,) for x in leaves],
        lambda leaves: {f"{i:05}": x for i, x in enumerate(leaves)},
        lambda leaves: [*leaves, []],
    ):
        tree = make(Value(n) for n in numbers)
        leaves, structure = core.tree_flatten(registry, tree, True, None)
        assert [x.value for x in leaves] == list(numbers) and len(structure.paths) == count
        assert same(structure.unflatten(leaves), tree)
        assert len(structure.flatten_up_to(tree)) == count
        summed = core.tree_map(registry, lambda *r: sum(x.value for x in r), (tree,) * 3, None)
        assert core.tree_leaves(registry, summed, None) == [3 * n for n in numbers]
        odd = ("leaf", lambda x: x.value % 2 == 1)
        parts = core.partition(registry, tree, (odd,), None, None)
        assert [x.value for x in core.tree_leaves(registry, parts[0], None)] == list(numbers)[1::2]
        assert same(core.combine(registry, parts, None, True), tree)
        structure, *groups = core.partition_dict(registry, tree, ("not", odd), (odd,), None)
        assert groups[0] == {} and len(groups[1]) == (count + 1) // 2
        assert same(structure.combine(*groups), tree)
        fixed = core.from_parts(registry, 0, *structure.parts(0))
        assert fixed == structure and fixed.num_leaves == (count + 1) // 2
        with pytest.raises(ValueError, match=r"and .* more"):
            structure.combine()


# ---- without end ----


def nest(make: Callable[[Any], Any], depth: int) -> Any:
    tree: Any = Array()
    for _ in range(depth):
        tree = make(tree)
    return tree


NESTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tuple": (lambda t: (t,), lambda t: t[0]),
    "list": (lambda t: [t], lambda t: t.pop()),
    "dict": (lambda t: {"a": t}, lambda t: t.pop("a")),
    "module": (lambda t: Linear(weight=t), lambda t: vars(t).pop("weight")),
    "record": (lambda t: Record(t, 1, 2), lambda t: vars(t).pop("data")),
    "box": (lambda t: Box([t]), lambda t: t.children.pop()),
}


def endless(registry: Any, tree: Any) -> dict[str, Callable[[], Any]]:
    takes = ("path", (("deep",),))
    return {
        "leaves": lambda: core.tree_leaves(registry, tree, None),
        "paths": lambda: core.tree_paths(registry, tree, None),
        "is_leaf": lambda: core.tree_leaves(registry, tree, lambda x: False),
        "map": lambda: core.tree_map(registry, lambda x: x, (tree,), None),
        "flatten": lambda: core.tree_flatten(registry, tree, takes, None),
        "partition": lambda: core.partition(registry, tree, (takes,), None, None),
        "dict": lambda: core.partition_dict(registry, tree, True, (takes,), None),
        "combine": lambda: core.combine(registry, (tree, tree), None, False),
        "filters": lambda: core.partition(registry, 1, (("tree", tree, max),), None, None),
        "below": lambda: core.partition(registry, [tree], (("tree", [True], max),), None, None),
        "from_parts": lambda: core.from_parts(registry, 0, tree, None),
    }


@pytest.mark.parametrize("name", NESTS)
def test_deep_trees(registry: Any, name: str) -> None:
    make, inner = NESTS[name]
    tree = nest(make, 100_000)
    for call in endless(registry, tree).values():
        with pytest.raises(RecursionError):
            call()
    shallow = core.tree_flatten(registry, nest(make, 50), True, None)[1]
    # As deep as the structure goes, and no deeper:
    assert len(shallow.flatten_up_to(tree)) == shallow.num_leaves
    while not isinstance(tree, Array):  # not all types are dropped without recursion
        tree = inner(tree)


def use(registry: Any, tree: Any) -> int:
    """How much works of all that can be done with the Structure of a deep tree."""
    found = attempt(core.tree_flatten, registry, tree, True, None)
    if isinstance(found, RecursionError):
        return 0
    leaves, structure = found
    results = [
        attempt(structure.unflatten, leaves),
        attempt(structure.flatten_up_to, tree),
        attempt(lambda: structure.paths),
        attempt(lambda: structure.combine(dict(zip(structure.paths, leaves, strict=True)))),
        attempt(structure.parts, 0),
        attempt(repr, structure),
        attempt(hash, structure),
        attempt(lambda: structure == core.tree_flatten(registry, tree, True, None)[1]),
    ]
    failed = [x for x in results if isinstance(x, Exception)]
    assert all(isinstance(x, RecursionError) for x in failed)
    return len(results) - len(failed)


@pytest.mark.parametrize("name", NESTS)
def test_as_deep_as_it_goes(registry: Any, name: str) -> None:
    """It works or says that it cannot, at each depth; the same Structure may do both."""
    make, _ = NESTS[name]
    limit = sys.getrecursionlimit()
    worked = 0
    for depth in (limit // 4, limit // 3, limit // 2, *range(limit - 90, limit + 10, 7)):
        tree = nest(make, depth)
        for key, call in endless(registry, tree).items():
            found = attempt(call)
            # 1 is no tree of that depth, which may be said.
            errors = (RecursionError, ValueError) if key == "filters" else RecursionError
            assert not isinstance(found, Exception) or isinstance(found, errors), key
        worked += use(registry, tree)
    assert worked > 20


def test_cycles(registry: Any) -> None:
    loops: list[Any] = [[1], {"a": 1}, Linear(), Box([])]
    loops[0].append(loops[0])
    loops[1]["self"] = loops[1]
    loops[2].weight = loops[2]
    loops[3].children.append(loops[3])
    for loop in loops:
        for tree in (loop, [0, (loop,)]):
            for call in endless(registry, tree).values():
                with pytest.raises(RecursionError):
                    call()
    loop = loops[0]
    structure = core.tree_flatten(registry, [0, [0, [0, [0, 0]]]], True, None)[1]
    assert structure.flatten_up_to(loop)[:4] == [1, 1, 1, 1], "it ends where the structure does"
    assert core.tree_leaves(registry, loop, lambda x: x is loop)[0] is loop
    structure = core.tree_flatten(registry, [0, loop], False, lambda x: x is loop)[1]
    assert repr(structure) == "Structure([0, [1, [...]]])"
    with pytest.raises((RecursionError, TypeError)):
        hash(structure)
    loop.clear()


def test_deep_programs(registry: Any) -> None:
    def deep(op: str, depth: int) -> Any:
        program: Any = ("leaf", lambda n: n == 1)
        for _ in range(depth):
            program = ("not", program) if op == "not" else (op, program, op == "and")
        return program

    for op in ("not", "and", "or"):
        assert core.tree_flatten(registry, [1, 2], deep(op, 100), None)[0] == [1]
        with pytest.raises(RecursionError):
            core.tree_flatten(registry, [1, 2], deep(op, 100_000), None)


# ---- in a process of its own ----

PRELUDE = """
import resource, sys
# Bytes of stack: what most systems give.
resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
sys.path.insert(0, sys.argv[1])
from core_support import *
registry = make_registry()
x = Array()

def fails(*args):
    raise ZeroDivisionError("mine")

def expect(error, call):
    try:
        call()
    except error as e:
        return e
    raise AssertionError("nothing was raised")
"""


def run_apart(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


@pytest.mark.parametrize(
    "code, path",
    [
        ("core.partition(registry, Point(1, 2), (('leaf', fails),), None, None)", "x"),
        ("core.tree_flatten(registry, Point(1, [x]), ('array', fails), None)", "y[0]"),
        ("hash(static(Hostile(on_hash=fails)))", "x"),
        ("static(Hostile(on_eq=fails)) == static(Hostile())", "x"),
    ],
)
def test_an_error_below_a_named_tuple(code: str, path: str) -> None:
    run_apart(f"""
        static = lambda s: core.tree_flatten(registry, Point(s, 1), False, None)[1]
        error = expect(ZeroDivisionError, lambda: {code})
        assert str(error) == "mine" and "`{path}`" in error.__notes__[0], error.__notes__
    """)


@pytest.mark.parametrize(
    "code",
    [
        "f = lambda x: core.tree_map(registry, f, (x,), None)",
        "f = lambda x: core.tree_leaves(registry, x, f)",
        "p = 'tree', 0, lambda x: p; f = lambda x: partition(p)",
        "f = lambda x: partition(('leaf', f))",
        "f = lambda x: core.tree_flatten(registry, x, ('leaf', f), None)",
        "f = lambda x: core.tree_flatten(registry, [x], ('path', (('glob', f),)), None)",
    ],
)
def test_a_function_that_calls_itself_without_end(code: str) -> None:
    run_apart(f"""
        partition = lambda p: core.partition(registry, [1], (p,), None, None)
        {code}
        expect(RecursionError, lambda: f(1))
    """)


@pytest.mark.parametrize(
    "code",
    [
        "structure.unflatten([x])",
        "structure.combine({'a': x})",
        "structure.flatten_up_to([x])",
        "structure.parts(0)",
    ],
)
def test_the_structure_of_a_call(code: str) -> None:
    """It has no tree of its own."""
    run_apart(f"""
        f = make_jit(lambda a: a)
        f(x)
        structure = f.lookup(x)[0].structure
        expect((TypeError, ValueError), lambda: {code})
    """)


def test_a_function_with_leaves_that_are_not_given() -> None:
    run_apart("""
        arrays, structure = core.tree_flatten(registry, [lambda: 0, x], ("arrays",), None)
        options = Options(registry)
        signature = core_signature(lambda: 0)
        try:
            cache = core.Cache(registry, structure, signature, options, 9, {})
        except (TypeError, ValueError):
            sys.exit()
        assert core.rebuild(cache, arrays).__wrapped__[1] is x
    """)


def test_a_key_that_asks_for_paths_and_fails() -> None:
    run_apart("""
        class Asks:
            asked = False
            def __hash__(self): return 1
            def __str__(self):
                if not Asks.asked:
                    Asks.asked = True
                    assert structure.paths == ("asks",)
                    raise ZeroDivisionError
                return "asks"
        structure = core.tree_flatten(registry, {Asks(): 1}, True, None)[1]
        expect(ZeroDivisionError, lambda: getattr(structure, "paths"))
        assert structure.paths == ("asks",)
    """)


@pytest.mark.parametrize(
    "blame",
    [
        ("sort", [1], None),
        ("sort", [()], None),
        ("sort", ["a"]),
        ("unheard of", ["a"], None),
        ("sort", "a", None),
        (1, [], None),
        None,
    ],
)
def test_an_error_that_has_been_blamed_by_somebody_else(blame: Any) -> None:
    run_apart(f"""
        def blamed(node):
            error = KeyError("mine")
            error.__filterjit_blame__ = {blame!r}
            raise error
        error = expect(KeyError, lambda: core.tree_leaves(registry, [1], blamed))
        assert error.args == ("mine",) and not hasattr(error, "__filterjit_blame__")
    """)
