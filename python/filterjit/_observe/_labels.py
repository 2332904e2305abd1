"""What the variants of a function are called in a report: by what tells them apart."""

from collections import Counter
from collections.abc import Sequence

from .. import _core
from .._base._errors import format_path, short
from .._base._unwrap import is_function
from .._trees._nodes import Node, walk
from ._words import class_name, describe_node

_MOST = 20  # variants; others are not shown


def labels_of(variants: Sequence[_core.Variant]) -> list[str]:
    """Returns for each variant the leaves in which it differs from others: ``n=2, model.depth=3``.

    Those in which no leaf does, in words, have numbers.
    """
    leaves = [
        {
            format_path(path): _brief(node)
            for node, path in walk(variant.structure)
            if _is_leaf(node)
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
    return [
        f"variant {i + 1}" + f": {label}" * bool(label) if label in repeated else label
        for i, label in enumerate([*labels, *[""] * (len(variants) - len(labels))])
    ]


def _is_leaf(node: Node) -> bool:
    return not node.children


def _brief(node: Node) -> str:
    if node.kind != "static":
        return describe_node(node, None)
    x = node.detail
    if is_function(x) or isinstance(x, type):
        return class_name(x)
    return short(x, 40)
