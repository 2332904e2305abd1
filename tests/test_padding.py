"""`pad_to`: what is padded how, what it refuses, and that nothing compiles for each size."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from filterjit import filter_jit, forbid_compile, pad_to

ARRAYS = {
    "float": lambda n: np.arange(n, dtype=np.float32),
    "bool": lambda n: np.ones(n, bool),
    "bytes": lambda n: np.full((n, 2), 200, np.uint8),
    "jax": lambda n: jnp.arange(2 * n).reshape(n, 2),
    "bfloat16": lambda n: jnp.ones((n, 1), jnp.bfloat16),
    "weak": lambda n: jax.lax.full((n,), 2.0),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("fill", [0, 1, "edge"])
@pytest.mark.parametrize("axis", [0, -1])
def test_padded_as_numpy_pads(name: str, fill: Any, axis: int) -> None:
    for n in (1, 3, 4, 5, 8):
        x = ARRAYS[name](n)
        x = x if axis == 0 else x.T
        padded, mask = pad_to(x, (8, 4), axis=axis, fill=fill)
        more = [(0, 0)] * x.ndim
        more[axis] = (0, len(mask) - n)
        how: Any = {"mode": "edge"} if fill == "edge" else {"constant_values": fill}
        expected = np.pad(np.asarray(x), more, **how)
        assert (padded.dtype, padded.shape) == (x.dtype, expected.shape)
        assert np.array_equal(np.asarray(padded), expected)
        assert isinstance(padded, jax.Array) == isinstance(x, jax.Array)
        assert mask.tolist() == [True] * n + [False] * ((4 if n <= 4 else 8) - n)
        assert np.array_equal(np.asarray(padded).take(np.flatnonzero(mask), axis), np.asarray(x))
        assert not getattr(padded, "weak_type", False)  # for one program


def test_other_values_pass_through() -> None:
    tree = {"x": np.ones(3), "name": "a", "set": {1}, "f": np.sum, "none": None, "n": np.int8(1)}
    padded, _ = pad_to(tree, 4)
    assert padded["x"].shape == (4,) and tree["x"].shape == (3,)
    assert {k: v for k, v in padded.items() if k != "x"} == {
        k: v for k, v in tree.items() if k != "x"
    }
    assert pad_to(tree, 3)[0]["x"] is tree["x"]


def test_a_committed_array_keeps_its_sharding() -> None:
    device = jax.devices()[-1]
    for x in (jax.device_put(np.ones(3), device), jnp.ones(3)):
        padded, _ = pad_to(x, 4)
        assert padded.committed == x.committed
        assert not x.committed or padded.sharding == SingleDeviceSharding(device)


def test_an_empty_batch_is_all_padding() -> None:
    padded, mask = pad_to(np.ones((0, 2)), (4, 8), fill=7)
    assert (padded == 7).all() and padded.shape == (4, 2) and not mask.any()


KEYS = jax.random.split(jax.random.key(0), 3)
X = np.ones((3, 2))
# By the text of the error.
REFUSED: dict[str, Callable[[], Any]] = {
    "`b.0` has the shape (3,), without an axis 1.": lambda: pad_to(
        {"a": X, "b": [X[:, 0]]}, 4, axis=1
    ),
    "`b` has the size 4 along axis 0, and the first array 3.": lambda: pad_to(
        {"a": X, "b": np.ones(4)}, 8
    ),
    "`x` is traced. Pad it outside": lambda: jax.jit(lambda x: pad_to({"x": x}, 4))(X),
    "`keys` has random keys, or a mask": lambda: pad_to({"keys": KEYS}, 4),
    "the array has random keys, or a mask": lambda: pad_to(np.ma.masked_less(X, 2), 4),
    "the array is empty, without a last row": lambda: pad_to(np.ones(0), 4, fill="edge"),
    "the array has the dtype int32, which cannot hold `fill`, 0.5.": lambda: pad_to(
        np.ones(3, np.int32), 4, fill=0.5
    ),
    "the array has the dtype uint8, which cannot hold `fill`, -1.": lambda: pad_to(
        np.ones(3, np.uint8), 4, fill=-1
    ),
    "the array has the dtype bool, which cannot hold `fill`, nan.": lambda: pad_to(
        np.ones(3, bool), 4, fill=float("nan")
    ),
    "pad_to(sizes=...)` must be a positive int, not 4.0": lambda: pad_to(X, (8, 4.0)),  # type: ignore[arg-type]
    "pad_to(sizes=...)` must be a positive int, not ()": lambda: pad_to(X, ()),
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(ValueError) as info:
        REFUSED[text]()
    assert text in str(info.value) and str(info.value).startswith("`pad_to")


def test_each_size_compiles_once_and_padding_nothing() -> None:
    @filter_jit
    def mean(x: Any, mask: Any) -> Any:
        return jnp.where(mask, x, 0).sum() / mask.sum()

    for size in (4, 16):
        mean.warm_up(np.ones(size, np.float32), np.ones(size, bool))
    with forbid_compile():
        for convert in (np.asarray, jax.device_put):
            for n in range(1, 17):
                rows = np.arange(n, dtype=np.float32)
                out = mean(*pad_to(convert(rows), (16, 4)))
                assert np.isclose(np.asarray(out), rows.mean())
    assert mean.variants[0].num_traces == 2
