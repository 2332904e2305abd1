"""The machine: functions under test, a model of their caches, and the steps between.

Each call is compared with the plain function's result, and with the model: which of the variants
there are may answer it, or that there must be a new one. Each trace leaves its number in the
result, so that the very trace that answered is known.

Most machines run on `Pretend`, a stand-in for ``jax.jit`` that traces by running the function
with other arrays, and remembers where each array of the result came from: what a program is, at a
thousandth of the price. All else is the library as it is.
"""

from __future__ import annotations

import collections
import dataclasses
import inspect
import itertools
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import equinox as eqx
import hypothesis
import hypothesis.strategies as st
import numpy as np
from fuzz_oracle import (
    Bomb,
    Layer,
    Seen,
    Thing,
    Unhashable,
    arrays,
    aval,
    copy,
    exact,
    forget_the_dead,
    is_array,
    kind_of,
    may_change,
    snapshot,
    static_key,
    statics,
    value,
    walk,
)
from fuzz_trees import (
    NUMBERS,
    change_large,
    confuse,
    draw_field,
    draw_large,
    draw_leaf_static,
    draw_nearly,
    draw_tree,
    fresh_arrays,
    has_missing_fields,
    mutate,
)
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import filterjit
from filterjit import _compile, _core


@dataclasses.dataclass
class Figures:
    """What has been done so far."""

    calls: int = 0
    hits: int = 0
    traces: int = 0
    variants: int = 0
    evictions: int = 0
    mutations: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    clears: int = 0
    threads: int = 0
    failures: int = 0
    donations: int = 0
    partials: int = 0
    machines: int = 0
    compiled_by_jax: int = 0
    calls_with_jax: int = 0
    nodes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


figures = Figures()
on_call: list[Callable[[], None]] = []

# ---- a stand-in for jax.jit ----


class Pretend:
    """Traces `flat` for each combination of avals, and then only picks arrays."""

    def __init__(self, flat: Callable[..., Any]) -> None:
        self.flat = flat
        self.traces: dict[Any, tuple[int, list[Any]]] = {}

    def __call__(self, *given: Any) -> Any:
        key = tuple(map(aval, given))
        known = self.traces.get(key)
        if known is None:
            marks = [np.empty(x.shape, x.dtype) for x in given]
            places = {id(mark): i for i, mark in enumerate(marks)}
            found, trace = _core.output_flatten(self.flat(*marks))
            known = self.traces[key] = trace, [places.get(id(x), x) for x in found]
        trace, program = known
        result = [given[x] if type(x) is int else x for x in program]
        return _core.output_unflatten(trace, tuple(result))


class PretendOptions(_compile.Options):
    """The library's, with `Pretend` for ``jax.jit``."""

    def _key(self, structure: Any) -> Any:
        return super()._key(structure), "pretend"

    def compile(self, f: Any, variant: Any) -> Any:
        jitted = super().compile(f, variant)
        return Pretend(jitted.__wrapped__)  # type: ignore[attr-defined]

    def settle(self, variant: Any, arrays: Any, outputs: Any) -> bool | None:
        return False


# ---- the model of a cache ----


class Variant:
    """What the model knows of a variant."""

    def __init__(self, key: Any, tree: Any, structure: bool) -> None:
        self.key = key
        self.structure = structure
        # Its own statics, which go into its next trace: it is good for nothing once they differ.
        changing = [x for x in statics(tree) if may_change(x)]
        self.own = [(x, static_key(x, structure)) for x in changing]
        self.traces: dict[Any, set[int]] = {}
        self.cached = True

    def is_valid(self) -> bool:
        return all(static_key(x, self.structure) == key for x, key in self.own)


class CacheModel:
    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self.variants: list[Variant] = []  # the one used longest ago first

    def touch(self, variant: Variant) -> None:
        if variant in self.variants:
            self.variants.remove(variant)
            self.variants.append(variant)

    def add(self, variant: Variant) -> None:
        self.variants.append(variant)
        figures.variants += 1
        while len(self.variants) > self.maxsize:
            self.variants.pop(0).cached = False
            figures.evictions += 1

    def clear(self) -> None:
        self.variants.clear()


# ---- the functions under test ----


class Boom(Exception):
    pass


class Target:
    """A function, its plain self, and what the model knows of it.

    `last` is the variant that the wrapper tries first.
    """

    def __init__(self, fun: Any, f: Any, cache: CacheModel, structure: bool, own: Any = ()) -> None:
        self.fun, self.f, self.cache, self.structure = fun, f, cache, structure
        self.own = own  # of the function itself: arrays
        self.signature = inspect.signature(fun)
        self.last: Variant | None = None
        self.donates = False

    def slots(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        bound = self.signature.bind(*args, **kwargs).arguments
        return {name: x for name, x in bound.items() if name != "rest" or len(x) > 0}


class Machine:
    """What the steps are made of, without Hypothesis."""

    def __init__(self, pretend: bool, maxsize: int, small: int = 3) -> None:
        figures.machines += 1
        self.pretend = pretend
        self.numbers = itertools.count(1)
        self.local = threading.local()
        self.by_trace: dict[int, Variant] = {}
        self.targets: list[Target] = []
        self.partials: list[tuple[Target, Any, tuple[Any, ...], dict[str, Any], list[Any]]] = []
        self.pool: list[Any] = []
        self._make_targets(maxsize, small)
        self.wrapped = [t.f for t in self.targets[:3] if not t.structure]
        self.caches = {id(t.cache): t for t in self.targets}
        forget_the_dead()

    # ---- making ----

    def seen(self, structure: bool, **slots: Any) -> Seen:
        """Called by each function under test with all that it sees."""
        if getattr(self.local, "plain", False):
            return Seen(exact(slots, structure), 0)
        if any(type(x) is Bomb for x in walk(slots)):
            raise Boom
        return Seen(exact(slots, structure), next(self.numbers))

    def _make_targets(self, maxsize: int, small: int) -> None:
        seen = self.seen

        def one(x: Any) -> Any:
            return seen(False, x=x), x

        def many(
            a: Any, b: Any = 1, /, c: Any = 2.0, *rest: Any, d: Any = None, **more: Any
        ) -> Any:
            return seen(False, a=a, b=b, c=c, rest=rest, d=d, more=more), [rest, d, a, more], (c, b)

        def few(x: Any, n: Any = 0) -> Any:
            return x, seen(False, x=x, n=n), n

        def structural(x: Any, n: Any = 0) -> Any:
            return {"x": x, "seen": seen(True, x=x, n=n), "n": n}

        def donating(x: Any, y: Any = 0) -> Any:
            return seen(False, x=x, y=y), y, x

        class Called(eqx.Module):
            weight: Any
            size: Any = eqx.field(static=True)

            def __call__(self, x: Any, y: Any = None) -> Any:
                return x, seen(False, x=x, y=y, size=self.size), self.weight, y

        unbounded, second = CacheModel(maxsize), CacheModel(maxsize)
        self._target(one, unbounded)
        self._target(one, unbounded)
        self._target(many, second)
        self._target(few, CacheModel(small))
        self._target(structural, CacheModel(maxsize), functions="structure")
        for size in (1, True, -0.0):
            model = CacheModel(maxsize)
            for weight in (np.float32(1), np.float32(2)):
                module = Called(weight, size)
                self._target(module, model, own=(weight,))
        for donate in ("none", "all", "all-except-first"):
            self._target(donating, CacheModel(maxsize), donate=donate)

    def _target(
        self,
        fun: Any,
        model: CacheModel,
        donate: str = "none",
        functions: str = "identity",
        own: Any = (),
    ) -> None:
        if self.pretend:
            options = PretendOptions(donate, {}, None, functions, model.maxsize)
            signature = _compile._signature.inspect_signature(fun)
            f = _core.FilterJit(fun, options, signature, {})
        else:
            f = filterjit.filter_jit(
                fun,
                donate=donate,  # type: ignore[arg-type]
                functions=functions,  # type: ignore[arg-type]
                maxsize=model.maxsize,
            )
        assert f.parts()[0].maxsize == model.maxsize
        target = Target(fun, f, model, functions == "structure", own)
        target.donates = donate != "none" and not self.pretend
        self.targets.append(target)

    # ---- calls ----

    def expected(self, target: Target, args: Any, kwargs: Any) -> Any:
        self.local.plain = True
        try:
            return self.picture(target, target.fun(*args, **kwargs))[:2]
        finally:
            self.local.plain = False

    def picture(self, target: Target, result: Any) -> tuple[Any, Any, int]:
        """What is compared of a result, and the number of the trace that it is from."""
        number = next(x.number for x in walk(result) if type(x) is Seen)
        key = exact(result, target.structure)
        return key, [value(x) for x in arrays(result)], number

    def call(
        self,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        through: Callable[..., Any] | None = None,
        captured: list[Any] | None = None,
        given: tuple[Any, Any] | None = None,
        times: int = 1,
    ) -> Any:
        """Calls and checks, some `times`. `args` and `kwargs` are what the function gets; with `through`, that
        is called with `given` in the place of the target, and `captured` holds its guess."""
        slots = target.slots(args, kwargs)
        key = exact(slots, target.structure)
        avals = tuple(aval(x) for x in (*target.own, *arrays(slots)))
        want = self.expected(target, args, kwargs)
        mine, named = (args, kwargs) if given is None else given
        got = None
        for _ in range(times):
            candidates = self.candidates(target, key, captured)
            got = (through or target.f)(*mine, **named)
            self.check(target, slots, key, avals, want, got, candidates, captured)
            self.check_size(target)
        return got

    def candidates(self, target: Target, key: Any, captured: list[Any] | None) -> list[Variant]:
        """The variants that may answer; the guess alone where it fits."""
        guess = target.last if captured is None or captured[0] is None else captured[0]
        if guess in target.cache.variants and guess.key == key and guess.is_valid():
            return [guess]
        return [v for v in target.cache.variants if v.key == key and v.is_valid()]

    def count_call(self) -> None:
        figures.calls += 1
        figures.calls_with_jax += not self.pretend
        for hook in on_call:
            hook()

    def check(
        self,
        target: Target,
        slots: Any,
        key: Any,
        avals: Any,
        want: Any,
        got: Any,
        candidates: list[Variant],
        captured: list[Any] | None,
        exactly: bool = True,
    ) -> None:
        self.count_call()
        *picture, number = self.picture(target, got)
        assert picture[0] == want[0], f"a wrong result: {picture[0]} is not {want[0]}"
        assert picture[1] == want[1], f"wrong arrays: {picture[1]} are not {want[1]}"
        assert number > 0
        variant = self.by_trace.get(number)
        if variant is not None:
            figures.hits += 1
            assert variant in candidates, "a hit on a variant that does not fit"
            assert number in variant.traces.get(avals, ()), "a hit on a trace of other avals"
        else:
            figures.traces += 1
            lacking = [v for v in candidates if avals not in v.traces]
            if exactly:
                assert len(lacking) == len(candidates), "traced what had been traced"
            if candidates:
                variant = (lacking or candidates)[0]
            else:
                variant = Variant(key, slots, target.structure)
                target.cache.add(variant)
                figures.compiled_by_jax += not self.pretend
                for x in walk(slots):
                    kind = None if is_array(x) else kind_of(x)
                    figures.nodes["array" if is_array(x) else kind.name if kind else "static"] += 1
            variant.traces.setdefault(avals, set()).add(number)
            self.by_trace[number] = variant
        target.cache.touch(variant)
        target.last = variant
        if captured is not None:
            captured[0] = variant

    def check_size(self, target: Target) -> None:
        found, expected = len(target.f.variants), len(target.cache.variants)
        assert found == expected, f"{found} variants, there should be {expected}"

    def call_failing(self, target: Target, args: Any, kwargs: Any, error: Any) -> None:
        """A call that raises leaves all as it was."""
        before = len(target.f.variants)
        try:
            target.f(*args, **kwargs)
        except error:
            figures.failures += 1
        else:
            raise AssertionError("did not raise")
        assert len(target.f.variants) == before, "a failed call changed the cache"
        self.check_size(target)

    # ---- partials ----

    def make_partial(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        partial = target.f.partial(*args, **kwargs)
        kept = snapshot(args), {name: snapshot(x) for name, x in kwargs.items()}
        self.partials.append((target, partial, *kept, [None]))
        figures.partials += 1

    def call_partial(
        self, index: int, args: tuple[Any, ...], kwargs: dict[str, Any], times: int = 1
    ) -> Any:
        target, partial, first, named, captured = self.partials[index]
        full = (*first, *args), {**named, **kwargs}
        if not named.keys().isdisjoint(kwargs):
            captured = None  # other arguments than the captured ones
        given = args, kwargs
        return self.call(
            target, *full, through=partial, captured=captured, given=given, times=times
        )

    # ---- clearing, threads ----

    def clear(self, target: Target) -> None:
        target.f.clear_cache()
        self._forget(target)

    def clear_all(self) -> None:
        filterjit.clear_caches()
        for target in self.targets:
            self._forget(target)

    def _forget(self, target: Target) -> None:
        figures.clears += 1
        cache = target.cache
        cache.clear()
        gone = [n for n, v in self.by_trace.items() if v not in self._live(cache)]
        for number in gone:
            del self.by_trace[number]
        for other in self.targets:
            if other.cache is cache:
                other.last = None
        for other, _, _, _, captured in self.partials:
            if other.cache is cache:
                captured[0] = None

    def _live(self, but: CacheModel) -> set[Variant]:
        return {v for t in self.targets if t.cache is not but for v in t.cache.variants}

    def call_in_threads(self, jobs: list[tuple[Target, Any, Any]]) -> None:
        """All at once. Which of two equal calls makes the variant is anybody's guess, and so is
        the order of use: a cache that may have lost a variant is cleared afterwards."""
        prepared = []
        for target, args, kwargs in jobs:
            slots = target.slots(args, kwargs)
            key = exact(slots, target.structure)
            avals = tuple(aval(x) for x in (*target.own, *arrays(slots)))
            prepared.append((slots, key, avals, self.expected(target, args, kwargs)))
        barrier = threading.Barrier(len(jobs))
        results: list[Any] = [None] * len(jobs)
        errors: list[BaseException] = []

        def work(i: int) -> None:
            target, args, kwargs = jobs[i]
            try:
                barrier.wait()
                results[i] = [target.f(*args, **kwargs) for _ in range(3)]
            except BaseException as e:
                errors.append(e)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(before)
        if errors:
            raise errors[0]
        figures.threads += len(jobs)
        full = {
            id(t.cache): t
            for t, _, _ in jobs
            if len(t.cache.variants) + len(jobs) > t.cache.maxsize
        }
        for (target, _, _), (slots, key, avals, want), got in zip(
            jobs, prepared, results, strict=True
        ):
            for result in got:
                if id(target.cache) in full:
                    assert list(self.picture(target, result)[:2]) == list(want)
                    self.count_call()
                    continue
                # The guess is whichever call came last: any variant that fits is right.
                fitting = [v for v in target.cache.variants if v.key == key and v.is_valid()]
                self.check(target, slots, key, avals, want, result, fitting, None, exactly=False)
        for target in full.values():
            self.clear(target)
        for target, _, _ in jobs:
            self.check_size(target)
            target.last = None  # which it was is not known


# ---- Hypothesis ----

_fast = False


def use_fast_draws(on: bool) -> None:
    """Whether steps draw from a plain ``Random`` of one drawn seed: ten times faster, and a
    failure shrinks in its steps alone."""
    global _fast
    _fast = on


class Seeded(random.Random):
    """Says its seed where a failure is printed."""

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
    """The steps. `pretend` and the sizes of caches are for subclasses to say."""

    pretend = True
    repeats = 6

    @initialize(rng=generators)
    def start(self, rng: random.Random) -> None:
        self.m = Machine(self.pretend, maxsize=rng.choice([8, 64, 4096]))
        self.m.pool += [draw_tree(rng, self.m.wrapped) for _ in range(3)]

    # ---- drawing ----

    def _tree(self, rng: random.Random) -> Any:
        """Mostly a tree that was there before, or one that is nearly the same."""
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
        """The same arguments some times, as they are and as copies."""
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
    def call_by_turns(self, rng: random.Random) -> None:
        """Trees that differ in little, in turn, on one function."""
        target = rng.choice(self.m.targets[:5])
        trees = [self._tree(rng)]
        trees += [draw_nearly(rng, trees[0], self.m.wrapped) for _ in range(2)]
        for _ in range(self.repeats):
            self.m.call(target, (rng.choice(trees),), {}, times=rng.randrange(1, 3))

    @rule(rng=generators)
    def call_confused(self, rng: random.Random) -> None:
        """One static in a place of its own, in turn with what is easily taken for it."""
        target = rng.choice(self.m.targets[:5])
        static = draw_field(rng) if rng.randrange(2) else rng.choice(NUMBERS)
        for _ in range(2 * self.repeats):
            held = rng.choice([static, confuse(rng, static)])
            self.m.call(target, (Layer(None, 1, held, len),), {})

    @rule(rng=generators)
    def mutate_between(self, rng: random.Random) -> None:
        """The very same tree, called with, changed in place, and called with again."""
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
        """As a method of a Module."""
        target = self.m.targets[3]
        owner = Layer(self._tree(rng), None, 1, len)
        bound = target.f.__get__(owner)
        tree = self._tree(rng)
        self.m.call(target, (owner, tree), {}, through=bound, given=((tree,), {}), times=3)

    @rule(rng=generators)
    def feed_back(self, rng: random.Random) -> None:
        """What a call returned is an argument of the next one."""
        target = self.m.targets[rng.randrange(2)]
        tree = self._tree(rng)
        if has_missing_fields(tree):
            return
        for _ in range(self.repeats):
            tree = self.m.call(target, (tree,), {})[1]
        self._keep(rng, tree)

    @rule(rng=generators)
    def call_large(self, rng: random.Random) -> None:
        """A large model, again and again, and changed in one place."""
        target = self.m.targets[1]
        model = draw_large(rng)
        for _ in range(self.repeats):
            self.m.call(target, (model,), {}, times=rng.randrange(1, 6))
            figures.mutations["large Module"] += 1
            change_large(rng, model)

    @rule(rng=generators)
    def addresses_again(self, rng: random.Random) -> None:
        """Objects that count by their identity, one at the address of the last."""
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
    """The same on ``jax.jit`` itself."""

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
