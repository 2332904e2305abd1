"""What a process may have changed without changing any code: the description of a program cache."""

import abc
import dataclasses
import functools
import inspect
import types
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from .. import _core
from .._compat import _equinox_compat, _registered_compat
from .._trees._static_keys import dict_of
from . import _describe, _digest, _types
from ._describe import ATOMS, Item, Part
from ._description import Description
from ._digest import NAMES, Digest
from ._packages import is_library

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


def describe(roots: Iterable[tuple[str, Any]], before: Description | None = None) -> Description:
    """Returns a description as `_digest.describe` does, and in it what the code reads in installed
    packages: which functions are there, the contents of other objects; and results of earlier calls.

    Arguments:
        roots: pairs of a name and a value.
        before: a description of the same before a trace. Results of calls that were made since then
            are left out.
    """
    walk = _OfProcess(before)
    found = _digest.describe(roots, walk)
    return dataclasses.replace(found, data=walk.data, jitted=walk.jitted)


class _OfProcess(Digest):
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
                self.at(x, "subclasses", "", tuple(sorted(registered, key=_digest.order)))
        return super().cls(x, facts)

    def _noted(self, owner: Any, kind: str, name: Any, part: Part, x: Any = None) -> Item:
        if (kind in _CAN_CHANGE and not _is_code(x)) or (
            kind == "closure" and type(part) is tuple and _is_mutable(x)
        ):
            is_constant = type(x) in ATOMS and is_library(_digest.module_of(owner))
            if not is_constant:
                self.data.append(
                    NAMES.get(kind, "{0}.{1}").format(
                        _digest.name_of(owner), name, _digest.module_of(owner)
                    )
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
