"""What functions, classes and other values are, as named short texts: the same in all processes of
one version of Python, with every hash seed.

A file has them, and `difference` tells what has changed since it was written, by its name: "the
default of `scale` in `model.act`", "the class constant `model.Config.width`". The index of a program
cache has them in its keys.

The text of a value is that of its type, its contents and its attributes, or a digest of it. What is
in a function or a class of the user's, such as a default or a member, also has a name; those of
installed packages are known by their names, and other objects of theirs by what `pickle` keeps of
them. What code reads by name is not followed.
"""

import collections
import hashlib
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .._compat import _jax_compat
from . import _packages, _values
from ._values import ATOMS, Type

PYTHON = f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"

_PACKAGE = "the version of the package "
_NAMES = {
    "code": "the code of `{0}`",
    "default": "the default of `{1}` in `{0}`",
    "attribute": "the attribute `{0}.{1}`",
    "closure": "the closure value `{1}` of `{0}`",
    "metaclass": "the metaclass of `{0}`",
    "bases": "the bases of `{0}`",
    "constant": "the class constant `{0}.{1}`",
    "member": "`{0}.{1}`",
}
_OPEN = "itself"  # the text of a value within itself
_LONGEST = 60  # of a text that stands for itself
_DEEPEST = 100  # levels of values in values
# How many values are described, and how many bytes of arrays.
_MOST, _MOST_BYTES = 20_000, 1 << 28


def texts(roots: Iterable[tuple[str, Any]], *, for_file: bool = False) -> list[tuple[str, str]]:
    """Returns what values are, as pairs of a name and a text: what is in a function or a class comes
    before the functions and classes that hold it.

    It does not raise, and does not run for long: of very large values, not all is described.

    Arguments:
        roots: pairs of a name and a value.
        for_file: whether all is described, and the versions of installed packages too.
    """
    walk = _Texts(*((sys.maxsize, sys.maxsize) if for_file else (_MOST, _MOST_BYTES)))
    for name, x in roots:
        walk.parts.append((f"`{name}`", walk.text(x)))
    if for_file:
        walk.parts += [
            (f"{_PACKAGE}`{top}`", f"package {version}")
            for top in sorted(walk.packages)
            if (version := _packages.version_of(top)) is not None
        ]
    return walk.parts


class _Texts:
    """The walk that makes the texts.

    The methods that take a value and the facts about its type are the rules of `_values`.

    Attributes:
        parts: pairs of a name and a text.
        packages: the top-level modules of the installed packages that were found.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self.parts: list[tuple[str, str]] = []
        self.packages: set[str] = set()
        self._left, self._bytes_left = most, most_bytes
        self._level = 0
        self._made: dict[int, tuple[Any, str]] = {}  # by address, with what is to stay alive

    def text(self, x: Any) -> str:
        cls = type(x)
        if cls in ATOMS:
            return atom(x)
        made = self._made.get(id(x))
        if made is not None:
            return made[1]
        self._left -= 1
        if self._left < 0 or self._level == _DEEPEST:
            return _name_of(cls)
        self._made[id(x)] = x, _OPEN
        self._level += 1
        try:
            facts = _values.of_type(cls)
            text = _short(getattr(self, facts.rule)(x, facts))
        except Exception:  # an object of the user's may raise any
            text = _name_of(cls)
        self._level -= 1
        self._made[id(x)] = x, text
        return text

    # ---- functions and classes ----

    def function(self, f: Any, _: Type) -> str:
        named = _values.name_in_library(f)
        if named is not None:
            return self._in_library(*named)
        return self._named("function", f, _values.parts_of_function(f))

    def cls(self, x: Any, _: Type) -> str:
        module, name = _values.module_of(x), _values.qualname_of(x)
        if _values.of_type(x).is_library:
            return self._in_library(module, name)
        bases = type.__dict__["__bases__"].__get__(x)
        parts = [("metaclass", "", type(x)), ("bases", "", bases)]
        for member, value in _values.members_of(x).items():
            if _is_described(member, value):
                is_constant = type(value) in ATOMS or issubclass(type(value), type)
                parts.append(("constant" if is_constant else "member", member, value))
        return self._named("class", x, parts)

    def _named(self, kind: str, owner: Any, parts: Iterable[tuple[str, Any, Any]]) -> str:
        """Returns the text of a function or a class of the user's, and notes what is in it."""
        name = _name_of(owner)
        found = [(_NAMES[of].format(name, at), self.text(x)) for of, at, x in parts]
        self.parts += found
        return f"{kind} {name} {found}"

    def _in_library(self, module: str, name: str) -> str:
        top = module.partition(".")[0]
        if top not in sys.stdlib_module_names:
            self.packages.add(top)
        return f"{module}.{name}"

    def code(self, x: types.CodeType, _: Type) -> str:
        return f"code {text_of_code(x)}"

    def cell(self, x: types.CellType, _: Type) -> str:
        try:
            return self.text(x.cell_contents)
        except ValueError:
            return "empty"

    def module(self, x: Any, _: Type) -> str:
        return f"module {object.__getattribute__(x, '__dict__').get('__name__')}"

    # ---- other values ----

    def contents(self, x: Any, facts: Type) -> str:
        contents: Any = () if facts.contents is None else facts.contents(x)
        many = contents if type(contents) in (tuple, frozenset) else (contents,)
        found = [self.text(type(x)), str(len(many))]
        if len(many) <= self._left:
            if type(contents) is frozenset:
                found += self._in_set(contents)
            else:
                found += map(self.text, many)
        for name, value in () if facts.attributes is None else facts.attributes(x):
            if not str(name).endswith("_hash"):  # kept by an object, and another for each seed
                found.append(f"{name}={self.text(value)}")
        return f"({', '.join(found)})"

    instance = contents

    def _in_set(self, elements: frozenset[Any]) -> list[str]:
        """Returns the texts of the elements of a set, each as if it was the only one, in an order
        that is the same in all processes."""
        made, left, before = self._made, self._left, len(self.parts)
        share, found = left // max(len(elements), 1), []
        for x in elements:
            self._made = {k: v for k, v in made.items() if v[1] == _OPEN}
            self._left = share
            found.append(self.text(x))
            left -= share - max(self._left, 0)
        self._made, self._left = made, left
        self.parts[before:] = sorted(set(self.parts[before:]))
        return sorted(found)

    def array(self, x: Any, facts: Type) -> str:
        """The aval and the contents: of a very large array, those of some elements."""
        found = f"{x.dtype} {x.shape} {getattr(x, 'weak_type', None)}"
        is_key = isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
        try:
            data = np.asarray(jax.random.key_data(x) if is_key else x)
        except Exception:  # it is deleted, or partly on other machines
            return f"array {found}"
        if data.dtype.hasobject or (facts.attributes and isinstance(x, np.ndarray)):
            return self.contents(x, facts)
        if data.nbytes > self._bytes_left:
            data = data.ravel()[:: -(-data.size // _MOST)]
        self._bytes_left -= data.nbytes
        return f"array {found} {hashlib.sha256(data.tobytes()).hexdigest()}"

    jax_array = array

    def of_library(self, x: Any, facts: Type) -> str:
        found = self.text(type(x))
        if _values.wraps_function(x):
            if (named := _values.name_in_library(x)) is not None:
                return self._in_library(*named)
            values = [(name, self.text(value)) for name, value in _values.parts_of_wrapper(x)]
            return f"{found} {values} {_jax_compat.jit_options(x)}"
        if facts.contents is not None:
            return self.contents(x, facts)
        if isinstance(x, Mapping):  # one that may keep its hash, and more
            return f"{found} {self.text(tuple(x.items()))}"
        if type(x).__module__ != "itertools":  # which warns
            try:
                return f"{found} {self.text(x.__reduce_ex__(4))}"
            except Exception:  # pickle does not know it
                pass
        shown = repr(x)
        return found if " at 0x" in shown else f"{found} {shown}"


def _is_described(name: Any, x: Any) -> bool:
    """Whether a member of a class is described: not what follows from the rest."""
    if type(name) is not str or not name.startswith("__"):
        return bool(name != "_abc_impl")
    if name.endswith(("_fields__", "_attrs__")):  # of dataclasses, attrs and pydantic
        return True
    is_method: bool = isinstance(x, (types.FunctionType, staticmethod, classmethod, property))
    return is_method and not name.startswith("__annotate") and not _values.is_own(name)


def _name_of(x: Any) -> str:
    if type(x) is types.FunctionType:
        return f"{x.__globals__.get('__name__')}.{x.__qualname__}"
    try:
        return f"{_values.module_of(x)}.{_values.qualname_of(x)}"
    except AttributeError:  # it was deleted
        return f"{_values.qualname_of(x)}"


def atom(x: Any) -> str:
    """Returns the text of a value of one of the types `ATOMS`."""
    is_long = type(x) is int and abs(x) >= 1 << 64  # repr refuses very long ones
    return _short(f"{type(x).__name__} {hex(x) if is_long else repr(x)}")


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"sha256 {hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()[:32]}"


def text_of_code(code: types.CodeType) -> str:
    """Returns a text of all that decides what code does: neither the file nor the lines."""
    return repr(
        (
            code.co_code.hex(),
            code.co_exceptiontable.hex(),
            code.co_flags,
            (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
            (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
            [_constant(x) for x in code.co_consts],
        )
    )


def _constant(x: Any) -> str:
    cls = type(x)
    if cls is types.CodeType:
        return text_of_code(x)
    if cls is tuple:
        return repr([_constant(y) for y in x])
    if cls is frozenset:
        return repr(sorted(_constant(y) for y in x))
    if cls is slice:
        return repr([_constant(y) for y in (x.start, x.stop, x.step)])
    return atom(x)


# ---- what differs ----

_PLAIN = {"int", "float", "complex", "bool", "str", "bytes", "NoneType", "package"}


def difference(
    before: Iterable[Sequence[str]],
    now: Iterable[Sequence[str]],
    *,
    versions: bool = True,
    bytecode: bool = True,
) -> str | None:
    """Returns what is the first to differ in two lists of texts, and how; None if nothing does.

    Arguments:
        before: names and texts.
        now: the same at another time.
        versions: whether the versions of packages are compared.
        bytecode: whether the same version of Python has made both. Otherwise only plain values
            are compared.
    """
    rest = collections.defaultdict[str, list[str]](list)
    for name, text in now:
        rest[name].append(text)
    pairs = [(name, text, rest[name].pop(0) if rest[name] else "") for name, text in before]
    pairs += [(name, "", text) for name, more in rest.items() for text in more]
    for name, was, text in pairs:
        old, new = was.partition(" "), text.partition(" ")
        is_plain = old[0] in _PLAIN and new[0] in _PLAIN
        counts = (bytecode or is_plain) and (versions or not name.startswith(_PACKAGE))
        if was == text or not counts:
            continue
        if not (was and text):
            return f"{name} is {'gone' if was else 'new'}"
        if not is_plain:
            return f"{name} has changed"
        if old[0] == new[0]:
            return f"{name} was {old[2]}, is {new[2]}"
        return f"{name} was the {old[0]} {old[2]}, is the {new[0]} {new[2]}"
    return None
