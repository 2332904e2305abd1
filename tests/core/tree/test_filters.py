"""The leaves that a filter expression takes, compared with a reference in Python."""

import random
import re
from collections.abc import Callable
from typing import Any

import core_support as cs
import pytest
from core_support import Array, Maybe, OtherArray, Point, Value, core, identical
from trees_support import partition_dict

# ---- expressions ----


class Asked:
    """A predicate that records its arguments, together with others."""

    def __init__(self, answer: Callable[[Any], Any], log: list[Any] | None = None) -> None:
        self.answer = answer
        self.asked = [] if log is None else log

    def __call__(self, leaf: Any) -> Any:
        self.asked.append((self, leaf))
        return self.answer(leaf)

    @property
    def leaves(self) -> list[Any]:
        return [leaf for _, leaf in self.asked]


def test_the_first_expression_that_takes_a_leaf_has_it(registry: Any) -> None:
    small, even = Asked(lambda n: n < 3), Asked(lambda n: n % 2 == 0)
    late = Asked(lambda n: True)
    tree = list(range(6))
    expressions = (("leaf", small), ("leaf", even), True, ("leaf", late))
    parts = core.partition(registry, tree, expressions, None, None)
    found = [[n for n in part if n is not None] for part in parts]
    assert found == [[0, 1, 2], [4], [3, 5], [], []]
    assert small.leaves == tree and even.leaves == [3, 4, 5] and late.leaves == []
    candidate = Asked(lambda n: n % 3 == 0)
    structure, one, rest = partition_dict(
        registry, tree, ("leaf", candidate), (("leaf", even),), None
    )
    assert candidate.leaves == tree and even.leaves == [3, 4, 5, 0, 3]
    assert one == {"0": 0} and rest == {"3": 3} and structure.paths == ("0", "3")
    assert structure.unflatten("ab") == ["a", 1, 2, "b", 4, 5]


def take(expression: Any, leaf: Any, last: Any, asked: list[Any]) -> bool:
    """The reference, for one leaf; `last` is the one at the path -1."""
    if isinstance(expression, bool):
        return expression
    op, *rest = expression
    is_array = isinstance(leaf, Array) or (isinstance(leaf, Maybe) and leaf.traced)
    if op in ("leaf", "array"):
        if op == "array" and not is_array:
            return False
        asked.append((rest[0], leaf))
        return bool(rest[0].answer(leaf))
    if op == "and":
        return all(take(p, leaf, last, asked) for p in rest)
    if op == "or":
        return any(take(p, leaf, last, asked) for p in rest)
    if op == "not":
        return not take(rest[0], leaf, last, asked)
    return is_array if op == "arrays" else leaf is last


def test_random_expressions_call_predicates_only_where_needed(registry: Any) -> None:
    source = random.Random(1)
    log: list[Any] = []
    leaves = [make(i) for i in range(4) for make in (Array, OtherArray, Value)]
    leaves += [Maybe(True), Maybe(False)]
    places = {id(leaf): i for i, leaf in enumerate(leaves)}
    predicates = [Asked(lambda x, i=i: places[id(x)] >> i & 1, log) for i in range(4)]
    ops = ["and", "or", "not", "leaf", "array", "arrays", "path", True, False]

    def make(depth: int) -> Any:
        op = source.choice(ops if depth else ["leaf", "array"])
        if isinstance(op, bool):
            return op
        if op in ("leaf", "array"):
            return op, source.choice(predicates)
        if op in ("arrays", "path"):
            return (op,) if op == "arrays" else (op, (-1, ...))
        return op, *[make(depth - 1) for _ in range(1 if op == "not" else 2)]

    tree = [*leaves[:-1], [leaves[-1]]]
    for _ in range(600):
        expression, asked = make(4), []
        log.clear()
        found, _ = core.tree_flatten(registry, tree, expression, None)
        assert identical(found, [x for x in leaves if take(expression, x, leaves[-1], asked)])
        assert len(log) == len(asked)
        key = lambda pair: (id(pair[0]), id(pair[1]))
        assert sorted(map(key, log)) == sorted(map(key, asked))


def test_errors_of_predicates_name_the_leaf(registry: Any) -> None:
    def fails(leaf: Any) -> bool:
        if leaf == 3:
            raise ZeroDivisionError("mine")
        return False

    for tree, where in (({"k": [1, (2, 3)]}, "`['k'][1][1]`"), (3, "at the root")):
        with pytest.raises(ZeroDivisionError, match="mine") as info:
            core.partition(registry, tree, (("not", ("leaf", fails)),), None, None)
        assert info.value.__notes__ == [f"(while a filter was asked about {where})"]
    failing = cs.make_registry(is_array=lambda x: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        core.tree_flatten(failing, [Maybe(True)], ("arrays",), None)
    with pytest.raises(TypeError, match=r"<lambda>.* returned None: it has to return a bool") as e:
        core.tree_flatten(registry, [Array()], ("array", lambda x: None), None)
    assert e.value.__notes__ == ["(while a filter was asked about `[0]`)"]


BAD_EXPRESSIONS: list[Any] = [
    *(None, 1, "arrays", (), ("unheard of",), (3,), (("arrays",),), ("arrays", 1), ("array",)),
    *(("leaf",), ("leaf", None), ("leaf", len, len), ("not",), ("not", ("not", None))),
    *(("and", True), ("or", True, True, True), ("path", [None]), ("path", None), ("tree", [True])),
    ("tree", [lambda x: True], None),  # not callable
    ("tree", [1], lambda filter: filter),  # returns no expression
]


def test_bad_expressions(registry: Any) -> None:
    for bad in BAD_EXPRESSIONS:
        for call in (
            lambda bad=bad: core.partition(registry, [Array()], (bad,), None, None),
            lambda bad=bad: partition_dict(registry, [Array()], bad, (), None),
            lambda bad=bad: core.tree_flatten(registry, [Array()], ("not", bad), None),
        ):
            with pytest.raises((TypeError, ValueError)):
                call()


def test_number_of_expressions(registry: Any) -> None:
    for expressions in ([True], True, (True,) * 40_000):
        with pytest.raises(TypeError, match="a tuple of less than"):
            core.partition(registry, [1], expressions, None, None)
        with pytest.raises(TypeError, match="a tuple of less than"):
            partition_dict(registry, [1], True, expressions, None)
    assert core.partition(registry, [1], (), None, None) == ([1],)
    parts = core.partition(registry, [1], (False,) * 32_766, None, None)
    assert len(parts) == 32_767 and parts[-1] == [1]


# ---- trees of filters ----


def test_a_tree_of_filters_ends_at_or_above_the_leaves(registry: Any) -> None:
    tree = {"a": [1, 2, (3, None)], "b": Point(4, [5, 6]), "c": ()}
    even = Asked(lambda n: n % 2 == 0)
    made: list[Any] = []

    def expression_of(filter: Any) -> Any:
        made.append(filter)
        return ("leaf", even) if filter == "even" else ("not", ("leaf", even))

    run = lambda spec: core.tree_flatten(registry, tree, ("tree", spec, expression_of), None)[0]
    assert run({"a": "even", "b": True, "c": False}) == [2, 4, 5, 6]
    assert made == ["even"] and even.leaves == [1, 2, 3], "True and False are expressions"
    assert run({"a": [True, False, ("odd", None)], "b": Point(False, "even"), "c": ()}) == [1, 3, 6]
    made.clear()
    assert run("odd") == [1, 3, 5] and made == ["odd"]
    assert run(True) == [1, 2, 3, 4, 5, 6] and run(False) == []
    even.asked.clear()
    spec = ("tree", {"a": "even", "b": "even", "c": "even"}, expression_of)
    both = ("and", ("leaf", lambda n: n > 4), spec)
    assert core.tree_flatten(registry, tree, both, None)[0] == [6]
    assert even.leaves == [5, 6]


@pytest.mark.parametrize(
    "spec, expected",
    [
        ([True, (False, True)], "tree differs from the filter at `[1]`: it has a `list` of 2"),
        ([None, True], "at `[0]`: it has a `Array`, where the filter has None"),
    ],
)
def test_a_tree_of_filters_must_be_a_prefix(registry: Any, spec: Any, expected: str) -> None:
    expression = ("tree", spec, lambda filter: filter)
    with pytest.raises(ValueError, match=re.escape(expected)):
        core.partition(registry, [Array(), [1, 2]], (expression,), None, None)


def test_a_tree_of_filters_and_is_leaf(registry: Any) -> None:
    is_list = lambda x: isinstance(x, list)
    run = lambda tree, spec: core.tree_flatten(registry, tree, ("tree", spec, None), is_list)[0]
    for tree, spec, expected in (
        ({"a": 1, "b": (2,)}, {"a": True, "b": False}, [1]),
        ({"a": 3, "b": [1, 2]}, {"a": True, "b": False}, [3]),
        ({"a": [], "b": 3}, {"a": True, "b": False}, [[]]),
        ({"a": [1, 2], "b": 3}, {"a": True, "b": False}, [[1, 2]]),
        (([1, 2], []), (True, False), [[1, 2]]),
    ):
        assert run(tree, spec) == expected
    for tree, spec in (
        ({"a": [1, 2], "b": 3}, {"a": [True, False], "b": False}),
        ({"a": [1, 2], "b": 3}, {"a": [True], "b": [True]}),
        ({"a": [1, 2], "b": []}, {"a": [True, False], "b": []}),  # as many leaves as is_leaf leaves
    ):
        with pytest.raises(ValueError, match=r"deeper than `is_leaf`|differs from the filter"):
            run(tree, spec)


def test_no_path_pattern_inside_a_tree_of_filters(registry: Any) -> None:
    """It would be matched with a part of the tree, whose paths begin elsewhere."""
    expression = ("tree", ["*", False], lambda text: ("path", (None,)))
    with pytest.raises(ValueError, match="inside a tree of filters"):
        core.partition(registry, [Array(), Array()], (expression,), None, None)
