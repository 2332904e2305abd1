"""Operations with a FilterJit."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import core_support as cs
import hooks_support as hs
from core_support import Array, Linear, Value, core, same
from operations import STATIC, TREES, X, Y, after, given, make_registry, operation
from outcome_support import fail, raised

NAMES = "a", "b", "rest", "k", "more"
SIGNATURE = core.Signature(NAMES, 0, 2, True, True, b"\1\0\0\0\0")
MANY = (1,) * 20


FAILS = "a static that makes the function fail"


class Jitted:
    """The callable of a variant. It returns the arguments, with `nothing` in the place of those that
    were not given, and is traced for each type of the first array's value."""

    def __init__(self, f: Any, variant: Any) -> None:
        self.variant = weakref.ref(variant)
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
            arguments = variant._arguments(arrays)[1]
            if arguments[1] is FAILS:
                raise ZeroDivisionError
            out, self.traces[key] = core.output_flatten(variant._finish(arguments, Array))
        return core.output_unflatten(self.traces[key], out or (X,))


class Hooks(hs.Hooks):
    """Hooks that do not run Python code for signatures, and note nothing."""

    def _note(self, hook: str, *args: Any) -> None:
        if hook in self.on:
            self.on[hook](*args)

    def prepare(self, f: Any) -> Any:
        arrays, structure = core.flatten(self.registry, f._function)
        cache = self.caches.get(structure)
        if cache is None:
            cache = core.Cache(self.registry, structure, SIGNATURE, self, self.maxsize, {})
            self.caches[structure] = cache
        return cache, arrays

    def compile(self, f: Any, variant: Any) -> Any:
        self._note("compile", f, variant)
        return Jitted(f, variant)

    def failed(
        self, f: Any, exception: Any, variant: Any, arrays: Any, given: Any, is_call: bool
    ) -> Any:
        answer = super().failed(f, exception, variant, arrays, None, is_call)
        return TypeError("they do not fit") if given is not None else answer


def function() -> None:
    """The wrapped function, which is never called."""


class Kept:
    """A FilterJit that was called with each of these arguments, and the variants in its cache."""

    more = 0  # how many variants are added
    make_registry: Callable[[], Any] = staticmethod(make_registry)

    def __init__(self, *calls: tuple[Any, ...], fun: Any = function, maxsize: int = 4096) -> None:
        self.hooks = Hooks(self.make_registry(), maxsize)
        self.jit = hs.make_jit(fun, self.hooks)
        for args in calls:
            self.jit(*args)
        self.before = self.variants()

    def variants(self) -> set[Any]:
        return set(self.jit._parts()[0].variants())

    def has(self, more: int = 0) -> bool:
        """Whether there are at most so many new variants, and the others are still there."""
        after = self.variants()
        return self.before <= after and len(after) <= len(self.before) + more

    def arguments(self, *args: Any, **kwargs: Any) -> list[Any]:
        """What a call returns."""
        none = self.hooks.registry
        a, b, *rest = *args, *(none, none)[len(args) :]
        more = {name: x for name, x in kwargs.items() if name != "k"}
        return [a, b, tuple(rest) or none, kwargs.get("k", none), more or none]

    def called(self, args: Any, kwargs: Any) -> None:
        self.before, self.expected = self.variants(), self.arguments(*args, **kwargs)

    def is_right(self, found: Any) -> bool:
        return same(found, self.expected) and self.has(self.more)


class Grows(Kept):
    more = 1


def kept(
    make: Callable[[], Kept],
    expected: Any = None,
    check: Callable[[Kept, Any], Any] | None = None,
    more: int = 0,
) -> Callable[[Any], Any]:
    """Registers the function below, which uses what `make` makes and adds so many variants."""

    def is_right(kept: Kept, found: Any) -> Any:
        right = same(found, expected) if check is None else check(kept, found)
        return right and kept.has(more)

    return operation(make, check=is_right)


def module() -> Any:
    return Linear(weight=X, bias=[Y], size=3)


def large() -> Any:
    return given([Linear(weight=None, bias=(i, "a"), size=i) for i in range(30)] + [X])


class Fails:
    """The `call` of a variant that was made for other arrays."""

    def __call__(self, a: Any = None, b: Any = None) -> Any:
        raise ZeroDivisionError


def fails_once(kept: Kept, args: Any) -> None:
    (variant,) = kept.variants()
    works = variant._call
    variant._switch(Fails())
    kept.hooks.again = True
    kept.hooks.on["run"] = lambda f, variant, *_: variant._switch(works)


def set_bias(kept: Kept, args: Any) -> None:
    args[0][3].bias = (3, "a")


def may_raise(kept: Kept, args: Any) -> None:
    kept.hooks.may_raise = True
    kept.jit(X)


def five() -> Kept:
    return Kept(*[(X, n) for n in range(5)], maxsize=5)


after("first_call", Grows, lambda: given(module(), X, 1, k=[Y, 1], z="a"))
after("misses", Grows, lambda: given(X, "other", [Value(1)], k=2), lambda: given(X, 1))
after("hit_of_a_python_free_walk", Kept, lambda: given(module(), X, 1, "a", k=Y, z=(1, 2)), equal=1)
after("hit_that_learns_a_record", Kept, large, same=2)
after("hit_with_a_record", Kept, large, same=5)
after("hit_after_a_record_was_wrong", Kept, large, same=5, change=set_bias)
after("call_again", Kept, lambda: given(X, Y, 1), same=1, change=fails_once)
after("programs_that_may_raise", Kept, lambda: given(X), change=may_raise)
after("traces_again", lambda: Kept((Array(1),), (Array(2.5),)), lambda: given(Array("text")))
after("cache_growth", lambda: Grows(*[(X, n) for n in range(5)]), lambda: given(X, 5))
for _name, _make in TREES.items():
    # More arrays than Jitted takes, or those of another type.
    if _name not in ("maybe", "many", "wide_module", "Wide 40", "Wide 40 slots"):
        _given = lambda make=_make: given(make(), k=Value(3))
        after(f"hit_that_holds_references_{_name}", Kept, _given, equal=1)


STATICS = [1, True, "a", Value(2), 2.5]


@kept(lambda: Kept(*[(X, n) for n in STATICS]), STATICS)
def calls_of_several_variants(kept: Kept) -> Any:
    """Each call is predicted wrongly, and looked up."""
    found = []
    for n in STATICS:
        found.append(kept.jit(X, n)[1])
    return found


def failing() -> tuple[Kept, list[Any]]:
    kept, refused = Kept((X, 1), (X, cs.Hostile())), Kept((X, Y, 1))
    refused.variants().pop()._switch(Fails())
    variant = kept.jit._find_or_compile(X, 1)[0]
    return kept, [
        (TypeError, kept.jit),
        (TypeError, functools.partial(kept.jit, a=1), X, 1, 2),
        (ZeroDivisionError, refused.jit, X, Y, 1),
        (ZeroDivisionError, kept.jit, X, FAILS),
        (ZeroDivisionError, kept.jit, X, cs.Hostile(on_hash=fail)),
        (ZeroDivisionError, kept.jit, X, cs.Hostile(on_eq=fail)),
        (RuntimeError, variant._result, core.output_unflatten(77, ())),
        (ValueError, variant._arguments, (X, X, X)),
        (ZeroDivisionError, variant._finish, [STATIC], fail),
        (TypeError, core.FilterJit._rebuild, 1, 2),
        (ValueError, core.Signature, ("a",), 0, 5, False, False, b"\0"),
        (TypeError, core.Signature, ("a", 1), 0, 2, False, False, b"\0\0"),
    ]


def have_failed(kept: Kept, calls: Any, found: Any) -> bool:
    texts = {str(found[0]), str(found[1])}  # the second text is C's, where `failed` has no memory
    texts.discard("the arguments do not fit the function's signature")
    return texts == {"they do not fit"} and kept.has()


@operation(failing, check=have_failed)
def calls_that_fail(kept: Kept, calls: Any) -> Any:
    return [raised(*call) for call in calls]


def has_evicted(kept: Kept, found: Any) -> bool:
    return len(kept.variants()) == 5 and len(kept.variants() - kept.before) == 1


@operation(five, check=has_evicted)
def eviction(kept: Kept) -> Any:
    """A call that fails before its trace ends evicts no variant."""
    try:
        return kept.jit(X, "new")
    except MemoryError:
        new = kept.variants() - kept.before
        assert len(kept.variants()) == 5 and all(variant.num_traces for variant in new)
        raise


KEYWORDS = {"k": 2, **{f"z{i}": i for i in range(12)}}  # more than fit into a new dict


class HandedOver(Kept):
    def __init__(self) -> None:
        super().__init__((X,))
        self.hooks.on["compile"] = fail
        self.hooks.answer = self.other

    def other(self, *args: Any, **kwargs: Any) -> Any:
        return "why", args, kwargs


@kept(HandedOver, ("why", (X, 1, Y), KEYWORDS))
def handed_over(kept: Kept) -> Any:
    try:
        return kept.jit(X, 1, Y, **KEYWORDS)
    except ZeroDivisionError:  # the hook could not be asked
        raise MemoryError from None


def with_signature(count: int, kinds: bytes, **policy: Any) -> Any:
    """A FilterJit of a function of so many parameters, of these kinds. Filters choose "rate"."""
    options = Hooks(make_registry(**policy))
    options.chosen = "path", (..., "rate")
    names = tuple(f"a{i}" for i in range(count))
    signature = core.Signature(names, 0, count, False, False, kinds)
    structure = core.flatten(options.registry, len)[1]
    cache = core.Cache(options.registry, structure, signature, options, 4, {})
    return core.FilterJit._rebuild(cache, ())


def has_one(f: Any, found: Any) -> bool:
    return len(f._parts()[0].variants()) == 1


STATIC_ARGUMENT = (1, ("two", 3.0), frozenset({4}))


@operation(
    lambda: with_signature(2, b"\1\2"),
    check=lambda f, found: (
        has_one(f, found) and all(x[0] is X and x[1] == STATIC_ARGUMENT for x in found)
    ),
)
def static_arguments(f: Any) -> Any:
    return f(X, STATIC_ARGUMENT), f(X, (1, ("two", 3.0), frozenset({4}))), f(X, a1=STATIC_ARGUMENT)


@operation(
    lambda: with_signature(2, b"\11\10", traced_in=(int,)),
    check=lambda f, found: has_one(f, found) and found == [(X, i, i) for i in range(3)],
)
def chosen_numbers(f: Any) -> Any:
    found = []
    for i in range(3):
        given = [X, {"rate": i, "n": 1}], {"rate": i}
        f(*given)
        found.append(f._find_or_compile(*given)[2])
    return found


@operation(
    lambda: with_signature(20, bytes(20)), check=lambda f, found: found[0] is X and found[19] is Y
)
def many_parameters(f: Any) -> Any:
    return f(X, a19=Y)


@kept(lambda: Kept((Y,), fun=Linear(weight=X, size=1)), [Y, X, False, (X, Y)])
def functions_with_arrays(kept: Kept) -> Any:
    cache, arrays = kept.jit._parts()
    g = core.FilterJit._rebuild(cache, arrays)
    return [g(Y)[0], g._function.weight, g == kept.jit, g._find_or_compile(Y)[2]]


@kept(Kept, [True, True, "f", ()])
def wrappers(kept: Kept) -> Any:
    f = core.FilterJit(len, kept.hooks, None, {"__name__": "f"})
    g = core.FilterJit._rebuild(*f._parts())
    return [f == g, hash(f) == hash(g), f.__name__, g._parts()[1]]


MANY_ARRAYS = [X] * 1200


@kept(lambda: Kept((X, 1)), [True, (X,), None, (X, Y), 6, 1, 1200], more=1)
def lookups(kept: Kept) -> Any:
    variant, _, arrays = kept.jit._find_or_compile(X, 1)
    found, _, _ = kept.jit._find(X, 1)
    none, structure, more = kept.jit._find(X, "unknown", k=Y)
    many = kept.jit._find_or_compile(MANY_ARRAYS)[2]
    count = structure._node(0)[4]
    return [variant is found, arrays, none, more, count, found.num_traces, len(many)]


@kept(lambda: Kept(([X],)), [True, [X], 5, (X,), [Y, 1], 1, "<Variant", NAMES])
def variants(kept: Kept) -> Any:
    variant = kept.jit._find_or_compile([X])[0]
    wrapped, arguments = variant._arguments((X,))
    output = variant._finish([X, 1], int)
    arrays, trace = core.output_flatten(output)
    made = variant._result(core.output_unflatten(trace, [Y]))
    marked = variant._finish(1, Array).arrays
    text = repr(variant)[:8]
    names = core.Signature(NAMES, 0, 2, True, True, b"\1\0\0\1\0").names
    count = len(arguments)
    return [wrapped is function, arguments[0], count, arrays, made, len(marked), text, names]


@kept(lambda: Kept((X,)), ([], 2, 1))
def caches(kept: Kept) -> Any:
    cache = kept.jit._parts()[0]
    made = core.Cache(kept.hooks.registry, cache.function, SIGNATURE, 1, 2, {})
    return made.variants(), made.maxsize, len(cache.variants())


def thing() -> Any:
    class Thing(Linear):
        method = Kept().jit

    one = Thing(weight=X, size=1)
    one.method(Y)
    one.method(*MANY)
    return one


@operation(thing, [Y, Y, (1,) * 19])
def bound_methods(one: Any) -> Any:
    """It is called with and without room for the instance before the arguments."""
    return [one.method(Y)[1], next(map(one.method, (Y,)))[1], one.method(*MANY)[2]]


@operation(thing, [True, True, True])
def attributes_of_bound_methods(one: Any) -> Any:
    m = one.method
    missing = raised(AttributeError, getattr, m, "nothing")
    return [m.__doc__ is m.__func__.__doc__, m.__self__ is one, type(missing) is AttributeError]


def with_getattribute() -> Any:
    class Asked(Linear):
        def __getattribute__(self, name: str) -> Any:
            return super().__getattribute__(name)

    class Thing(Asked):
        method = Kept().jit

    class Other(Thing):
        pass

    original = vars(Asked)["__getattribute__"]
    Thing.__getattribute__ = core.Getattribute(Thing, original)  # type: ignore[method-assign]
    return Thing(weight=X, size=1), Other(weight=X, size=1)


@operation(with_getattribute, [True, True, True, 1])
def methods_found_by_getattribute(one: Any, other: Any) -> Any:
    # The first look-up of each class calls the original, as another class came in between.
    methods = other.method, one.method, one.method
    found = [method.__self__ for method in methods]
    return [found[0] is other, found[1] is one, found[2] is one, one.size]


def proxy() -> Any:
    kept = Kept()
    return kept, core.CallProxy(kept.jit, None)


def are_arguments(kept: Kept, one: Any, found: Any) -> bool:
    return same(found, [kept.arguments([X, 1], X, Y), kept.arguments([X, 1], Y)])


@operation(proxy, check=are_arguments)
def proxies(kept: Kept, one: Any) -> Any:
    return [one([X, 1], X, Y), core.CallProxy(kept.jit, None)([X, 1], Y)]
