"""Formats text about a Structure: paths, its repr, errors and notes.

The C core calls these functions as the `messages` of a Registry. This module imports only the standard
library, because the core's tests run without JAX.
"""

import dataclasses
import difflib
import re
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .. import _core

# ---- paths ----


def format_path(path: Sequence[Any]) -> str:
    """Formats ``["model", "layers", (2,), "activation"]`` as ``model.layers[2].activation``."""
    text = ""
    for key in path:
        if isinstance(key, tuple):
            text += f"[{key[0]!r}]"
        else:
            text += f".{key}" if text else str(key)
    return text


def path_text(path: Sequence[Any]) -> str:
    """Returns a path in backquotes, or "the root"."""
    return f"`{format_path(path)}`" if path else "the root"


def format_pattern(components: Sequence[Any]) -> str:
    """Formats the components of a path pattern; ``csrc/tree/pattern.h`` describes them."""
    text = ""
    for component in components:
        match component:
            case int():
                shown = f"[{component}]"
            case slice():
                bounds = (component.start, component.stop, component.step)
                shown = f"[{':'.join('' if n is None else str(n) for n in bounds)}]"
            case str() if not component or set(component) & set(".[]*?'\""):
                shown = f"[{component!r}]"
            case str():
                shown = component
            case None:
                shown = "*"
            case types.EllipsisType():
                shown = "**"
            case _:
                regex = component.__self__.pattern
                shown = re.sub(r"\\(.)", r"\1", regex.replace(".*", "*").replace(".", "?"))
        text += f".{shown}" if text and not shown.startswith("[") else shown
    return text


def no_leaf_matches(
    components: tuple[Any, ...], inner: list[Any] | None, structure: "_core.Structure"
) -> str:
    """Returns the error for a pattern that matches no leaf, only the node at `inner`, if any."""
    pattern = format_pattern(components)
    text = f"the path pattern {pattern!r} matches no leaf"
    if inner is not None:
        return (
            f"{text}, only {path_text(inner)}, which is an inner node: to take the leaves below it, "
            "add `.**` to the pattern"
        )
    leaves = [[_component(key) for key in keys] for keys in structure._key_paths()]
    # A key such as 'a.b' is written in brackets.
    written = [
        format_pattern(keys) if "." in "".join(map(str, keys)) else path
        for path, keys in zip(structure.paths, leaves, strict=True)
    ]
    meant = _meant(components, dict(zip(structure.paths, written, strict=True)), leaves)
    more = f" Did you mean {meant!r}?" if meant not in ("", pattern) else ""
    what = "is one leaf" if written == [""] else f"has {some_of(written)}"
    return f"{text}: the tree {what}.{more}"


def _component(key: Any) -> int | str:
    """Returns what a pattern has for a key of a path."""
    item = key[0] if isinstance(key, tuple) else key
    return item if type(item) in (int, str) else str(item)


def _meant(components: tuple[Any, ...], written: dict[str, str], leaves: list[list[Any]]) -> str:
    """Returns the pattern that was probably meant, or "". A pattern without wildcards must be that of a
    leaf."""
    keys = {str(key) for leaf in leaves for key in leaf}
    spelled = [_spelled(component, keys) for component in components]
    is_literal = {*map(type, components)} <= {int, str}
    if not is_literal or [*map(str, spelled)] in [[*map(str, leaf)] for leaf in leaves]:
        return format_pattern(spelled)
    if int in map(type, components):
        return ""
    text = ".".join(components).replace("/", ".")
    return "".join([written[path] for path in difflib.get_close_matches(text, written, 1, 0.8)])


def leaf_in_two_trees(path: list[Any], first: int, second: int) -> str:
    """Returns the error of `combine` for a leaf that two trees have."""
    return f"{path_text(path)} is in tree {first} and in tree {second}"


def some_of(paths: Sequence[str]) -> str:
    some = ", ".join([f"`{path}`" for path in paths[:5]]) + (", ..." if len(paths) > 5 else "")
    return some or "no leaves"


def _spelled(component: Any, keys: set[str]) -> Any:
    """Returns the key most similar to a misspelt component, otherwise the component."""
    if not isinstance(component, str) or component in keys:
        return component
    return (difflib.get_close_matches(component, keys, 1) or [component])[0]


# ---- dicts from path to leaf ----


def combine(structure: "_core.Structure", groups: tuple[Any, ...]) -> Any:
    """Builds a tree from dicts of its open leaves, for ``Structure.combine``."""
    for i, group in enumerate(groups, 1):
        if not isinstance(group, dict):
            name = type(group).__name__
            raise TypeError(f"group {i} is a `{name}`: it has to be a dict from path to leaf")
    paths = structure.paths
    leaves: dict[Any, Any] = {}
    for group in groups:
        leaves.update(group)
    try:
        found = list(map(leaves.__getitem__, paths))
    except KeyError:
        found = []
    if len(found) != len(paths) or sum(map(len, groups)) != len(paths):
        _check_groups(paths, leaves, groups)
    return structure.unflatten(found)


def _check_groups(
    paths: tuple[str, ...], leaves: dict[Any, Any], groups: tuple[dict[Any, Any], ...]
) -> None:
    """Raises ValueError unless each path is in exactly one group. `leaves` joins all `groups`."""
    missing, unknown, again = [], [], []
    for path in paths:
        if path not in leaves:
            missing.append(path)
    known, seen = set(paths), set()
    for group in groups:
        for key in group:
            if key not in known:
                unknown.append(key)
            elif key in seen and key not in again:
                again.append(key)
            seen.add(key)
    problems = _listed("missing", missing) + _listed("unknown", unknown)
    if problems := problems + _listed("in more than one group", again):
        raise ValueError(f"the groups do not fit the structure{problems}")


def _listed(what: str, paths: list[Any]) -> str:
    if not paths:
        return ""
    more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
    return f"; {what}: {paths[:10]!r}{more}"


# ---- the repr ----


def short_repr(x: Any, most: int = 80) -> str:
    """Returns a one-line repr of at most `most` characters. Raises no Exception but MemoryError."""
    try:
        text = repr(x)
    except MemoryError:
        raise
    except Exception:
        text = object.__repr__(x)
    text = re.sub(r"\s*\n\s*", " ", text)
    return text if len(text) <= most else text[: most - 3] + "..."


_MOST_CHILDREN = 10  # per node
_MOST_NODES = 120  # in total
_MOST_CHARACTERS = 63  # per value


def repr_of(structure: "_core.Structure") -> str:
    """Returns a short repr, ``Structure({'a': *, 'b': [*, 1, ... 98 more]})``. Stars: open
    leaves."""
    return f"Structure({_Repr(structure).node(0)})"


_BRACKETS = {"list": ("[", "]"), "dict": ("{", "}"), "tuple": ("(", ")"), "arguments": ("(", ")")}


@dataclasses.dataclass
class _Repr:
    structure: "_core.Structure"
    written: int = 0  # the number of nodes written

    def node(self, index: int) -> str:
        kind, arity, cls, detail, _ = self.structure._node(index)
        self.written += 1
        match kind:
            case "array":
                return "*"
            case "static":
                return short_repr(detail, _MOST_CHARACTERS)
            case "none":
                return "None"
            case "ref":
                return path_text(detail)
        start, end = _BRACKETS.get(kind) or (f"{'' if cls is None else cls.__name__}(", ")")
        children = self.children(index, kind not in ("tuple", "list", "custom"))
        comma = "," if kind == "tuple" and arity == 1 else ""
        return start + ", ".join(children) + comma + end

    def children(self, index: int, with_keys: bool) -> list[str]:
        texts: list[str] = []
        children = self.structure._children(index)
        for number, (child, key) in enumerate(children):
            if number == _MOST_CHILDREN or self.written > _MOST_NODES:
                return [*texts, f"... {len(children) - number} more"]
            if self.structure._node(child)[0] == "missing":
                continue
            if not with_keys or key is None:
                name = ""
            else:
                is_item = isinstance(key, tuple)
                name = f"{short_repr(key[0], _MOST_CHARACTERS)}: " if is_item else f"{key}="
            texts.append(name + self.node(child))
        return texts


# ---- errors ----


def difference(
    what: str,
    structure: "_core.Structure",
    index: int,
    name: str,
    model: str,
    found: Any,
    count: int,
) -> str:
    """Describes the first difference between a tree, `name`, and its prefix, `model`.

    `found` is in the tree, in place of the node `index` of the prefix's structure; `count` is its
    size if it is a tuple or list, or its number of children.
    """
    path = structure._key_path(index)
    kind, arity, cls, expected, _ = structure._node(index)
    match what:
        case "type":
            size = arity if kind in ("tuple", "list") else -1
            wanted = kind if cls is None else cls.__name__
            texts = _type_and_size(type(found).__name__, count), _type_and_size(wanted, size)
        case "attributes":
            texts = f"a `{type(found).__name__}` of other attributes", f"a `{type(found).__name__}`"
        case "keys":
            texts = f"the keys {list(found)!r}", repr(list(expected))
        case "aux data":
            texts = f"aux data {found!r}", repr(expected)
        case "children":
            texts = f"{count} children", str(arity)
        case _:
            *path, key = path
            key = key[0] if isinstance(key, tuple) else key
            if what == "value":
                texts = f"{key}={found!r}", f"{key}={expected!r}"
            else:
                texts = (f"a `{key}`", "none") if what == "more" else (f"no `{key}`", "one")
    verb = "have" if model.endswith("s") else "has"
    return (
        f"{name} differs from {model} at {path_text(path)}: it has {texts[0]}, where {model} {verb} "
        f"{texts[1]}"
    )


def _type_and_size(name: str, size: int) -> str:
    if name in ("NoneType", "none"):
        return "None"
    return f"a `{name}`" if size < 0 else f"a `{name}` of {size}"


WHILE = {
    "hash": "while hashing the static",
    "compare": "while comparing the static",
    "sort": "while sorting the keys of the dict",
    "flatten": "while flattening",
    "ask": "while a filter was asked about",
}


def note_context(exception: BaseException) -> None:
    """Turns the ``__filterjit_error_context__`` of an exception, if any, into a note."""
    context = exception.__dict__.pop("__filterjit_error_context__", None)
    match context:
        case (str() as operation, list() as path, _) if operation in WHILE:
            at = "" if path else "at "
            exception.add_note(f"({WHILE[operation]} {at}{path_text(path)})")
