"""Operations  with trees and Structures."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import core_support as cs
from core_support import (
    Linear,
    OtherArray,
    Point,
    Value,
    core,
    partition_dict,
    parts_of,
    same,
    testing,
    tree_leaves,
    tree_paths,
    words,
)
from operations import (
    HOLE,
    KEYED,
    OPERATIONS,
    STATIC,
    TREES,
    Box,
    Contained,
    Elements,
    Key,
    Operation,
    X,
    Y,
    classify_with_contents,
    equals,
    expect,
    make_registry,
    mixed,
    operation,
    repeated_operation,
)
from outcome_support import fail, raised


def each_kind(name: str, make: Callable[[], Any]) -> None:
    def flatten() -> Operation:
        registry, tree = make_registry(), make()

        def check(found: Any) -> None:
            expect(same(found[1].unflatten(found[0]), tree))

        return lambda: core.flatten(registry, tree), check

    def build() -> Operation:
        registry, tree = make_registry(), make()
        arrays, structure = core.flatten(registry, tree)
        return lambda: structure.unflatten(arrays), equals(tree)

    def hashing() -> Operation:
        registry = make_registry()
        structure, other = (core.flatten(registry, make())[1] for _ in "ab")
        return lambda: hash(structure), lambda found: expect(found == hash(other))

    def equality() -> Operation:
        registry, tree = make_registry(), make()
        a, b = (core.flatten(registry, tree)[1] for _ in "ab")
        hash(a)
        return lambda: a == b, lambda found: expect(found is True)

    def match() -> Operation:
        registry, tree = make_registry(), make()
        arrays, structure = core.flatten(registry, tree)
        hash(structure)
        again = make() if name != "maybe" else tree
        if name == "maybe":
            arrays = core.flatten(registry, again)[0]
        return lambda: testing.match(structure, again), equals(arrays)

    def described() -> Operation:
        registry, tree = make_registry(), make()
        structure = core.flatten(registry, tree)[1]

        def call() -> Any:
            return repr(structure), words.key_paths(structure), structure._nodes()

        expected = repr(structure), words.key_paths(structure)
        # A repr that an allocation fails can make the next one show {...}.
        return call, lambda found: expect(found[:2] == expected or "..." in found[0])

    def leaves() -> Operation:
        registry, tree = make_registry(), make()
        expected = list(core.tree_flatten(registry, tree, True, None)[0])
        return lambda: tree_leaves(registry, tree, None), equals(expected)

    def flatten_up_to() -> Operation:
        registry, tree = make_registry(), make()
        leaves, structure = core.tree_flatten(registry, tree, True, None)
        return lambda: structure._subtrees(tree), equals(leaves)

    def paths() -> Operation:
        registry, tree = make_registry(), make()
        structure = core.tree_flatten(registry, tree, ("arrays",), None)[1]
        fresh = core.tree_flatten(registry, tree, ("arrays",), None)[1].paths

        def call() -> Any:
            return tree_paths(registry, tree, None), structure.paths

        return call, lambda found: expect(found[1] == fresh and len(found[0]) >= len(fresh))

    def filtered() -> Operation:
        registry, tree = make_registry(), make()

        def call() -> Any:
            arrays, structure = core.tree_flatten(registry, tree, ("arrays",), None)
            return structure.unflatten(arrays), repr(structure), structure

        def check(found: Any) -> None:
            expect(same(found[0], tree) and found[2] == call()[2])

        return call, check

    def parts() -> Operation:
        registry, tree = make_registry(), make()
        leaves, structure = core.tree_flatten(registry, tree, ("arrays",), None)

        def check(made: Any) -> None:
            expect(made == structure and same(made.unflatten(leaves), tree))

        return lambda: core.from_skeleton(registry, HOLE, *parts_of(structure, HOLE)), check

    def partition() -> Operation:
        registry, tree = make_registry(), make()

        def call() -> Any:
            parts = core.partition(registry, tree, (("arrays",),), None, None)
            return core.combine(registry, parts, None, True)

        return call, equals(tree)

    def dicts() -> Operation:
        registry, tree = make_registry(), make()

        def call() -> Any:
            structure, *groups = partition_dict(registry, tree, True, (("arrays",),), None)
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
            flatten_up_to,
            paths,
        ),
        *(filtered, parts, partition, dicts),
    ):
        OPERATIONS[f"{kind.__name__}_{name}"] = kind


for _name, _make in TREES.items():
    each_kind(_name, _make)


@operation
def match_of_others() -> Operation:
    registry, one, other = make_registry(), mixed(), mixed()
    other["s"] = [*other["s"][:-1], 3]
    structure = core.flatten(registry, one)[1]

    def call() -> Any:
        return [testing.match(structure, tree) for tree in (other, one["m"], 3)]

    return call, equals([None] * 3)


@operation
def same_static() -> Operation:
    registry = make_registry()
    a, b = ([1, {"k": {2, (3, STATIC)}}, Elements([1, 2]), KEYED, 2**70] for _ in "ab")
    return lambda: core.same_static(registry, a, b), lambda found: expect(found is True)


@operation
def values_that_hold_themselves() -> Operation:
    registry, loop = make_registry(), [1]
    loop.append(loop)  # type: ignore[arg-type]
    expected = hash(core.flatten(registry, Linear(size=loop))[1])
    return (lambda: hash(core.flatten(registry, Linear(size=loop))[1])), equals(expected)


@operation
def identity() -> Operation:
    return lambda: core.identity(X), lambda found: expect(hash(found) is not None)


@operation
def keyed_types() -> Operation:
    registry = make_registry(keyed=((Value, lambda v: [v.value, {1: 2}]),))
    a, b = (core.flatten(registry, [Value(1), Linear(size=Value([2]))])[1] for _ in "ab")
    expected = hash(b)
    return lambda: (hash(a), a == b), lambda found: expect(found == (expected, True))


@operation
def contents() -> Operation:
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


@operation
def registries() -> Operation:
    def call() -> Any:
        registry = make_registry()
        return [registry.kind(x) for x in (X, 1, [], Linear(), Point(1, 2), Box(()), STATIC)]

    return call, equals(["array", "static", "list", "module", "namedtuple", "custom", "static"])


@operation
def types_that_come_and_go() -> Operation:
    registry = make_registry()

    def call() -> Any:
        kinds = [type(f"T{i}", (Linear,), {}) for i in range(9)]
        return [registry.kind(cls()) for cls in kinds]

    return call, equals(["module"] * 9)


@repeated_operation
def trees_of_a_type_that_goes() -> Operation:
    registry = make_registry()

    def call() -> Any:
        cls: Any = type("Brief", (Linear,), {})
        arrays, structure = core.flatten(registry, [cls(weight=X, size=1)])
        return arrays, testing.match(structure, [cls(weight=Y, size=1)]), structure.unflatten([Y])

    return call, lambda found: expect(found[0] == (X,) and found[1] == (Y,))


@repeated_operation
def structures_in_cycles() -> Operation:
    registry = make_registry()

    def call() -> Any:
        owner: Any = Value(1)
        owner.structure = core.tree_flatten(registry, [X, owner], ("arrays",), None)[1]
        owner.fields = core.tree_flatten(registry, Linear(weight=X, size=owner), True, None)[1]
        owner.paths = owner.structure.paths

    return call, equals(None)


def cyclic_list() -> list[Any]:
    loop: list[Any] = [X]
    loop.append(loop)
    return loop


@repeated_operation
def trees_without_end() -> Operation:
    registry, loop = make_registry(), cyclic_list()

    def call() -> Any:
        raised(RecursionError, core.flatten, registry, loop)
        raised(RecursionError, tree_leaves, registry, loop, None)
        raised(RecursionError, core.tree_flatten, registry, 1, ("tree", loop, id), None)

    return call, equals(None)


@repeated_operation
def many_leaves() -> Operation:
    registry = make_registry()
    tree = [[X, STATIC] * 600, {"k": (X,) * 1500}, [(X,)] * 100]

    def call() -> Any:
        leaves, structure = core.tree_flatten(registry, tree, ("arrays",), None)
        structure.unflatten(leaves)
        structure.combine(dict(zip(structure.paths, leaves, strict=True)))
        parts = core.partition(registry, tree, (("arrays",),), None, None)
        return core.combine(registry, parts, None, True)

    return call, equals(tree)


@operation
def errors_with_paths() -> Operation:
    """The error names no path where there is no memory for it."""
    registry = make_registry()
    tree = [X, {"k": (X, cs.Hostile(on_hash=fail))}]
    structure = core.flatten(registry, tree)[1]
    with_statics = core.tree_flatten(registry, tree, ("arrays",), None)[1]
    keys, box = {1: X, "a": X}, Box((X,), hook=fail)
    unhashable = core.flatten(registry, [X, {"k": cs.Unhashable()}])[1]
    details_of_nothing = make_registry(classify=lambda cls, x: ())

    def call() -> Any:
        return (
            raised(ZeroDivisionError, hash, structure),
            raised(ZeroDivisionError, hash, with_statics),
            raised(TypeError, core.flatten, registry, [keys]),
            raised(TypeError, tree_leaves, registry, [keys], None),
            raised(ZeroDivisionError, tree_paths, registry, {"a": box}, None),
            raised(TypeError, hash, unhashable),
            raised(TypeError, core.flatten, details_of_nothing, 1),
            raised(ValueError, structure.unflatten, [X]),
        )

    def check(found: Any) -> None:
        expect("on purpose" in str(found[0]) and "not supported" in str(found[2]))

    return call, check


@operation
def trees_that_differ() -> Operation:
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
            raised(ValueError, structure._subtrees, b)
        raised(TypeError, core.combine, registry, [one], None, 0)
        return raised(ValueError, core.combine, registry, cases[0], None, 0)

    return call, lambda found: expect("differs from tree 1 at `['a'][1]`" in str(found))


@operation
def groups_that_do_not_fit() -> Operation:
    registry = make_registry()
    tree = {Key(k): X for k in "abcdefghijklmn"}

    def call() -> Any:
        structure, group = partition_dict(registry, tree, True, (), None)
        fresh = core.tree_flatten(registry, tree, True, None)[1]
        missing = raised(ValueError, fresh.combine, {})
        other = {STATIC: 1, **dict.fromkeys(list(group)[:3], X)}
        return (
            missing,
            raised(ValueError, structure.combine, group, other),
            raised(TypeError, structure.combine, group, 3),
            raised(ValueError, structure.unflatten, [X]),
            raised(ValueError, core.combine, registry, (tree, tree), None, True),
            raised(ValueError, core.from_skeleton, registry, HOLE, [X, X], (X,)),
            raised(ValueError, core.from_skeleton, registry, HOLE, [X], X),
        )

    def check(found: Any) -> None:
        texts = [str(error) for error in found]
        expect("and 4 more" in texts[0] and "Value(3)" in texts[1])

    return call, check


@operation
def combine_without_paths() -> Operation:
    """Python code writes the paths, after memory for an error has been allocated."""
    registry = make_registry()
    tree = {Key("a"): X, Key("b"): Y}
    structure = core.tree_flatten(registry, tree, True, None)[1]
    groups = {"key a": Y, "key b": X}
    swapped = {Key("a"): Y, Key("b"): X}
    return lambda: structure.combine(groups), lambda found: expect(found == swapped)


@operation
def filters() -> Operation:
    registry, tree = make_registry(), mixed()
    glob = lambda text: text in ("weight", "0", "d")
    expressions: tuple[Any, ...] = (
        ("and", ("arrays",), ("path", (None, "0"))),
        ("or", ("path", (..., glob)), ("not", True)),
        ("array", lambda x: isinstance(x, OtherArray)),
        ("path", ("s", slice(0, 2, None))),
        ("path", ("b", 1)),
        (
            "tree",
            {k: len if k == "b" else False for k in "bdfmoprst"},
            lambda f: ("leaf", callable),
        ),
        ("path or none", ("é", bool)),
    )

    def call() -> Any:
        parts = core.partition(registry, tree, expressions, None, None)
        return core.combine(registry, parts, None, True)

    return call, equals(tree)


@operation
def filters_that_fail() -> Operation:
    registry, tree = make_registry(), mixed()
    expressions = dict.fromkeys(tree, "filter")
    bad: list[tuple[type[BaseException], Any]] = [
        (TypeError, ("leaf", lambda leaf: None)),
        (ValueError, ("unheard of",)),
        (ValueError, ("path", ("m",))),
        (ValueError, ("or", False, None)),
        (ValueError, ("path", (None, slice(0, 1, 0)))),
        (TypeError, ("path", (slice(0, 1, 1), 1.5))),
        (ValueError, ("path", (None,) * 63)),
        (ValueError, ("path", (9,))),  # no name, for which difflib is asked
        (ZeroDivisionError, ("path", (fail,))),
        (ZeroDivisionError, ("path", (None, slice(None), fail))),
        (ValueError, ("tree", {"m": True}, lambda f: f)),
        (ZeroDivisionError, ("tree", expressions, fail)),
        (ZeroDivisionError, ("tree", expressions, lambda f: ("leaf", fail))),
        (ValueError, ("tree", expressions, lambda f: [f])),
        (ZeroDivisionError, ("or", False, ("not", ("array", fail)))),
        (ZeroDivisionError, ("leaf", fail)),
    ]

    def call() -> Any:
        return [
            raised(error, core.partition, registry, tree, (expression,), None, None)
            for error, expression in bad
        ]

    return call, lambda found: expect(
        "returned None" in str(found[0]) and "`['m']`" in str(found[2])
    )


@operation
def is_leaf() -> Operation:
    registry, tree = make_registry(), mixed()
    predicate = lambda x: isinstance(x, (list, Point))

    def call() -> Any:
        return tree_leaves(registry, tree, predicate)

    return call, lambda found: expect(len(found) == 17)
