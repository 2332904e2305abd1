"""The variant that a call tries first: the one that followed the last variant before."""

import random
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from core_support import Array, Hooks, make_jit, make_registry


class Counted:
    """A static; the class counts how often its instances are hashed."""

    hashed = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counted) and other.number == self.number

    def __hash__(self) -> int:
        Counted.hashed += 1
        return self.number


@pytest.fixture
def f() -> Any:
    return make_jit(lambda x, static: static)


def hashes(f: Any, turns: Sequence[int], rounds: int) -> list[int]:
    """How often each call of the last round hashed its static."""
    x, counts = Array(), []
    for _ in range(rounds):
        counts = []
        for number in turns:
            before = Counted.hashed
            assert f(x, Counted(number)).number == number
            counts.append(Counted.hashed - before)
    return counts


@pytest.fixture
def right() -> int:
    """How often a call hashes its static if the predicted variant is right."""
    return hashes(make_jit(lambda x, static: static), [0], 3)[0]


@pytest.mark.parametrize("number", [2, 3, 10, 100])
def test_variants_called_in_turn_are_predicted(f: Any, right: int, number: int) -> None:
    assert hashes(f, range(number), 1) != [right] * number, "the first round is looked up"
    assert hashes(f, range(number), 3) == [right] * number


def test_another_order_is_learned(f: Any, right: int) -> None:
    hashes(f, [0, 1, 2, 3], 3)
    assert hashes(f, [3, 1, 0, 2], 3) == [right] * 4


def test_each_wrapper_predicts_from_its_own_last_call(f: Any, right: int) -> None:
    other = make_jit(f.__wrapped__, f._hooks)
    hashes(f, [0, 1], 3)
    hashes(other, [2], 3)
    assert other._parts()[0] is f._parts()[0]
    assert hashes(f, [0, 1], 1) == [right] * 2


def test_any_order_gives_the_right_results(f: Any) -> None:
    chance = random.Random(5)
    x = Array()
    for step in range(3000):
        number = chance.randrange(1 + step // 20)  # the table grows, and moves its entries
        assert f(x, number) == number
    assert len(f._parts()[0].variants()) == f._hooks.count("compile")


def _drop_by_eviction(f: Any) -> None:
    for number in range(10, 14):
        f(Array(), number)


def _drop_by_clearing(f: Any) -> None:
    f._parts()[0].clear()
    f(Array(), 10)


@pytest.mark.parametrize("drop", [_drop_by_eviction, _drop_by_clearing])
def test_dropped_variants_die_and_are_not_predicted(drop: Callable[[Any], None]) -> None:
    f = make_jit(lambda x, static: static, Hooks(make_registry(), maxsize=3))
    for number in (0, 1, 2) * 3:
        f(Array(), number)
    refs = [weakref.ref(variant) for variant in f._parts()[0].variants()]
    drop(f)
    assert [ref() for ref in refs] == [None] * 3, "without the collector"
    for number in (0, 1, 2, 0, 1, 2):
        assert f(Array(), number) == number
    assert f._hooks.count("compile") > 6
