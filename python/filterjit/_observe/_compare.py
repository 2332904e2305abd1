"""The differences between two structures, and between two traces of a function."""

import contextlib
import dataclasses
import enum
import functools
import itertools
import operator
import types
from collections.abc import Sequence
from typing import Any

import jax

from .. import _core
from .._base._arrays import Aval
from .._base._errors import array_paths, format_path, holds_arrays
from .._base._package import is_installed, is_library_class
from .._base._unwrap import codes_of, is_function, unwrap_chain, values_in
from .._compat._registered_compat import registered_dataclass_fields
from .._terminal._notebook import is_notebook
from .._trees._nodes import KEYED, Node, Nodes, root_of
from .._trees._registry import NUMBERS, registry
from . import _table, _wording
from ._causes import Cause, cause_of, in_order
from ._records import TraceRecord
from ._table import Row, decorator_of, of_number, row_of
from ._wording import (
    class_name,
    describe,
    describe_node,
    dtype_of,
    file_and_line,
    in_words,
    list_first,
    shorten,
)

_NEW_CLASS = "a new class of the same name"
_DEFINE_EQ = ", or define `__eq__` and `__hash__` in its class"

MOST_NODES = 24  # arrays, and other nodes, to look at

# ---- two structures ----


class Comparison:
    """The differences between two structures.

    `causes` are the differences, the most important first, without `more` further ones. `was` and
    `now` are the structures of a compiled program and of a call. `cache` is the function's cache,
    if they are its arguments. `most` limits the number of arrays, and of other nodes.
    """

    def __init__(
        self,
        registry: _core.Registry,
        was: _core.Structure,
        now: _core.Structure,
        path: Sequence[Any] = (),
        avals_was: Sequence[Aval] | None = None,
        avals_now: Sequence[Aval] | None = None,
        cache: _core.Cache | None = None,
        most: int = MOST_NODES,
        fixed: str = "",
    ) -> None:
        self.registry, self.now, self.cache, self.most = registry, now, cache, most
        self.avals_was, self.avals_now = avals_was, avals_now
        self.causes: list[Cause] = []
        self._fixed = self._all_fixed = fixed  # what makes all values here static
        self._all_in_lists = True
        self._is_of_filter_jit = cache is None or decorator_of(cache) == "filter_jit"
        self._nodes = nodes_was, nodes_now = Nodes(was), Nodes(now)
        pairs, self.more = nodes_was.differences(nodes_now, avals_was, avals_now, most)
        for i, j in pairs:
            lineages = nodes_was.lineage(i), nodes_now.lineage(j)
            of_j, known = [*path, *now._key_path(j)], len(self.causes)
            self._in_list = self._is_list(nodes_now, lineages[1], of_j)
            try:
                self._compare_nodes(*lineages, of_j)
            except Exception as e:  # from a static's own code
                x, y = (shorten(nodes[-1].detail) for nodes in lineages)
                self._add(_table.OTHER, of_j, x, f"{y}: comparing them raised {type(e).__name__}")
            if not _has_compared_children(nodes_was[i], nodes_now[j]):
                below = nodes_now[j].end - j - 1
                self.causes[known:] = [cause.heavier(below) for cause in self.causes[known:]]
        if numbers := [cause._number for cause in self.causes if cause._number is not None]:
            remedy = of_number(cache, numbers, in_list=self._all_in_lists)  # one option for all
            self.causes = [
                cause if cause._number is None else dataclasses.replace(cause, remedy=remedy)
                for cause in self.causes
            ]
        self.causes = in_order(self.causes)

    @property
    def differences(self) -> "Differences":
        """The differences, at least one: a static's ``__eq__`` can have said otherwise before."""
        hidden = cause_of(_table.EQUALITY, "", "unequal in the call", "equal now")
        return Differences(self.causes or [hidden], self.more)

    def _is_list(self, nodes: Nodes, lineage: list[Node], path: list[Any]) -> bool:
        """True for an item of a list or tuple of numbers alone, except ``*args``."""
        parent = (lineage[0], *lineage)[-2]
        rest = -1 if self.cache is None else self.cache.signature.varargs
        if rest >= 0 and self.cache and path[:-1] == [self.cache.signature.names[rest]]:
            return False
        return parent.kind in ("list", "tuple") and all(
            type(nodes[child].detail) in NUMBERS for child in nodes.children(parent.index)
        )

    def _compare_arrays(self, was: int, now: int, path: list[Any]) -> None:
        avals_was, avals_now = self.avals_was or (), self.avals_now or ()
        if was < len(avals_was) and now < len(avals_now):
            cause = _compare_avals(path, avals_was[was], avals_now[now])
            self.causes += [cause] if cause else []

    def _add(self, row: Row, path: list[Any], was: str, now: str, **filled: Any) -> None:
        if was == now:
            now += ", which is not equal to it"
        self.causes.append(cause_of(row, format_path(path), was, now, **filled))

    def _add_nodes(self, row: Row, path: list[Any], was: Node, now: Node, **filled: Any) -> None:
        words = describe_node(was, self.avals_was), describe_node(now, self.avals_now)
        self._add(row, path, *words, **filled)

    def _compare_nodes(self, of_was: list[Node], of_now: list[Node], path: list[Any]) -> None:
        was, now = of_was[-1], of_now[-1]
        if was.kind == now.kind == "array":
            return self._compare_arrays(was.array, now.array, path)
        is_field = len(of_now) > 1 and _is_static_field(of_now[-2].type, now.key)
        self._fixed = self._all_fixed or _table.IN_FIELD * is_field
        if was.kind != now.kind:
            self._compare_kinds(was, now, path)
        elif was.kind == "static":
            self._compare_statics(was.detail, now.detail, path)
        elif was.kind == "ref":
            self._add_nodes(_table.SHARING, path, was, now)
        elif was.type is not now.type:
            names = class_name(was.type), class_name(now.type)
            if names[0] == names[1]:
                self._add(_new_class(now.type), path, f"`{names[0]}`", _NEW_CLASS)
            else:
                self._add(_table.OTHER_CLASS, path, f"`{names[0]}`", f"`{names[1]}`")
        elif was.kind in KEYED:
            self._compare_keys(was, now, path)
        elif was.arity != now.arity:
            self._add_nodes(_table.LENGTH, path, was, now)
        elif isinstance(was.detail, _core.Cache) and isinstance(now.detail, _core.Cache):
            self._compare_jitted(was.detail, now.detail, path)
        elif self._is_changed(was.detail, now.detail):
            self._add_changed(path, f"aux data {shorten(now.detail)}")
        else:
            known, self._fixed = len(self.causes), _table.IN_AUX
            self._compare_statics(was.detail, now.detail, path)
            self.causes[known:] = [
                dataclasses.replace(cause, was=f"aux data {cause.was}")
                for cause in self.causes[known:]
            ]

    def _compare_jitted(self, was: _core.Cache, now: _core.Cache, path: list[Any]) -> None:
        found = Comparison(self.registry, was.function, now.function, path, most=self.most)
        self.causes += found.causes
        if not found.causes:
            words = describe_node(root_of(was.function), None), "the same function, jitted again"
            self._add(_table.JITTED_AGAIN, path, *words)

    def _is_changed(self, x: Any, y: Any) -> bool:
        """True if two values that differed before are equal now: one was changed in place."""
        try:
            return x is y or _core.same_static(self.registry, x, y)
        except Exception:
            return False

    def _add_changed(self, path: list[Any], now: str) -> None:
        self._add(_table.CHANGED, path, "another value when it was traced", now)

    def _compare_keys(self, was: Node, now: Node, path: list[Any]) -> None:
        """Compares the keys of dicts, and the (static) attributes of instances of a class."""
        is_dict = was.kind != "module"
        changes, row = _other_keys([*was.detail], [*now.detail]), _table.ATTRIBUTES
        if is_dict:
            row = _table.KEYS if changes else _table.ORDER
            changes = changes or f"one in the order {_list_keys(now.detail)}"
        words = f"a dict of {_list_keys(was.detail)}" if is_dict else describe_node(was, None)
        self._add(row, path, words, changes or "one of which other attributes are static")

    def _compare_kinds(self, was: Node, now: Node, path: list[Any]) -> None:
        kinds, filled = {was.kind, now.kind}, {}
        static = next((node.detail for node in (was, now) if node.kind == "static"), None)
        is_number = type(static) in (int, float, complex)
        if "missing" in kinds:
            more = of_number(self.cache, [path]) if is_number else row_of(static, static).remedy
            row, filled = _table.GIVEN, {"more": f" {more}" if "static" in kinds else ""}
        elif kinds == {"array", "static"} and isinstance(static, bool):
            row = _table.FLAG_OR_ARRAY
        elif kinds == {"array", "static"}:
            row = _table.NUMBER_OR_ARRAY if is_number else _table.STATIC_OR_ARRAY
        elif "ref" in kinds:
            row = _table.SHARING
        elif "none" in kinds:
            row = _table.OPTIONAL
        elif ("array" in kinds or is_number) and self._are_numbers(was, now):
            row = _table.LIST_OF_NUMBERS
        else:
            row = _table.CONTAINER
        self._add_nodes(row, path, was, now, **filled)

    def _are_numbers(self, *pair: Node) -> bool:
        """True if one of two nodes is a list or tuple of static numbers alone."""
        found = [
            type(nodes[child].detail) in NUMBERS
            for nodes, node in zip(self._nodes, pair, strict=True)
            if node.kind in ("list", "tuple")
            for child in nodes.children(node.index)
        ]
        return bool(found) and all(found)

    def _compare_statics(self, x: Any, y: Any, path: list[Any]) -> None:
        dtypes = dtype_of(x), dtype_of(y)
        if self._is_changed(x, y):
            self._add_changed(path, describe(y))
        elif dtypes[0] is not None and dtypes[0] == dtypes[1]:
            words = shorten(x), f"{shorten(y)}, which names the same dtype"
            self._add(_table.SAME_DTYPE, path, *words)
        elif None not in dtypes:
            self._add(_table.DTYPE_VALUE, path, *in_words(x, y, describe))
        elif is_function(x) and is_function(y):
            self._add_other_function(x, y, path)
        elif isinstance(x, type) and isinstance(y, type) and _same_name(x, y):
            self._add(_new_class(y), path, describe(x), _NEW_CLASS)
        elif type(x) is not type(y) and _same_name(type(x), type(y)):
            words = f"an instance of `{class_name(type(x))}`", f"one of {_NEW_CLASS}"
            self._add(_new_class(type(y)), path, *words)
        elif type(x) is not type(y):
            row = row_of(x, y, self._fixed)
            if row == _table.NUMBER_TYPE and not self._is_of_filter_jit:
                row = _table.TYPE  # it can't be an array
            self._add(row, path, *in_words(x, y, describe))
        else:
            self._add_other_value(x, y, path)

    def _add_other_function(self, x: Any, y: Any, path: list[Any]) -> None:
        row, was, now = _table.OTHER_FUNCTION, describe(x), describe(y)
        filled: dict[str, str] = {}
        if isinstance(x, _METHODS) and getattr(y, "__func__", None) is x.__func__:
            row = _table.METHOD
            if is_library_class(type(y.__self__)):
                row, filled = _table.METHOD_OF_LIBRARY, {"holder": class_name(type(y.__self__))}
        elif (place := _where_recreated(x, y)) is not None:
            row, now, filled = self._of_recreated(x, y, path, place)
        elif was == now:
            now = "another function of the same name and place"
        self._add(row, path, was, now, **filled)
        if row.is_endless and _is_made_again(x, y):
            self.causes[-1] = dataclasses.replace(self.causes[-1], _is_needless=True)

    def _of_recreated(
        self, x: Any, y: Any, path: list[Any], place: str
    ) -> tuple[Row, str, dict[str, str]]:
        """Returns the row for a function with equal code, its description, and remedy parts."""
        is_partial = isinstance(y, functools.partial)
        noun = "partial" if is_partial else "function with the same code"
        new, pairs = f"a new {noun}", zip(values_in(x), values_in(y), strict=False)
        settings = getattr(getattr(self.cache, "hooks", None), "settings", None)
        by_structure = getattr(settings, "functions", "") == "structure"
        others = [(a, b) for a, b in pairs if not self._is_changed(a.value, b.value)]
        if by_structure:
            from .._functions._function_keys import are_equal

            holders = [(a, b, (a.holder, b.holder)) for a, b in others]
            others = [(a, b) for a, b, of in holders if not are_equal(a.value, b.value, of)]
        if by_structure and others:
            row, filled = _table.HELD_VALUE, {}
        elif _wording.is_of_library(x) and not is_partial:
            row, others, filled = _table.OF_LIBRARY, [], {"holder": _holder_of(path)}
        else:
            again = f"It is recreated at {place}." if place else f"Each {noun.split()[0]} is new."
            option = ', or pass functions="structure" to `filter_jit`'
            helps = self._is_of_filter_jit and _is_made_again(x, y, (None, None))
            if by_structure or not helps:
                option = ""
            names = ", ".join(dict.fromkeys(f"`{a.name}`" for a, _ in others))
            row = _table.RECREATED_WITH if others else _table.RECREATED
            filled = {"again": again, "option": option, "names": names}
        values = ", ".join(dict.fromkeys(f"{a.kind}`{a.name}`" for a, _ in others))
        joint = f" {'with' if is_partial else 'but'} another {values}"
        return row, new + joint * bool(others), filled

    def _add_other_value(self, x: Any, y: Any, path: list[Any]) -> None:
        if found := self._differences_within(x, y, path):
            self.causes += found
            return
        if (found_order := _other_order(x, y, path)) is not None:
            where, was, now = found_order
            words = f"a dict of {_list_keys([*was])}", f"one in the order {_list_keys([*now])}"
            return self._add(_table.ORDER._replace(kind="static"), where, *words)
        row, filled = row_of(x, y, self._fixed), {}
        is_object = not isinstance(x, type | enum.Enum) and dtype_of(x) is None
        if is_object and row != _table.OTHER and getattr(type(x), "__eq__", None) is object.__eq__:
            holds = "" if self._fixed else holds_arrays(y)
            row = _table.HOLDS_ARRAYS if holds else _table.IDENTITY
            can_define = not (is_library_class(type(y)) or holds_arrays(y))
            filled = {"holds_arrays": holds, "define_eq": _DEFINE_EQ * can_define}
        self._add(row, path, *in_words(x, y, describe), **filled)
        if type(y) in (int, float, complex) and not self._fixed:
            self.causes[-1] = dataclasses.replace(self.causes[-1], _number=path)
            self._all_in_lists &= self._in_list

    def _differences_within(self, x: Any, y: Any, path: list[Any]) -> list[Cause]:
        """Returns the differences between two static pytrees; none for leaves."""
        for policy in (self.registry, registry):  # traced numbers come second
            try:
                (_, was), (_, now) = _core.flatten(policy, x), _core.flatten(policy, y)
            except Exception:  # a static need not be a pytree: its keys may have no order
                return []
            roots = root_of(was), root_of(now)
            if "array" in {root.kind for root in roots}:
                return []
            if any(root.detail is value for root, value in zip(roots, (x, y), strict=True)):
                return []  # a leaf, or aux data of itself (``register_static``)
            inner = Comparison(policy, was, now, path, cache=self.cache, fixed=self._fixed)
            if inner.causes:
                self._all_in_lists &= inner._all_in_lists
                break
        return inner.causes


def _has_compared_children(was: Node, now: Node) -> bool:
    if was.kind != now.kind or was.type is not now.type:
        return False
    return was.kind in KEYED or was.arity == now.arity


_METHODS = (types.MethodType, _core.BoundMethod)


def _new_class(cls: type) -> Row:
    """Returns the row for a class that was defined again."""
    of_cell = is_notebook() and cls.__module__ == "__main__" and "<locals>" not in cls.__qualname__
    return _table.CELL_CLASS if of_cell else _table.NEW_CLASS


def _other_order(x: Any, y: Any, path: list[Any]) -> tuple[list[Any], Any, Any] | None:
    """Returns the first dicts within two statics that have the same keys in another order."""
    if type(x) is not type(y):
        return None
    is_object = dataclasses.is_dataclass(x) and not isinstance(x, type)
    if is_object:
        x, y = getattr(x, "__dict__", {}), getattr(y, "__dict__", {})
    elif isinstance(x, list | tuple):
        x, y = dict(enumerate(x)), dict(enumerate(y))
    elif not isinstance(x, dict):
        return None
    elif x.keys() == y.keys() and [*x] != [*y]:
        return path, x, y
    keys = [(key, key if is_object else (key,)) for key in x if key in y]
    found = (_other_order(x[key], y[key], [*path, place]) for key, place in keys)
    return next((one for one in found if one is not None), None)


def _is_static_field(cls: Any, name: Any) -> bool:
    """True for a field that its class, of Equinox or Flax, declares static."""
    if name in (registered_dataclass_fields(cls) or ((), ()))[1]:
        return True
    fields = getattr(cls, "__dataclass_fields__", {}) if isinstance(name, str) else {}
    metadata = getattr(fields.get(name), "metadata", {})
    return bool(metadata.get("static")) or metadata.get("pytree_node") is False


def _other_keys(was: list[Any], now: list[Any]) -> str:
    """Describes which keys `now` has more or fewer than `was`, or returns ""."""
    removed = [key for key in was if key not in now]
    added = [key for key in now if key not in was]
    changes = [f"one without {_list_keys(removed)}"] * bool(removed)
    changes += [f"one with {_list_keys(added)}"] * bool(added)
    return " and ".join(changes)


def _list_keys(keys: Sequence[Any]) -> str:
    return list_first(keys, 4, show=repr)


def _where_recreated(x: Any, y: Any) -> str | None:
    """Returns the place that creates functions with the common code of `x` and `y`; "" if they wrap
    the same function; None if their code, or that of wrapped functions, differs."""
    if codes_of(x) != codes_of(y):
        return None
    chains = (unwrap_chain(f, "func", "__wrapped__") for f in (x, y))
    for i, (a, b) in enumerate(zip(*chains, strict=False)):
        if i > 0 and (a is b or (isinstance(a, _METHODS) and a == b)):
            return ""
        if isinstance(a, functools.partial) != isinstance(b, functools.partial):
            return None
        code = getattr(a, "__code__", None)
        other = getattr(b, "__code__", None)
        # The same code object, or the same source text, such as a cell that ran twice.
        if code is not None and code == other and code.co_filename == other.co_filename:
            return _place_of_code(code) if isinstance(a, types.FunctionType) else None
    return None


def _place_of_code(code: types.CodeType) -> str:
    """Returns the place of a function, which may wrap another one; "" for a library's wrapper."""
    is_of_library = is_installed(code.co_filename)
    return "" if is_of_library else file_and_line(code.co_filename, code.co_firstlineno)


def _same_name(x: type, y: type) -> bool:
    return (x.__module__, x.__qualname__) == (y.__module__, y.__qualname__)


def _holder_of(path: list[Any]) -> str:
    """Returns the path of the library's object that contains a function."""
    return format_path(path[:-1] if len(path) > 1 else path)


def _is_made_again(x: Any, y: Any, holders: tuple[Any, Any] | None = None) -> bool:
    """True if two functions have equal contents or, with holders, keys (`are_equal`)."""
    with contextlib.suppress(ImportError):  # the room was removed
        from .._functions import _function_keys

        return _function_keys.are_equal(x, y, holders)
    return False


@dataclasses.dataclass
class Differences:
    """The differences between two programs, and the number of further ones."""

    causes: list[Cause]
    more: int = 0

    @property
    def distance(self) -> tuple[int, int]:
        """How much the programs differ: first, without placements; then only by these."""
        placed = sum(cause._row in _table.PLACED for cause in self.causes)
        return self.more + sum(cause._weight for cause in self.causes) - placed, placed


# ---- two traces ----


def _compare_avals(path: list[Any], was: Aval, now: Aval) -> Cause | None:
    """Returns the difference between two arrays' types in JAX, or None."""
    where, words = format_path(path), [str(was), str(now)]
    dtypes = {was.dtype, now.dtype}
    if len(dtypes) == 2 and any(jax.dtypes.issubdtype(x, jax.dtypes.prng_key) for x in dtypes):
        row = _table.KEY
        words = [f"{x} of PRNGKey" if x.startswith("uint32") else x for x in words]
    elif was.shape != now.shape:
        row = _table.SHAPE if len(was.shape) == len(now.shape) else _table.RANK
        if jax.dtypes.issubdtype(now.dtype, jax.dtypes.prng_key):
            row = _table.SHAPE_OF_KEYS
    elif was.dtype != now.dtype:
        row = _table.WEAK_DTYPE if was.weak_type or now.weak_type else _table.DTYPE
    elif was.weak_type != now.weak_type:
        row = _table.WEAK_TYPE
    elif was.sharding != now.sharding:
        row = _table.MESH if None in (was.sharding, now.sharding) else _table.TYPE_OF_SPEC
        words = [_where(was.sharding), _where(now.sharding)]
    else:
        return None
    return cause_of(row, where, *words, array=where)


def compare_traces(
    cache: _core.Cache, structure: _core.Structure, was: TraceRecord, now: TraceRecord
) -> list[Cause]:
    """Explains why JAX retraces a call with the avals and configuration of `now`, given an earlier
    trace of the same static structure."""
    causes = _compare_arrays(cache, structure, was.avals, now.avals) + _compare_contexts(was, now)
    return _of_specs(causes, was)


def _of_specs(causes: list[Cause], was: TraceRecord) -> list[Cause]:
    """Replaces the remedy for meshes if the program was traced ahead of time."""
    return [
        dataclasses.replace(cause, remedy=_table.NO_SHARDING)
        if was.placements is None and cause._row is _table.MESH and cause.was == _where(None)
        else cause
        for cause in causes
    ]


def _compare_arrays(
    cache: _core.Cache,
    structure: _core.Structure | None,
    was: Sequence[Aval],
    now: Sequence[Aval],
) -> list[Cause]:
    """Compares the avals of arrays in a function and, with a structure, in its arguments."""
    differ = list(itertools.compress(itertools.count(), map(operator.ne, was, now)))
    if not differ:
        return []
    paths = array_paths(cache.function, structure)
    found = (_compare_avals(paths[i], was[i], now[i]) for i in differ)
    return [cause for cause in found if cause is not None]


def _compare_contexts(was: TraceRecord, now: TraceRecord) -> list[Cause]:
    differ = [name for name, value in now.context.items() if was.context.get(name) != value]
    return [
        cause_of(_table.CONFIG, "", *(f"{name}={x.context.get(name)!r}" for x in (was, now)))
        for name in differ
    ]


def compare_programs(
    cache: _core.Cache,
    was: _core.Structure,
    trace_was: TraceRecord,
    now: _core.Structure,
    trace_now: TraceRecord,
    most: int = MOST_NODES,
) -> Differences:
    """Returns the differences between two traces of a function."""
    if was is now:
        return Differences(compare_traces(cache, now, trace_was, trace_now))
    own = cache.function.num_leaves
    avals_was, avals_now = trace_was.avals, trace_now.avals
    found = Comparison(
        cache.hooks.registry, was, now, (), avals_was[own:], avals_now[own:], cache, most
    ).differences
    of_function = _compare_arrays(cache, None, avals_was[:own], avals_now[:own])
    causes = [*found.causes, *of_function, *_compare_contexts(trace_was, trace_now)]
    return Differences(in_order(_of_specs(causes, trace_was)), found.more)


def _where(sharding: Any) -> str:
    """Describes the mesh of an array's type."""
    if sharding is None:
        return "on no mesh"
    axes = ", ".join(f"{name}={size}" for name, size in sharding.mesh.shape.items())
    is_explicit = "Explicit" in repr(getattr(sharding.mesh, "axis_types", ""))
    spec = f"{sharding.spec} " * is_explicit  # of other axes, arrays' types say nothing
    return f"{spec}on a mesh of {axes}"
