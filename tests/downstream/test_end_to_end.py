"""The programs of benchmarks/end_to_end.py compute the same on both implementations. No test
checks times."""

import equinox as eqx
import jax.tree_util as jtu
import pytest

from end_to_end import IMPLEMENTATIONS, PROGRAMS, start
from support.comparison import comparable


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_results(name: str) -> None:
    """Each step's result depends on all steps before it."""
    steps = {x: start(name, x) for x in IMPLEMENTATIONS}
    found = {}
    for implementation, step in steps.items():
        with IMPLEMENTATIONS[implementation]():
            found[implementation] = [step() for _ in range(5)]
    assert comparable(found["filterjit"]) == comparable(found["equinox"])
    assert jtu.tree_structure(found["filterjit"]) == jtu.tree_structure(found["equinox"])
    assert any(eqx.is_array(x) for x in jtu.tree_leaves(found["filterjit"]))
