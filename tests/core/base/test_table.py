"""The hash table, compared with a dict, and with keys that change it during a probe."""

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from outcome_support import fail


class Key:
    """Equal to keys of the same number; a comparison calls `hook` first."""

    def __init__(self, number: int, hook: Callable[[], Any] | None = None) -> None:
        self.number, self.hook = number, hook

    def __eq__(self, other: object) -> bool:
        if self.hook is not None:
            self.hook()
        return isinstance(other, Key) and self.number == other.number

    __hash__ = None  # type: ignore[assignment]


def test_empty(testing: Any) -> None:
    table = testing.Table()
    assert len(table) == 0
    assert table.room() == (0, 0)
    assert table.find(1, "a") is None
    assert table.remove(1, ("a", 1)) is False
    table.clear()
    assert table.values() == []


@pytest.mark.parametrize("hash_of", [lambda i: i, lambda i: 0, lambda i: -i, lambda i: i << 40])
def test_against_dict(testing: Any, hash_of: Callable[[int], int]) -> None:
    chance = random.Random(3)
    table, model = testing.Table(), {}
    for step in range(4000):
        i = chance.randrange(60)
        if i in model and chance.random() < 0.6:
            assert table.remove(hash_of(i), model.pop(i)) is True
        elif i not in model:
            model[i] = (i, step)
            table.add(hash_of(i), model[i])
        assert len(table) == len(model)
        for j in (chance.randrange(60), i):
            assert table.find(hash_of(j), j) is model.get(j)
        size, filled = table.room()
        assert filled * 3 <= size * 2 and size & (size - 1) == 0
    assert sorted(table.values()) == sorted(model.values())


def test_equal_keys_are_told_apart_by_identity(testing: Any) -> None:
    table = testing.Table()
    pairs = [(Key(1), i) for i in range(3)]
    for pair in pairs:
        table.add(5, pair)
    assert table.remove(5, pairs[1])
    assert not table.remove(5, pairs[1])
    assert table.find(5, Key(1)) in (pairs[0], pairs[2])


def test_an_error_leaves_it_as_it_was(testing: Any) -> None:
    table = testing.Table()
    pair = (Key(1, fail), None)
    table.add(5, pair)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            table.find(5, Key(1))
    assert table.find(6, Key(1)) is None
    assert table.values() == [pair]


@pytest.mark.parametrize("change", ["clear", "remove", "grow", "replace"])
@pytest.mark.parametrize("equal", [True, False])
def test_changed_during_a_probe(testing: Any, change: str, equal: bool) -> None:
    table = testing.Table()
    done: list[int] = []

    def act() -> None:
        if done:
            return
        done.append(1)
        if change in ("clear", "replace"):
            table.clear()
        if change == "remove":
            assert table.remove(5, holder.pop())
        if change in ("grow", "replace"):
            for i in range(100):
                table.add(5, (Key(1000 + i), None))
        gc.collect()

    holder = [(Key(1 if equal else 2, act), None)]
    table.add(5, holder[0])
    table.add(5, (Key(3), "other"))
    found = table.find(5, Key(1))
    assert done
    assert (found is not None) == equal
    third = table.find(5, Key(3))
    assert (third is not None) == (change in ("remove", "grow"))


def test_a_finalizer_that_changes_it(testing: Any) -> None:
    table = testing.Table()

    class Last:
        def __del__(self) -> None:
            table.add(5, (Key(9), None))

    table.add(5, (Key(1), Last()))
    table.clear()
    assert [pair[0].number for pair in table.values()] == [9]
    pair = (Key(2), Last())
    table.add(5, pair)
    assert table.remove(5, pair)
    del pair
    assert len(table) == 2


def test_it_owns_its_pairs_and_is_collected(testing: Any) -> None:
    class Thing:
        pass

    thing = Thing()
    ref = weakref.ref(thing)
    table = testing.Table()
    table.add(1, ("a", thing))
    thing.table = table  # type: ignore[attr-defined]
    del thing, table
    gc.collect()
    assert ref() is None


def test_bad_arguments(testing: Any) -> None:
    table = testing.Table()
    for call in (
        lambda: table.add(1, (1, 2, 3)),
        lambda: table.add(1, [1, 2]),
        lambda: table.find("x", 1),
        lambda: table.remove(1),
    ):
        with pytest.raises(TypeError):
            call()
