"""Splits trees by filters, and combines trees."""

from typing import Any, TypeVar, overload

from .. import _core
from .._base._checks import check_bool
from .._base._package import public
from ._filters import as_expression, entry_expression
from ._registry import registry
from ._tree_functions import IsLeaf, flatten

_T = TypeVar("_T")


# Each part is typed like the tree: it has the same class, with None in place of leaves.
@overload
def partition(
    tree: _T, filter: Any, /, *, is_leaf: IsLeaf = None, replace: Any = None
) -> tuple[_T, _T]: ...


@overload
def partition(
    tree: _T, first: Any, second: Any, /, *, is_leaf: IsLeaf = None, replace: Any = None
) -> tuple[_T, _T, _T]: ...


@overload
def partition(
    tree: _T, *filters: Any, is_leaf: IsLeaf = None, replace: Any = None
) -> tuple[_T, ...]: ...


@public
def partition(
    tree: Any, *filters: Any, is_leaf: IsLeaf = None, replace: Any = None
) -> tuple[Any, ...]:
    """Splits a tree: each leaf goes to the tree of the first filter that takes it.

    With one filter, this is ``equinox.partition``.

    Arguments:
        tree: any pytree.
        filters: filters, see `Filter`.
        is_leaf: a function ``node -> bool``. Nodes for which it returns True are leaves.
        replace: the value to put in a tree for the leaves that went to a different tree.

    Returns:
        A tuple of ``len(filters) + 1`` trees with the structure of `tree`. The last one has the
        leaves that no filter takes. If `replace` is None, `combine` restores `tree` from them.

    Raises:
        ValueError: if one of `filters` isn't a filter, a tree of filters isn't a prefix of `tree`,
            or a path pattern matches no leaf.
        TypeError: if a filter function returned None. Its own exceptions are passed on, with a note
            that names the leaf.

    Examples:
        >>> model = eqx.nn.Linear(2, 1, key=jax.random.key(0))
        >>> weights, rest = partition(model, "**.weight")
        >>> tree_paths(weights), tree_paths(rest)
        (['weight'], ['bias'])
    """
    expressions = _expressions("partition", filters)
    match expressions:
        case (("tree", *_),) if is_leaf is not None:
            return _partition_by_tree(tree, filters[0], is_leaf, replace)
    return _core.partition(registry, tree, expressions, is_leaf, replace)


def _expressions(function: str, filters: tuple[Any, ...]) -> tuple[Any, ...]:
    # From a list: before Python 3.14, other threads can see a tuple while an iterator fills it.
    return tuple([as_expression(f, f"filter {i} of `{function}`") for i, f in enumerate(filters)])


def _partition_by_tree(tree: Any, spec: Any, is_leaf: IsLeaf, replace: Any) -> tuple[Any, Any]:
    """Partitions by a tree of filters. Calls `is_leaf` only for nodes below that tree's leaves."""
    specs, structure = flatten(spec, True)
    subtrees = structure._subtrees(tree)
    parts = [
        _core.partition(registry, subtree, (entry_expression(spec),), is_leaf, replace)
        for spec, subtree in zip(specs, subtrees, strict=True)
    ]
    return structure.unflatten(p[0] for p in parts), structure.unflatten(p[1] for p in parts)


# The trees can differ in their containers' element types, because some leaves are None.
@overload
def combine(tree: None, /, *trees: Any, is_leaf: IsLeaf = None, strict: bool = False) -> Any: ...


@overload
def combine(tree: _T, /, *trees: Any, is_leaf: IsLeaf = None, strict: bool = False) -> _T: ...


@public
def combine(*trees: Any, is_leaf: IsLeaf = None, strict: bool = False) -> Any:
    """Combines trees into one, with the first non-None value for each leaf.

    This is ``equinox.combine``.

    Arguments:
        trees: at least one tree, all of the same structure. None can stand for a leaf.
        is_leaf: as in `partition`.
        strict: whether to raise if two trees have a leaf in the same place.

    Returns:
        The combined tree.

    Raises:
        ValueError: if the structures differ; or, with `strict`, if two trees have a leaf in the
            same place. The message names the path.
        TypeError: if `trees` is empty.

    Examples:
        >>> combine({"a": 1, "b": None}, {"a": None, "b": 2})
        {'a': 1, 'b': 2}
    """
    check_bool("combine(..., strict=...)", strict)
    return _core.combine(registry, trees, is_leaf, strict)


@public
def partition_dict(
    tree: _T, *filters: Any, is_leaf: IsLeaf = None
) -> tuple[_core.Structure[_T], *tuple[dict[str, Any], ...]]:
    """Splits a tree into flat dicts of its arrays and a structure with everything else.

    Arguments:
        tree: any pytree.
        filters: as in `partition`, but only for arrays. All other leaves go to the structure.
        is_leaf: as in `partition`.

    Returns:
        ``(structure, *groups)``. The groups are ``len(filters) + 1`` dicts from the path of an
        array (``"layers.0.weight"``, see `tree_paths`) to the array, in the order of the tree.
        ``structure.combine(*groups)`` rebuilds the tree from the dicts' current arrays.

    Raises:
        ValueError: like `partition`; or if two arrays have the same path, as in
            ``{"a.b": x, "a": {"b": y}}``.
        TypeError: like `partition`.

    Examples:
        >>> structure, weights, others = partition_dict({"w": jnp.ones(2), "b": 0.5, "n": 3}, "w")
        >>> weights, others
        ({'w': Array([1., 1.], dtype=float32)}, {})
        >>> structure.combine(others, {"w": "another"})
        {'b': 0.5, 'n': 3, 'w': 'another'}
    """
    expressions = _expressions("partition_dict", filters)
    arrays, structure, groups = groups_of_arrays(tree, expressions, is_leaf)
    parts: list[dict[str, Any]] = [{} for _ in range(len(filters) + 1)]
    for path, array, group in zip(structure.paths, arrays, groups, strict=True):
        parts[group][path] = array
    return structure, *parts


def groups_of_arrays(
    tree: _T, expressions: tuple[Any, ...], is_leaf: IsLeaf
) -> tuple[list[Any], _core.Structure[_T], list[int]]:
    """Returns the arrays of a tree, the structure of everything else, and for each array the index
    of the first expression that takes it (``len(expressions)`` for none). Raises ValueError if two
    arrays have the same path."""
    found = _core.tree_groups(registry, tree, ("arrays",), expressions, is_leaf)
    paths = found[1].paths
    if len(set(paths)) != len(paths):
        path = next(path for i, path in enumerate(paths) if path in paths[:i])
        raise ValueError(f"two leaves have the path {path!r}: their keys look the same as text")
    return found
