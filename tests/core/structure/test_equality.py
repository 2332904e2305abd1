"""Structures are equal if their nodes, open leaves and statics are; errors of statics are named, and
the repr of a Structure is short."""

import gc
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import core_support as cs
import pytest
from core_support import Array, Box, Hostile, Keyed, Linear, Point, Unhashable, core, testing
from outcome_support import Interrupt, fail, interrupt, raised
from trees_support import Ambiguous


def structure_of(registry: Any, tree: Any, expression: Any = ("arrays",)) -> Any:
    return core.tree_flatten(registry, tree, expression, None)[1]


def test_structures_with_other_open_leaves_differ(registry: Any) -> None:
    x = Array()
    structures = [structure_of(registry, tree) for tree in ([1, x], [x, 1], [x, x], [1, 1])]
    structures += [structure_of(registry, [x, 1], True), structure_of(cs.make_registry(), [1, x])]
    for i, one in enumerate(structures):
        assert [one == other for other in structures].index(True) == i or i == 4
        assert one != 1
    assert structures[4] == structures[2], "both leaves are open"
    with pytest.raises(TypeError):
        structures[0] < structures[1]  # noqa: B015


# ---- errors of statics ----


def without_key() -> Any:
    keyed = Keyed(1)
    del keyed.key
    return keyed


HASHES: list[tuple[Callable[[], Any], type[Exception]]] = [
    (lambda: Hostile(on_hash=fail), ZeroDivisionError), (set, TypeError), (bytearray, TypeError),
    (Unhashable, TypeError), (without_key, AttributeError),
]  # fmt: skip


@pytest.mark.parametrize("make, error", HASHES)
def test_a_static_that_cannot_be_hashed(registry: Any, make: Any, error: type[Exception]) -> None:
    bad = make()
    places: list[tuple[Any, Any, str]] = [
        ({"a": [1, Point(Array(), bad)]}, [("a",), (1,), "y"], "`['a'][1].y`"),
        (Linear(weight=[1, bad]), ["weight", (1,)], "`weight[1]`"),
        (cs.Record(0, bad, 0), ["other"], "`other`"),
        (bad, [], "at the root"),
    ]
    if error is AttributeError:  # a static field needs a key, and no hash
        places.append((Linear(size=bad), ["size"], "`size`"))
    for tree, path, text in places:
        structure = core.flatten(registry, tree)[1]
        for _ in range(2):
            found = raised(error, hash, structure)
            assert found.__filterjit_error_context__ == ("hash", path, bad)
        with_leaves = raised(error, hash, structure_of(registry, tree))
        assert with_leaves.__notes__ == [f"(while hashing the static {text})"]
        assert not hasattr(with_leaves, "__filterjit_error_context__")
    assert hash(core.flatten(registry, Linear(size=Unhashable()))[1]) is not None
    s = Unhashable()
    make_one = lambda x: structure_of(registry, {"k": [0, x]}, False)
    assert make_one(s) == make_one(s) and make_one(s) != make_one(Unhashable())
    with pytest.raises(TypeError, match="unhashable"):
        testing.match(core.flatten(registry, [s])[1], [Unhashable()])


def test_a_static_that_cannot_be_compared(registry: Any) -> None:
    for wrap, path, text in (
        (lambda s: [1, s], [(1,)], "`[1]`"),
        (lambda s: [Linear(size=s)], [(0,), "size"], "`[0].size`"),
    ):
        one, two = (wrap(Hostile(on_eq=hook)) for hook in (None, fail))
        structures = [core.flatten(registry, tree)[1] for tree in (one, two)]
        for s in structures:
            hash(s)
        found = raised(ZeroDivisionError, lambda s=structures: s[0] == s[1])
        assert found.__filterjit_error_context__[:2] == ("compare", path)
        raised(ZeroDivisionError, testing.match, structures[1], one)
        named = raised(
            ZeroDivisionError,
            lambda a=one, b=two: structure_of(registry, a) == structure_of(registry, b),
        )
        assert named.__notes__ == [f"(while comparing the static {text})"]
    structure = core.flatten(registry, [Hostile(equal=Ambiguous())])[1]
    with pytest.raises(ValueError, match="ambiguous"):
        testing.match(structure, [Hostile()])
    bad = Box([], hook=fail)
    found = raised(ZeroDivisionError, core.flatten, registry, {"k": (1, [bad])})
    assert found.__filterjit_error_context__ == ("flatten", [("k",), (1,), (0,)], bad)
    named = raised(ZeroDivisionError, structure_of, registry, Linear(weight=[1, bad]))
    assert named.__notes__ == ["(while flattening `weight[1]`)"]


def test_hash_that_fails_after_another_has_succeeded(registry: Any) -> None:
    def hook() -> None:
        bad.on_hash = None
        hash(structure)
        fail()

    bad = Hostile(on_hash=hook)
    structure = core.flatten(registry, [1, bad])[1]
    raised(ZeroDivisionError, hash, structure)
    assert hash(structure) == hash(core.flatten(registry, [1, Hostile()])[1])


class Last:
    """Runs code when a snapshot drops it."""

    def __del__(self) -> None:
        gc.collect()
        hash(structures[0])


structures: list[Any] = []


def test_what_a_failed_hash_has_taken_is_dropped_while_others_look(registry: Any) -> None:
    value, bad = [Last()], Hostile(on_hash=fail)
    structures[:] = [core.flatten(registry, [Linear(size=value), bad])[1]]
    raised(ZeroDivisionError, hash, structures[0])
    value[:] = [1]  # type: ignore[list-item]
    bad.on_hash = None
    other = core.flatten(registry, [Linear(size=[1]), Hostile()])[1]
    assert hash(structures[0]) == hash(other)
    assert testing.match(structures.pop(), [Linear(size=[1]), Hostile()]) == ()


# ---- repr ----


def test_repr(registry: Any) -> None:
    some = lambda n: ", ".join(["*"] * n)
    tens = ", ".join(f"{i}: (*,)" for i in range(10))
    rows = ", ".join(f"[*, {i}, {i}]" for i in range(10))
    numbers = ", ".join(map(str, range(10)))
    for tree, expression, expected in (
        ([0] * 10, True, f"[{some(10)}]"),
        ([0] * 11, True, f"[{some(10)}, ... 1 more]"),
        ((0,), True, "(*,)"),
        ((), True, "()"),
        (range(10**6), True, "*"),
        ([0] * 10**6, True, f"[{some(10)}, ... 999990 more]"),
        ({i: (i,) for i in range(12)}, True, f"{{{tens}, ... 2 more}}"),
        (defaultdict(int, a=1), True, "defaultdict(default_factory=<class 'int'>, 'a': *)"),
        (
            Linear(weight=1, bias=None, size=3, activation="a"),
            True,
            "Linear(weight=*, bias=None, size=3, activation='a')",
        ),
        ("x" * 100, False, f"'{'x' * 59}..."),
        # Leaves that the repr skips are counted.
        (
            ([[Array(), i, i] for i in range(12)], list(range(20)), "end", Array()),
            ("arrays",),
            f"([{rows}, ... 2 more], [{numbers}, ... 10 more], 'end', *)",
        ),
    ):
        assert repr(structure_of(registry, tree, expression)) == f"Structure({expected})"
    tree = 0
    for _ in range(7):
        tree = [tree] * 6  # type: ignore[assignment]
    shown = repr(structure_of(registry, tree, True))
    assert len(shown) < 3000 and "more" in shown
    assert shown.count("[") == shown.count("]") and shown.endswith("])")


def flat(registry: Any, tree: Any) -> Any:
    return core.flatten(registry, tree)[1]


X, Y = Array(), Array()


def test_count_equal(registry: Any) -> None:
    one = flat(registry, [X, 1, {"a": Y}])
    other = flat(registry, [X, 2, {"b": Y}, 3])
    assert [one._count_equal(i, 5, other, i) for i in range(5)] == [0, 1, 0, 0, 1]
    assert [one._count_equal(i, 4, one, i) for i in range(5)] == [4, 3, 2, 1, 0]
    assert one._count_equal(1, 100, one, 1) == 4
    for i, j in ((5, 0), (0, 6), (-1, 0), (0, -1)):
        with pytest.raises(IndexError, match="no such node"):
            one._count_equal(i, 5, other, j)
    for arguments in (("a", 1, one, 0), (0, 1, "no structure", 1), (0, 1, one), ()):
        with pytest.raises(TypeError):
            one._count_equal(*arguments)
    raising, interrupting = (
        [flat(registry, Hostile(on_eq=hook)) for _ in "ab"] for hook in (fail, interrupt)
    )
    assert raising[0]._count_equal(0, 1, raising[1], 0) == 0
    raised(Interrupt, interrupting[0]._count_equal, 0, 1, interrupting[1], 0)


def test_statics(registry: Any) -> None:
    held = Hostile(on_eq=fail)
    structure = flat(registry, [X, 1, "a", None, 2.0, True, b"", 1j, held, len])
    assert structure._statics() == [(9, held), (10, len)] == structure._statics(True)


def test_inside_statics(registry: Any) -> None:
    one, other = bytearray(b"a"), bytearray(b"b")
    static = {"a": (other, [2])}
    structure = flat(registry, Linear(weight=X, bias=1, size=[one], activation=static))
    assert [id(x) for x in structure._inside_statics(bytearray)] == [id(one), id(other)]
    assert structure._inside_statics(dict) == [static]
    with pytest.raises(TypeError, match="expected a type"):
        structure._inside_statics("a")
