"""Signatures, and the binding of arguments to parameters.

The C core binds a call's arguments to one object per parameter, in the signature's order.
`unbind` is the inverse.
"""

import inspect
import sys
import types
from collections.abc import Sequence
from typing import Any

from .. import _core
from ._caches import names_of

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


def unbind(
    signature: _core.Signature, arguments: Sequence[Any], missing: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns ``(args, kwargs)`` from one argument per parameter, without `missing` ones. Like
    ``inspect.BoundArguments``, passes by keyword from the first missing argument on."""
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
    return tuple(args), kwargs


def misfit(
    fun: Any, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> TypeError:
    """Returns the error of arguments that don't fit. `fun` is a function or its name."""
    name, why = fun if isinstance(fun, str) else names_of(fun)[1], ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as e:
        why = str(e)
    error = TypeError(f"{name}(): {why}")
    if isinstance(fun, staticmethod):
        error.add_note("(`@staticmethod` is below the decorator that jits: put it above)")
    return error
