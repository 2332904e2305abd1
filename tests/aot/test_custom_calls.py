"""Programs that call functions outside of them, such as LAPACK's, in a process that has lowered
nothing."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.fft
import jax.scipy.linalg
import numpy as np
import pytest
from jax.experimental import sparse

from filterjit import filter_jit
from support.processes import run_code

A = np.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]], "float32")
V = np.array([1, 2, 3], "float32")

# Of each function of a module, the first arguments that it takes.
ARGUMENTS: list[Callable[[Any, Any, Any], tuple[Any, ...]]] = [
    lambda a, v, k: (a,),
    lambda a, v, k: (a, v),
    lambda a, v, k: (k,),
    lambda a, v, k: (a, a),
    lambda a, v, k: (a, 2),
    lambda a, v, k: (a, 1),
    lambda a, v, k: (a, v, a),
    lambda a, v, k: (a, a, a),
    lambda a, v, k: (a, jnp.sin),
    lambda a, v, k: ([a, a],),
    lambda a, v, k: ((a, True), v),
    lambda a, v, k: ((a, jnp.arange(3)), v),
    lambda a, v, k: (v, v),
    lambda a, v, k: (v, v[1:]),
    lambda a, v, k: (v, 3),
    lambda a, v, k: (v.astype(int), 5),
    lambda a, v, k: (v, v, v, a),
    lambda a, v, k: (k, 0.5),
    lambda a, v, k: (k, 3),
    lambda a, v, k: (k, v),
    lambda a, v, k: (k, 0.5, 0.5),
    lambda a, v, k: (k, 3, v / 6),
    lambda a, v, k: (k, v, a),
    lambda a, v, k: (k, (3,), 0, 9),
    lambda a, v, k: (k, 0.0, 0.5, 1.0),
    lambda a, v, k: (4,),
]
IMAGE = np.arange(32, dtype="float32").reshape(1, 2, 4, 4)
MORE: dict[str, Callable[[Any, Any], Any]] = {
    "sort": lambda a, v: (jnp.sort(a), jnp.argsort(-a), jnp.lexsort((v, -v)), jnp.median(a)),
    "top_k": lambda a, v: (jax.lax.top_k(v, 2), jax.lax.approx_max_k(v, 2)),
    "unique": lambda a, v: (jnp.unique(a, size=4), jnp.searchsorted(v, a)),
    "convolve": lambda a, v: (jnp.convolve(v, v), jax.scipy.signal.fftconvolve(a, a)),
    "conv": lambda a, v: jax.lax.conv(IMAGE * v[0], IMAGE, (1, 1), "SAME"),
    "sparse": lambda a, v: sparse.BCSR((v, jnp.arange(3), jnp.arange(4)), shape=(3, 3)) @ a,
}


def programs(module: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """Returns programs that call the functions of a module, by their names."""
    found: dict[str, Callable[[Any, Any], Any]] = {}
    for name, f in vars(module).items():
        if name.startswith("_") or not callable(f) or isinstance(f, type):
            continue
        for arguments in ARGUMENTS:

            def program(a: Any, v: Any, f: Any = f, arguments: Any = arguments) -> Any:
                return f(*arguments(a, v, jax.random.key(0)))

            with contextlib.suppress(Exception):
                jax.eval_shape(program, A, V)
                found[name] = program
                break
        else:
            assert name in {"Key", "key_dtype", "key_impl", "wrap_key_data"}, name
    return found


def flat(results: Any) -> list[Any]:
    leaves = [x for x in jax.tree.leaves(results) if isinstance(x, jax.Array)]
    keys = jax.dtypes.prng_key
    return [jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, keys) else x for x in leaves]


_RUN = """
import json, sys, jax, numpy as np, filterjit
lowered = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: lowered.append(event) if "mlir" in event else None)
folder, portable, *names = json.loads(sys.argv[1])
a, v = np.load(f"{folder}/inputs.npz").values()
for name in names:
    print(name, flush=True)  # the last is the one that crashed
    results = filterjit.load(f"{folder}/{name}")(a, v)
    np.savez(f"{folder}/{name}.npz", *results)
assert portable or not lowered, lowered
"""
MODULES = [jnp.fft, jax.scipy.fft, jax.lax.linalg, jnp.linalg, jax.random, jax.scipy.linalg]


@pytest.mark.parametrize(
    ("modules", "each", "portable"),
    [
        (MODULES[3:4], False, False),
        pytest.param(MODULES[3:4], False, True, marks=pytest.mark.slow),
        pytest.param(MODULES[:3], False, False, marks=pytest.mark.slow),
        pytest.param(MODULES, True, False, marks=pytest.mark.thorough),
    ],
)
def test_of_jax(modules: list[Any], each: bool, portable: bool, tmp_path: Path) -> None:
    """One process runs what another has saved: each function in a program, or those of a module."""
    table = {} if portable else {"more": MORE}
    table |= {module.__name__: programs(module) for module in modules}
    expected = {}
    for module, found in table.items():
        together = {module: lambda a, v, found=found: {k: f(a, v) for k, f in found.items()}}
        named = {f"{module}.{k}": f for k, f in found.items()} if each else together
        for name, f in named.items():
            compiled = filter_jit(lambda a, v, f=f: flat(f(a, v))).lower(A, V).compile()
            compiled.save(tmp_path / name, portable=portable)
            expected[name] = compiled(A, V)
    np.savez(tmp_path / "inputs.npz", A, V)
    run_code(_RUN, json.dumps([str(tmp_path), portable, *expected]), timeout=300)
    for name, results in expected.items():
        with np.load(tmp_path / f"{name}.npz") as file:
            jax.tree.map(np.testing.assert_array_equal, results, list(file.values()))
