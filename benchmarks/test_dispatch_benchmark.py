"""The same calls under pytest-benchmark: ``pytest benchmarks``.

``-k mlp`` or ``-k ours`` chooses; ``--benchmark-json FILE`` keeps the numbers. pytest-benchmark
times each peer to its end before the next, so on a busy machine trust dispatch.py, where they
take turns.
"""

from typing import Any

import jax
import pytest

from cases import CASES, arrays_in
from peers import PEERS, applies
from timing import in_a_row, way_to_time


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Any:
    return CASES[request.param]()


@pytest.mark.benchmark(disable_gc=True, max_time=0.5, min_rounds=5)
@pytest.mark.parametrize("peer", PEERS)
def test_dispatch(benchmark: Any, case: Any, peer: str) -> None:
    if not applies(peer, case):
        pytest.skip("does not apply")
    benchmark.group = case.name
    call = PEERS[peer](case)
    if way_to_time(case) is in_a_row:
        benchmark(call)
        return
    out = None

    def wait() -> None:
        jax.block_until_ready(arrays_in(out))

    def kept() -> None:
        nonlocal out
        out = call()

    benchmark.pedantic(kept, setup=wait, rounds=100)
