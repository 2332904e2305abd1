"""The errors that a jitted call raises before, while and after its program runs."""

from collections.abc import Sequence
from typing import Any

import jax

from .. import _core
from . import _jax_compat


class StaticArgumentError(TypeError, ValueError):
    """An argument cannot be part of the key under which a compiled program is kept.

    It is a ``TypeError``, as ``hash`` raises, and a ``ValueError``, as ``jax.jit`` raises.
    """


class MismatchError(TypeError, ValueError):
    """What is compiled was called with other arguments than those that it was compiled for.

    It is a ``TypeError``, as ``jax.stages.Compiled`` raises for shapes and dtypes, and a
    ``ValueError``, as it raises for shardings.
    """


def format_path(path: Sequence[Any]) -> str:
    """``["model", "layers", (2,), "activation"]`` as ``model.layers[2].activation``."""
    text = ""
    for key in path:
        if isinstance(key, tuple):
            text += f"[{key[0]!r}]"
        else:
            text += f".{key}" if text else str(key)
    return text


def array_paths(function: _core.Structure, arguments: _core.Structure) -> list[list[Any]]:
    """The path of each array, those in the function itself first."""
    own = [["the function", *path] for path in function._array_paths()]
    return own + arguments._array_paths()


def short(x: Any, most: int = 80) -> str:
    """The repr of any value, cut off after so many characters."""
    try:
        text = repr(x)
    except Exception:
        text = object.__repr__(x)
    return text if len(text) <= most else text[: most - 3] + "..."


def explain(exception: BaseException) -> BaseException:
    """`exception` with the place in the arguments that it is about.

    The C core leaves ``__filterjit_error_context__ = (deed, path, value)`` on what a static's
    ``__hash__`` or ``__eq__``, the sorting of keys, or a registered flatten function raised.
    """
    blame = exception.__dict__.pop("__filterjit_error_context__", None)
    if blame is None:
        return exception
    deed, path, value = blame
    where = format_path(path)
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if deed == "hash" and type(exception) is TypeError and "unhashable" in str(exception):
        better: BaseException = StaticArgumentError(
            f"argument `{where}` is static, but it cannot be hashed: {short(value)} of type "
            f"`{kind}`. Everything that is not an array is part of the key of the compiled "
            "program. Make it an array (`jnp.asarray`), make it hashable (a tuple in the place "
            "of a list, a frozen dataclass), or register its type as a pytree."
        )
        return better.with_traceback(None)
    if deed == "sort":
        return StaticArgumentError(
            f"the keys of the dict at `{where}` cannot be sorted, which a pytree needs: "
            f"{exception}. Use keys of one type."
        )
    what = {
        "hash": f"while hashing the static `{where}` of type `{kind}`",
        "compare": f"while comparing the static `{where}` of type `{kind}` with an earlier one",
        "flatten": f"while taking apart `{where}` of type `{kind}`",
    }[deed]
    exception.add_note(f"({what})")
    return exception


def jit_id_of(variant: _core.Variant | None) -> bytes:
    """What `equinox_runtime_error` knows the frame of a variant's function by."""
    found: bytes = getattr(getattr(variant, "call", None), "__dict__", {}).get("jit_id", b"")
    return found


def name_deleted(
    exception: BaseException, variant: _core.Variant, arrays: Sequence[Any]
) -> BaseException:
    """`exception` with a note on which arguments are arrays that were deleted."""
    paths = array_paths(variant.function, variant.structure)
    deleted = [
        format_path(path)
        for path, x in zip(paths, arrays, strict=True)
        if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer) and x.is_deleted()
    ]
    if deleted:
        exception.add_note(
            f"(deleted, or donated to an earlier call: argument {', '.join(deleted)})"
        )
    return exception


def translate(
    exception: BaseException, variant: _core.Variant | None, arrays: Sequence[Any], jit_id: bytes
) -> BaseException:
    """The error to raise in the place of `exception`, which a jitted call met."""
    exception = explain(exception)
    if variant is None:
        return exception
    if isinstance(exception, (_jax_compat.JaxRuntimeError, ValueError)):
        better = _jax_compat.equinox_runtime_error(exception, jit_id)
        if better is not None:
            better.__suppress_context__ = True  # as `from None` would
            return better
    if isinstance(exception, (RuntimeError, ValueError)) and "deleted" in str(exception):
        return name_deleted(exception, variant, arrays)
    return exception
