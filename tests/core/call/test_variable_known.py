"""What is remembered of large arguments never hides a change from a VariableJit.

After each change, a call does the same as that of a VariableJit that has never been called.
"""

import gc
import random
from collections.abc import Callable
from typing import Any

import pytest
from core_support import Array, Maybe, OtherArray
from outcome_support import attempt
from variable_support import (
    Key,
    Large,
    Nodes,
    Param,
    TraceState,
    Tree,
    Var,
    block,
    large,
    make_variable_jit,
    put_values,
    same_as_fresh,
    step,
    values_of,
    variables_in,
    warm,
)


class OtherLarge(Large):
    pass


class OtherParam(Param):
    __slots__ = ()


def made() -> tuple[Any, Any]:
    """A VariableJit that remembers a model, and the model."""
    jit, tree = make_variable_jit(step), large()
    warm(jit, tree)
    return jit, tree


def is_seen(jit: Any, tree: Any, change: Callable[[], Any]) -> None:
    """Whether the next calls are right, and those after a new record."""
    change()
    for _ in range(3):
        same_as_fresh(jit, tree)
    attempt(warm, jit, tree)
    same_as_fresh(jit, tree)


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


VALUES: dict[str, Callable[[], Any]] = {
    "array": lambda: Array(3),
    "other array": lambda: OtherArray(3),
    "key": lambda: Key(3),
    "tracer": lambda: Maybe(True),
    "no tracer": lambda: Maybe(False),
    "int": lambda: 7,
    "none": lambda: None,
    "text": lambda: "".join(["te", "xt"]),
    "list": lambda: [Array(3)],
    "tuple": lambda: (1, 2),
    "dict": lambda: {"k": Array(3)},
    "variable": lambda: Var(Array(3)),
    "tree": lambda: Tree(x=Var(Array(1)), tag=3),
}


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "metadata": lambda tree, x: x._var_metadata.update(axis="y"),
    "metadata added": lambda tree, x: x._var_metadata.update(new=1),
    "metadata deleted": lambda tree, x: x._var_metadata.clear(),
    "metadata of another dict": lambda tree, x: setattr(x, "_var_metadata", {"axis": "z"}),
    "metadata of an equal dict": lambda tree, x: setattr(x, "_var_metadata", {"axis": "x"}),
    "metadata that are no dict": lambda tree, x: setattr(x, "_var_metadata", 3),
    "no metadata": lambda tree, x: delattr(x, "_var_metadata"),
    "state": lambda tree, x: setattr(x, "_trace_state", TraceState()),
    "state of another level": lambda tree, x: setattr(x, "_trace_state", TraceState(False)),
    "state that is none": lambda tree, x: setattr(x, "_trace_state", None),
    "no state": lambda tree, x: delattr(x, "_trace_state"),
    "no value": lambda tree, x: delattr(x, "_raw_value"),
    "class": lambda tree, x: setattr(x, "__class__", OtherParam),
    "class of a tree": lambda tree, x: setattr(tree, "__class__", OtherLarge),
    "another variable": lambda tree, x: setattr(tree.blocks[3], "w", Param(Array(3), axis="x")),
    "twice": lambda tree, x: setattr(tree.blocks[5], "w", x),
    "swapped": lambda tree, x: swap(tree.blocks[3], "w", tree.blocks[5], "w"),
    "swapped blocks": lambda tree, x: tree.blocks.reverse(),
    "a block less": lambda tree, x: tree.blocks.pop(),
    "a block more": lambda tree, x: tree.blocks.append(block(3)),
    "no blocks": lambda tree, x: tree.blocks.clear(),
    "attribute added": lambda tree, x: setattr(tree.blocks[3], "new", Var(Array(3))),
    "static added": lambda tree, x: setattr(tree.blocks[3], "new", 3),
    "attribute deleted": lambda tree, x: delattr(tree.blocks[3], "w"),
    "static deleted": lambda tree, x: delattr(tree.blocks[3], "size"),
    "renamed": lambda tree, x: (
        setattr(tree.blocks[3], "z", tree.blocks[3].w),
        delattr(tree.blocks[3], "w"),
    ),
    "retyped": lambda tree, x: setattr(tree.blocks[3], "size", Var(Array(3))),
    "nodes": lambda tree, x: setattr(tree.blocks[3], "_pytree__nodes", Nodes(b=True, more=True)),
    "equal nodes": lambda tree, x: setattr(
        tree.blocks[3], "_pytree__nodes", Nodes(**tree.blocks[3]._pytree__nodes)
    ),
    "no nodes": lambda tree, x: vars(tree.blocks[3]).pop("_pytree__nodes"),
    "dict of a tree": lambda tree, x: setattr(
        tree.blocks[3], "__dict__", dict(vars(tree.blocks[3]))
    ),
    "other dict of a tree": lambda tree, x: setattr(
        tree.blocks[3], "__dict__", dict(vars(tree.blocks[3]), w=Var(Array(3)))
    ),
    "items of a dict": lambda tree, x: tree.table.update(k=tree.table["a"], a=tree.table["k"]),
    "order of a dict": lambda tree, x: tree.table.update(a=tree.table.pop("a")),
    "another key": lambda tree, x: tree.table.update(z=tree.table.pop("k")),
}


def swap(a: Any, name: str, b: Any, other: str) -> None:
    x, y = getattr(a, name), getattr(b, other)
    setattr(a, name, y)
    setattr(b, other, x)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change(change: str) -> None:
    jit, tree = made()
    is_seen(jit, tree, lambda: CHANGES[change](tree, tree.blocks[3].w))


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


def four(a: Any, b: Any, c: Any = None, d: Any = None, e: Any = None) -> Any:
    return step([a, b, c, d, e])


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


def test_addresses_that_come_back() -> None:
    jit = make_variable_jit(step)
    seen: set[int] = set()
    again = 0
    for i in range(60):
        others = [block(j) for j in range(i % 5)]  # so that not all addresses come back
        tree = large()
        tree.blocks[i % 16] = block(i)
        again += id(tree) in seen
        seen.add(id(tree))
        for _ in range(70):
            jit(tree)
        same_as_fresh(jit, tree)
        for j in (3, 5, 3):
            tree.blocks[j] = None
            tree.blocks[j] = block(j)
            same_as_fresh(jit, tree)
        del tree, others
        if again == 5:
            break


def test_collections_do_not_hide_a_change() -> None:
    """In Python 3.11, the garbage collector can run in the middle of a walk."""
    jit = make_variable_jit(lambda a, b: None, traced=lambda a, b: (None, b"", ()))
    first, tree = [{"a": {"x": Array(2)}, "k": Var(Array(1))}], large()
    at = [0]

    def change(phase: str, info: Any) -> None:
        at[0] -= 1
        if at[0] == 0:
            for i in range(16):
                tree.blocks[i] = block(i)

    threshold = gc.get_threshold()
    gc.callbacks.append(change)
    try:
        for n in range(1, 25):
            for _ in range(70):
                jit(first, tree)
            at[0] = n
            gc.set_threshold(1)
            jit(first, tree)
            gc.set_threshold(*threshold)
            at[0] = 0
            jit(first, tree)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(change)
    assert jit.handed_over == []


@pytest.mark.parametrize("seed", range(6))
def test_random_changes(seed: int) -> None:
    source = random.Random(seed)
    jit = make_variable_jit(four)
    trees: list[Any] = [large(source.choice((4, 16))) for _ in range(source.choice((1, 2, 5)))]
    trees += [[Var(Array(1))]]
    for _ in range(60):
        i = source.randrange(len(trees))
        tree, variables = trees[i], variables_in(trees)
        x = source.choice(variables) if variables else None
        act = source.randrange(10)
        if act < 5 and isinstance(tree, Tree):
            attempt(CHANGES[source.choice(list(CHANGES))], tree, x)
        elif act < 7 and x is not None:
            attempt(setattr, x, "_raw_value", source.choice(list(VALUES.values()))())
        elif act == 7:
            source.shuffle(trees)
        elif act == 8 or not isinstance(tree, Tree):
            trees[i] = source.choice((large, large, lambda: [Var(Array(1))], lambda: Var(Key(1))))()
        for _ in range(source.choice((1, 1, 3, 70))):
            variables = variables_in(trees)
            values = values_of(variables)
            attempt(jit, *trees)
            if source.random() < 0.5:
                put_values(variables, values)
        found = attempt(same_as_fresh, jit, *trees)
        if isinstance(found, Exception):
            trees = [large() for _ in trees]
            if not isinstance(found, AttributeError):  # of a tree that cannot be shown
                raise found
