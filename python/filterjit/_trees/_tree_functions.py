"""Flattening and paths, like ``jax.tree_util``, in the C core. Only types registered with JAX are
nodes, and their children are in JAX's order."""

import copyreg
import io
import pickle
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from .. import _core
from .._base._errors import short_repr
from .._base._package import public
from ._filters import as_expression, is_array
from ._nodes import walk
from ._registry import registry

_T = TypeVar("_T")

Structure = _core.Structure
IsLeaf = Callable[[Any], Any] | None


@public
def tree_paths(tree: Any, is_leaf: IsLeaf = None) -> list[str]:
    """Returns the path of each leaf, in order, such as ``"layers.0.weight"``.

    Paths are formatted like ``jax.tree_util.keystr(path, simple=True, separator=".")``.

    Arguments:
        tree: any pytree.
        is_leaf: a function ``node -> bool``. Nodes for which it returns True are leaves.

    Examples:
        >>> tree_paths({"a": 1, "b": (2, 3)})
        ['a', 'b.0', 'b.1']
    """
    return list(_core.tree_flatten(registry, tree, True, is_leaf)[1].paths)


@public
def flatten(
    tree: _T, filter: Any = is_array, *, is_leaf: IsLeaf = None
) -> "tuple[list[Any], Structure[_T]]":
    """Splits a tree into the leaves that a filter takes, and a structure with everything else.

    ``unflatten(structure, leaves)`` restores the tree.

    Arguments:
        tree: any pytree.
        filter: any filter, see `Filter`. ``True`` takes all leaves, like
            ``jax.tree_util.tree_flatten``.
        is_leaf: as in `tree_paths`.

    Returns:
        ``(leaves, structure)``. The structure is a treedef with the remaining leaves as static
        leaves. Structures are equal if their treedefs are, and their static leaves are equal as
        static arguments of `filter_jit`. A structure can be hashed or pickled if its static leaves
        can.

    Raises:
        ValueError: if `filter` isn't a filter, or a tree of filters isn't a prefix of `tree`.
        TypeError: if a filter function returned None.

    Examples:
        >>> leaves, structure = flatten({"x": jnp.ones(2), "name": "relu"})
        >>> leaves
        [Array([1., 1.], dtype=float32)]
        >>> structure.paths
        ('x',)
    """
    return _core.tree_flatten(
        registry, tree, as_expression(filter, "`flatten(..., filter=...)`"), is_leaf
    )


@public
def unflatten(structure: "Structure[_T]", leaves: Iterable[Any]) -> _T:
    """Returns the tree with this structure and these leaves. The inverse of `flatten`.

    Arguments:
        structure: a `Structure` that `flatten` returned.
        leaves: as many as `flatten` returned with it, in the same order.

    Raises:
        ValueError: if there are too few or too many leaves.

    Examples:
        >>> leaves, structure = flatten({"x": jnp.ones(2), "name": "relu"})
        >>> unflatten(structure, [2.0])
        {'name': 'relu', 'x': 2.0}
    """
    if type(structure) is not Structure:
        raise TypeError(
            "`unflatten(structure, ...)` must be a Structure, such as `flatten` returns, not "
            f"{short_repr(structure)}"
        )
    return structure.unflatten(leaves)


class _Hole:
    """A placeholder for each leaf of a pickled structure."""

    def __reduce__(self) -> str:
        return "_HOLE"


_HOLE = _Hole()


class _Pickler(pickle.Pickler):
    """Preserves the identity of Equinox's sentinel for missing fields."""

    def reducer_override(self, x: Any) -> Any:
        return (_missing, ()) if x is registry.missing else NotImplemented


def _reduce(structure: Structure) -> tuple[Any, ...]:
    parts = structure._skeleton(_HOLE), structure._leaves(_HOLE)
    if not any(node.kind == "missing" for node, _ in walk(structure)):
        return _from_parts, parts
    buffer = io.BytesIO()
    _Pickler(buffer).dump(parts)
    return _unpickle, (buffer.getvalue(),)


def _from_parts(skeleton: Any, leaves: tuple[Any, ...]) -> Structure:
    return _core.from_skeleton(registry, _HOLE, skeleton, leaves)


def _unpickle(parts: bytes) -> Structure:
    return _from_parts(*pickle.loads(parts))


def _missing() -> Any:
    return registry.missing


copyreg.pickle(Structure, _reduce)
