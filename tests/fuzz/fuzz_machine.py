"""The machine: functions under test, and checked calls of them.

The result of each call is compared with that of the function without jit. The model says which
variants may answer the call, or that there must be a new one. Each trace writes its number into the
result, which tells which trace answered.
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from fuzz_figures import figures
from fuzz_model import CacheModel, Target, Variant
from fuzz_oracle import (
    Bomb,
    Seen,
    arrays,
    aval,
    exact,
    forget_the_dead,
    in_memory,
    is_array,
    kind_of,
    snapshot,
    statics,
    value,
    walk,
)
from fuzz_pretend import PretendOptions

import filterjit
from filterjit._call import _signature
from filterjit._call._donation import Donation
from filterjit._call._settings import Settings
from support.threads import at_once


class Boom(Exception):
    pass


class Machine:
    """The operations of which the fuzzer's steps consist, without Hypothesis."""

    def __init__(self, pretend: bool, maxsize: int, small: int = 3) -> None:
        figures.machines += 1
        self.pretend = pretend
        self.numbers = itertools.count(1)
        self.local = threading.local()
        self.by_trace: dict[int, Variant] = {}
        self.targets: list[Target] = []
        self.partials: list[tuple[Target, Any, tuple[Any, ...], dict[str, Any], list[Any]]] = []
        self.pool: list[Any] = []
        self.direct: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._make_targets(maxsize, small)
        self.wrapped = [t.f for t in self.targets[:3] if not t.structure]
        self.caches = {id(t.cache): t for t in self.targets}
        forget_the_dead()

    # ---- functions ----

    def seen(self, structure: bool, **arguments: Any) -> Seen:
        """Each function under test calls this with its arguments, and returns the result."""
        if getattr(self.local, "without_jit", False):
            return Seen(exact(arguments, structure), 0)
        if any(type(x) is Bomb for x in walk(arguments)):
            raise Boom
        return Seen(exact(arguments, structure), next(self.numbers))

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
            options = PretendOptions(Settings(Donation(donate), functions, model.maxsize))
            signature = _signature.inspect_signature(fun)
            f = filterjit.types.FilterJit(fun, options, signature, {})
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
        self.local.without_jit = True
        try:
            return self.comparable(target, target.fun(*args, **kwargs))[:2]
        finally:
            self.local.without_jit = False

    def prepare(self, target: Target, args: Any, kwargs: Any) -> tuple[Any, Any, Any, Any]:
        """Returns the arguments by parameter, their key, the avals of the trace and the expected
        result."""
        arguments = target.arguments(args, kwargs)
        avals = tuple(aval(x) for x in (*target.own, *arrays(arguments)))
        key = exact(arguments, target.structure)
        return arguments, key, avals, self.expected(target, args, kwargs)

    def comparable(self, target: Target, result: Any) -> tuple[Any, Any, int]:
        """Returns a result's exact key, the values of its arrays, those in static places included,
        and the number of its trace."""
        number = next(x.number for x in walk(result) if type(x) is Seen)
        key = exact(result, target.structure)
        static = [in_memory(x) for x in statics(result) if isinstance(x, np.ndarray)]
        return key, [*map(value, arrays(result)), *static], number

    def call(
        self,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        through: Callable[..., Any] | None = None,
        last: list[Any] | None = None,
        given: tuple[Any, Any] | None = None,
        times: int = 1,
    ) -> Any:
        """Calls and checks the target, `times` times. `args` and `kwargs` are what the function gets.
        With `through`, that is called with `given` in the place of the target, and `last` holds the
        variant of its last call."""
        arguments, key, avals, want = self.prepare(target, args, kwargs)
        mine, named = (args, kwargs) if given is None else given
        got = None
        for _ in range(times):
            candidates = self.candidates(target, key, last)
            got = (through or target.f)(*mine, **named)
            self.check(target, arguments, key, avals, want, got, candidates, last)
            self.check_size(target)
        return got

    def candidates(self, target: Target, key: Any, last: list[Any] | None) -> list[Variant]:
        """Returns the variants that may answer: the predicted one alone where it fits."""
        predicted = target.last if last is None else last[0]
        if predicted in target.cache.variants and predicted.key == key and predicted.is_valid():
            return [predicted]
        return [v for v in target.cache.variants if v.key == key and v.is_valid()]

    def count_call(self) -> None:
        figures.calls += 1
        figures.calls_with_jax += not self.pretend

    def check(
        self,
        target: Target,
        arguments: Any,
        key: Any,
        avals: Any,
        want: Any,
        got: Any,
        candidates: list[Variant],
        last: list[Any] | None,
        exactly: bool = True,
    ) -> None:
        self.count_call()
        *found, number = self.comparable(target, got)
        assert found[0] == want[0], f"a wrong result: {found[0]} is not {want[0]}"
        assert found[1] == want[1], f"wrong arrays: {found[1]} are not {want[1]}"
        assert number > 0
        variant = self.by_trace.get(number)
        if variant is not None:
            figures.hits += 1
            # Two variants are equal where a value was changed in place and changed back meanwhile.
            # The one that followed the last call's variant the time before may answer then.
            assert variant in candidates or (
                variant in target.cache.variants and variant.key == key and variant.is_valid()
            ), "a hit on a variant that does not fit"
            assert number in variant.traces.get(avals, ()), "a hit on a trace of other avals"
        else:
            figures.traces += 1
            lacking = [v for v in candidates if avals not in v.traces]
            if exactly:
                assert len(lacking) == len(candidates), "traced what had been traced"
            if candidates:
                variant = (lacking or candidates)[0]
            else:
                variant = Variant(key, arguments, target.structure)
                target.cache.add(variant)
                figures.compiled_by_jax += not self.pretend
                for x in walk(arguments):
                    kind = None if is_array(x) else kind_of(x)
                    figures.nodes["array" if is_array(x) else kind.name if kind else "static"] += 1
            variant.traces.setdefault(avals, set()).add(number)
            self.by_trace[number] = variant
        target.cache.touch(variant)
        if last is None:
            target.last = variant
        else:
            last[0] = variant

    def check_size(self, target: Target) -> None:
        found, expected = len(target.f.variants), len(target.cache.variants)
        assert found == expected, f"{found} variants, there should be {expected}"
        self.count_direct(target)

    def count_direct(self, target: Target) -> None:
        for variant in () if self.pretend else target.f.variants:
            count = getattr(variant.call, "counts", {}).get("direct", 0)
            figures.direct += count - self.direct.get(variant, 0)
            self.direct[variant] = count

    def call_failing(self, target: Target, args: Any, kwargs: Any, error: Any) -> None:
        """Makes a call that raises, and checks that it leaves the cache unchanged."""
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
        target, partial, first, named, last = self.partials[index]
        full = (*first, *args), {**named, **kwargs}
        given = args, kwargs
        return self.call(target, *full, through=partial, last=last, given=given, times=times)

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
        evicted = [n for n, v in self.by_trace.items() if v not in self._live(cache)]
        for number in evicted:
            del self.by_trace[number]
        for other in self.targets:
            if other.cache is cache:
                other.last = None
        for other, _, _, _, last in self.partials:
            if other.cache is cache:
                last[0] = None

    def _live(self, but: CacheModel) -> set[Variant]:
        return {v for t in self.targets if t.cache is not but for v in t.cache.variants}

    def call_in_threads(self, jobs: list[tuple[Target, Any, Any]]) -> None:
        """Makes the calls at the same time. Neither the call that makes a variant nor the order of
        use is defined, so a cache that may have evicted a variant is cleared afterwards. In the
        others, one more call of each job in turn defines the order, which later evictions follow."""
        prepared = [self.prepare(*job) for job in jobs]

        def work(i: int) -> Any:
            target, args, kwargs = jobs[i]
            return [target.f(*args, **kwargs) for _ in range(3)]

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            results = at_once(len(jobs), work)
        finally:
            sys.setswitchinterval(before)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        figures.threads += len(jobs)
        full = {
            id(t.cache): t
            for t, _, _ in jobs
            if len(t.cache.variants) + len(jobs) > t.cache.maxsize
        }
        for (target, _, _), (arguments, key, avals, want), got in zip(
            jobs, prepared, results, strict=True
        ):
            for result in got:
                if id(target.cache) in full:
                    assert list(self.comparable(target, result)[:2]) == list(want)
                    self.count_call()
                    continue
                # Any call may have been the last, so any variant that fits may be predicted.
                fitting = [v for v in target.cache.variants if v.key == key and v.is_valid()]
                if len(fitting) > 1:  # both may have answered, and the last call uses one only
                    full[id(target.cache)] = target
                self.check(
                    target, arguments, key, avals, want, result, fitting, None, exactly=False
                )
        for target in full.values():
            self.clear(target)
        for target, _, _ in jobs:
            self.check_size(target)
            target.last = None  # not defined
        for target, args, kwargs in jobs:
            if id(target.cache) not in full:
                self.call(target, args, kwargs)
