"""Types whose instances describe their attributes, and descriptions that do not fit."""

from typing import Any

import pytest
from core_support import (
    Array,
    Described,
    Pair,
    Slots,
    classify,
    core,
    identical,
    layout,
    make_registry,
    same,
    testing,
)
from node_support import InitSlots, Mixed
from outcome_support import attempt

# ---- described types ----


def test_equal_attributes_that_are_described_otherwise(registry: Any) -> None:
    """What a type is told of an instance is a part of the Structure."""
    kinds: dict[str, Any] = {
        "names": (("a", "b"), (), None),
        "order": (("b", "a"), (), None),
        "keys": (("a", "b"), (), ((0,), (1,))),
        "none": (("a", "b"), (), (None, "b")),
        "static": (("a",), ("b",), None),
        "custom": None,
    }

    class Told(Described):
        def describe(self) -> Any:
            return kinds[told]

    def custom(x: Any) -> Any:
        return (x.a, x.b), "aux", lambda *parts: Told(), ((0,), (1,))

    registry = make_registry(flatten_with_keys=custom, flatten_one_level=lambda x: custom(x)[:2])
    structures = []
    for told in kinds:
        tree = object.__new__(Told)
        vars(tree).update(a=Array(1), b=Array(2))
        for _ in range(2):
            structures.append((told, tree, core.flatten(registry, tree)[1]))
    for told_a, tree, a in structures:
        for told, _, b in structures:
            assert (a == b) == (told == told_a)
        told = told_a
        _, outer = core.tree_flatten(registry, tree, True, None)
        outer._subtrees(tree)
        for told in kinds:
            if told not in (told_a, "custom") and told_a != "custom":
                with pytest.raises(ValueError, match="other attributes"):
                    outer._subtrees(tree)


BAD_DESCRIPTIONS: list[tuple[type[Exception], list[Any]]] = [
    (RuntimeError, [((), (), None), (("x", "y"), (), None)]),
    (TypeError, [1, (), (("x", 1), (), None), (["x"], (), None)]),
    (TypeError, [(("x",), (), keys) for keys in ((), (1,), ((1, 2),), ([],))]),
]


def test_bad_descriptions() -> None:
    x = object.__new__(Described)
    vars(x).update(x=Array(1))
    for error, answers in BAD_DESCRIPTIONS:
        for answer in answers:

            def classify_described(cls: type, x: Any, answer: Any = answer) -> Any:
                described = {"kind": "described", "describe": lambda y: answer}
                return described if cls is Described else classify(cls, x)

            registry = make_registry(classify=classify_described)
            for _ in range(2):
                assert isinstance(attempt(core.flatten, registry, x), error), answer


def test_a_description_that_changes_the_instance() -> None:
    class Other(Described):
        pass

    acts: dict[str, Any] = {
        "class": lambda x: setattr(x, "__class__", Other),
        "more": lambda x: vars(x).update(more=1),
        "less": lambda x: vars(x).pop("x"),
        "dict": lambda x: setattr(x, "__dict__", {}),
        "other": lambda x: setattr(x, "__dict__", {"a": 1, "b": 2, "c": 3}),
        "nothing": lambda x: None,
    }

    def change(x: Any) -> Any:
        right = Described.describe(x)
        acts[name](x)
        return right

    def classify_described(cls: type, x: Any) -> Any:
        told = {"kind": "described", "describe": change}
        return told if cls is Described else classify(cls, x)

    registry = make_registry(classify=classify_described)
    make = lambda: [Described(("x",), x=Array(1), y=2)]
    for act in acts:
        name = act
        found = attempt(core.flatten, registry, make())
        assert isinstance(found, RuntimeError) or name in ("other", "nothing")
        name, tree = "nothing", make()
        _, outer = core.tree_flatten(registry, tree, True, None)
        name = act
        found = attempt(outer._subtrees, tree)
        assert isinstance(found, (RuntimeError, ValueError)) or name == "nothing"


def test_more_descriptions_than_are_kept(registry: Any) -> None:
    """The earlier ones are forgotten, and what was flattened with them still works."""
    x = Array()
    first = Described(("x0",), x0=x)
    arrays, structure = core.flatten(registry, first)
    for i in range(1001):  # MOST_DESCRIBED
        assert core.flatten(registry, Described((f"x{i}",), **{f"x{i}": x}))[0] == (x,)
    assert same(structure.unflatten(arrays), first)
    again = core.flatten(registry, first)[1]
    assert testing.match(again, first) == (x,) and same(again.unflatten((x,)), first)


# ---- details that do not fit ----


def bad(kind: str = "object", **details: Any) -> dict[str, Any]:
    return {"kind": kind} | ({"dynamic": ("x",)} if kind == "object" else {}) | details


BAD_DETAILS: list[Any] = [
    *((), None, (3,), {}, {"kind": 3}, *map(bad, ("module", "unheard of", "described"))),
    *(bad("static", contents=contents) for contents in (1, ["a"], (1,))),
    *(bad("static", unheard_of=1), bad("module", dynamic=("a",), extra=(1,)), {"kind": "object"}),
    *(bad(build=mode) for mode in ("unheard of", "partial", None)),
    *(bad(build=mode, factories={"y": list}) for mode in ("call", "init")),
    *(bad(keys=keys) for keys in ((), ("x", "y"), ([],), (["x"],), ((1, 2),))),
    *(bad(dynamic=(1,)), bad(static=(1,)), bad(dynamic=["x"])),
    *(bad(dict_fields=x) for x in (None, 3)),
    *(bad(build="fill", factories=makers) for makers in ({1: list}, None)),
]


def test_bad_details() -> None:
    for details in BAD_DETAILS:
        registry = make_registry(classify=lambda cls, x, details=details: details)
        for _ in range(2):
            found = attempt(core.flatten, registry, Pair(x=Array(1), y=2, tag=3))
            assert isinstance(found, (TypeError, ValueError)), details
        assert testing.num_types(registry) == 0


def test_slots_that_are_shared(registry: Any) -> None:
    """Two names of one slot, and a slot of a class that is no base."""

    class Alias(Slots):
        __slots__ = ()
        z = Slots.x
        layout = layout(("x", "z"), ("tag",))

    tree = [Alias(x=Array(1), tag=1)]
    arrays, structure = core.flatten(registry, tree)
    assert identical(arrays, (tree[0].x, tree[0].x))
    assert identical(testing.match(structure, tree), arrays)
    assert structure.unflatten(arrays)[0].z is arrays[0]
    for other in (InitSlots.x, Mixed.__dict__["x"]):  # type: ignore[attr-defined]
        Alias.z = other  # type: ignore[assignment]
        for call in (lambda: core.flatten(registry, tree), lambda: testing.match(structure, tree)):
            with pytest.raises(TypeError):
                call()
