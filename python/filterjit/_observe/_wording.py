"""Formats values, places in source files, and sizes for explanations and reports."""

import enum
import functools
import itertools
import os
import types
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from .. import _core
from .._base._errors import short_repr
from .._base._package import is_installed
from .._base._unwrap import code_of, is_function
from .._terminal._notebook import cell_of
from .._trees._nodes import Node

NOT_GIVEN = "not given"
"""Describes an argument that a call omits."""

_WIDTH = 60
LONGEST = 10_000  # characters of a value to compare

shorten = functools.partial(short_repr, most=_WIDTH)
"""The repr of any value, cut to 60 characters."""


def briefly(texts: Collection[str], width: int, begin: int = 0) -> dict[str, str]:
    """Cuts texts to about `width` characters around their difference, after `begin` characters."""
    cut = {text: text if len(text) <= width else text[: width - 3] + "..." for text in texts}
    if len({*cut.values()}) == len(texts):
        return cut
    alike = itertools.takewhile(lambda at: len({*at}) == 1, zip(*texts, strict=False))
    same = sum(1 for _ in alike)
    at = max(begin, same - width // 4)
    return {
        text: f"{text[:begin]}...{text[at : at + width]}" + "..." * (len(text) > at + width)
        for text in texts
    }


def in_words(x: Any, y: Any, show: Callable[[Any, int], str]) -> tuple[str, str]:
    """Formats two values by `show`, cut so that their difference is visible."""
    was, now = show(x, _WIDTH), show(y, _WIDTH)
    if was == now and (long := (show(x, LONGEST), show(y, LONGEST)))[0] != long[1]:
        cut = briefly(long, _WIDTH, _WIDTH // 4)
        return cut[long[0]], cut[long[1]]
    return was, now


def class_name(cls: Any) -> str:
    return str(getattr(cls, "__qualname__", None) or repr(cls))


def file_and_line(file: str, line: int) -> str:
    """Returns a place, such as ``train.py:3``, or ``In [2], line 3`` in a notebook."""
    cell = cell_of(file)
    return f"{os.path.basename(file)}:{line}" if cell is None else f"{cell}, line {line}"


def place_of(fun: Any) -> str:
    """Returns the file and line of the user's function below its decorators, or ""."""
    code = code_of(fun)
    return "" if code is None else file_and_line(code.co_filename, code.co_firstlineno)


def dtype_of(x: Any) -> np.dtype[Any] | None:
    """Returns the dtype that `x` is or means, as ``jnp.float32`` does; otherwise None."""
    if isinstance(x, np.dtype):
        return x
    if isinstance(x, type) and not issubclass(x, np.generic):
        x = getattr(x, "dtype", None)
        return x if isinstance(x, np.dtype) else None
    return np.dtype(x) if isinstance(x, type) and x.__subclasses__() == [] else None


def is_of_library(fun: Any) -> bool:
    """True for functions of installed libraries, or that aren't written in Python."""
    code = code_of(fun)
    return code is None or is_installed(code.co_filename)


def _describe_function(x: Any) -> str:
    if isinstance(x, functools.partial):
        return f"a partial of {describe(x.func)}"
    name = getattr(x, "__qualname__", None) or getattr(x, "__name__", None)
    place = "" if is_of_library(x) else f" of {place_of(x)}"
    return f"the function `{name if isinstance(name, str) else shorten(x)}`{place}"


def describe(x: Any, most: int = _WIDTH) -> str:
    """Describes a static value in about `most` characters."""
    if x is None or isinstance(x, bool):
        return str(x)
    if isinstance(x, enum.Enum):
        return f"`{x}`"
    if isinstance(x, types.MethodType | _core.BoundMethod):
        name = getattr(x.__func__, "__qualname__", None) or shorten(x.__func__)  # any callable
        return f"`{name}` of the {class_name(type(x.__self__))} at {id(x.__self__):#x}"
    if isinstance(x, (int, float, complex, str, bytes)):
        return f"the {type(x).__name__} {short_repr(x, most)}"
    if isinstance(x, os.PathLike):
        return f"the path {short_repr(os.fspath(x), most)}"
    if (dtype := dtype_of(x)) is not None:
        return f"the dtype {dtype}"
    if isinstance(x, type):
        return f"the class `{class_name(x)}`"
    if is_function(x):
        return _describe_function(x)
    name = class_name(type(x))
    own_repr: Any = type(x).__repr__
    if own_repr is object.__repr__:
        return f"the {name} at {id(x):#x}"
    text = short_repr(x, most)
    known = text.startswith(type(x).__name__) or type(x) in (list, dict, set, frozenset, tuple)
    return text if known else f"{text} of type `{name}`"


def show_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def show_seconds(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f} s"
    return f"{value:.2f} s" if value >= 0.9995 else f"{1e3 * value:.1f} ms"


def shorten_name(name: str) -> str:
    return name if len(name) <= 40 else "..." + name[-37:]


def count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' * (n != 1)}"


def list_first(
    items: Sequence[Any], most: int, separator: str = ", ", show: Callable[[Any], str] = str
) -> str:
    """Joins the first items, and counts the rest."""
    shown = separator.join(map(show, items[:most]))
    return shown + (f" and {len(items) - most:,} more" if len(items) > most else "")


def describe_node(node: Node, avals: Sequence[Any] | None) -> str:
    """Describes a node. `avals` are the avals of all arrays, or None."""
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
            return NOT_GIVEN
        case "ref":
            return f"the same object as {node.detail}"
        case "tuple" | "list":
            items = count(node.arity, "item")
            return f"a {node.kind} of {items}" if node.arity else f"an empty {node.kind}"
    return f"a {class_name(node.type)}"
