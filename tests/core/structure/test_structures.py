"""Structures of trees: where trees differ, what they show, and when they are equal."""

import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Hostile,
    Keyed,
    Linear,
    LoudPoint,
    Module,
    Point,
    Record,
    Unhashable,
    Value,
    core,
    identical,
    make_registry,
)

# ---- where trees differ ----

FULL = {"weight": 1, "bias": 2, "size": 3, "activation": "a"}


class Other(Module):
    dynamic = Linear.dynamic
    static = Linear.static


class OtherRecord(Record):
    pass


class OtherBox(Box):
    pass


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
    "dict_type": ({"a": 1}, OrderedDict(a=1), "a `collections.OrderedDict`, where {} has a `dict`"),
    "dict_keys": (
        {"a": 1, "b": 2},
        {"a": 1, "c": 2},
        "the keys ['a', 'c'], where {} has ('a', 'b')",
    ),
    "dict_fewer": ({"a": 1, "b": 2}, {"a": 1}, "the keys ['a'], where {} has ('a', 'b')"),
    "dict_more": ({"a": 1}, {"a": 1, "b": 2}, "the keys ['a', 'b'], where {} has ('a',)"),
    "ordered_order": (
        OrderedDict(a=1, b=2),
        OrderedDict(b=2, a=1),
        "the keys ['b', 'a'], where {} has ('a', 'b')",
    ),
    "ordered_fewer": (
        OrderedDict(a=1, b=2),
        OrderedDict(a=1),
        "the keys ['a'], where {} has ('a', 'b')",
    ),
    "default_factory": (
        defaultdict(int, a=1),
        defaultdict(None, a=1),
        "default_factory=None, where {} has default_factory=<class 'int'>",
    ),
    "default_keys": (
        defaultdict(int, a=1),
        defaultdict(int, b=1),
        "the keys ['b'], where {} has ('a',)",
    ),
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
        (defaultdict(int, a=1, b=2), defaultdict(int, b=4, a=3)),
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
    assert (
        shown(defaultdict(int, a=1))
        == "Structure(defaultdict(default_factory=<class 'int'>, 'a': *))"
    )
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
        assert not hasattr(info.value, "__filterjit_error_context__")
    with pytest.raises(ZeroDivisionError) as info:
        assert make(Hostile()) == make(Hostile(on_eq=_fail))
    assert info.value.__notes__ == ["(while comparing the static `['k'][1]`)"]


def test_static_fields_that_fail_to_compare_are_named(registry: Any) -> None:
    make = lambda x: core.tree_flatten(registry, [Linear(size=x)], True, None)[1]
    with pytest.raises(ZeroDivisionError) as info:
        assert make(Hostile()) == make(Hostile(on_eq=_fail))
    assert info.value.__notes__ == ["(while comparing the static `[0].size`)"]
