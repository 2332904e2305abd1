"""Descriptions (`_describe`) that are the same in all processes of one version of Python."""

import collections
import enum
import re
import sys
import types
import weakref
import zoneinfo
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from .. import _core
from .._compat import _jax_compat
from .._trees._static_keys import dict_of
from . import _code, _describe, _packages, _types
from ._describe import ATOMS, Item, Part
from ._description import PACKAGE, Description, Doubt, Short, text_of

PYTHON = _code.PYTHON

NAMES = {
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
    "package": PACKAGE + "the package `{1}`",
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


def describe(roots: Iterable[tuple[str, Any]], walk: "Digest | None" = None) -> Description:
    """Returns the description of functions, classes and other values, which are given by their names.

    Arguments:
        roots: pairs of a name and a value.
        walk: what describes; it is used once. By default a new `Digest`.
    """
    walk = Digest() if walk is None else walk
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
    parts = [*walk.noted, *((NAMES["package"].format("", k), v) for k, v in walk.packages.items())]
    codes, names = frozenset(walk.codes), frozenset(walk.names)
    packages, results = frozenset(walk.packages), frozenset(walk.results)
    return Description(parts, walk.doubts, codes, texts, names, packages, results)


class Digest(_describe.Walk):
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
        self.doubts.append(Doubt(form.format(name_of(owner), name, module_of(owner)), reason))

    def at(self, owner: Any, kind: str, name: Any, x: Any) -> Item:
        before, self._label = self._label, (owner, kind, name)
        part = self.part(x)
        self._label = before
        return self._noted(owner, kind, name, part, x)

    def _noted(self, owner: Any, kind: str, name: Any, part: Part, x: Any = None) -> Item:
        text = NAMES[kind]
        if kind == "member" and not (type(x) in ATOMS or issubclass(type(x), type)):
            text = "`{0}.{1}`"
        where = text.format(name_of(owner), name, module_of(owner))
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
        return (*part, name_of(x)) if type(part[1]) is int else part

    def code(self, f: Any) -> Part:
        self.codes += _code.nested(f.__code__)
        part = "code", _code.digest_of(f.__code__)[:32]
        self._noted(f, "code", "", part)
        return part

    def items_of(self, items: Iterable[Any]) -> Sequence[Any]:
        return sorted(items, key=order)

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
            short = Short(text_of(part))
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


def order(x: Any) -> tuple[str, str]:
    cls = type(x)
    text = repr(x) if cls in ATOMS else str(dict_of(x).get("__qualname__", ""))
    if cls is types.FunctionType or issubclass(cls, type):
        text = f"{x.__module__}.{x.__qualname__}"
    elif cls in (tuple, frozenset):
        text = repr(sorted(map(order, x)) if cls is frozenset else [*map(order, x)])
    elif issubclass(cls, enum.Enum):
        text = repr(x._value_)
    return f"{cls.__module__}.{cls.__qualname__}", text


def name_of(owner: Any) -> str:
    if type(owner) is types.FunctionType:
        return f"{module_of(owner)}.{owner.__qualname__}"
    if issubclass(type(owner), type):
        return f"{_types.module_of(owner)}.{_types.qualname_of(owner)}"
    return module_of(owner)


def module_of(owner: Any) -> str:
    if type(owner) is types.FunctionType:
        return str(owner.__globals__.get("__name__"))
    variables = _describe.variables_of(owner)
    return "" if variables is None else str(variables.get("__name__"))
