"""The benchmarks' cases give the same results whoever runs them. Times are not looked at."""

import equinox as eqx
import jax.tree_util as jtu
import numpy as np
import pytest

from cases import CASES, arrays_in
from dispatch import HEADERS, Row, main, table
from peers import PEERS


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]()


@pytest.fixture(scope="module")
def results(case):
    """What each peer returns: each traces and compiles once."""
    found = {}
    for name, peer in PEERS.items():
        out = peer(case)()
        found[name] = out(*case.args, **case.kwargs) if case.makes_function else out
    return found


def test_every_peer_returns_the_same_arrays(results):
    theirs = arrays_in(results["equinox"])
    assert theirs
    for peer, out in results.items():
        mine = arrays_in(out)
        assert len(mine) == len(theirs), peer
        for x, y in zip(mine, theirs, strict=True):
            assert x.dtype == y.dtype and x.weak_type == y.weak_type, peer
            np.testing.assert_array_equal(x, y, err_msg=peer)


def test_ours_returns_the_tree_that_equinox_returns(results):
    assert eqx.tree_equal(results["ours"], results["equinox"])
    assert jtu.tree_structure(results["ours"]) == jtu.tree_structure(results["equinox"])


def test_names_and_counts(case):
    assert CASES[case.name].__name__ == case.name and case.summary
    assert 0 < case.num_arrays <= case.num_nodes


@pytest.mark.parametrize(
    ("name", "arrays", "nodes"),
    [("mlp", 11, 42), ("dict_100", 100, 101), ("transformer", 339, 2002)],
)
def test_sizes_that_the_readme_speaks_of(name, arrays, nodes):
    case = CASES[name]()
    assert (case.num_arrays, case.num_nodes) == (arrays, nodes)


def test_carried_results_are_the_next_arguments():
    case = CASES["adam_step"]()
    for peer in PEERS:
        call = PEERS[peer](case)
        losses = [float(arrays_in(call())[-1]) for _ in range(20)]
        assert losses == sorted(losses, reverse=True) and len(set(losses)) == 20, peer


ROW = {"flat": 8.0, "pytree": 16.0, "equinox": 100.0, "ours": 10.0}


def test_markdown_table():
    text = table([Row(CASES["kwargs"](), ROW)], markdown=True)
    header, rule, row = text.splitlines()
    assert [x.strip() for x in header.strip("|").split("|")] == list(HEADERS)
    assert set(rule) <= set("|-: ")
    cells = [x.strip() for x in row.strip("|").split("|")]
    assert cells[3:] == ["8.0", "16.0", "100", "10.0", "1.25x", "1.6x", "10x"]


def test_plain_table():
    lines = table([Row(CASES["make_filter_jit"](), ROW)], markdown=False).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "`" not in lines[2]


def test_dispatch_runs(capsys):
    assert main(["--quick", "--case", "kwargs"]) == 0
    out, err = capsys.readouterr()
    assert CASES["kwargs"]().summary in out
    assert "\x1b" not in out and err == ""
