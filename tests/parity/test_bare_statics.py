"""Statics that would be inert if they had no ``__dict__``: named tuples of functions, as Optax's.

They are compared without Python code as long as their ``__dict__`` is empty; what is put in it, and
another class of theirs, is noticed.
"""

import gc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from filterjit import filter_jit as make_jit


class Pair(NamedTuple):
    init: Callable[[], Any]
    update: Callable[[], Any]


class More(Pair):
    """Has a ``__dict__``, since it has no ``__slots__``."""


class Other(Pair):
    pass


class Compares(Pair):
    def __eq__(self, other: object) -> bool:
        return NotImplemented

    __hash__ = Pair.__hash__


def init() -> None:
    pass


class Linear(eqx.Module):
    weight: jax.Array
    activation: Any = eqx.field(static=True)


def model(static: Any, count: int = 40) -> Any:
    return [Linear(jnp.ones(2), static) for _ in range(count)]


def traces(f: Any) -> int:
    return len(f.variants)


@pytest.mark.parametrize("calls", [0, 1, 200])  # 200: there is a record
@pytest.mark.parametrize("count", [1, 40])
def test_changes_are_noticed(calls: int, count: int) -> None:
    f = make_jit(lambda tree: [vars(x.activation).copy() for x in tree])
    pair: Any = More(init, init)
    tree = model(pair, count)
    for _ in range(calls):
        assert f(tree) == [{}] * count
    pair.note = 1
    assert f(tree) == [{"note": 1}] * count
    pair.note = 2
    assert f(tree) == [{"note": 2}] * count
    del pair.note
    for _ in range(calls):
        assert f(tree) == [{}] * count
    assert f(model(More(init, init), count)) == [{}] * count
    assert traces(f) == 3
    pair.__dict__ = {"note": 1}
    assert f(tree) == [{"note": 1}] * count
    assert traces(f) == 3


@pytest.mark.parametrize("calls", [0, 200])
def test_another_class(calls: int) -> None:
    f = make_jit(lambda tree: type(tree[0].activation).__name__)
    pair: Any = More(init, init)
    tree = model(pair)
    for _ in range(calls):
        assert f(tree) == "More"
    for cls in (Other, Compares, More):
        try:
            pair.__class__ = cls
        except TypeError:
            pytest.skip("this Python refuses to set the class of a named tuple")
        for _ in range(calls + 1):
            assert f(tree) == cls.__name__


def test_a_class_that_gets_an_eq_later() -> None:
    class Late(Pair):
        pass

    f = make_jit(lambda tree: tree[0].activation.init)
    tree = model(Late(init, init))
    for _ in range(200):
        assert f(tree) is init
    Late.__eq__ = lambda self, other: True  # type: ignore[method-assign, assignment]
    Late.__hash__ = lambda self: 0  # type: ignore[method-assign, assignment]
    assert f(tree) is init
    assert traces(f) == 1


def test_items_that_are_not_inert() -> None:
    f = make_jit(lambda tree: list(tree[0].activation.init))
    items = [1]
    tree = model(More(items, init))  # type: ignore[arg-type]
    for _ in range(200):
        assert f(tree) == [1]
    items.append(2)
    assert f(tree) == [1, 2]


def test_a_partial() -> None:
    f = make_jit(lambda tree: vars(tree[0].activation).copy())
    pair: Any = More(init, init)
    g = f.partial(model(pair))
    for _ in range(100):
        assert g() == {}
    pair.note = 1
    assert g() == {"note": 1}


def test_it_is_freed() -> None:
    f = make_jit(lambda tree: 1)
    alive = []

    class Local(Pair):
        def __del__(self) -> None:
            alive.remove(1)

    alive.append(1)
    tree = model(Local(init, init))
    for _ in range(100):
        f(tree)
    del tree
    del f
    gc.collect()
    assert not alive
