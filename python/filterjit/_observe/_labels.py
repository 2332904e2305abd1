"""What the variants of a function are called in a report: by what tells them apart."""

from collections import Counter
from collections.abc import Sequence

from .. import _core
from .._base._errors import format_path, short
from .._base._unwrap import is_function
from .._trees._nodes import Node, tree_of, walk
from .._trees._registry import registry
from ._compare import StructureComparison
from ._words import describe_node

_MOST = 20  # variants; others are not shown


def labels_of(variants: Sequence[_core.Variant]) -> list[str]:
    """Returns for each variant the leaves, other than arrays, in which it differs from others: ``n=2, model.depth=3``.

    Where these are the same in words, such as two lambdas, it has a number and their paths.
    """
    leaves = [
        {
            format_path(path): _brief(node)
            for node, path in walk(variant.structure)
            if _is_told(node)
        }
        for variant in variants[:_MOST]
    ]
    counts = Counter(item for one in leaves for item in one.items())
    labels = [
        ", ".join(
            f"{path}={text}" for path, text in one.items() if counts[path, text] < len(leaves)
        )
        for one in leaves
    ]
    repeated = {label for label, n in Counter(labels).items() if n > 1} | {""}
    found = [
        f"variant {i + 1}: {_other_paths(variants, i)}" if label in repeated else label
        for i, label in enumerate(labels)
    ]
    return found + [f"variant {i + 1}" for i in range(len(labels), len(variants))]


def _other_paths(variants: Sequence[_core.Variant], i: int) -> str:
    """Returns where a variant differs from the first other one."""
    comparison = StructureComparison(registry)
    other = variants[0 if i else min(1, len(variants) - 1)]
    comparison.compare(tree_of(other.structure), tree_of(variants[i].structure))
    return ", ".join(cause.path for cause in comparison.causes[:3])


def _is_told(node: Node) -> bool:
    return not node.children and node.kind != "array"


def _brief(node: Node) -> str:
    if node.kind != "static":
        return describe_node(node, None)
    x = node.detail
    if is_function(x) or isinstance(x, type):
        return str(getattr(x, "__name__", None) or short(x, 40))
    return short(x, 40)
