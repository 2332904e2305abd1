"""Times the cases with pytest-benchmark: ``pytest benchmarks``.

``-k mlp`` or ``-k filterjit`` selects cases and peers; ``--benchmark-json FILE`` stores the times.
On a busy machine, dispatch.py is more exact: there the peers run alternately, and here one after
the other.
"""

from typing import Any

import jax
import pytest

from cases import CASES, arrays_in
from peers import PEERS, applies
from timing import in_a_row, timer_for


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
    if timer_for(case) is in_a_row:
        benchmark(call)
        return
    out = None

    def wait() -> None:
        jax.block_until_ready(arrays_in(out))

    def make_call() -> None:
        nonlocal out
        out = call()

    benchmark.pedantic(make_call, setup=wait, rounds=100)
