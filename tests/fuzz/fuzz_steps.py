"""The steps of the fuzzer, as Hypothesis draws them."""

from __future__ import annotations

import functools
import inspect
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
from fuzz_figures import figures
from fuzz_machine import Boom, Call, Machine, Target
from fuzz_statics import (
    NUMBERS,
    confuse,
    draw_field,
    draw_leaf_static,
    draw_static_array,
    draw_untraceable,
    lay_out_again,
)
from fuzz_trees import (
    Bomb,
    Draw,
    change_arrays,
    copy,
    draw_holder,
    draw_large,
    draw_nearly,
    has_missing_fields,
    make_layer,
    mutate,
)
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from support.modules import Layer
from support.statics import Constant, Thing, Unhashable


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
Trees = Callable[[Any, random.Random], Iterator[Any]]


def often(trees: Trees) -> Any:
    """Makes a step that calls a function with the trees of a generator, each some times."""

    def run(self: Any, rng: random.Random) -> None:
        target = self._target(rng)
        for tree in itertools.islice(trees(self, rng), self.repeats):
            self.m.call(target, tree, times=rng.randrange(1, 4))

    return step(functools.update_wrapper(run, trees))


class Differential(RuleBasedStateMachine):
    """The fuzzer's steps, on the stand-in for ``jax.jit``."""

    pretend = True
    repeats = 6

    @initialize(rng=_generators)
    def start(self, rng: random.Random) -> None:
        self.m = Machine(self.pretend, maxsize=rng.choice([8, 64, 4096]))
        self.m.pool += [self._draw(rng).tree() for _ in range(3)]

    # ---- drawing ----

    def _draw(self, rng: random.Random) -> Draw:
        return Draw(rng, self.m.wrapped)

    def _tree(self, rng: random.Random) -> Any:
        """Mostly returns a tree of the pool, or one that is nearly the same."""
        pool, draw = self.m.pool, self._draw(rng)
        die = rng.randrange(10)
        if die < 6:
            return rng.choice(pool)
        if die < 8:
            return copy(rng.choice(pool))
        return self._keep(rng, draw.tree() if die == 9 else draw_nearly(draw, rng.choice(pool)))

    def _keep(self, rng: random.Random, tree: Any) -> Any:
        if len(self.m.pool) < 12:
            self.m.pool.append(tree)
        else:
            self.m.pool[rng.randrange(12)] = tree
        return tree

    def _arguments(self, rng: random.Random, target: Target) -> tuple[list[Any], dict[str, Any]]:
        names = list(inspect.signature(target.fun).parameters)
        if names[0] == "a":
            return self._many(rng)
        args, kwargs = [self._tree(rng)], {}
        if len(names) > 1 and rng.randrange(2):
            other = draw_leaf_static(rng) if rng.randrange(2) else self._tree(rng)
            if rng.randrange(2):
                kwargs[names[1]] = other
            else:
                args.append(other)
        if len(args) == 1 and not rng.randrange(4):
            kwargs[names[0]] = args.pop()
        return args, kwargs

    def _many(self, rng: random.Random) -> tuple[list[Any], dict[str, Any]]:
        args = [self._tree(rng) for _ in range(rng.choice([1, 1, 2, 3, 4, 5]))]
        kwargs: dict[str, Any] = {}
        if len(args) < 3 and not rng.randrange(3):
            kwargs["c"] = rng.choice([2.0, 2, None])
        if not rng.randrange(3):
            kwargs["d"] = self._tree(rng)
        if not rng.randrange(3):
            for name in rng.sample(["e", "f", "a"], rng.randrange(3)):
                kwargs[name] = rng.choice([1, True, 1.0])
        return args, kwargs

    def _target(self, rng: random.Random) -> Target:
        targets = self.m.targets
        return targets[rng.randrange(5)] if rng.randrange(3) else rng.choice(targets)

    # ---- steps ----

    @step
    def call(self, rng: random.Random) -> None:
        """Calls a function several times with the same arguments and with copies of them."""
        target = self._target(rng)
        args, kwargs = self._arguments(rng, target)
        for _ in range(rng.randrange(1, self.repeats)):
            if not rng.randrange(3):
                args, kwargs = copy((args, kwargs))
            self.m.call(target, *args, **kwargs, times=rng.randrange(1, 4))

    @often
    def call_alternately(self, rng: random.Random) -> Iterator[Any]:
        """Trees that differ little."""
        trees = [self._tree(rng)]
        trees += [draw_nearly(self._draw(rng), trees[0]) for _ in range(2)]
        while True:
            yield rng.choice(trees)

    @often
    def call_confused(self, rng: random.Random) -> Iterator[Any]:
        """A static value and those that are easily taken for it."""
        static = draw_field(rng) if rng.randrange(2) else rng.choice(NUMBERS)
        while True:
            yield make_layer(None, 1, rng.choice([static, confuse(rng, static)]), len)

    @often
    def reuse_addresses(self, rng: random.Random) -> Iterator[Any]:
        """Objects that are compared by identity, each maybe at the address of the last."""
        while True:
            make = rng.choice([lambda: Thing(), lambda: lambda: 0, lambda: type("Local", (), {})])
            yield self.m.pool[0], make()

    @often
    def mutate_between(self, rng: random.Random) -> Iterator[Any]:
        """A tree that is changed in place between the calls."""
        tree = rng.choice(self.m.pool)
        while True:
            yield tree
            figures.mutations.update(mutate(self._draw(rng), tree))

    @often
    def mutate_arrays(self, rng: random.Random) -> Iterator[Any]:
        """The same of NumPy arrays in a small tree, which is also copied in another layout."""
        tree = draw_holder(rng)
        while True:
            yield tree if rng.randrange(3) else copy(tree, lambda x: lay_out_again(rng, x))
            figures.mutations.update(change_arrays(rng, tree))

    @step
    def mutate_large(self, rng: random.Random) -> None:
        """Calls a function with a large model so often that it is known, and changes it in place."""
        target = self._target(rng)
        draw, model = draw_large(rng)
        for _ in range(self.repeats):
            self.m.call(target, model, times=rng.choice([1, 4, 6]))
            figures.mutations["large Module"] += len(mutate(draw, model))

    @step
    def mutate_only(self, rng: random.Random) -> None:
        figures.mutations.update(mutate(self._draw(rng), rng.choice(self.m.pool)))

    @step
    def call_bound(self, rng: random.Random) -> None:
        """Calls a function as a method of a Module."""
        bound = self.m.targets[3].bound(Layer(self._tree(rng), None, 1, len))
        self.m.call(bound, self._tree(rng), times=3)

    @step
    def feed_back(self, rng: random.Random) -> None:
        """Passes the result of a call to the next one."""
        target = self.m.targets[rng.randrange(2)]
        tree = self._tree(rng)
        if not has_missing_fields(tree):
            for _ in range(self.repeats):
                tree = self.m.call(target, tree)[1]
            self._keep(rng, tree)

    @step
    def fail(self, rng: random.Random) -> None:
        target = rng.choice(self.m.targets[:8])
        tree = self._tree(rng)
        self.m.call_failing(target, Boom, (tree, Bomb()))
        self.m.call_failing(target, TypeError, [tree, Unhashable()])
        self.m.call_failing(target, TypeError, [tree, Constant([draw_static_array(rng)])])
        if not self.pretend:
            self.m.call_failing(target, TypeError, [tree, draw_untraceable(rng)])
        self.m.call_failing(target, TypeError, wrong=tree)

    @step
    def clear(self, rng: random.Random) -> None:
        match rng.randrange(12):
            case 0:
                self.m.clear_all()
            case 1 | 2 | 3:
                self.m.clear(rng.choice(self.m.targets))

    @step
    def call_in_threads(self, rng: random.Random) -> None:
        if rng.randrange(3):
            return
        calls: list[Call] = []
        for _ in range(rng.randrange(2, 5)):
            if calls and rng.randrange(2):
                calls.append(rng.choice(calls))
                continue
            target = rng.choice(self.m.targets[:5])
            args, kwargs = self._arguments(rng, target)
            calls.append(Call(self.m, target, args, kwargs))
        self.m.call_in_threads(calls)

    def teardown(self) -> None:
        if hasattr(self, "m"):
            for target in self.m.targets:
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
