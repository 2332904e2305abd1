"""The labels of a function's programs in a report: the statics and shapes that differ."""

from collections.abc import Sequence

from .. import _core
from .._base._arrays import Aval
from .._base._errors import format_path, short_repr
from .._base._unwrap import is_function
from .._trees._nodes import Nodes
from ._wording import LONGEST, briefly, describe_node, place_of

_MOST = 20  # programs with labels
_MOST_NODES = 1000  # differences from the first program
_WIDTH = 40  # characters of a value

Program = tuple[_core.Structure, tuple[Aval, ...]]
"""A structure, and the avals of its arrays. Avals are compared if both programs have them."""


def labels_of(programs: Sequence[Program]) -> list[str]:
    """Returns a label for each program with what differs: ``n=2, x=float32[8]``. Long values are
    cut off."""
    if not programs:
        return []
    first, *rest = programs[:_MOST]
    of_first: dict[str, str] = {}
    others = [_differences(first, other, of_first) for other in rest]
    labels = _told_apart([of_first, *(of_first | found for found in others)])
    return labels + [f"variant {i}" for i in range(len(labels) + 1, len(programs) + 1)]


def _differences(first: Program, other: Program, of_first: dict[str, str]) -> dict[str, str]:
    """Describes the nodes that differ from `first`, by path. Adds `first`'s own to `of_first`."""
    found = {}
    nodes, other_nodes = Nodes(first[0]), Nodes(other[0])
    for i, j in nodes.differences(other_nodes, first[1], other[1], _MOST_NODES)[0]:
        of_first.setdefault(*_place_and_text(nodes, i, first[1]))
        place, text = _place_and_text(other_nodes, j, other[1])
        found[place] = text
    return found


def _place_and_text(nodes: Nodes, index: int, avals: Sequence[Aval]) -> tuple[str, str]:
    node = nodes[index]
    x, path = node.detail, format_path(nodes.structure._key_path(index))
    if node.kind != "static":
        return path, describe_node(node, avals).removeprefix("an array ")
    if not (is_function(x) or isinstance(x, type)):
        return path, short_repr(x, LONGEST)
    name = str(getattr(x, "__name__", None) or short_repr(x, _WIDTH))
    return path, f"{name} of {place_of(x)}" if name == "<lambda>" else name


def _told_apart(values: Sequence[dict[str, str]]) -> list[str]:
    """Returns a label like ``n=2, depth=3`` for each dict of texts by path. Of the paths that tell
    the same dicts apart, uses the shortest. Equal labels get a number instead of the texts."""

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
    labels = [
        ", ".join(f"{path}={cut[path][one[path]]}" for path in cut if path in one) for one in values
    ]
    paths = ", ".join(cut)
    return [
        label if label and labels.count(label) == 1 else f"variant {i}" + (paths and f": {paths}")
        for i, label in enumerate(labels, 1)
    ]
