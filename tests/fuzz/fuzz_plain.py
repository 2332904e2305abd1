"""Random programs of plain JAX, which run on ``jax.jit`` and on `filterjit.jit`.

A program calls one jitted function with trees of arrays and numbers, which change between calls,
and with static arguments, some of them donated, by position and by name. What it yields is
compared: results, errors, and which arrays are deleted.
"""

import copy
import random
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

import filterjit
from support.plain import described

_CALLS = 12
_NUMBERS: list[Any] = [0, 1, -1, 2, True, False, 0.0, -0.0, 1.0, 1 + 0j, float("inf")]
_STATICS: list[Any] = [
    0,
    1,
    2,
    True,
    1.0,
    -0.0,
    0.0,
    "a",
    (1,),
    (1, "a"),
    None,
    frozenset({1}),
    len,
]
_BAD: list[Any] = ["text", [1], {"a": 1}, object(), 2**70]


class Point(NamedTuple):
    a: Any
    b: Any


@flax.struct.dataclass
class State:
    a: Any
    name: Any = flax.struct.field(pytree_node=False)


def _leaf(choose: random.Random) -> Any:
    match choose.randrange(9):
        case 0 | 1 | 2:
            return choose.choice(_NUMBERS)
        case 3:
            return np.full(choose.randrange(1, 3), choose.randrange(3), choose.choice(["f4", "i4"]))
        case 4:
            return choose.choice([np.float32(1), np.int8(2), np.bool_(True)])
        case 5:
            return None
        case 6:
            return jnp.asarray(choose.choice(_NUMBERS[:9]))
    return jnp.full(choose.randrange(1, 3), choose.randrange(3), choose.choice(["f4", "i4"]))


def _tree(choose: random.Random, depth: int = 0) -> Any:
    if depth > 2 or choose.random() < 0.35:
        return _leaf(choose)
    children = [_tree(choose, depth + 1) for _ in range(choose.randrange(4))]
    two = [_tree(choose, depth + 1) for _ in range(2)]
    names = [f"k{choose.randrange(5)}{i}" for i in range(len(children))]
    return choose.choice(
        [
            children,
            tuple(children),
            dict(zip(names, children, strict=True)),
            OrderedDict(zip(names, children, strict=True)),
            Point(*two),
            State(two[0], choose.choice(["a", "b"])),
        ]
    )


def _change(choose: random.Random, tree: Any) -> Any:
    """Returns a tree with some leaves replaced by others, often of the same kind."""

    def other(x: Any) -> Any:
        if choose.random() < 0.6:
            return x
        if type(x) in (int, float, bool, complex) and choose.random() < 0.7:
            return type(x)(choose.choice([0, 1, 2]))
        if isinstance(x, jax.Array) and choose.random() < 0.7:
            return x + 1
        return _leaf(choose)

    return jax.tree.map(other, tree)


def program(jit: Any, seed: int) -> Iterator[Any]:
    choose = random.Random(seed)

    def f(a: Any, b: Any, n: Any = 0, *, k: Any = None) -> Any:
        if isinstance(n, jax.core.Tracer):
            return a, n
        return jax.tree.map(lambda x: x * 2, (a, b)), isinstance(k, tuple), k if n == 2 else n == 1

    options: dict[str, Any] = choose.choice(
        [
            {"static_argnums": 2, "static_argnames": ("n", "k")},
            {"static_argnames": ("n", "k")},
            {"static_argnames": ("n", "k"), "donate_argnums": 0},
            {"static_argnames": ["k", "n"], "donate_argnames": ("a", "b")},
            {"static_argnums": (2,), "static_argnames": "k", "keep_unused": True},
        ]
    )
    jitted = jit(f, **options)
    tree, other = _tree(choose), _tree(choose)
    for _ in range(_CALLS):
        if choose.random() < 0.5:
            tree = _change(choose, tree)
        if choose.random() < 0.2:
            other = _tree(choose)
        n = choose.choice(_BAD if choose.random() < 0.05 else _STATICS)
        k = choose.choice(_STATICS)
        call = choose.randrange(4)
        for _ in range(choose.randrange(1, 4)):
            a, b = jax.tree.map(copy.copy, (tree, other))
            if choose.random() < 0.05:
                a = {"a": [a, choose.choice(_BAD)]}
            args, kwargs = [((a, b, n), {"k": k}), ((a, b), {"k": k, "n": n}), ((a, b), {}),
                            ((), {"n": n, "b": b, "a": a})][call]  # fmt: skip
            yield described(jitted, *args, **kwargs)
            yield [x.is_deleted() for x in jax.tree.leaves((a, b)) if isinstance(x, jax.Array)]
        if choose.random() < 0.1:
            jitted.clear_cache()


def compare(seed: int) -> int:
    """Runs a program on both, compares it, and returns how many of its calls were handed over."""
    made: list[Any] = []

    def ours(*args: Any, **kwargs: Any) -> Any:
        made.append(filterjit.jit(*args, **kwargs))
        return made[-1]

    expected = list(program(jax.jit, seed))
    found = list(program(ours, seed))
    for i, (x, y) in enumerate(zip(expected, found, strict=True)):
        assert x == y, f"seed {seed}: observation {i}"
    return sum(f._hooks.handed_over.total() for f in made)
