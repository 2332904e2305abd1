"""Places of the hostile matrix in a tree: methods and callbacks of its leaves and nodes."""

import collections
from typing import Any

import core_support as cs
from core_support import Array, Linear, Point, Record, Value
from places import NOTHING, Wide, World, loud_eq, loud_str, place, renewed, static, static_type


@place()
def hash_of_a_static(w: World) -> Any:
    return static(__hash__=lambda self: w.answer(7))


@place()
def eq_of_a_static(w: World) -> Any:
    return renewed(w, loud_eq(w))


@place()
def eq_within_a_tuple(w: World) -> Any:
    loud = loud_eq(w)
    return renewed(w, lambda: (1, (loud(), 2.5)))


@place()
def eq_within_a_set(w: World) -> Any:
    make = static_type(__eq__=lambda self, other: self is other or w.answer(False))
    return renewed(w, lambda: frozenset([make(), make(), make()]))


@place()
def key_of_a_type(w: World) -> Any:
    w.registry(keyed=((Value, lambda v: w.answer([v.value])),))
    return Value(3)


@place()
def key_of_a_kind(w: World) -> Any:
    def classify(cls: type, x: Any) -> Any:
        return ("static", lambda v: w.answer((v.key,))) if cls is cs.Keyed else cs.classify(cls, x)

    w.registry(classify=classify)
    return cs.Keyed(3)


@place()
def classify(w: World) -> Any:
    class New:
        pass

    def ask(cls: type, x: Any) -> Any:
        return w.answer(("static", None)) if cls is New else cs.classify(cls, x)

    w.registry(classify=ask)
    return New()


@place()
def classify_of_a_node(w: World) -> Any:
    class New(Linear):
        pass

    def ask(cls: type, x: Any) -> Any:
        right = cs.classify(cls, x)
        return w.answer(right) if cls is New else right

    w.registry(classify=ask)
    return New(weight=Array(), size=1)


@place()
def truth_of_a_detail(w: World) -> Any:
    class Pair(Point):
        __slots__ = ()

    class Detail:
        def __bool__(self) -> Any:
            return w.answer(True)

    def ask(cls: type, x: Any) -> Any:
        return ("namedtuple", None, Detail()) if cls is Pair else cs.classify(cls, x)

    w.registry(classify=ask)
    return Pair(Array(), 1)


@place()
def subclasscheck(w: World) -> Any:
    class Meta(type):
        def __subclasscheck__(cls, other: type) -> Any:
            return w.answer(False)

    class Abstract(metaclass=Meta):
        pass

    def ask(cls: type, x: Any) -> Any:
        return ("array",) if issubclass(cls, Abstract) else cs.classify(cls, x)

    w.registry(classify=ask)
    return static()


@place()
def instancecheck(w: World) -> Any:
    class Meta(type):
        def __instancecheck__(cls, other: Any) -> Any:
            return w.answer(False)

    class Abstract(metaclass=Meta):
        pass

    w.registry(is_array=lambda x: isinstance(x, Abstract) or cs.is_array(x))
    return cs.Maybe(False)


@place()
def class_that_lies(w: World) -> Any:
    lie = property(lambda self: w.answer(list))
    cls = type("Liar", (cs.Maybe,), {"__class__": lie})
    w.registry(is_array=lambda x: isinstance(x, tuple) or x.traced)
    return cls(True)


@place()
def is_array(w: World) -> Any:
    w.registry(is_array=lambda x: w.answer(True))
    return cs.Maybe(True)


@place()
def truth_of_is_array(w: World) -> Any:
    class Truth:
        def __bool__(self) -> Any:
            return w.answer(True)

    w.registry(is_array=lambda x: Truth())
    return cs.Maybe(True)


@place()
def flatten_one_level(w: World) -> Any:
    w.registry(flatten_one_level=lambda x: w.answer(cs.flatten_one_level(x)))
    return cs.Box([Array(), 1], aux=2)


@place()
def flatten_with_keys(w: World) -> Any:
    w.registry(flatten_with_keys=lambda x: w.answer(cs.flatten_with_keys(x)))
    return cs.Box([Array(), 1], aux=2)


@place()
def children_of_flatten_one_level(w: World) -> Any:
    def children(x: Any) -> Any:
        yield x.children[0]
        given = w.hook()
        yield x.children[1] if given is NOTHING else given

    w.registry(flatten_one_level=lambda x: (children(x), x.aux))
    return cs.Box([Array(), 1], aux=2)


@place()
def eq_of_aux(w: World) -> Any:
    loud = loud_eq(w)
    return renewed(w, lambda: cs.Box([Array(), 1], aux=loud()))


@place()
def hash_of_aux(w: World) -> Any:
    return cs.Box([Array(), 1], aux=static(__hash__=lambda self: w.answer(3)))


@place()
def field_of_a_dataclass(w: World) -> Any:
    def read(self: Any) -> Any:
        return w.answer(self.__dict__["data"])

    loud = property(read, lambda self, x: self.__dict__.update(data=x))
    return type("LoudRecord", (Record,), {"data": loud})(Array(), 1, 2)


@place()
def field_of_a_module(w: World) -> Any:
    """A static is in the first of many fields."""
    loud = loud_eq(w)
    fields = {name: [name] for name in Wide.dynamic}
    return renewed(w, lambda: Wide(**{**fields, Wide.dynamic[0]: loud()}))


@place()
def names_of_attributes(w: World) -> Any:
    name = loud_str(w, "__eq__")
    module = Linear(size=1)
    module.__dict__ = {name("weight"): w.y, "bias": None, name("size"): 1, "activation": 2}
    return module


@place()
def eq_of_keys(w: World) -> Any:
    key = loud_str(w, "__eq__")
    return renewed(w, lambda: {key("a"): w.y, key("b"): 1})


@place()
def order_of_keys(w: World) -> Any:
    key = loud_str(w, "__lt__")
    return {key("b"): w.y, key("a"): 1}


@place()
def keys_of_an_ordered_dict(w: World) -> Any:
    key = static_type(__eq__=lambda self, other: self is other or w.answer(True))
    return renewed(w, lambda: collections.OrderedDict([(key(), w.y), ("a", 1)]))


@place()
def eq_of_a_default_factory(w: World) -> Any:
    loud = {"__eq__": lambda self, other: w.answer(True), "__call__": lambda self: None}
    factory = static_type(**loud)
    w.run = lambda tree: (w.f(tree), tree)[1]  # the result has the factory of the variant
    return renewed(w, lambda: collections.defaultdict(factory(), a=w.y))


@place()
def new_of_a_named_tuple(w: World) -> Any:
    def new(cls: Any, x: Any, y: Any) -> Any:
        return w.answer(tuple.__new__(cls, (x, y)))

    cls = type("LoudPair", (Point,), {"__new__": new, "__slots__": ()})
    w.registry(classify=lambda c, x: ("namedtuple", None, False) if c is cls else cs.classify(c, x))
    return cls(w.y, 1)


@place()
def init_of_a_dataclass(w: World) -> Any:
    def init(self: Any, data: Any, other: Any, tag: Any) -> Any:
        given = w.hook()
        Record.__init__(self, data, other, tag)
        return None if given is NOTHING else given

    return type("LoudRecord", (Record,), {"__init__": init})(w.y, 1, 2)


@place()
def unflatten_of_a_node(w: World) -> Any:
    class LoudBox(cs.Box):
        def __new__(cls, *args: Any) -> Any:
            return w.answer(object.__new__(cls))

    return LoudBox([w.y, 1], 2)


@place()
def descriptor_of_a_module(w: World) -> Any:
    def store(self: Any, x: Any) -> None:
        w.hook()
        self.__dict__["weight"] = x

    loud = property(lambda self: self.__dict__["weight"], store)
    return type("LoudLinear", (Linear,), {"weight": loud})(weight=w.y, size=1)


@place()
def setitem_of_an_ordered_dict(w: World) -> Any:
    def setitem(self: Any, key: Any, value: Any) -> None:
        w.hook()
        collections.OrderedDict.__setitem__(self, key, value)

    cls = type("LoudDict", (collections.OrderedDict,), {"__setitem__": setitem})
    w.registry(classify=lambda c, x: ("ordered_dict",) if c is cls else cs.classify(c, x))
    return cls(a=w.y, b=1)
