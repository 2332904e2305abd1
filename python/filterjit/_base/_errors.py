"""The errors of jitted calls, and the notes they add to other exceptions."""

import collections
import contextlib
import dataclasses
import re
import types
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from .. import _core
from .._compat import _equinox_compat, _jax_compat
from ._call_hooks import Failure
from ._messages import WHILE
from ._messages import format_path as format_path
from ._messages import short_repr as short_repr
from ._package import is_library_class, public
from ._unwrap import code_of, is_function


@public
class StaticArgumentError(TypeError, ValueError):
    """A static argument, or a part of one, can't be part of a cache key.

    `filter_jit` compiles a program for each combination of static values. It raises this error
    for an unhashable static leaf, and for a dict with keys that can't be sorted.

    Like the error of ``hash``, it is a ``TypeError``; like that of ``jax.jit``, a ``ValueError``.
    """


@public
class MismatchError(TypeError, ValueError):
    """A compiled function was called with arguments that it wasn't compiled for.

    ``jax.stages.Compiled`` raises ``TypeError`` for shapes and dtypes, ``ValueError`` for
    shardings. This error is both.
    """


@public
class ProcessMismatchError(RuntimeError):
    """Processes that run one program together were about to run different programs."""


def array_paths(function: _core.Structure, arguments: _core.Structure | None) -> list[list[Any]]:
    """Returns the path of each array, beginning with the arrays in the function itself."""
    own = [["the function", *path] for path in function._key_paths()]
    return own if arguments is None else own + arguments._key_paths()


_CONTEXT = "__filterjit_error_context__"


def failed_operation(exception: BaseException) -> str:
    """Returns the operation of the C core that failed, a key of `WHILE`, or ""."""
    operation: str = exception.__dict__.get(_CONTEXT, ("",))[0]
    return operation


@contextlib.contextmanager
def paths_in(root: str) -> Iterator[None]:
    """Begins the paths of the C core's errors, which are those of a whole tree, with its name."""
    try:
        yield
    except Exception as e:
        if _CONTEXT in e.__dict__:
            e.__dict__[_CONTEXT][1].insert(0, root)
        raise


def add_path(exception: BaseException) -> BaseException:
    """Returns `exception` with a note that says where in the arguments it occurred, or a
    StaticArgumentError in its place.

    The C core sets ``__filterjit_error_context__ = (operation, path, value)`` on exceptions from a
    static's ``__hash__`` or ``__eq__``, from sorting keys, and from registered flatten functions.
    """
    context = exception.__dict__.pop(_CONTEXT, None)
    if context is None:
        return exception
    operation, path, value = context
    where = format_path(path)
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if operation == "hash" and type(exception) is TypeError and "unhashable" in str(exception):
        error: BaseException = StaticArgumentError(
            f"argument `{where}` is static, but it cannot be hashed: {short_repr(value)} of type "
            f"`{kind}`. Everything that is not an array is part of the key of the compiled "
            f"program. {_how_to_hash(value)}"
        )
        return error.with_traceback(None)
    if operation == "sort":
        return StaticArgumentError(
            f"the keys of the dict at {f'`{where}`' if where else 'the root'} cannot be sorted, "
            "which a pytree needs: "
            f"{exception}. Use keys of one type."
        )
    earlier = " with an earlier one" * (operation == "compare")
    exception.add_note(f"({WHILE[operation]} `{where}` of type `{kind}`{earlier})")
    return exception


_ARRAYS = (*_jax_compat.ARRAY_TYPES, jax.core.Tracer)


def holds_arrays(x: Any) -> str:
    """Returns advice for an object that holds arrays but isn't a pytree, otherwise ""."""
    names = [
        name
        for name, value in attributes_of(x)
        if any(isinstance(leaf, _ARRAYS) for leaf in leaves_within(value))
    ]
    if not names:
        return ""
    shown = ", ".join(f"`{name}`" for name in names[:3]) + ", ..." * (len(names) > 3)
    holds = f"{shown} holds an array" if len(names) == 1 else f"{shown} hold arrays"
    how = "`jax.tree_util.register_pytree_node_class`, or an equinox.Module"
    if dataclasses.is_dataclass(x):
        how = "`jax.tree_util.register_dataclass`"
    elif is_library_class(type(x)):
        how = "`jax.tree_util.register_pytree_node`"
    return f"Its {holds}: make `{type(x).__qualname__}` a pytree ({how}), so that JAX traces what it holds."


def is_array_like(x: Any) -> bool:
    """True if `x` has an ``__array__`` method but isn't an array of NumPy or JAX."""
    own = (type, np.ndarray, np.generic, jax.Array)
    return hasattr(type(x), "__array__") and not isinstance(x, own)


def attributes_of(x: Any) -> list[tuple[str, Any]]:
    """Returns the ``__dict__`` and slots of an object other than a class, module, function or
    array."""
    try:
        if isinstance(x, (type, types.ModuleType, *_ARRAYS)) or is_function(x):
            return []
        state: Any = object.__getstate__(x)
    except Exception:  # from the object's own code
        return []
    parts = state if isinstance(state, tuple) else (state,)
    return [item for part in parts if isinstance(part, dict) for item in part.items()]


_MOST_OBJECTS = 1000  # to search
_MOST_LEVELS = 5  # an object, its attributes, their attributes, and so on
_MOST_LEAVES = 100  # of each


def leaves_within(x: Any) -> Iterator[Any]:
    """Yields the leaves of `x` and of their attributes, each object once."""
    seen: dict[int, Any] = {}
    todo = collections.deque([(x, 1)])
    while todo and len(seen) < _MOST_OBJECTS:
        value, level = todo.popleft()
        try:
            leaves = jax.tree_util.tree_leaves(value)
        except Exception:  # a user's flatten function, or keys that can't be sorted
            continue
        for leaf in leaves[:_MOST_LEAVES]:
            if id(leaf) not in seen:
                seen[id(leaf)] = leaf
                yield leaf
                if level < _MOST_LEVELS:
                    todo.extend((held, level + 1) for _, held in attributes_of(leaf))


def nothing_to_trace(what: str) -> TypeError:
    """Returns the error for a coroutine or generator function; `what` begins the text."""
    return TypeError(
        f"{what}, whose body does not run when it is called, so there is nothing to trace. Jit a plain "
        "function, and call that in it."
    )


def _how_to_hash(x: Any) -> str:
    if is_array_like(x):
        return "Pass `np.asarray(...)` of it, which is traced."
    if isinstance(x, (set, bytearray)):
        return f"Pass {'a frozenset' if isinstance(x, set) else 'bytes'}."
    if is_library_class(type(x)):
        return "Pass the values in it that the function uses."
    if found := holds_arrays(x):
        return found
    if dataclasses.is_dataclass(x):
        return (
            "Make the dataclass frozen, with values that can be hashed (tuples instead of lists), or "
            "register it as a pytree (`jax.tree_util.register_dataclass`)."
        )
    return (
        "Make it hashable (`__eq__` and `__hash__` in its class), or register its type as a pytree."
    )


def jit_id_of(variant: _core.Variant | None) -> bytes:
    """Returns the `jit_id` for `_equinox_compat.runtime_error`, or b"" if the variant has none."""
    jit_id: bytes = getattr(getattr(variant, "_programs", None), "jit_id", b"")
    return jit_id


def is_deleted(x: Any) -> bool:
    is_array = isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
    return is_array and x.is_deleted()


def name_deleted(failure: Failure) -> BaseException:
    """Names deleted arrays, and donated arrays that appear twice, in notes to a call's
    exception."""
    _, exception, variant, arrays, _ = failure
    if variant is None or not isinstance(exception, (RuntimeError, ValueError)):
        return exception
    paths = array_paths(variant.function, variant.structure)
    text = str(exception)
    deleted: dict[Any, list[str]] = {}
    by_memory: dict[int, list[str]] = {}
    for path, x in zip(paths, arrays, strict=False):
        if "deleted" in text and is_deleted(x):
            deleted.setdefault(path[0], []).append(f"`{format_path(path)}`")
        elif "Execute()" in text and "donate" in text:
            by_memory.setdefault(_memory_of(x), []).append(f"`{format_path(path)}`")
    shown = [
        names[0] if len(names) == 1 else f"{len(names):,} arrays of `{argument}`, first {names[0]}"
        for argument, names in deleted.items()
    ]
    if shown:
        exception.add_note(
            f"(deleted, or donated to an earlier call: {'; '.join(shown)}. Use what the call returned)"
        )
    for names in by_memory.values():
        if len(names) > 1:
            exception.add_note(
                f"({' and '.join(names)} are the same array: pass a copy in all places but one, "
                "`jnp.copy(x)`, or do not donate it)"
            )
    return exception


def _memory_of(x: Any) -> int:
    try:
        part = x.addressable_data(0) if len(x.devices()) > 1 else x
        return int(part.unsafe_buffer_pointer()) if x.size else id(x)  # the address can be 0
    except Exception:  # not a JAX array, or on devices of other processes
        return id(x)


def _static_lists(structure: _core.Structure) -> list[list[Any]]:
    """Returns the paths of lists of static numbers."""
    nodes = [structure._node(i) for i in range(structure._node(0)[4])]
    return [
        structure._key_path(i)
        for i, (kind, arity, *_) in enumerate(nodes)
        if kind == "list" and arity and type(nodes[i + 1][3]) in (int, float)
    ]


_NUMPY = {bool: np.bool_, int: np.integer, float: np.floating}


def name_untraceable(
    exception: BaseException, variant: _core.Variant, arrays: Sequence[Any], traced: Any
) -> BaseException:
    """Names, in notes, NumPy values that JAX can't trace, and a traced number that it must know."""
    if "'list'" in str(exception) and "unsupported operand" in str(exception):
        lists = [format_path(path) for path in _static_lists(variant.structure)]
        for name in lists[:3]:
            exception.add_note(
                f"(argument `{name}` is a list of numbers, which are static. Pass "
                f"`jnp.asarray({name})`, one array)"
            )
    paths = array_paths(variant.function, variant.structure)
    _, _, missed = str(exception).partition(" depends on the value")
    for path, x in zip(paths, arrays, strict=False):
        name = format_path(path)
        whole = rf"(?<![\w.]){re.escape(name)}(?!\w|\[|\.\w)"
        if isinstance(x, (np.str_, np.bytes_)):
            exception.add_note(
                f"(argument `{name}` is {x!r}, which JAX cannot trace. Pass "
                f"`{'str' if isinstance(x, str) else 'bytes'}({name})`, which is static)"
            )
        elif isinstance(x, np.ndarray) and x.dtype.kind in "OSUVTMm" and x.dtype.isbuiltin != 2:
            exception.add_note(
                f"(argument `{name}` is a NumPy array of dtype {x.dtype}, which JAX cannot "
                "trace. Convert it to numbers, or to a tuple, which is static)"
            )
        elif isinstance(x, (np.bool_, np.integer, np.floating)) and re.search(whole, missed):
            kind = next(t for t in (bool, int, float) if isinstance(x, _NUMPY[t]))
            if path[0] not in getattr(traced, "names", ()):
                exception.add_note(
                    f"(argument `{name}` is {x!r}, which is traced as an array is. Pass "
                    f"`{kind.__name__}({name})`: a Python number is static)"
                )
        if traced and isinstance(x, int) and re.search(whole, missed):
            exception.add_note(
                f"(argument `{name}` is {x}, and has no value in the trace since the option `traced` is "
                f"{traced!r}. Leave out there what is a size, a shape, or asked in an `if`)"
            )
    return exception


def translate(failure: Failure, jit_id: bytes) -> BaseException:
    """Returns the exception that a failed call raises."""
    exception = add_path(failure.exception)
    failure = failure._replace(exception=exception)
    if failure.variant is None:
        return exception
    if isinstance(exception, (jax.errors.JaxRuntimeError, ValueError)):
        error = _equinox_compat.runtime_error(exception, jit_id)
        if error is not None:
            error.__suppress_context__ = True  # like `from None`
            return error
    if isinstance(exception, TypeError):
        settings = failure.f._parts()[0].hooks.settings
        traced = getattr(settings, "traced", None)
        return name_untraceable(exception, failure.variant, failure.arrays, traced)
    if isinstance(exception, RuntimeError) and "non-empty mesh" in str(exception):
        exception.add_note(
            "(pass `mesh=` to `filter_jit`, or call it inside of `jax.set_mesh(mesh)`)"
        )
    if isinstance(exception, RecursionError) and "Recursively calling" in str(exception):
        name = getattr(failure.f, "__qualname__", "the function")
        code = code_of(failure.f._function)
        place = "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}"
        note = f"({name}{place} calls itself while it is traced, without end)"
        if note not in getattr(exception, "__notes__", ()):
            exception.add_note(note)
        return exception
    return name_deleted(failure)
