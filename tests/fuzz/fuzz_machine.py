"""Random calls of jitted functions, as Hypothesis draws them.

Each result is compared with that of the function without jit, which tells apart all that a function
can see. A call whose arguments have been traced must not trace again.
"""

from __future__ import annotations

import collections
import inspect
import random
import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import fuzz_trees as ft
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
from fuzz_trees import FIELDS, KNOWN, NUMBERS, OF_NUMBERS, Draw, avals, change, contents, shown
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import filterjit
from filterjit import _core
from filterjit._call import _direct, _signature
from filterjit._call._donation import Donation
from filterjit._call._miss import FunctionHooks
from filterjit._call._settings import Settings
from support.modules import Layer
from support.statics import Constant, Thing, Unhashable
from support.threads import at_once
from support.trees import bare

figures: collections.Counter[str] = collections.Counter()  # what was done so far


class Boom(Exception):
    pass


class Bomb:
    """A leaf that makes the functions under test raise."""


# ---- a stand-in for jax.jit, which most machines use ----


class Pretend:
    """Traces `flat` once for each combination of avals, by running it with placeholder arrays, and
    remembers from which argument each array of the result came. Further calls only select arrays. That
    costs a thousandth of a compilation. All other code is filterjit's."""

    def __init__(self, flat: Callable[..., Any]) -> None:
        self.flat = flat
        self.traces: dict[Any, tuple[int, list[Any]]] = {}

    def __call__(self, *given: Any) -> Any:
        key = tuple(avals(given))
        traced = self.traces.get(key)
        if traced is None:
            marks = [np.empty(x.shape, x.dtype) for x in given]
            places = {id(mark): i for i, mark in enumerate(marks)}
            found, trace = _core.output_flatten(self.flat(*marks))
            traced = self.traces[key] = trace, [places.get(id(x), x) for x in found]
        trace, program = traced
        result = [given[x] if type(x) is int else x for x in program]
        return _core.output_unflatten(trace, tuple(result))


class PretendOptions(FunctionHooks):
    """filterjit's options, with `Pretend` in the place of ``jax.jit``."""

    def compile(self, f: Any, variant: Any) -> Any:
        jitted = _direct.jitted_of(super().compile(f, variant))
        return Pretend(jitted.__wrapped__)

    def inspect(self, variant: Any, arrays: Any, outputs: Any) -> bool | None:
        return False


# ---- functions under test ----


def explained(explanation: filterjit.types.Explanation) -> None:
    assert explanation.causes and str(explanation)
    figures["explained"] += 1


class Target:
    """A function, as it is and jitted, and the calls that it was traced for. Those of a small
    cache are explained."""

    def __init__(self, fun: Any, pretend: bool, maxsize: int = 4096, donate: Any = "none") -> None:
        self.fun, self.maxsize, self.known = fun, maxsize, set[Any]()
        self.donates = donate != "none" and not pretend
        told = explained if maxsize == 3 else None
        if pretend:
            options = PretendOptions(Settings(Donation(donate), "identity", maxsize, told))
            self.f: Any = filterjit.types.FilterJit(
                fun, options, _signature.inspect_signature(fun), {}
            )
        else:
            self.f = filterjit.filter_jit(fun, donate=donate, maxsize=maxsize, on_retrace=told)


class Called(eqx.Module):
    """A function that holds an array."""

    seen: Any = eqx.field(static=True)
    weight: Any
    size: Any = eqx.field(static=True)

    def __call__(self, x: Any, y: Any = None) -> Any:
        return self.seen([x, y, self.size]), x, self.weight, y


def fresh_arrays(tree: Any) -> Any:
    """The same with arrays of its own, which can be donated."""
    return jtu.tree_map(lambda x: jnp.array(x) if isinstance(x, jax.Array) else x, tree)


def _known_leaf(rng: random.Random) -> Any:
    """What a record of a large argument may have as a leaf."""
    return jnp.float32(1) if rng.randrange(2) else rng.choice(NUMBERS)


class Seeded(random.Random):
    """Shows its seed where a failure is printed. A failure shrinks in its steps, and not in what these
    draw, which is ten times faster than to draw it all by Hypothesis."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __repr__(self) -> str:
        return f"Seeded({self.number})"


_generators = st.builds(Seeded, st.integers(0, 2**32 - 1))
step = rule(rng=_generators)


class Differential(RuleBasedStateMachine):
    """The fuzzer's steps, on the stand-in for ``jax.jit``."""

    pretend = True
    repeats = 6

    @initialize(rng=_generators)
    def start(self, rng: random.Random) -> None:
        figures["machines"] += 1
        self.traces = 0

        def seen(arguments: Any) -> str:
            return self.seen(arguments)

        def one(x: Any, y: Any = 0) -> Any:
            return seen([x, y]), x, y

        def many(
            a: Any, b: Any = 1, /, c: Any = 2.0, *rest: Any, d: Any = None, **more: Any
        ) -> Any:
            return seen([a, b, c, rest, d, more]), [rest, d, a, more], (c, b)

        p = self.pretend
        self.targets = [Target(one, p), Target(many, p), Target(one, p, maxsize=3)]
        self.targets += [Target(Called(seen, np.float32(n), n), p) for n in (1, 2)]
        self.targets += [Target(one, p, 8, donate) for donate in ("all", "all-except-first")]
        self.pool: list[tuple[Any, Draw, int]] = []
        for _ in range(3):
            self._draw(rng)

    def seen(self, arguments: Any) -> str:
        """Each function under test calls this."""
        self.traces += 1
        if any(type(x) is Bomb for x in jtu.tree_leaves(arguments)):
            raise Boom
        return ft.text(arguments)

    # ---- drawing ----

    def _draw(self, rng: random.Random) -> Any:
        """Returns a new tree, which joins the pool."""
        seed = rng.randrange(2**32)
        draw = Draw(random.Random(seed))
        tree = draw.tree(2 + (seed % 4 == 0))
        self.pool.append((tree, draw, seed))
        del self.pool[:-12]
        return tree

    def _again(self, seed: int, twist: int = -1) -> Any:
        return Draw(random.Random(seed), twist=twist).tree(2 + (seed % 4 == 0))

    def _tree(self, rng: random.Random) -> Any:
        """Mostly returns a tree of the pool, or one that is the same or nearly the same."""
        tree, _, seed = rng.choice(self.pool)
        die = rng.randrange(10)
        return self._draw(rng) if die == 9 else tree if die < 6 else self._again(seed, die - 7)

    def _arguments(self, rng: random.Random, target: Target) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = [self._tree(rng)]
        if target is not self.targets[1]:
            if rng.randrange(2):
                return args, {}
            y = self._tree(rng) if rng.randrange(2) else rng.choice(NUMBERS)
            return rng.choice([([*args, y], {}), (args, {"y": y}), ([], {"y": y, "x": args[0]})])
        args += [self._tree(rng) for _ in range(rng.choice([0, 0, 1, 2, 3, 4]))]
        kwargs: dict[str, Any] = {} if rng.randrange(3) else {"d": self._tree(rng)}
        if len(args) < 3 and not rng.randrange(3):
            kwargs["c"] = rng.choice([2.0, 2, None])
        for name in rng.sample(["e", "f", "a"], rng.choice([0, 0, 1, 2])):
            kwargs[name] = rng.choice([1, True, 1.0])
        return args, kwargs

    def _target(self, rng: random.Random) -> Target:
        return rng.choice(self.targets[: 3 if rng.randrange(3) else None])

    # ---- checked calls ----

    def expect(self, target: Target, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Returns what a call is to return, and what it may be traced for once."""
        shown.clear()
        before = self.traces
        expected = contents(target.fun(*args, **kwargs))
        self.traces = before
        bound = inspect.signature(target.fun).bind(*args, **kwargs).arguments
        return expected, (expected[0], *bound, "", *avals(list(bound.values())))

    def check(self, target: Target, *args: Any, times: int = 1, **kwargs: Any) -> Any:
        """Calls the target, and checks the first and the last result."""
        expected, key = self.expect(target, args, kwargs)
        for i in range(times):
            before = self.traces
            given = fresh_arrays((args, kwargs)) if target.donates else (args, kwargs)
            got = target.f(*given[0], **given[1])
            traced = self.traces - before
            assert traced == 0 or (i == 0 and key not in target.known and traced == 1), "retraced"
            if traced or i == times - 1:
                assert contents(got) == expected, "a wrong result"
            figures.update(calls=1, traces=traced, jax=not self.pretend, donations=target.donates)
        if target.maxsize > 8:  # else it may be evicted
            target.known.add(key)
        assert len(target.f.variants) <= target.maxsize
        return got

    def change(self, draw: Draw) -> None:
        """Changes a tree. Programs that were traced with it are of what it was."""
        figures["changes"] += change(draw)
        for target in self.targets:
            target.known.clear()
            target.f.clear_cache() if draw.rng.randrange(20) == 0 else None

    # ---- steps ----

    @step
    def call(self, rng: random.Random) -> None:
        """Calls a function several times with the same arguments."""
        target = self._target(rng)
        args, kwargs = self._arguments(rng, target)
        self.check(target, *args, **kwargs, times=rng.randrange(1, 3 * self.repeats))

    @step
    def call_alternately(self, rng: random.Random) -> None:
        """With equal trees, and with one that differs in one place."""
        target = self._target(rng)
        self._draw(rng)
        _, draw, seed = self.pool[-1]
        twist = rng.randrange(draw.count or 1)
        for _ in range(self.repeats):
            tree = self._again(seed, rng.choice([-1, twist]))
            self.check(target, tree, times=rng.randrange(1, 3))

    @step
    def call_confused(self, rng: random.Random) -> None:
        """With values that are easily taken for each other."""
        target, static = self._target(rng), rng.choice(FIELDS)
        for _ in range(2 * self.repeats):
            layer = bare(Layer, weight=None, bias=1, size=rng.choice(static.make()), activation=len)
            self.check(target, layer, times=rng.randrange(1, 4))

    @step
    def reuse_addresses(self, rng: random.Random) -> None:
        """Objects that are compared by identity, each maybe at the address of the last."""
        target, tree = rng.choice(self.targets[:5]), self.pool[0][0]
        for _ in range(self.repeats):
            make = rng.choice([Thing, lambda: lambda: 0, lambda: type("Local", (), {})])
            shown.clear()  # which would hold the last one
            x = make()
            assert target.f(tree, x)[-1 if target is not self.targets[1] else 2] in (x, (2.0, x))

    @step
    def change_between(self, rng: random.Random) -> None:
        """A tree that is changed in place between the calls."""
        target = self._target(rng)
        at = rng.randrange(len(self.pool))
        tree, draw, _ = self.pool[at]
        for _ in range(self.repeats):
            self.check(target, tree, times=rng.randrange(1, 3))
            self.change(draw)
        self.pool[at] = self.pool[-1]  # the seed no longer draws this tree
        self._draw(rng)

    @step
    def change_large(self, rng: random.Random) -> None:
        """Calls a function with a large model so often that it is known, and changes it in place."""
        target, draw = self._target(rng), Draw(rng, KNOWN, _known_leaf, fields=[OF_NUMBERS])
        model = [draw.tree(2) for _ in range(40)]
        draw.made.append(model)
        for _ in range(self.repeats):
            self.check(target, model, times=rng.choice([1, 4, 6, 70]))
            self.change(draw)

    @step
    def call_bound(self, rng: random.Random) -> None:
        """Calls a function as a method of a Module."""
        tree, layer = self._tree(rng), Layer(self._tree(rng), None, 1, len)
        f, expected = self.targets[0].f, contents(self.targets[0].fun(layer, tree))
        for _ in range(3):
            assert contents(f.__get__(layer)(tree)) == expected

    @step
    def feed_back(self, rng: random.Random) -> None:
        """Passes the result of a call to the next one."""
        tree = self._tree(rng)
        for _ in range(self.repeats):
            tree = self.check(self.targets[0], tree)[1]

    @step
    def fail(self, rng: random.Random) -> None:
        """A call that raises leaves the cache unchanged."""
        target, tree = rng.choice(self.targets), self._tree(rng)
        before = set(target.f.variants)
        for error, args, kwargs in (
            (Boom, [(tree, Bomb())], {}),
            (TypeError, [[tree, Unhashable()]], {}),
            (TypeError, [[tree, Constant([np.zeros(2)])]], {}),
            (TypeError, [], {"wrong": tree}),
        ):
            with pytest.raises(error):
                target.f(*args, **kwargs)
            figures["failures"] += 1
        assert set(target.f.variants) == before

    @step
    def clear(self, rng: random.Random) -> None:
        chosen = self.targets if rng.randrange(4) == 0 else [rng.choice(self.targets)]
        filterjit.clear_caches() if chosen is self.targets else chosen[0].f.clear_cache()
        for target in chosen:
            target.known.clear()
            assert target.f.variants == []

    @step
    def call_in_threads(self, rng: random.Random) -> None:
        target = rng.choice(self.targets[:3])
        calls = [self._arguments(rng, target) for _ in range(rng.randrange(2, 5))]
        expected = [self.expect(target, *call)[0] for call in calls]
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        work = lambda i: [target.f(*calls[i][0], **calls[i][1]) for _ in range(3)]
        try:
            found = at_once(len(calls), work)
        finally:
            sys.setswitchinterval(before)
        for results, right in zip(found, expected, strict=True):
            assert [contents(result) for result in results] == [right] * 3
        figures["threads"] += len(calls)

    def teardown(self) -> None:
        for target in getattr(self, "targets", ()):
            target.f.clear_cache()


class WithJax(Differential):
    """The same steps on ``jax.jit``."""

    pretend = False
    repeats = 16


def machine_settings(examples: int, steps: int, **others: Any) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        **others,
    )
