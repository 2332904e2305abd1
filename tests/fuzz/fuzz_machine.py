"""The machine: functions under test, and calls of them that are checked.

Each call is compared with the plain function's result, and with the model: which of the variants
there are may answer it, or that there must be a new one. Each trace leaves its number in the
result, so that the very trace that answered is known.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from fuzz_figures import figures, on_call
from fuzz_model import CacheModel, Target, Variant
from fuzz_oracle import (
    Bomb,
    Seen,
    arrays,
    aval,
    exact,
    forget_the_dead,
    is_array,
    kind_of,
    snapshot,
    value,
    walk,
)
from fuzz_pretend import PretendOptions

import filterjit
from filterjit import _core
from filterjit._call import _signature


class Boom(Exception):
    pass


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
            signature = _signature.inspect_signature(fun)
            f = _core.FilterJit(fun, options, signature, {})
        else:
            f = filterjit.filter_jit(
                fun,
                donate=donate,  # type: ignore[arg-type]
                functions=functions,  # type: ignore[arg-type]
                maxsize=model.maxsize,
            )
        assert f._parts()[0].maxsize == model.maxsize
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

    def prepare(self, target: Target, args: Any, kwargs: Any) -> tuple[Any, Any, Any, Any]:
        """The slots of a call, their key, the avals that it is traced for, what it has to return."""
        slots = target.slots(args, kwargs)
        avals = tuple(aval(x) for x in (*target.own, *arrays(slots)))
        return slots, exact(slots, target.structure), avals, self.expected(target, args, kwargs)

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
        """Calls and checks, some `times`. `args` and `kwargs` are what the function gets; with
        `through`, that is called with `given` in the place of the target, and `captured` holds its
        guess."""
        slots, key, avals, want = self.prepare(target, args, kwargs)
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
        prepared = [self.prepare(*job) for job in jobs]
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
