"""Operations with trees and Structures."""

from __future__ import annotations

import collections
import functools
import operator
from collections.abc import Callable
from typing import Any

import core_support as cs
import operations as ops
from core_support import Linear, Value, core, nodes_of, same, testing
from operations import HOLE, KEYED, STATIC, Box, X, Y, add, errors, make_registry, mixed, operation
from outcome_support import fail, nothing
from statics_support import Slotted
from trees_support import partition_dict, parts_of, tree_leaves, tree_paths


class Case:
    """A tree, and an equal one. `before` says what the tree was flattened to: all leaves, those that
    a filter chooses, or the arrays of a call, with the hash of its Structure. If it is None, the
    registry has not met the types yet."""

    def __init__(self, make: Callable[[], Any], before: Any) -> None:
        self.registry, self.tree, self.again = make_registry(), make(), make()
        if before == "call":
            self.leaves, self.structure = core.flatten(self.registry, self.tree)
            self.other = core.flatten(self.registry, self.again)[1]
            hash(self.structure)
        elif before is not None:
            self.leaves, self.structure = self.flatten(before)

    def flatten(self, candidates: Any) -> Any:
        return core.tree_flatten(self.registry, self.tree, candidates, None)


def is_its_tree(case: Case, found: Any) -> bool:
    return same(found, case.tree)


def described(case: Case) -> Any:
    structure = case.structure
    return (
        repr(structure),
        structure._key_paths(),
        structure.paths,
        nodes_of(structure),
        structure._arrays(),
    )


def is_described(case: Case, found: Any) -> bool:
    # A repr that an allocation fails can make the next one of the same object show {...}.
    expected = repr(case.other), case.other._key_paths(), case.other.paths
    return found[:3] == expected or "..." in found[0]


def filtered(case: Case) -> Any:
    arrays, structure = case.flatten(ARRAYS)
    return structure.unflatten(arrays), repr(structure), structure


def partition(case: Case) -> Any:
    parts = core.partition(case.registry, case.tree, (ARRAYS,), None, None)
    return core.combine(case.registry, parts, None, True)


def dicts(case: Case) -> Any:
    structure, array, other = partition_dict(case.registry, case.tree, True, (ARRAYS,), None)
    return structure.combine(other, array)


ARRAYS = ("arrays",)
# What there is before, what is done, and whether the result is right.
EACH: dict[str, tuple[Any, Callable[[Case], Any], Callable[[Case, Any], bool]]] = {
    "flatten": (None, lambda case: core.flatten(case.registry, case.tree),
        lambda case, found: same(found[1].unflatten(found[0]), case.tree)),
    "build": ("call", lambda case: case.structure.unflatten(case.leaves), is_its_tree),
    "hashing": ("call", lambda case: hash(case.other),
        lambda case, found: found == hash(case.structure)),
    "equality": ("call", lambda case: case.structure == case.other, ops.is_true),
    "match": ("call", lambda case: testing.match(case.structure, case.again),
        lambda case, found: same(found, core.flatten(case.registry, case.again)[0])),
    "described": ("call", described, is_described),
    "leaves": (None, lambda case: tree_leaves(case.registry, case.tree, None),
        lambda case, found: same(found, list(case.flatten(True)[0]))),
    "flatten_up_to": (True, lambda case: case.structure._subtrees(case.tree),
        lambda case, found: same(found, case.leaves)),
    "paths": (ARRAYS,
        lambda case: (case.structure.paths, tree_paths(case.registry, case.tree, None)),
        lambda case, found: found[0] == case.flatten(ARRAYS)[1].paths),
    "filtered": (None, filtered,
        lambda case, found: is_its_tree(case, found[0]) and found[2] == case.flatten(ARRAYS)[1]),
    "parts": (
        ARRAYS,
        lambda case: core.from_skeleton(case.registry, HOLE, *parts_of(case.structure, HOLE)),
        lambda case, made: (
            made == case.structure and is_its_tree(case, made.unflatten(case.leaves))
        ),
    ),
    "partition": (None, partition, is_its_tree),
    "dicts": (None, dicts, is_its_tree),
}  # fmt: skip

for _tree, _make in ops.TREES.items():
    for _kind, (_before, _use, _check) in EACH.items():
        # To describe many leaves makes 2,500 allocations, and a wide instance 700.
        _repeated = _kind == "described" and (_tree == "many" or "Wide" in _tree)
        add(f"{_kind}_{_tree}", functools.partial(Case, _make, _before), _use, _check, _repeated)


def others() -> Any:
    one, other = mixed(), mixed()
    other["s"] = [*other["s"][:-1], 3]
    return core.flatten(make_registry(), one)[1], (other, one["m"], 3)


@operation(others, [None] * 3)
def match_of_others(structure: Any, trees: Any) -> Any:
    found = []
    for tree in trees:
        found.append(testing.match(structure, tree))
    return found


def statics() -> Any:
    return [1, {"k": {2, (3, STATIC)}}, ops.Elements([1, 2]), KEYED, 2**70]


def a_loop() -> Any:
    loop: list[Any] = [1]
    loop.append(loop)
    return make_registry(), Linear(size=loop)


def hash_of(registry: Any, tree: Any) -> int:
    return hash(core.flatten(registry, tree)[1])


def equal_structures() -> Any:
    registry = make_registry(keyed=((Value, lambda v: [v.value, {1: 2}]),))
    return tuple([core.flatten(registry, [Value(1), Linear(size=Value([2]))])[1] for _ in "ab"])


add("same_static", lambda: (make_registry(), statics(), statics()), core.same_static, ops.is_true)
add(
    "values_that_hold_themselves", a_loop, hash_of, lambda r, tree, found: found == hash_of(r, tree)
)
add("identity", lambda: X, core.identity, lambda x, found: hash(found) == hash(core.identity(x)))
add("keyed_types", equal_structures, lambda a, b: hash(a) and a == b, ops.is_true)


def classify_with_contents(cls: type, x: Any) -> Any:
    if cls is Slotted:
        return cs.static(operator.attrgetter("a", "b"), None, ("a", "b"))
    return cs.classify(cls, x)


def with_contents() -> Any:
    value = [Slotted(len, (1, [print])), {"k": Slotted(2**70)}, Slotted(1, 2)]
    return Linear(weight=X, size=value)


def contained() -> Any:
    return make_registry(classify=classify_with_contents), with_contents(), with_contents()


@operation(contained, [(X,), (X,), (X,)])
def contents(registry: Any, tree: Any, equal: Any) -> Any:
    structure = core.flatten(registry, tree)[1]
    hash(structure)
    # The first match takes the contents.
    matched = testing.match(structure, tree)
    return [matched, testing.match(structure, tree), testing.match(structure, equal)]


@operation(nothing, ["array", "static", "list", "module", "namedtuple", "custom", "static"])
def registries(_: None) -> Any:
    registry = make_registry()
    return [registry.kind(x) for x in (X, 1, [], Linear(), cs.Point(1, 2), Box(()), STATIC)]


@operation(make_registry, ["module"] * 9)
def types_that_come_and_go(registry: Any) -> Any:
    made = [type(f"T{i}", (Linear,), {})() for i in range(9)]
    return list(map(registry.kind, made))


@operation(make_registry, [(X,), (Y,)], repeated=True)
def trees_of_a_type_that_goes(registry: Any) -> Any:
    cls: Any = type("Brief", (Linear,), {})
    arrays, structure = core.flatten(registry, [cls(weight=X, size=1)])
    structure.unflatten([Y])
    return [arrays, testing.match(structure, [cls(weight=Y, size=1)])]


MANY_DICTS = [{"k": X}] * 70  # more than fit the buffer on the stack


@operation(lambda: core.tree_flatten(make_registry(), MANY_DICTS, ARRAYS, None)[1], [X] * 70)
def many_subtrees(structure: Any) -> Any:
    return structure._subtrees(MANY_DICTS)


def trees_without_end() -> list[tuple[Any, ...]]:
    registry, loop = make_registry(), [X]
    loop.append(loop)  # type: ignore[arg-type]
    return [
        (RecursionError, core.flatten, registry, loop),
        (RecursionError, tree_leaves, registry, loop, None),
        (RecursionError, core.tree_flatten, registry, 1, ("tree", loop, id), None),
    ]


def errors_with_paths() -> list[tuple[Any, ...]]:
    """The error names no path where there is no memory for it."""
    registry = make_registry()
    tree = [X, {"k": (X, cs.Hostile(on_hash=fail))}]
    structure = core.flatten(registry, tree)[1]
    with_statics = core.tree_flatten(registry, tree, ARRAYS, None)[1]
    keys, box = {1: X, "a": X}, Box((X,), hook=fail)
    unhashable = core.flatten(registry, [X, {"k": cs.Unhashable()}])[1]
    return [
        (ZeroDivisionError, hash, structure),
        (ZeroDivisionError, hash, with_statics),
        (TypeError, core.flatten, registry, [keys]),
        (TypeError, tree_leaves, registry, [keys], None),
        (ZeroDivisionError, tree_paths, registry, {"a": box}, None),
        (TypeError, hash, unhashable),
        (TypeError, core.flatten, make_registry(classify=lambda cls, x: ()), 1),
        (ValueError, structure.unflatten, [X]),
    ]


class Key(str):
    """A key whose text Python code makes."""

    __slots__ = ()

    def __str__(self) -> str:
        return "key " + str.__str__(self)


class Loud:
    def __repr__(self) -> str:
        return "loud " + str(id(self))[:0]


def trees_that_differ() -> list[tuple[Any, ...]]:
    registry, loud = make_registry(), Loud()
    one = {
        "a": [X, (X, X)],
        "m": Linear(weight=X, bias=Y, size=loud, activation=1),
        "b": Box((X,), aux=loud),
    }
    ordered = collections.OrderedDict([(Key("a"), X), (Key("b"), Y)])
    cases: list[tuple[Any, Any]] = [
        (one, {**one, "a": [X, X]}),
        (one, {**one, "a": [X]}),
        (one, {**one, "m": Linear(weight=X, bias=Y, size=Loud(), activation=1)}),
        (one, {**one, "m": Linear(weight=X)}),
        (one, {**one, "m": Linear(weight=X, size=loud, more=1)}),
        (one, {**one, "b": Box((X,), aux=Loud())}),
        (one, {**one, "b": Box((X, X), aux=loud)}),
        (one, {k: one[k] for k in "ab"}),
        (ordered, collections.OrderedDict(reversed(ordered.items()))),
        (collections.defaultdict(list, a=X), collections.defaultdict(Loud, a=X)),
        (None, X),
        (cs.Point(X, X), (X, X)),
    ]
    return [
        (ValueError, core.combine, registry, cases[0], None, 0),
        (TypeError, core.combine, registry, [one], None, 0),
        *[
            (ValueError, core.tree_flatten(registry, a, True, None)[1]._subtrees, b)
            for a, b in cases
        ],
    ]


def groups_that_do_not_fit() -> list[tuple[Any, ...]]:
    registry = make_registry()
    tree = {Key(k): X for k in "abcdefghijklmn"}
    structure, group = partition_dict(registry, tree, True, (), None)
    other = {STATIC: 1, **dict.fromkeys(list(group)[:3], X)}
    return [
        (ValueError, core.tree_flatten(registry, tree, True, None)[1].combine, {}),
        (ValueError, structure.combine, group, other),
        (TypeError, structure.combine, group, 3),
        (ValueError, structure.unflatten, [X]),
        (ValueError, core.combine, registry, (tree, tree), None, True),
        (ValueError, core.from_skeleton, registry, HOLE, [X, X], (X,)),
        (ValueError, core.from_skeleton, registry, HOLE, [X], X),
    ]


def filters_that_fail() -> list[tuple[Any, ...]]:
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
    return [
        (error, core.partition, registry, tree, (expression,), None, None)
        for error, expression in bad
    ]


errors(trees_without_end, repeated=True)
errors(errors_with_paths, {0: "on purpose", 2: "not supported"})
errors(trees_that_differ, {0: "differs from tree 1 at `['a'][1]`"})
errors(groups_that_do_not_fit, {0: "and 4 more", 1: "Value(3)"})
errors(filters_that_fail, {0: "returned None", 2: "`['m']`"})


def swapped() -> Any:
    """Python code writes the paths, after memory for an error has been allocated."""
    tree = {Key("a"): X, Key("b"): Y}
    return core.tree_flatten(make_registry(), tree, True, None)[1], {"key a": Y, "key b": X}


@operation(swapped, {Key("a"): Y, Key("b"): X})
def combine_without_paths(structure: Any, groups: Any) -> Any:
    return structure.combine(groups)


EXPRESSIONS = (
    ("and", ARRAYS, ("path", (None, "0"))),
    ("or", ("path", (..., lambda text: text in ("weight", "0", "d"))), ("not", True)),
    ("array", lambda x: isinstance(x, cs.OtherArray)),
    ("path", ("s", slice(0, 2, None))),
    ("path", ("b", 1)),
    ("tree", {**dict.fromkeys("dfmoprst", False), "b": len}, lambda f: ("leaf", callable)),
    ("path or none", ("é", bool)),
)


@operation(lambda: (make_registry(), mixed()), mixed())
def filters(registry: Any, tree: Any) -> Any:
    parts = core.partition(registry, tree, EXPRESSIONS, None, None)
    return core.combine(registry, parts, None, True)


def is_a_list(x: Any) -> bool:
    return isinstance(x, (list, cs.Point))


@operation(lambda: (make_registry(), mixed()), check=lambda r, tree, found: len(found) == 17)
def is_leaf(registry: Any, tree: Any) -> Any:
    return tree_leaves(registry, tree, is_a_list)
