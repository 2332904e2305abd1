"""The repr of a Structure is short and names its nodes and statics."""

from collections import defaultdict
from typing import Any

from core_support import Array, Linear, core


def test_repr(registry: Any) -> None:
    shown = lambda tree, expression=True: repr(
        core.tree_flatten(registry, tree, expression, None)[1]
    )
    some = lambda n: ", ".join(["*"] * n)
    assert shown([0] * 10) == f"Structure([{some(10)}])"
    assert shown([0] * 11) == f"Structure([{some(10)}, ... 1 more])"
    assert shown((0,)) == "Structure((*,))" and shown(()) == "Structure(())"
    assert shown(range(10**6)) == "Structure(*)"
    assert shown([0] * 10**6) == f"Structure([{some(10)}, ... 999990 more])"
    assert shown({i: (i,) for i in range(12)}) == (
        f"Structure({{{', '.join(f'{i}: (*,)' for i in range(10))}, ... 2 more}})"
    )
    assert (
        shown(defaultdict(int, a=1))
        == "Structure(defaultdict(default_factory=<class 'int'>, 'a': *))"
    )
    assert shown(Linear(weight=1, bias=None, size=3, activation="a")) == (
        "Structure(Linear(weight=*, bias=None, size=3, activation='a'))"
    )
    assert shown("x" * 100, False) == f"Structure('{'x' * 59}...)"


def test_repr_of_statics_after_skipped_leaves(registry: Any) -> None:
    """Leaves that the repr skips are counted."""
    many = [[Array(), i, i] for i in range(12)]
    tree = (many, list(range(20)), "end", Array())
    _, structure = core.tree_flatten(registry, tree, ("arrays",), None)
    rows = ", ".join(f"[*, {i}, {i}]" for i in range(10))
    numbers = ", ".join(map(str, range(10)))
    assert repr(structure) == (
        f"Structure(([{rows}, ... 2 more], [{numbers}, ... 10 more], 'end', *))"
    )


def test_repr_of_a_large_tree_is_short(registry: Any) -> None:
    tree: Any = 0
    for _ in range(7):
        tree = [tree] * 6
    shown = repr(core.tree_flatten(registry, tree, True, None)[1])
    assert len(shown) < 3000 and "more" in shown
    assert shown.count("[") == shown.count("]") and shown.endswith("])")
