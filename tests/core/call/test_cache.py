"""The cache of a function: the variants in it, which of them is evicted, and which a call tries
first: the one that followed the last variant before."""

import weakref
from collections.abc import Sequence
from typing import Any

import pytest
from core_support import Array, Hostile, core, make_registry
from hooks_support import Hooks, called, make_jit, variants
from outcome_support import raised


class Eager(Hooks):
    """As under ``jax.disable_jit``, the callable runs the function, and there is no trace."""

    def compile(self, f: Any, variant: Any) -> Any:
        return super().compile(f, variant).flat  # type: ignore[no-any-return]


HOOKS = pytest.mark.parametrize("hooks", [Hooks, Eager])


def statics(f: Any) -> list[int]:
    return sorted(v._arguments(())[1][0] for v in variants(f))


@HOOKS
def test_the_least_recently_used_is_evicted(hooks: Any) -> None:
    f = make_jit(lambda n: n, hooks(make_registry(), maxsize=3))
    for calls, kept in (((0, 1, 2, 0, 3), [0, 2, 3]), ((2, 4), [2, 3, 4]), ((0,), [0, 2, 4])):
        assert [f(n) for n in calls] == list(calls) and statics(f) == kept
    assert f._hooks.count("compile") == 6
    for n in range(300):
        assert f(n) == n
    compiled = f._hooks.count("compile")
    assert f(299) == 299 and statics(f) == [297, 298, 299]
    assert f._hooks.count("compile") == compiled
    assert {v.num_traces for v in variants(f)} == {0 if hooks is Eager else 1}


@HOOKS
def test_a_call_that_fails_evicts_no_variant(hooks: Any) -> None:
    zero: list[int] = []
    f = make_jit(lambda n: 1 // (n and not zero), hooks(make_registry(), maxsize=3))
    for n in (1, 2, 3):
        f(n)
    before = set(variants(f))
    for _ in range(3):
        raised(ZeroDivisionError, f, 0)
    if hooks is Eager:  # the others are not run again
        zero.append(1)
        for n in (1, 2, 3, 4):
            raised(ZeroDivisionError, f, n)
        zero.clear()
    assert set(variants(f)) == before
    f(4)
    assert len(variants(f)) == 3 and len(set(variants(f)) - before) == 1
    f._find_or_compile(5)
    assert len(variants(f)) == 3


def test_traces_that_come_later() -> None:
    """The same variants are traced once jit is enabled again."""
    f = make_jit(lambda n: n, Eager(make_registry(), maxsize=2))
    f(1), f(2)
    for variant in variants(f):
        core.output_flatten(variant._call())
    assert [v.num_traces for v in variants(f)] == [1, 1]
    assert f(3) == 3 and len(variants(f)) == 2


@HOOKS
def test_calls_that_still_run(hooks: Any) -> None:
    """They do not count, and a variant that is evicted in the middle lives until its call ends."""

    def fun(n: int) -> Any:
        if n == 0:
            return n
        inner = f(n - 1)
        assert len(variants(f)) <= 2 + (6 - n), "those around this one, and maxsize"
        return inner

    f = make_jit(fun, hooks(make_registry(), maxsize=1))
    assert f(5) == f(5) == 0 and len(variants(f)) == 1


def test_hits_are_timed() -> None:
    f = make_jit(lambda x: x)
    f(Array())
    cache = f._parts()[0]
    names = ("hits", "hit", "waited", "runs", "around", "ran")
    assert cache._times == dict.fromkeys(names, 0)
    cache.timed = 1
    f(Array())
    (variant,) = variants(f)
    hits, hit, *others = cache._times.values()
    assert hits == 1 and hit > 0 and others == [0, 0, 0, 0] and variant._times == cache._times


# ---- variants that a look-up makes ----


def test_insert_traced() -> None:
    """A variant from a look-up is inserted once it has been traced."""
    f = make_jit(lambda n, x: (n, x), Hooks(make_registry(), maxsize=2))
    cache, x = f._parts()[0], Array()
    variant, _, arrays = f._find_or_compile(3, x)
    assert arrays == (x,) and variant._arguments(arrays)[1] == [3, x]
    for traces in (0, 1, 1):
        assert variant.num_traces == traces
        cache.insert_traced(variant)
        assert cache.variants() == [variant] * traces
        if not traces:
            core.output_flatten(variant._call(*arrays))  # as JAX does: the trace gets its number
    assert f(3, x) == (3, x) and cache.variants() == [variant]
    # An equal variant is in the cache.
    f._parts()[0].clear()
    equal = f._find_or_compile(3, x)[0]
    core.output_flatten(equal._call(*arrays))
    f(3, x)
    (first,) = cache.variants()
    cache.insert_traced(equal)
    assert cache.variants() == [first] != [equal] and f._find_or_compile(3, x)[0] is first
    # The oldest is evicted.
    f(4, x)
    new = f._find_or_compile(5, x)[0]
    core.output_flatten(new._call(x))
    cache.insert_traced(new)
    assert len(cache.variants()) == 2 and new in cache.variants() and first not in cache.variants()
    # One that was cleared is not inserted.
    cache.clear()
    cache.insert_traced(new)
    assert cache.variants() == []


# ---- variants that were compiled elsewhere ----


class Compiled(Hooks):
    """Hooks that make no variants."""

    def compile(self, f: Any, variant: Any) -> Any:
        raise LookupError(variant.structure)


def compiled(fun: Any, *args: Any, may_raise: bool = False, **other: Any) -> tuple[Any, Any]:
    """A FilterJit with only the variant that was compiled for `args`, and the variant."""
    f, variant = called(fun, *args)
    cache, arrays = f._parts()
    options = Compiled(cache.hooks.registry)
    own = core.Cache(options.registry, cache.function, cache.signature, options, 1, {})
    call, outputs = other.get("call", variant._call), other.get("outputs", variant.outputs)
    inserted = own.insert_compiled(variant.structure, call, outputs, may_raise)
    g = core.FilterJit._rebuild(own, arrays)
    g.keep = f  # the callable holds it weakly
    return g, inserted


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: core.CallProxy(f, None)])
def test_compiled_elsewhere(wrap: Any) -> None:
    f, variant = compiled(lambda x, n, **kw: (x, n, kw), Array(1), 3)
    c, x = wrap(f), Array(2)
    assert c(x, 3) == c(x, n=3) == c(n=3, x=x) == c(*[x], n=3) == (x, 3, {})
    assert f._hooks.calls == [] and (variant.hits, variant.num_traces) == (4, 1)
    for args in ((), (x,), (x, 3, 4)):
        raised(TypeError, c, *args)
    for args in ((x, 4), (x, 3.0), (3, 3), (x, [3]), (x, True)):
        raised(LookupError, c, *args)
    raised(LookupError, c, x, 3, other=x)
    assert f._parts()[0].variants() == [variant] and c(x, 3)[0] is x
    assert c.__call__(x, 3) == type(c).__call__(c, x, 3) == (x, 3, {})
    g, _ = compiled(lambda x: x, Array(1))
    assert list(map(wrap(g), [x, x])) == [x, x] and wrap(compiled(lambda n: n, 3)[0])(3) == 3


@pytest.mark.parametrize("may_raise", [False, True])
def test_compiled_elsewhere_and_evicted(may_raise: bool) -> None:
    f, first = compiled(lambda x, n: x, Array(1), 3, may_raise=may_raise)
    cache = f._parts()[0]
    f(Array(2), 3)
    assert f._hooks.calls == ["run"] * may_raise
    other = make_jit(lambda x, n: x, Hooks(cache.hooks.registry))
    structure = other._find_or_compile(Array(1), 4)[0].structure
    second = cache.insert_compiled(structure, first._call, first.outputs, may_raise)
    assert cache.variants() == [second] == [f._find_or_compile(Array(1), 4)[0]]
    cache.insert_compiled(structure, first._call, first.outputs, may_raise)
    assert cache.variants() == [second], "it has an equal one"


@pytest.mark.parametrize(
    "other, error, message",
    [
        ({"call": lambda x: x}, TypeError, "not Output"),
        ({"call": len}, TypeError, "no len"),
        ({"call": 3}, TypeError, "not callable"),
        ({"outputs": ()}, RuntimeError, "does not belong"),
    ],
)
def test_compiled_elsewhere_for_another_result(other: Any, error: Any, message: str) -> None:
    f, _ = compiled(lambda x: x, Array(1), **other)
    assert message in str(raised(error, f, Array(2)))


def test_compiled_elsewhere_with_a_static_that_raises_or_clears() -> None:
    hostile = Hostile()
    f, variant = compiled(lambda x, n: x, Array(1), hostile)
    assert f(Array(2), Hostile()) is not None
    hostile.on_eq = f._parts()[0].clear
    with pytest.raises(LookupError):
        for _ in range(3):
            f(Array(2), Hostile())
    hostile.on_eq = lambda: 1 / 0
    raised((ZeroDivisionError, LookupError), f, Array(2), Hostile())
    assert variant.num_traces == 1


# ---- the variant that is predicted ----


class Counted:
    """A static; the class counts how often its instances are hashed."""

    hashed = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counted) and other.number == self.number

    def __hash__(self) -> int:
        Counted.hashed += 1
        return self.number


def hashes(f: Any, turns: Sequence[int], rounds: int) -> list[int]:
    """How often each call of the last round hashed its static."""
    x, counts = Array(), []
    for _ in range(rounds):
        counts = []
        for number in turns:
            before = Counted.hashed
            assert f(x, Counted(number)).number == number
            counts.append(Counted.hashed - before)
    return counts


@pytest.mark.parametrize("number", [2, 3, 10, 100])
def test_variants_called_in_turn_are_predicted(number: int) -> None:
    f = make_jit(lambda x, static: static)
    right = hashes(make_jit(f._function), [0], 3)[0]  # of a call whose prediction is right
    assert hashes(f, range(number), 1) != [right] * number, "the first round is looked up"
    assert hashes(f, range(number), 3) == [right] * number
    assert hashes(f, range(number)[::-1], 3) == [right] * number, "another order is learned"
    other = make_jit(f._function, f._hooks)
    assert other._parts()[0] is f._parts()[0]
    assert hashes(other, range(number)[::-1], 1) == [right] * number, "all of a cache predict alike"


@pytest.mark.parametrize("clear", [False, True])
def test_dropped_variants_die_and_are_not_predicted(clear: bool) -> None:
    f = make_jit(lambda x, static: static, Hooks(make_registry(), maxsize=3))
    for number in (0, 1, 2) * 3:
        f(Array(), number)
    refs = [weakref.ref(variant) for variant in variants(f)]
    if clear:
        f._parts()[0].clear()
    for number in (10,) if clear else (10, 11, 12, 13):
        f(Array(), number)
    assert [ref() for ref in refs] == [None] * 3, "without the collector"
    for number in (0, 1, 2, 0, 1, 2):
        assert f(Array(), number) == number
    assert f._hooks.count("compile") > 6
