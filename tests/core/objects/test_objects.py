"""How an object is built: filled, called, or by its `__init__`."""

import abc
import functools
from typing import Any

import core_support as cs
import pytest
import trees_support as ts
from core_support import Array, Described, Object, Part, core, identical, layout, testing
from outcome_support import attempt
from trees_support import OBJECTS, HeldMixed, InitDataclass, InitSlots, LoudStr, Mixed, check_walks


def test_init_is_a_call_once_the_class_has_changed(registry: Any) -> None:
    for slots in (False, True):
        cls = ts.new_class("slots" if slots else "dict", "init")
        calls = []

        def init(self: Any, calls: Any = calls, **values: Any) -> None:
            calls.append(values)
            Object.__init__(self, **values)

        cls.__init__ = init
        tree = cls(x=Array(1), y=Array(2), tag="tag")
        arrays, structure = core.flatten(registry, tree)
        calls.clear()
        assert cs.same(structure.unflatten(arrays), tree)
        assert not calls, "nothing has changed since it was classified"
        cls.other = 1
        assert cs.same(structure.unflatten(arrays), tree)
        assert [list(call) for call in calls] == [["x", "y", "tag"]]
        del cls.other
        structure.unflatten(arrays)
        assert len(calls) == 2


def test_fill_calls_no_code_of_the_class(registry: Any) -> None:
    class Loud(cs.Pair):
        def __new__(cls, *args: Any) -> Any:
            raise AssertionError

        def __init__(self) -> None:
            raise AssertionError

        def __setattr__(self, name: str, value: Any) -> None:
            raise AssertionError

    tree = object.__new__(Loud)
    Object.__init__(tree, x=Array(1), y=Array(2), tag=3)
    arrays, structure = core.flatten(registry, tree)
    assert cs.same(structure.unflatten(arrays), tree)


@pytest.mark.parametrize("slots", [False, True])
def test_fill_sets_through_a_descriptor(registry: Any, slots: bool) -> None:
    """As object.__setattr__ does, of the fields and of what is made besides."""
    for name in ("x", "made"):
        space = {"__slots__": ("x", "made")} if slots else {}
        cls: Any = type("Cls", (Object,), {"layout": layout(("x",), made=list), **space})
        arrays, structure = core.flatten(registry, cls(x=Array(1), made=[]))
        values: list[Any] = []
        setattr(cls, name, property(lambda self: 1, lambda self, v, to=values: to.append(v)))
        structure.unflatten(arrays)
        assert values == ([arrays[0]] if name == "x" else [[]])


def test_what_is_made_besides(registry: Any) -> None:
    """A maker is called once a tree."""
    made: list[Any] = []

    def make() -> Any:
        made.append(object())
        return made[-1]

    for space in ({}, {"__slots__": ("x", "one", "two")}):
        cls: Any = type("Cls", (Object,), {"layout": layout(("x",), one=make, two=make), **space})
        tree = [cls(x=Array(i)) for i in range(3)]
        arrays, structure = core.flatten(registry, tree)
        for _ in range(2):
            made.clear()
            built = structure.unflatten(arrays)
            assert len(made) == 1
            assert all(x.one is made[0] and x.two is made[0] for x in built)


def test_abstract_classes(registry: Any) -> None:
    class Abstract(Object, abc.ABC):
        layout = layout(("x",))

    arrays, structure = core.flatten(registry, Abstract(x=Array(1)))
    Abstract.__abstractmethods__ = frozenset(["f"])  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="abstract"):
        structure.unflatten(arrays)


def test_partials(registry: Any) -> None:
    for tree in (
        Part(max),
        Part(max, Array(1), 2, key=Array(3), default=None),
        Part(Part(max, Array(1), a=1), Array(2), b=Array(3)),
        Part(Part, max, 1),
    ):
        arrays, structure = core.flatten(registry, tree)
        built = structure.unflatten(arrays)
        assert cs.same(built, tree) and cs.same(built.func, tree.func)
        assert identical(testing.match(structure, built), arrays)
    nested = Part(max, Array(1))
    nested.__setstate__((Part(min, 1), (Array(2),), {"k": Array(3)}, {}))
    arrays, structure = core.flatten(registry, nested)
    # As a call of the class would, it takes the inner one apart.
    assert structure.unflatten(arrays).func is min
    for kind, leaves in ((dict, [1]), (tuple, [1, 1])):
        is_leaf = lambda x, kind=kind: type(x) is kind
        _, structure = core.tree_flatten(registry, Part(max, k=1), True, is_leaf)
        with pytest.raises(TypeError):
            structure.unflatten(leaves)


# ---- dict fields ----


class _Sub(dict):  # type: ignore[type-arg]
    """A dict of another type, which can be a static leaf."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.mark.parametrize("value", [None, 1, [1], _Sub(k=1), "text"])
def test_a_dict_field_that_is_no_dict(registry: Any, value: Any) -> None:
    """Its class is flattened by its functions then."""
    tree = [cs.Frozen({"k": Array(1)})]
    _, structure = core.flatten(registry, tree)
    odd = [cs.Frozen(value)]
    assert testing.match(structure, odd) is None
    arrays, other = core.flatten(registry, odd)
    assert "custom" in [node[0] for node in cs.nodes_of(other)]
    assert identical(testing.match(other, odd), arrays)
    assert other.unflatten(arrays)[0].items == value
    _, outer = core.tree_flatten(registry, tree, True, None)
    with pytest.raises(ValueError, match="differs"):
        outer._subtrees(odd)
    leaves, other = core.tree_flatten(registry, odd, True, None)
    assert identical(other._subtrees(odd), leaves)


def test_dicts_that_are_all_static(registry: Any) -> None:
    """Each tree gets a copy, which may be changed."""
    for wrap in (lambda d: d, cs.Frozen, lambda d: HeldMixed(items={}, x=1, meta=d, tag=d)):
        tree = [Array(0), wrap({"b": 1, "a": "text", "c": 2.5}), wrap({}), wrap({1: 2})]
        arrays, structure = core.flatten(registry, tree)
        first = structure.unflatten(arrays)
        assert cs.same(first, tree)
        for x in first[1:]:
            for name in ("items", "meta"):
                found = x if type(x) is dict else getattr(x, name, {})
                if type(found) is dict:
                    found["new"] = 1
        assert cs.same(structure.unflatten(arrays), tree)
        assert identical(testing.match(structure, tree), arrays)


def test_names_of_a_class_that_run_code(registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such code frees an array that the walk has met."""
    cls: Any = type("Odd", (cs.Pair,), {LoudStr("x"): 1})
    tree: list[Any] = [Array(0), cls(x=Array(1), y=Array(2), tag=3)]
    _, structure = core.flatten(registry, tree)
    cls.other = 1

    def hook() -> None:
        tree[0] = 1
        spare.append([Array("spare") for _ in range(10)])

    spare: list[Any] = []
    monkeypatch.setattr(LoudStr, "hook", staticmethod(hook))
    found = testing.match(structure, tree)
    assert found is None or found[0].value == 0


@pytest.mark.parametrize("name", OBJECTS)
def test_each_attribute_is_compared(registry: Any, name: str) -> None:
    """Each attribute in turn gets another value, and loses it."""
    tree = OBJECTS[name](Array(1), Array(2), "tag")
    if not isinstance(tree, (Object, InitDataclass)):
        pytest.skip("its attributes cannot be set")
    for attribute in ts.attributes(tree):
        tree = OBJECTS[name](Array(1), Array(2), "tag")
        arrays, structure = core.flatten(registry, [tree])
        before = getattr(tree, attribute)
        object.__setattr__(tree, attribute, {"unlike": 1})
        check_walks(registry, structure, [tree])
        assert testing.match(structure, [tree]) is None
        object.__delattr__(tree, attribute)
        with pytest.raises(AttributeError):
            core.flatten(registry, [tree])
        with pytest.raises(AttributeError):
            testing.match(structure, [tree])
        object.__setattr__(tree, attribute, before)
        assert identical(testing.match(structure, [tree]), arrays)
        check_walks(registry, structure, [tree])


def test_attributes_that_are_not_fields(registry: Any) -> None:
    """A cached property and the like are no part of the tree."""

    class Cached(cs.Pair):
        @functools.cached_property
        def value(self) -> Any:
            return Array("cached")

    tree = [Cached(x=Array(1), y=Array(2), tag=3)]
    arrays, structure = core.flatten(registry, tree)
    assert tree[0].value.value == "cached"
    tree[0].extra = Array("extra")
    assert identical(testing.match(structure, tree), arrays)
    assert core.flatten(registry, tree)[1] == structure
    assert vars(structure.unflatten(arrays)[0]).keys() == {"x", "y", "tag"}


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

    registry = cs.make_registry(flatten_with_keys=custom, flatten_one_level=lambda x: custom(x)[:2])
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
                return described if cls is Described else cs.classify(cls, x)

            registry = cs.make_registry(classify=classify_described)
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
        return told if cls is Described else cs.classify(cls, x)

    registry = cs.make_registry(classify=classify_described)
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
    assert cs.same(structure.unflatten(arrays), first)
    again = core.flatten(registry, first)[1]
    assert testing.match(again, first) == (x,) and cs.same(again.unflatten((x,)), first)


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
        registry = cs.make_registry(classify=lambda cls, x, details=details: details)
        for _ in range(2):
            found = attempt(core.flatten, registry, cs.Pair(x=Array(1), y=2, tag=3))
            assert isinstance(found, (TypeError, ValueError)), details
        assert testing.num_types(registry) == 0


def test_slots_that_are_shared(registry: Any) -> None:
    """Two names of one slot, and a slot of a class that is no base."""

    class Alias(cs.Slots):
        __slots__ = ()
        z = cs.Slots.x
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
