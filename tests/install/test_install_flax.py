"""`install` and `uninstall`: filterjit in the place of ``flax.nnx.jit``, and back."""

from typing import Any

import jax.numpy as jnp
import pytest

import filterjit
from support.processes import run_code

pytest.importorskip("flax.nnx")
from flax import nnx

import filterjit.nnx
from filterjit._compat import _nnx_compat as compat


def test_without_flax() -> None:
    original = nnx.jit
    filterjit.install(flax=False)
    assert nnx.jit is original
    with filterjit.install():
        assert nnx.jit is filterjit.nnx.jit
    assert nnx.jit is original
    assert filterjit._install.is_installed()
    with filterjit.install(flax=False):
        assert nnx.jit is original


class Counter(nnx.Module):
    def __init__(self) -> None:
        self.count = nnx.Variable(jnp.zeros(()))


def test_both_modes_of_graphs() -> None:
    def f(m: Any) -> Any:
        m.count[...] += 1
        m.new = 1

    def g(m: Any) -> Any:
        m.count[...] += 1
        return m.count[...]

    before = nnx.jit(g)
    with filterjit.install():
        m = Counter()
        compatible = nnx.compat.jit(f)
        assert isinstance(compatible, filterjit.nnx.NNXJit)
        compatible(m)
        assert m.count[...] == 1 and m.new == 1
        assert not compatible.handed_over or not compat.supported
        assert nnx.jit(g)(m) == 2
        assert before(m) == 3
        assert not isinstance(before, filterjit.nnx.NNXJit)


@pytest.mark.skipif(not compat.supported, reason="all calls are handed over")
def test_cached_partial() -> None:
    def f(m: Any, n: Any) -> Any:
        m.count[...] += n
        return m.count[...]

    before = nnx.jit(f)
    with filterjit.install():
        m = Counter()
        jitted = nnx.jit(f)
        for cached_partial in (nnx.cached_partial, nnx.compat.cached_partial):
            assert cached_partial(jitted, m)(1) == m.count[...]
            assert cached_partial(before, m)(1) == m.count[...]
        assert m.count[...] == 4 and not jitted.handed_over


PROGRAM = """
import sys
import filterjit
filterjit.install()
assert "flax" not in sys.modules and "jax" not in sys.modules
from flax import nnx
import filterjit.nnx
assert nnx.jit is filterjit.nnx.jit
filterjit.uninstall()
assert nnx.jit is not filterjit.nnx.jit
print("done")
"""


def test_flax_is_imported_later() -> None:
    assert run_code(PROGRAM).stdout.strip() == "done"


@pytest.mark.skipif(not compat.supported, reason="all calls are handed over, for that reason")
def test_a_report_tells_what_was_handed_over() -> None:
    with filterjit.install():

        @nnx.jit(static_argnames="m", graph=False)  # which is handed over
        def with_static_module(m: Any, n: Any) -> Any:
            return m.count[...] + n

        m = Counter()
        assert with_static_module(m, 1) == 1
        assert with_static_module(m, 2) == 2
    reason = "a static argument is a Variable or a Module"
    for report in (with_static_module.report(), filterjit.report()):
        assert f"flax.nnx.jit made 2 of its calls: {reason}." in str(report)
    row = with_static_module.report().as_dict()["functions"][0]
    assert row["handed_over"] == {reason: 2}
    assert row["name"].endswith("with_static_module")
