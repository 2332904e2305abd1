"""The leaves that a filter expression takes, compared with a reference in Python."""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    Array,
    Linear,
    Maybe,
    OtherArray,
    Point,
    Record,
    core,
    identical,
    partition_dict,
    tree_leaves,
)

# ---- expressions ----


class Asked:
    """A predicate that records its arguments."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def __call__(self, leaf: Any) -> Any:
        self.asked.append(leaf)
        return self.answer(leaf)


def group_numbers(registry: Any, tree: Any, *expressions: Any) -> list[int]:
    """The number of the expression that takes each leaf."""
    parts = core.partition(registry, tree, expressions, None, None)
    leaves = [tree_leaves(registry, p, lambda x: x is None) for p in parts]
    return [
        next(i for i, x in enumerate(row) if x is not None) for row in zip(*leaves, strict=True)
    ]


def test_each_operator(registry: Any) -> None:
    x, y = Array(2), OtherArray(3)
    tree = [x, y, Maybe(True), Maybe(False), 1, "a"]
    value = Asked(lambda a: isinstance(a, Maybe) or a.value > 2)
    is_int = Asked(lambda a: isinstance(a, int))
    for expression, expected in (
        (True, "000000"),
        (False, "111111"),
        (("arrays",), "000111"),
        (("array", value), "100111"),
        (("leaf", is_int), "111101"),
        (("not", ("arrays",)), "111000"),
        (("and", ("arrays",), ("not", ("array", value))), "011111"),
        (("or", ("arrays",), ("leaf", is_int)), "000101"),
        (("path", (-1,)), "111110"),
        (("tree", [True, False, False, True, True, False], None), "011001"),
    ):
        found = "".join(map(str, group_numbers(registry, tree, expression)))
        assert found == expected, expression
    assert identical(value.asked, tree[:3] * 2), "it is called with arrays only"
    assert identical(is_int.asked, [*tree, *tree[3:]]), (
        "`or` calls it with the leaves that are not taken yet"
    )


def test_the_first_expression_that_takes_a_leaf_has_it(registry: Any) -> None:
    small, even = Asked(lambda n: n < 3), Asked(lambda n: n % 2 == 0)
    late = Asked(lambda n: True)
    tree = list(range(6))
    expressions = (("leaf", small), ("leaf", even), True, ("leaf", late))
    assert group_numbers(registry, tree, *expressions) == [0, 0, 0, 2, 1, 2]
    assert small.asked == tree and even.asked == [3, 4, 5] and late.asked == []
    candidate = Asked(lambda n: n % 3 == 0)
    structure, one, rest = partition_dict(
        registry, tree, ("leaf", candidate), (("leaf", even),), None
    )
    assert candidate.asked == tree and even.asked == [3, 4, 5, 0, 3]
    assert one == {"0": 0} and rest == {"3": 3} and structure.paths == ("0", "3")
    assert structure.unflatten("ab") == ["a", 1, 2, "b", 4, 5]


def take(expression: Any, leaf: Any, asked: list[tuple[str, Any]]) -> bool:
    """The reference, for one leaf."""
    if isinstance(expression, bool):
        return expression
    op, *rest = expression
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


def test_random_expressions_call_predicates_only_where_needed(registry: Any) -> None:
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
        expression, asked = make(4), []
        log.clear()
        found, _ = core.tree_flatten(registry, tree, expression, None)
        assert found == [n for n in range(16) if take(expression, n, asked)], expression
        assert sorted(log) == sorted(asked)


def test_errors_of_predicates_name_the_leaf(registry: Any) -> None:
    def fails(leaf: Any) -> bool:
        if leaf == 3:
            raise ZeroDivisionError("mine")
        return False

    for expression in (("leaf", fails), ("not", ("or", False, ("leaf", fails)))):
        for tree, where in (
            ({"k": [1, (2, 3)]}, "`['k'][1][1]`"),
            (Linear(weight=Record(1, 3, "tag")), "`weight.other`"),
            (Point(1, [3]), "`y[0]`"),
            (3, "at the root"),
        ):
            with pytest.raises(ZeroDivisionError, match="mine") as info:
                core.partition(registry, tree, (expression,), None, None)
            assert info.value.__notes__ == [f"(while a filter was asked about {where})"]
    with pytest.raises(TypeError, match=r"<lambda>.* returned None: it has to return a bool") as e:
        core.tree_flatten(registry, [Array()], ("array", lambda x: None), None)
    assert e.value.__notes__ == ["(while a filter was asked about `[0]`)"]


BAD_EXPRESSIONS: list[Any] = [
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
    ("path", [None]),
    ("path", None),
    ("tree", [True]),
    ("tree", [lambda x: True], None),  # not callable
    ("tree", [1], lambda filter: filter),  # returns no expression
]


@pytest.mark.parametrize("expression", BAD_EXPRESSIONS)
def test_bad_expressions(registry: Any, expression: Any) -> None:
    for call in (
        lambda: core.partition(registry, [Array()], (expression,), None, None),
        lambda: partition_dict(registry, [Array()], expression, (), None),
        lambda: core.tree_flatten(registry, [Array()], ("not", expression), None),
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
    assert made == ["even"] and even.asked == [1, 2, 3], "True and False are expressions"
    assert run({"a": [True, False, ("odd", None)], "b": Point(False, "even"), "c": ()}) == [1, 3, 6]
    made.clear()
    assert run("odd") == [1, 3, 5] and made == ["odd"]
    assert run(True) == [1, 2, 3, 4, 5, 6] and run(False) == []
    even.asked.clear()
    spec = ("tree", {"a": "even", "b": "even", "c": "even"}, expression_of)
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
def test_a_tree_of_filters_must_be_a_prefix(registry: Any, spec: Any, expected: str) -> None:
    expression = ("tree", spec, lambda filter: filter)
    with pytest.raises(ValueError, match=re.escape(expected)):
        core.partition(registry, [Array(), [1, 2]], (expression,), None, None)


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
def test_a_tree_of_filters_that_has_as_many_leaves_as_is_leaf_leaves(
    registry: Any, tree: Any, spec: Any, expected: Any
) -> None:
    """The result is right, or there is an error."""
    is_leaf = lambda x: isinstance(x, list) and x is not tree
    try:
        found, _ = core.tree_flatten(registry, tree, ("tree", spec, None), is_leaf)
    except ValueError:
        return
    assert found == expected


def test_no_path_pattern_inside_a_tree_of_filters(registry: Any) -> None:
    """It would be matched with a part of the tree, whose paths begin elsewhere."""
    expression = ("tree", ["*", False], lambda text: ("path", (None,)))
    with pytest.raises(ValueError, match="inside a tree of filters"):
        group_numbers(registry, [Array(), Array()], expression)
