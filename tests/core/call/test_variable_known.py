"""What is remembered of large arguments never hides a change from a VariableJit.

After each change, a call does the same as that of a VariableJit that has never been called.
"""

from collections.abc import Callable
from typing import Any

import pytest
from core_support import Array
from outcome_support import attempt
from variable_support import (
    Key,
    Large,
    Nodes,
    Param,
    TraceState,
    Var,
    block,
    large,
    make_variable_jit,
    same_as_fresh,
    step,
    warm,
)


class OtherLarge(Large):
    pass


class OtherParam(Param):
    __slots__ = ()


def shared() -> tuple[Any, Any]:
    """Two large trees with much in common."""
    tree, other = large(), large()
    tree.blocks[5].w = tree.blocks[2].w
    tree.blocks[9] = tree.blocks[1]
    other.blocks[3] = tree.blocks[4]
    other.rng = tree.rng
    other.table["a"] = tree.table["k"]
    return tree, other


def test_a_state_is_asked_once() -> None:
    jit = make_variable_jit(lambda tree: None, traced=lambda tree: (None, b"", ()))
    tree = large()
    warm(jit, tree)
    tree.blocks[5].w._raw_value = Array("new")
    jit(tree)
    state = TraceState()
    tree.blocks[5].w._trace_state = state
    jit(tree), jit(tree)
    assert state.asked == 1 and jit.handed_over == []


# What is done to two trees; `b` is a block of the first.
CHANGES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "nothing": lambda t, o, b: None,
    "metadata": lambda t, o, b: b.w._var_metadata.update(axis="y"),
    "metadata added": lambda t, o, b: b.w._var_metadata.update(new=1),
    "metadata deleted": lambda t, o, b: b.w._var_metadata.clear(),
    "metadata of another dict": lambda t, o, b: setattr(b.w, "_var_metadata", {"axis": "z"}),
    "metadata of an equal dict": lambda t, o, b: setattr(b.w, "_var_metadata", {"axis": "x"}),
    "metadata that are no dict": lambda t, o, b: setattr(b.w, "_var_metadata", 3),
    "no metadata": lambda t, o, b: delattr(b.w, "_var_metadata"),
    "state": lambda t, o, b: setattr(b.w, "_trace_state", TraceState()),
    "state of another level": lambda t, o, b: setattr(b.w, "_trace_state", TraceState(False)),
    "state that is none": lambda t, o, b: setattr(b.w, "_trace_state", None),
    "no state": lambda t, o, b: delattr(b.w, "_trace_state"),
    "no value": lambda t, o, b: delattr(b.w, "_raw_value"),
    "class": lambda t, o, b: setattr(b.w, "__class__", OtherParam),
    "class of a tree": lambda t, o, b: setattr(t, "__class__", OtherLarge),
    "another variable": lambda t, o, b: setattr(b, "w", Param(Array(3), axis="x")),
    "twice": lambda t, o, b: setattr(t.blocks[5], "w", b.w),
    "swapped": lambda t, o, b: swap(b, "w", t.blocks[5], "w"),
    "swapped blocks": lambda t, o, b: t.blocks.reverse(),
    "a block less": lambda t, o, b: t.blocks.pop(),
    "a block more": lambda t, o, b: t.blocks.append(block(3)),
    "no blocks": lambda t, o, b: t.blocks.clear(),
    "attribute added": lambda t, o, b: setattr(b, "new", Var(Array(3))),
    "static added": lambda t, o, b: setattr(b, "new", 3),
    "attribute deleted": lambda t, o, b: delattr(b, "w"),
    "static deleted": lambda t, o, b: delattr(b, "size"),
    "renamed": lambda t, o, b: (
        setattr(b, "z", b.w),
        delattr(b, "w"),
    ),
    "retyped": lambda t, o, b: setattr(b, "size", Var(Array(3))),
    "nodes": lambda t, o, b: setattr(b, "_pytree__nodes", Nodes(b=True, more=True)),
    "equal nodes": lambda t, o, b: setattr(b, "_pytree__nodes", Nodes(**b._pytree__nodes)),
    "no nodes": lambda t, o, b: vars(b).pop("_pytree__nodes"),
    "dict of a tree": lambda t, o, b: setattr(b, "__dict__", dict(vars(b))),
    "other dict of a tree": lambda t, o, b: setattr(b, "__dict__", dict(vars(b), w=Var(Array(3)))),
    "items of a dict": lambda t, o, b: t.table.update(k=t.table["a"], a=t.table["k"]),
    "order of a dict": lambda t, o, b: t.table.update(a=t.table.pop("a")),
    "another key": lambda t, o, b: t.table.update(z=t.table.pop("k")),
    "another block": lambda t, o, b: o.blocks.__setitem__(3, block(4)),
    "shared block less": lambda t, o, b: t.blocks.__setitem__(9, block(9)),
    "shared block more": lambda t, o, b: t.blocks.__setitem__(10, t.blocks[1]),
    "another original": lambda t, o, b: t.blocks.__setitem__(1, block(1)),
    "another of the same": lambda t, o, b: t.blocks.__setitem__(9, t.blocks[0]),
    "no shared variable": lambda t, o, b: setattr(t.blocks[5], "w", Param(Array(1), axis="x")),
    "between the trees": lambda t, o, b: setattr(o.blocks[0], "b", t.blocks[0].b),
    "another key of random numbers": lambda t, o, b: setattr(o, "rng", Var(Key(0))),
    "another of a dict": lambda t, o, b: o.table.update(a=o.table["k"]),
    "all blocks shared": lambda t, o, b: setattr(o, "blocks", t.blocks),
    "state of a shared one": lambda t, o, b: setattr(t.blocks[2].w, "_trace_state", TraceState()),
    "value of a shared one": lambda t, o, b: setattr(t.blocks[2].w, "_raw_value", Array("new")),
    "class of a shared one": lambda t, o, b: setattr(t.blocks[2].w, "__class__", Var),
}


def swap(a: Any, name: str, b: Any, other: str) -> None:
    x, y = getattr(a, name), getattr(b, other)
    setattr(a, name, y)
    setattr(b, other, x)


@pytest.mark.parametrize("graph", [0, 1])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change(change: str, graph: int) -> None:
    """The next calls are right, and those after a new record."""
    jit = make_variable_jit(step, graph)
    tree, other = shared() if graph else (large(), large())
    small = [tree.blocks[2].w, Var(Array(1))]
    calls: list[Any] = [(tree, other), (tree,)]
    if graph:
        calls += [(other, tree), ([tree, small], other), (tree, tree)]
    for args in (*calls, calls[0]):
        warm(jit, *args)
    CHANGES[change](tree, other, tree.blocks[3])
    for _ in range(2):
        for args in calls:
            same_as_fresh(jit, *args)
    for args in calls[:2]:
        attempt(warm, jit, *args)
        same_as_fresh(jit, *args)


def test_classes_that_change() -> None:
    def local() -> tuple[Any, Any]:
        cls = type("Local", (Var,), {"__slots__": ()})
        return cls, Large(items=[cls(Array(i)) for i in range(40)])

    for name, value in (
        ("_trace_state", property(lambda self: TraceState(False))),
        ("_raw_value", property(lambda self: Array(9))),
        ("_var_metadata", {}),
        ("__getattribute__", lambda self, name: object.__getattribute__(self, name)),
        ("unrelated", 3),
    ):
        cls, tree = local()
        jit = make_variable_jit(lambda tree: None)
        warm(jit, tree)
        setattr(cls, name, value)
        for _ in range(3):
            same_as_fresh(jit, tree)
        delattr(cls, name)
        for _ in range(3):
            same_as_fresh(jit, tree)


def test_packed_arguments() -> None:
    """The tuple and the dict that the arguments are packed in may have the same address again."""

    def fun(*args: Any, **kwargs: Any) -> Any:
        return step([args, kwargs])

    trees = [large(), large()]
    jit = make_variable_jit(fun)
    for _ in range(3):
        for give in (
            lambda: ((trees[0],), {"x": trees[1]}),
            lambda: ((trees[1], trees[0]), {}),
            lambda: ((), {"b": trees[0], "a": trees[1]}),
            lambda: ((), {"a": trees[1], "b": trees[0]}),
        ):
            args, kwargs = give()
            for _ in range(70):
                jit(*args, **kwargs)
            same_as_fresh(jit, *args, **kwargs)
            trees[0] = large()
            args, kwargs = give()
            same_as_fresh(jit, *args, **kwargs)
            jit(*args, **kwargs)
            trees[1].blocks[2] = block(2)
            same_as_fresh(jit, *args, **kwargs)
