"""Unwraps decorated functions, bound methods and partials."""

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from ._package import PACKAGE


def look_up(x: Any, name: str) -> Any:
    """Returns an attribute, or None if reading it raises an exception."""
    try:
        return getattr(x, name, None)
    except Exception:  # a user's `__getattr__`
        return None


def unwrap_chain(fun: Any, *names: str) -> Iterator[Any]:
    """Yields `fun`, the callable it wraps, and so on: at most 100 objects, none twice. The wrapped
    callable is the first of the attributes `names` that holds a callable other than the object
    itself."""
    seen: list[Any] = []
    while len(seen) < 100 and not any(fun is earlier for earlier in seen):
        yield fun
        seen.append(fun)
        for name in names:
            wrapped = look_up(fun, name)
            if callable(wrapped) and wrapped is not fun:
                fun = wrapped
                break
        else:
            return


def innermost(fun: Any) -> Any:
    """Returns the function inside all wrappers, partials and methods: the one users wrote."""
    *_, inner = unwrap_chain(fun, "__wrapped__", "__func__", "func")
    return inner


def code_of(fun: Any) -> types.CodeType | None:
    """Returns the code of the innermost function, or None if it isn't Python code."""
    fun = innermost(fun)
    code = look_up(fun, "__code__") or look_up(look_up(type(fun), "__call__"), "__code__")
    return code if isinstance(code, types.CodeType) else None


_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


def is_function(x: Any) -> bool:
    """True for functions, wrappers of functions, and ufuncs. False for other callable objects."""
    if isinstance(x, type) or not callable(x):
        return False
    return isinstance(innermost(x), _FUNCTIONS) or type(x).__name__ == "ufunc"


def _parts_of(fun: Any) -> Iterator[tuple[Any, list[tuple[str, Any]]]]:
    """Yields `fun`, the callables that it wraps, and the functions in their closures and partials,
    each with the names and values it holds (none for filterjit's own wrappers)."""
    todo, seen = [fun], set[int]()
    while todo and len(seen) < 100:
        for inner in unwrap_chain(todo.pop(), "__wrapped__", "__func__", "func"):
            if id(inner) in seen:
                break
            seen.add(id(inner))
            code = look_up(inner, "__code__")
            own = code is not None and code.co_filename.startswith(PACKAGE)
            held = [] if own else closure_of(inner)
            if isinstance(inner, functools.partial):
                held += [(f"args[{i}]", x) for i, x in enumerate(inner.args)]
                held += sorted(inner.keywords.items())
            held = [pair for name, x in held for pair in _functions_apart(name, x)]
            yield inner, held
            todo += [x for _, x in held if is_function(x)]


_MOST_ITEMS = 100  # of a container to search for functions
_MOST_LEVELS = 4


def _functions_apart(name: str, x: Any, level: int = 0) -> list[tuple[str, Any]]:
    """Returns a value with its name, or the named items of a small container of functions."""
    items: list[tuple[Any, Any]] = []
    is_container = type(x) in (dict, list) or isinstance(x, tuple)
    if is_container and len(x) <= _MOST_ITEMS and level < _MOST_LEVELS:
        items = list(x.items() if type(x) is dict else enumerate(x))
    keys = [f"{name}[{k!r}]" if type(k) in (str, int) else f"{name}[...]" for k, _ in items]
    pairs = zip(keys, items, strict=True)
    found = [pair for key, (_, y) in pairs for pair in _functions_apart(key, y, level + 1)]
    return found if any(is_function(y) for _, y in found) else [(name, x)]


def codes_of(fun: Any) -> tuple[Any, ...]:
    """Returns the codes of `fun`, of the callables it wraps, and of the functions these hold, and
    the classes of callable instances.

    Functions defined on the same line of a file have equal codes. Functions under one decorator
    differ, because the decorator wraps them or closes over them.
    """
    return tuple(
        getattr(part, "__code__", None) if is_function(part) else (type(part), code_of(part))
        for part, _ in _parts_of(fun)
    )


class Held(NamedTuple):
    """A value held by the function `holder`. `kind` is "default of " or "attribute ", and "" for a
    value in a closure or partial."""

    kind: str
    name: str
    value: Any
    holder: Any


def values_in(fun: Any) -> list[Held]:
    """Returns the values that a function, and the functions in its closure and partials, hold in
    closures, partials, defaults and attributes, without these functions."""
    found: list[Held] = []
    for part, held in _parts_of(fun):
        found += [Held("", name, x, part) for name, x in held if not is_function(x)]
        if isinstance(part, types.FunctionType):
            names = part.__code__.co_varnames[: part.__code__.co_argcount][::-1]
            defaults = dict(zip(names, (part.__defaults__ or ())[::-1], strict=False))
            defaults |= part.__kwdefaults__ or {}
            found += [Held("default of ", name, x, part) for name, x in defaults.items()]
            own = {k: x for k, x in part.__dict__.items() if not str(k).startswith("__")}
            found += [Held("attribute ", name, x, part) for name, x in own.items()]
    return found


def closure_of(fun: Any) -> list[tuple[str, Any]]:
    """Returns the names and values of a function's closure, without empty cells."""
    found: list[tuple[str, Any]] = []
    if isinstance(fun, types.FunctionType):
        for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell
                found.append((name, cell.cell_contents))
    return found
