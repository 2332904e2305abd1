"""Unwrapping decorated functions, bound methods and partials."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from ._package import PACKAGE


def unwrap_chain(
    fun: Any, *names: str, lookup: Callable[[Any, str, Any], Any] = getattr
) -> Iterator[Any]:
    """Yields `fun`, then the callable that it wraps, and so on, at most 100 objects.

    The wrapped callable is the first of the attributes `names` that holds a callable other than
    the object itself. `lookup` reads an attribute as ``getattr(object, name, default)`` does.
    An object that was yielded before ends the iteration, so wrappers that form a circle are
    harmless.
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
    """Returns the innermost function of wrappers, partials and methods, which the user wrote."""
    *_, inner = unwrap_chain(fun, "__wrapped__", "__func__", "func")
    return inner


def code_of(fun: Any) -> types.CodeType | None:
    """Returns the code of the innermost function; None if that is not written in Python."""
    fun = innermost(fun)
    code = getattr(fun, "__code__", None) or getattr(
        getattr(type(fun), "__call__", None),  # noqa: B004
        "__code__",
        None,
    )
    return code if isinstance(code, types.CodeType) else None


_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


def is_function(x: Any) -> bool:
    """Whether `x` is a function, a wrapper of one (such as a partial or a jitted function), or a
    ufunc of NumPy or JAX. A class is not, nor is another instance with a ``__call__``."""
    if isinstance(x, type) or not callable(x):
        return False
    return isinstance(innermost(x), _FUNCTIONS) or type(x).__name__ == "ufunc"


def _parts_of(fun: Any) -> Iterator[tuple[Any, list[tuple[str, Any]]]]:
    """Yields `fun`, the callables that it wraps, and the functions that they hold in closures and
    partials. With each it yields the names and values that it holds, unless it is a wrapper of
    filterjit."""
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
    """Returns the codes of `fun`, of the callables that it wraps, and of the functions that these
    hold. The code of an instance comes with its class.

    Functions that are defined at the same file and line have equal codes. Two functions under one
    decorator have different codes, because the decorator wraps them or closes over them.
    """
    return tuple(
        getattr(part, "__code__", None) if is_function(part) else (type(part), code_of(part))
        for part, _ in _parts_of(fun)
    )


def values_in(fun: Any) -> list[tuple[str, str, Any]]:
    """Returns (kind, name, value) for what a function holds in closures, partials, defaults and
    attributes. Functions in closures and partials are left out. For values in closures and
    partials, the kind is empty."""
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
    """Returns the names and the contents of the cells of a Python function's closure."""
    found: list[tuple[str, Any]] = []
    if isinstance(fun, types.FunctionType):
        for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # it is empty
                found.append((name, cell.cell_contents))
    return found
