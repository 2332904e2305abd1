"""Random programs of Flax NNX, which run on ``flax.nnx`` and on ``filterjit.nnx``.

A program has models that share Variables and Modules, and changes them between calls of one jitted
function, of a ``cached_partial`` of it, and of another function that draws random numbers. What it
yields is compared: results, errors, and all that its models hold.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
from flax import nnx

import filterjit.nnx
from filterjit._compat import _nnx_compat as compat
from support.comparison import Traces
from support.nnx import MODES, Node, describe, outcome

_KINDS = (nnx.Param, nnx.BatchStat, nnx.Cache)
_CALLS = 15


def _variable(choose: random.Random) -> Any:
    return choose.choice(_KINDS)(jnp.full((2,), float(choose.randrange(9))))


def _change(choose: random.Random, pool: list[Any], shares: bool) -> None:
    owner = choose.choice(pool)
    name = f"n{choose.randrange(2)}"
    match choose.randrange(8):
        case 0 if shares:
            owner.v = choose.choice(pool).v
        case 1:
            owner.v = _variable(choose)
        case 2 if shares and (below := pool[: pool.index(owner)]):  # so that there are no cycles
            setattr(owner, name, choose.choice(below))
        case 3:
            setattr(owner, name, Node(float(choose.randrange(3))))
        case 4 if hasattr(owner, name):
            delattr(owner, name)
        case 5:
            owner.more = nnx.Dropout(0.5, rngs=nnx.Rngs(choose.randrange(9)))
        case 6:
            owner.v[...] = jnp.full((2,), float(choose.randrange(9)))
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


def program(jit: Any, cached_partial: Any, seed: int, mode: str, traces: Traces) -> Iterator[Any]:
    choose = random.Random(seed)
    shares = mode != "tree"
    pool: list[Any] = [Node(float(i)) for i in range(4)]
    f = jit(_body(traces, choose.randrange(1 << 30)), **MODES[mode])
    partials: list[Any] = []
    for _ in range(_CALLS):
        for _ in range(choose.randrange(3)):
            _change(choose, pool, shares)
        if mode == "graph" and choose.random() < 0.15:
            partials = [cached_partial(f, *choose.sample(pool, choose.randrange(1, 3)))]
        args = [choose.choice([*pool, pool[0].v]) for _ in range(choose.randrange(3))]
        kwargs = {"b": choose.choice(pool), "a": [choose.choice(pool).v]}
        if choose.random() < 0.5:
            kwargs = {}
        called = choose.choice(partials) if partials and choose.random() < 0.5 else f
        for _ in range(choose.randrange(1, 4)):
            yield outcome(called, *args, **kwargs)
        yield describe(pool)


def compare(seed: int, mode: str) -> int:
    """Runs a program on both, compares it, and returns how many of its calls were handed over."""
    expected_traces, traces = Traces(), Traces()
    expected = list(program(nnx.jit, nnx.cached_partial, seed, mode, expected_traces))
    # Flax raises that its cache is left where a call of a cached_partial has failed.
    compat.graphlib.GRAPH_CONTEXT.tmp_static_cache = None
    made: list[Any] = []

    def jit(*args: Any, **kwargs: Any) -> Any:
        made.append(filterjit.nnx.jit(*args, **kwargs))
        return made[-1]

    found = list(program(jit, filterjit.nnx.cached_partial, seed, mode, traces))
    compat.graphlib.GRAPH_CONTEXT.tmp_static_cache = None
    for i, (x, y) in enumerate(zip(expected, found, strict=True)):
        assert x == y, f"seed {seed}, {mode}: observation {i}"
    handed_over = sum(sum(f.handed_over.values()) for f in made)
    assert traces.count <= expected_traces.count or handed_over, f"seed {seed}, {mode}: traces"
    return handed_over
