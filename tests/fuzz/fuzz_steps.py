"""The steps of the fuzzer, as Hypothesis draws them."""

from __future__ import annotations

import random
from typing import Any

import hypothesis
import hypothesis.strategies as st
from fuzz_figures import figures
from fuzz_machine import Boom, Machine
from fuzz_model import Target
from fuzz_oracle import Bomb, copy, twin
from fuzz_trees import (
    NUMBERS,
    change_array,
    change_large,
    confuse,
    draw_field,
    draw_holder,
    draw_large,
    draw_leaf_static,
    draw_nearly,
    draw_numpy_leaf,
    draw_static_array,
    draw_tree,
    draw_untraceable,
    fresh_arrays,
    has_missing_fields,
    lay_out_again,
    make_layer,
    mutate,
)
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from support.modules import Layer
from support.statics import Constant, Thing, Unhashable

_fast = False


def use_fast_draws(on: bool) -> None:
    """Makes steps draw from a ``Random`` whose seed Hypothesis draws. That is ten times faster, and a
    failure shrinks in its steps only."""
    global _fast
    _fast = on


class Seeded(random.Random):
    """Shows its seed where a failure is printed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __repr__(self) -> str:
        return f"Seeded({self.number})"


@st.composite
def _generators(draw: Any) -> random.Random:
    if _fast:
        return Seeded(draw(st.integers(0, 2**32 - 1)))
    return draw(st.randoms(use_true_random=False))  # type: ignore[no-any-return]


generators = _generators()


class Differential(RuleBasedStateMachine):
    """The fuzzer's steps, on the stand-in for ``jax.jit``."""

    pretend = True
    repeats = 6

    @initialize(rng=generators)
    def start(self, rng: random.Random) -> None:
        self.m = Machine(self.pretend, maxsize=rng.choice([8, 64, 4096]))
        self.m.pool += [draw_tree(rng, self.m.wrapped) for _ in range(3)]

    # ---- drawing ----

    def _tree(self, rng: random.Random) -> Any:
        """Mostly returns a tree of the pool, or one that is nearly the same."""
        pool = self.m.pool
        die = rng.randrange(10)
        if die < 6:
            return rng.choice(pool)
        if die < 8:
            return copy(rng.choice(pool))
        made = draw_tree(rng, self.m.wrapped) if die == 9 else self._nearly(rng)
        self._keep(rng, made)
        return made

    def _nearly(self, rng: random.Random) -> Any:
        return draw_nearly(rng, rng.choice(self.m.pool), self.m.wrapped)

    def _keep(self, rng: random.Random, tree: Any) -> None:
        if len(self.m.pool) < 12:
            self.m.pool.append(tree)
        else:
            self.m.pool[rng.randrange(12)] = tree

    def _arguments(self, rng: random.Random, target: Target) -> tuple[tuple[Any, ...], Any]:
        names = list(target.signature.parameters)
        if names[0] == "a":
            return self._many(rng)
        args: tuple[Any, ...] = (self._tree(rng),)
        kwargs: dict[str, Any] = {}
        if len(names) > 1 and rng.randrange(2):
            other = draw_leaf_static(rng) if rng.randrange(2) else self._tree(rng)
            if rng.randrange(2):
                kwargs[names[1]] = other
            else:
                args += (other,)
        if len(args) == 1 and not rng.randrange(4):
            args, kwargs = (), {**kwargs, names[0]: args[0]}
        return args, kwargs

    def _many(self, rng: random.Random) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args = [self._tree(rng) for _ in range(rng.choice([1, 1, 2, 3, 4, 5]))]
        kwargs: dict[str, Any] = {}
        if len(args) < 3 and not rng.randrange(3):
            kwargs["c"] = rng.choice([2.0, 2, None])
        if not rng.randrange(3):
            kwargs["d"] = self._tree(rng)
        if not rng.randrange(3):
            for name in rng.sample(["e", "f", "a"], rng.randrange(3)):
                kwargs[name] = rng.choice([1, True, 1.0])
        return tuple(args), kwargs

    def _target(self, rng: random.Random) -> Target:
        targets = self.m.targets
        return targets[rng.randrange(5)] if rng.randrange(3) else rng.choice(targets)

    # ---- steps ----

    @rule(rng=generators)
    def call(self, rng: random.Random) -> None:
        """Calls a function several times with the same arguments and with copies of them."""
        target = self._target(rng)
        args, kwargs = self._arguments(rng, target)
        for _ in range(rng.randrange(1, self.repeats)):
            if target.donates:
                figures.donations += 1
                self.m.call(target, *fresh_arrays((args, kwargs)))
                continue
            if not rng.randrange(3):
                args, kwargs = copy((args, kwargs))
            self.m.call(target, args, kwargs, times=rng.randrange(1, 4))

    @rule(rng=generators)
    def call_alternately(self, rng: random.Random) -> None:
        """Calls a function alternately with trees that differ little."""
        target = rng.choice(self.m.targets[:5])
        trees = [self._tree(rng)]
        trees += [draw_nearly(rng, trees[0], self.m.wrapped) for _ in range(2)]
        for _ in range(self.repeats):
            self.m.call(target, (rng.choice(trees),), {}, times=rng.randrange(1, 3))

    @rule(rng=generators)
    def call_confused(self, rng: random.Random) -> None:
        """Calls a function alternately with a static value and with ones that are easily taken for
        it."""
        target = rng.choice(self.m.targets[:5])
        static = draw_field(rng) if rng.randrange(2) else rng.choice(NUMBERS)
        for _ in range(2 * self.repeats):
            held = rng.choice([static, confuse(rng, static)])
            self.m.call(target, (make_layer(None, 1, held, len),), {})

    @rule(rng=generators)
    def mutate_between(self, rng: random.Random) -> None:
        """Calls a function with one tree, which is changed in place between the calls."""
        target = self._target(rng)
        tree = rng.choice(self.m.pool)
        for _ in range(3):
            if target.donates:
                self.m.call(target, (fresh_arrays(tree),), {})
            else:
                self.m.call(target, (tree,), {}, times=2)
            figures.mutations.update(mutate(rng, tree, self.m.wrapped))
        if not target.donates:
            self.m.call(target, (tree,), {})

    @rule(rng=generators)
    def mutate_arrays(self, rng: random.Random) -> None:
        """Calls a function with NumPy arrays as a leaf and in static places, which are changed in
        place between the calls."""
        target = rng.choice(self.m.targets[:5])
        leaf = draw_numpy_leaf(rng)
        tree, arrays = draw_holder(rng, leaf)
        for _ in range(self.repeats):
            if rng.randrange(3):
                self.m.call(target, (tree,), {}, times=rng.randrange(1, 3))
            else:
                change = rng.choice([twin, lambda x: lay_out_again(rng, x)])
                self.m.call(target, (copy(tree, change),), {})
            changed = rng.choice([leaf, *arrays])
            if change_array(rng, changed):
                figures.mutations["leaf array" if changed is leaf else "static array"] += 1

    @rule(rng=generators)
    def mutate_only(self, rng: random.Random) -> None:
        figures.mutations.update(mutate(rng, rng.choice(self.m.pool), self.m.wrapped))

    @rule(rng=generators)
    def make_partial(self, rng: random.Random) -> None:
        target = rng.choice(self.m.targets[:8])
        args, kwargs = self._arguments(rng, target)
        if target.fun is self.m.targets[2].fun or len(args) > 1:
            args = args[:1]
            kwargs = {k: v for k, v in kwargs.items() if k in ("d", "e")}
        if has_missing_fields((args, kwargs)):
            return
        if len(self.m.partials) > 5:
            self.m.partials.pop(0)
        self.m.make_partial(target, args, kwargs)

    @precondition(lambda self: self.m.partials)
    @rule(rng=generators)
    def call_partial(self, rng: random.Random) -> None:
        index = rng.randrange(len(self.m.partials))
        target, _, first, named, _ = self.m.partials[index]
        left = [*target.signature.parameters][len(first) :]
        needed = not first and left[0] not in named
        args: tuple[Any, ...] = ()
        if needed or (left and left[0] in ("y", "n", "b", "c") and rng.randrange(2)):
            args = (self._tree(rng),) if left[0] not in named else ()
        kwargs = {name: self._tree(rng) for name in named if not rng.randrange(3)}
        self.m.call_partial(index, args, kwargs, times=rng.randrange(1, self.repeats))

    @rule(rng=generators)
    def call_bound(self, rng: random.Random) -> None:
        """Calls a function as a method of a Module."""
        target = self.m.targets[3]
        owner = Layer(self._tree(rng), None, 1, len)
        bound = target.f.__get__(owner)
        tree = self._tree(rng)
        self.m.call(target, (owner, tree), {}, through=bound, given=((tree,), {}), times=3)

    @rule(rng=generators)
    def feed_back(self, rng: random.Random) -> None:
        """Passes the result of a call to the next one."""
        target = self.m.targets[rng.randrange(2)]
        tree = self._tree(rng)
        if has_missing_fields(tree):
            return
        for _ in range(self.repeats):
            tree = self.m.call(target, (tree,), {})[1]
        self._keep(rng, tree)

    @rule(rng=generators)
    def call_large(self, rng: random.Random) -> None:
        """Calls a function with a large model, which is changed in one place between the calls."""
        target = self.m.targets[1]
        model = draw_large(rng)
        for _ in range(self.repeats):
            self.m.call(target, (model,), {}, times=rng.randrange(1, 6))
            figures.mutations["large Module"] += 1
            change_large(rng, model)

    @rule(rng=generators)
    def reuse_addresses(self, rng: random.Random) -> None:
        """Passes objects that are compared by identity, each maybe at the address of the last."""
        target = self.m.targets[3]
        for _ in range(self.repeats):
            make = rng.choice([lambda: Thing(), lambda: lambda: 0, lambda: type("Local", (), {})])
            self.m.call(target, (self.m.pool[0],), {"n": make()})

    @rule(rng=generators)
    def fail(self, rng: random.Random) -> None:
        target = self._target(rng)
        if target.donates:
            return
        tree = self._tree(rng)
        self.m.call_failing(target, ((tree, Bomb()),), {}, Boom)
        self.m.call_failing(target, ([tree, Unhashable()],), {}, TypeError)
        self.m.call_failing(target, ([tree, Constant([draw_static_array(rng)])],), {}, TypeError)
        if not self.pretend:
            self.m.call_failing(target, ([tree, draw_untraceable(rng)],), {}, TypeError)
        self.m.call_failing(target, (), {"wrong": tree}, TypeError)

    @rule(rng=generators)
    def clear(self, rng: random.Random) -> None:
        if rng.randrange(3):
            return
        if rng.randrange(4):
            self.m.clear(rng.choice(self.m.targets))
        else:
            self.m.clear_all()

    @rule(rng=generators)
    def call_in_threads(self, rng: random.Random) -> None:
        if rng.randrange(3):
            return
        jobs = []
        for _ in range(rng.randrange(2, 5)):
            if jobs and rng.randrange(2):
                jobs.append(rng.choice(jobs))
                continue
            target = rng.choice(self.m.targets[:5])
            jobs.append((target, *self._arguments(rng, target)))
        self.m.call_in_threads(jobs)

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
