"""Scenarios of leaks.py with trees and Structures."""

import collections
from typing import Any

import core_support as cs
from core_support import Array, Box, Hostile, Linear, Point, Record, core, testing
from leaks_support import Step, scenario
from outcome_support import fail, raised
from trees_support import one_of_each


def tree() -> dict[str, Any]:
    """One tree of each kind of node and leaf."""
    maybe = collections.OrderedDict(b=cs.Maybe(False), a=cs.Maybe(True))
    return {**one_of_each(), "maybe": maybe}


def cyclic_list(x: Any) -> list[Any]:
    loop: list[Any] = [x]
    loop.append(loop)
    return loop


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
    arrays, structure = core.flatten(registry, one)
    watched += [registry, structure, *arrays, one["m"], other["m"], other["m"].weight]

    def step() -> None:
        assert testing.match(structure, one) is not None
        assert testing.match(structure, other) is None
        assert testing.match(structure, one["m"]) is None
        assert testing.match(structure, 3) is None

    return step


@scenario
def python_free_match(watched: list[Any]) -> Step:
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
def failing_walks(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    x = Array()
    on_hash, on_eq = Hostile(on_hash=fail), Hostile(on_eq=fail)
    box, unsortable, unhashable = Box([x], hook=fail), {1: x, "a": x}, cs.Unhashable()
    maybe = cs.Maybe(True, fail)
    _, hostile = core.flatten(registry, [x, [x] * 60, Hostile()])
    _, custom = core.flatten(registry, [x, Box([x])])
    _, arrays = core.flatten(registry, [x, x])
    hash(hostile), hash(custom)
    watched += [registry, x, fail, on_hash, on_eq, box, unsortable, unhashable, maybe, hostile]

    def step() -> None:
        raised(ZeroDivisionError, hash, core.flatten(registry, [x, on_hash])[1])
        raised(TypeError, hash, core.flatten(registry, [x, {"k": unhashable}])[1])
        raised(ZeroDivisionError, core.flatten, registry, [x, (1, box)])
        raised(ZeroDivisionError, core.flatten, registry, [x, maybe])
        raised(TypeError, core.flatten, registry, [x, {"k": unsortable}])
        raised(ZeroDivisionError, testing.match, hostile, [x, [x] * 60, on_hash])
        raised(ZeroDivisionError, testing.match, hostile, [x, [x] * 60, on_eq])
        raised(ZeroDivisionError, testing.match, custom, [x, box])
        raised(ZeroDivisionError, testing.match, arrays, [x, maybe])
        raised(ValueError, hostile.unflatten, [x])

    return step


@scenario
def recursion_errors(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    x = Array()
    loop = cyclic_list(x)
    watched += [registry, x, loop]

    def step() -> None:
        raised(RecursionError, core.flatten, registry, loop)

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
        raised(ZeroDivisionError, structure.unflatten, arrays)

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
        raised(TypeError, core.flatten, cs.make_registry(classify=lambda cls, x: ()), 1)

    step.loops = 300  # type: ignore[attr-defined]
    return step


# ---- functions over trees ----

ARRAYS = ("arrays",)


def filters() -> tuple[Any, ...]:
    """Filter expressions of each operator, of which the first takes no leaf."""
    path = ("path", (("deep",), ("glob", "k".__eq__), ("slice", 0, 1, None)))
    return (
        ("and", ARRAYS, ("leaf", lambda x: x.value == 7)),
        ("or", path, ("not", True)),
        (
            "tree",
            {k: len if k == "b" else False for k in "bdfmoprst"},
            lambda f: ("array", callable),
        ),
        ("array", lambda x: isinstance(x, cs.OtherArray)),
    )


@scenario
def tree_functions(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    one, other, hole, expressions = one_of_each(), one_of_each(), cs.Value("hole"), filters()
    leaves, structure = core.tree_flatten(registry, one, True, None)
    _, with_statics = core.tree_flatten(registry, one, ARRAYS, None)
    watched += [registry, structure, with_statics, *leaves, one["m"], other["m"], hole, expressions]
    watched += [None, Linear, Point, len]

    def step() -> None:
        core.tree_leaves(registry, one, None), core.tree_paths(registry, one, None)
        core.tree_leaves(registry, one, lambda x: isinstance(x, (list, Point)))
        core.tree_map(registry, lambda *row: row, (one, one), None)
        core.tree_map(registry, lambda *row: row, (one,) * 12, lambda x: x is None)
        found, made = core.tree_flatten(registry, one, ARRAYS, None)
        assert made == with_statics and hash(made) == hash(with_statics)
        made.unflatten(found), made.flatten_up_to(one), repr(made)
        assert core.from_parts(registry, hole, *made._parts(hole)) == made
        parts = core.partition(registry, one, expressions, None, None)
        assert len(core.tree_leaves(registry, parts, None)) == len(leaves)
        core.combine(registry, parts, None, True), core.combine(registry, (one, one), None, False)
        made, *groups = core.partition_dict(registry, one, ARRAYS, expressions, None)
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
    hole = cs.Value("hole")
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
            raised(ZeroDivisionError, core.tree_leaves, registry, one, f)
            raised(ZeroDivisionError, core.tree_map, registry, f, (one, one), None)
            raised(ZeroDivisionError, core.combine, registry, (one, one), f, True)
            raised(ZeroDivisionError, core.partition_dict, registry, one, True, (), f)
        for call in (structure.flatten_up_to, lambda t: core.combine(registry, (one, t), None, 0)):
            raised(ValueError, call, keys), raised(ValueError, call, aux)
            raised(ZeroDivisionError, call, bad), raised(ZeroDivisionError, call, box)
        raised(ZeroDivisionError, core.tree_paths, registry, box, None)
        raised(ValueError, core.tree_map, registry, max, (one, one, one[:2]), None)
        raised(TypeError, core.tree_map, registry, max, [one], None)
        raised(ValueError, core.combine, registry, (one, one), None, True)
        raised(ValueError, structure.unflatten, [x])
        raised(ZeroDivisionError, hash, statics), raised(ZeroDivisionError, statics.__eq__, equal)
        raised(ValueError, core.from_parts, registry, hole, one, [x])
        raised(ValueError, core.from_parts, registry, hole, one, x)
        raised(ValueError, structure.combine, {"0": x}, {"0": x, "other": x})
        raised(TypeError, structure.combine, {"0": x}, x)
        raised(ValueError, core.partition_dict, registry, doubled, True, (), None)

    step.loops = 400  # type: ignore[attr-defined]
    return step


@scenario
def failing_filters(watched: list[Any]) -> Step:
    registry = cs.make_registry()
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
    watched += [registry, fail, x, one, one["c"], *(expression for _, expression in bad)]

    def step() -> None:
        for error, expression in bad:
            raised(error, core.partition, registry, one, (False, expression), None, None)
            raised(error, core.tree_flatten, registry, one, expression, None)
            raised(error, core.partition_dict, registry, one, expression, (ARRAYS,), None)

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
def cyclic_trees(watched: list[Any]) -> Step:
    registry = cs.make_registry()
    x = Array()
    loop = cyclic_list(x)
    watched += [registry, x, loop]

    def step() -> None:
        raised(RecursionError, core.tree_leaves, registry, loop, None)
        raised(RecursionError, core.tree_map, registry, id, (loop, loop), None)
        raised(RecursionError, core.tree_flatten, registry, 1, ("tree", loop, id), None)

    step.loops = 20  # type: ignore[attr-defined]
    return step
