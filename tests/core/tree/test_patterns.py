"""Path patterns, compared with a reference in Python."""

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from core_support import Array, Frozen, Record, core, identical
from trees_support import children, partition_dict, random_tree

ANY, DEEP = None, ...


def glob(regex: str) -> Any:
    return re.compile(regex).fullmatch


def matched(registry: Any, tree: Any, *components: Any) -> list[str]:
    """Returns the paths that match.  It is an error if there are none, unless it is ignored."""
    ignored = (("path or none", components),)
    structure, found, _ = partition_dict(registry, tree, True, ignored, None)
    assert len(structure.paths) > 0
    if not found and components[-1] is not DEEP:
        with pytest.raises(ValueError, match="matches no leaf"):
            partition_dict(registry, tree, True, (("path", components),), None)
    return list(found)


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
        tree = random_tree(source, source.choice((0, 4, 4)))
        components = tuple(component() for _ in range(source.randrange(5)))
        expected = [x for keys, x in keyed_places(tree) if path_matches(components, keys)]
        try:
            found, _ = core.tree_flatten(registry, tree, ("path", components), None)
        except ValueError as e:
            assert "matches no leaf" in str(e) and not expected
            continue
        assert identical(found, expected), (components, tree)
        hits += len(found)
    assert hits > 800


def test_a_pattern_that_takes_an_inner_node_only(registry: Any) -> None:
    tree = {"l": [4, [5, 6], 7], "r": Record(17, [18], "tag"), "t": (1,), "f": Frozen({"a": 1})}
    for components, where in (
        (("l",), "['l']"),
        (("l", 1), "['l'][1]"),
        (("f",), "['f']"),
        ((ANY, glob("other")), "['r'].other"),
    ):
        with pytest.raises(ValueError, match="matches no leaf") as info:
            core.tree_flatten(registry, tree, ("path", components), None)
        assert f"`{where}`, which is an inner node: to take the leaves" in str(info.value)
        assert core.tree_flatten(registry, tree, ("path or none", components), None)[0] == []
    with pytest.raises(ValueError, match="matches no leaf"):
        core.tree_flatten(registry, tree, ("or", True, ("path", ("t",))), None)


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


class Color(str):
    """A subclass of str with another text, as an Enum of str has."""

    def __str__(self) -> str:
        return f"Color.{str.__str__(self)}"


ODD = ("", "01", "-1", "\udc80", "9" * 30, "1x")  # which are no index of a sequence


TEXTS: list[tuple[Any, Any, list[str]]] = [
    ({1.5: 1, 2: 2}, "1.5", ["1.5"]),
    ({1.5: 1, 2: 2}, "2", ["2"]),
    ({1.5: 1, 2: 2}, 2, ["2"]),
    ({True: 1}, 1, []),  # True is no int here
    ({True: 1}, "True", ["True"]),
    ({(1, 2): 1}, "(1, 2)", ["(1, 2)"]),
    ({Color("red"): 1}, "Color.red", ["Color.red"]),  # as keystr(simple=True) of JAX has it
    *(([1], number, []) for number in (2**70, -(2**70))),
    *(({number: 1}, number, [str(number)]) for number in (2**70, -(2**70))),
    *(([1, 2], text, []) for text in ODD),
    *(({text: 1}, text, [text]) for text in ODD),
]


def test_the_text_of_keys(registry: Any) -> None:
    for tree, component, expected in TEXTS:
        assert matched(registry, tree, component) == expected


def test_bad_components(registry: Any) -> None:
    bad: list[Any] = [(), ["any"], ("name", "a"), 1.5, b"a"]
    for component in (*bad, slice(None, None, 0), slice("a", None, None)):
        for components in ((component,), (ANY, slice(0, 1, 1), DEEP, component)):
            with pytest.raises((TypeError, ValueError)):
                core.tree_flatten(registry, [[[1]]], ("path", components), None)
