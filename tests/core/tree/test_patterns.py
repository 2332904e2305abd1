"""Path patterns, compared with a reference in Python."""

import random
import re
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Linear,
    LoudPoint,
    Point,
    Record,
    core,
    identical,
    partition_dict,
    tree_paths,
)
from trees_support import children, random_tree

ANY, DEEP = None, ...


def glob(regex: str) -> Any:
    return re.compile(regex).fullmatch


def forest() -> Any:
    """A tree of each kind of node, most of them with two leaves."""
    return {
        "t": (1, 2, 3),
        "l": [4, [5, 6], 7],
        "p": Point(8, LoudPoint(9, 10)),
        "o": OrderedDict(y=11, x=12),
        "d": defaultdict(int, default=13),
        "m": Linear(weight=14, bias=Linear(weight=15, bias=16, size=0), size=1),
        "r": Record(17, [18], "tag"),
        "b": Box([19, Box([20])]),
        "n": None,
        "i": {-1: 21, 0: 22, 7: 23},
        "0": 24,
    }


def matched(registry: Any, tree: Any, *components: Any) -> list[str]:
    """Returns the paths that match.  It is an error if there are none, unless it is ignored."""
    ignored = (("path or none", components),)
    structure, found, _ = partition_dict(registry, tree, True, ignored, None)
    assert len(structure.paths) > 0
    if not found and components[-1] is not DEEP:
        with pytest.raises(ValueError, match="matches no leaf"):
            partition_dict(registry, tree, True, (("path", components),), None)
    return list(found)


def test_the_empty_pattern_is_the_path_of_the_root(registry: Any) -> None:
    assert matched(registry, Array()) == [""]
    assert matched(registry, Array(), DEEP) == [""]
    assert matched(registry, Array(), ANY) == []


def component_matches(component: Any, key: Any, size: int | None) -> bool:
    """The reference.  `size` is the size of a sequence, or None for any other node."""
    if component is ANY:
        return True
    if isinstance(component, str):
        return str(key) == component
    if callable(component):
        return component(str(key)) is not None
    if size is None:
        return type(key) is int and key == component
    if isinstance(component, int):
        return component in (key, key - size)
    return key in range(size)[component]


def path_matches(components: Any, keys: Any) -> bool:
    if not components:
        return not keys
    first, *rest = components
    if first is DEEP:
        return path_matches(rest, keys) or (bool(keys) and path_matches(components, keys[1:]))
    return bool(keys) and component_matches(first, *keys[0]) and path_matches(rest, keys[1:])


def keyed_places(x: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields (keys, leaf); each key comes with the size of its sequence, or None."""
    below = children(x)
    if below is None:
        yield keys, x
        return
    size = len(x) if type(x) in (tuple, list) else None
    for key, child in below:
        yield from keyed_places(child, keys if key is None else (*keys, (key, size)))


def test_random_patterns(registry: Any) -> None:
    source = random.Random(2)

    def component() -> Any:
        number = lambda: source.choice([None, -2, -1, 0, 1, 2])
        return source.choice(
            [
                ANY,
                ANY,
                DEEP,
                source.choice(["weight", "k0", "x", "0", "1", "data"]),
                glob(source.choice(["k.*", "[xy]|[01]", ".*t", ".*"])),
                source.choice([-3, -1, 0, 1]),
                slice(number(), number(), source.choice([None, -2, -1, 1, 2])),
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
            assert "matches no leaf" in str(e) and not expected
            continue
        assert identical(found, expected), (components, tree)
        hits += len(found)
    assert hits > 1000


def test_a_pattern_that_takes_an_inner_node_only(registry: Any) -> None:
    run = lambda *c: core.tree_flatten(registry, forest(), ("path", c), None)[0]
    for components, where in (
        (("l",), "['l']"),
        (("l", 1), "['l'][1]"),
        ((DEEP, "bias"), "['m'].bias"),
        ((ANY, glob("other")), "['r'].other"),
    ):
        if components[-1] == "bias":
            assert run(*components) == [16], "it is a leaf too"
            continue
        with pytest.raises(ValueError, match="matches no leaf") as info:
            run(*components)
        assert f"`{where}`, which is an inner node: to take the leaves" in str(info.value)
        assert core.tree_flatten(registry, forest(), ("path or none", components), None)[0] == []
    with pytest.raises(ValueError, match="matches no leaf"):
        core.tree_flatten(registry, forest(), ("or", True, ("path", ("t",))), None)


def test_number_of_components(registry: Any) -> None:
    tree: Any = Array()
    for _ in range(62):
        tree = [tree]
    run = lambda *c: len(core.tree_flatten(registry, tree, ("path or none", c), None)[0])
    assert run(*[ANY] * 62) == run(*[0] * 62) == run(*[DEEP] * 62) == 1
    assert run(*[DEEP, "0"] * 31) == 1
    assert run(*[ANY] * 61, "1") == 0
    with pytest.raises(ValueError, match="more than 62 components"):
        run(*[ANY] * 63)


def test_a_key_is_matched_once_for_all_leaves_below(registry: Any) -> None:
    seen: list[str] = []
    matches = lambda text: seen.append(text) or text == "a"
    tree = {"a": [{"x": 1, "y": 2}, 3], "b": [{"x": 4}] * 3}
    assert core.tree_flatten(registry, tree, ("path", (matches, DEEP)), None)[0] == [1, 2, 3]
    assert seen == ["a", "b"]
    seen.clear()
    pattern = ("b", ANY, matches)
    assert core.tree_flatten(registry, tree, ("path or none", pattern), None)[0] == []
    assert seen == ["x"] * 3, "only where all earlier components match"


def test_a_pattern_matches_the_text_of_keys(registry: Any) -> None:
    tree = {1.5: 1, 2: 2}
    assert matched(registry, tree, "1.5") == ["1.5"]
    assert matched(registry, tree, "2") == matched(registry, tree, 2) == ["2"]
    assert matched(registry, {True: 1}, 1) == [], "True is no int here"
    assert matched(registry, {True: 1}, "True") == ["True"]
    assert matched(registry, {(1, 2): 1}, "(1, 2)") == ["(1, 2)"]


class Color(str):
    """A subclass of str with another text, as an Enum of str has."""

    def __str__(self) -> str:
        return f"Color.{str.__str__(self)}"


def test_paths_and_patterns_use_the_same_text_of_keys(registry: Any) -> None:
    tree = {Color("red"): 1}
    (path,) = tree_paths(registry, tree, None)
    assert path == "Color.red", "the text of jax.tree_util.keystr(simple=True)"
    assert matched(registry, tree, path) == [path]


BAD_COMPONENTS: list[Any] = [
    (),
    ["any"],
    ("name", "a"),
    1.5,
    b"a",
    slice(None, None, 0),
    slice("a", None, None),
]


@pytest.mark.parametrize("component", BAD_COMPONENTS, ids=repr)
def test_bad_components(registry: Any, component: Any) -> None:
    for components in ((component,), (ANY, slice(0, 1, 1), DEEP, component)):
        with pytest.raises((TypeError, ValueError)):
            core.tree_flatten(registry, [[[1]]], ("path", components), None)


@pytest.mark.parametrize("number", [2**70, -(2**70)])
def test_an_index_beyond_all_sequences(registry: Any, number: int) -> None:
    assert matched(registry, [1], number) == []
    assert matched(registry, {number: 1}, number) == [str(number)]


@pytest.mark.parametrize("text", ["", "01", "-1", "\udc80", "9" * 30, "1x"])
def test_names_that_are_no_index_of_a_sequence(registry: Any, text: str) -> None:
    assert matched(registry, [1, 2], text) == []
    assert matched(registry, {text: 1}, text) == [text]
