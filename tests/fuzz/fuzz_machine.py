"""The machine: functions under test, and checked calls of them.

The result of each call is compared with that of the function without jit. The model says which
variants may answer the call, or that there must be a new one. Each trace writes its number into the
result, which tells which trace answered.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from fuzz_figures import figures
from fuzz_statics import arrays_in, forget_the_dead, in_memory, may_change, static_key
from fuzz_trees import (
    Bomb,
    Seen,
    arrays,
    aval,
    exact,
    fresh_arrays,
    names,
    statics,
    value,
    walk,
)

import filterjit
from filterjit import _core
from filterjit._call import _direct, _signature
from filterjit._call._donation import Donation
from filterjit._call._miss import FunctionHooks
from filterjit._call._settings import Settings
from support.threads import at_once


class Boom(Exception):
    pass


# ---- a stand-in for jax.jit, which most machines use ----


class Pretend:
    """Traces `flat` once for each combination of avals, by running it with placeholder arrays, and
    remembers from which argument each array of the result came. Further calls only select arrays. That
    costs a thousandth of a compilation. All other code is filterjit's."""

    def __init__(self, flat: Callable[..., Any]) -> None:
        self.flat = flat
        self.traces: dict[Any, tuple[int, list[Any]]] = {}

    def __call__(self, *given: Any) -> Any:
        key = tuple(map(aval, given))
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


# ---- the model of a function's cache: which variants it must hold ----


class Variant:
    """The model of a variant."""

    def __init__(self, key: Any, tree: Any, structure: bool) -> None:
        self.key = key
        self.structure = structure
        # Its own static values, which its next trace would use: once they change, it is not valid.
        changing = [x for x in statics(tree) if may_change(x)]
        self.own = [(x, static_key(x, structure)) for x in changing]
        self.traces: dict[Any, set[int]] = {}

    def fits(self, key: Any) -> bool:
        return self.key == key and all(static_key(x, self.structure) == k for x, k in self.own)


class CacheModel:
    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self.variants: list[Variant] = []  # the least recently used first

    def use(self, variant: Variant) -> None:
        """Adds a variant, or makes it the one that was used last."""
        if variant in self.variants:
            self.variants.remove(variant)
        self.variants.append(variant)
        while len(self.variants) > self.maxsize:
            self.variants.pop(0).own.clear()  # keeps no objects alive
            figures.evictions += 1

    def clear(self) -> None:
        for variant in self.variants:
            variant.own.clear()
        self.variants.clear()


@dataclasses.dataclass(eq=False)
class Target:
    """A function under test: as it is, jitted, and the model of its cache.

    `last` holds the variant that the wrapper predicts for the next call. A partial or bound function
    is a target too, with its first arguments.
    """

    fun: Any
    f: Any
    cache: CacheModel
    structure: bool = False
    own: tuple[Any, ...] = ()  # the arrays of the function itself
    donates: bool = False
    first: tuple[Any, ...] = ()
    named: dict[str, Any] = dataclasses.field(default_factory=dict)
    last: list[Variant | None] = dataclasses.field(default_factory=lambda: [None])

    def candidates(self, key: Any) -> list[Variant]:
        """Returns the variants that may answer: the predicted one alone where it fits."""
        fitting = [v for v in self.cache.variants if v.fits(key)]
        return [v for v in fitting if v is self.last[0]] or fitting

    def bound(self, *first: Any) -> Target:
        return dataclasses.replace(self, f=self.f.__get__(*first), first=first)


class Call:
    """A call that is to be made, with its expected result."""

    def __init__(self, m: Machine, target: Target, args: Any, kwargs: Any) -> None:
        self.target, self.args, self.kwargs = target, args, kwargs
        full, named = (*target.first, *args), {**target.named, **kwargs}
        bound = inspect.signature(target.fun).bind(*full, **named).arguments
        self.arguments = {name: x for name, x in bound.items() if name != "rest" or len(x) > 0}
        self.key = exact(self.arguments, target.structure)
        self.avals = tuple(aval(x) for x in (*target.own, *arrays(self.arguments)))
        m.local.without_jit = True
        try:
            self.want = self.comparable(target.fun(*full, **named))[:2]
        finally:
            m.local.without_jit = False

    def make(self) -> Any:
        return self.target.f(*self.args, **self.kwargs)

    def comparable(self, result: Any) -> tuple[Any, Any, int]:
        """Returns a result's exact key, the values of its arrays, those in static places included,
        and the number of its trace."""
        number = next(x.number for x in walk(result) if type(x) is Seen)
        key = exact(result, self.target.structure)
        static = [in_memory(array) for x in statics(result) for array in arrays_in(x)]
        return key, [*map(value, arrays(result)), *static], number


class Machine:
    """The operations of which the fuzzer's steps consist, without Hypothesis."""

    def __init__(self, pretend: bool, maxsize: int, small: int = 3) -> None:
        figures.machines += 1
        self.pretend = pretend
        self.numbers = itertools.count(1)
        self.local = threading.local()
        self.by_trace: dict[int, Variant] = {}
        self.targets: list[Target] = []
        self.pool: list[Any] = []
        self.direct: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._make_targets(maxsize, small)
        self.wrapped = [t.f for t in self.targets[:3] if not t.structure]
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

        shared = CacheModel(maxsize)
        self._target(one, shared)
        self._target(one, shared)
        self._target(many, CacheModel(maxsize))
        self._target(few, CacheModel(small))
        self._target(structural, CacheModel(maxsize), functions="structure")
        for size in (1, True, -0.0):
            shared = CacheModel(maxsize)
            for weight in (np.float32(1), np.float32(2)):
                self._target(Called(weight, size), shared, own=(weight,))
        for donate in ("none", "all", "all-except-first"):
            self._target(donating, CacheModel(maxsize), donate=donate)

    def _target(
        self,
        fun: Any,
        model: CacheModel,
        donate: Any = "none",
        functions: Any = "identity",
        own: Any = (),
    ) -> None:
        if self.pretend:
            options = PretendOptions(Settings(Donation(donate), functions, model.maxsize))
            signature = _signature.inspect_signature(fun)
            f: Any = filterjit.types.FilterJit(fun, options, signature, {})
        else:
            f = filterjit.filter_jit(fun, donate=donate, functions=functions, maxsize=model.maxsize)
        assert f._parts()[0].maxsize == model.maxsize
        donates = donate != "none" and not self.pretend
        self.targets.append(Target(fun, f, model, functions == "structure", own, donates))

    # ---- calls ----

    def call(self, target: Target, *args: Any, times: int = 1, **kwargs: Any) -> Any:
        """Calls and checks the target, `times` times."""
        call, got = Call(self, target, args, kwargs), None
        for _ in range(times):
            candidates = target.candidates(call.key)
            if target.donates:
                figures.donations += 1
                call.args, call.kwargs = fresh_arrays((args, kwargs))
            got = call.make()
            self.check(call, got, candidates)
            self.check_size(target)
        return got

    def check(self, call: Call, got: Any, candidates: list[Variant], exactly: bool = True) -> None:
        target, key, avals = call.target, call.key, call.avals
        self.check_result(call, got)
        number = call.comparable(got)[2]
        assert number > 0
        variant = self.by_trace.get(number)
        if variant is not None:
            figures.hits += 1
            # Two variants are equal where a value was changed in place and changed back meanwhile.
            # The one that followed the last call's variant the time before may answer then.
            assert variant in candidates or (
                variant in target.cache.variants and variant.fits(key)
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
                variant = Variant(key, call.arguments, target.structure)
                figures.variants += 1
                figures.compiled_by_jax += not self.pretend
                figures.nodes.update(names(call.arguments))
            variant.traces.setdefault(avals, set()).add(number)
            self.by_trace[number] = variant
        target.cache.use(variant)
        target.last[0] = variant

    def check_result(self, call: Call, got: Any) -> None:
        figures.calls += 1
        figures.calls_with_jax += not self.pretend
        (key, values), (found, found_values, _) = call.want, call.comparable(got)
        assert found == key, f"a wrong result: {found} is not {key}"
        assert found_values == values, f"wrong arrays: {found_values} are not {values}"

    def check_size(self, target: Target) -> None:
        f = self.targets_of(target.cache)[0].f
        found, expected = len(f.variants), len(target.cache.variants)
        assert found == expected, f"{found} variants, there should be {expected}"
        for variant in () if self.pretend else f.variants:
            count = getattr(variant.call, "counts", {}).get("direct", 0)
            figures.direct += count - self.direct.get(variant, 0)
            self.direct[variant] = count

    def call_failing(self, target: Target, error: Any, *args: Any, **kwargs: Any) -> None:
        """Makes a call that raises, and checks that it leaves the cache unchanged."""
        try:
            target.f(*args, **kwargs)
        except error:
            figures.failures += 1
        else:
            raise AssertionError("did not raise")
        self.check_size(target)

    # ---- clearing, threads ----

    def targets_of(self, cache: CacheModel) -> list[Target]:
        return [t for t in self.targets if t.cache is cache]

    def clear(self, target: Target) -> None:
        target.f.clear_cache()
        self._forget(target.cache)

    def clear_all(self) -> None:
        filterjit.clear_caches()
        for target in self.targets:
            self._forget(target.cache)

    def _forget(self, cache: CacheModel) -> None:
        figures.clears += 1
        cache.clear()
        for target in self.targets_of(cache):
            target.last[0] = None

    def call_in_threads(self, calls: list[Call]) -> None:
        """Makes the calls at the same time. Neither the call that makes a variant nor the order of
        use is defined, so a cache that may have evicted a variant is cleared afterwards. In the
        others, one more call of each in turn defines the order, which later evictions follow."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            results = at_once(len(calls), lambda i: [calls[i].make() for _ in range(3)])
        finally:
            sys.setswitchinterval(before)
        figures.threads += len(calls)
        full = [
            c for c in (x.target.cache for x in calls) if len(c.variants) + len(calls) > c.maxsize
        ]
        for call, got in zip(calls, results, strict=True):
            if isinstance(got, BaseException):
                raise got
            target = call.target
            for result in got:
                if target.cache in full:
                    self.check_result(call, result)
                    continue
                # Any call may have been the last, so any variant that fits may be predicted.
                fitting = [v for v in target.cache.variants if v.fits(call.key)]
                if len(fitting) > 1:  # both may have answered, and the last call uses one only
                    full.append(target.cache)
                self.check(call, result, fitting, exactly=False)
        for target in {call.target for call in calls}:
            if target.cache in full:
                self.clear(target)
            self.check_size(target)
            target.last[0] = None  # not defined
        for call in calls:
            if call.target.cache not in full:
                self.call(call.target, *call.args, **call.kwargs)
