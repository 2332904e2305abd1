"""Helpers for the tests of filters of leaves."""

from typing import Any

import filterjit as fj


def is_text(x: Any) -> bool:
    return isinstance(x, str)


def taken(tree: Any, filter: Any, **kwargs: Any) -> list[str]:
    """Returns the paths of the leaves that a filter takes."""
    nothing = object()
    part = fj.partition(tree, filter, replace=nothing, **kwargs)[0]
    leaves = zip(fj.tree_paths(tree), fj.flatten(part, True)[0], strict=True)
    return [path for path, x in leaves if x is not nothing]
