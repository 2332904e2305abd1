"""Some random programs of Flax NNX; ``python tests/fuzz/long.py --nnx 100`` runs many."""

import pytest

pytest.importorskip("flax")

import fuzz_nnx
import jax

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not fuzz_nnx.compat.supported, reason="filterjit.nnx hands over all calls with this Flax"
    ),
]


@pytest.mark.parametrize("mode", fuzz_nnx.MODES)
@pytest.mark.parametrize("seed", range(6))
def test_a_random_program(mode: str, seed: int) -> None:
    handed_over = fuzz_nnx.compare(seed, mode)
    assert mode == "tree" or not handed_over
    jax.clear_caches()
