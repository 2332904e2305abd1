"""Following wrappers: decorated functions, bound methods and partials, down to what they wrap."""

import types
from collections.abc import Callable, Iterator
from typing import Any


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


def code_of(fun: Any) -> types.CodeType | None:
    """Returns the code of the function at the bottom of wrappers, partials and methods, which is the
    one that the user wrote; None if that is no Python function."""
    *_, fun = unwrap_chain(fun, "__wrapped__", "__func__", "func")
    code = getattr(fun, "__code__", None) or getattr(
        getattr(type(fun), "__call__", None),  # noqa: B004
        "__code__",
        None,
    )
    return code if isinstance(code, types.CodeType) else None
