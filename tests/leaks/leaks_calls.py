"""Scenarios of leaks.py with FilterJits."""

from typing import Any

import core_support as cs
from core_support import Array, Hostile, Linear, core, testing
from leaks_support import Step, scenario
from outcome_support import fail, raised
from trees_support import one_of_each


@scenario
def hits(watched: list[Any]) -> Step:
    f = cs.make_jit(lambda m, x=1, *rest, k=2, **more: (m, rest, [k], more))
    m, x = Linear(weight=Array(), bias=[Array()] * 60, size=3), Array()
    f(m, x, x, k=x, z=x)
    watched += [f, m, x, m.weight, f._parts()[0], f._lookup(m, x, x, k=x, z=x)[0], f._options]

    def step() -> None:
        f(m, x, x, k=x, z=x)

    return step


@scenario
def alternating(watched: list[Any]) -> Step:
    f = cs.make_jit(lambda x, n: (x, n))
    x = Array()
    statics = [1, True, "a", cs.Value(2), len]
    for n in statics:
        f(x, n)
    watched += [f, x, *statics[3:], f._parts()[0], *f._parts()[0].variants()]

    def step() -> None:
        for n in statics:
            f(x, n)

    return step


@scenario
def misses_and_eviction(watched: list[Any]) -> Step:
    options = cs.Options(cs.make_registry(), maxsize=4)
    f = cs.make_jit(lambda x, n: (x, n), options)
    x, count = Array(), [0]
    watched += [f, x, options, options.registry, f._parts()[0], f._parts()[0].function]

    def step() -> None:
        count[0] += 1
        f(x, (count[0] % 10, f"static {count[0] % 10}"))
        options.calls.clear()

    step.loops = 600  # type: ignore[attr-defined]
    return step


@scenario
def wrappers_that_come_and_go(watched: list[Any]) -> Step:
    options = cs.Options(cs.make_registry())
    x = Array()
    watched += [x, options, options.registry]

    def step() -> None:
        f = cs.make_jit(lambda x: [x, f.__name__], options, {"__name__": "f"})
        f(x), hash(f), repr(f), f._lookup(x)
        g = core.FilterJit._rebuild(*f._parts())
        assert g == f and g(x)[0] is x and g.__wrapped__
        f.me = f
        options.caches.clear()
        options.calls.clear()

    step.loops = 300  # type: ignore[attr-defined]
    return step


@scenario
def failing_calls(watched: list[Any]) -> Step:
    f = cs.make_jit(lambda x, n=0, **kw: 1 // n)
    options = f._options
    options.may_raise = True
    x, s = Array(), cs.Unhashable()
    f(x, 1)
    variant = f._lookup(x, 1)[0]
    watched += [f, x, s, fail, variant, f._parts()[0], options]

    def step() -> None:
        raised(ZeroDivisionError, f, x, 0)
        raised(TypeError, f, [x], s)
        raised(TypeError, f)
        raised(TypeError, f, x, 1, 2)
        raised(TypeError, f, x, x=1, y=2)
        for hook in ("wait", "before_raising_call"):
            options.on[hook] = fail
            raised(ZeroDivisionError, f, x, 1)
            del options.on[hook]
        options.on["compile"] = fail
        raised(ZeroDivisionError, f, x, 3)
        options.on.clear()
        raised(RuntimeError, variant.result, core.output_unflatten(77, ()))
        raised(ValueError, variant.arguments, (x, x, x))
        raised(ZeroDivisionError, variant.finish, [s], fail)
        raised(TypeError, core.FilterJit._rebuild, 1, 2)
        options.calls.clear()

    step.loops = 600  # type: ignore[attr-defined]
    return step


@scenario
def failing_statics(watched: list[Any]) -> Step:
    f = cs.make_jit(lambda x, s: x)
    x = Array()
    f(x, Hostile())
    on_hash, on_eq = Hostile(on_hash=fail), Hostile(on_eq=fail)
    watched += [f, x, on_hash, on_eq, f._parts()[0], f._lookup(x, Hostile())[0]]

    def step() -> None:
        raised(ZeroDivisionError, f, x, on_hash)
        raised(ZeroDivisionError, f, x, s=on_eq)
        f._options.calls.clear()

    return step


@scenario
def deferred(watched: list[Any]) -> Step:
    f = cs.make_jit(lambda x: x)
    x, done = Array(), lambda: None
    f._options.may_raise = True
    f._options.on["before_raising_call"] = lambda variant: (
        variant.defer(done),
        variant.defer(done),
    )
    f(x)
    watched += [f, x, done, f._lookup(x)[0]]

    def step() -> None:
        f(x)
        f._options.calls.clear()

    return step


@scenario
def bound_methods(watched: list[Any]) -> Step:
    class Thing(Linear):
        method = cs.make_jit(lambda self, x, *rest: (self, x, rest))

    thing, x = Thing(weight=Array(), size=1), Array()
    thing.method(x)
    watched += [Thing.method, thing, x, Thing]

    def step() -> None:
        thing.method(x)
        thing.method(*[x] * 20)
        list(map(thing.method, [x, x]))
        assert thing.method == thing.method and thing.method.__doc__ is Thing.method.__doc__
        twin = Thing(weight=thing.weight, size=1).method
        assert twin == thing.method and hash(twin) == hash(thing.method)
        assert twin != Thing(weight=x, size=1).method
        assert twin != Thing(weight={1}, size=1).method and hash(Thing(weight={1}).method)
        hash(thing.method), thing.method.__self__, core.BoundMethod(Thing.method, thing)
        raised(AttributeError, getattr, thing.method, "nothing")
        raised(TypeError, thing.method)
        Thing.method._options.calls.clear()

    step.loops = 600  # type: ignore[attr-defined]
    return step


@scenario
def partials(watched: list[Any]) -> Step:
    f = cs.make_jit(lambda a, b, *rest, k=0, **more: (a, b, rest, k, more))
    one, x = one_of_each(), Array()
    kept = f.partial(one, k=[x, 1])
    watched += [f, one["m"], x, kept]

    def step() -> None:
        made = f.partial(one, k=[x, 1], extra=2)
        for p in (made, kept):
            p(x), p(x, 2, 3), p(x, k=5), p(b=x, other=1)
            p.args, p.keywords, p.__reduce__()
        raised(TypeError, kept, 1, 2, k=1, b=2)
        raised(TypeError, kept)
        raised(TypeError, f.partial([set()]), 1)
        f._options.calls.clear()

    step.loops = 400  # type: ignore[attr-defined]
    return step


@scenario
def binding(watched: list[Any]) -> Step:
    signature = cs.core_signature(lambda a, /, b=1, *args, c, d=2, **kw: None)
    value, name = object(), "".join(["un", "interned"])
    watched += [signature, value, name, None]

    def step() -> None:
        assert testing.bind(signature, value, value, value, c=value, **{name: value}) is not None
        assert testing.bind(signature, value, value, value, b=value, c=value) is None
        assert testing.bind(signature, value, **{name: value}) is None
        raised(ValueError, core.Signature, (name,), 0, 5, False, False, b"\0")
        raised(TypeError, core.Signature, (name, 1), 0, 2, False, False, b"\0\0")

    return step
