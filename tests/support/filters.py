"""Helpers for the tests of filters of leaves."""

from collections.abc import Callable
from typing import Any

import equinox as eqx

import filterjit as fj

IS_LEAF: list[Callable[[Any], bool] | None] = [
    None,
    lambda x: x is None,
    lambda x: True,
    lambda x: False,
    lambda x: isinstance(x, (list, dict)),
    lambda x: isinstance(x, eqx.Module),
]


def is_text(x: Any) -> bool:
    return isinstance(x, str)


def taken(tree: Any, filter: Any, **kwargs: Any) -> list[str]:
    """Returns the paths of the leaves that a filter takes."""
    nothing = object()
    part = fj.partition(tree, filter, replace=nothing, **kwargs)[0]
    leaves = zip(fj.tree_paths(tree), fj.flatten(part, True)[0], strict=True)
    return [path for path, x in leaves if x is not nothing]
