"""Operations  with a FilterJit."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import core_support as cs
from core_support import Array, Linear, Value, core, same
from operations import (
    MANY,
    OPERATIONS,
    STATIC,
    TREES,
    Operation,
    X,
    Y,
    equals,
    expect,
    make_registry,
    operation,
)
from outcome_support import fail, raised


@operation
def signatures() -> Operation:
    names = "a", "b", "rest", "k", "more"

    def call() -> Any:
        raised(ValueError, core.Signature, ("a",), 0, 5, False, False, b"\0")
        raised(TypeError, core.Signature, ("a", 1), 0, 2, False, False, b"\0\0")
        return core.Signature(names, 0, 2, True, True, b"\1\0\0\1\0").names

    return call, equals(names)


class Jitted:
    """The callable of a variant.  It returns the arguments, with `nothing` in the place of those
    that were not given, and is traced for each type of the first array's value."""

    def __init__(self, options: Hooks, f: Any, variant: Any) -> None:
        self.hooks, self.variant = options, weakref.ref(variant)
        self.own, self.count = len(f._parts()[1]), variant.structure.num_leaves
        self.traces: dict[Any, int] = {}

    def __call__(
        self, a: Any = None, b: Any = None, c: Any = None, d: Any = None, e: Any = None
    ) -> Any:
        arrays = (a, b, c, d, e)[: self.own + self.count]
        out = arrays[self.own :]
        key = type(a.value) if arrays else None
        if key not in self.traces:
            variant = self.variant()
            arguments = variant.arguments(arrays)[1]
            if arguments[1] is self.hooks.fails:
                raise ZeroDivisionError
            out, self.traces[key] = core.output_flatten(variant.finish(arguments, Array))
        return core.output_unflatten(self.traces[key], out or (X,))


class Hooks(cs.Hooks):
    """Hooks that do not run Python code for signatures."""

    fails: Any = "a static that makes the function fail"
    calls: Any = ()
    works: Any = None  # what `call_again` puts in the place of a call that has failed

    def _note(self, hook: str, *args: Any) -> None:
        if hook in self.on:
            self.on[hook](*args)

    def prepare(self, f: Any) -> Any:
        self._note("prepare", f)
        arrays, structure = core.flatten(self.registry, f.__wrapped__)
        cache = self.caches.get(structure)
        if cache is None:
            cache = core.Cache(self.registry, structure, SIGNATURE, self, self.maxsize, {})
            self.caches[structure] = cache
        return cache, arrays

    def compile(self, f: Any, variant: Any) -> Any:
        self._note("compile", f, variant)
        return Jitted(self, f, variant)

    def call_again(self, variant: Any, exception: Any, arrays: Any) -> bool:
        if self.works is None:
            return False
        variant.call = self.works
        return True

    def raise_binding_error(self, f: Any, args: Any, kwargs: Any) -> None:
        raise TypeError("they do not fit")


SIGNATURE = core.Signature(("a", "b", "rest", "k", "more"), 0, 2, True, True, b"\1\0\0\0\0")


def function() -> None:
    """The wrapped function, which is never called."""


class Kept:
    """A FilterJit that has been called before, and the variants in its cache."""

    def __init__(self, **options: Any) -> None:
        self.hooks = Hooks(make_registry(), **options)
        self.f = cs.make_jit(function, self.hooks)
        self.nothing = self.hooks.registry

    def variants(self) -> set[Any]:
        return set(self.f._parts()[0].variants())

    def operation(self, *args: Any, more: int = 0, **kwargs: Any) -> Operation:
        """A call with these arguments, which may add `more` variants and removes none."""
        before = self.variants()
        some = (*args[:2], self.nothing, self.nothing)[:2]
        expected = [*some, args[2:] or self.nothing, kwargs.pop("k", self.nothing)]
        expected.append(dict(kwargs) or self.nothing)
        if expected[3] is not self.nothing:
            kwargs["k"] = expected[3]

        def verify(found: Any) -> None:
            equals(expected)(found)
            after = self.variants()
            expect(before <= after and len(after) <= len(before) + more)

        return functools.partial(self.f, *args, **kwargs), verify


@operation
def first_call() -> Operation:
    m = Linear(weight=X, bias=[Y], size=3)
    return Kept().operation(m, X, 1, k=[Y, 1], z="a", more=1)


@operation
def misses() -> Operation:
    kept = Kept()
    kept.f(X, 1)
    return kept.operation(X, "other", [Value(1)], k=2, more=1)


@operation
def hit_of_a_python_free_walk() -> Operation:
    kept = Kept()
    m = Linear(weight=X, bias=[Y], size=3)
    kept.f(m, X, 1, "a", k=Y, z=(1, 2))
    return kept.operation(m, X, 1, "a", k=Y, z=(1, 2))


for _name, _make in TREES.items():
    # More arrays than Jitted takes.
    if _name not in ("maybe", "many", "wide_module", "Wide 40", "Wide 40 slots"):

        def hit(name: str = _name) -> Operation:
            kept = Kept()
            kept.f(TREES[name](), k=STATIC)
            return kept.operation(TREES[name](), k=Value(3))

        OPERATIONS[f"hit_that_holds_references_{_name}"] = hit


def large() -> Any:
    return [Linear(weight=None, bias=(i, "a"), size=i) for i in range(30)] + [X]


@operation
def hit_that_learns_a_record() -> Operation:
    kept = Kept()
    model = large()
    kept.f(model)
    kept.f(model)
    return kept.operation(model)


@operation
def hit_with_a_record() -> Operation:
    kept = Kept()
    model = large()
    for _ in range(5):
        kept.f(model)
    return kept.operation(model)


@operation
def hit_after_a_record_was_wrong() -> Operation:
    kept = Kept()
    model = large()
    for _ in range(5):
        kept.f(model)
    model[3].bias = (3, "a")
    return kept.operation(model)


@operation
def look_up_of_many_arrays() -> Operation:
    kept = Kept()
    arrays = [X] * 1200
    structure = kept.f._find_or_compile(arrays)[0].structure

    def check(found: Any) -> None:
        expect(found[0].structure == structure and len(found[1]) == 1200)

    return functools.partial(kept.f._find_or_compile, arrays), check


@operation
def calls_of_several_variants() -> Operation:
    """Each call is predicted wrongly, and looked up."""
    kept = Kept()
    statics = [1, True, "a", Value(2), 2.5]
    for n in statics:
        kept.f(X, n)
    before = kept.variants()

    def call() -> Any:
        return [kept.f(X, n)[1] for n in statics]

    def check(found: Any) -> None:
        expect(same(found, statics) and kept.variants() == before)

    return call, check


@operation
def traces_again() -> Operation:
    kept = Kept()
    for value in (1, 2.5):
        kept.f(Array(value))
    return kept.operation(Array("text"))


class Fails:
    """The `call` of a variant that was made for other arrays."""

    def __call__(self, a: Any = None, b: Any = None) -> Any:
        raise ZeroDivisionError


@operation
def call_again() -> Operation:
    kept = Kept()
    kept.f(X, Y, 1)
    (variant,) = kept.variants()
    kept.hooks.works, variant.call = variant.call, Fails()
    return kept.operation(X, Y, 1)


@operation
def call_again_that_refuses() -> Operation:
    kept = Kept()
    kept.f(X, Y, 1)
    (variant,) = kept.variants()
    variant.call = Fails()

    def call() -> Any:
        return type(raised(ZeroDivisionError, kept.f, X, Y, 1)) is ZeroDivisionError

    return call, expect


@operation
def cache_growth() -> Operation:
    kept = Kept()
    for n in range(5):
        kept.f(X, n)
    return kept.operation(X, 5, more=1)


@operation
def eviction() -> Operation:
    """A call that fails before its trace ends evicts no variant."""
    kept = Kept(maxsize=5)
    for n in range(5):
        kept.f(X, n)
    before = kept.variants()
    call, _ = kept.operation(X, "new")

    def attempt() -> Any:
        try:
            return call()
        except MemoryError:
            new = kept.variants() - before
            expect(len(kept.variants()) == 5 and all(variant.num_traces for variant in new))
            raise

    def check(found: Any) -> None:
        equals([X, "new", *[kept.nothing] * 3])(found)
        expect(len(kept.variants()) == 5 and len(kept.variants() - before) == 1)

    return attempt, check


@operation
def raise_binding_error() -> Operation:
    kept = Kept()
    kept.f(X)

    def call() -> Any:
        return [str(raised(TypeError, kept.f)), str(raised(TypeError, kept.f, X, 1, 2, a=1))]

    return call, equals(["they do not fit"] * 2)


KEYWORDS = {"k": 2, **{f"z{i}": i for i in range(12)}}  # more than fit into a new dict


@operation
def handed_over() -> Operation:
    kept = Kept()
    kept.f(X)
    before = kept.variants()
    kept.hooks.on["compile"] = fail
    kept.hooks.reason = "why"

    def hand_over(f: Any, reason: str, args: Any, kwargs: Any) -> Any:
        return reason, args, kwargs

    kept.hooks.hand_over = hand_over  # type: ignore[method-assign]

    def check(found: Any) -> None:
        equals(("why", (X, 1, Y), KEYWORDS))(found)
        expect(kept.variants() == before)

    def call() -> Any:
        try:
            return kept.f(X, 1, Y, **KEYWORDS)
        except ZeroDivisionError:  # the hook could not be asked
            raise MemoryError from None

    return call, check


@operation
def static_arguments() -> Operation:
    options = Hooks(make_registry())
    structure = core.flatten(options.registry, len)[1]
    signature = core.Signature(("a", "b"), 0, 2, False, False, b"\1\2")
    cache = core.Cache(options.registry, structure, signature, options, 4, {})
    f = core.FilterJit._rebuild(cache, ())
    static = (1, ("two", 3.0), frozenset({4}))

    def call() -> Any:
        return f(X, static), f(X, (1, ("two", 3.0), frozenset({4}))), f(X, b=static)

    def check(found: Any) -> None:
        expect([x[0] for x in found] == [X] * 3 and all(x[1] == static for x in found))
        expect(len(cache.variants()) == 1)

    return call, check


@operation
def chosen_numbers() -> Operation:
    options = Hooks(make_registry(traced_in=(int,)))
    options.chosen = "path", (..., "rate")
    structure = core.flatten(options.registry, len)[1]
    signature = core.Signature(("a", "b"), 0, 2, False, False, b"\11\30")
    cache = core.Cache(options.registry, structure, signature, options, 4, {})
    f = core.FilterJit._rebuild(cache, ())

    def call() -> Any:
        rates = [([X, {"rate": i, "n": 1}], {"rate": i}) for i in range(3)]
        return [(f(*given), f._find_or_compile(*given)[1])[1] for given in rates]

    def check(found: Any) -> None:
        expect(found == [(X, i, i) for i in range(3)] and len(cache.variants()) == 1)

    return call, check


@operation
def many_parameters() -> Operation:
    names = tuple(f"a{i}" for i in range(20))
    options = Hooks(make_registry())
    structure = core.flatten(options.registry, len)[1]
    signature = core.Signature(names, 0, 20, False, False, bytes(20))
    cache = core.Cache(options.registry, structure, signature, options, 4, {})
    f = core.FilterJit._rebuild(cache, ())
    f(X, a19=Y)

    def check(found: Any) -> None:
        expect(found[0] is X and found[19] is Y)

    return lambda: f(X, a19=Y), check


@operation
def function_that_fails() -> Operation:
    kept = Kept()
    kept.f(X, 1)
    before = kept.variants()

    def check(found: Any) -> None:
        expect(kept.variants() == before)

    return lambda: raised(ZeroDivisionError, kept.f, X, kept.hooks.fails), check


@operation
def static_that_fails() -> Operation:
    kept = Kept()
    kept.f(X, cs.Hostile())
    on_hash, on_eq = cs.Hostile(on_hash=fail), cs.Hostile(on_eq=fail)

    def call() -> Any:
        return [raised(ZeroDivisionError, kept.f, X, s) for s in (on_hash, on_eq)]

    return call, lambda found: expect(len(found) == 2)


@operation
def programs_that_may_raise() -> Operation:
    kept = Kept()
    kept.hooks.may_raise = True
    kept.hooks.on["before_raising_call"] = lambda variant: (
        variant.defer(int),
        variant.defer(list),
    )
    kept.f(X)
    return kept.operation(X)


@operation
def functions_with_arrays() -> Operation:
    options = Hooks(make_registry())
    f = cs.make_jit(Linear(weight=X, size=1), options)
    f(Y)
    cache, arrays = f._parts()

    def call() -> Any:
        g = core.FilterJit._rebuild(cache, arrays)
        return [g(Y)[0], g.__wrapped__.weight, g == f, g._find_or_compile(Y)[1]]

    return call, equals([Y, X, False, (X, Y)])


@operation
def wrappers() -> Operation:
    kept = Kept()

    def call() -> Any:
        f = core.FilterJit(len, kept.hooks, None, {"__name__": "f"})
        g = core.FilterJit._rebuild(*f._parts())
        return [f == g, hash(f) == hash(g), f.__name__, g._parts()[1]]

    return call, equals([True, True, "f", ()])


@operation
def lookups() -> Operation:
    kept = Kept()
    kept.f(X, 1)

    def call() -> Any:
        variant, arrays = kept.f._find_or_compile(X, 1)
        found, _, _ = kept.f._find(X, 1)
        none, structure, more = kept.f._find(X, "unknown", k=Y)
        return [variant is found, arrays, none, more, len(structure._nodes()), found.num_traces]

    return call, equals([True, (X,), None, (X, Y), 6, 1])


@operation
def variants() -> Operation:
    kept = Kept()
    kept.f([X])
    variant = kept.f._find_or_compile([X])[0]

    def call() -> Any:
        wrapped, arguments = variant.arguments((X,))
        output = variant.finish([X, 1], int)
        arrays, trace = core.output_flatten(output)
        made = variant.result(core.output_unflatten(trace, [Y]))
        marked = variant.finish(1, Array).arrays
        text = repr(variant)[:8]
        return [wrapped is function, arguments[0], len(arguments), arrays, made, len(marked), text]

    return call, equals([True, [X], 5, (X,), [Y, 1], 1, "<Variant"])


@operation
def wrappers_in_cycles() -> Operation:
    kept = Kept()

    def call() -> Any:
        f = core.FilterJit(function, kept.hooks, None, {})
        f(X)
        f.me = f
        return f._find_or_compile(X)[1]

    return call, equals((X,))


@operation
def variants_that_are_misused() -> Operation:
    kept = Kept()
    kept.f(X)
    variant = kept.f._find_or_compile(X)[0]

    def call() -> Any:
        raised(RuntimeError, variant.result, core.output_unflatten(77, ()))
        raised(ValueError, variant.arguments, (X, X, X))
        raised(ZeroDivisionError, variant.finish, [STATIC], fail)
        return raised(TypeError, core.FilterJit._rebuild, 1, 2)

    return call, expect


@operation
def caches() -> Operation:
    kept = Kept()
    kept.f(X)
    cache = kept.f._parts()[0]

    def call() -> Any:
        made = core.Cache(kept.hooks.registry, cache.function, SIGNATURE, 1, 2, {})
        return made.variants(), made.maxsize, len(cache.variants())

    return call, equals(([], 2, 1))


def thing() -> tuple[Any, Kept]:
    kept = Kept()

    class Thing(Linear):
        method = kept.f

    one = Thing(weight=X, size=1)
    one.method(Y)
    one.method(*MANY)
    return one, kept


@operation
def bound_methods() -> Operation:
    one, _ = thing()
    # A bound method is called with and without room for the instance before the arguments.
    return (
        lambda: [one.method(Y)[1], next(map(one.method, (Y,)))[1], one.method(*MANY)[2]],
        equals([Y, Y, (1,) * 19]),
    )


@operation
def methods_found_by_getattribute() -> Operation:
    class Asked(Linear):
        def __getattribute__(self, name: str) -> Any:
            return super().__getattribute__(name)

    class Thing(Asked):
        method = Kept().f

    class Other(Thing):
        pass

    original = vars(Asked)["__getattribute__"]
    Thing.__getattribute__ = core.Getattribute(Thing, original)  # type: ignore[method-assign]
    one, other = Thing(weight=X, size=1), Other(weight=X, size=1)

    def call() -> Any:
        # The first look-up of each class calls the original, as another class came in between.
        found = [(x, x.method.__self__) for x in (other, one, one)]
        return [x is owner for x, owner in found], one.size

    return call, equals(([True] * 3, 1))


@operation
def attributes_of_bound_methods() -> Operation:
    one, _ = thing()

    def call() -> Any:
        m = one.method
        return [
            m.__doc__ is m.__func__.__doc__,
            m.__self__ is one,
            type(raised(AttributeError, getattr, m, "nothing")) is AttributeError,
        ]

    return call, equals([True, True, True])


@operation
def proxies_with_arguments() -> Operation:
    kept = Kept()
    few = core.CallProxy(kept.f, ([X, 1], X), None)
    many = core.CallProxy(kept.f, ([X, 1], *MANY), None)

    def call() -> Any:
        again = core.CallProxy(kept.f, ([X, 1],), None)
        return few(Y), few(Y, z=X)[4], many(k=1)[2], again(Y)

    none = kept.nothing
    expected = [[X, 1], X, (Y,), none, none]
    return call, equals((expected, {"z": X}, MANY[1:], [[X, 1], Y, none, none, none]))
