"""The labels of a function's variants in a report: the arguments that differ."""

from collections import Counter
from collections.abc import Sequence

from .. import _core
from .._base._errors import format_path, short_repr
from .._base._unwrap import is_function
from .._trees._nodes import Node, Nodes
from .._trees._registry import registry
from ._compare import Comparison
from ._wording import LONGEST, briefly, describe_node, place_of

_MOST = 20  # variants with labels
_MOST_NODES = 1000  # differences from the first variant
_WIDTH = 40  # characters of a value


def labels_of(variants: Sequence[_core.Variant]) -> list[str]:
    """Returns a label for each variant with the statics that differ: ``n=2, model.depth=3``.

    Long labels are cut off. If the values look the same, as for two lambdas, the label has a number
    and their paths.
    """
    structures = [variant.structure for variant in variants[:_MOST]]
    if not structures:
        return []
    of_first: dict[str, str] = {}
    of_others = [_differences(structures[0], other, of_first) for other in structures[1:]]
    values = [of_first, *(of_first | found for found in of_others)]
    labels = told_apart(values)
    repeated = {label for label, n in Counter(labels).items() if n > 1} | {""}
    found = [
        f"variant {i + 1}{_other_paths(variants, i)}" if label in repeated else label
        for i, label in enumerate(labels)
    ]
    return found + [f"variant {i + 1}" for i in range(len(labels), len(variants))]


def _differences(
    first: _core.Structure, other: _core.Structure, of_first: dict[str, str]
) -> dict[str, str]:
    """Describes the nodes that differ from `first`, by path. Adds `first`'s own to `of_first`."""
    found = {}
    nodes, other_nodes = Nodes(first), Nodes(other)
    for i, j in nodes.differences(other_nodes, most=_MOST_NODES)[0]:
        of_first.setdefault(*_place_and_text(nodes, i))
        place, text = _place_and_text(other_nodes, j)
        found[place] = text
    return found


def _place_and_text(nodes: Nodes, index: int) -> tuple[str, str]:
    return format_path(nodes.structure._key_path(index)), _text(nodes[index])


def told_apart(values: Sequence[dict[str, str]]) -> list[str]:
    """Returns a label like ``n=2, depth=3`` for each dict of texts by path. Of the paths that tell
    the same dicts apart, uses the shortest."""

    def longest(path: str) -> int:
        return len(path) + max(len(one.get(path, "")) for one in values)

    chosen: dict[tuple[int, ...], str] = {}
    for path in sorted(dict.fromkeys(path for one in values for path in one), key=longest):
        texts = [one.get(path) for one in values]
        chosen.setdefault(tuple(map(texts.index, texts)), path)
    cut = {
        path: briefly({one[path] for one in values if path in one}, _WIDTH)
        for path in chosen.values()
    }
    return [
        ", ".join(f"{path}={cut[path][one[path]]}" for path in cut if path in one) for one in values
    ]


def _other_paths(variants: Sequence[_core.Variant], i: int) -> str:
    """Returns ": " and the paths that differ from the first other variant, or ""."""
    other = variants[0 if i else min(1, len(variants) - 1)]
    comparison = Comparison(registry, other.structure, variants[i].structure)
    paths = ", ".join(cause.path for cause in comparison.causes[:3])
    return f": {paths}" if paths else ""


def _text(node: Node) -> str:
    if node.kind != "static":
        return describe_node(node, None)
    x = node.detail
    if not (is_function(x) or isinstance(x, type)):
        return short_repr(x, LONGEST)
    name = str(getattr(x, "__name__", None) or short_repr(x, _WIDTH))
    return f"{name} of {place_of(x)}" if name == "<lambda>" else name
