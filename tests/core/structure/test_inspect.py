"""What reports and traces ask of a Structure: equal nodes, statics, and what these hold."""

from typing import Any

import pytest
from core_support import Array, Linear, core


def flat(registry: Any, tree: Any) -> Any:
    return core.flatten(registry, tree)[1]


X, Y = Array(), Array()


class Raises:
    def __eq__(self, other: object) -> bool:
        raise ValueError("no answer")

    def __hash__(self) -> int:
        return 1


def test_equal_nodes(registry: Any) -> None:
    one = flat(registry, [X, 1, {"a": Y}])
    other = flat(registry, [X, 2, {"b": Y}, 3])
    found = [one._equal_nodes(i, other, i) for i in range(5)]
    assert found == [False, True, False, False, True]
    assert all(one._equal_nodes(i, one, i) for i in range(5))
    for i, j in ((5, 0), (0, 6), (-1, 0), (0, -1)):
        with pytest.raises(IndexError, match="no such node"):
            one._equal_nodes(i, other, j)
    for arguments in (("a", one, 0), (0, "no structure", 1), (0, one), ()):
        with pytest.raises(TypeError):
            one._equal_nodes(*arguments)
    raises = [flat(registry, Raises()) for _ in range(2)]
    with pytest.raises(ValueError, match="no answer"):
        raises[0]._equal_nodes(0, raises[1], 0)


def test_statics(registry: Any) -> None:
    held = Raises()
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
