"""The warnings of changes that `filter_jit` does not see: of an NNX Module that a function changes in
place, and of a plain object that holds arrays, which are compiled in.

A trace gets a copy of each Module among the arguments, so what it changes in one is lost.
"""

import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax

from .. import _core
from .._base._errors import format_path, holds_arrays
from .._base._package import is_library_class
from .._compat import _flax_compat, _jax_compat
from .._observe._function_records import FunctionRecord
from .._observe._retraces import stack_level
from .._trees._nodes import walk

_jax_compat.hide_from_tracebacks(__file__)

Variables = list[tuple[str, Any, Any]]
"""The path, the Variable and its value of each Variable."""


_TRACED = (
    "`{}` traces a copy of its arguments. Jit the function with `filterjit.nnx.jit`, which "
    "updates them, or return the Module."
)
_OF_FROZEN = "a frozen function does not update the arguments of its calls. Return the Module."
_COMPILED_IN = (
    "{} is static, so the values in this `{}` are compiled in, and later changes are not seen. {}"
)
FROZEN = (
    "the arrays of a frozen argument are constants. Call `eval()` of the model before `freeze`, or do "
    "not freeze what changes: pass it in each call, and return it."
)


def why_traced(decorator: str, is_frozen: bool) -> str:
    """Returns why a change of an argument is lost, by what jitted the function."""
    if is_frozen:
        return _OF_FROZEN
    return _TRACED.format("filterjit.jit" if decorator == "jit" else decorator)


_told: weakref.WeakSet[type] = weakref.WeakSet()


def warn_of_objects(variant: _core.Variant) -> None:
    """Warns, once a class, that a program is compiled for the arrays of an object that is equal only to
    itself, and whose attributes may be set."""
    for structure, root in ((variant.function, ["the function"]), (variant.structure, [])):
        for node, path in walk(structure):
            x = node.detail
            x = x.__self__ if isinstance(x, types.MethodType) else x
            cls: Any = type(x)
            is_plain = cls.__eq__ is object.__eq__ and cls.__setattr__ is object.__setattr__
            if node.kind != "static" or not is_plain or cls in _told or is_library_class(cls):
                continue
            if holds := holds_arrays(x):
                _told.add(cls)
                where = f"`{format_path([*root, *path])}`" if path else root[0]
                text = _COMPILED_IN.format(where, cls.__qualname__, holds)
                warnings.warn(text, stacklevel=stack_level())


def _variables_in(names: Sequence[str], arguments: Sequence[Any]) -> Variables | None:
    """Returns the Variables in the arguments of a trace, one argument for each name; None if a tree
    among them cannot be flattened."""
    cls: Any = _flax_compat.variable_type()
    try:
        return [
            (name + jax.tree_util.keystr(path), x, x.get_raw_value())
            for name, argument in zip(names, arguments, strict=True)
            for path, x in jax.tree_util.tree_leaves_with_path(
                argument, is_leaf=lambda x: isinstance(x, cls)
            )
            if isinstance(x, cls)
        ]
    except Exception:  # of a function of the user's, which must not make the call fail
        return None


def _has_variables(structure: _core.Structure) -> bool:
    """Whether there is a Variable of NNX in arguments of this structure."""
    cls = _flax_compat.variable_type()
    return cls is not None and any(
        isinstance(node_type, type) and issubclass(node_type, cls)
        for _, _, node_type, _, _ in structure._nodes()
    )


def call(
    function: Callable[[], Any],
    record: FunctionRecord,
    structure: _core.Structure,
    names: Sequence[str],
    arguments: Sequence[Any],
    why: str,
) -> Any:
    """Returns what a trace returns, and warns once a function if it has changed Variables of its arguments.

    Arguments:
        function: runs the user's function.
        record: of the function.
        structure: that of the arguments.
        names, arguments: what may not change.
        why: a change is lost.
    """
    __tracebackhide__ = True
    if record.has_told_lost or not _has_variables(structure):
        return function()
    before = _variables_in(names, arguments)
    out = function()
    _warn(record, before, _variables_in(names, arguments), out, why)
    return out


def _warn(
    record: FunctionRecord,
    before: Variables | None,
    after: Variables | None,
    result: Any,
    why: str,
) -> None:
    """Warns if a trace has changed Variables of its arguments, and does not return
    them. What a transformation of NNX in the function changes is not known: it gives all Variables
    new values."""
    results = _variables_in(("",), (result,))
    if before is None or after is None or results is None:
        return
    returned = {id(variable) for _, variable, _ in results}
    now = {path: (variable, value) for path, variable, value in after}
    lost = [
        path
        for path, variable, value in before
        if (found := now.get(path)) is None
        or (
            id(found[0]) not in returned
            and (found[0] is not variable or found[1] is not value)
            and not _jax_compat.may_be_handed_back(found[1])
        )
    ]
    if lost:
        record.has_told_lost = True
        others = f" and {len(lost) - 1} other Variables" if len(lost) > 1 else ""
        warnings.warn(
            f"{record.name_and_place} changes `{lost[0]}`{others} in place. That change is lost: {why}",
            stacklevel=stack_level(),
        )
