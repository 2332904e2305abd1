"""Unwraps decorated functions, bound methods and partials."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from ._package import PACKAGE


def unwrap_chain(
    fun: Any, *names: str, lookup: Callable[[Any, str, Any], Any] = getattr
) -> Iterator[Any]:
    """Yields `fun`, the callable it wraps, and so on: at most 100 objects, none twice.

    The wrapped callable is the first of the attributes `names` that holds a callable other than the
    object itself. `lookup` replaces ``getattr``.
    """
    seen: list[Any] = []
    while len(seen) < 100 and not any(fun is earlier for earlier in seen):
        yield fun
        seen.append(fun)
        for name in names:
            wrapped = lookup(fun, name, None)
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
    code = getattr(fun, "__code__", None) or getattr(
        getattr(type(fun), "__call__", None),  # noqa: B004
        "__code__",
        None,
    )
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
            code = getattr(inner, "__code__", None)
            own = code is not None and code.co_filename.startswith(PACKAGE)
            held = [] if own else closure_of(inner)
            if isinstance(inner, functools.partial):
                held += [(f"args[{i}]", x) for i, x in enumerate(inner.args)]
                held += sorted(inner.keywords.items())
            yield inner, held
            todo += [x for _, x in held if is_function(x)]


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


def values_in(fun: Any) -> list[tuple[str, str, Any]]:
    """Returns (kind, name, value) for the values in a function's closure, partials, defaults and
    attributes. Skips functions in closures and partials. The kind of a value in a closure or
    partial is ""."""
    found: list[tuple[str, str, Any]] = []
    for part, held in _parts_of(fun):
        found += [("", name, x) for name, x in held if not is_function(x)]
        if isinstance(part, types.FunctionType):
            names = part.__code__.co_varnames[: part.__code__.co_argcount][::-1]
            defaults = dict(zip(names, (part.__defaults__ or ())[::-1], strict=False))
            defaults |= part.__kwdefaults__ or {}
            found += [("default of ", name, x) for name, x in defaults.items()]
            own = {k: x for k, x in part.__dict__.items() if not str(k).startswith("__")}
            found += [("attribute ", name, x) for name, x in own.items()]
    return found


def closure_of(fun: Any) -> list[tuple[str, Any]]:
    """Returns the names and values of a function's closure, without empty cells."""
    found: list[tuple[str, Any]] = []
    if isinstance(fun, types.FunctionType):
        for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell
                found.append((name, cell.cell_contents))
    return found
