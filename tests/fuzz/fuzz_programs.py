"""Random programs of plain JAX and of Flax NNX, which run on the library's own jit and on filterjit's.

A program is a generator, which draws all that it does from its seed. It yields a jitted function first,
and then what it observes: results, errors, and what has become of its arguments. Both must be the same.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from fuzz_trees import NUMBERS, Draw

import filterjit.nnx
from filterjit._compat import _nnx_compat as compat
from support.comparison import Traces
from support.nnx import MODES, Node, describe, outcome
from support.nodes import Point, Registered
from support.plain import described

Program = Callable[[Any, random.Random, str, Traces], Iterator[Any]]


@dataclasses.dataclass(frozen=True)
class Programs:
    """Programs that get one of two libraries, which have functions of the same names, and a mode."""

    run: Program
    theirs: Any
    ours: Any
    handed_over: Callable[[Any], int]  # how many calls of a jitted function
    modes: tuple[str, ...] = ("",)

    def compare(self, seed: int, mode: str = "") -> int:
        """Runs a program on both, compares it, and returns how many calls were handed over."""
        theirs, ours = Traces(), Traces()
        _, *expected = self.run(self.theirs, random.Random(seed), mode, theirs)
        f, *found = self.run(self.ours, random.Random(seed), mode, ours)
        for i, (x, y) in enumerate(zip(expected, found, strict=True)):
            assert x == y, f"seed {seed}, {mode}: observation {i}"
        handed_over = self.handed_over(f)
        assert ours.count <= theirs.count or handed_over, f"seed {seed}, {mode}: traces"
        return handed_over


# ---- Flax NNX: models that share Variables and Modules, which change between the calls ----

_KINDS = (nnx.Param, nnx.BatchStat, nnx.Cache)


def _change_model(choose: random.Random, pool: list[Any], shares: bool) -> None:
    owner = choose.choice(pool)
    name = f"n{choose.randrange(2)}"
    value = jnp.full((2,), float(choose.randrange(9)))
    match choose.randrange(8):
        case 0 if shares:
            owner.v = choose.choice(pool).v
        case 1:
            owner.v = choose.choice(_KINDS)(value)
        case 2 if shares and (below := pool[: pool.index(owner)]):  # so that there are no cycles
            setattr(owner, name, choose.choice(below))
        case 3:
            setattr(owner, name, Node(float(choose.randrange(3))))
        case 4 if hasattr(owner, name):
            delattr(owner, name)
        case 5:
            owner.more = nnx.Dropout(0.5, rngs=nnx.Rngs(choose.randrange(9)))
        case 6:
            owner.v[...] = value
        case _:
            owner.tag = choose.randrange(2)


def _body(traces: Traces, plan: int) -> Callable[..., Any]:
    """Returns a function that changes some Variables, numbers its objects, and draws numbers."""

    def f(*args: Any, **kwargs: Any) -> Any:
        traces()
        pick = random.Random(plan)
        seen: dict[int, int] = {}
        total = jnp.zeros(2)
        for path, x in nnx.iter_graph((args, kwargs)):
            if isinstance(x, (nnx.Variable, Node)):
                seen.setdefault(id(x), len(seen))
            if isinstance(x, nnx.Dropout):
                total += x(jnp.ones(2))
            elif isinstance(x, _KINDS):
                if pick.random() < 0.6:
                    x[...] = x * 0.5 + len(seen)
                total += x * (len(path) + seen[id(x)])
        if pick.random() < 0.1 and args and isinstance(args[0], Node):
            args[0].tag = 7
        return total

    return f


def _nnx(library: Any, choose: random.Random, mode: str, traces: Traces) -> Iterator[Any]:
    # Flax raises that its cache is left where a call of a cached_partial has failed.
    compat.graphlib.GRAPH_CONTEXT.tmp_static_cache = None
    pool: list[Any] = [Node(float(i)) for i in range(4)]
    yield (f := library.jit(_body(traces, choose.randrange(1 << 30)), **MODES[mode]))
    partials: list[Any] = []
    for _ in range(15):
        for _ in range(choose.randrange(3)):
            _change_model(choose, pool, mode != "tree")
        if mode == "graph" and choose.random() < 0.15:
            partials = [library.cached_partial(f, *choose.sample(pool, choose.randrange(1, 3)))]
        args = [choose.choice([*pool, pool[0].v]) for _ in range(choose.randrange(3))]
        kwargs = {"b": choose.choice(pool), "a": [choose.choice(pool).v]}
        if choose.random() < 0.5:
            kwargs = {}
        called = choose.choice(partials) if partials and choose.random() < 0.5 else f
        for _ in range(choose.randrange(1, 4)):
            yield outcome(called, *args, **kwargs)
        yield describe(pool)
    compat.graphlib.GRAPH_CONTEXT.tmp_static_cache = None


NNX = Programs(_nnx, nnx, filterjit.nnx, lambda f: sum(f.handed_over.values()), modes=tuple(MODES))


# ---- plain JAX: trees of arrays and numbers, and static arguments, some of them donated ----

_STATICS = [0, 1, 2, True, 1.0, -0.0, 0.0, "a", (1,), (1, "a"), None, frozenset({1}), len]
_BAD: list[Any] = ["text", [1], {"a": 1}, object(), 2**70]
_OPTIONS: list[dict[str, Any]] = [
    {"static_argnums": 2, "static_argnames": ("n", "k")},
    {"static_argnames": ("n", "k")},
    {"static_argnames": ("n", "k"), "donate_argnums": 0},
    {"static_argnames": ["k", "n"], "donate_argnames": ("a", "b")},
    {"static_argnums": (2,), "static_argnames": "k", "keep_unused": True},
]
_NODES: list[Callable[[Draw], Any]] = [
    lambda d: d.children(), lambda d: tuple(d.children()), lambda d: d.items(),
    lambda d: collections.OrderedDict(d.items()), lambda d: Point(d.inner(), d.inner()),
    lambda d: Registered(d.inner(), None, d.rng.choice("ab")),
]  # fmt: skip


def _leaf(choose: random.Random) -> Any:
    match choose.randrange(9):
        case 0 | 1 | 2:
            return choose.choice([*NUMBERS[:12], float("inf")])
        case 3:
            return np.full(choose.randrange(1, 3), choose.randrange(3), choose.choice(["f4", "i4"]))
        case 4:
            return choose.choice([np.float32(1), np.int8(2), np.bool_(True)])
        case 5:
            return None
        case 6:
            return jnp.asarray(choose.choice(NUMBERS[:11]))
    return jnp.full(choose.randrange(1, 3), choose.randrange(3), choose.choice(["f4", "i4"]))


def _changed(choose: random.Random, x: Any) -> Any:
    """Returns the leaf, or another one, often of the same kind."""
    if choose.random() < 0.6:
        return x
    if type(x) in (int, float, bool, complex) and choose.random() < 0.7:
        return type(x)(choose.choice([0, 1, 2]))
    if isinstance(x, jax.Array) and choose.random() < 0.7:
        return x + 1
    return _leaf(choose)


def _plain(library: Any, choose: random.Random, mode: str, traces: Traces) -> Iterator[Any]:
    # Traces are not counted: of static arguments, jax.jit takes 1 for True.
    def f(a: Any, b: Any, n: Any = 0, *, k: Any = None) -> Any:
        if isinstance(n, jax.core.Tracer):
            return a, n
        return jax.tree.map(lambda x: x * 2, (a, b)), isinstance(k, tuple), k if n == 2 else n == 1

    yield (jitted := library.jit(f, **choose.choice(_OPTIONS)))
    draw = Draw(choose, nodes=_NODES, leaf=_leaf)
    tree, other = draw.tree(), draw.tree()
    for _ in range(12):
        if choose.random() < 0.5:
            tree = jax.tree.map(lambda x: _changed(choose, x), tree)
        if choose.random() < 0.2:
            other = draw.tree()
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


PLAIN = Programs(_plain, jax, filterjit, lambda f: f._hooks.handed_over.total())
