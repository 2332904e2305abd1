"""Trees apart and together again: what ``jax.tree_util`` does, by the C core.

What is a node, and in which order its children come, is as JAX has it registered.
"""

import copyreg
import io
import pickle
from collections.abc import Callable, Iterable
from typing import Any

from .. import _core
from ._filters import as_program, is_array
from ._registry import registry

Structure = _core.Structure
IsLeaf = Callable[[Any], Any] | None


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree, in order: ``jax.tree_util.tree_leaves``.

    Arguments:
        tree: any pytree.
        is_leaf: a function of a node that says whether it counts as a leaf, though it is none.
    """
    return _core.tree_leaves(registry, tree, is_leaf)


def tree_paths(tree: Any, is_leaf: IsLeaf = None) -> list[str]:
    """The path of each leaf, in order, such as ``"layers.0.weight"``.

    They are what ``jax.tree_util.keystr(path, simple=True, separator=".")`` gives for the paths
    of ``jax.tree_util.tree_leaves_with_path``.
    """
    return _core.tree_paths(registry, tree, is_leaf)


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """A tree of the same structure with ``f(leaf)`` for each leaf: ``jax.tree_util.tree_map``.

    Arguments:
        f: called with a leaf of `tree` and what each of `rest` has in its place.
        tree: any pytree.
        rest: trees that `tree`'s structure is a prefix of.
        is_leaf: as in `tree_leaves`, for `tree`.

    Raises:
        ValueError: one of `rest` is another tree; the message says where.
    """
    return _core.tree_map(registry, f, (tree, *rest), is_leaf)


def flatten(
    tree: Any, filter: Any = is_array, *, is_leaf: IsLeaf = None
) -> tuple[list[Any], Structure]:
    """The leaves that a filter takes, and a structure that holds everything else.

    Arguments:
        tree: any pytree.
        filter: any filter, see `Filter`; ``True`` takes all leaves, as ``jax.tree_util`` does.
        is_leaf: as in `tree_leaves`.

    Returns:
        ``(leaves, structure)``. The structure is hashable where the leaves in it are, it compares
        exactly by type and value as the statics of `filter_jit` do, it can be pickled where they
        can, and ``unflatten(structure, leaves)`` is the tree again.
    """
    program = True if filter is True else as_program(filter)
    return _core.tree_flatten(registry, tree, program, is_leaf)


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The tree of a structure with these leaves.

    Raises:
        ValueError: they are too few or too many.
    """
    return structure.unflatten(leaves)


def flatten_up_to(structure: Structure, tree: Any) -> list[Any]:
    """What `tree` has in the place of each leaf of a structure: a leaf, or a whole subtree.

    What it has in the places of statics is not looked at.

    Raises:
        ValueError: the structure is no prefix of the tree; the message says where.
    """
    return structure.flatten_up_to(tree)


class _Hole:
    """Stands for each leaf while a structure is pickled."""

    def __reduce__(self) -> str:
        return "_HOLE"


_HOLE = _Hole()


class _Pickler(pickle.Pickler):
    """Equinox's sentinel for a field that is not there would be pickled by value, and be another."""

    def reducer_override(self, x: Any) -> Any:
        return (_missing, ()) if x is registry.missing else NotImplemented


def _reduce(structure: Structure) -> tuple[Any, ...]:
    parts = structure._parts(_HOLE)
    if not any(kind == "missing" for kind, *_ in structure._nodes()):
        return _from_parts, parts
    buffer = io.BytesIO()
    _Pickler(buffer).dump(parts)
    return _unpickle, (buffer.getvalue(),)


def _from_parts(skeleton: Any, statics: list[Any] | None) -> Structure:
    return _core.from_parts(registry, _HOLE, skeleton, statics)


def _unpickle(parts: bytes) -> Structure:
    return _from_parts(*pickle.loads(parts))


def _missing() -> Any:
    return registry.missing


copyreg.pickle(Structure, _reduce)
