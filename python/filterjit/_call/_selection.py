"""Selections by options: `ArgumentSelection` selects arguments by position and name, like options of
``jax.jit``; `TracedNumbers` selects leaves by parameter name and path."""

import contextlib
import dataclasses
import inspect
import operator
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .. import _core
from .._base._checks import did_you_mean
from .._base._errors import short_repr
from .._base._messages import some_of
from .._compat import _jax_compat
from .._trees._filters import Filter, as_expression, depends_on_leaves, may_take_none
from .._trees._nodes import walk
from .._trees._registry import is_traced, registry
from ._signature import ANY, Parameters, inspect_signature, own_signature, parameters_of

_MOST = 64  # items of *args with separate parameters

# ---- arguments ----


def _indices(x: Any) -> tuple[int, ...]:
    try:
        return (operator.index(x),)
    except TypeError:
        return tuple(map(operator.index, x))


def without_iterators(options: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces iterators in options, because they can be read only once."""
    return {k: tuple(v) if isinstance(v, Iterator) else v for k, v in options.items()}


class HandOver(Exception):
    """Passes a call, or all calls, to upstream's jit. The text is the reason."""


@dataclasses.dataclass(frozen=True)
class ArgumentSelection:
    """Selects positional arguments of a call by position, and keyword arguments by name."""

    positions: frozenset[int] = frozenset()
    names: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.positions or self.names)

    def __repr__(self) -> str:
        return repr((*sorted(self.positions), *sorted(self.names)))

    @classmethod
    def of(
        cls,
        parameters: Parameters | None,
        argnums: int | Iterable[int] | None,
        argnames: str | Iterable[str] | None,
    ) -> "ArgumentSelection":
        """Parses ``argnums`` and ``argnames`` for a function. Like ``jax.jit``, derives either one
        from the other. Raises HandOver if a negative number can't be resolved."""
        names, first, positional, varargs = (parameters or ((), 0, 0, False))[:4]
        plain = {i: names[i] for i in range(first, positional)}
        nums = () if argnums is None else _indices(argnums)
        named = (argnames,) if isinstance(argnames, str) else tuple(argnames or ())
        if argnums is None:
            nums = tuple(i for i, name in plain.items() if name in named)
        elif argnames is None:
            count = len(names)
            named = tuple(name for i, name in plain.items() if i in nums or i - count in nums)
        if any(i < 0 for i in nums):
            if not names or varargs or not _jax_compat.resolves_negative_argnums():
                raise HandOver("a number counts from the end of the arguments")
            nums = tuple(i % positional if i < 0 else i for i in nums)
        return cls(frozenset(nums), frozenset(named))

    def fits(self, parameters: Parameters) -> bool:
        """True if no parameter is selected only by position or only by name."""
        names, positional_only, positional, *_ = parameters
        return all(
            (i in self.positions) == (names[i] in self.names)
            for i in range(positional_only, positional)
        )

    def mark(self, parameters: Parameters, flag: int) -> Parameters:
        """Returns `parameters` with a flag on the selected parameters. Selected items of ``*args``
        and ``**kwargs`` become separate parameters; the names of ``*args`` items aren't
        identifiers. Raises HandOver if there would be too many."""
        names, positional_only, positional, varargs, varkw, flags = parameters
        more = max(self.positions, default=-1) + 1 - positional
        if more > _MOST:
            raise HandOver("a large number of *args is named")
        extra: tuple[str, ...] = ()
        if varargs and more > 0:
            extra = tuple(f"{names[positional]}[{i}]" for i in range(more))
        own = set(names[positional_only:positional]) | set(names[positional + varargs :])
        keywords = tuple(sorted(self.names - own)) if varkw else ()
        end = len(names) - varkw
        names = names[:positional] + extra + names[positional:end] + keywords + names[end:]
        all_flags = bytearray(
            flags[:positional]
            + bytes(len(extra))
            + flags[positional:end]
            + bytes(len(keywords))
            + flags[end:]
        )
        positional += len(extra)
        for i in range(positional):
            all_flags[i] |= flag * (i in self.positions)
        for i in range(positional + varargs, len(names) - varkw):
            all_flags[i] |= flag * (names[i] in self.names)
        return names, positional_only, positional, varargs, varkw, bytes(all_flags)

    def of_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[bool, Any]]:
        """Returns (is selected, argument) for all arguments of a call."""
        found = [(i in self.positions, x) for i, x in enumerate(args)]
        return found + [(name in self.names, x) for name, x in kwargs.items()]

    def paths(
        self, signature: _core.Signature, arguments: Sequence[Any], missing: Any
    ) -> Iterator[tuple[int, ...]]:
        """Yields the index path of each selected parameter, or item of ``*args`` and ``**kwargs``.
        `arguments` has one per parameter, and `missing` for those not given."""
        for i, (name, value) in enumerate(zip(signature.names, arguments, strict=True)):
            if value is missing:
                continue
            if i == signature.varargs:
                yield from ((i, j) for j in range(len(value)) if i + j in self.positions)
            elif i == signature.varkw:
                yield from ((i, j) for j, key in enumerate(sorted(value)) if key in self.names)
            elif (i < signature.positional and i in self.positions) or name in self.names:
                yield (i,)


NO_ARGUMENTS = ArgumentSelection()


NAMING = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")


def named_by(
    fun: Any, options: Mapping[str, Any]
) -> tuple[ArgumentSelection, ArgumentSelection, inspect.Signature | None]:
    """Parses options of ``jax.jit``. Returns the static arguments, the donated arguments, and
    the signature to bind by: the function's own if position and name always agree, otherwise `ANY`.
    Raises HandOver if parameters can't express the selection."""
    given = list(map(options.get, NAMING))
    signature = own_signature(fun)
    if all(x is None for x in given):
        return NO_ARGUMENTS, NO_ARGUMENTS, signature
    public = None
    with contextlib.suppress(TypeError, ValueError):
        public = parameters_of(fun, inspect_signature(fun))
    static, donated = (
        ArgumentSelection.of(public, *given[:2]),
        ArgumentSelection.of(public, *given[2:]),
    )
    parameters = parameters_of(fun, signature)
    if not (static.fits(parameters) and donated.fits(parameters)):
        signature = ANY
    static.mark(parameters_of(fun, signature), _core.STATIC_ARGUMENT)
    return static, donated, signature


_RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def is_sure(fun: Any, options: Mapping[str, Any]) -> bool:
    """True if upstream's jit takes a function and its options without an error. Its own function
    isn't needed until a call is handed over."""
    if type(fun) is not types.FunctionType or fun.__code__.co_flags & _RUNS_LATER:
        return False
    given = {name for name, x in options.items() if x is not None and x is not False}
    if not given <= {"static_argnames", "graph", "graph_updates"}:
        return False
    named = options.get("static_argnames")
    if named is None:
        return True
    if fun.__dict__.keys() & {"__wrapped__", "__signature__"}:
        return False
    names, first, positional, varargs, varkw, _ = parameters_of(fun, None)
    known = names[first:positional] + names[positional + varargs : len(names) - varkw]
    named = (named,) if type(named) is str else named
    return type(named) is tuple and all(type(x) is str and x in known for x in named)


def check_names(option: str, names: Iterable[str], signature: _core.Signature) -> None:
    for name in names:
        if name not in signature.names and signature.varkw < 0:
            raise ValueError(
                f"`{option}` names {name!r}, which is not a parameter: these are "
                f"{', '.join(map(repr, signature.names)) or 'none'}."
                + did_you_mean(name, signature.names)
            )


# ---- leaves ----


@dataclasses.dataclass(frozen=True)
class TracedNumbers:
    """The option `traced`: pairs of a parameter name, and True or a filter of paths."""

    filters: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, given: Any) -> "TracedNumbers":
        """Parses the option. Raises TypeError or ValueError."""
        if isinstance(given, (tuple, list, set, frozenset)):
            given = dict.fromkeys(given, True)
        if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
            such = f", such as ({given!r},)" if isinstance(given, str) else ""
            raise TypeError(
                f"`filter_jit(..., traced=...)` must be a tuple of names of parameters{such}, or a "
                f"dict from such names to True or path patterns, not {short_repr(given)}."
            )
        for name, chosen in given.items():
            is_known = isinstance(chosen, (bool, str, Filter))
            if not is_known or depends_on_leaves(as_expression(chosen, "")):
                raise ValueError(
                    "`traced` takes path patterns, such as '**.rate', and a `Filter` made of them, "
                    f"not {short_repr(chosen)} for {name!r}."
                )
        return cls(tuple(sorted(given.items(), key=lambda item: item[0])))

    def __bool__(self) -> bool:
        return bool(self.filters)

    def __repr__(self) -> str:
        if all(chosen is True for _, chosen in self.filters):
            return repr(self.names)
        return repr(dict(self.filters))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.filters)

    def mark(self, parameters: Parameters) -> Parameters:
        """Returns `parameters` with flags where numbers are traced."""
        extended = ArgumentSelection(names=frozenset(self.names) - set(parameters[0])).mark(
            parameters, 0
        )
        names, positional_only, positional, varargs, varkw, flags = extended
        chosen = {name: as_expression(x, "") for name, x in self.filters}

        def flag(name: str) -> int:
            expression = chosen.get(name, False)
            if not isinstance(expression, bool):
                return _core.CHOSEN_ARGUMENT
            return _core.TRACED_ARGUMENT * expression

        flags = bytes(x | flag(name) for name, x in zip(names, flags, strict=True))
        return names, positional_only, positional, varargs, varkw, flags

    def mask(self, name: str, argument: Any) -> bytes:
        """Returns a byte for each leaf of an argument: 1 to trace the leaf if it's a number. Raises
        ValueError if a path pattern matches no leaf, or a leaf that isn't an array or a number."""
        expression = as_expression(dict(self.filters)[name], "")
        try:
            leaves, tree, groups = _core.tree_groups(registry, argument, True, (expression,), None)
        except ValueError as e:  # a pattern that matches no leaf
            raise ValueError(f"`traced` does not fit {name!r}: {e}") from None
        if 0 not in groups and not may_take_none(expression):
            raise self._refused(name, tree.paths, "matches no leaf")
        for i, leaf in enumerate(leaves):
            if groups[i] == 0 and not is_traced(leaf):
                why = f"matches `{tree.paths[i]}`, a `{type(leaf).__name__}`, which is neither an array nor a number"
                raise self._refused(name, tree.paths, why)
        return bytes(group == 0 for group in groups)

    def _refused(self, name: str, paths: Sequence[str], why: str) -> ValueError:
        """Returns the error for a filter that doesn't fit an argument with these paths; `why`
        follows "which"."""
        chosen = dict(self.filters)[name]
        return ValueError(
            f"`traced` has {chosen!r} for {name!r}, which {why}: the argument has "
            f"{some_of(paths)}." + did_you_mean(chosen, paths, 0.5)  # a pattern is shorter
        )

    def check_no_texts(self, structure: _core.Structure) -> None:
        """Raises ValueError if a parameter without a path has a str."""
        for node, path in walk(structure):
            is_text = node.kind == "static" and isinstance(node.detail, str) and len(path) == 1
            if is_text and (node.key, True) in self.filters:
                raise ValueError(
                    f"`traced` names {node.key!r}, which is the str {short_repr(node.detail)}: leave it out, as "
                    "no number is in it."
                )


NOTHING_TRACED = TracedNumbers()
