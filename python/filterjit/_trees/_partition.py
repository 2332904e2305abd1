"""A tree in several parts by what its leaves are or where they stand, and together again."""

from typing import Any

from .. import _core
from ._filters import as_program, part_program
from ._registry import registry
from ._tree_functions import IsLeaf, flatten


def partition(
    tree: Any, *filters: Any, is_leaf: IsLeaf = None, replace: Any = None
) -> tuple[Any, ...]:
    """A tree in parts: each leaf goes to the first filter that takes it, the rest to the last.

    Arguments:
        tree: any pytree.
        filters: see `Filter` for what a filter may be. With one it is ``equinox.partition``.
        is_leaf: a function of a node that says whether it counts as a leaf, though it is none.
        replace: what stands in the other parts in a leaf's place.

    Returns:
        ``len(filters) + 1`` trees of the structure of `tree`. `combine` undoes it.

    Raises:
        ValueError: something is no filter, a tree of filters is no prefix of `tree`, or a path
            pattern names an inner node.
        TypeError: a function returned None. Whatever else a filter raises is passed on, with a
            note of the leaf it was asked about.
    """
    programs = tuple(map(as_program, filters))
    if is_leaf is not None and len(programs) == 1 and _is_tree(programs[0]):
        return _partition_by_tree(tree, filters[0], is_leaf, replace)
    return _core.partition(registry, tree, programs, is_leaf, replace)


def _is_tree(program: Any) -> bool:
    return isinstance(program, tuple) and program[0] == "tree"


def _partition_by_tree(tree: Any, spec: Any, is_leaf: IsLeaf, replace: Any) -> tuple[Any, Any]:
    """By a tree of filters, where `is_leaf` is only asked from the leaves of that tree on down."""
    specs, structure = flatten(spec, True)
    subtrees = structure.flatten_up_to(tree)
    parts = [
        _core.partition(registry, subtree, (part_program(spec),), is_leaf, replace)
        for spec, subtree in zip(specs, subtrees, strict=True)
    ]
    return structure.unflatten(p[0] for p in parts), structure.unflatten(p[1] for p in parts)


def combine(*trees: Any, is_leaf: IsLeaf = None, strict: bool = False) -> Any:
    """One tree of several: each leaf is the first that is not None, as in ``equinox.combine``.

    Arguments:
        trees: at least one, of one structure; what has a leaf in one may have None in another.
        is_leaf: as in `partition`.
        strict: refuse a leaf that is in more than one tree.

    Raises:
        ValueError: the structures differ, or, with `strict`, two trees have a leaf in the same
            place; the message says where.
        TypeError: there is no tree.
    """
    return _core.combine(registry, trees, is_leaf, bool(strict))


def partition_dict(tree: Any, *filters: Any, is_leaf: IsLeaf = None) -> tuple[Any, ...]:
    """The arrays of a tree as flat dicts, and a structure that holds everything else.

    Arguments:
        tree: any pytree.
        filters: as in `partition`, but they are asked about arrays only: whatever is no array is
            in the structure.
        is_leaf: as in `partition`.

    Returns:
        ``(structure, *groups)``: ``len(filters) + 1`` dicts from path (``"layers.0.weight"``, see
        `tree_paths`) to array, in the order of the tree. ``structure.combine(*groups)`` is the
        tree again, with whatever arrays the dicts then hold.

    Raises:
        ValueError: as `partition`, or two arrays have the same path (``{"a.b": x, "a": {"b":
            y}}``).
    """
    programs = tuple(map(as_program, filters))
    return _core.partition_dict(registry, tree, ("arrays",), programs, is_leaf)
