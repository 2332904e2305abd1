"""Trees apart, in parts, and together again: each kind of node, against a reference in Python."""

import collections
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Hostile,
    Keyed,
    Linear,
    LoudPoint,
    Maybe,
    Module,
    OtherArray,
    Point,
    Record,
    Unhashable,
    Value,
    core,
    make_jit,
    make_registry,
    same,
)

# ---- the reference ----


def children(x: Any) -> list[tuple[Any, Any]] | None:
    """(key, child) of a node; None for a leaf."""
    if x is None:
        return []
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return list(zip(x._fields, x, strict=True))
    if type(x) in (tuple, list):
        return list(enumerate(x))
    if isinstance(x, dict):
        return [(k, x[k]) for k in (x if type(x) is collections.OrderedDict else sorted(x))]
    if isinstance(x, Module):
        return [(k, getattr(x, k)) for k in x.dynamic if hasattr(x, k)]
    if isinstance(x, Record):
        return [("data", x.data), ("other", x.other)]
    return list(enumerate(x.children)) if isinstance(x, Box) else None


def never(x: Any) -> bool:
    return False


def places(
    x: Any, is_leaf: Callable[[Any], Any] = never, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(keys, leaf) of each leaf."""
    below = None if is_leaf(x) else children(x)
    if below is None:
        yield path, x
    else:
        for key, child in below:
            yield from places(child, is_leaf, (*path, key))


def text(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def identical(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def _factory() -> int:
    return 0


def trees() -> dict[str, Any]:
    x, y, z = (Array(i) for i in range(3))
    return {
        "array": x,
        "other_array": OtherArray(),
        "asked": Maybe(True),
        "static": "text",
        "none": None,
        "tuple": (x, 1, y),
        "tuple_of_nones": (None, (None,)),
        "empty_tuple": (),
        "list": [x, "a", [y, None]],
        "list_of_leaves": [1, 1.5, x, y, "a", Maybe(False)],
        "empty_list": [],
        "dict": {"b": x, "a": y, "c": 1},
        "empty_dict": {},
        "int_keys": {2: x, 1: y},
        "ordered_dict": collections.OrderedDict([("b", x), ("a", 2)]),
        "default_dict": collections.defaultdict(_factory, b=x, a=y),
        "default_dict_none": collections.defaultdict(None, a=y),
        "namedtuple": Point(x, 2),
        "loud_namedtuple": LoudPoint(x, 2),
        "module": Linear(weight=x, bias=y, size=3, activation=len),
        "partial_module": Linear(bias=y, __name__="f"),
        "dataclass": Record(x, [y], "tag"),
        "generic": Box([x, (y, 2)], aux=("aux", 1)),
        "generic_empty": Box([]),
        "deep": ({"k": [Point(x, Record(y, z, 0))]}, Linear(weight=(x, x), bias=None)),
        "mixed": [[1, 2], 3, ([x, y], ([z],), [[], 4]), [None, 5], [6, 7]],
        "shared": [x] * 4,
    }


LEAVES = {"array", "other_array", "asked", "static"}


def random_tree(source: random.Random, depth: int = 4) -> Any:
    """Its leaves are all different objects, None aside."""
    below = lambda: random_tree(source, depth - 1)
    few = range(source.randrange(5))
    kind = source.randrange(14) if depth else source.randrange(3)
    if kind <= 2:
        return (Array(), Value(source.random()), None)[kind]
    if kind <= 5:
        return [below() for _ in few]
    if kind <= 7:
        return tuple([below() for _ in few])
    if kind == 8:
        return [Array() for _ in range(source.randrange(1, 30))]
    if kind == 9:
        return {f"k{i}": below() for i in reversed(few)}
    return (
        lambda: Linear(weight=below(), bias=below(), size=3),
        lambda: Point(below(), below()),
        lambda: Record(below(), below(), "tag"),
        lambda: Box([below() for _ in few], aux="aux"),
    )[kind - 10]()


# ---- each kind ----


@pytest.mark.parametrize("name", trees())
def test_each_kind(registry: Any, name: str) -> None:
    tree = trees()[name]
    expected = list(places(tree))
    paths = [text(path) for path, _ in expected]
    leaves, structure = core.tree_flatten(registry, tree, True, None)
    assert identical(leaves, [leaf for _, leaf in expected])
    assert identical(core.tree_leaves(registry, tree, None), leaves)
    assert core.tree_paths(registry, tree, None) == paths
    assert structure.paths == tuple(paths) and structure.paths is structure.paths
    assert structure.num_leaves == len(leaves)
    assert same(structure.unflatten(leaves), tree)
    assert same(structure.unflatten(iter(leaves)), tree)
    assert identical(structure.flatten_up_to(tree), leaves)


@pytest.mark.parametrize("name", trees())
def test_map_of_each_kind(registry: Any, name: str) -> None:
    tree = trees()[name]
    leaves, structure = core.tree_flatten(registry, tree, True, None)
    rows: list[tuple[Any, ...]] = []

    def f(*row: Any) -> Any:
        rows.append(row)
        return Value(len(rows))

    again = structure.unflatten([(leaf,) for leaf in leaves])  # a subtree in each leaf's place
    mapped = core.tree_map(registry, f, (tree, tree, again), None)
    assert all(identical(row[:2], (leaf, leaf)) for row, leaf in zip(rows, leaves, strict=True))
    assert all(row[2][0] is leaf for row, leaf in zip(rows, leaves, strict=True))
    values, mapped_structure = core.tree_flatten(registry, mapped, True, None)
    assert [v.value for v in values] == list(range(1, len(leaves) + 1))
    assert mapped_structure == structure


@pytest.mark.parametrize("name", trees())
def test_partition_of_each_kind(registry: Any, name: str) -> None:
    tree = trees()[name]
    hole = Value("hole")
    parts = core.partition(registry, tree, (("arrays",), ("leaf", never)), None, hole)
    assert len(parts) == 3
    for i, part in enumerate(parts):
        for (path, found), (_, leaf) in zip(places(part), places(tree), strict=True):
            is_array = isinstance(leaf, Array) or (isinstance(leaf, Maybe) and leaf.traced)
            assert found is (leaf if i == (0 if is_array else 2) else hole), path
    parts = core.partition(registry, tree, (("arrays",), ("leaf", never)), None, None)
    for strict in (False, True):
        assert same(core.combine(registry, parts, None, strict), tree)
        assert same(core.combine(registry, parts[::-1], None, strict), tree)


@pytest.mark.parametrize("name", trees())
def test_partition_dict_of_each_kind(registry: Any, name: str) -> None:
    tree = trees()[name]
    everything = {text(path): leaf for path, leaf in places(tree)}
    structure, arrays, rest = core.partition_dict(registry, tree, True, (("arrays",),), None)
    assert list(structure.paths) == list(everything)
    merged = {**rest, **arrays}
    assert merged.keys() == everything.keys()
    assert all(merged[path] is leaf for path, leaf in everything.items())
    assert [p for p in everything if p in arrays] == list(arrays), "in the order of the tree"
    backwards = dict(reversed(list(rest.items())))
    assert same(structure.combine(backwards, arrays), tree)
    fixed, group = core.partition_dict(registry, tree, ("arrays",), (), None)
    assert fixed.paths == tuple(arrays) and list(group) == list(arrays)
    assert same(fixed.combine(group), tree)


@pytest.mark.parametrize("name", trees())
def test_parts_of_each_kind(registry: Any, name: str) -> None:
    tree, hole = trees()[name], Value("hole")
    for program in (True, ("arrays",), False):
        leaves, structure = core.tree_flatten(registry, tree, program, None)
        skeleton, statics = structure.parts(hole)
        assert all(leaf is hole for leaf in core.tree_leaves(registry, skeleton, None))
        everything = core.tree_leaves(registry, tree, None)
        if len(leaves) == len(everything):
            assert statics is None
        else:
            given = iter(leaves)
            assert identical([next(given) if s is hole else s for s in statics], everything)
        again = core.from_parts(registry, hole, skeleton, statics)
        assert again == structure and hash(again) == hash(structure)
        assert repr(again) == repr(structure) and again.paths == structure.paths
        assert same(again.unflatten(leaves), tree)


def test_all_kinds_are_told_apart(registry: Any) -> None:
    """A leaf is a prefix of everything, and nothing else here is one of another tree."""
    everything = trees()
    structures = {n: core.tree_flatten(registry, t, True, None)[1] for n, t in everything.items()}
    for one, structure in structures.items():
        for other, tree in everything.items():
            alike = one == other or {one, other} <= LEAVES
            assert (structures[other] == structure) == alike, (one, other)
            assert (structures[other] != structure) != alike
            if alike or one in LEAVES:
                assert len(structure.flatten_up_to(tree)) == structure.num_leaves
            else:
                with pytest.raises(ValueError, match="the tree differs from the structure at"):
                    structure.flatten_up_to(tree)


def test_random_trees(registry: Any) -> None:
    source = random.Random(0)
    for _ in range(300):
        tree = random_tree(source)
        expected = list(places(tree))
        assert core.tree_paths(registry, tree, None) == [text(p) for p, _ in expected]
        group = {id(leaf): source.randrange(4) for _, leaf in expected}
        programs = tuple(("leaf", lambda x, i=i, g=group: g[id(x)] == i) for i in range(3))
        parts = core.partition(registry, tree, programs, None, None)
        for i, part in enumerate(parts):
            found = [leaf for _, leaf in places(part, lambda x: x is None)]
            wanted = [
                leaf if leaf is not None and group[id(leaf)] == i else None
                for _, leaf in places(tree, lambda x: x is None)
            ]
            assert identical(found, wanted)
        source.shuffle(shuffled := list(parts))
        assert same(core.combine(registry, tuple(shuffled), None, True), tree)
        leaves, structure = core.tree_flatten(registry, tree, ("or", *programs[:2]), None)
        assert identical(leaves, [x for _, x in expected if group[id(x)] < 2])
        assert same(structure.unflatten(leaves), tree)
        is_leaf = lambda x: isinstance(x, (Point, list)) and len(x) == 2
        expected = list(places(tree, is_leaf))
        leaves, structure = core.tree_flatten(registry, tree, True, is_leaf)
        assert identical(leaves, [leaf for _, leaf in expected])
        assert structure.paths == tuple(text(p) for p, _ in expected)
        assert same(structure.unflatten(leaves), tree)
        assert identical(structure.flatten_up_to(tree), leaves)


# ---- tuples and lists of nothing but leaves ----


@pytest.mark.parametrize("name", ["tuple", "list_of_leaves", "shared", "mixed", "deep"])
def test_however_leaves_came_to_be_known_it_is_one_structure(name: str) -> None:
    """Types not met before and `is_leaf` make a node for each leaf at first."""
    registry = make_registry()
    tree = trees()[name]
    leaves, first = core.tree_flatten(registry, tree, True, None)
    second = core.tree_flatten(registry, tree, True, None)[1]
    third = core.tree_flatten(registry, tree, True, never)[1]
    for other in (second, third):
        assert other == first and hash(other) == hash(first) and repr(other) == repr(first)
        assert other.num_nodes == first.num_nodes and other.paths == first.paths
        assert same(other.unflatten(leaves), tree)
        assert same(other.parts(0), first.parts(0))
    programs = (("path", (("deep",), ("index", -1))),)
    parts = [core.partition(registry, tree, programs, leaf, 0) for leaf in (None, never)]
    assert same(parts[0], parts[1])
    assert same(core.partition(make_registry(), tree, programs, None, 0), parts[0])


def test_a_subtree_that_counts_as_a_leaf_is_one_like_any_other(registry: Any) -> None:
    is_leaf = lambda x: isinstance(x, list) and len(x) == 2
    _, structure = core.tree_flatten(registry, ([1, 2], 3, [4, 5]), True, is_leaf)
    assert structure == core.tree_flatten(registry, (1, 2, 3), True, None)[1]
    assert structure.paths == ("0", "1", "2") and structure.num_leaves == 3


def test_what_a_structure_says_of_leaf_lists(registry: Any) -> None:
    nested = core.tree_flatten(registry, [[1, 2], {"a": 3}], True, None)[1]
    assert repr(nested) == "Structure([[*, *], {'a': *}])"
    assert nested.paths == ("0.0", "0.1", "1.a")


def test_what_is_only_asked_of_the_structures_of_calls(registry: Any) -> None:
    _, structure = core.tree_flatten(registry, {"a": [1, 2], "b": 3}, True, None)
    for call in (structure.array_paths, structure.span, lambda: structure.span(0, 1)):
        with pytest.raises(ValueError, match="not one of a jitted call"):
            call()


# ---- None, is_leaf ----


def test_none_is_a_node(registry: Any) -> None:
    tree = [None, 1, (None, 2), {"a": None}]
    assert core.tree_leaves(registry, tree, None) == [1, 2]
    assert core.tree_map(registry, str, (tree,), None) == [None, "1", (None, "2"), {"a": None}]
    leaves, structure = core.tree_flatten(registry, tree, True, lambda x: x is None)
    assert leaves == [None, 1, None, 2, None]
    assert structure.unflatten("abcde") == ["a", "b", ("c", "d"), {"a": "e"}]
    assert structure.flatten_up_to([1, [2], (3, 4), {"a": ()}]) == [1, [2], 3, 4, ()]


def test_is_leaf_is_asked_of_each_node_before_its_children(registry: Any) -> None:
    asked: list[Any] = []
    tree = [(1, 2), {"a": [3]}, None]
    inner = tree[1]

    def is_leaf(x: Any) -> bool:
        asked.append(x)
        return x is inner

    assert identical(core.tree_leaves(registry, tree, is_leaf), [1, 2, inner])
    assert identical(asked, [tree, tree[0], 1, 2, inner, None])
    assert core.tree_paths(registry, tree, lambda x: x is tree) == [""]
    assert core.tree_map(registry, id, (tree,), lambda x: x is tree) == id(tree)


@pytest.mark.parametrize("answer, is_leaf", [(1, True), ([0], True), ([], False), (None, False)])
def test_is_leaf_may_return_anything_true_or_false(
    registry: Any, answer: Any, is_leaf: bool
) -> None:
    assert core.tree_leaves(registry, [1, 2], lambda x: answer) == ([[1, 2]] if is_leaf else [1, 2])


def test_is_leaf_of_the_others(registry: Any) -> None:
    tree, is_list = {"a": [1, 2], "b": (3, [4])}, lambda x: isinstance(x, list)
    longest = ("leaf", lambda x: x == [1, 2])
    parts = core.partition(registry, tree, (longest,), is_list, None)
    assert parts == ({"a": [1, 2], "b": (None, None)}, {"a": None, "b": (3, [4])})
    assert core.combine(registry, parts, is_list, True) == tree
    structure, one, rest = core.partition_dict(registry, tree, True, (longest,), is_list)
    assert one == {"a": [1, 2]} and rest == {"b.0": 3, "b.1": [4]}
    assert structure.combine(one, rest) == tree


# ---- where trees differ ----

FULL = {"weight": 1, "bias": 2, "size": 3, "activation": "a"}


class Other(Module):
    dynamic = Linear.dynamic
    static = Linear.static


class OtherRecord(Record):
    pass


class OtherBox(Box):
    pass


Ordered, D = collections.OrderedDict, collections.defaultdict

MISMATCHES: dict[str, tuple[Any, Any, str]] = {
    "tuple_size": ((1, 2), (1,), "a `tuple` of 1, where {} has a `tuple` of 2"),
    "tuple_type": ((1, 2), [1, 2], "a `list` of 2, where {} has a `tuple` of 2"),
    "tuple_of_nodes_size": (([], []), ([],), "a `tuple` of 1, where {} has a `tuple` of 2"),
    "tuple_subclass": ((1, 2), Point(1, 2), "a `Point`, where {} has a `tuple` of 2"),
    "list_size": ([1], [1, 2], "a `list` of 2, where {} has a `list` of 1"),
    "list_type": ([1], 1, "a `int`, where {} has a `list` of 1"),
    "list_none": ([1], None, "None, where {} has a `list` of 1"),
    "none": (None, 1, "a `int`, where {} has None"),
    "namedtuple_type": (Point(1, 2), LoudPoint(1, 2), "a `LoudPoint`, where {} has a `Point`"),
    "dict_type": ({"a": 1}, Ordered(a=1), "a `collections.OrderedDict`, where {} has a `dict`"),
    "dict_keys": (
        {"a": 1, "b": 2},
        {"a": 1, "c": 2},
        "the keys ['a', 'c'], where {} has ('a', 'b')",
    ),
    "dict_fewer": ({"a": 1, "b": 2}, {"a": 1}, "the keys ['a'], where {} has ('a', 'b')"),
    "dict_more": ({"a": 1}, {"a": 1, "b": 2}, "the keys ['a', 'b'], where {} has ('a',)"),
    "ordered_order": (
        Ordered(a=1, b=2),
        Ordered(b=2, a=1),
        "the keys ['b', 'a'], where {} has ('a', 'b')",
    ),
    "ordered_fewer": (Ordered(a=1, b=2), Ordered(a=1), "the keys ['a'], where {} has ('a', 'b')"),
    "default_factory": (
        D(int, a=1),
        D(None, a=1),
        "default_factory=None, where {} has default_factory=<class 'int'>",
    ),
    "default_keys": (D(int, a=1), D(int, b=1), "the keys ['b'], where {} has ('a',)"),
    "module_type": (Linear(**FULL), Other(**FULL), "a `Other`, where {} has a `Linear`"),
    "module_static": (Linear(**FULL), Linear(**FULL | {"size": 4}), "size=4, where {} has size=3"),
    "module_fewer": (
        Linear(weight=1, size=3),
        Linear(size=3, bias=1),
        "no `weight`, where {} has one",
    ),
    "module_more": (Linear(weight=1), Linear(weight=1, bias=2), "a `bias`, where {} has none"),
    "module_wrapper": (
        Linear(**FULL, __name__="f"),
        Linear(**FULL, __name__="g"),
        "__name__='g', where {} has __name__='f'",
    ),
    "dataclass_type": (
        Record(1, 2, 3),
        OtherRecord(1, 2, 3),
        "a `OtherRecord`, where {} has a `Record`",
    ),
    "dataclass_static": (Record(1, 2, 3), Record(1, 2, 4), "tag=4, where {} has tag=3"),
    "generic_type": (Box([1]), OtherBox([1]), "a `OtherBox`, where {} has a `Box`"),
    "generic_aux": (Box([1], aux=1), Box([1], aux="b"), "aux data 'b', where {} has 1"),
    "generic_size": (Box([1]), Box([1, 2]), "2 children, where {} has 1"),
}


@pytest.mark.parametrize("kind", MISMATCHES)
def test_where_trees_differ(registry: Any, kind: str) -> None:
    model, other, expected = MISMATCHES[kind]
    wrap = lambda x: {"k": [0, (x, 1)]}
    calls = {
        "the structure": lambda m, o: core.tree_flatten(registry, m, True, None)[1].flatten_up_to(
            o
        ),
        "tree 1": lambda m, o: core.tree_map(registry, max, (m, m, o), None),
    }
    for name, call in calls.items():
        who = "the tree" if name == "the structure" else "tree 3"
        found = re.escape(expected.format(name)) + "$"
        with pytest.raises(
            ValueError, match=rf"^{who} differs from {name} at `\['k'\]\[1\]\[0\]`: .*{found}"
        ):
            call(wrap(model), wrap(other))
        with pytest.raises(ValueError, match=rf"at the root: it has .*{found}"):
            call(model, other)
    combined = lambda: core.combine(registry, (wrap(model), wrap(other)), None, False)
    if model is None:  # which is a leaf there, and no leaf is the tree's own
        assert combined() == wrap(1)
    else:
        with pytest.raises(ValueError, match=re.escape(expected.format("tree 1"))):
            combined()


def test_a_missing_field_is_named(registry: Any) -> None:
    _, structure = core.tree_flatten(registry, Linear(**FULL), True, None)
    with pytest.raises(ValueError, match="a `Linear` of other attributes, where"):
        structure.flatten_up_to(Linear(weight=1, size=3, activation="a"))


def test_what_does_not_make_trees_differ(registry: Any) -> None:
    """Statics are compared by ==, as jax.tree_util does; the order of a dict does not count."""
    pairs: list[tuple[Any, Any]] = [
        (Linear(size=1), Linear(size=True)),
        (Record(1, 2, [1]), Record(3, 4, [1.0])),
        (Box([1], aux=Keyed(1)), Box([2], aux=Keyed(2))),
        ({"a": 1, "b": 2}, {"b": 4, "a": 3}),
        ({1: 1, 2: 2}, {2.0: 4, True: 3}),
        (D(int, a=1, b=2), D(int, b=4, a=3)),
    ]
    for model, other in pairs:
        _, structure = core.tree_flatten(registry, model, True, None)
        assert structure.flatten_up_to(other) == core.tree_leaves(registry, other, None)


def test_subtrees_in_the_places_of_leaves(registry: Any) -> None:
    _, structure = core.tree_flatten(registry, {"a": [0, 0], "b": Point(0, 0)}, True, None)
    tree = {"a": [None, {"c": 1}], "b": Point([2, 3], ())}
    assert structure.flatten_up_to(tree) == [None, {"c": 1}, [2, 3], ()]
    pairs = core.tree_map(registry, lambda p, x: (p, x), ([0, 1], [[2], None]), None)
    assert pairs == [(0, [2]), (1, None)]


def test_statics_in_a_structure_are_not_looked_at(registry: Any) -> None:
    x, y = Array(), Array()
    leaves, structure = core.tree_flatten(registry, [1, x, ("s", y)], ("arrays",), None)
    assert identical(leaves, [x, y])
    assert structure.flatten_up_to([[2], 3, (None, 4)]) == [3, 4]
    assert structure.unflatten([5, 6]) == [1, 5, ("s", 6)]
    with pytest.raises(ValueError, match="takes 2 leaves, not 3"):
        structure.unflatten([5, 6, 7])


# ---- repr ----


def test_repr(registry: Any) -> None:
    shown = lambda tree, program=True: repr(core.tree_flatten(registry, tree, program, None)[1])
    some = lambda n: ", ".join(["*"] * n)
    assert shown([0] * 10) == f"Structure([{some(10)}])"
    assert shown([0] * 11) == f"Structure([{some(10)}, ... 1 more])"
    assert shown((0,)) == "Structure((*,))" and shown(()) == "Structure(())"
    assert shown(range(10**6)) == "Structure(*)"
    assert shown([0] * 10**6) == f"Structure([{some(10)}, ... 999990 more])"
    assert shown({i: (i,) for i in range(12)}) == (
        f"Structure({{{', '.join(f'{i}: (*,)' for i in range(10))}, ... 2 more}})"
    )
    assert shown(D(int, a=1)) == "Structure(defaultdict(default_factory=<class 'int'>, 'a': *))"
    assert shown(Linear(weight=1, bias=None, size=3, activation="a")) == (
        "Structure(Linear(weight=*, bias=None, size=3, activation='a'))"
    )
    assert shown("x" * 100, False) == f"Structure('{'x' * 59}...)"


def test_repr_of_statics_after_what_is_left_out(registry: Any) -> None:
    """Leaves that are passed without a word count."""
    many = [[Array(), i, i] for i in range(12)]
    tree = (many, list(range(20)), "end", Array())
    _, structure = core.tree_flatten(registry, tree, ("arrays",), None)
    rows = ", ".join(f"[*, {i}, {i}]" for i in range(10))
    numbers = ", ".join(map(str, range(10)))
    assert repr(structure) == (
        f"Structure(([{rows}, ... 2 more], [{numbers}, ... 10 more], 'end', *))"
    )


def test_repr_of_a_large_tree_is_short(registry: Any) -> None:
    tree: Any = 0
    for _ in range(7):
        tree = [tree] * 6
    shown = repr(core.tree_flatten(registry, tree, True, None)[1])
    assert len(shown) < 3000 and "more" in shown
    assert shown.count("[") == shown.count("]") and shown.endswith("])")


# ---- hash, == ----


def test_statics_are_compared_exactly(registry: Any) -> None:
    nan = float("nan")
    values: list[Callable[[], Any]] = [
        *map(lambda v: lambda: v, (1, True, 1.0, 0.0, -0.0, nan, 1j, "1", b"1", len, int)),
        lambda: Value(1),
        lambda: Value(True),
        lambda: Keyed(1),
        lambda: Keyed(2),
        lambda: Point,
        lambda: frozenset([1]),
        lambda: frozenset([True]),
    ]
    fixed = lambda v: core.tree_flatten(registry, [v(), Array()], ("arrays",), None)[1]
    structures = [fixed(v) for v in values]
    for i, one in enumerate(structures):
        assert fixed(values[i]) == one and hash(fixed(values[i])) == hash(one)
        for k, other in enumerate(structures):
            # Value has an == of its own, which is what a type of one's own is compared by.
            alike = i == k or {i, k} == {11, 12}
            assert (one == other) == alike and (hash(one) == hash(other)) == alike, (i, k)


def test_which_leaves_are_given_is_part_of_a_structure(registry: Any) -> None:
    fixed = lambda *tree: core.tree_flatten(registry, list(tree), ("arrays",), None)[1]
    x = Array()
    assert fixed(1, x) != fixed(x, 1) and fixed(1, x) != fixed(x, x) and fixed(1, 1) != fixed(1, x)
    assert fixed(x, 1) == fixed(Array(), 1)
    assert core.tree_flatten(registry, [x, 1], True, None)[1] != fixed(x, 1)
    with pytest.raises(TypeError):
        fixed(1, x) < fixed(1, x)  # noqa: B015
    assert fixed(1) != 1
    assert fixed(1) != core.tree_flatten(make_registry(), [1], ("arrays",), None)[1]


def test_statics_without_a_hash(registry: Any) -> None:
    s = Unhashable()
    make = lambda x: core.tree_flatten(registry, {"k": [0, x]}, False, None)[1]
    assert make(s) == make(s) and make(s) != make(Unhashable())
    with pytest.raises(TypeError, match="unhashable") as info:
        hash(make(s))
    assert info.value.__notes__ == ["(while hashing the static `['k'][1]`)"]
    root = core.tree_flatten(registry, s, False, None)[1]
    with pytest.raises(TypeError) as info:
        hash(root)
    assert info.value.__notes__ == ["(while hashing the static at the root)"]
    # A field need not have a hash, and need not be given.
    assert hash(core.tree_flatten(registry, Linear(size=s), True, None)[1]) is not None


def _fail() -> None:
    raise ZeroDivisionError


def test_statics_that_fail_are_named(registry: Any) -> None:
    make = lambda x: core.tree_flatten(registry, {"k": (Array(), x)}, ("arrays",), None)[1]
    bad = [Hostile(on_hash=_fail), Linear(size=Hostile(on_hash=_fail))]
    for x, path in zip(bad, ("['k'][1]", "['k'][1].size"), strict=True):
        with pytest.raises(ZeroDivisionError) as info:
            hash(make(x))
        assert info.value.__notes__ == [f"(while hashing the static `{path}`)"]
        assert not hasattr(info.value, "__filterjit_blame__")
    with pytest.raises(ZeroDivisionError) as info:
        assert make(Hostile()) == make(Hostile(on_eq=_fail))
    assert info.value.__notes__ == ["(while comparing the static `['k'][1]`)"]


def test_static_fields_that_fail_to_compare_are_named(registry: Any) -> None:
    make = lambda x: core.tree_flatten(registry, [Linear(size=x)], True, None)[1]
    with pytest.raises(ZeroDivisionError) as info:
        assert make(Hostile()) == make(Hostile(on_eq=_fail))
    assert info.value.__notes__ == ["(while comparing the static `[0].size`)"]


# ---- programs ----


class Asked:
    """A predicate that writes down what it was asked."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def __call__(self, leaf: Any) -> Any:
        self.asked.append(leaf)
        return self.answer(leaf)


def group_numbers(registry: Any, tree: Any, *programs: Any) -> list[int]:
    """The number of the program that takes each leaf."""
    parts = core.partition(registry, tree, programs, None, None)
    leaves = [core.tree_leaves(registry, p, lambda x: x is None) for p in parts]
    return [
        next(i for i, x in enumerate(row) if x is not None) for row in zip(*leaves, strict=True)
    ]


def test_each_op(registry: Any) -> None:
    x, y = Array(2), OtherArray(3)
    tree = [x, y, Maybe(True), Maybe(False), 1, "a"]
    value = Asked(lambda a: isinstance(a, Maybe) or a.value > 2)
    is_int = Asked(lambda a: isinstance(a, int))
    for program, expected in (
        (True, "000000"),
        (False, "111111"),
        (("arrays",), "000111"),
        (("array", value), "100111"),
        (("leaf", is_int), "111101"),
        (("not", ("arrays",)), "111000"),
        (("and", ("arrays",), ("not", ("array", value))), "011111"),
        (("or", ("arrays",), ("leaf", is_int)), "000101"),
        (("path", (("index", -1),)), "111110"),
        (("tree", [True, False, False, True, True, False], None), "011001"),
    ):
        found = "".join(map(str, group_numbers(registry, tree, program)))
        assert found == expected, program
    assert identical(value.asked, tree[:3] * 2), "not asked of what is no array"
    assert identical(is_int.asked, [*tree, *tree[3:]]), "`or` asks about the rest"


def test_the_first_program_that_takes_a_leaf_has_it(registry: Any) -> None:
    small, even = Asked(lambda n: n < 3), Asked(lambda n: n % 2 == 0)
    late = Asked(lambda n: True)
    tree = list(range(6))
    programs = (("leaf", small), ("leaf", even), True, ("leaf", late))
    assert group_numbers(registry, tree, *programs) == [0, 0, 0, 2, 1, 2]
    assert small.asked == tree and even.asked == [3, 4, 5] and late.asked == []
    candidate = Asked(lambda n: n % 3 == 0)
    structure, one, rest = core.partition_dict(
        registry, tree, ("leaf", candidate), (("leaf", even),), None
    )
    assert candidate.asked == tree and even.asked == [3, 4, 5, 0, 3]
    assert one == {"0": 0} and rest == {"3": 3} and structure.paths == ("0", "3")
    assert structure.unflatten("ab") == ["a", 1, 2, "b", 4, 5]


def take(program: Any, leaf: Any, asked: list[tuple[str, Any]]) -> bool:
    """The reference: one leaf at a time."""
    if isinstance(program, bool):
        return program
    op, *rest = program
    if op == "leaf":
        asked.append((rest[0].name, leaf))
        return bool(rest[0].answer(leaf))
    if op == "and":
        return all(take(p, leaf, asked) for p in rest)
    return any(take(p, leaf, asked) for p in rest) if op == "or" else not take(rest[0], leaf, asked)


class Named(Asked):
    def __init__(self, name: str, answer: Callable[[Any], Any], log: list[tuple[str, Any]]) -> None:
        super().__init__(answer)
        self.name, self.log = name, log

    def __call__(self, leaf: Any) -> Any:
        self.log.append((self.name, leaf))
        return self.answer(leaf)


def test_random_programs_ask_what_they_have_to_and_no_more(registry: Any) -> None:
    source = random.Random(1)
    log: list[tuple[str, Any]] = []
    predicates = [Named(f"p{i}", lambda n, i=i: n >> i & 1, log) for i in range(4)]

    def make(depth: int) -> Any:
        op = source.choice(["and", "or", "not", "leaf", "leaf", True, False] if depth else ["leaf"])
        if isinstance(op, bool):
            return op
        if op == "leaf":
            return op, source.choice(predicates)
        return op, *[make(depth - 1) for _ in range(1 if op == "not" else 2)]

    tree = (list(range(8)), {"k": list(range(8, 16))})
    for _ in range(300):
        program, asked = make(4), []
        log.clear()
        found, _ = core.tree_flatten(registry, tree, program, None)
        assert found == [n for n in range(16) if take(program, n, asked)], program
        assert sorted(log) == sorted(asked)


def test_errors_of_predicates_name_the_leaf(registry: Any) -> None:
    def fails(leaf: Any) -> bool:
        if leaf == 3:
            raise ZeroDivisionError("mine")
        return False

    for program in (("leaf", fails), ("not", ("or", False, ("leaf", fails)))):
        for tree, where in (
            ({"k": [1, (2, 3)]}, "`['k'][1][1]`"),
            (Linear(weight=Record(1, 3, "tag")), "`weight.other`"),
            (3, "at the root"),
        ):
            with pytest.raises(ZeroDivisionError, match="mine") as info:
                core.partition(registry, tree, (program,), None, None)
            assert info.value.__notes__ == [f"(while a filter was asked about {where})"]
    with pytest.raises(TypeError, match=r"<lambda>.* returned None: it has to return a bool") as e:
        core.tree_flatten(registry, [Array()], ("array", lambda x: None), None)
    assert e.value.__notes__ == ["(while a filter was asked about `[0]`)"]


BAD_PROGRAMS: list[Any] = [
    None,
    1,
    "arrays",
    (),
    ("unheard of",),
    (3,),
    (("arrays",),),
    ("arrays", 1),
    ("array",),
    ("leaf",),
    ("leaf", None),
    ("leaf", len, len),
    ("and", True),
    ("or", True, True, True),
    ("not",),
    ("not", ("not", None)),
    ("path", [("any",)]),
    ("path", None),
    ("tree", [True]),
    ("tree", [lambda x: True], None),  # not callable
    ("tree", [1], lambda filter: filter),  # makes no program
]


@pytest.mark.parametrize("program", BAD_PROGRAMS)
def test_bad_programs(registry: Any, program: Any) -> None:
    for call in (
        lambda: core.partition(registry, [Array()], (program,), None, None),
        lambda: core.partition_dict(registry, [Array()], program, (), None),
        lambda: core.tree_flatten(registry, [Array()], ("not", program), None),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()


def test_number_of_programs(registry: Any) -> None:
    for programs in ([True], True, (True,) * 40_000):
        with pytest.raises(TypeError, match="a tuple of less than"):
            core.partition(registry, [1], programs, None, None)
        with pytest.raises(TypeError, match="a tuple of less than"):
            core.partition_dict(registry, [1], True, programs, None)
    assert core.partition(registry, [1], (), None, None) == ([1],)
    parts = core.partition(registry, [1], (False,) * 32_766, None, None)
    assert len(parts) == 32_767 and parts[-1] == [1]


# ---- trees of filters ----


def test_a_tree_of_filters_stops_at_or_above_the_leaves(registry: Any) -> None:
    tree = {"a": [1, 2, (3, None)], "b": Point(4, [5, 6]), "c": ()}
    even = Asked(lambda n: n % 2 == 0)
    made: list[Any] = []

    def program_of(filter: Any) -> Any:
        made.append(filter)
        return ("leaf", even) if filter == "even" else ("not", ("leaf", even))

    run = lambda spec: core.tree_flatten(registry, tree, ("tree", spec, program_of), None)[0]
    assert run({"a": "even", "b": True, "c": False}) == [2, 4, 5, 6]
    assert made == ["even"] and even.asked == [1, 2, 3], "True and False are known"
    assert run({"a": [True, False, ("odd", None)], "b": Point(False, "even"), "c": ()}) == [1, 3, 6]
    made.clear()
    assert run("odd") == [1, 3, 5] and made == ["odd"]
    assert run(True) == [1, 2, 3, 4, 5, 6] and run(False) == []
    even.asked.clear()
    spec = ("tree", {"a": "even", "b": "even", "c": "even"}, program_of)
    both = ("and", ("leaf", lambda n: n > 4), spec)
    assert core.tree_flatten(registry, tree, both, None)[0] == [6]
    assert even.asked == [5, 6]


@pytest.mark.parametrize(
    "spec, expected",
    [
        ([True, (False, True)], "tree differs from the filter at `[1]`: it has a `list` of 2"),
        ([True], "at the root: it has a `list` of 2, where the filter has a `list` of 1"),
        ({"a": True}, "at the root: it has a `list` of 2, where the filter has a `dict`"),
        ([[True], True], "at `[0]`: it has a `Array`, where the filter has a `list` of 1"),
        ([None, True], "at `[0]`: it has a `Array`, where the filter has None"),
    ],
)
def test_a_tree_of_filters_has_to_be_a_prefix(registry: Any, spec: Any, expected: str) -> None:
    program = ("tree", spec, lambda filter: filter)
    with pytest.raises(ValueError, match=re.escape(expected)):
        core.partition(registry, [Array(), [1, 2]], (program,), None, None)


def test_a_tree_of_filters_and_is_leaf(registry: Any) -> None:
    is_list = lambda x: isinstance(x, list)
    run = lambda tree, spec: core.tree_flatten(registry, tree, ("tree", spec, None), is_list)[0]
    assert run({"a": 1, "b": (2,)}, {"a": True, "b": False}) == [1]
    assert run({"a": 3, "b": [1, 2]}, {"a": True, "b": False}) == [3]
    assert run({"a": [], "b": 3}, {"a": True, "b": False}) == [[]]
    for spec in ({"a": [True, False], "b": False}, {"a": [True], "b": [True]}):
        with pytest.raises(ValueError, match=r"deeper than `is_leaf`|differs from the filter"):
            run({"a": [1, 2], "b": 3}, spec)


@pytest.mark.parametrize(
    "tree, spec, expected",
    [
        ([[1, 2], []], [True, False], [[1, 2]]),
        ({"a": [1, 2], "b": 3}, {"a": True, "b": False}, [[1, 2]]),
        ({"a": [1, 2], "b": 3}, {"a": [True, False], "b": False}, None),
    ],
)
def test_a_tree_of_filters_and_is_leaf_that_add_up(
    registry: Any, tree: Any, spec: Any, expected: Any
) -> None:
    """The right answer, or an error."""
    is_leaf = lambda x: isinstance(x, list) and x is not tree
    try:
        found, _ = core.tree_flatten(registry, tree, ("tree", spec, None), is_leaf)
    except ValueError:
        return
    assert found == expected


# ---- path patterns ----

ANY, DEEP = ("any",), ("deep",)


def name(text: str) -> tuple[str, str]:
    return "name", text


def index(number: int) -> tuple[str, int]:
    return "index", number


def part(*numbers: int | None) -> tuple[Any, ...]:
    return "slice", *numbers


def glob(regex: str) -> tuple[str, Any]:
    return "glob", re.compile(regex).fullmatch


def forest() -> Any:
    """Each kind of node, with two leaves in most."""
    return {
        "t": (1, 2, 3),
        "l": [4, [5, 6], 7],
        "p": Point(8, LoudPoint(9, 10)),
        "o": Ordered(y=11, x=12),
        "d": D(int, default=13),
        "m": Linear(weight=14, bias=Linear(weight=15, bias=16, size=0), size=1),
        "r": Record(17, [18], "tag"),
        "b": Box([19, Box([20])]),
        "n": None,
        "i": {-1: 21, 0: 22, 7: 23},
        "0": 24,
    }


def matched(registry: Any, tree: Any, *components: Any) -> list[str]:
    structure, found, _ = core.partition_dict(registry, tree, True, (("path", components),), None)
    assert len(structure.paths) > 0
    return list(found)


@pytest.mark.parametrize(
    "components, expected",
    [
        ((name("t"), index(0)), "t.0"),
        ((name("t"), index(-1)), "t.2"),
        ((name("t"), index(-4)), ""),
        ((name("t"), index(3)), ""),
        ((name("t"), name("1")), "t.1"),
        ((name("t"), name("01")), ""),
        ((name("t"), name("-1")), ""),
        ((name("t"), name("")), ""),
        ((name("t"), name("\udc80")), ""),
        ((name("t"), name("9" * 30)), ""),
        ((name("t"), ANY), "t.0 t.1 t.2"),
        ((name("t"), glob("[02]")), "t.0 t.2"),
        ((name("t"), part(1, None, None)), "t.1 t.2"),
        ((name("t"), part(None, None, -2)), "t.0 t.2"),
        ((name("t"), part(-2, None, None)), "t.1 t.2"),
        ((name("t"), part(None, -1, 2)), "t.0"),
        ((name("t"), part(2, 1, None)), ""),
        ((name("t"), part(-(10**30), 10**30, 10**30)), "t.0"),
        ((name("l"), index(1), ANY), "l.1.0 l.1.1"),
        ((name("l"), ANY), "l.0 l.2"),
        ((name("l"), DEEP), "l.0 l.1.0 l.1.1 l.2"),
        ((name("l"), part(0, 2, 1), index(-1)), "l.1.1"),
        ((name("p"), name("x")), "p.x"),
        ((name("p"), index(0)), ""),
        ((name("p"), part(None, None, None)), ""),
        ((name("p"), ANY, glob("[xy]")), "p.y.x p.y.y"),
        ((name("o"), ANY), "o.y o.x"),
        ((name("o"), name("x")), "o.x"),
        ((name("d"), glob("def.*")), "d.default"),
        ((name("d"), name("default_factory")), ""),
        ((name("m"), name("weight")), "m.weight"),
        ((name("m"), name("size")), ""),
        ((name("m"), DEEP, name("weight")), "m.weight m.bias.weight"),
        ((name("r"), name("tag")), ""),
        ((name("r"), ANY), "r.data"),
        ((name("r"), name("other"), index(-1)), "r.other.0"),
        ((name("b"), index(0)), "b.0"),
        ((name("b"), index(1), name("0")), "b.1.0"),
        ((name("n"),), ""),
        ((name("n"), DEEP), ""),
        ((name("i"), index(-1)), "i.-1"),
        ((name("i"), index(7)), "i.7"),
        ((name("i"), name("7")), "i.7"),
        ((name("i"), name("-1")), "i.-1"),
        ((name("i"), index(2)), ""),
        ((name("i"), part(0, 1, None)), ""),
        ((name("i"), glob("[07]")), "i.0 i.7"),
        ((name("0"),), "0"),
        ((index(0),), ""),
        ((DEEP, index(0)), "b.0 b.1.0 i.0 l.0 l.1.0 r.other.0 t.0"),
        ((DEEP, name("0")), "0 b.0 b.1.0 i.0 l.0 l.1.0 r.other.0 t.0"),
        ((ANY, ANY, ANY), "b.1.0 l.1.0 l.1.1 m.bias.weight m.bias.bias p.y.x p.y.y r.other.0"),
        ((DEEP, name("bias"), DEEP, name("weight")), "m.bias.weight"),
        ((DEEP, DEEP, name("y"), DEEP), "o.y p.y.x p.y.y"),
        ((DEEP, ANY, ANY, ANY, DEEP, ANY), ""),
        ((glob("[mr]"), ANY), "m.weight r.data"),
    ],
)
def test_patterns(registry: Any, components: Any, expected: str) -> None:
    assert matched(registry, forest(), *components) == expected.split()


def test_a_pattern_of_nothing_is_the_path_of_the_root(registry: Any) -> None:
    assert matched(registry, Array()) == [""]
    assert matched(registry, Array(), DEEP) == [""]
    assert matched(registry, Array(), ANY) == []


def component_matches(component: Any, key: Any, size: int | None) -> bool:
    """The reference: `size` is the sequence's, None for any other node."""
    op, *detail = component
    if op == "any":
        return True
    if op == "name":
        return str(key) == detail[0]
    if op == "glob":
        return detail[0](str(key)) is not None
    if size is None:
        return op == "index" and type(key) is int and key == detail[0]
    if op == "index":
        return key == detail[0] or key - size == detail[0]
    return key in range(size)[slice(*detail)]


def path_matches(components: Any, keys: Any) -> bool:
    if not components:
        return not keys
    first, *rest = components
    if first == DEEP:
        return path_matches(rest, keys) or (bool(keys) and path_matches(components, keys[1:]))
    return bool(keys) and component_matches(first, *keys[0]) and path_matches(rest, keys[1:])


def keyed_places(x: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """As `places`, where each key comes with the size of the sequence that it is of."""
    below = children(x)
    if below is None:
        yield keys, x
        return
    size = len(x) if type(x) in (tuple, list) else None
    for key, child in below:
        yield from keyed_places(child, (*keys, (key, size)))


def test_random_patterns(registry: Any) -> None:
    source = random.Random(2)

    def component() -> Any:
        number = lambda: source.choice([None, -2, -1, 0, 1, 2])
        return source.choice(
            [
                ANY,
                ANY,
                DEEP,
                name(source.choice(["weight", "k0", "x", "0", "1", "data"])),
                glob(source.choice(["k.*", "[xy]|[01]", ".*t", ".*"])),
                index(source.choice([-3, -1, 0, 1])),
                part(number(), number(), source.choice([None, -2, -1, 1, 2])),
            ]
        )

    hits = 0
    for _ in range(1500):
        tree = random_tree(source)
        components = tuple(component() for _ in range(source.randrange(5)))
        expected = [x for keys, x in keyed_places(tree) if path_matches(components, keys)]
        try:
            found, _ = core.tree_flatten(registry, tree, ("path", components), None)
        except ValueError as e:
            assert "takes no leaf" in str(e) and not expected
            continue
        assert identical(found, expected), (components, tree)
        hits += len(found)
    assert hits > 1000


def test_a_pattern_that_takes_an_inner_node_only(registry: Any) -> None:
    run = lambda *c: core.tree_flatten(registry, forest(), ("path", c), None)[0]
    for components, where in (
        ((name("l"),), "['l']"),
        ((name("l"), index(1)), "['l'][1]"),
        ((DEEP, name("bias")), "['m'].bias"),
        ((ANY, glob("other")), "['r'].other"),
    ):
        if components[-1] == name("bias"):
            assert run(*components) == [16], "a leaf too"
            continue
        with pytest.raises(ValueError, match="takes no leaf") as info:
            run(*components)
        assert f"`{where}`, which is a node: for what lies below it, add" in str(info.value)
    with pytest.raises(ValueError, match="takes no leaf"):
        core.tree_flatten(registry, forest(), ("or", True, ("path", (name("t"),))), None)


@pytest.mark.parametrize("components", [(DEEP,), (name("a"), DEEP)])
def test_all_below_where_there_is_no_leaf(registry: Any, components: Any) -> None:
    tree = {"a": [None, ()]}
    assert core.tree_flatten(registry, tree, ("path", components), None)[0] == []


def test_number_of_components(registry: Any) -> None:
    tree: Any = Array()
    for _ in range(62):
        tree = [tree]
    run = lambda *c: len(core.tree_flatten(registry, tree, ("path", c), None)[0])
    assert run(*[ANY] * 62) == run(*[index(0)] * 62) == run(*[DEEP] * 62) == 1
    assert run(*[DEEP, name("0")] * 31) == 1
    assert run(*[ANY] * 61, name("1")) == 0
    with pytest.raises(ValueError, match="more than 62 components"):
        run(*[ANY] * 63)


def test_keys_are_looked_at_once_for_all_that_is_below(registry: Any) -> None:
    seen: list[str] = []
    matches = ("glob", lambda text: seen.append(text) or text == "a")
    tree = {"a": [{"x": 1, "y": 2}, 3], "b": [{"x": 4}] * 3}
    assert core.tree_flatten(registry, tree, ("path", (matches, DEEP)), None)[0] == [1, 2, 3]
    assert seen == ["a", "b"]
    seen.clear()
    assert core.tree_flatten(registry, tree, ("path", (name("b"), ANY, matches)), None)[0] == []
    assert seen == ["x"] * 3, "only where all before it matches"


def test_a_pattern_knows_keys_by_their_text(registry: Any) -> None:
    tree = {1.5: 1, 2: 2}
    assert matched(registry, tree, name("1.5")) == ["1.5"]
    assert matched(registry, tree, name("2")) == matched(registry, tree, index(2)) == ["2"]
    assert matched(registry, {True: 1}, index(1)) == [], "True is no int here"
    assert matched(registry, {True: 1}, name("True")) == ["True"]
    assert matched(registry, {(1, 2): 1}, name("(1, 2)")) == ["(1, 2)"]


class Color(str):
    """A str whose text is another, as an Enum's of str is."""

    def __str__(self) -> str:
        return f"Color.{str.__str__(self)}"


def test_paths_and_patterns_agree_about_keys_that_are_a_kind_of_str(registry: Any) -> None:
    tree = {Color("red"): 1}
    (path,) = core.tree_paths(registry, tree, None)
    assert path == "Color.red", "as jax.tree_util.keystr(simple=True)"
    assert matched(registry, tree, name(path)) == [path]


BAD_COMPONENTS: list[Any] = [
    None,
    "any",
    (),
    (3,),
    ["any"],
    ("unheard of",),
    ("name",),
    ("name", 3),
    ("name", "a", "b"),
    ("glob",),
    ("glob", 3),
    ("index",),
    ("index", "a"),
    ("index", None),
    ("index", 1.0),
    ("slice", 1, 2),
    ("slice", None, None, 0),
    ("slice", "a", None, None),
]


@pytest.mark.parametrize("component", BAD_COMPONENTS, ids=repr)
def test_bad_components(registry: Any, component: Any) -> None:
    for components in ((component,), (ANY, part(0, 1, 1), DEEP, component)):
        with pytest.raises((TypeError, ValueError)):
            core.tree_flatten(registry, [[[1]]], ("path", components), None)


@pytest.mark.parametrize("number", [2**70, -(2**70)])
def test_an_index_beyond_all_sequences(registry: Any, number: int) -> None:
    assert matched(registry, [1], index(number)) == []
    assert matched(registry, {number: 1}, index(number)) == [str(number)]


# ---- combine ----


def test_combine_takes_the_first_that_is_not_none(registry: Any) -> None:
    run = lambda *trees, strict=False: core.combine(registry, trees, None, strict)
    assert run([1, None, None, None], [2, 3, None, None], [4, 5, 6, None]) == [1, 3, 6, None]
    assert run({"a": None}, {"a": [1, {"b": 2}]}) == {"a": [1, {"b": 2}]}, "or a whole subtree"
    assert run(None, None, 3) == 3 and run(None) is None
    assert run([False, 0, ""], [1, 1, 1]) == [False, 0, ""]
    tree = [1, (2, None)]
    assert run(tree) == tree and run(tree) is not tree
    assert run((1, 2), (None, None), strict=True) == (1, 2)


def test_combine_strictly(registry: Any) -> None:
    for trees, expected in (
        (([1, (None, 2)], [None, (3, 4)]), "`[1][1]` is in tree 1 and in tree 2"),
        (({"a": None}, {"a": 1}, {"a": None}, {"a": 1}), "`['a']` is in tree 2 and in tree 4"),
        ((Linear(weight=1), Linear(weight=1)), "`weight` is in tree 1 and in tree 2"),
        (([1, 2, 3], [None, None, 3]), "`[2]` is in tree 1 and in tree 2"),
    ):
        assert core.combine(registry, trees, None, False) is not None
        with pytest.raises(ValueError, match=re.escape(expected)):
            core.combine(registry, trees, None, True)


def test_combine_strictly_at_the_root(registry: Any) -> None:
    with pytest.raises(ValueError, match="root is in tree 1 and in tree 2"):
        core.combine(registry, (1, 2), None, True)


# ---- dicts of paths ----


def test_combine_with_other_leaves(registry: Any) -> None:
    tree = {"a": [1, Array()], "m": Linear(weight=Array(), bias=2, size=3)}
    structure, group = core.partition_dict(registry, tree, ("arrays",), (), None)
    assert list(group) == ["a.1", "m.weight"]
    made = structure.combine({"m.weight": None, "a.1": [5]})
    assert made["a"] == [1, [5]] and made["m"].weight is None and made["m"].bias == 2
    assert structure.combine({"m.weight": 1}, {}, {"a.1": 2})["a"] == [1, 2]
    assert structure.combine(Ordered(group))["a"][1] is tree["a"][1]
    assert structure.unflatten([7, 8])["a"] == [1, 7]
    empty, nothing = core.partition_dict(registry, tree, False, (), None)
    assert nothing == {} and same(empty.combine(), tree) and same(empty.combine({}, {}), tree)


def test_groups_that_do_not_fit(registry: Any) -> None:
    structure, _ = core.partition_dict(registry, {"a": 1, "b": [2, 3]}, True, (), None)
    full = {"a": 1, "b.0": 2, "b.1": 3}
    for groups, expected in (
        ([{"a": 1}], "structure; missing: ['b.0', 'b.1']"),
        ([], "structure; missing: ['a', 'b.0', 'b.1']"),
        ([full | {"c": 1}], "structure; unknown: ['c']"),
        ([full, {"c": 1, 3: 2}], "structure; unknown: ['c', 3]"),
        ([full, {"a": 1}], "structure; in more than one group: ['a']"),
        ([full, full, full], "structure; in more than one group: ['a', 'b.0', 'b.1']"),
        (
            [{"a": 1, "b.0": 2}, {"b.0": 5, "b": 1}],
            "structure; missing: ['b.1']; unknown: ['b']; in more than one group: ['b.0']",
        ),
    ):
        with pytest.raises(ValueError, match=re.escape(expected) + "$"):
            structure.combine(*groups)


def test_of_many_paths_ten_are_listed(registry: Any) -> None:
    tree = {f"k{i:02}": i for i in range(25)}
    structure, full = core.partition_dict(registry, tree, True, (), None)
    listed = lambda count: f"[{', '.join(repr(k) for k in list(tree)[:count])}]"
    unknown = {f"u{i}": i for i in range(11)}
    for groups, expected in (
        ([dict(list(full.items())[10:])], f"missing: {listed(10)}$"),
        ([dict(list(full.items())[11:])], f"missing: {listed(10)} and 1 more$"),
        ([{}], f"missing: {listed(10)} and 15 more$"),
        ([full, full], f"in more than one group: {listed(10)} and 15 more$"),
        ([full | unknown], "unknown: .* and 1 more$"),
    ):
        with pytest.raises(ValueError, match=expected.replace("[", "\\[").replace("]", "\\]")):
            structure.combine(*groups)


def test_groups_that_are_no_dicts(registry: Any) -> None:
    structure, full = core.partition_dict(registry, [1], True, (), None)
    for groups, expected in (
        ([3], "group 1 is a `int`: it has to be a dict"),
        ([full, [("0", 1)]], "group 2 is a `list`"),
        ([None], "group 1 is a `NoneType`"),
    ):
        with pytest.raises(TypeError, match=expected):
            structure.combine(*groups)
    with pytest.raises(TypeError):
        structure.combine(full, key=full)


@pytest.mark.parametrize(
    "tree, path",
    [
        ({"a.b": 1, "a": {"b": 2}}, "a.b"),
        ({"a": [1], "a.0": 2}, "a.0"),
        (Linear(weight={"0": 1, "x": 2}, bias={"y": 3}), None),
        ({"": {"": 1}, ".": 2}, "."),
    ],
)
def test_two_leaves_of_one_path(registry: Any, tree: Any, path: str | None) -> None:
    if path is None:
        assert len(core.partition_dict(registry, tree, True, (), None)[1]) == 3
        return
    with pytest.raises(ValueError, match=f"two leaves have the path {path!r}"):
        core.partition_dict(registry, tree, True, (), None)
    # Only those that are given need a path of their own.
    structure, group = core.partition_dict(registry, tree, ("leaf", lambda n: n == 1), (), None)
    assert group == {path: 1} and same(structure.combine(group), tree)


# ---- bad arguments ----


def bad_calls(registry: Any) -> dict[str, Callable[[], Any]]:
    r, t = registry, [1, 2]
    structure = core.tree_flatten(r, t, True, None)[1]
    jitted = core.flatten(r, t)[1]
    calls: dict[str, Callable[[], Any]] = {
        "leaves_none": lambda: core.tree_leaves(),
        "leaves_few": lambda: core.tree_leaves(r, t),
        "leaves_many": lambda: core.tree_leaves(r, t, None, None),
        "leaves_registry": lambda: core.tree_leaves(None, t, None),
        "leaves_structure": lambda: core.tree_leaves(structure, t, None),
        "leaves_is_leaf": lambda: core.tree_leaves(r, t, 3),
        "leaves_is_leaf_arity": lambda: core.tree_leaves(r, t, lambda: True),
        "leaves_keyword": lambda: core.tree_leaves(r, t, is_leaf=None),
        "paths_few": lambda: core.tree_paths(r, t),
        "paths_is_leaf": lambda: core.tree_paths(r, t, "no"),
        "map_few": lambda: core.tree_map(r, str, (t,)),
        "map_list": lambda: core.tree_map(r, str, [t], None),
        "map_empty": lambda: core.tree_map(r, str, (), None),
        "map_function": lambda: core.tree_map(r, 3, (t,), None),
        "map_arity": lambda: core.tree_map(r, lambda x: x, (t, t), None),
        "flatten_few": lambda: core.tree_flatten(r, t, True),
        "flatten_program": lambda: core.tree_flatten(r, t, None, None),
        "flatten_is_leaf": lambda: core.tree_flatten(r, t, True, t),
        "partition_few": lambda: core.partition(r, t, (), None),
        "partition_registry": lambda: core.partition(t, t, (), None, None),
        "partition_is_leaf": lambda: core.partition(r, t, (), 1.5, None),
        "dict_few": lambda: core.partition_dict(r, t, True, ()),
        "dict_is_leaf": lambda: core.partition_dict(r, t, True, (), ()),
        "combine_few": lambda: core.combine(r, (t,), None),
        "combine_empty": lambda: core.combine(r, (), None, False),
        "combine_list": lambda: core.combine(r, [t], None, False),
        "combine_is_leaf": lambda: core.combine(r, (t,), 3, False),
        "from_parts_few": lambda: core.from_parts(r, 0, t),
        "from_parts_tuple": lambda: core.from_parts(r, 0, t, (1, 2)),
        "from_parts_fewer": lambda: core.from_parts(r, 0, t, [1]),
        "from_parts_more": lambda: core.from_parts(r, 0, t, [1, 2, 3]),
        "unflatten_none": lambda: structure.unflatten(),
        "unflatten_int": lambda: structure.unflatten(3),
        "unflatten_few": lambda: structure.unflatten([1]),
        "unflatten_many": lambda: structure.unflatten(iter("abc")),
        "up_to_none": lambda: structure.flatten_up_to(),
        "up_to_jitted": lambda: jitted.flatten_up_to(t),
        "parts_none": lambda: structure.parts(),
        "parts_jitted": lambda: jitted.parts(0),
        "paths_set": lambda: setattr(structure, "paths", ()),
        "match": lambda: core.match(structure, t),
    }
    return calls


@pytest.mark.parametrize("name", bad_calls(make_registry()))
def test_bad_arguments(registry: Any, name: str) -> None:
    error = AttributeError if name == "paths_set" else (TypeError, ValueError)
    with pytest.raises(error):
        bad_calls(registry)[name]()


def test_structures_of_jitted_calls(registry: Any) -> None:
    """They have paths, and can be built, but their statics are no leaves."""
    x = Array()
    _, structure = core.flatten(registry, {"a": [x, 1], "b": x})
    assert structure.paths == ("a.0", "b")
    assert structure.combine({"b": 1, "a.0": 2}) == {"a": [2, 1], "b": 1}
    f = make_jit(lambda a, b: a)
    f([x, 1], b=x)
    assert f.lookup([x, 1], b=x)[0].structure.paths == ("a.0", "b")


def test_a_skeleton_that_is_no_skeleton(registry: Any) -> None:
    """Statics tell which leaves are given: what stands in the skeleton's places does not."""
    hole = Value("hole")
    structure = core.from_parts(registry, hole, [1, (2, 3)], [hole, "a", hole])
    assert structure.unflatten([5, 6]) == [5, ("a", 6)]
    assert core.from_parts(registry, hole, [1, 2], None).unflatten([5, 6]) == [5, 6]
    assert core.from_parts(registry, hole, (), []).unflatten([]) == ()
    with pytest.raises(ValueError, match="as many as leaves"):
        core.from_parts(registry, [], [[], 1], [[], []])
