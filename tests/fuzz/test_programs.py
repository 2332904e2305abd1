"""Some random programs; ``python tests/fuzz/long.py --nnx 100`` or ``--plain 100`` runs many."""

import jax
import pytest

pytest.importorskip("hypothesis")
pytest.importorskip("flax")

from fuzz_programs import NNX, PLAIN, compat


@pytest.mark.slow
@pytest.mark.skipif(
    not compat.supported, reason="filterjit.nnx hands over all calls with this Flax"
)
@pytest.mark.parametrize("mode", NNX.modes)
@pytest.mark.parametrize("seed", range(6))
def test_a_program_of_nnx(mode: str, seed: int) -> None:
    handed_over = NNX.compare(seed, mode)
    assert mode == "tree" or not handed_over
    jax.clear_caches()


SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 32)]


@pytest.mark.parametrize("seed", [0, 1, *SLOW])
def test_a_program_of_plain_jax(seed: int) -> None:
    PLAIN.compare(seed)
    jax.clear_caches()
