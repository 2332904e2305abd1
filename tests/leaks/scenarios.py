"""Loops that must not grow: ``python scenarios.py NAME``; without a name, all of them.

Each scenario is a function that makes a `step`; `step` is run some thousand times, and what is
alive is counted before and after: references where Python counts them (``--with-pydebug``), else
objects, bytes, and the reference counts of objects that every step touches.
"""

from __future__ import annotations

import collections
import gc
import itertools
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))

import core_support as cs
from core_support import Array, Box, Hostile, Linear, Point, Record, core, testing

Step = Callable[[], Any]
SCENARIOS: dict[str, Callable[[list[Any]], Step]] = {}


def scenario(make: Callable[[list[Any]], Step]) -> Callable[[list[Any]], Step]:
    """Registers a scenario; `make` is given a list to which it adds objects to be watched."""
    SCENARIOS[make.__name__] = make
    return make


def fails(expected: type[BaseException], call: Callable[..., Any], *args: Any, **kw: Any) -> None:
    try:
        call(*args, **kw)
    except expected:
        return
    raise AssertionError(f"{call} did not raise {expected}")


def raising(error: type[BaseException] = ZeroDivisionError) -> Callable[..., Any]:
    def fail(*args: Any) -> Any:
        raise error("on purpose")

    return fail


def tree() -> Any:
    static: Any = ("a", 1.5, frozenset([1]))
    return {
        "m": Linear(weight=Array(), bias=[Array()], size=[1, {"k": 2}], __name__="f"),
        "p": (Point(Array(), 2), cs.LoudPoint(1, Array()), None),
        "r": Record(Array(), 1, static),
        "b": Box([Array(), 3], aux=static),
        "o": collections.OrderedDict(b=1, a=cs.Maybe(True)),
        "d": collections.defaultdict(int, k=cs.OtherArray()),
        "s": [cs.Value(3), cs.Keyed((1,)), 2.5, "text", len, cs.Maybe(False)],
    }


# ---- trees ----


@scenario
def flatten_and_build(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    one = tree()
    arrays, structure = core.flatten(registry, one)
    watched += [registry, structure, arrays[0], one["m"], one["s"][0], cs.missing, Linear, Point]

    def step() -> None:
        found, made = core.flatten(registry, one)
        assert hash(made) == hash(structure) and made == structure
        structure.unflatten(found)
        repr(made), made._array_paths(), made._span(0)

    return step


@scenario
def match(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    one, other = tree(), tree()
    other["s"][-1] = 3
    # An "ask" leaf that is a static compares by identity.
    arrays, structure = core.flatten(registry, one)
    watched += [registry, structure, *arrays, one["m"], other["m"], other["m"].weight]

    def step() -> None:
        assert testing.match(structure, one) is not None
        assert testing.match(structure, other) is None
        assert testing.match(structure, one["m"]) is None
        assert testing.match(structure, 3) is None

    return step


@scenario
def plain_match(watched: list[Any]) -> Step:
    registry = cs.make_registry()

    def make(last: Any) -> Any:
        return [Linear(weight=Array(), bias={"k": Array()}, size=3), (1, 2.5), [Array()] * 60, last]

    one, other = make(1), make(2)
    arrays, structure = core.flatten(registry, one)
    watched += [registry, structure, *arrays[:3], one[0], other[0].weight, other[2][0]]

    def step() -> None:
        assert testing.match(structure, one) is not None
        assert testing.match(structure, other) is None

    return step


@scenario
def partials(watched: list[Any]) -> Step:
    f = cs.make_jit(lambda a, b, *rest, k=0, **more: (a, b, rest, k, more))
    one, x = tree(), Array()
    kept = f.partial(one, k=[x, 1])
    watched += [f, one["m"], x, kept]

    def step() -> None:
        made = f.partial(one, k=[x, 1], extra=2)
        for p in (made, kept):
            p(x), p(x, 2, 3), p(x, k=5), p(b=x, other=1)
        fails(TypeError, kept, 1, 2, k=1, b=2)
        fails(TypeError, kept)
        fails(TypeError, f.partial([set()]), 1)
        f._options.calls.clear()

    step.loops = 400  # type: ignore[attr-defined]
    return step


@scenario
def failing_walks(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    x = Array()
    fail = raising()
    on_hash, on_eq = Hostile(on_hash=fail), Hostile(on_eq=fail)
    box, unsortable, unhashable = Box([x], hook=fail), {1: x, "a": x}, cs.Unhashable()
    asked = cs.Maybe(True, fail)
    _, hostile = core.flatten(registry, [x, [x] * 60, Hostile()])
    _, generic = core.flatten(registry, [x, Box([x])])
    _, question = core.flatten(registry, [x, x])
    hash(hostile), hash(generic)
    watched += [registry, x, fail, on_hash, on_eq, box, unsortable, unhashable, asked, hostile]
    loop: list[Any] = [x]
    loop.append(loop)

    def step() -> None:
        fails(ZeroDivisionError, hash, core.flatten(registry, [x, on_hash])[1])
        fails(TypeError, hash, core.flatten(registry, [x, {"k": unhashable}])[1])
        fails(ZeroDivisionError, core.flatten, registry, [x, (1, box)])
        fails(ZeroDivisionError, core.flatten, registry, [x, asked])
        fails(TypeError, core.flatten, registry, [x, {"k": unsortable}])
        fails(ZeroDivisionError, testing.match, hostile, [x, [x] * 60, on_hash])
        fails(ZeroDivisionError, testing.match, hostile, [x, [x] * 60, on_eq])
        fails(ZeroDivisionError, testing.match, generic, [x, box])
        fails(ZeroDivisionError, testing.match, question, [x, asked])
        fails(ValueError, hostile.unflatten, [x])

    return step


@scenario
def recursion_errors(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    x = Array()
    loop: list[Any] = [x]
    loop.append(loop)
    watched += [registry, x, loop]

    def step() -> None:
        fails(RecursionError, core.flatten, registry, loop)

    step.loops = 20  # type: ignore[attr-defined]
    return step


@scenario
def failing_builds(watched: list[Any]) -> Step:
    class Picky(Record):
        armed = False

        def __init__(self, data: Any, other: Any, tag: Any) -> None:
            if Picky.armed:
                raise ZeroDivisionError
            super().__init__(data, other, tag)

    registry = cs.make_registry()
    x = Array()
    one = [x, (x, {"k": Linear(weight=Box([Point(x, Picky(x, 1, 2))]), size=1)}), x]
    arrays, structure = core.flatten(registry, one)
    watched += [registry, structure, x, Picky]
    Picky.armed = True

    def step() -> None:
        fails(ZeroDivisionError, structure.unflatten, arrays)

    return step


@scenario
def types_that_come_and_go(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    watched += [registry, Linear, Array]

    def step() -> None:
        cls = type("Brief", (Linear,), {})
        arrays, structure = core.flatten(registry, [cls(weight=Array(), size=1)])
        testing.match(structure, [cls(weight=Array(), size=1)])
        structure.unflatten(arrays)
        fails(TypeError, core.flatten, cs.make_registry(classify=lambda cls, x: ()), 1)

    step.loops = 300  # type: ignore[attr-defined]
    return step


# ---- functions over trees ----

ARRAYS = ("arrays",)


def filters() -> tuple[Any, ...]:
    """Programs of each op, in which nothing is taken by what comes first."""
    path = ("path", (("deep",), ("glob", "k".__eq__), ("slice", 0, 1, None)))
    return (
        ("and", ARRAYS, ("leaf", lambda x: x.value == 7)),
        ("or", path, ("not", True)),
        ("tree", {k: len if k == "b" else False for k in "bdmoprs"}, lambda f: ("array", callable)),
        ("array", lambda x: isinstance(x, cs.OtherArray)),
    )


@scenario
def trees_apart_and_together(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    one, other, hole, programs = tree(), tree(), cs.Value("hole"), filters()
    # With as many attributes as fields, one that misses a field comes apart otherwise once built.
    one["m"].activation = other["m"].activation = len
    leaves, structure = core.tree_flatten(registry, one, True, None)
    # What only an instance tells of an array is a leaf here, and has no value.
    one["o"]["a"] = other["o"]["a"] = one["s"][-1] = other["s"][-1] = 1
    _, fixed = core.tree_flatten(registry, one, ARRAYS, None)
    watched += [registry, structure, fixed, *leaves, one["m"], other["m"], hole, programs]
    watched += [None, Linear, Point, len]

    def step() -> None:
        core.tree_leaves(registry, one, None), core.tree_paths(registry, one, None)
        core.tree_leaves(registry, one, lambda x: isinstance(x, (list, Point)))
        core.tree_map(registry, lambda *row: row, (one, one), None)
        core.tree_map(registry, lambda *row: row, (one,) * 12, lambda x: x is None)
        found, made = core.tree_flatten(registry, one, ARRAYS, None)
        assert made == fixed and hash(made) == hash(fixed)
        made.unflatten(found), made.flatten_up_to(one), repr(made)
        assert core.from_parts(registry, hole, *made._parts(hole)) == made
        parts = core.partition(registry, one, programs, None, None)
        assert len(core.tree_leaves(registry, parts, None)) == len(leaves)
        core.combine(registry, parts, None, True), core.combine(registry, (one, one), None, False)
        made, *groups = core.partition_dict(registry, one, ARRAYS, programs, None)
        made.combine(*groups), made.combine(*reversed(groups)), made.paths

    step.loops = 300  # type: ignore[attr-defined]
    return step


@scenario
def many_leaves(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    x, static = Array(), cs.Value(1)
    one = [[x, static] * 600, {"k": (x,) * 1500}, [(x,)] * 100]
    watched += [registry, x, static, one]

    def step() -> None:
        found, made = core.tree_flatten(registry, one, ARRAYS, None)
        made.unflatten(found), made.combine(dict(zip(made.paths, found, strict=True)))
        parts = core.partition(registry, one, (ARRAYS,), None, None)
        core.combine(registry, parts, None, True)
        core.tree_map(registry, max, (one, made.unflatten(found)), id)

    step.loops = 60  # type: ignore[attr-defined]
    return step


@scenario
def failing_tree_functions(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    fail, hole = raising(), cs.Value("hole")
    x, s = Array(), Hostile(on_eq=fail, on_hash=fail)
    one = [x, {"k": [x, (x, 1)], "m": Linear(weight=x, bias=2, size=Hostile())}, Box([x], aux=1)]
    bad = [x, {"k": [x, (x, 1)], "m": Linear(weight=x, bias=2, size=s)}, Box([x], aux=1)]
    aux = [x, one[1], Box([x], aux=2)]
    keys = [x, {"k": 1, "n": 2}, Box([x], aux=1)]
    box = [x, one[1], Box([x], aux=1, hook=fail)]
    doubled = {"a.b": x, "a": {"b": x}}
    _, structure = core.tree_flatten(registry, one, True, None)
    statics = core.tree_flatten(registry, [x, s], ARRAYS, None)[1]
    equal = core.tree_flatten(registry, [x, Hostile()], ARRAYS, None)[1]
    watched += [registry, structure, statics, equal, x, s, fail, hole, one, bad, aux, keys, box]
    calls = [0]

    def late(*args: Any) -> bool:
        calls[0] += 1
        return fail() if calls[0] % 4 == 0 else False

    def step() -> None:
        for f in (fail, late):
            fails(ZeroDivisionError, core.tree_leaves, registry, one, f)
            fails(ZeroDivisionError, core.tree_map, registry, f, (one, one), None)
            fails(ZeroDivisionError, core.combine, registry, (one, one), f, True)
            fails(ZeroDivisionError, core.partition_dict, registry, one, True, (), f)
        for call in (structure.flatten_up_to, lambda t: core.combine(registry, (one, t), None, 0)):
            fails(ValueError, call, keys), fails(ValueError, call, aux)
            fails(ZeroDivisionError, call, bad), fails(ZeroDivisionError, call, box)
        fails(ZeroDivisionError, core.tree_paths, registry, box, None)
        fails(ValueError, core.tree_map, registry, max, (one, one, one[:2]), None)
        fails(TypeError, core.tree_map, registry, max, [one], None)
        fails(ValueError, core.combine, registry, (one, one), None, True)
        fails(ValueError, structure.unflatten, [x])
        fails(ZeroDivisionError, hash, statics), fails(ZeroDivisionError, statics.__eq__, equal)
        fails(ValueError, core.from_parts, registry, hole, one, [x])
        fails(ValueError, core.from_parts, registry, hole, one, x)
        fails(ValueError, structure.combine, {"0": x}, {"0": x, "other": x})
        fails(TypeError, structure.combine, {"0": x}, x)
        fails(ValueError, core.partition_dict, registry, doubled, True, (), None)

    step.loops = 400  # type: ignore[attr-defined]
    return step


@scenario
def failing_filters(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    fail = raising()
    x = Array()
    one = {"a": [x, 1, (x, {"b": x})], "c": Linear(weight=x, bias=[x])}
    bad: list[tuple[type[BaseException], Any]] = [
        (ZeroDivisionError, ("leaf", fail)),
        (ZeroDivisionError, ("or", False, ("and", True, ("not", ("array", fail))))),
        (TypeError, ("leaf", lambda leaf: None)),
        (ValueError, ("unheard of",)),
        (ValueError, ("or", True, None)),
        (ValueError, ("path", (("name", "a"),))),
        (ValueError, ("path", (("any",), ("slice", 0, 1, 0)))),
        (TypeError, ("path", (("slice", 0, 1, 1), ("index", "a")))),
        (ValueError, ("path", (("any",),) * 63)),
        (ZeroDivisionError, ("path", (("glob", fail),))),
        (ZeroDivisionError, ("path", (("any",), ("slice", None, None, None), ("glob", fail)))),
        (ValueError, ("tree", {"a": True}, fail)),
        (ValueError, ("tree", {"a": [True, True], "c": False}, fail)),
        (ZeroDivisionError, ("tree", {"a": True, "c": "filter"}, fail)),
        (ZeroDivisionError, ("tree", {"a": True, "c": "filter"}, lambda f: ("leaf", fail))),
        (ValueError, ("tree", {"a": "filter", "c": True}, lambda f: [f])),
    ]
    watched += [registry, fail, x, one, one["c"], *(program for _, program in bad)]

    def step() -> None:
        for error, program in bad:
            fails(error, core.partition, registry, one, (False, program), None, None)
            fails(error, core.tree_flatten, registry, one, program, None)
            fails(error, core.partition_dict, registry, one, program, (ARRAYS,), None)

    step.loops = 400  # type: ignore[attr-defined]
    return step


@scenario
def structures_in_cycles(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    x = Array()
    watched += [registry, x, cs.Value]

    def step() -> None:
        owner: Any = cs.Value(1)
        owner.structure = core.tree_flatten(registry, [x, owner], ARRAYS, None)[1]
        owner.fields = core.tree_flatten(registry, Linear(weight=x, size=owner), True, None)[1]
        owner.paths = owner.structure.paths

    return step


@scenario
def endless_trees(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    x = Array()
    loop: list[Any] = [x]
    loop.append(loop)
    watched += [registry, x, loop]

    def step() -> None:
        fails(RecursionError, core.tree_leaves, registry, loop, None)
        fails(RecursionError, core.tree_map, registry, id, (loop, loop), None)
        fails(RecursionError, core.tree_flatten, registry, 1, ("tree", loop, id), None)

    step.loops = 20  # type: ignore[attr-defined]
    return step


# ---- calls ----


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
        g = core.rebuild(*f._parts())
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
    x, fail, s = Array(), raising(), cs.Unhashable()
    f(x, 1)
    variant = f._lookup(x, 1)[0]
    watched += [f, x, s, fail, variant, f._parts()[0], options]

    def step() -> None:
        fails(ZeroDivisionError, f, x, 0)
        fails(TypeError, f, [x], s)
        fails(TypeError, f)
        fails(TypeError, f, x, 1, 2)
        fails(TypeError, f, x, x=1, y=2)
        for hook in ("wait", "before_raising_call"):
            options.on[hook] = fail
            fails(ZeroDivisionError, f, x, 1)
            del options.on[hook]
        options.on["compile"] = fail
        fails(ZeroDivisionError, f, x, 3)
        options.on.clear()
        fails(RuntimeError, variant.result, core.output_unflatten(77, ()))
        fails(ValueError, variant.arguments, (x, x, x))
        fails(ZeroDivisionError, variant.finish, [s], fail)
        fails(TypeError, core.rebuild, 1, 2)
        options.calls.clear()

    step.loops = 600  # type: ignore[attr-defined]
    return step


@scenario
def failing_statics(watched: list[Any]) -> Step:
    f = cs.make_jit(lambda x, s: x)
    x, fail = Array(), raising()
    f(x, Hostile())
    on_hash, on_eq = Hostile(on_hash=fail), Hostile(on_eq=fail)
    watched += [f, x, on_hash, on_eq, f._parts()[0], f._lookup(x, Hostile())[0]]

    def step() -> None:
        fails(ZeroDivisionError, f, x, on_hash)
        fails(ZeroDivisionError, f, x, s=on_eq)
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
        hash(thing.method), repr(thing.method), thing.method.__wrapped__, thing.method.lower(x)
        thing.method.__reduce__()
        fails(AttributeError, getattr, thing.method, "nothing")
        fails(TypeError, thing.method)
        Thing.method._options.calls.clear()

    step.loops = 600  # type: ignore[attr-defined]
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
        fails(ValueError, core.Signature, (name,), 0, 5, False, False, b"\0")
        fails(TypeError, core.Signature, (name, 1), 0, 2, False, False, b"\0\0")

    return step


# ---- counting ----


def measure(watched: list[Any]) -> dict[str, int]:
    for _ in range(3):
        gc.collect()
    found = {"bytes": tracemalloc.get_traced_memory()[0], "objects": len(gc.get_objects())}
    if hasattr(sys, "gettotalrefcount"):
        found["references"] = sys.gettotalrefcount()
    for i, x in enumerate(watched):
        found[f"references to watched[{i}], {type(x).__name__}"] = sys.getrefcount(x)
    return found


def run(name: str) -> list[str]:
    """What grew: empty when nothing did."""
    watched: list[Any] = []
    step = SCENARIOS[name](watched)
    loops = getattr(step, "loops", 1500) // 2
    grown = grow(name, step, watched, loops)
    # What fills up slowly (free lists, say) is full by then; a leak is not.
    return grown and grow(name, step, watched, loops * 4)


def grow(name: str, step: Step, watched: list[Any], loops: int) -> list[str]:
    # One leak a step would be `loops`, or as many times the size of an object.
    limits = {"bytes": max(loops * 16, 4096), "objects": loops // 2, "references": loops // 2}
    tracemalloc.start()
    try:
        counts = [measure(watched)]
        # What fills up once (free lists, caches) does not grow in each of the rounds.
        for _ in range(5):
            for _ in range(loops):
                step()
            counts.append(measure(watched))
    finally:
        tracemalloc.stop()
    found = []
    for what in counts[0]:
        values = [count[what] for count in counts[1:]]
        grown = min(b - a for a, b in itertools.pairwise(values))
        if grown >= limits.get(what, loops // 2):
            found.append(f"{name}: {what}, each {loops} steps: {values}")
    return found


def main(names: list[str]) -> int:
    grown = [line for name in names or SCENARIOS for line in run(name)]
    print("\n".join(grown) or "nothing grew")
    return 1 if grown else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
