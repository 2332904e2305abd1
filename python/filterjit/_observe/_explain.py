"""Why a call compiles again: two structures, or two lists of arrays, held side by side.

Nothing in here is on the road of a hit. A miss is looked at where somebody asked for it: by
``f.explain``, by ``on_retrace`` or ``max_traces``, or by `log_retraces`.
"""

import dataclasses
import functools
import logging
import os
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import jax

from .. import _core
from .._base._errors import array_paths, format_path, short
from .._base._package import PACKAGE
from .._trees import _registry
from . import _records
from ._records import Aval, TraceNotes

logger = logging.getLogger("filterjit")

MOST_CAUSES = 6  # that are written out
_MOST_VARIANTS = 16  # that are compared with, those used last


class RetraceError(RuntimeError):
    """A function was traced again, which ``on_retrace="raise"`` or ``max_traces`` forbids."""


class RetraceWarning(UserWarning):
    """A function was traced again, with ``on_retrace="warn"``."""


@dataclasses.dataclass(frozen=True)
class Cause:
    """One difference between a call and what was compiled.

    `kind` is a word for it, such as ``"static"`` or ``"shape"``; `path` the place in the arguments,
    as ``model.layers[2].activation``; `was` and `now` say what was compiled for and what came; and
    `remedy` what to do about it.
    """

    kind: str
    path: str
    was: str
    now: str
    remedy: str

    def __str__(self) -> str:
        place = f"`{self.path}`" if self.path else "the call"
        return f"{place}: {_TITLES[self.kind]}: was {self.was}, is {self.now}"


# The kinds of causes, in the order in which they are worth reading: whatever else differs along
# with the first is often its consequence.
_TITLES = {
    "first": "nothing was compiled yet",
    "function": "the function was made anew",
    "given": "an argument came or went",
    "class": "another class",
    "structure": "another structure",
    "type": "another type",
    "made anew": "a function made anew",
    "bound method": "a bound method of another instance",
    "changed in place": "a static that was changed in place",
    "static": "another static value",
    "identity": "another object, which is only equal to itself",
    "shape": "another shape",
    "dtype": "another dtype",
    "weak type": "another weak type",
    "config": "another configuration of JAX",
    "sharding": "another sharding",
    "device": "on another device, or committed to one",
    "options": "other options of `filter_jit`",
    "cleared": "the compiled program was dropped",
}
_OF_ANOTHER_WRAPPER = ("first", "function", "options")  # what is compiled is not this one's
_ORDER = {kind: i for i, kind in enumerate(_TITLES)}


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Whether a call is a hit, and if not, why it compiles again.

    `hit` is True where a compiled program is there for the call; `causes` are the differences from
    the one that comes closest, the likeliest cause first. ``str()`` is a block to be read.
    """

    name: str
    hit: bool
    causes: tuple[Cause, ...] = ()
    variants: int = 0

    def __bool__(self) -> bool:
        return self.hit

    def __str__(self) -> str:
        if self.hit:
            return f"{self.name}: hit"
        lines = [f"{self.name}: compiles {'' if self._is_first else 'again '}because"]
        lines += [f"  {cause}" for cause in self.causes[:MOST_CAUSES]]
        if len(self.causes) > MOST_CAUSES:
            lines.append(f"  and {len(self.causes) - MOST_CAUSES} more differences")
        if self.variants > 1:
            lines.append(f"  (the closest of {self.variants} that are compiled)")
        remedies = dict.fromkeys(c.remedy for c in self.causes[:MOST_CAUSES] if c.remedy)
        lines += [f"  -> {remedy}" for remedy in remedies]
        return "\n".join(lines)

    @property
    def _is_first(self) -> bool:
        return any(cause.kind == "first" for cause in self.causes)


# ---- values, in words ----


_short = functools.partial(short, most=60)


def _class_name(cls: Any) -> str:
    return str(getattr(cls, "__qualname__", None) or repr(cls))


def _source(fun: Any) -> str:
    code = getattr(fun, "__code__", None)
    if code is None:
        return ""
    return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"


def _value(x: Any) -> str:
    if isinstance(x, types.FunctionType):
        return f"the function `{x.__qualname__}` of {_source(x)}"
    if isinstance(x, types.MethodType):
        return f"`{x.__func__.__qualname__}` of the {_class_name(type(x.__self__))} at {id(x.__self__):#x}"
    if isinstance(x, (bool, int, float, complex, str, bytes, type(None))):
        return f"the {type(x).__name__} {_short(x)}" if x is not None else "None"
    name = getattr(x, "__qualname__", None) or getattr(x, "__name__", None)
    if callable(x) and isinstance(name, str):  # `jax.nn.relu`, say
        return f"the {_class_name(type(x))} `{name}`"
    return f"{_short(x)} of type `{_class_name(type(x))}`"


# ---- two structures ----


@dataclasses.dataclass
class Node:
    """A node of a structure, as ``Structure.nodes`` has it, with its children."""

    kind: str
    type: Any
    detail: Any
    hash: int
    children: list["Node"]
    array: int = -1  # the number of an array leaf

    def keys(self) -> Sequence[Any]:
        """Of the children, for `format_path`."""
        if self.kind in ("arguments", "module", "dataclass"):
            return [str(name) for name in self.detail]
        if self.kind == "custom":
            return [key if isinstance(key, (str, tuple)) else str(key) for key in self.detail[1]]
        if self.kind == "namedtuple":
            return [str(name) for name in self.type._fields]
        if self.kind in ("dict", "ordered_dict"):
            return [(key,) for key in self.detail]
        if self.kind == "default_dict":
            return ["default_factory", *((key,) for key in self.detail)]
        return [(i,) for i in range(len(self.children))]

    def words(self, avals: Sequence[Aval] | None) -> str:
        if self.kind == "array":
            known = avals is not None and self.array < len(avals)
            return f"an array {avals[self.array]}" if known and avals else "an array"
        if self.kind == "static":
            return _value(self.detail)
        if self.kind in ("none", "missing"):
            return "None" if self.kind == "none" else "not given"
        if self.kind in ("tuple", "list"):
            return f"a {self.kind} of {len(self.children)}"
        return f"a {_class_name(self.type)}"


def tree_of(structure: _core.Structure, first_array: int) -> Node:
    """The nodes of a structure as a tree."""
    root: Node | None = None
    open_nodes: list[tuple[Node, int]] = []  # and how many children are still to come
    array = first_array
    for kind, count, cls, detail, number in structure._nodes():
        node = Node(kind, cls, detail, number, [])
        if kind == "array":
            node.array, array = array, array + 1
        if open_nodes:
            parent, left = open_nodes.pop()
            parent.children.append(node)
            if left > 1:
                open_nodes.append((parent, left - 1))
        else:
            root = node
        if count:
            open_nodes.append((node, count))
    assert root is not None
    return root


def walk(structure: _core.Structure) -> Iterator[tuple[Node, list[Any]]]:
    """The nodes, each before its children, with the path to each."""
    todo: list[tuple[Node, list[Any]]] = [(tree_of(structure, 0), [])]
    while todo:
        node, path = todo.pop()
        yield node, path
        children = list(zip(node.children, node.keys(), strict=True))
        todo.extend((child, [*path, key]) for child, key in reversed(children))


class _Differ:
    """Collects the differences between what was compiled (`a`) and what came (`b`)."""

    def __init__(
        self, registry: _core.Registry, was: Sequence[Aval] | None, now: Sequence[Aval] | None
    ) -> None:
        self.registry, self.was, self.now = registry, was, now
        self.causes: list[Cause] = []

    def _add(self, kind: str, path: list[Any], was: str, now: str, remedy: str = "") -> None:
        self.causes.append(Cause(kind, format_path(path), was, now, remedy))

    def _add_nodes(self, kind: str, path: list[Any], a: Node, b: Node, remedy: str = "") -> None:
        self._add(kind, path, a.words(self.was), b.words(self.now), remedy)

    def compare(self, a: Node, b: Node) -> None:
        todo: list[tuple[Node, Node, list[Any]]] = [(a, b, [])]
        while todo:
            a, b, path = todo.pop()
            children = self._compare_nodes(a, b, path)
            todo.extend(reversed([(x, y, [*path, key]) for x, y, key in children]))

    def _compare_nodes(self, a: Node, b: Node, path: list[Any]) -> list[tuple[Node, Node, Any]]:
        """Notes what differs in two nodes, and returns the pairs of children to be compared."""
        if a.kind != b.kind:
            self._another_kind(a, b, path)
            return []
        match a.kind:
            case "array" | "none" | "missing":
                return []
            case "static":
                self._static(a, b, path)
                return []
            case "arguments":
                return list(zip(a.children, b.children, a.keys(), strict=True))
        if a.type is not b.type:
            self._another_class(a, b, path)
            return []
        if a.kind in ("dict", "ordered_dict", "default_dict"):
            return self._dict(a, b, path)
        if len(a.children) != len(b.children):
            what = "Make its length the same, or put its items into one array."
            self._add_nodes("structure", path, a, b, what)
            return []
        if a.kind == "custom" and not self._same(a.detail[0], b.detail[0]):
            self._add(
                "static",
                path,
                f"aux data {_short(a.detail[0])}",
                f"{_short(b.detail[0])}",
                _REMEDY_STATIC,
            )
            return []
        return list(zip(a.children, b.children, a.keys(), strict=True))

    def _same(self, x: Any, y: Any) -> bool:
        try:
            return _core.same_static(self.registry, x, y)
        except Exception:
            return False

    def _dict(self, a: Node, b: Node, path: list[Any]) -> list[tuple[Node, Node, Any]]:
        extra = len(a.children) - len(a.detail)  # a defaultdict's factory
        was = dict(zip(a.detail, a.children[extra:], strict=True))
        now = dict(zip(b.detail, b.children[extra:], strict=True))
        gone = [key for key in was if key not in now]
        new = [key for key in now if key not in was]
        if gone or new or not self._same(a.detail, b.detail):
            changed = [f"one without {_list(gone)}"] * bool(gone) + [
                f"one with {_list(new)}"
            ] * bool(new)
            now_words = " and ".join(changed) or f"one in the order {_list(b.detail)}"
            remedy = "Give a dict the same keys on each call."
            self._add("structure", path, f"a dict of {_list(a.detail)}", now_words, remedy)
        pairs: list[tuple[Node, Node, Any]] = list(
            zip(a.children[:extra], b.children[:extra], ["default_factory"], strict=False)
        )
        return pairs + [(was[key], now[key], (key,)) for key in now if key in was]

    def _another_kind(self, a: Node, b: Node, path: list[Any]) -> None:
        if "missing" in (a.kind, b.kind):
            remedy = "Pass the argument always or never: a default is not the same as its value."
            self._add_nodes("given", path, a, b, remedy)
        elif {a.kind, b.kind} == {"array", "static"}:
            is_number = isinstance((a if a.kind == "static" else b).detail, (int, float, complex))
            remedy = (
                "Python numbers are static, arrays are traced: pass `jnp.asarray(...)` always."
                if is_number
                else "Pass an array always, or never."
            )
            self._add_nodes("type", path, a, b, remedy)
        elif "none" in (a.kind, b.kind):
            remedy = "None and a value are two structures: pass one of them always."
            self._add_nodes("structure", path, a, b, remedy)
        else:
            leaf = {"array", "static"} & {a.kind, b.kind}
            remedy = (
                "A list of numbers is so many statics; `jnp.asarray` makes one array of it."
                if leaf and {"list", "tuple"} & {a.kind, b.kind}
                else "Pass the same type of container on each call."
            )
            self._add_nodes("structure", path, a, b, remedy)

    def _another_class(self, a: Node, b: Node, path: list[Any]) -> None:
        names = _class_name(a.type), _class_name(b.type)
        if names[0] == names[1]:
            remedy = "The class was defined again: define it once, outside of what is repeated."
            self._add("class", path, f"a {names[0]}", "a class of the same name", remedy)
        else:
            remedy = "Each class has a program of its own: pass one on each call."
            self._add("class", path, f"a {names[0]}", f"a {names[1]}", remedy)

    def _static(self, a: Node, b: Node, path: list[Any]) -> None:
        x, y = a.detail, b.detail
        if x is y and (a.hash == b.hash or a.hash == 0 or b.hash == 0):
            return
        if x is y:
            remedy = "Make anew what is to be changed, or make it an array if it changes often."
            self._add("changed in place", path, "what it was then", _value(y), remedy)
        elif type(x) is not type(y):
            numbers = isinstance(x, (bool, int, float)) and isinstance(y, (bool, int, float))
            remedy = "Pass one type always" + (
                ", or an array (`jnp.asarray`), whose value may change." if numbers else "."
            )
            self._add_nodes("type", path, a, b, remedy)
        elif not self._same(x, y):
            self._another_value(x, y, path)

    def _another_value(self, x: Any, y: Any, path: list[Any]) -> None:
        made_anew = _made_anew(x, y)
        if made_anew and self.registry is not _registry.registry:
            remedy = (
                "The two differ in their closure, defaults, attributes or the globals that they "
                "read, or hold something that may change."
            )
            self._add("static", path, _value(x), "another of the same code", remedy)
        elif made_anew:
            self._add(
                "made anew",
                path,
                _value(x),
                "made anew",
                f"It is made anew {made_anew}: define it once, where it is not repeated, or pass "
                'functions="structure" to `filter_jit`.',
            )
        elif isinstance(x, types.MethodType) and x.__func__ is y.__func__:
            remedy = (
                "Pass the instance and call its method inside, make its class an equinox.Module, or "
                "give it `__eq__` and `__hash__`."
            )
            self._add("bound method", path, _value(x), _value(y), remedy)
        elif getattr(type(x), "__eq__", None) is object.__eq__ and not isinstance(x, type):
            remedy = (
                "Make it once and pass the same object, or give its class `__eq__` and `__hash__`."
            )
            self._add("identity", path, _value(x), _value(y), remedy)
        else:
            self._add("static", path, _value(x), _value(y), _REMEDY_STATIC)


_REMEDY_STATIC = "Each static value has a program of its own. Make it an array (`jnp.asarray`) if it changes often."


def _list(keys: Sequence[Any]) -> str:
    shown = ", ".join(repr(key) for key in keys[:4])
    return shown + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")


def _made_anew(x: Any, y: Any) -> str:
    """Where two functions that are two objects of one code are made; empty if they are not."""
    if isinstance(x, functools.partial) and isinstance(y, functools.partial):
        return "on each call" if x.func is y.func else _made_anew(x.func, y.func)
    code = getattr(x, "__code__", None)
    if code is None or code is not getattr(y, "__code__", None):
        wrapped = getattr(x, "__wrapped__", None)
        other = getattr(y, "__wrapped__", None)
        if wrapped is None or other is None:
            return ""
        return "on each call" if wrapped is other else _made_anew(wrapped, other)
    return f"at {_source(x)}" if isinstance(x, types.FunctionType) else ""


# ---- two lists of arrays ----


def _compare_traces(
    paths: Sequence[list[Any]],
    was: TraceNotes,
    avals: Sequence[Aval],
    context: dict[str, Any],
) -> list[Cause]:
    """Why JAX traces again what is of the same static structure."""
    causes = []
    for path, a, b in zip(paths, was.avals, avals, strict=True):
        if a.shape != b.shape:
            kind, remedy = "shape", "Pad to one shape, or to one of a few."
        elif a.dtype != b.dtype:
            kind, remedy = "dtype", "Convert it before the call: `x.astype(...)`."
        elif a.weak_type != b.weak_type:
            kind = "weak type"
            remedy = (
                "An array made of a Python number has a weak type: give it a dtype, "
                "`jnp.asarray(x, dtype=...)`."
            )
        else:
            continue
        causes.append(Cause(kind, format_path(path), str(a), str(b), remedy))
    for name, value in context.items():
        before = was.context.get(name)
        if before != value:
            remedy = "Set it once, before the first call."
            causes.append(Cause("config", "", f"{name}={before!r}", f"{value!r}", remedy))
    return causes


def _compare_placements(
    paths: Sequence[list[Any]], was: Sequence[Any], now: Sequence[Any]
) -> list[Cause]:
    """Why JAX compiles again what it need not trace again."""
    causes = []
    for path, a, b in zip(paths, was, now, strict=True):
        if a is None or b is None or a == b:
            continue
        (sharding, committed), (other, other_committed) = a, b
        same_devices = sharding.device_set == other.device_set
        kind = "sharding" if same_devices and committed == other_committed else "device"
        before = f"{_short(sharding)}{', committed' if committed else ''}"
        after = f"{_short(other)}{', committed' if other_committed else ''}"
        remedy = "Place it the same way on each call: `jax.device_put(x, sharding)`."
        causes.append(Cause(kind, format_path(path), before, after, remedy))
    return causes


def placed_otherwise(sharding: Any, x: Any) -> tuple[str, str] | None:
    """How an array has to be placed, and how `x` is; None where a program takes it as it is."""
    placed = _records.placement(x)
    if sharding is None or placed is None or not placed[1]:
        return None
    if sharding.is_equivalent_to(placed[0], x.ndim):
        return None
    return _short(sharding), _short(placed[0])


# ---- the explanation of a call ----


def _name(cache: _core.Cache) -> str:
    name = cache.attributes.get("__qualname__")
    return f"`{name}`" if name else f"`{cache.function!r}`"


# Caches by the code of what they belong to: a function that was made anew has another cache.
_by_code: weakref.WeakKeyDictionary[Any, weakref.WeakSet[_core.Cache]] = weakref.WeakKeyDictionary()


def watch(fun: Any, cache: _core.Cache) -> None:
    """Remembers, weakly, that a function of this code has a cache."""
    code = getattr(fun, "__code__", None)
    if code is not None:
        _by_code.setdefault(code, weakref.WeakSet()).add(cache)


def _first_call(cache: _core.Cache, fun: Any, calls: int) -> Cause:
    """Why there is nothing to compare with, after so many calls."""
    if calls > 0:
        remedy = "It was cleared, or there were too many and it was the one used longest ago."
        return Cause("cleared", "", "there", "gone", remedy)
    known = _by_code.get(getattr(fun, "__code__", None), ())
    others = [other for other in known if other is not cache and other.calls > 0]
    if any(other.function == cache.function for other in others):
        remedy = "Wrappers whose options differ have programs of their own."
        return Cause("options", "", str(others[0].options), str(cache.options), remedy)
    if others:
        remedy = f"Apply `filter_jit` once, not where {_source(fun)} is run again and again."
        return Cause("function", "the function", _value(fun), "made anew", remedy)
    return Cause("first", "", "nothing", "the first call", "")


def _distance(causes: Sequence[Cause]) -> int:
    """How far two structures are apart: another container hides all that is in it."""
    return sum({"class": 20, "structure": 10, "given": 5, "type": 2}.get(c.kind, 1) for c in causes)


def compare(
    registry: _core.Registry, was: _core.Structure, now: _core.Structure, first_array: int
) -> list[Cause]:
    """The differences of two structures of arguments, whose arrays are counted from
    `first_array`."""
    differ = _Differ(registry, None, None)
    differ.compare(tree_of(was, first_array), tree_of(now, first_array))
    return _sorted(differ.causes)


def _sorted(causes: list[Cause]) -> list[Cause]:
    # Where there are none they are equal by all that can be shown: what a static's own == says.
    causes = causes or [Cause("static", "", "not shown", "not shown", _REMEDY_STATIC)]
    return sorted(causes, key=lambda cause: _ORDER[cause.kind])


def _compare_structures(
    cache: _core.Cache,
    structure: _core.Structure,
    avals: Sequence[Aval],
    variants: Sequence[_core.Variant],
) -> list[Cause]:
    """The differences from the variant that comes closest."""
    new = tree_of(structure, cache.function.num_leaves)
    best: list[Cause] | None = None
    for variant in variants[:_MOST_VARIANTS]:
        traces = _records.notes_of(variant).traces
        differ = _Differ(cache.options.registry, traces[-1].avals if traces else None, avals)
        differ.compare(tree_of(variant.structure, cache.function.num_leaves), new)
        if best is None or _distance(differ.causes) < _distance(best):
            best = differ.causes
    return _sorted(best or [])


def explain_trace(
    cache: _core.Cache,
    fun: Any,
    variant: _core.Variant | None,
    structure: _core.Structure,
    avals: Sequence[Aval],
    placements: Sequence[Any] | None,
    context: dict[str, Any],
    earlier: Sequence[TraceNotes],
    calls: int,
) -> Explanation:
    """Why arguments of this structure, these arrays and this configuration are not a hit.

    `earlier` are the traces of `variant`, which is None where there is none of this structure;
    `calls` is how many calls there were before.
    """
    name = _name(cache)
    others = [other for other in cache.variants() if other is not variant and _has_traces(other)]
    if not earlier:
        if not others:
            return Explanation(name, False, (_first_call(cache, fun, calls),))
        causes = _compare_structures(cache, structure, avals, others)
        return Explanation(name, False, tuple(causes), len(others))
    paths = array_paths(cache.function, structure)
    best = min(
        (_compare_traces(paths, trace, avals, context) for trace in reversed(earlier)), key=len
    )
    if not best and placements is not None:
        seen = [
            trace
            for trace in earlier
            if trace.placements is not None and not _compare_traces(paths, trace, avals, context)
        ]
        best = min(
            (_compare_placements(paths, trace.placements or (), placements) for trace in seen),
            key=len,
            default=[],
        )
    return Explanation(name, not best, tuple(best), len(earlier))


def _has_traces(variant: _core.Variant) -> bool:
    return variant.num_traces > 0


def explain(
    f: _core.FilterJit, fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Explanation:
    """Whether a call of `f`, which leads to the function `fun`, would be a hit, and why not.

    Nothing is traced, and nothing runs.
    """
    variant, structure, arrays = f._peek(*args, **kwargs)
    cache, _ = f._parts()
    earlier = [] if variant is None else _records.notes_of(variant).traces
    return explain_trace(
        cache,
        fun,
        variant,
        structure,
        tuple(map(Aval.of, arrays)),
        tuple(map(_records.placement, arrays)),
        _records.config_context(),
        earlier,
        cache.calls,
    )


# ---- where it is said ----

OnRetrace = Literal["log", "warn", "raise"] | Callable[[Explanation], Any] | None

_log_all = False


def log_retraces(on: bool = True) -> None:
    """Logs, for every jitted function of the program, why it is traced again, each time.

    The messages go to the logger ``"filterjit"`` with level WARNING, which Python shows on stderr
    where the program has not set up logging.

    Arguments:
        on: False switches it off again.
    """
    global _log_all
    _log_all = bool(on)


def check_on_retrace(on_retrace: Any, max_traces: Any) -> None:
    """Raises ValueError for what `filter_jit` does not take."""
    if not (on_retrace is None or on_retrace in ("log", "warn", "raise") or callable(on_retrace)):
        raise ValueError(
            "`filter_jit(..., on_retrace=...)` must be 'log', 'warn', 'raise', a function of an "
            f"explanation, or None, not {on_retrace!r}."
        )
    if max_traces is not None and (
        not isinstance(max_traces, int) or isinstance(max_traces, bool) or max_traces < 1
    ):
        raise ValueError(
            f"`filter_jit(..., max_traces=...)` must be a positive int or None, not {max_traces!r}."
        )


@dataclasses.dataclass(frozen=True)
class Watch:
    """What one function's options ask for when it is traced again."""

    on_retrace: OnRetrace = None
    max_traces: int | None = None

    @property
    def asks(self) -> bool:
        return _log_all or self.on_retrace is not None or self.max_traces is not None

    def traced(
        self, cache: _core.Cache, fun: Any, variant: _core.Variant, trace: TraceNotes
    ) -> None:
        """Before the user's function runs for a trace: says why, or raises RetraceError."""
        if not self.asks:
            return
        earlier = [t for t in _records.notes_of(variant).traces if t is not trace]
        explanation = explain_trace(
            cache,
            fun,
            variant,
            variant.structure,
            trace.avals,
            None,
            trace.context,
            earlier,
            cache.calls - 1,
        )
        variants = {id(v): v for v in (*cache.variants(), variant)}
        traces = sum(len(_records.notes_of(v).traces) for v in variants.values())
        if self.max_traces is not None and traces > self.max_traces:
            raise RetraceError(
                f"traced more than max_traces={self.max_traces} times\n{explanation}"
            )
        kind = explanation.causes[0].kind if explanation.causes else "first"
        if _log_all and kind not in ("first", "options"):
            logger.warning("%s", explanation)
        if kind in _OF_ANOTHER_WRAPPER:
            return
        if self.on_retrace == "log" and not _log_all:
            logger.warning("%s", explanation)
        if self.on_retrace == "warn":
            warnings.warn(str(explanation), RetraceWarning, stacklevel=_stack_level())
        elif self.on_retrace == "raise":
            raise RetraceError(str(explanation))
        elif callable(self.on_retrace):
            self.on_retrace(explanation)


_OURS_AND_JAX = (PACKAGE + os.sep, os.path.dirname(jax.__file__) + os.sep)


def _stack_level() -> int:
    """The `stacklevel` of the frame that called the jitted function, for `Watch.traced`."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS_AND_JAX):
        level, frame = level + 1, frame.f_back
    return level
