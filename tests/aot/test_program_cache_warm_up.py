"""`warm_up` with a program cache: a function that is made anew stands for a second run."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aot_support import Compiles, copied, counts, new_process, same

import filterjit
from filterjit import filter_jit

pytestmark = pytest.mark.usefixtures("no_cache_afterwards")


def double(x: Any) -> Any:
    return x * 2


def _matrix_product(model: Any, x: Any, n: int) -> Any:
    return {"y": model["w"] @ x * n, "n": n}


def _specs(*sizes: int) -> list[Any]:
    weak = jax.eval_shape(lambda: {"w": jnp.ones((3, 2))})
    return [((weak, jax.ShapeDtypeStruct((2, n), jnp.float32), 2), {}) for n in sizes]


def test_warm_up_keeps_programs_and_finds_them(tmp_path: Path, compiles: Compiles) -> None:
    """A call finds what `warm_up` has kept, and the other way round."""

    def check(f: Any, *sizes: int) -> None:
        for n in sizes:
            out = f(model, inputs[n], 2)
            assert np.array_equal(out["y"], np.full((3, n), 4.0)) and out["n"] == 2

    model = {"w": jnp.ones((3, 2))}
    inputs = {n: jnp.ones((2, n)) for n in range(4, 8)}
    with filterjit.program_cache(tmp_path) as cache:
        f = filter_jit(copied(_matrix_product))
        first = f.warm_up_all([*_specs(4, 5), *_specs(4)])
        assert str(first).startswith("compiled 2 of 3 in ")
        check(f, 4, 5)
        assert counts(f) == (2, 0)
        cache.wait()
        assert len(list(tmp_path.glob("*/*.fjit"))) == 2
        new_process()
        f = filter_jit(copied(_matrix_product))
        check(f, 4, 5, 6)
        assert counts(f) == (3, 2)  # two were on trial
        cache.wait()
        new_process()
        f = filter_jit(copied(_matrix_product))
        compiles.since()
        again = f.warm_up_all([*_specs(4, 5), *_specs(7), *_specs(4)])
        assert str(again).startswith("compiled 1 and loaded 2 of 4 in ")
        assert [one.loaded for one in again.signatures] == [True, True, False, False]
        assert [one.same_as for one in again.signatures] == [None, None, None, 0]
        assert "loaded 0." in str(again.signatures[0]) and "loaded" in again._repr_html_()
        assert (counts(f), compiles.since()) == ((1, 2), 1)
        for _ in range(30):  # some calls are direct
            check(f, 4, 5, 7)
        assert (counts(f), compiles.since()) == ((1, 2), 0)


def test_warm_up_of_arrays_that_are_placed(tmp_path: Path) -> None:
    """A spec with a sharding is that of a committed array, one without of another."""
    (device, *_) = jax.devices()
    placed = jax.sharding.SingleDeviceSharding(device)
    specs = [jax.ShapeDtypeStruct((3,), jnp.float32, sharding=s) for s in (None, placed)]
    for traces, loaded in ((1, 0), (1, 1), (0, 1)):
        new_process()
        for i, spec in enumerate(specs):
            with filterjit.program_cache(tmp_path):
                f = filter_jit(copied(double))
                (one,) = f.warm_up_all([((spec,), {})]).signatures
                assert one.loaded == bool(loaded)
                x = jax.device_put(jnp.ones(3), device) if i else jnp.ones(3)
                assert same(f(x), 2 * jnp.ones(3)) and f(x).committed == bool(i)
                assert counts(f) == (traces, loaded)


def test_what_warm_up_does_not_keep(tmp_path: Path) -> None:
    """A trace that fails, which raises again, and one with a callback."""

    def fails(x: Any) -> Any:
        raise KeyError("this one")

    def calls_back(x: Any) -> Any:
        jax.debug.callback(lambda x: None, x)
        return x

    spec = jax.ShapeDtypeStruct((2,), jnp.float32)
    with filterjit.program_cache(tmp_path) as cache:
        for _ in range(2):
            (one,) = filter_jit(copied(fails)).warm_up_all([((spec,), {})]).signatures
            assert isinstance(one.error, KeyError)
            f = filter_jit(copied(calls_back))
            (one,) = f.warm_up_all([((spec,), {})]).signatures
            assert not one.loaded and one.error is None
            cache.wait()
            assert "is not kept in the program cache" in str(f.report())
    assert list(tmp_path.glob("*/*.fjit")) == []


def test_warm_up_of_methods_and_donated_arrays(tmp_path: Path) -> None:
    class Scale(eqx.Module):
        by: Any

        @filter_jit(donate="all-except-first")
        def __call__(self, x: Any) -> Any:
            return self.by * x

    spec = jax.ShapeDtypeStruct((2,), jnp.float32)
    for loaded in (False, True, True):
        new_process()
        with filterjit.program_cache(tmp_path):
            model, x = Scale(jnp.ones(2)), jnp.ones(2)
            jax.clear_caches()
            filterjit.clear_caches()
            (one,) = model.__call__.warm_up_all([((spec,), {})]).signatures
            assert one.loaded == loaded
            assert same(model(x), jnp.ones(2)) and x.is_deleted()
