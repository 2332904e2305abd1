"""The public API, by introspection: its functions, types, methods and attributes."""

import inspect
import types
from collections.abc import Iterator
from typing import Any

import filterjit
from filterjit import lax, nnx, sharding

MODULES = (filterjit, filterjit.types, lax, nnx, sharding)


def _named(module: types.ModuleType, name: str) -> str:
    return f"{module.__name__}.{name}".removeprefix("filterjit.").removeprefix("types.")


def public_names() -> dict[str, Any]:
    """Returns all that the public modules name, by name: ``nnx.jit`` for that of ``filterjit.nnx``."""
    return {_named(m, name): getattr(m, name) for m in MODULES for name in m.__all__}


def public_types() -> dict[str, type]:
    return {name: x for name, x in public_names().items() if inspect.isclass(x)}


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yields the public names in a class and in those of its bases that are filterjit's."""
    seen = set[str]()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == "filterjit":
            for name, x in vars(base).items():
                if not name.startswith("_") and name not in seen:
                    seen.add(name)
                    yield name, x


def public_routines() -> dict[str, Any]:
    """Returns the functions and the methods, by name, such as ``"FilterJit.lower"``."""
    found = {k: x for k, x in public_names().items() if inspect.isroutine(x)}
    for owner, cls in public_types().items():
        for name, _ in _members(cls):
            if inspect.isroutine(x := getattr(cls, name)) and callable(x):
                found[f"{owner}.{name}"] = x
    return found


def public_attributes() -> dict[str, str]:
    """Returns the docstrings of the properties and other descriptors of types, by name. Fields and
    slots are described by their class: these have the docstring of the class."""
    found: dict[str, str] = {}
    for owner, cls in public_types().items():
        own = inspect.getdoc(cls) or ""
        fields = [name for name in inspect.get_annotations(cls) if not name.startswith("_")]
        found |= {f"{owner}.{name}": own * (name in own) for name in fields}
        for name, x in _members(cls):
            if inspect.isdatadescriptor(x) and name not in fields:
                is_slot = name in vars(cls).get("__slots__", ())
                found[f"{owner}.{name}"] = own * (name in own) if is_slot else x.__doc__ or ""
    return found


def public_docstrings() -> dict[str, str]:
    """Returns the docstrings of all of these, by name; an empty one for what has none."""
    objects = public_types() | public_routines()
    return {k: inspect.getdoc(x) or "" for k, x in objects.items()} | public_attributes()
