"""Signatures, and the binding of arguments to parameters.

The C core binds a call's arguments to one object per parameter, in the signature's order.
`call_with_arguments` is the inverse.
"""

import inspect
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from .. import _core
from .._base._unwrap import unwrap_chain

_P = inspect.Parameter


def inspect_signature(fun: Any) -> inspect.Signature | None:
    """Returns the signature to bind by, or None if the code object of `fun` has all of it. Raises
    TypeError or ValueError if `fun` has no signature."""
    if type(fun) is types.FunctionType and not (
        fun.__dict__ and ("__wrapped__" in fun.__dict__ or "__signature__" in fun.__dict__)
    ):
        return None
    return inspect.signature(fun)


ANY = inspect.signature(lambda *args, **kwargs: None)


def own_signature(fun: Any) -> inspect.Signature | None:
    """Like `inspect_signature`, but ignores ``__wrapped__``. `ANY` if unknown."""
    if type(fun) is types.FunctionType and "__signature__" not in fun.__dict__:
        return None
    if hasattr(fun, "__signature__"):
        return ANY
    try:
        return inspect.signature(fun, follow_wrapped=False)
    except (TypeError, ValueError):
        return ANY


Parameters = tuple[tuple[str, ...], int, int, bool, bool, bytes]
"""The arguments of `_core.Signature`."""


def _from_code(fun: types.FunctionType) -> Parameters:
    """Reads a code object. Faster than ``inspect.signature``."""
    code = fun.__code__
    positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
    varargs = bool(code.co_flags & inspect.CO_VARARGS)
    varkw = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    names = list(code.co_varnames[: positional + keyword_only + varargs + varkw])
    required = [True] * (positional + keyword_only)
    for i in range(positional - len(fun.__defaults__ or ()), positional):
        required[i] = False
    for i in range(positional, positional + keyword_only):
        required[i] = names[i] not in (fun.__kwdefaults__ or ())
    if varargs:  # in `co_varnames`, *args follows the keyword-only parameters
        names.insert(positional, names.pop(positional + keyword_only))
        required.insert(positional, False)
    if varkw:
        required.append(False)
    return tuple(names), code.co_posonlyargcount, positional, varargs, varkw, bytes(required)


def parameters_of(fun: Any, signature: inspect.Signature | None) -> Parameters:
    """Returns the parameters of `fun`. `signature` comes from `inspect_signature`."""
    if signature is None:
        return _from_code(fun)
    parameters = list(signature.parameters.values())
    kinds = [p.kind for p in parameters]
    required = bytes(
        p.default is _P.empty and p.kind not in (_P.VAR_POSITIONAL, _P.VAR_KEYWORD)
        for p in parameters
    )
    return (
        tuple(sys.intern(p.name) for p in parameters),
        kinds.count(_P.POSITIONAL_ONLY),
        kinds.count(_P.POSITIONAL_ONLY) + kinds.count(_P.POSITIONAL_OR_KEYWORD),
        _P.VAR_POSITIONAL in kinds,
        _P.VAR_KEYWORD in kinds,
        required,
    )


def call_with_arguments(
    fun: Callable[..., Any], signature: _core.Signature, arguments: Sequence[Any], missing: Any
) -> Any:
    """Calls `fun` with one argument per parameter, leaving `missing` ones to its defaults. Like
    ``inspect.BoundArguments``, passes by keyword from the first missing argument on."""
    __tracebackhide__ = True
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    by_position = True
    for i, (name, value) in enumerate(zip(signature.names, arguments, strict=True)):
        if value is missing:
            by_position = by_position and i >= signature.positional
        elif i == signature.varargs:
            args.extend(value)
        elif i == signature.varkw:
            # Includes static keyword arguments, which have parameters. Sorted like a pytree.
            kwargs = dict(sorted({**kwargs, **value}.items()))
        elif by_position and i < signature.positional:
            args.append(value)
        else:
            kwargs[name] = value
    return fun(*args, **kwargs)


def _called_function(
    fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Returns the Python function that a call of `fun` ends in, and its arguments."""
    for inner in unwrap_chain(fun, "__func__", "func"):
        if isinstance(inner, type):
            init = getattr(inner, "__init__")  # noqa: B009 (mypy)
            if isinstance(init, types.FunctionType):
                return init, (None, *args), kwargs
        if isinstance(inner, (staticmethod, classmethod)):
            continue
        if hasattr(inner, "func") and hasattr(inner, "keywords") and hasattr(inner, "args"):
            args, kwargs = (*inner.args, *args), {**inner.keywords, **kwargs}
        elif hasattr(inner, "__func__") and hasattr(inner, "__self__"):
            args = (inner.__self__, *args)
        else:
            break
    call = getattr(type(inner), "__call__", None)  # noqa: B004
    if not isinstance(inner, types.FunctionType) and isinstance(call, types.FunctionType):
        return call, (inner, *args), kwargs
    return inner, args, kwargs


def raise_binding_error(
    fun: Any,
    signature: inspect.Signature | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Raises the TypeError of ``fun(*args, **kwargs)`` by calling an empty stand-in."""
    try:
        function, full_args, full_kwargs = _called_function(fun, args, kwargs)
        try:
            own = inspect.signature(function, follow_wrapped=False)
        except (TypeError, ValueError):
            own = None
        if isinstance(function, types.FunctionType) and own is not None:
            _stand_in(function.__name__, function.__qualname__, own)(*full_args, **full_kwargs)
        # The signature isn't the function's own, for example because of functools.wraps.
        (signature or inspect.signature(fun)).bind(*args, **kwargs)
    except TypeError as e:
        if isinstance(fun, staticmethod):
            e.add_note("(`@staticmethod` is below the decorator that jits: put it above)")
        raise


def raise_misfit(
    name: str,
    qualname: str,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Raises the TypeError of a function with this name and signature."""
    _stand_in(name, qualname, signature)(*args, **kwargs)
    signature.bind(*args, **kwargs)


def _stand_in(name: str, qualname: str, signature: inspect.Signature) -> Callable[..., None]:
    """Returns a function with these parameters and an empty body. Its source has only names:
    defaults become None, and annotations are dropped."""
    simplified = signature.replace(
        parameters=[
            p.replace(annotation=_P.empty, default=_P.empty if p.default is _P.empty else None)
            for p in signature.parameters.values()
        ],
        return_annotation=inspect.Signature.empty,
    )
    namespace: dict[str, Any] = {}
    exec(f"def stand_in{simplified}: pass", namespace)
    function: types.FunctionType = namespace["stand_in"]
    function.__name__, function.__qualname__ = name, qualname
    return function
