"""Descriptions (`_describe`) that are the same in all processes of one version of Python.

`describe` returns names and digests of all that functions and classes can use. A file has them, and
`difference` tells what has changed since it was written, by its name: "the default of `scale` in
`model.act`", "the class constant `model.Config.width`".

What cannot be described is a doubt, with the path to it and the reason.
"""

import abc
import collections
import dataclasses
import enum
import functools
import hashlib
import inspect
import re
import sys
import types
import weakref
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import jax
import numpy as np

from .. import _core
from .._compat import _equinox_compat, _jax_compat, _registered_compat
from .._trees._static_keys import dict_of
from . import _code, _describe, _packages, _types
from ._describe import ATOMS, Item, Part
from ._packages import is_library

PYTHON = _code.PYTHON
_LONGEST = 60  # of a text that stands for itself

_NAMES = {
    "code": "the code of `{0}`",
    "default": "the default of `{1}` in `{0}`",
    "attribute": "the attribute `{0}.{1}`",
    "annotation": "the annotation of `{1}` in `{0}`",
    "closure": "the closure value `{1}` of `{0}`",
    "global": "the global `{2}.{1}`",
    "import": "the module `{1}` that `{0}` imports",
    "metaclass": "the metaclass of `{0}`",
    "bases": "the bases of `{0}`",
    "member": "the class constant `{0}.{1}`",
    "subclasses": "the classes that are registered with `{0}`",
    "registered": "how `{0}` is registered as a pytree",
    "package": "the version of the package `{1}`",
    "root": "`{1}`",
}
_PATHS = {
    "default": "{0}.__defaults__[{1!r}]",
    "closure": "{0}.__closure__[{1!r}]",
    "global": "{2}.{1}",
    "code": "{0}",
    "root": "{1}",
    "import": "{0}",
}


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


def describe(
    roots: Iterable[tuple[str, Any]],
    *,
    of_process: bool = False,
    before: Description | None = None,
) -> Description:
    """Returns the description of functions, classes and other values, which are given by their names.

    Arguments:
        roots: pairs of a name and a value.
        of_process: whether what the code reads in installed packages is described too: which
            functions are there, and the contents of other objects; and results of earlier calls.
        before: a description of the same before a trace. Results of calls that were made since then
            are left out.
    """
    walk = _OfProcess(before) if of_process else _Digest()
    texts = []
    for name, x in roots:
        try:
            texts.append(text_of(walk.at(None, "root", name, x)[1]))
        except RecursionError:
            walk.doubt("it is nested too deeply")
    try:
        walk.describe()
    except RecursionError:
        walk.doubt("it is nested too deeply")
    parts = [*walk.noted, *((_NAMES["package"].format("", k), v) for k, v in walk.packages.items())]
    codes, names = frozenset(walk.codes), frozenset(walk.names)
    packages, results = frozenset(walk.packages), frozenset(walk.results)
    found = Description(parts, walk.doubts, codes, texts, names, packages, results)
    if isinstance(walk, _OfProcess):
        return dataclasses.replace(found, data=walk.data, jitted=walk.jitted)
    return found


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
        package = name.startswith(_PACKAGE)
        if other != text and (plain or bytecode) and (versions or not package):
            return f"{name} {_how(text, other)}"
    for name, texts in rest.items():
        if texts and bytecode and (versions or not name.startswith(_PACKAGE)):
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
_PACKAGE = "the version of "


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
    if cls is _Short:
        return str(part)
    return f"{cls.__name__} {part!r}"


class _Short(str):
    """The text of a part, where a value is met more than once."""

    __slots__ = ()


class _Digest(_describe.Walk):
    """The walk that makes a description.

    Attributes:
        noted: pairs of a name and a text.
        packages: the versions of the packages of which functions or classes were found.
        results: as in `Description`.
    """

    annotation_functions = sys.version_info >= (3, 14)

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[str, str]] = []
        self.doubts: list[Doubt] = []
        self.codes: list[types.CodeType] = []
        self.packages: dict[str, str] = {}
        self.results: set[tuple[int, str]] = set()
        self._label: tuple[Any, str, Any] = (None, "root", "")
        self._made: dict[int, tuple[Any, Part]] = {}

    def doubt(self, reason: str) -> None:
        owner, kind, name = self._label
        form = _PATHS.get(kind, "{0}.{1}")
        self.doubts.append(Doubt(form.format(_name_of(owner), name, _module_of(owner)), reason))

    def at(self, owner: Any, kind: str, name: Any, x: Any) -> Item:
        before, self._label = self._label, (owner, kind, name)
        part = self.part(x)
        self._label = before
        return self._noted(owner, kind, name, part, x)

    def _noted(self, owner: Any, kind: str, name: Any, part: Part, x: Any = None) -> Item:
        text = _NAMES[kind]
        if kind == "member" and not (type(x) in ATOMS or issubclass(type(x), type)):
            text = "`{0}.{1}`"
        where = text.format(_name_of(owner), name, _module_of(owner))
        self.noted.append((where, text_of(part)))
        return (kind, name), part

    def items_of_function(self, f: Any) -> tuple[Item, ...]:
        self._label = f, "code", ""
        return super().items_of_function(f)

    def annotation(self, owner: Any, name: Any, x: Any) -> Item:
        if type(x) is types.FunctionType:  # what Python 3.14 makes annotations with: its text
            return self._noted(owner, "annotation", name, ("code", _code.digest_of(x.__code__)))
        count = len(self.doubts)
        item = self.at(owner, "annotation", name, x)
        del self.doubts[count:]
        return item

    def itself(self, x: Any) -> Part:
        return None

    def function(self, f: types.FunctionType, _: Any = None) -> Part:
        return self._named(super().function(f), f)

    def cls(self, x: Any, facts: Any = None) -> Part:
        return self._named(super().cls(x, facts), x)

    def _named(self, part: Part, x: Any) -> Part:
        """Adds the name to a number: `difference` compares what has one name in its order, but sees
        no order of names."""
        return (*part, _name_of(x)) if type(part[1]) is int else part

    def code(self, f: Any) -> Part:
        self.codes += _code.nested(f.__code__)
        part = "code", _code.digest_of(f.__code__)[:32]
        self._noted(f, "code", "", part)
        return part

    def items_of(self, items: Iterable[Any]) -> Sequence[Any]:
        return sorted(items, key=_order)

    def of_library(self, x: Any, module: str, name: str) -> Part:
        version = _packages.version_of(module)
        if version is None:
            self.doubt(f"the package of `{module}` has no version")
        else:
            self.packages[module.partition(".")[0]] = f"package {version}"
        return "library", module, name

    def in_library(self, module: Any, name: str, x: Any) -> Item | None:
        return None

    # ---- values ----

    def contents(self, x: Any, facts: _types.Type) -> Part:
        """Equal values that cannot change have equal parts, whether they are one object or not."""
        made = self._made.get(id(x))
        if made is not None:
            return made[1]
        part = super().contents(x, facts)
        if part[0] == "contents" and facts.mutable != "yes" and not part[-1]:
            short = _Short(text_of(part))
            self._made[id(x)] = x, short
            return short
        return part

    def array(self, x: Any, facts: _types.Type) -> Part:
        return self.contents(x, facts)

    def value(self, x: Any, facts: _types.Type) -> Part:
        if isinstance(x, np.dtype):
            return self.contents(x, facts)
        if type(x) is jax.tree_util.PyTreeDef:
            return "treedef", self.part(facts.contents(x))
        if type(x) is re.Pattern:
            return "pattern", x.pattern, x.flags
        if type(x) is zoneinfo.ZoneInfo:
            return "zone", x.key
        if isinstance(x, jax.sharding.Mesh):
            return "mesh", repr(x), tuple(device.id for device in x.devices.flat)
        if isinstance(x, jax.sharding.Sharding):
            mesh = getattr(x, "mesh", None)
            if isinstance(mesh, jax.sharding.AbstractMesh):
                return "sharding", repr(x)
            devices = tuple(sorted(device.id for device in x.device_set))
            return "sharding", repr(x), devices if mesh is None else self.value(mesh, facts)
        return "value", type(x).__name__, repr(x)

    def identity(self, x: Any, facts: _types.Type | None = None) -> Part:
        cls = type(x)
        if facts is None or cls is object:
            return None  # a module, or an object that is nothing but another one than the rest
        if isinstance(x, jax.Array):
            return self._array(x)
        if cls is types.CodeType:
            self.codes += _code.nested(x)
            return "code", _code.digest_of(x)
        if isinstance(x, jax.Device):
            return "device", x.platform, x.id
        if cls is np.ufunc and not (
            _is_at("numpy", x.__name__, x) or _is_at("scipy.special", x.__name__, x)
        ):
            return self.unknown(x, facts)
        if cls in _BY_NAME:
            of = getattr(x, "__objclass__", None)
            return "descriptor", x.__name__, None if of is None else self.cls(of)
        if cls in _LOCKS:
            return ("lock",)
        if cls is _TUPLE_GETTER:
            return "item", x.__reduce__()[1][0]
        return self.unknown(x, facts)

    def _array(self, x: Any) -> Part:
        try:
            if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
                return "key", str(x.dtype), self._array(jax.random.key_data(x))
            weak = _jax_compat.aval(x).weak_type
            return "array", str(x.dtype), x.shape, weak, np.asarray(x).tobytes()
        except Exception as e:
            self.doubt(f"an array that cannot be read ({type(e).__name__})")
            return ("array",)

    def unknown(self, x: Any, facts: _types.Type) -> Part:
        cls = type(x)
        variables = dict_of(x)
        if issubclass(cls, weakref.ReferenceType):
            return "weak reference", self.part(x())
        if cls is _core.Structure:
            nodes = [
                (kind, n, self.part(of), self.part(detail)) for kind, n, of, detail, _ in x._nodes()
            ]
            return "structure", *nodes
        if facts.is_library:
            module = variables.get("__module__", _types.module_of(cls))
            name = variables.get("__qualname__", variables.get("__name__"))
            if type(name) is str and _packages.is_library(module) and _is_at(module, name, x):
                return self.of_library(x, module, name)
            if variables.get("__wrapped__") is not None:
                return self.wrapper(x)
        if facts.is_complete and not issubclass(cls, types.GeneratorType):
            return super().contents(x, facts)
        name = f"{_types.module_of(cls)}.{_types.qualname_of(cls)}"
        self.doubt(f"an object of type `{name}`, of which nothing is known")
        return ("unknown",)

    def options_of(self, x: Any) -> Part:
        return _jax_compat.jit_options(x)


# ---- what a process may have changed in installed packages ----

_CAN_CHANGE = frozenset({"global", "member", "attribute", "instance"})
_JITTED = {type(jax.jit(len))}
_CODE = (
    type, types.ModuleType, *_types.CALLABLES, *_JITTED, _types.LRU_CACHE, *_types.PARTS,
    jax.custom_jvp, jax.custom_vjp, _core.FilterJit, _core.BoundMethod, np.ufunc, np.dtype,
)  # fmt: skip


def _is_code(x: Any) -> bool:
    return isinstance(x, _CODE) or type(x).__module__ == "typing"


def _is_mutable(x: Any) -> bool:
    """Whether what is in a cell can change in place."""
    try:
        x = x.cell_contents
    except (AttributeError, ValueError):
        return False
    return not _is_code(x) and _types.of_type(type(x)).mutable == "yes"


def _registered(cls: Any) -> list[Any]:
    """Returns the classes that were registered with an abstract class."""
    try:
        refs = getattr(abc, "_get_dump")(cls)[0]  # noqa: B009
    except Exception:  # another Python than CPython
        return []
    return [c for ref in refs if (c := ref()) is not None]


# Of these, objects are what the version says, but for JAX's configuration.
_FIXED = ("jax", "jaxlib", "numpy", "filterjit", "equinox")


class _OfProcess(_Digest):
    """The walk that also describes what a process may have changed without changing any code: what is
    at a name in an installed package, the functions that classes of the user's are registered with as
    pytrees, the classes that are registered with an abstract class, and results of earlier calls. It notes what
    may be older than the rest."""

    def __init__(self, before: Description | None) -> None:
        super().__init__()
        self._before = before
        self._abstract: set[int] = set()
        self.data: list[str] = []
        self.jitted: list[Any] = []

    def _is_result(self, x: Any, name: str) -> bool:
        """Whether a result of an earlier call is described."""
        if self._before is not None and (id(x), name) not in self._before.results:
            return False
        self.results.add((id(x), name))
        return True

    def wrapper(self, x: Any, _: Any = None) -> Part:
        part: Part = super().wrapper(x)
        if part[0] != "wrapper":
            return part
        if type(x) in _JITTED or isinstance(x, _core.FilterJit):
            self.jitted.append(x)
        cache: Any = x if type(x) is _types.LRU_CACHE else None
        if cache is None or not (cache.cache_info().currsize and self._is_result(x, "")):
            return part
        if inspect.signature(x).parameters:
            self.doubt("its `lru_cache` has results of earlier calls")
            return part
        return (*part, self.part(x()))  # runs nothing

    def attributes(self, x: Any, facts: _types.Type) -> Part:
        found: Part = super().attributes(x, facts)
        for name, value in dict_of(x).items():
            member = next((vars(c)[name] for c in type(x).__mro__ if name in vars(c)), None)
            if issubclass(type(member), functools.cached_property) and self._is_result(x, name):
                found = (*found, (name, self.part(value)))
        return found

    def cls(self, x: Any, facts: Any = None) -> Part:
        if issubclass(type(x), abc.ABCMeta) and id(x) not in self._abstract:
            self._abstract.add(id(x))
            registered = [c for c in _registered(x) if not _types.of_type(c).is_library]
            if registered:
                self.at(x, "subclasses", "", tuple(sorted(registered, key=_order)))
        return super().cls(x, facts)

    def _noted(self, owner: Any, kind: str, name: Any, part: Part, x: Any = None) -> Item:
        if (kind in _CAN_CHANGE and not _is_code(x)) or (
            kind == "closure" and type(part) is tuple and _is_mutable(x)
        ):
            is_constant = type(x) in ATOMS and is_library(_module_of(owner))
            if not is_constant:
                self.data.append(
                    _NAMES.get(kind, "{0}.{1}").format(_name_of(owner), name, _module_of(owner))
                )
        return super()._noted(owner, kind, name, part, x)

    def contents(self, x: Any, facts: _types.Type) -> Part:
        cls: Any = type(x)
        if cls.__eq__ is object.__eq__:  # which object it is may matter
            return _describe.Walk.contents(self, x, facts)
        return super().contents(x, facts)

    def identity(self, x: Any, facts: _types.Type | None = None) -> Part:
        if type(x) is object:
            return "object", self._seen.setdefault(id(x), (len(self._seen), x))[0]
        return super().identity(x, facts)

    def unknown(self, x: Any, facts: _types.Type) -> Part:
        cls: Any = type(x)
        if cls is _equinox_compat.wrapper_type():
            self.jitted.append(x)
        names = getattr(cls, "__filterjit_value__", None)
        if names is not None:
            return "contents", self.cls(cls), *[self.part(getattr(x, name)) for name in names]
        return super().unknown(x, facts)

    def items_of_class(self, cls: Any) -> tuple[Item, ...]:
        functions = (
            _registered_compat.registered_flatten(cls),
            _registered_compat.registered_unflatten(cls),
        )
        items = super().items_of_class(cls)
        return (
            *items,
            *[self.at(cls, "registered", str(i), f) for i, f in enumerate(functions) if f],
        )

    def in_library(self, module: Any, name: str, x: Any) -> Item | None:
        before, self._label = self._label, (module, "global", name)
        part = self._in_library(x)
        self._label = before
        return self._noted(module, "global", name, part, x)

    def _in_library(self, x: Any) -> Part:
        cls = type(x)
        if cls is types.FunctionType and is_library(x.__globals__.get("__name__")):
            return "library", x.__globals__["__name__"], x.__code__.co_qualname
        if issubclass(cls, type) or cls in _types.CALLABLES:
            return self.part(x)
        facts = _types.of_type(cls)
        module = str(_types.module_of(cls)).partition(".")[0]
        if facts.is_library and (module in _FIXED or facts.rule in ("identity", "wrapper")):
            name = dict_of(x).get("__qualname__", getattr(x, "__name__", None))
            return "library", module, name if type(name) is str else None
        return self.part(x)


# ---- several processes that are about to run one program ----

# What a function holds must be the same everywhere if it is of these types, or a dataclass.
# Other objects, such as a logger or a file, may know their process.
_VALUES = (
    bool, int, float, complex, str, bytes, enum.Enum, type, np.ndarray, functools.partial,
    tuple, list, Mapping, Set, *_types.CALLABLES,
)  # fmt: skip


def is_held_value(x: Any) -> bool:
    """Whether what a function holds must be the same on all processes."""
    return x is None or isinstance(x, _VALUES) or dataclasses.is_dataclass(x)


def digest_of_function(f: Any) -> str:
    """Returns a digest of the code of a function and of the values that it holds, in defaults, in
    its closure and in what it wraps, as far as they must be the same on all processes."""
    walk = _Held()
    try:
        walk.at(None, "root", "", f)
        walk.describe()
    except RecursionError:
        pass
    return hashlib.sha256(repr(walk.noted).encode("utf-8", "backslashreplace")).hexdigest()[:16]


class _Held(_Digest):
    """The walk that leaves out globals, and what may differ between processes."""

    def doubt(self, reason: str) -> None:
        pass

    def _add_named(self, *_: Any) -> None:
        pass

    def _attributes(self, f: Any) -> Iterable[tuple[Any, Any]]:
        return ((k, x) for k, x in super()._attributes(f) if k == "__wrapped__")

    def _annotations(self, x: Any) -> Iterable[tuple[str, Any]]:
        return ()

    def of_library(self, x: Any, module: str, name: str) -> Part:
        return "library", module, name

    def cls(self, x: Any, facts: Any = None) -> Part:
        return "class", _types.module_of(x), _types.qualname_of(x)

    def module(self, x: Any, _: Any = None) -> Part:
        return "module", x.__name__

    def contents(self, x: Any, facts: _types.Type) -> Part:
        return super().contents(x, facts) if is_held_value(x) else self.unknown(x, facts)

    def unknown(self, x: Any, facts: _types.Type) -> Part:
        return "object", self.cls(type(x))

    value = identity = logger = unknown  # type: ignore[assignment]


_TUPLE_GETTER = type(collections.namedtuple("_", "a").a)  # type: ignore[attr-defined]
_LOCKS = {t for t in _types._BY_IDENTITY if "lock" in t.__name__.lower()}
_BY_NAME = set(_types._BY_IDENTITY) - _LOCKS - {object, types.CodeType, _TUPLE_GETTER}


def _is_at(module: str, name: str, x: Any) -> bool:
    found = sys.modules.get(module)
    for part in name.split("."):
        if found is None:
            return False
        found = _static(found, part)
    return found is x


def _static(x: Any, name: str) -> Any:
    if issubclass(type(x), type):
        return _types.members_of(x).get(name)
    return dict_of(x).get(name)


def _order(x: Any) -> tuple[str, str]:
    cls = type(x)
    text = repr(x) if cls in ATOMS else str(dict_of(x).get("__qualname__", ""))
    if cls is types.FunctionType or issubclass(cls, type):
        text = f"{x.__module__}.{x.__qualname__}"
    elif cls in (tuple, frozenset):
        text = repr(sorted(map(_order, x)) if cls is frozenset else [*map(_order, x)])
    elif issubclass(cls, enum.Enum):
        text = repr(x._value_)
    return f"{cls.__module__}.{cls.__qualname__}", text


def _name_of(owner: Any) -> str:
    if type(owner) is types.FunctionType:
        return f"{_module_of(owner)}.{owner.__qualname__}"
    if issubclass(type(owner), type):
        return f"{_types.module_of(owner)}.{_types.qualname_of(owner)}"
    return _module_of(owner)


def _module_of(owner: Any) -> str:
    if type(owner) is types.FunctionType:
        return str(owner.__globals__.get("__name__"))
    variables = _describe.variables_of(owner)
    return "" if variables is None else str(variables.get("__name__"))
