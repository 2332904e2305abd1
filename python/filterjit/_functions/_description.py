"""`Description`: what functions and classes can use, as named texts, and what differs in two of them.

A file has them, and `difference` tells what has changed since it was written, by its name: "the
default of `scale` in `model.act`", "the class constant `model.Config.width`". What cannot be
described is a doubt, with the path to it and the reason.
"""

import collections
import dataclasses
import hashlib
import types
from collections.abc import Iterable, Sequence
from typing import Any

from ._describe import Part

PACKAGE = "the version of "
_LONGEST = 60  # of a text that stands for itself


@dataclasses.dataclass(frozen=True)
class Doubt:
    """Something that cannot be described: the path to it, such as ``model.CONFIG`` or
    ``model.act.__closure__['k']``, and the reason."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"`{self.path}`: {self.reason}"


@dataclasses.dataclass(frozen=True)
class Description:
    """What functions and classes can use.

    Attributes:
        parts: pairs of a name and a text that is equal as long as it has not changed.
        doubts: what is not in the parts.
        codes: the code of the functions that were found, with the code nested in it.
        roots: the texts of what was described.
        names: the names in the code.
        packages: the top-level modules of the installed packages that were found.
        results: where results of earlier calls were found, in an ``lru_cache`` or the value of a
            ``cached_property``, by the address of the object and the name.
        data: the names of values that can have been others before: globals, constants of classes,
            attributes, and what can change in place.
        jitted: functions that JAX keeps traces of.
    """

    parts: Sequence[tuple[str, str]]
    doubts: Sequence[Doubt]
    codes: frozenset[types.CodeType]
    roots: Sequence[str]
    names: frozenset[str]
    packages: frozenset[str]
    results: frozenset[tuple[int, str]] = frozenset()
    data: Sequence[str] = ()
    jitted: Sequence[Any] = ()


def difference(
    before: Iterable[Sequence[str]],
    now: Iterable[Sequence[str]],
    *,
    versions: bool = True,
    bytecode: bool = True,
) -> str | None:
    """Returns what is the first to differ in the parts of two descriptions, and how; None if nothing
    does.

    Arguments:
        before: the parts of one description.
        now: the parts of the other.
        versions: whether the versions of packages are compared.
        bytecode: whether the same version of Python has made both. Otherwise only plain values
            are compared.
    """
    rest: dict[str, collections.deque[str]] = {}
    for name, text in now:
        rest.setdefault(name, collections.deque()).append(text)
    for name, text in before:
        other = rest[name].popleft() if rest.get(name) else None
        plain = _is_plain(text) and other is not None and _is_plain(other)
        package = name.startswith(PACKAGE)
        if other != text and (plain or bytecode) and (versions or not package):
            return f"{name} {_how(text, other)}"
    for name, texts in rest.items():
        if texts and bytecode and (versions or not name.startswith(PACKAGE)):
            return f"{name} is new"
    return None


def _how(before: str, now: str | None) -> str:
    if now is None:
        return "is gone"
    if not (_is_plain(before) and _is_plain(now)):
        return "has changed"
    was, is_now = before.partition(" "), now.partition(" ")
    if was[0] == is_now[0]:
        return f"was {was[2]}, is {is_now[2]}"
    return f"was the {was[0]} {was[2]}, is the {is_now[0]} {is_now[2]}"


def _is_plain(text: str) -> bool:
    return text.partition(" ")[0] in _PLAIN


_PLAIN = {"int", "float", "complex", "bool", "str", "bytes", "NoneType", "package"}


def text_of(part: Part) -> str:
    """Returns a text of a part that is short: of a long one, a digest."""
    text = _text(part)
    if len(text) <= _LONGEST:
        return text
    return f"sha256 {hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()[:32]}"


def _text(part: Part) -> str:
    cls = type(part)
    if cls is tuple:
        return f"({', '.join(map(_text, part))})"
    if cls is bytes and len(part) > _LONGEST:
        return f"bytes {hashlib.sha256(part).hexdigest()}"
    if cls is int and abs(part) >= 1 << 64:
        return f"int {part:#x}"  # str refuses long ones
    if cls is Short:
        return str(part)
    return f"{cls.__name__} {part!r}"


class Short(str):
    """The text of a part, where a value is met more than once."""

    __slots__ = ()
