"""Some random programs of plain JAX; ``python tests/fuzz/long.py --plain 100`` runs many."""

import fuzz_plain
import jax
import pytest

pytest.importorskip("flax")


@pytest.mark.parametrize("seed", range(2))
def test_a_random_program(seed: int) -> None:
    fuzz_plain.compare(seed)
    jax.clear_caches()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 32))
def test_another_random_program(seed: int) -> None:
    fuzz_plain.compare(seed)
    jax.clear_caches()
