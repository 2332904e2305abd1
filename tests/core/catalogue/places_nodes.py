"""Places of the hostile matrix in a tree: methods and callbacks of its leaves and nodes."""

import collections
import copy
import functools
from collections.abc import Callable
from typing import Any

import core_support as cs
from core_support import Array, Described, Frozen, Keyed, Linear, Maybe, Pair, Record, Slots, core
from places import NOTHING, Static, Wide, World, call_it, compare, place

# ---- a static with an `__eq__` or a `__hash__`, in each place ----

STATICS: dict[str, Callable[[World, Any], Any]] = {
    "a static": lambda w, loud: loud,
    "a tuple": lambda w, loud: (1, (loud, 2.5)),
    "the first of many fields": lambda w, loud: Wide(
        **{name: [name] for name in Wide.dynamic} | {"field00": loud}
    ),
    "aux data": lambda w, loud: cs.Box([w.y, 1], aux=loud),
    "a static field": lambda w, loud: Linear(weight=w.y, size=loud),
    "a field of a dataclass": lambda w, loud: Record(w.y, 1, loud),
    "a field of an object": lambda w, loud: Slots(x=w.y, y=[Array()], tag=loud),
    "a dict field": lambda w, loud: cs.Variable(w.y, kind=loud, other=1),
    "a described type": lambda w, loud: Described(("x",), x=w.y, y=loud),
    "the keys of an ordered dict": lambda w, loud: collections.OrderedDict([(loud, w.y), ("a", 1)]),
    "a default factory": lambda w, loud: collections.defaultdict(loud, a=w.y),
}
for _name, _make in STATICS.items():
    # The result has the factory of the variant.
    _run = call_it if _name == "a default factory" else None
    _eq = lambda w, make=_make: make(w, w.loud(Static, "__eq__")())
    place(f"eq in {_name}", _eq, run=_run, fresh=True)
    if _name not in ("a static", "a tuple", "the first of many fields"):  # which are leaves
        place(f"eq in {_name} in _subtrees", _eq, run=compare, fresh=True)
    if _name in ("a static", "aux data"):
        place(f"hash in {_name}", lambda w, make=_make: make(w, w.loud(Static, "__hash__")()))

# ---- a key or name that is compared ----


class Told(Described):
    def describe(self) -> Any:
        return ("x",), ("nodes", "y"), None


def with_dict(x: Any, attributes: dict[str, Any]) -> Any:
    x.__dict__ = attributes
    return x


KEYS: dict[str, Callable[[World, Any], Any]] = {
    "keys": lambda w, key: {key("a"): w.y, key("b"): 1},
    "the keys of a dict field": lambda w, key: Frozen({key("b"): w.y, key("a"): 1}),
    "the names of a module": lambda w, key: with_dict(
        Linear(), {key("weight"): w.y, "bias": None, key("size"): 1, "activation": 2}
    ),
    "the names of a described type": lambda w, key: with_dict(
        Told(), {key("x"): w.y, "nodes": ("x",), key("y"): 2}
    ),
}
for _name, _make in KEYS.items():
    _run = call_it if "described" in _name else None
    _eq = lambda w, make=_make: make(w, w.loud(str, "__eq__"))
    place(f"eq in {_name}", _eq, run=_run, fresh=True)

# ---- methods and attributes of nodes ----


class Unique(Static):
    """Equal to nothing else."""

    __hash__ = Static.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class NewPoint(cs.Point):
    __slots__ = ()


class NewDict(collections.OrderedDict[Any, Any]):
    pass


class NewBox(cs.Box):
    def __new__(cls, *args: Any) -> Any:
        return object.__new__(cls)


class WithGetattr(Slots):
    """Its slot is empty, so the class is asked."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return 3 if name == "y" else object.__getattribute__(self, name)


class Description(tuple[Any, ...]):
    __slots__ = ()


class Changed(Pair):
    layout = (*Pair.layout[:4], "init", {})


def init_that_was_plain(w: World) -> Any:
    """The call that fills in the attributes has changed since the class was classified."""
    loud = type("Loud", (Changed,), {})
    changed = loud(x=w.y, y=[Array()], tag=1)
    assert w.hooks.registry.kind(changed) == "object"
    loud.__init__ = w.loud(Changed, "__init__").__init__  # type: ignore[misc]
    return changed


def maker_of_an_object(w: World) -> Any:
    details = {**Frozen.layout[-1], "other": lambda: w.answer(1)}
    cls = type("LoudFrozen", (Frozen,), {"layout": (*Frozen.layout[:-1], details)})
    return cls({"b": w.y, "a": 1})


def comparing_descriptions(w: World) -> Any:
    cls = w.loud(w.loud(Description, "__hash__"), "__eq__")
    told = lambda self: cls(Described.describe(self) or ())
    return type("Told", (Described,), {"describe": told})(("x",), x=w.y, y=2)


def three_in_a_set(w: World) -> Any:
    return frozenset([w.loud(Unique, "__eq__")() for _ in range(3)])


place("eq_within_a_set", three_in_a_set, fresh=True)
place("order_of_keys", lambda w: {w.loud(str, "__lt__")(key): w.y for key in "ba"})
place("init_of_a_dataclass", lambda w: w.loud(Record, "__init__")(w.y, 1, 2))
place("unflatten_of_a_node", lambda w: w.loud(NewBox, "__new__")([w.y, 1], 2))
place("new_of_a_named_tuple", lambda w: w.loud(NewPoint, "__new__")(w.y, 1),
    kind=(NewPoint, lambda w: {"kind": "namedtuple"}))  # fmt: skip
place("setitem_of_an_ordered_dict", lambda w: w.loud(NewDict, "__setitem__")(a=w.y, b=1),
    kind=(NewDict, lambda w: {"kind": "ordered_dict"}))  # fmt: skip
place("getattribute_of_an_object", lambda w: w.loud(Slots, "__getattribute__")(x=w.y, y=[], tag=1))
place("getattr_of_an_object", lambda w: w.loud(WithGetattr, "__getattr__")(x=w.y, tag=1),
    run=call_it)  # fmt: skip
place("field_of_a_dataclass", lambda w: w.loud_field(Record, "data")(Array(), 1, 2))
place("field_of_an_object", lambda w: w.loud_field(Pair, "x")(x=w.y, y=[Array()], tag=1))
place("dict_field_of_an_object", lambda w: w.loud_field(Frozen, "items")({"b": w.y, "a": [1]}))
place("setter_of_a_module", lambda w: w.loud_field(Linear, "weight", True)(weight=w.y, size=1))
place("setter_of_an_object", lambda w: w.loud_field(Pair, "y", True)(x=w.y, y=[Array()], tag=1))
place("setter_of_what_is_made", lambda w: w.loud_field(Frozen, "made", True)({"b": w.y, "a": 1}))
place("maker_of_an_object", maker_of_an_object)
place("init_that_was_plain", init_that_was_plain)
place("describe", lambda w: w.loud(Described, "describe")(("x",), x=w.y, y=2, z=[Array()]))
place("comparing_descriptions", comparing_descriptions)

# ---- what the registry asks ----


class New(Static):
    pass


class Truth:
    def __bool__(self) -> bool:
        return True


class Part(functools.partial):  # type: ignore[type-arg]
    pass


class Keywords:
    """A leaf in the place of the keywords of a partial: it is asked for its items."""

    def keys(self) -> Any:
        return ["k"]

    def __getitem__(self, key: Any) -> Any:
        return 1


def box(w: World) -> Any:
    return cs.Box([Array(), 1], aux=2)


def children(w: World, x: Any) -> Any:
    yield x.children[0]
    given = w.hook()
    yield x.children[1] if given is NOTHING else given


def abstract(w: World, method: str) -> Any:
    """A class that is asked which other classes or instances are its own."""
    return w.once(method, lambda: w.loud(type, method)("Abstract", (), {}))


def classify_by_base(w: World, cls: type, x: Any) -> Any:
    base = abstract(w, "__subclasscheck__")
    return {"kind": "array"} if issubclass(cls, base) else cs.classify(cls, x)


def parts(x: Any) -> Any:
    return (x.items, 1), "aux"


def parts_with_keys(x: Any) -> Any:
    return (*parts(x), lambda *given: Frozen(given[-1][0]), ((0,), (1,)))


PAIR = cs.object_of(Pair.layout)
PARTIAL = cs.object_of(cs.layout(("args", "keywords"), ("func",), mode="partial"))


def mapping_of_a_partial(w: World, tree: Any) -> Any:
    part, is_leaf = Part(max, w.y, k=1), lambda x: type(x) is dict
    leaves, structure = core.tree_flatten(w.hooks.registry, part, True, is_leaf)
    keywords = w.loud(w.loud(Keywords, "keys"), "__getitem__")()
    replaced = structure.unflatten([keywords if is_leaf(x) else x for x in leaves])
    return tree if replaced.func is max else None


# A part of the registry, and the leaf or node for which it is asked.
REGISTRY: dict[str, tuple[Callable[[World], Any], Callable[[World], dict[str, Any]]]] = {
    "flatten_one_level": (box, lambda w: {"flatten_one_level": w.after(cs.flatten_one_level)}),
    "flatten_with_keys": (box, lambda w: {"flatten_with_keys": w.after(cs.flatten_with_keys)}),
    "children_of_flatten_one_level": (box,
        lambda w: {"flatten_one_level": lambda x: (children(w, x), x.aux)}),
    "functions_of_an_object_that_holds_no_dict": (
        lambda w: Frozen([w.y]),
        lambda w: {
            "flatten_one_level": w.after(parts),
            "flatten_with_keys": w.after(parts_with_keys),
        },
    ),
    "is_array": (lambda w: Maybe(True), lambda w: {"is_array": w.after(cs.is_array)}),
    "truth_of_is_array": (lambda w: Maybe(True),
        lambda w: {"is_array": lambda x: w.loud(Truth, "__bool__")()}),
    "subclasscheck": (lambda w: Static(),
        lambda w: {"classify": lambda cls, x: classify_by_base(w, cls, x)}),
    "instancecheck": (
        lambda w: Maybe(False),
        lambda w: {
            "is_array": lambda x: isinstance(x, abstract(w, "__instancecheck__")) or cs.is_array(x)
        },
    ),
    "class_that_lies": (
        lambda w: type("Liar", (Maybe,), {"__class__": property(lambda x: w.answer(list))})(True),
        lambda w: {"is_array": lambda x: isinstance(x, tuple) or x.traced},
    ),
    "key_of_a_type": (lambda w: cs.Value(3),
        lambda w: {"keyed": ((cs.Value, lambda v: w.answer([v.value])),)}),
}  # fmt: skip
for _name, (_trap, _registry) in REGISTRY.items():
    place(_name, _trap, registry=_registry)
place("flatten_one_level in _subtrees", box,
    registry=lambda w: {"flatten_one_level": w.after(cs.flatten_one_level)},
    run=compare)  # fmt: skip

# What `classify` says of the type of a leaf or node.
KINDS: dict[str, tuple[Any, Callable[[World], Any]]] = {
    "key_of_a_kind": (Keyed(3), lambda w: cs.static(lambda v: w.answer((v.key,)))),
    "key_of_a_fixed_type": (Keyed(3), lambda w: cs.static(lambda v: w.answer((v.key,)), True)),
    "whether_a_value_is_fixed": (Keyed(3),
        lambda w: cs.static(lambda v: 1, lambda v: w.answer(True))),
    "classify": (New(), lambda w: w.answer(cs.static())),
    "classify_of_a_node": (Linear(weight=Array(), size=1),
        lambda w: w.after(cs.classify)(Linear, None)),
    "details_of_an_object": (Pair(x=Array(), y=1, tag=2), lambda w: w.answer(PAIR)),
    "names_that_are_dict_fields": (Pair(x=Array(), y=1, tag=2),
        lambda w: PAIR | {"dict_fields": (w.loud(str, "__eq__")("none"),)}),
    "truth_of_a_detail": (NewPoint(Array(), 1),
        lambda w: {"kind": "namedtuple", "fill_directly": w.loud(Truth, "__bool__")()}),
    "registered_function": (  # it is called straight
        cs.Box([Array(), 1], aux=2),
        lambda w: {"kind": "custom", "flatten": w.after(cs.flatten_one_level)},
    ),
}  # fmt: skip
for _name, (_leaf, _told) in KINDS.items():
    _trap = lambda w, leaf=_leaf: copy.copy(leaf)
    place(_name, _trap, kind=(type(_leaf), _told), fresh="fixed_type" in _name)
place("mapping_of_a_partial", lambda w: Static(), kind=(Part, lambda w: PARTIAL),
    run=mapping_of_a_partial)  # fmt: skip
