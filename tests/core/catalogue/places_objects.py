"""Places of the hostile matrix in objects and in types whose instances describe themselves."""

import functools
from typing import Any

import core_support as cs
from core_support import Array, Described, Frozen, Object, Pair, Slots, core
from places import World, loud_eq, loud_str, place, renewed, static


def stored(name: str, w: World, on_set: bool = False) -> property:
    """A property that keeps its value in the ``__dict__``, with the trap in reading or setting."""

    def read(self: Any) -> Any:
        value = self.__dict__[name]
        return value if on_set else w.answer(value)

    def store(self: Any, value: Any) -> None:
        if on_set:
            w.hook()
        self.__dict__[name] = value

    return property(read, store)


@place()
def field_of_an_object(w: World) -> Any:
    return type("LoudPair", (Pair,), {"x": stored("x", w)})(x=w.y, y=[Array()], tag=1)


@place()
def static_field_of_an_object(w: World) -> Any:
    loud = loud_eq(w)
    return renewed(w, lambda: Slots(x=w.y, y=[Array()], tag=loud()))


@place()
def held_field_of_an_object(w: World) -> Any:
    cls = type("LoudFrozen", (Frozen,), {"items": stored("items", w)})
    return cls({"b": w.y, "a": [Array(), 1]})


@place()
def eq_within_a_held_field(w: World) -> Any:
    loud = loud_eq(w)
    return renewed(w, lambda: cs.Variable(w.y, kind=loud(), other=1))


@place()
def keys_of_a_held_field(w: World) -> Any:
    key = loud_str(w, "__eq__")
    return renewed(w, lambda: Frozen({key("b"): w.y, key("a"): 1}))


@place()
def getattr_of_an_object(w: World) -> Any:
    """A slot is empty, so the class is asked."""

    def ask(self: Any, name: str) -> Any:
        return w.answer(3 if name == "y" else object.__getattribute__(self, name))

    cls: Any = type("LoudSlots", (Slots,), {"__getattr__": ask, "__slots__": ()})
    w.run = lambda tree: (w.f(tree), tree)[1]
    return cls(x=w.y, tag=1)


@place()
def getattribute_of_an_object(w: World) -> Any:
    def ask(self: Any, name: str) -> Any:
        value = object.__getattribute__(self, name)
        return w.answer(value) if name == "y" else value

    cls: Any = type("LoudSlots", (Slots,), {"__getattribute__": ask, "__slots__": ()})
    return cls(x=w.y, y=[Array()], tag=1)


@place()
def setter_of_an_object(w: World) -> Any:
    return type("LoudPair", (Pair,), {"y": stored("y", w, True)})(x=w.y, y=[Array()], tag=1)


@place()
def setter_of_what_is_made(w: World) -> Any:
    return type("LoudFrozen", (Frozen,), {"made": stored("made", w, True)})({"b": w.y, "a": 1})


@place()
def maker_of_an_object(w: World) -> Any:
    details = {**Frozen.layout[-1], "other": lambda: w.answer(1)}
    cls: Any = type("LoudFrozen", (Frozen,), {"layout": (*Frozen.layout[:-1], details)})
    return cls({"b": w.y, "a": 1})


@place()
def init_that_was_plain(w: World) -> Any:
    """The call that fills in the attributes has changed since the class was classified."""

    class Changed(Pair):
        layout = (*Pair.layout[:4], "init", {})

    def init(self: Any, **values: Any) -> None:
        w.hook()
        Pair.__init__(self, **values)

    changed = Changed(x=w.y, y=[Array()], tag=1)
    assert w.hooks.registry.kind(changed) == "object"
    Changed.__init__ = init  # type: ignore[assignment, method-assign]
    return changed


@place()
def describe(w: World) -> Any:
    def told(self: Any) -> Any:
        return w.answer(Described.describe(self))

    cls: Any = type("Told", (Described,), {"describe": told})
    return cls(("x",), x=w.y, y=2, z=[Array()])


@place()
def comparing_descriptions(w: World) -> Any:
    class Loud(tuple[Any, ...]):
        __slots__ = ()

        def __hash__(self) -> Any:
            return w.answer(7)

        def __eq__(self, other: object) -> Any:
            return w.answer(tuple.__eq__(self, other))

    def told(self: Any) -> Any:
        return Loud(Described.describe(self) or ())

    cls: Any = type("Told", (Described,), {"describe": told})
    return cls(("x",), x=w.y, y=2)


@place()
def static_of_a_described_type(w: World) -> Any:
    loud = loud_eq(w)
    return renewed(w, lambda: Described(("x",), x=w.y, y=loud()))


@place()
def names_of_a_described_type(w: World) -> Any:
    name = loud_str(w, "__eq__")

    def told(self: Any) -> Any:
        return ("x",), ("nodes", "y"), None

    cls: Any = type("Told", (Described,), {"describe": told})
    one = cls(("x",))
    one.__dict__ = {name("x"): w.y, "nodes": ("x",), name("y"): 2}
    w.run = lambda tree: (w.f(tree), tree)[1]
    return one


@place()
def registered_function(w: World) -> Any:
    """The function that a type is registered with is called straight."""

    def flatten(x: Any) -> Any:
        return w.answer(cs.flatten_one_level(x))

    def ask(cls: type, x: Any) -> Any:
        return ("custom", None, flatten) if cls is cs.Box else cs.classify(cls, x)

    w.registry(classify=ask)
    return cs.Box([Array(), 1], aux=2)


@place()
def functions_of_an_object_that_holds_no_dict(w: World) -> Any:
    def parts(x: Any) -> Any:
        return (x.items, 1), "aux"

    def with_keys(x: Any) -> Any:
        return (*parts(x), lambda *given: Frozen(given[-1][0]), ((0,), (1,)))

    w.registry(
        flatten_one_level=lambda x: w.answer(parts(x)),
        flatten_with_keys=lambda x: w.answer(with_keys(x)),
    )
    return Frozen([w.y])


@place()
def key_of_an_immutable_type(w: World) -> Any:
    def ask(cls: type, x: Any) -> Any:
        key = (lambda v: w.answer((v.key,)), True)
        return ("static", key) if cls is cs.Keyed else cs.classify(cls, x)

    w.registry(classify=ask)
    return renewed(w, lambda: cs.Keyed(3))


@place()
def whether_a_value_is_immutable(w: World) -> Any:
    def ask(cls: type, x: Any) -> Any:
        key = (lambda v: 1, lambda v: w.answer(True))
        return ("static", key) if cls is cs.Keyed else cs.classify(cls, x)

    w.registry(classify=ask)
    return cs.Keyed(3)


@place()
def details_of_an_object(w: World) -> Any:
    class New(Object):
        layout = Pair.layout

    def ask(cls: type, x: Any) -> Any:
        right = cs.classify(cls, x)
        return w.answer(right) if cls is New else right

    w.registry(classify=ask)
    return New(x=w.y, y=1, tag=2)


@place()
def names_that_are_held(w: World) -> Any:
    name = loud_str(w, "__eq__")

    def ask(cls: type, x: Any) -> Any:
        kind = cs.classify(cls, x)
        return (*kind[:5], (name("none"),), *kind[6:]) if cls is Pair else kind

    w.registry(classify=ask)
    return Pair(x=w.y, y=1, tag=2)


@place()
def mapping_of_a_partial(w: World) -> Any:
    """A leaf stands where the keywords of a partial are, and is asked for its items."""

    class Keywords:
        def keys(self) -> Any:
            return w.answer(["k"])

        def __getitem__(self, key: Any) -> Any:
            return w.answer(1)

    class Part(functools.partial):  # type: ignore[type-arg]
        pass

    def ask(cls: type, x: Any) -> Any:
        names = ("args", "keywords"), ("func",), None, (), "partial", {}
        return ("object", None, *names) if cls is Part else cs.classify(cls, x)

    w.registry(classify=ask)
    part = Part(max, w.y, k=1)

    def run(tree: Any) -> Any:
        leaves, structure = core.tree_flatten(
            w.hooks.registry, part, True, lambda x: type(x) is dict
        )
        replaced = structure.unflatten([Keywords() if type(x) is dict else x for x in leaves])
        return tree if replaced.func is max else None

    w.run = run
    return static()
