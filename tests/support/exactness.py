"""Calls a jitted function with one tree after the other, and compares each result with that of the
same function without jit, which cannot be wrong, and the number of traces with ``jax.jit``'s."""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu

import filterjit
from filterjit._trees import _registry

from .comparison import Traces, comparable

X = jnp.arange(1.0, 4.0)


def described(tree: Any) -> Any:
    """Returns the structure of a tree, its text, and all that can be seen of its leaves."""
    leaves, structure = jtu.tree_flatten(tree)
    seen = [comparable(x) if isinstance(x, jax.Array) else repr(x) for x in leaves]
    paths = [jtu.keystr(path) for path, _ in jtu.tree_leaves_with_path(tree)]
    return seen, paths, structure, _text(structure), type(tree)


def _text(structure: Any) -> str:
    """Returns the text of a structure, with the items of each mapping sorted: the order of those of
    Flax's HashableMapping is not compared, neither by ``jax.jit`` nor by us."""

    def in_order(found: re.Match[str]) -> str:
        return ", ".join(sorted(found[1].split(", ")))

    return re.sub(r"\{([^{}]*)\}", in_order, str(structure))


def look(tree: Any) -> Any:
    """Returns the tree with all arrays of floats doubled, the tree itself, and a number for its
    structure, static values included, as it is inside."""

    def double(x: Any) -> Any:
        return x * 2 if isinstance(x, jax.Array) and x.dtype == jnp.float32 else x

    seen = zlib.crc32(_text(jtu.tree_structure(tree)).encode()) % 99_991
    return jtu.tree_map(double, tree), tree, X * seen


def changed(
    make: Callable[[], Any], *changes: Callable[[Any], object], times: int = 4
) -> Callable[[], Iterator[Any]]:
    """Returns a function that yields what `make` makes, and again after each of the changes: so many
    times that there is a record of it, or once."""

    def trees() -> Iterator[Any]:
        x = make()
        for change in (lambda _: None, *changes):
            change(x)
            for _ in range(times):
                yield x

    return trees


def same_as_jax(fun: Callable[..., Any], trees: Callable[[], Iterable[Any]]) -> int:
    """Asserts that our calls return what those of ``jax.jit`` return and trace as often, and
    returns how often: for trees that are others once they are rebuilt."""
    ours, theirs = calls(filterjit.filter_jit, trees(), fun), calls(jax.jit, trees(), fun)
    assert [result for result, _ in ours[0]] == [result for result, _ in theirs[0]]
    assert ours[1] == theirs[1]
    return ours[1]


def calls(jit: Any, trees: Iterable[Any], fun: Callable[..., Any] = look) -> tuple[list[Any], int]:
    """Calls `fun`, jitted, with each of the trees. Returns the results as `described` does, each
    with that of `fun` without jit, and the number of traces."""
    traces = Traces()
    f = jit(traces.counting(fun))
    results = []
    for tree in trees:
        results.append((described(f(tree)), described(fun(tree))))
    return results, traces.count


def check_exact(
    trees: Callable[[], Iterable[Any]],
    fun: Callable[..., Any] = look,
    kind: str | None = None,
    traces: int | None = None,
) -> int:
    """Asserts that our calls with these trees, which may be one that is changed between the calls,
    return what the function returns without jit, and that they trace no more often than under
    ``jax.jit`` where it takes all of the trees and is right too. Returns how often they trace.

    `kind` is the kind that the C core has to give the class of the trees.
    """
    ours, number = calls(filterjit.filter_jit, trees(), fun)
    for i, (result, expected) in enumerate(ours):
        assert result == expected, f"call {i}"
    try:
        theirs, limit = calls(jax.jit, trees(), fun)
    except Exception:  # such as for a leaf that is no array
        theirs, limit = [(0, 1)], number
    if all(result == expected for result, expected in theirs):
        assert number <= limit
    if traces is not None:
        assert number == traces
    if kind is not None:
        for tree in trees():
            assert _registry.registry.kind(tree) == kind
    return number
