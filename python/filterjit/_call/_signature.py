"""Signatures: how a function's arguments become the slots of the C core, and back."""

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

from .. import _core

_P = inspect.Parameter


def inspect_signature(fun: Any) -> inspect.Signature | None:
    """The signature to bind by; None for a function whose code object says all.

    Raises what ``inspect.signature`` raises: TypeError for what cannot be called, ValueError
    for what has no signature.
    """
    if type(fun) is types.FunctionType and not (
        fun.__dict__ and ("__wrapped__" in fun.__dict__ or "__signature__" in fun.__dict__)
    ):
        return None
    return inspect.signature(fun)


def _from_code(fun: types.FunctionType) -> _core.Signature:
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
    if varargs:  # the code object names *args after the keyword-only ones
        names.insert(positional, names.pop(positional + keyword_only))
        required.insert(positional, False)
    if varkw:
        required.append(False)
    return _core.Signature(
        tuple(names), code.co_posonlyargcount, positional, varargs, varkw, bytes(required)
    )


def core_signature(fun: Any, signature: inspect.Signature | None) -> _core.Signature:
    """The parameters of `fun`, for binding in C."""
    if signature is None:
        return _from_code(fun)
    parameters = list(signature.parameters.values())
    kinds = [p.kind for p in parameters]
    required = bytes(
        p.default is _P.empty and p.kind not in (_P.VAR_POSITIONAL, _P.VAR_KEYWORD)
        for p in parameters
    )
    return _core.Signature(
        tuple(p.name for p in parameters),
        kinds.count(_P.POSITIONAL_ONLY),
        kinds.count(_P.POSITIONAL_ONLY) + kinds.count(_P.POSITIONAL_OR_KEYWORD),
        _P.VAR_POSITIONAL in kinds,
        _P.VAR_KEYWORD in kinds,
        required,
    )


def call_with_arguments(
    fun: Callable[..., Any], signature: _core.Signature, slots: Sequence[Any], missing: Any
) -> Any:
    """Calls `fun` with the arguments in `slots`, as ``inspect.BoundArguments`` would: by
    position until one is missing, then by keyword. Defaults are the function's business."""
    __tracebackhide__ = True
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    by_position = True
    for i, (name, value) in enumerate(zip(signature.names, slots, strict=True)):
        if value is missing:
            by_position = by_position and i >= signature.positional
        elif i == signature.varargs:
            args.extend(value)
        elif i == signature.varkw:
            kwargs.update(value)
        elif by_position and i < signature.positional:
            args.append(value)
        else:
            kwargs[name] = value
    return fun(*args, **kwargs)


def _called_function(
    fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The Python function that a call of `fun` arrives at, with the arguments it gets."""
    if isinstance(fun, type):
        init = getattr(fun, "__init__")  # noqa: B009 (mypy)
        if isinstance(init, types.FunctionType):
            return init, (None, *args), kwargs
    if isinstance(fun, (staticmethod, classmethod)):
        return _called_function(fun.__func__, args, kwargs)
    if isinstance(fun, types.MethodType):
        return _called_function(fun.__func__, (fun.__self__, *args), kwargs)
    if hasattr(fun, "func") and hasattr(fun, "keywords") and hasattr(fun, "args"):
        return _called_function(fun.func, (*fun.args, *args), {**fun.keywords, **kwargs})
    if hasattr(fun, "__func__") and hasattr(fun, "__self__"):  # Equinox's bound methods
        return _called_function(fun.__func__, (fun.__self__, *args), kwargs)
    call = getattr(type(fun), "__call__", None)  # noqa: B004
    if not isinstance(fun, types.FunctionType) and isinstance(call, types.FunctionType):
        return call, (fun, *args), kwargs
    return fun, args, kwargs


def raise_binding_error(
    fun: Any,
    signature: inspect.Signature | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Raises the TypeError that ``fun(*args, **kwargs)`` would, without running `fun`.

    A stand-in with the same name and parameters and no body is called in its place.
    """
    function, full_args, full_kwargs = _called_function(fun, args, kwargs)
    try:
        own = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        own = None
    if isinstance(function, types.FunctionType) and own is not None:
        stand_in(function.__name__, function.__qualname__, own)(*full_args, **full_kwargs)
    # A signature that is not the function's own (functools.wraps): its own words.
    (signature or inspect.signature(fun)).bind(*args, **kwargs)


def stand_in(name: str, qualname: str, signature: inspect.Signature) -> Callable[..., None]:
    """A function without a body, whose parameters are these."""
    plain = signature.replace(
        parameters=[
            p.replace(annotation=_P.empty, default=_P.empty if p.default is _P.empty else None)
            for p in signature.parameters.values()
        ],
        return_annotation=inspect.Signature.empty,
    )
    namespace: dict[str, Any] = {}
    exec(f"def stand_in{plain}: pass", namespace)
    made: types.FunctionType = namespace["stand_in"]
    made.__name__, made.__qualname__ = name, qualname
    return made
