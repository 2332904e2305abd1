"""All peers return the same results for the benchmarks' cases. No test checks times."""

import re
import sys
from pathlib import Path

import equinox as eqx
import jax.tree_util as jtu
import numpy as np
import pytest

import cases
import dispatch
from cases import CASES, arrays_in
from peers import PEERS, applies
from support import processes
from timing import each_awaited, in_a_row, one_by_one

pytestmark = [pytest.mark.slow, pytest.mark.recompiles]  # a case changes its statics

BENCHMARKS = Path(dispatch.__file__).parent

# Compiling takes most of the time here. A thousand programs take too long, and ten run the same
# code. A large program for which a smaller one exists is compiled by Equinox and filterjit only.
TOO_LONG = "statics_1000"
LARGE = "mlp_256", "dict_1000", "transformer_4", "transformer", "transformer_update"
FLAX = "linen", "nnx_jit", "nnx_cached"


@pytest.fixture(scope="module", params=[name for name in CASES if name != TOO_LONG])
def case(request):
    with pytest.MonkeyPatch.context() as patch:
        # A few strings are enough, as long as they do not fit the core's buffer on the stack.
        patch.setattr(cases, "_names", lambda: [f"name {i}" for i in range(2000)])
        return CASES[request.param]()


@pytest.fixture(scope="module")
def results(case):
    """The result of each peer, which traces and compiles once."""
    peers = ("equinox", "filterjit") if case.name in LARGE else PEERS
    return {name: case.value(PEERS[name](case)()) for name in peers if applies(name, case)}


def in_any_order(arrays):
    return sorted(arrays, key=lambda x: (x.shape, x.dtype.name, np.asarray(x).tobytes()))


def test_every_peer_returns_the_same_arrays(results):
    of_equinox = arrays_in(results["equinox"])
    assert of_equinox
    for peer, out in results.items():
        arrays, expected = arrays_in(out), of_equinox
        if peer in FLAX:
            arrays = [x.T for x in arrays]
        if peer in (*FLAX, "inox"):
            arrays, expected = in_any_order(arrays), in_any_order(of_equinox)
        assert len(arrays) == len(expected), peer
        # Flax multiplies in the other order, and XLA folds constants.
        tolerance = 1e-6 if peer in (*FLAX, "closed") else 0.0
        for x, y in zip(arrays, expected, strict=True):
            assert x.dtype == y.dtype and x.weak_type == y.weak_type, peer
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=peer)


def test_trees_are_those_that_equinox_returns(results):
    assert eqx.tree_equal(results["filterjit"], results["equinox"])
    assert jtu.tree_structure(results["filterjit"]) == jtu.tree_structure(results["equinox"])
    expected = eqx.filter(results["equinox"], eqx.is_array)
    found = results.get("optree", expected)  # optree does not apply to all cases
    assert jtu.tree_structure(found) == jtu.tree_structure(expected)


def test_carried_results_are_the_next_arguments():
    case = CASES["adam_step"]()
    for peer in filter(lambda peer: applies(peer, case), PEERS):
        call = PEERS[peer](case)
        losses = [float(arrays_in(call())[-1]) for _ in range(20)]
        assert losses == sorted(losses, reverse=True) and len(set(losses)) == 20, peer


@pytest.mark.parametrize(("timer", "more"), [(in_a_row, 0), (one_by_one, 1), (each_awaited, 1)])
def test_calls_are_made_as_often_as_requested(timer, more):
    tree = {"a": [CASES["mlp"]().args[0]], "b": (CASES["identity"]().args[0], None, 3)}
    calls = []

    def call():
        calls.append(None)
        return tree

    assert timer(call, 7) > 0.0
    assert len(calls) == 7 + more


def run(*command, cwd=None):
    """Runs Python with `command` and this process's `sys.path`, and returns its standard output."""
    env = processes.environment(sys.path)
    return processes.run(*command, cwd=cwd, env=env, timeout=300).stdout


# A script, its arguments, how a line of what it prints begins, which has figures, and what else it
# prints. Each runs in a process of its own, for which some choose the devices.
SCRIPTS = [
    ("dispatch.py", ["--case", "kwargs", "--peer", "flat"], "keyword arguments", "flat/filterjit"),
    ("sharded.py", ["mlp"], "MLP 8-32x4-8", "cores, cpu"),
    ("end_to_end.py", ["environment_step"], "An environment's step", "equinox / filterjit"),
    ("end_to_end.py", ["server"], "A server with batches", "with pad_to"),
    ("nnx_jit.py", ["10"], "inference, 10 Variables", "Adam step, 10 Variables"),
    ("plain_jit.py", ["array", "static", "make_nnx"], "one array", "nnx.jit(f)"),
]


@pytest.mark.parametrize(("script", "args", "begin", "also"), SCRIPTS)
def test_scripts(script: str, args: list[str], begin: str, also: str) -> None:
    out = run(BENCHMARKS / script, "--quick", *args)
    row = next(line for line in out.splitlines() if line.startswith(begin))
    figures = re.findall(r"\d+\.\d+", row)
    assert figures and all(float(figure) > 0 for figure in figures)
    assert also in out
