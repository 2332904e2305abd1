"""The hash table, as the cache of a function uses it: compared with a dict, and with keys that change
it during a probe."""

import gc
import random
from collections.abc import Callable
from typing import Any

import pytest
from core_support import make_registry
from hooks_support import Hooks, make_jit, variants


class Key:
    """A static, equal to those of the same number; a comparison calls the `hook` of both."""

    def __init__(self, number: int, hash_value: int = 5) -> None:
        self.number, self.hash_value = number, hash_value
        self.hook: Callable[[], Any] | None = None

    def __eq__(self, other: object) -> bool:
        for key in (self, other):
            if isinstance(key, Key) and key.hook is not None:
                key.hook()
        return isinstance(other, Key) and self.number == other.number

    def __hash__(self) -> int:
        return self.hash_value


def make(maxsize: int = 4096) -> Any:
    return make_jit(lambda key: key.number, Hooks(make_registry(), maxsize=maxsize))


def numbers(f: Any) -> list[int]:
    return sorted([v._arguments(())[1][0].number for v in variants(f)])


@pytest.mark.parametrize("hash_of", [lambda i: i, lambda i: 0, lambda i: -i, lambda i: i << 40])
def test_against_dict(hash_of: Callable[[int], int]) -> None:
    chance = random.Random(3)
    f = make(maxsize=20)
    model: dict[int, None] = {}  # in the order of their last use
    compiled = 0
    for step in range(2000):
        i = chance.randrange(60 if step % 500 > 100 else 25)
        compiled += i not in model
        model.pop(i, None)
        model[i] = None
        if len(model) > 20:
            del model[next(iter(model))]
        assert f(Key(i, hash_of(i))) == i
        assert f._hooks.count("compile") == compiled and len(variants(f)) == len(model)
        if step % 100 == 0:
            assert numbers(f) == sorted(model)
        if step % 700 == 699:
            f._parts()[0].clear()
            model.clear()


def test_many_values() -> None:
    f = make()
    for _ in range(2):
        for i in range(1500):
            assert f(Key(i, i * 7)) == i
    assert f._hooks.count("compile") == 1500 and numbers(f) == list(range(1500))


@pytest.mark.parametrize("change", ["clear", "remove", "grow", "replace"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_changed_during_a_probe(change: str, number: int) -> None:
    f = make(maxsize=4 if change == "remove" else 4096)
    keys = [Key(i) for i in (1, 2, 3)]
    done: list[int] = []

    def act() -> None:
        if done:
            return
        done.append(1)
        if change in ("clear", "replace"):
            f._parts()[0].clear()
        if change == "remove":  # the first two are those that were used longest ago
            f(Key(10)), f(Key(11))
        if change in ("grow", "replace"):
            for i in range(100):
                assert f(Key(1000 + i)) == 1000 + i
        gc.collect()

    for key in keys:
        f(key)
    f(Key(9, 7))  # the variant that is predicted
    for key in keys:
        key.hook = act
    assert f(Key(number)) == number
    assert done
    found = numbers(f)
    # The first key that is compared is equal, but its variant was dropped meanwhile.
    assert (number in found) == (number != 1 or change == "grow")
    assert len(set(found)) == len(found)
    assert all(f(Key(i)) == i for i in range(1, 5))


def test_a_variant_that_is_gone_when_its_call_fails() -> None:
    def fun(key: Any) -> Any:
        f._parts()[0].clear()
        raise ZeroDivisionError

    f = make_jit(fun)
    for number in (1, 2):
        with pytest.raises(ZeroDivisionError):
            f(Key(number))
        assert variants(f) == []
