"""Scenarios of allocations.py without a jitted function: trees, and what is asked of them."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import core_support as cs
from allocations_support import (
    HOLE,
    KEYED,
    OTHER,
    STATIC,
    TREES,
    Box,
    Call,
    Check,
    Elements,
    Key,
    Make,
    X,
    Y,
    equals,
    expect,
    fail,
    make_registry,
    raised,
    registering,
)
from core_support import Linear, OtherArray, Point, Record, Value, core, same

SCENARIOS: dict[str, Make] = {}
scenario = registering(SCENARIOS)


def first(a: Any, b: Any) -> Any:
    return a


def mixed() -> Any:
    return {
        "m": Linear(weight=X, bias=[Y], size=3, activation=len),
        "p": (Point(X, 2), None),
        "d": collections.defaultdict(int, k=OTHER),
        "r": Record(X, [1], "a"),
        "b": Box((Y, 3), aux=1),
        "s": [STATIC, (1, 2), "text"],
    }


def each_kind(name: str, make: Callable[[], Any]) -> None:
    def flatten() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()

        def check(found: Any) -> None:
            expect(same(found[1].unflatten(found[0]), tree))

        return lambda: core.flatten(registry, tree), check

    def build() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        arrays, structure = core.flatten(registry, tree)
        return lambda: structure.unflatten(arrays), equals(tree)

    def hashing() -> tuple[Call, Check]:
        registry = make_registry()
        structure, other = (core.flatten(registry, make())[1] for _ in "ab")
        return lambda: hash(structure), lambda found: expect(found == hash(other))

    def equality() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        a, b = (core.flatten(registry, tree)[1] for _ in "ab")
        hash(a)
        return lambda: a == b, lambda found: expect(found is True)

    def match() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        arrays, structure = core.flatten(registry, tree)
        hash(structure)
        again = make() if name != "asked" else tree
        if name == "asked":
            arrays = core.flatten(registry, again)[0]
        return lambda: core.match(structure, again), equals(arrays)

    def described() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        structure = core.flatten(registry, tree)[1]

        def call() -> Any:
            return repr(structure), structure._array_paths(), structure._nodes(), structure._span()

        expected = repr(structure), structure._array_paths()
        # A repr for which an allocation failed can leave its mark on the next one: {...}.
        return call, lambda found: expect(found[:2] == expected or "..." in found[0])

    def leaves() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        expected = list(core.tree_flatten(registry, tree, True, None)[0])
        return lambda: core.tree_leaves(registry, tree, None), equals(expected)

    def mapped() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        return lambda: core.tree_map(registry, first, (tree, tree), None), equals(tree)

    def upto() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        leaves, structure = core.tree_flatten(registry, tree, True, None)
        return lambda: structure.flatten_up_to(tree), equals(leaves)

    def paths() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        structure = core.tree_flatten(registry, tree, ("arrays",), None)[1]
        fresh = core.tree_flatten(registry, tree, ("arrays",), None)[1].paths

        def call() -> Any:
            return core.tree_paths(registry, tree, None), structure.paths

        return call, lambda found: expect(found[1] == fresh and len(found[0]) >= len(fresh))

    def filtered() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()

        def call() -> Any:
            arrays, structure = core.tree_flatten(registry, tree, ("arrays",), None)
            return structure.unflatten(arrays), repr(structure), structure

        def check(found: Any) -> None:
            expect(same(found[0], tree) and found[2] == call()[2])

        return call, check

    def parts() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        leaves, structure = core.tree_flatten(registry, tree, ("arrays",), None)

        def check(made: Any) -> None:
            expect(made == structure and same(made.unflatten(leaves), tree))

        return lambda: core.from_parts(registry, HOLE, *structure._parts(HOLE)), check

    def partition() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()

        def call() -> Any:
            parts = core.partition(registry, tree, (("arrays",),), None, None)
            return core.combine(registry, parts, None, True)

        return call, equals(tree)

    def dicts() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()

        def call() -> Any:
            structure, *groups = core.partition_dict(registry, tree, True, (("arrays",),), None)
            return structure.combine(*reversed(groups))

        return call, equals(tree)

    for kind in (
        *(flatten, build, hashing, equality, match, described, leaves, mapped, upto, paths),
        *(filtered, parts, partition, dicts),
    ):
        SCENARIOS[f"{kind.__name__}_{name}"] = kind


for _name, _make in TREES.items():
    each_kind(_name, _make)


@scenario
def same_static() -> tuple[Call, Check]:
    registry = make_registry()
    a, b = ([1, {"k": {2, (3, STATIC)}}, Elements([1, 2]), KEYED, 2**70] for _ in "ab")
    return lambda: core.same_static(registry, a, b), lambda found: expect(found is True)


@scenario
def identity() -> tuple[Call, Check]:
    return lambda: core.identity(X), lambda found: expect(hash(found) is not None)


@scenario
def keyed_types() -> tuple[Call, Check]:
    registry = make_registry(keyed=((Value, lambda v: [v.value, {1: 2}]),))
    a, b = (core.flatten(registry, [Value(1), Linear(size=Value([2]))])[1] for _ in "ab")
    expected = hash(b)
    return lambda: (hash(a), a == b), lambda found: expect(found == (expected, True))


@scenario
def registries() -> tuple[Call, Check]:
    def call() -> Any:
        registry = make_registry()
        return [registry.kind(x) for x in (X, 1, [], Linear(), Point(1, 2), Box(()), STATIC)]

    return call, equals(["array", "static", "list", "module", "namedtuple", "custom", "static"])


@scenario
def types_that_come_and_go() -> tuple[Call, Check]:
    registry = make_registry()

    def call() -> Any:
        kinds = [type(f"T{i}", (Linear,), {}) for i in range(9)]
        return [registry.kind(cls()) for cls in kinds]

    return call, equals(["module"] * 9)


@scenario
def errors_with_paths() -> tuple[Call, Check]:
    """The path that an error is to name is left out where there is no room for it."""
    registry = make_registry()
    tree = [X, {"k": (X, cs.Hostile(on_hash=fail))}]
    structure = core.flatten(registry, tree)[1]
    fixed = core.tree_flatten(registry, tree, ("arrays",), None)[1]
    keys, box = {1: X, "a": X}, Box((X,), hook=fail)

    def call() -> Any:
        return (
            raised(ZeroDivisionError, hash, structure),
            raised(ZeroDivisionError, hash, fixed),
            raised(TypeError, core.flatten, registry, [keys]),
            raised(TypeError, core.tree_leaves, registry, [keys], None),
            raised(ZeroDivisionError, core.tree_paths, registry, {"a": box}, None),
        )

    return call, lambda found: expect("by zero" in found[0] and "not supported" in found[2])


@scenario
def trees_that_differ() -> tuple[Call, Check]:
    registry = make_registry()

    class Loud:
        def __repr__(self) -> str:
            return "loud " + str(id(self))[:0]

    one = {
        "a": [X, (X, X)],
        "m": Linear(weight=X, bias=Y, size=Loud(), activation=1),
        "b": Box((X,), aux=Loud()),
    }
    ordered = collections.OrderedDict([(Key("a"), X), (Key("b"), Y)])
    cases: list[tuple[Any, Any]] = [
        (one, {**one, "a": [X, X]}),
        (one, {**one, "a": [X]}),
        (one, {**one, "m": Linear(weight=X, bias=Y, size=Loud(), activation=1)}),
        (one, {**one, "m": Linear(weight=X)}),
        (one, {**one, "m": Linear(weight=X, size=one["m"].size, more=1)}),
        (one, {**one, "b": Box((X,), aux=Loud())}),
        (
            one,
            {
                **one,
                "b": Box((X, X), aux=one["b"].aux),
            },
        ),
        (one, {k: one[k] for k in "ab"}),
        (ordered, collections.OrderedDict(reversed(ordered.items()))),
        (collections.defaultdict(list, a=X), collections.defaultdict(Loud, a=X)),
        (None, X),
        (Point(X, X), (X, X)),
    ]
    structures = [core.tree_flatten(registry, a, True, None)[1] for a, _ in cases]

    def call() -> Any:
        for structure, (_, b) in zip(structures, cases, strict=True):
            raised(ValueError, structure.flatten_up_to, b)
        return raised(ValueError, core.tree_map, registry, max, cases[0], None)

    return call, lambda text: expect("differs from tree 1 at `['a'][1]`" in text)


@scenario
def groups_that_do_not_fit() -> tuple[Call, Check]:
    registry = make_registry()
    tree = {Key(k): X for k in "abcdefghijklmn"}

    def call() -> Any:
        structure, group = core.partition_dict(registry, tree, True, (), None)
        fresh = core.tree_flatten(registry, tree, True, None)[1]
        missing = raised(ValueError, fresh.combine, {})
        other = {STATIC: 1, **dict.fromkeys(list(group)[:3], X)}
        doubled = {"a": {"b": X}, "a.b": X}
        return (
            missing,
            raised(ValueError, structure.combine, group, other),
            raised(TypeError, structure.combine, group, 3),
            raised(ValueError, structure.unflatten, [X]),
            raised(ValueError, core.partition_dict, registry, doubled, True, (), None),
            raised(ValueError, core.combine, registry, (tree, tree), None, True),
        )

    def check(found: Any) -> None:
        expect("and 4 more" in found[0] and "Value(3)" in found[1] and "two leaves" in found[4])

    return call, check


@scenario
def combine_without_paths() -> tuple[Call, Check]:
    """The paths are written by Python code, after room for a complaint has been made."""
    registry = make_registry()
    tree = {Key("a"): X, Key("b"): Y}
    structure = core.tree_flatten(registry, tree, True, None)[1]
    groups = {"key a": Y, "key b": X}
    swapped = {Key("a"): Y, Key("b"): X}
    return lambda: structure.combine(groups), lambda found: expect(found == swapped)


@scenario
def filters() -> tuple[Call, Check]:
    registry, tree = make_registry(), mixed()
    glob = ("glob", lambda text: text in ("weight", "0", "d"))
    programs: tuple[Any, ...] = (
        ("and", ("arrays",), ("path", (("any",), ("name", "0")))),
        ("or", ("path", (("deep",), glob)), ("not", True)),
        ("array", lambda x: isinstance(x, OtherArray)),
        ("path", (("name", "s"), ("slice", 0, 2, None))),
        ("path", (("name", "b"), ("index", 1))),
        ("tree", {k: len if k == "b" else False for k in "bdmprs"}, lambda f: ("leaf", callable)),
        ("path", ((("name", "é")), ("glob", bool))),
    )

    def call() -> Any:
        parts = core.partition(registry, tree, programs, None, None)
        return core.combine(registry, parts, None, True)

    return call, equals(tree)


@scenario
def filters_that_fail() -> tuple[Call, Check]:
    registry, tree = make_registry(), mixed()
    bad: list[tuple[type[BaseException], Any]] = [
        (TypeError, ("leaf", lambda leaf: None)),
        (ValueError, ("unheard of",)),
        (ValueError, ("path", (("name", "m"),))),
        (ValueError, ("path", (("any",), ("slice", 0, 1, 0)))),
        (ValueError, ("path", (("any",),) * 63)),
        (ValueError, ("tree", {"m": True}, lambda f: f)),
        (ZeroDivisionError, ("or", False, ("not", ("array", fail)))),
    ]

    def call() -> Any:
        return [
            raised(error, core.partition, registry, tree, (program,), None, None)
            for error, program in bad
        ]

    return call, lambda found: expect("returned None" in found[0] and "`['m']`" in found[2])


@scenario
def wide_maps() -> tuple[Call, Check]:
    registry = make_registry()
    trees = ([X, [Y] * 70, (1,)],) * 12
    last = lambda *row: row[-1]
    return lambda: core.tree_map(registry, last, trees, None), equals(trees[0])


@scenario
def is_leaf() -> tuple[Call, Check]:
    registry, tree = make_registry(), mixed()
    predicate = lambda x: isinstance(x, (list, Point))

    def call() -> Any:
        return core.tree_leaves(registry, tree, predicate)

    return call, lambda found: expect(len(found) == 9)
