"""A short run of the fuzzer; ``python tests/fuzz/long.py`` is a long one."""

import random
from collections.abc import Iterator

import jax
import pytest

pytest.importorskip("hypothesis")
pytest.importorskip("flax")

import fuzz_steps as steps
from fuzz_statics import ATOMS, FIELDS, FUNCTIONS, MAKERS, NUMBERS, static_key, twin
from fuzz_trees import KINDS, Draw, copy, exact, names, snapshot
from hypothesis.stateful import run_state_machine_as_test

import filterjit


@pytest.fixture(autouse=True)
def _small_process() -> Iterator[None]:
    yield
    jax.clear_caches()


@pytest.mark.parametrize("examples", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_calls_on_a_stand_in_for_jax_jit(examples: int) -> None:
    run_state_machine_as_test(steps.Differential, settings=steps.machine_settings(examples, 30))


def test_calls_on_jax() -> None:
    run_state_machine_as_test(steps.WithJax, settings=steps.machine_settings(2, 12))


# ---- the oracle itself ----


def test_the_oracle_tells_static_values_apart() -> None:
    values = [*ATOMS, *(make(x) for make in [*MAKERS, *FIELDS] for x in NUMBERS)]
    keys = [static_key(x) for x in values]
    assert len(set(keys)) == len(keys)
    assert [static_key(twin(x)) for x in values] == keys


def test_the_oracle_recognises_functions_of_equal_structure() -> None:
    *makers, holding_a_list = FUNCTIONS
    for make in makers:
        assert static_key(make(1), True) == static_key(make(1), True)
        assert static_key(make(1), True) != static_key(make(True), True)
    assert static_key(holding_a_list(1), True) != static_key(holding_a_list(1), True)
    assert len({static_key(make(1), True) for make in FUNCTIONS}) == len(FUNCTIONS)


def test_all_kinds_of_nodes_are_drawn_and_copied() -> None:
    f = filterjit.filter_jit(lambda x, *rest: x)
    draw = Draw(random.Random(0), [f])
    drawn = [draw.tree() for _ in range(600)]
    found = {name for tree in drawn for name in names(tree)}
    assert found >= {kind.name for kind in KINDS.values()}
    for tree in drawn[:200]:
        assert exact(copy(tree)) == exact(tree) == exact(snapshot(tree))
