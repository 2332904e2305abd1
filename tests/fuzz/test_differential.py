"""A short run of the fuzzer; ``python tests/fuzz/long.py`` is a long one."""

import collections
import decimal
import random
import types
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("hypothesis")

import fuzz_oracle as oracle
import fuzz_steps as steps
import fuzz_trees as trees
from fuzz_oracle import exact, static_key, twin
from hypothesis.stateful import run_state_machine_as_test

from support.statics import (
    Colour,
    Constant,
    DictOfOwn,
    Double,
    Inherited,
    Integer,
    Level,
    ListOfOwn,
    Other,
    OwnArray,
    Pair,
    Thing,
    Value,
    Variable,
)


@pytest.fixture(autouse=True)
def _small_process() -> Iterator[None]:
    yield
    jax.clear_caches()


@pytest.mark.parametrize("examples", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_calls_on_a_stand_in_for_jax_jit(examples: int) -> None:
    run_state_machine_as_test(steps.Differential, settings=steps.machine_settings(examples, 30))


def test_calls_on_jax() -> None:
    run_state_machine_as_test(steps.WithJax, settings=steps.machine_settings(3, 15))


# ---- the oracle itself ----

CONFUSABLE: list[Any] = [
    *(1, True, 1.0, 1 + 0j, "1", b"1", 0, False, 0.0, -0.0, 0j, complex(-0.0, 0.0), -1, -2),
    *(Integer(1), Double(1.0), Level.LOW, Colour.RED, None, ...),
    *((1,), (True,), [1], {1}, frozenset([1]), frozenset([True]), Pair((1,)), {1: 1}, {True: 1}),
    *({"a": 1, "b": 1}, {"b": 1, "a": 1}, Constant(1), Constant(True), Other(1), Constant([1])),
    *(range(0, 3, 2), range(0, 4, 2), Variable(1), Value(1), Thing(), int),
    *(Inherited(1), Inherited(True), ListOfOwn([1]), DictOfOwn({1: 1}), DictOfOwn({True: 1})),
    *(collections.OrderedDict(a=1), collections.OrderedDict(a=True), collections.deque([1])),
    *(types.SimpleNamespace(a=1), types.SimpleNamespace(a=1.0), bytearray(b"a")),
    *(decimal.Decimal("1"), decimal.Decimal("1.0"), int | str, str | int),
    *(np.zeros(2), np.zeros(2, "f4"), np.zeros((1, 2)), -np.zeros(2), np.zeros(2).view(OwnArray)),
    *(np.ones((2, 2)), np.ones((2, 2), order="F"), np.ones((4, 2))[::2], np.ones(()), np.ones(1)),
    *(np.array([1, None]), np.array([True, None]), np.array([[1], None], object), np.float64(1)),
    *(np.ones(1, [("a", "i4")]), np.ones(1, [("b", "i4")]), np.int32(1), np.datetime64(1, "s")),
    *(2**61 - 1, lambda: 1, lambda: 1, trees._local_class(), trees._local_class()),
]


def test_the_oracle_tells_static_values_apart() -> None:
    keys = [static_key(x) for x in CONFUSABLE]
    assert len(set(keys)) == len(keys)
    assert [static_key(twin(x)) for x in CONFUSABLE] == keys


def test_the_oracle_recognises_functions_of_equal_structure() -> None:
    makers = trees._FUNCTIONS
    for make in makers[:-1]:  # the last holds a list: such a function equals only itself
        assert static_key(make(1), True) == static_key(make(1), True)
        assert static_key(make(1), True) != static_key(make(True), True)
    assert static_key(makers[-1](1), True) != static_key(makers[-1](1), True)
    assert len({static_key(make(1), True) for make in makers}) == len(makers)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_copies_are_exactly_the_same(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        tree = trees.draw_tree(rng, [])
        again = oracle.copy(tree)
        assert exact(again) == exact(tree) == exact(oracle.snapshot(tree))


@pytest.mark.parametrize("seed", range(4))
def test_all_kinds_of_nodes_are_drawn(seed: int) -> None:
    import filterjit

    f = filterjit.filter_jit(lambda x, *rest: x)
    rng = random.Random(seed)
    drawn = [x for _ in range(600) for x in oracle.walk(trees.draw_tree(rng, [f]))]
    found = {kind.name for x in drawn if (kind := oracle.kind_of(x)) is not None}
    assert found >= {kind.name for kind in oracle.KINDS.values()}
