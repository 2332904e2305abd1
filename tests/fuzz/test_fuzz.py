"""A short run of the fuzzer, and some random programs; ``python tests/fuzz/long.py`` is a long run, and
``--nnx 100`` or ``--plain 100`` run many programs."""

import random
from collections.abc import Iterator

import fuzz_machine as machine
import jax
import pytest
from fuzz_programs import NNX, PLAIN, compat
from fuzz_trees import Draw, change, text
from hypothesis.stateful import run_state_machine_as_test

pytestmark = pytest.mark.recompiles  # random calls


@pytest.fixture(autouse=True)
def _small_process() -> Iterator[None]:
    yield
    jax.clear_caches()


@pytest.mark.parametrize("examples", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_calls_on_a_stand_in_for_jax_jit(examples: int) -> None:
    run_state_machine_as_test(machine.Differential, settings=machine.machine_settings(examples, 30))


def test_calls_on_jax() -> None:
    run_state_machine_as_test(machine.WithJax, settings=machine.machine_settings(2, 12))


def test_seeds_draw_equal_trees_and_twists_others() -> None:
    """Most changes in place change a tree."""
    differ = changed = 0
    for seed in range(100):
        draw, again = (Draw(random.Random(seed)) for _ in "ab")
        tree = draw.tree()
        assert text(tree) == text(again.tree())
        differ += text(tree) != text(Draw(random.Random(seed), twist=0).tree())
        before = text(tree)
        changed += change(draw) and text(tree) != before
    assert differ > 40 and changed > 30, (differ, changed)


@pytest.mark.slow
@pytest.mark.skipif(
    not compat.supported, reason="filterjit.nnx hands over all calls with this Flax"
)
@pytest.mark.parametrize("mode", NNX.modes)
@pytest.mark.parametrize("seed", range(6))
def test_a_program_of_nnx(mode: str, seed: int) -> None:
    handed_over = NNX.compare(seed, mode)
    assert mode == "tree" or not handed_over


SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 32)]


@pytest.mark.parametrize("seed", [0, 1, *SLOW])
def test_a_program_of_plain_jax(seed: int) -> None:
    PLAIN.compare(seed)
