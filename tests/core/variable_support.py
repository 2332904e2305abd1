"""Pretended Variables and Pytrees of Flax NNX, and VariableJits of functions that update them.

A function that `make_variable_jit` is given updates the Variables in its arguments in place.  What
is handed over is made by an eager call of the same function, so the result and the new values of a
call are the same either way, except for their identity.
"""

from __future__ import annotations

import functools
import inspect
import struct
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import core_support
from core_support import Array, Maybe, Object, core
from hooks_support import Hooks
from trees_support import children


class Key(Array):
    """An array of random keys: `key_type`."""

    __slots__ = ()


class TraceState:
    """Tells whether a Variable is of the top level; calls a hook then."""

    def __init__(self, valid: Any = True, hook: Callable[[], Any] | None = None) -> None:
        self.valid, self.hook = valid, hook
        self.asked = 0

    def is_valid(self) -> Any:
        self.asked += 1
        if self.hook is not None:
            self.hook()
        return self.valid


TOP = TraceState()


def top() -> TraceState:
    return TOP


class Var(Object):
    """A Variable: a value, static metadata, and the trace level that it was made at."""

    __slots__ = ("__weakref__", "_raw_value", "_trace_state", "_var_metadata")
    layout: ClassVar[tuple[Any, ...]] = (
        ("_raw_value",),
        ("_var_metadata",),
        (None, "metadata"),
        ("_var_metadata",),
        "fill",
        {"_trace_state": top},
    )

    def __init__(self, value: Any, _state: Any = TOP, /, **metadata: Any) -> None:
        super().__init__(_raw_value=value, _trace_state=_state, _var_metadata=metadata)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self, '_raw_value', None)!r})"


class Param(Var):
    __slots__ = ()


class Nodes(dict[str, bool]):
    """Which attributes of a Pytree are children. It never changes."""

    __slots__ = ("_hash",)

    def __init__(self, **items: bool) -> None:
        super().__init__(sorted(items.items()))
        # CPython crashes where the iterator of a dict's items cannot be allocated.
        self._hash = hash(tuple(self.items()))

    def __hash__(self) -> int:  # type: ignore[override]
        return self._hash


@functools.cache
def nodes_of(items: tuple[tuple[str, bool], ...]) -> Nodes:
    """The same object each time, so that models that are alike take each other's place in a record."""
    return Nodes(**dict(items))


def is_node(x: Any) -> bool:
    return isinstance(x, (Var, Tree, Array, list, tuple, dict, Maybe, type(None)))


class Tree:
    """A Pytree: an attribute is a child if `_pytree__nodes` says so."""

    def __init__(self, **attributes: Any) -> None:
        object.__setattr__(self, "_pytree__nodes", nodes_of(()))
        for name, value in attributes.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_pytree__nodes":
            nodes = self._pytree__nodes
            if nodes.get(name) is not is_node(value):
                new = nodes_of(tuple(sorted({**nodes, name: is_node(value)}.items())))
                object.__setattr__(self, "_pytree__nodes", new)
        object.__setattr__(self, name, value)

    def describe(self) -> Any:
        found: tuple[list[str], list[str]] = [], []
        nodes = self._pytree__nodes
        for name in sorted(vars(self)):
            found[not nodes.get(name, False)].append(name)
        return tuple(found[0]), tuple(found[1]), None


def classify(cls: type, x: Any) -> dict[str, Any]:
    if issubclass(cls, Tree):
        return {"kind": "described", "describe": cls.describe}
    if issubclass(cls, Nodes):
        return core_support.static(None, True)
    return core_support.classify(cls, x)


make_registry = functools.partial(
    core_support.make_registry, classify=classify, by_identity=(Var, Tree)
)


class Escape(Exception):
    """Raised in a trace: every call is handed over from then on."""


class VariableJit(core.VariableJit):  # type: ignore[misc, name-defined]
    """Notes the reasons for which calls were handed over, and what else C has called."""

    fun: Callable[..., Any]
    graph: int
    handed_over: list[Any]
    finished: int
    settled: int

    def _hand_over(self, reason: Any, args: Any, kwargs: Any) -> Any:
        self.handed_over.append(reason)
        return self.fun(*args, **kwargs)

    def _finish(self, answer: Any, args: Any, kwargs: Any) -> Any:
        self.finished += 1
        return answer[0]

    def _settle(self, variables: tuple[Any, ...]) -> None:
        self.settled += 1


def pack(*indices: int) -> bytes:
    return struct.pack(f"={len(indices)}I", *indices)


def make_variable_jit(
    fun: Callable[..., Any],
    graph: int = 0,
    guards: tuple[Any, ...] = (),
    options: Hooks | None = None,
    traced: Callable[..., Any] | None = None,
    cls: Any = VariableJit,
) -> Any:
    """A VariableJit of `fun`; `traced` returns (result, indices, values) in its place."""
    options = Hooks(make_registry()) if options is None else options
    owner: Any = None

    signature = inspect.signature(fun)

    def update(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        variables = [x for x in owner()._nodes(list(given.values())) if isinstance(x, Var)]
        before = [x._raw_value for x in variables]
        result = fun(*args, **kwargs)
        changed = [i for i, x in enumerate(variables) if x._raw_value is not before[i]]
        return result, pack(*changed), tuple([variables[i]._raw_value for i in changed])

    body = functools.wraps(fun)(update) if traced is None else traced
    inner = core.FilterJit(body, options, None, {})
    jit = cls(inner, options.registry, Var, Key, guards, Escape, graph)
    jit.fun, jit.handed_over, jit.finished, jit.settled = fun, [], 0, 0
    jit.graph = graph
    owner = weakref.ref(jit)
    return jit


def variables_in(tree: Any) -> list[Var]:
    """The Variables in a tree, each one once, in the order of a call."""
    found: dict[int, Var] = {}

    def walk(x: Any) -> None:
        if isinstance(x, Var):
            found[id(x)] = x
        elif isinstance(x, Tree):
            items = vars(x)
            nodes = items.get("_pytree__nodes", {})
            for name in sorted(items):
                if nodes.get(name, False):
                    walk(items[name])
        else:
            for _, child in children(x) or ():
                walk(child)

    walk(tree)
    return list(found.values())


def add_one(tree: Any) -> None:
    """Updates every other Variable that has a number."""
    for i, x in enumerate(variables_in(tree)):
        value = getattr(x, "_raw_value", None)
        if i % 2 == 0 and isinstance(value, Array) and type(value.value) is int:
            x._raw_value = Array(value.value + 1 + i)


def step(tree: Any, other: Any = None) -> Any:
    """Updates half of the Variables in both trees, and returns copies of them."""
    add_one([tree, other])
    return tree, other


def looks(x: Any) -> Any:
    """What there is to see of a tree, to be compared: arrays by type and contents."""
    if isinstance(x, Array):
        return type(x), x.value
    if isinstance(x, Maybe):
        return Maybe, x.traced
    if isinstance(x, Var):
        return (
            type(x),
            looks(getattr(x, "_raw_value", "none")),
            looks(getattr(x, "_var_metadata", "none")),
        )
    if isinstance(x, Tree):
        return type(x), looks(vars(x))
    if isinstance(x, Object):
        return type(x), tuple(looks(getattr(x, name)) for name in (*x.layout[0], *x.layout[1]))
    if isinstance(x, (list, tuple)):
        return type(x), tuple(map(looks, x))
    if isinstance(x, dict):
        return type(x), tuple((k, looks(x[k])) for k in sorted(x, key=repr))
    return type(x), x


# The slot, whatever stands in its place in a subclass.
SLOT: Any = vars(Var)["_raw_value"]
UNSET = "unset"


def values_of(variables: list[Var]) -> list[Any]:
    found = []
    for x in variables:
        try:
            found.append(SLOT.__get__(x))
        except AttributeError:
            found.append(UNSET)
    return found


def put_values(variables: list[Var], values: list[Any]) -> None:
    for x, value in zip(variables, values, strict=True):
        SLOT.__set__(x, value)
        if value is UNSET:
            SLOT.__delete__(x)


def outcome(jit: Any, *args: Any, **kwargs: Any) -> Any:
    """What a call returns, or the error that it raises; the new values; and why it was handed over.

    The values of the Variables are as before afterwards.
    """
    variables = variables_in([args, kwargs])
    before = values_of(variables)
    jit.handed_over.clear()
    try:
        result = looks(jit(*args, **kwargs))
    except SystemError:
        raise
    except Exception as e:
        result = type(e)
    after = [looks(x) for x in values_of(variables)]
    put_values(variables, before)
    return result, after, list(jit.handed_over)


def same_as_fresh(jit: Any, *args: Any, **kwargs: Any) -> Any:
    """Asserts that a call does what that of a new VariableJit does; returns its outcome."""
    found = outcome(jit, *args, **kwargs)
    expected = outcome(make_variable_jit(jit.fun, jit.graph), *args, **kwargs)
    assert found == expected
    return found


def warm(jit: Any, *args: Any, **kwargs: Any) -> None:
    """Calls often enough for a record, whatever happened before: see LONGEST_STREAK in known.c."""
    for _ in range(66):
        jit(*args, **kwargs)


class Block(Tree):
    pass


class Large(Tree):
    """Has a class of its own: a record needs that all instances of a class have the same attributes."""


def block(i: int) -> Tree:
    return Block(w=Param(Array(i), axis="x"), b=Var(Array(-i)), size=i, more=[Array(i), (None,)])


def large(count: int = 11) -> Tree:
    """A Pytree large enough for a record."""
    return Large(
        blocks=[block(i) for i in range(count)],
        table={"k": Param(Array(5)), "a": Var(Array(6), kind="other")},
        name="large",
        rng=Var(Key(0)),
    )
