"""Scenarios of allocations.py with trees and Structures."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import core_support as cs
from allocations_support import (
    HOLE,
    KEYED,
    SCENARIOS,
    STATIC,
    TREES,
    Box,
    Contained,
    Elements,
    Key,
    Scenario,
    X,
    Y,
    classify_with_contents,
    equals,
    expect,
    make_registry,
    mixed,
    scenario,
)
from core_support import Linear, OtherArray, Point, Value, core, same, testing
from outcome_support import fail, raised


def first(a: Any, b: Any) -> Any:
    return a


def each_kind(name: str, make: Callable[[], Any]) -> None:
    def flatten() -> Scenario:
        registry, tree = make_registry(), make()

        def check(found: Any) -> None:
            expect(same(found[1].unflatten(found[0]), tree))

        return lambda: core.flatten(registry, tree), check

    def build() -> Scenario:
        registry, tree = make_registry(), make()
        arrays, structure = core.flatten(registry, tree)
        return lambda: structure.unflatten(arrays), equals(tree)

    def hashing() -> Scenario:
        registry = make_registry()
        structure, other = (core.flatten(registry, make())[1] for _ in "ab")
        return lambda: hash(structure), lambda found: expect(found == hash(other))

    def equality() -> Scenario:
        registry, tree = make_registry(), make()
        a, b = (core.flatten(registry, tree)[1] for _ in "ab")
        hash(a)
        return lambda: a == b, lambda found: expect(found is True)

    def match() -> Scenario:
        registry, tree = make_registry(), make()
        arrays, structure = core.flatten(registry, tree)
        hash(structure)
        again = make() if name != "maybe" else tree
        if name == "maybe":
            arrays = core.flatten(registry, again)[0]
        return lambda: testing.match(structure, again), equals(arrays)

    def described() -> Scenario:
        registry, tree = make_registry(), make()
        structure = core.flatten(registry, tree)[1]

        def call() -> Any:
            return repr(structure), structure._array_paths(), structure._nodes(), structure._span()

        expected = repr(structure), structure._array_paths()
        # A repr that an allocation fails can make the next one show {...}.
        return call, lambda found: expect(found[:2] == expected or "..." in found[0])

    def leaves() -> Scenario:
        registry, tree = make_registry(), make()
        expected = list(core.tree_flatten(registry, tree, True, None)[0])
        return lambda: core.tree_leaves(registry, tree, None), equals(expected)

    def mapped() -> Scenario:
        registry, tree = make_registry(), make()
        return lambda: core.tree_map(registry, first, (tree, tree), None), equals(tree)

    def flatten_up_to() -> Scenario:
        registry, tree = make_registry(), make()
        leaves, structure = core.tree_flatten(registry, tree, True, None)
        return lambda: structure.flatten_up_to(tree), equals(leaves)

    def paths() -> Scenario:
        registry, tree = make_registry(), make()
        structure = core.tree_flatten(registry, tree, ("arrays",), None)[1]
        fresh = core.tree_flatten(registry, tree, ("arrays",), None)[1].paths

        def call() -> Any:
            return core.tree_paths(registry, tree, None), structure.paths

        return call, lambda found: expect(found[1] == fresh and len(found[0]) >= len(fresh))

    def filtered() -> Scenario:
        registry, tree = make_registry(), make()

        def call() -> Any:
            arrays, structure = core.tree_flatten(registry, tree, ("arrays",), None)
            return structure.unflatten(arrays), repr(structure), structure

        def check(found: Any) -> None:
            expect(same(found[0], tree) and found[2] == call()[2])

        return call, check

    def parts() -> Scenario:
        registry, tree = make_registry(), make()
        leaves, structure = core.tree_flatten(registry, tree, ("arrays",), None)

        def check(made: Any) -> None:
            expect(made == structure and same(made.unflatten(leaves), tree))

        return lambda: core.from_parts(registry, HOLE, *structure._parts(HOLE)), check

    def partition() -> Scenario:
        registry, tree = make_registry(), make()

        def call() -> Any:
            parts = core.partition(registry, tree, (("arrays",),), None, None)
            return core.combine(registry, parts, None, True)

        return call, equals(tree)

    def dicts() -> Scenario:
        registry, tree = make_registry(), make()

        def call() -> Any:
            structure, *groups = core.partition_dict(registry, tree, True, (("arrays",),), None)
            return structure.combine(*reversed(groups))

        return call, equals(tree)

    for kind in (
        *(
            flatten,
            build,
            hashing,
            equality,
            match,
            described,
            leaves,
            mapped,
            flatten_up_to,
            paths,
        ),
        *(filtered, parts, partition, dicts),
    ):
        SCENARIOS[f"{kind.__name__}_{name}"] = kind


for _name, _make in TREES.items():
    each_kind(_name, _make)


@scenario
def same_static() -> Scenario:
    registry = make_registry()
    a, b = ([1, {"k": {2, (3, STATIC)}}, Elements([1, 2]), KEYED, 2**70] for _ in "ab")
    return lambda: core.same_static(registry, a, b), lambda found: expect(found is True)


@scenario
def identity() -> Scenario:
    return lambda: core.identity(X), lambda found: expect(hash(found) is not None)


@scenario
def keyed_types() -> Scenario:
    registry = make_registry(keyed=((Value, lambda v: [v.value, {1: 2}]),))
    a, b = (core.flatten(registry, [Value(1), Linear(size=Value([2]))])[1] for _ in "ab")
    expected = hash(b)
    return lambda: (hash(a), a == b), lambda found: expect(found == (expected, True))


@scenario
def contents() -> Scenario:
    registry = make_registry(classify=classify_with_contents)
    value, other = (
        [Contained(len, (1, [print])), {"k": Contained(2**70, None)}, Contained(1, 2)] for _ in "ab"
    )
    tree, equal = Linear(weight=X, size=value), Linear(weight=X, size=other)

    def call() -> Any:
        structure = core.flatten(registry, tree)[1]
        hash(structure)
        # The first match takes the contents.
        matched = testing.match(structure, tree)  # a comprehension would need a cell
        return [matched, testing.match(structure, tree), testing.match(structure, equal)]

    return call, equals([(X,), (X,), (X,)])


@scenario
def registries() -> Scenario:
    def call() -> Any:
        registry = make_registry()
        return [registry.kind(x) for x in (X, 1, [], Linear(), Point(1, 2), Box(()), STATIC)]

    return call, equals(["array", "static", "list", "module", "namedtuple", "custom", "static"])


@scenario
def types_that_come_and_go() -> Scenario:
    registry = make_registry()

    def call() -> Any:
        kinds = [type(f"T{i}", (Linear,), {}) for i in range(9)]
        return [registry.kind(cls()) for cls in kinds]

    return call, equals(["module"] * 9)


@scenario
def errors_with_paths() -> Scenario:
    """The error names no path where there is no memory for it."""
    registry = make_registry()
    tree = [X, {"k": (X, cs.Hostile(on_hash=fail))}]
    structure = core.flatten(registry, tree)[1]
    with_statics = core.tree_flatten(registry, tree, ("arrays",), None)[1]
    keys, box = {1: X, "a": X}, Box((X,), hook=fail)

    def call() -> Any:
        return (
            raised(ZeroDivisionError, hash, structure),
            raised(ZeroDivisionError, hash, with_statics),
            raised(TypeError, core.flatten, registry, [keys]),
            raised(TypeError, core.tree_leaves, registry, [keys], None),
            raised(ZeroDivisionError, core.tree_paths, registry, {"a": box}, None),
        )

    def check(found: Any) -> None:
        expect("on purpose" in str(found[0]) and "not supported" in str(found[2]))

    return call, check


@scenario
def trees_that_differ() -> Scenario:
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

    return call, lambda found: expect("differs from tree 1 at `['a'][1]`" in str(found))


@scenario
def groups_that_do_not_fit() -> Scenario:
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
        texts = [str(error) for error in found]
        expect("and 4 more" in texts[0] and "Value(3)" in texts[1] and "two leaves" in texts[4])

    return call, check


@scenario
def combine_without_paths() -> Scenario:
    """Python code writes the paths, after memory for an error has been allocated."""
    registry = make_registry()
    tree = {Key("a"): X, Key("b"): Y}
    structure = core.tree_flatten(registry, tree, True, None)[1]
    groups = {"key a": Y, "key b": X}
    swapped = {Key("a"): Y, Key("b"): X}
    return lambda: structure.combine(groups), lambda found: expect(found == swapped)


@scenario
def filters() -> Scenario:
    registry, tree = make_registry(), mixed()
    glob = ("glob", lambda text: text in ("weight", "0", "d"))
    expressions: tuple[Any, ...] = (
        ("and", ("arrays",), ("path", (("any",), ("name", "0")))),
        ("or", ("path", (("deep",), glob)), ("not", True)),
        ("array", lambda x: isinstance(x, OtherArray)),
        ("path", (("name", "s"), ("slice", 0, 2, None))),
        ("path", (("name", "b"), ("index", 1))),
        (
            "tree",
            {k: len if k == "b" else False for k in "bdfmoprst"},
            lambda f: ("leaf", callable),
        ),
        ("path", ((("name", "é")), ("glob", bool))),
    )

    def call() -> Any:
        parts = core.partition(registry, tree, expressions, None, None)
        return core.combine(registry, parts, None, True)

    return call, equals(tree)


@scenario
def filters_that_fail() -> Scenario:
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
            raised(error, core.partition, registry, tree, (expression,), None, None)
            for error, expression in bad
        ]

    return call, lambda found: expect(
        "returned None" in str(found[0]) and "`['m']`" in str(found[2])
    )


@scenario
def wide_maps() -> Scenario:
    registry = make_registry()
    trees = ([X, [Y] * 70, (1,)],) * 12
    last = lambda *row: row[-1]
    return lambda: core.tree_map(registry, last, trees, None), equals(trees[0])


@scenario
def is_leaf() -> Scenario:
    registry, tree = make_registry(), mixed()
    predicate = lambda x: isinstance(x, (list, Point))

    def call() -> Any:
        return core.tree_leaves(registry, tree, predicate)

    return call, lambda found: expect(len(found) == 17)
