"""Checks of objects: nodes whose attributes the core reads and sets by name."""

from typing import Any

from core_support import Array, Described, Object, core, identical, layout, testing
from outcome_support import attempt


def attributes(x: Any, static: bool = True) -> tuple[str, ...]:
    """The names of the dynamic and, unless `static` is False, the static attributes."""
    found: Any = x.describe() if isinstance(x, Described) else x.layout
    return (*found[0], *(found[1] if static else ()))


def check_walks(registry: Any, structure: Any, tree: Any) -> None:
    """The walks agree on a tree that may have changed, and so does `getattr`."""
    flat = attempt(core.flatten, registry, tree)
    match = attempt(testing.match, structure, tree)
    if isinstance(flat, Exception):
        # A match may end at an earlier difference.
        assert match is None or type(match) is type(flat), (flat, match)
        return
    assert not isinstance(match, Exception), match
    arrays, other = flat
    assert (match is not None) == (other == structure), (match, other, structure)
    assert match is None or identical(match, arrays)
    leaves, outer = core.tree_flatten(registry, tree, True, None)
    assert identical(outer._subtrees(tree), leaves)
    for node in tree:
        seen: list[Any] = []
        for name in attributes(node, static=False):
            value = getattr(node, name)
            # A held dict stands in the place of the object.
            seen += value.values() if type(value) is dict else [value]
        found = [x for x in seen if isinstance(x, Array)]
        assert all(any(x is y for y in arrays) for x in found)


NAMES = ("x", "y", "tag")
SPACES: dict[str, dict[str, Any]] = {
    "dict": {},
    "slots": {"__slots__": NAMES},
    "slots and dict": {"__slots__": ("__dict__", "spare", *NAMES)},
    "dict and a slot": {"__slots__": ("__dict__", "spare")},
    "mixed": {"__slots__": ("__dict__", "spare", "x")},
}


def new_class(space: str, mode: str = "fill") -> Any:
    meta = type("Meta", (type,), {})
    details = {"layout": layout(("x", "y"), ("tag",), mode=mode)}
    return meta("Changing", (Object,), {**details, **SPACES[space]})
