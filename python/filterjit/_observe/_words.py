"""How explanations and reports write values, places in source files, and sizes."""

import functools
import os
import types
from collections.abc import Sequence
from typing import Any

from .._base._errors import short
from .._trees._nodes import Node

shorten = functools.partial(short, most=60)
"""The repr of any value, cut off after 60 characters."""


def class_name(cls: Any) -> str:
    return str(getattr(cls, "__qualname__", None) or repr(cls))


def file_and_line(file: str, line: int) -> str:
    return f"{os.path.basename(file)}:{line}"


def source_of(fun: Any) -> str:
    """Returns the file and line where a function is defined; an empty text if it has no code
    object."""
    code = getattr(fun, "__code__", None)
    return "" if code is None else file_and_line(code.co_filename, code.co_firstlineno)


def describe(x: Any) -> str:
    """Returns a static value in words."""
    if isinstance(x, types.FunctionType):
        return f"the function `{x.__qualname__}` of {source_of(x)}"
    if isinstance(x, types.MethodType):
        name = getattr(x.__func__, "__qualname__", None) or shorten(x.__func__)  # any callable
        return f"`{name}` of the {class_name(type(x.__self__))} at {id(x.__self__):#x}"
    if isinstance(x, (bool, int, float, complex, str, bytes, type(None))):
        return f"the {type(x).__name__} {shorten(x)}" if x is not None else "None"
    name = getattr(x, "__qualname__", None) or getattr(x, "__name__", None)
    if callable(x) and isinstance(name, str):  # for example `jax.nn.relu`
        return f"the {class_name(type(x))} `{name}`"
    return f"{shorten(x)} of type `{class_name(type(x))}`"


def show_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' * (n != 1)}"


def describe_node(node: Node, avals: Sequence[Any] | None) -> str:
    """Returns a node in words; `avals` are those of all arrays, or None."""
    match node.kind:
        case "array":
            if not avals or node.array >= len(avals):
                return "an array"
            return f"an array {avals[node.array]}"
        case "static":
            return describe(node.detail)
        case "none":
            return "None"
        case "missing":
            return "not given"
        case "ref":
            return f"the same object as {node.detail}"
        case "tuple" | "list":
            return f"a {node.kind} of {len(node.children)}"
    return f"a {class_name(node.type)}"
