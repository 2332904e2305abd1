"""`pad_to`: pads arrays to one of a few sizes."""

from collections.abc import Iterable
from typing import Any, TypeVar

import jax
import numpy as np
import numpy.typing as npt

from ._base._checks import positive_int
from ._base._package import public
from ._compat import _jax_compat
from ._trees._tree_functions import flatten

_T = TypeVar("_T")


@public
def pad_to(
    tree: _T, sizes: int | Iterable[int], *, axis: int = 0, fill: float | str = 0
) -> tuple[_T, npt.NDArray[np.bool_]]:
    """Pads each array of a tree along one axis, to the smallest of `sizes` that holds it.

    Padding compiles nothing. NumPy arrays stay NumPy arrays. A ``jax.Array`` is padded on the host,
    and returns to its sharding if it's committed. Other values are unchanged.

    Arguments:
        tree: a pytree with arrays of one size along `axis`.
        sizes: an int, or several in any order.
        axis: the axis to pad.
        fill: a number, or ``"edge"`` to repeat the last row.

    Returns:
        ``(padded, mask)``. `mask` is a NumPy array of bools, False for the padding. An array that
        can't be padded raises a ``ValueError`` with its path.

    Examples:
        >>> filterjit.pad_to({"x": np.ones(3)}, (8, 4))
        ({'x': array([1., 1., 1., 0.])}, array([ True,  True,  True, False]))
    """
    chosen: list[Any] = [*sizes] if isinstance(sizes, Iterable) else [sizes]
    for one in chosen or [sizes]:
        positive_int("pad_to(sizes=...)", one)
    if not (isinstance(fill, (int, float, np.number)) or str(fill) == "edge"):
        raise ValueError(f'`pad_to(fill=...)` must be a number or "edge", not {fill!r}.')
    leaves, structure = flatten(tree, lambda x: isinstance(x, (np.ndarray, jax.Array)))
    if not leaves:
        raise ValueError("`pad_to`: the tree has no arrays.")
    for path, x in zip(structure.paths, leaves, strict=True):
        if why := _refusal(x, leaves[0], max(chosen), axis, fill):
            raise ValueError(f"`pad_to`: {f'`{path}`' if path else 'the array'} {why}.")
    size = min(one for one in chosen if one >= leaves[0].shape[axis])
    padded = structure.unflatten([_pad(x, size, axis, fill) for x in leaves])
    return padded, np.arange(size) < leaves[0].shape[axis]


def _refusal(x: Any, first: Any, largest: int, axis: int, fill: Any) -> str:
    """Returns why an array can't be padded like the first one, or ""."""
    if isinstance(x, jax.core.Tracer):
        return "is traced. Pad it outside the jitted function"
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) or isinstance(x, np.ma.MaskedArray):
        return "has random keys, or a mask of its own. Leave it out of the tree"
    if not -x.ndim <= axis < x.ndim:
        return f"has the shape {x.shape}, without an axis {axis}"
    if (size := x.shape[axis]) != (other := first.shape[axis]):
        return f"has the size {size} along axis {axis}, and the first array {other}"
    if size > largest:
        return f"has the size {size} along axis {axis}, and the largest of `sizes` is {largest}"
    if isinstance(fill, str):
        return "" if size else "is empty, without a last row to repeat"
    is_held = fill % 1 == 0 and np.array(fill).astype(x.dtype) == fill
    fits = is_held or jax.dtypes.issubdtype(x.dtype, np.inexact)
    return "" if fits else f"has the dtype {x.dtype}, which cannot hold `fill`, {fill!r}"


def _pad(x: Any, size: int, axis: int, fill: Any) -> Any:
    if x.shape[axis] == size and not getattr(x, "weak_type", False):
        return x
    host, more = np.asarray(x), [*x.shape]
    more[axis] = size - more[axis]
    row = np.take(host, [-1], axis) if isinstance(fill, str) else np.array(fill).astype(host.dtype)
    padded = np.concatenate([host, np.broadcast_to(row, more)], axis)
    if isinstance(x, np.ndarray):
        return padded
    return jax.device_put(padded, x.sharding if _jax_compat.is_committed(x) else None)
