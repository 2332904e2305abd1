"""Trees of every kind of node, classes of nodes for particular tests, and checks and changes of objects:
nodes whose attributes the core reads and sets by name. core_support.py has the ordinary classes."""

import collections
import dataclasses
import functools
import random
from collections.abc import Callable
from typing import Any

import core_support as cs
from core_support import Array, Box, Described, Frozen, Linear, Module, Object, Record, core, layout
from outcome_support import attempt, nothing


class OtherLinear(Module):
    """Has the fields of Linear, and another type."""

    dynamic = Linear.dynamic
    static = Linear.static


def wide(count: int) -> Any:
    """A class of Modules with `count` fields of arrays.

    Instances share at most 30 keys in CPython, and the core reads at most FJ_FIELDS_INLINE
    fields, which are as many, into an array on the stack.
    """
    return type("Wide", (Module,), {"dynamic": tuple(f"field{i:02}" for i in range(count))})


class WithDescriptor(Module):
    """The field `weight` is a data descriptor, so instances are built field by field."""

    dynamic = ("weight",)
    static = ("size",)
    weight = property(
        lambda self: self.__dict__["weight"], lambda self, x: self.__dict__.update(weight=x)
    )


class LoudStr(str):
    """A str that calls the hook of its class when it is compared."""

    hook: Callable[[], Any] = staticmethod(nothing)
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        LoudStr.hook()
        return str.__eq__(self, other)


class Ambiguous:
    """An answer that is neither true nor false, as an array of several elements is."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


@dataclasses.dataclass
class InitDataclass:
    """Is built without a call of its ``__init__``, which does nothing but set the attributes."""

    x: Any
    y: Any
    tag: Any
    layout = layout(("x", "y"), ("tag",), mode="init")


@dataclasses.dataclass(frozen=True, slots=True)
class InitSlots:
    tag: Any
    x: Any
    y: Any
    layout = layout(("x", "y"), ("tag",), mode="init")


class Mixed(Object):
    """Has attributes in slots and in the ``__dict__``."""

    __slots__ = ("__dict__", "x")
    layout = layout(("x", "y"), ("tag",))


class HeldMixed(Object):
    """A dict field, a child beside it, and a dict field of statics."""

    layout = layout(
        ("items", "x"), ("meta", "tag"), (None, "x", "meta", ("tag",)), ("items", "meta")
    )


def object_class(
    details: tuple[Any, ...], slots: tuple[str, ...] | None = None, base: Any = Object
) -> Any:
    """A class with this layout, whose instances have these slots or a ``__dict__``."""
    space = {} if slots is None else {"__slots__": slots}
    return type("Kind", (base,), {"layout": details, **space})


XY_TAG = layout(("x", "y"), ("tag",))
# Has slots of its own and of its base.
Inherited = object_class(XY_TAG, ("y",), object_class(XY_TAG, ("tag", "x")))
# Has its fields in the ``__dict__``, and what is made besides in a slot.
MixedMade = object_class(layout(("x", "y"), ("tag",), made=list), ("__dict__", "made"))
Children = object_class(layout(("x",), (), ((0,),)), ("x",))  # has no static attribute
OnlyStatic = object_class(layout((), ("tag",)), ("tag",))
Nothing = object_class(layout(()))
NothingInSlots = object_class(layout(()), ())
InitNothing = object_class(layout((), mode="init"), ())


def wide_object(count: int, slots: bool) -> Any:
    names = tuple(f"field{i:02}" for i in range(count))
    return object_class(layout(names[:-2], names[-2:]), names if slots else None)


class Init(cs.Slots):
    """Is built without its ``__init__`` as long as the class does not change."""

    __slots__ = ()
    layout = layout(("x", "y"), ("tag",), ("x", (1,), "tag"), mode="init")


class Called(cs.Pair):
    """Is built by a call, which has a say in its attributes."""

    layout = layout(("x", "y"), ("tag",), mode="call")


# ---- trees ----


def children(x: Any) -> list[tuple[Any, Any]] | None:
    """Returns (key, child) of each child of a node, or None for a leaf."""
    if x is None:
        return []
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return list(zip(x._fields, x, strict=True))
    if type(x) in (tuple, list):
        return list(enumerate(x))
    if isinstance(x, dict):
        return [(k, x[k]) for k in (x if type(x) is collections.OrderedDict else sorted(x))]
    if isinstance(x, Module):
        return [(k, getattr(x, k)) for k in x.dynamic if hasattr(x, k)]
    if hasattr(type(x), "layout"):
        names, _, keys, dict_fields, *_ = x.layout
        found: list[tuple[Any, Any]] = []
        for name, key in zip(names, keys or names, strict=False):
            value = getattr(x, name)
            if name in dict_fields:
                found += sorted(value.items())
            else:
                found.append((key[0] if isinstance(key, tuple) else key, value))
        return found
    if isinstance(x, Described):
        return [(name, getattr(x, name)) for name in sorted(x.nodes)]
    if isinstance(x, Record):
        return [("data", x.data), ("other", x.other)]
    return list(enumerate(x.children)) if isinstance(x, Box) else None


def _factory() -> int:
    return 0


_Wide = wide(40)
WIDE = {(n, slots): wide_object(n, slots) for n in (29, 30, 31, 40) for slots in (False, True)}


def _wide(key: tuple[int, bool]) -> Callable[..., Any]:
    cls = WIDE[key]
    names, static, *_ = cls.layout
    return lambda x, y, tag: cls(
        **{name: (x, y)[i % 2] for i, name in enumerate(names)}, **dict.fromkeys(static, tag)
    )


# Each makes an instance from two children and a static.
OBJECTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    **{
        cls.__name__: lambda x, y, tag, cls=cls: cls(x=x, y=y, tag=tag)  # type: ignore[misc]
        for cls in (cs.Pair, cs.Slots, Called, Init, InitDataclass, InitSlots, Mixed)
    },
    "Inherited": lambda x, y, tag: Inherited(x=x, y=y, tag=tag),
    "MixedMade": lambda x, y, tag: MixedMade(x=x, y=y, tag=tag, made=[]),
    "Frozen": lambda x, y, tag: Frozen({"b": x, "a": y, "c": tag}),
    "Frozen of numbers": lambda x, y, tag: Frozen({2: x, 1: y, -3: tag}),
    "Frozen of nothing": lambda x, y, tag: [Frozen({}), x, y, tag, 1],
    "Variable": lambda x, y, tag: [cs.Variable(x, tag=tag, other=1), cs.Variable((y,))],
    "HeldMixed": lambda x, y, tag: HeldMixed(items={"k": x}, x=y, meta={"m": tag, "l": 1}, tag=tag),
    "Children": lambda x, y, tag: Children(x=[Children(x=x), y, tag]),
    "Nothing": lambda x, y, tag: [Nothing(), x, y, tag, 2],
    "NothingInSlots": lambda x, y, tag: [NothingInSlots(), x, InitNothing(), y, tag, 2, 3],
    "OnlyStatic": lambda x, y, tag: [OnlyStatic(tag=tag), x, y],
    "Part": lambda x, y, tag: cs.Part(max, x, (tag,), key=y),
    "Described": lambda x, y, tag: Described(("x", "y"), x=x, y=[y], tag=tag),
    **{f"Wide {n}{' slots' * slots}": _wide((n, slots)) for n, slots in WIDE},
}

# Each makes a tree with up to three arrays.
TREES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "array": lambda x, y, z: x,
    "other_array": lambda x, y, z: cs.OtherArray(),
    "maybe_array": lambda x, y, z: cs.Maybe(True),
    "maybe_static": lambda x, y, z: cs.Maybe(False),
    "static": lambda x, y, z: "text",
    "none": lambda x, y, z: None,
    "tuple": lambda x, y, z: (x, 1, y),
    "tuple_of_nones": lambda x, y, z: (None, (None,)),
    "constant_tuple": lambda x, y, z: (x, 1, (2, "a"), None),
    "empty_tuple": lambda x, y, z: (),
    "list": lambda x, y, z: [x, "a", [y, None, 2.5, []]],
    "list_of_leaves": lambda x, y, z: [1, 1.5, x, y, "a", cs.Maybe(False)],
    "empty_list": lambda x, y, z: [],
    "dict": lambda x, y, z: {"b": x, "a": {"k": y}, "c": 1},
    "empty_dict": lambda x, y, z: {},
    "number_keys": lambda x, y, z: {2: x, 1: {3.5: y}},
    "ordered_dict": lambda x, y, z: collections.OrderedDict([("b", x), ("a", 2)]),
    "default_dict": lambda x, y, z: collections.defaultdict(_factory, b=x, a=y),
    "default_dict_none": lambda x, y, z: collections.defaultdict(None, a=y),
    "namedtuple": lambda x, y, z: cs.Point(x, 2),
    "loud_namedtuple": lambda x, y, z: cs.LoudPoint(x, 2),
    "module": lambda x, y, z: Linear(weight=x, bias=[y], size=3, activation=len),
    "wrapper_module": lambda x, y, z: Linear(bias=y, size=[1, {"k": 2}], __name__="f"),
    "wide_module": lambda x, y, z: _Wide(**dict.fromkeys(_Wide.dynamic, x)),
    "descriptor_module": lambda x, y, z: WithDescriptor(weight=x, size=(1, cs.Value(2))),
    "dataclass": lambda x, y, z: Record(x, [y], ("a", frozenset([1, 2]))),
    "partial_of_a_partial": lambda x, y, z: cs.Part(functools.partial(max, key=1), x),
    "custom": lambda x, y, z: Box([x, (y, 2)], aux=("aux", 1)),
    "custom_empty": lambda x, y, z: Box([]),
    "deep": lambda x, y, z: (
        {"k": [cs.Point(x, Record(y, z, 0))]},
        Linear(weight=(x, x), bias=None),
    ),
    "mixed": lambda x, y, z: [[1, 2], 3, ([x, y], ([z],), [[], 4]), [None, 5], [6, 7]],
    "shared": lambda x, y, z: [x] * 4,
    **{
        name: lambda x, y, z, make=make: make(x, [y], cs.Value("tag"))  # type: ignore[misc]
        for name, make in OBJECTS.items()
    },
}


def trees() -> dict[str, Any]:
    x, y, z = (Array(i) for i in range(3))
    return {name: make(x, y, z) for name, make in TREES.items()}


def _leaf(source: random.Random) -> Any:
    return source.choice((Array(), cs.Value(source.random()), None))


def random_tree(
    source: random.Random, depth: int = 4, leaf: Callable[[random.Random], Any] = _leaf
) -> Any:
    """All leaves are different objects, except for None; a Variable has the path of its value."""
    below = lambda: random_tree(source, depth - 1, leaf)
    few = range(source.randrange(5))
    kind = source.randrange(20) if depth else source.randrange(3)
    if kind <= 2:
        return leaf(source)
    if kind <= 5:
        return [below() for _ in few]
    if kind <= 7:
        return tuple([below() for _ in few])
    if kind == 8:
        return [Array() for _ in range(source.randrange(1, 30))]
    if kind <= 10:
        items = {key: below() for key in source.choice(_KEYS)[: len(few)]}
        return source.choice((dict, collections.OrderedDict, _default_dict))(items)
    return (
        lambda: Linear(weight=below(), bias=below(), size=3),
        lambda: Linear(**{name: below() for name in Linear.dynamic[: len(few)]}),
        lambda: source.choice((cs.Point, cs.LoudPoint))(below(), below()),
        lambda: Record(below(), below(), "tag"),
        lambda: Box([below() for _ in few], aux="aux"),
        lambda: cs.Slots(x=below(), y=below(), tag="tag"),
        lambda: Frozen({f"k{i}": below() for i in reversed(few)}),
        lambda: cs.Variable(below(), kind="kind"),
        lambda: Described(("x", "y"), x=below(), y=below(), z=1),
    )[kind - 11]()


_KEYS: list[list[Any]] = [["k3", "k0", "k2", "k1"], [0, True, 2.0, -1], ["k1", "k0"]]
_default_dict = functools.partial(collections.defaultdict, int)


# ---- the tree functions that are Python ----


def tree_leaves(registry: Any, tree: Any, is_leaf: Any) -> list[Any]:
    return core.tree_flatten(registry, tree, True, is_leaf)[0]  # type: ignore[no-any-return]


def tree_paths(registry: Any, tree: Any, is_leaf: Any) -> list[str]:
    return list(core.tree_flatten(registry, tree, True, is_leaf)[1].paths)


def parts_of(structure: Any, hole: Any) -> tuple[Any, tuple[Any, ...]]:
    """What `core.from_skeleton` makes the structure of again."""
    return structure._skeleton(hole), structure._leaves(hole)


def partition_dict(
    registry: Any, tree: Any, candidates: Any, expressions: tuple[Any, ...], is_leaf: Any
) -> tuple[Any, ...]:
    """What `filterjit.partition_dict` does."""
    leaves, structure, groups = core.tree_groups(registry, tree, candidates, expressions, is_leaf)
    parts: list[dict[str, Any]] = [{} for _ in range(len(expressions) + 1)]
    for path, leaf, group in zip(structure.paths, leaves, groups, strict=True):
        parts[group][path] = leaf
    return structure, *parts


# ---- objects that change ----


def attributes(x: Any, static: bool = True) -> tuple[str, ...]:
    """The names of the dynamic and, unless `static` is False, the static attributes."""
    found: Any = x.describe() if isinstance(x, Described) else x.layout
    return (*found[0], *(found[1] if static else ()))


def check_walks(registry: Any, structure: Any, tree: Any) -> None:
    """The walks agree on a tree that may have changed, and so does `getattr`."""
    flat = attempt(core.flatten, registry, tree)
    match = attempt(cs.testing.match, structure, tree)
    if isinstance(flat, Exception):
        # A match may end at an earlier difference.
        assert match is None or type(match) is type(flat), (flat, match)
        return
    assert not isinstance(match, Exception), match
    arrays, other = flat
    assert (match is not None) == (other == structure), (match, other, structure)
    assert match is None or cs.identical(match, arrays)
    leaves, outer = core.tree_flatten(registry, tree, True, None)
    assert cs.identical(outer._subtrees(tree), leaves)
    for node in tree:
        seen: list[Any] = []
        for name in attributes(node, static=False):
            value = getattr(node, name)
            # A dict field stands in the place of the object.
            seen += value.values() if type(value) is dict else [value]
        found = [x for x in seen if isinstance(x, Array)]
        assert all(any(x is y for y in arrays) for x in found)


NAMES = ("x", "y", "tag")
SPACES: dict[str, dict[str, Any]] = {
    "dict": {},
    "slots": {"__slots__": NAMES},
    "slots and dict": {"__slots__": ("__dict__", "spare", *NAMES)},
    "dict and a slot": {"__slots__": ("__dict__", "spare")},
    "mixed": {"__slots__": ("__dict__", "spare", "x")},
}


def new_class(space: str, mode: str = "fill") -> Any:
    meta = type("Meta", (type,), {})
    details = {"layout": layout(("x", "y"), ("tag",), mode=mode)}
    return meta("Changing", (Object,), {**details, **SPACES[space]})


# ---- changes of a class, and of an instance ----


class _Loud:
    """A data descriptor."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        return "loud" if instance is not None else self

    def __set__(self, instance: Any, value: Any) -> None:
        pass


class _Base(Object):
    __slots__ = ()
    tag = property(lambda self: "of the base")


def _property(cls: Any) -> None:
    old = cls.__dict__.get("x")
    cls.x = property(lambda self: (old.__get__(self) if old else self.__dict__["x"], 1))


def _getattribute(cls: Any) -> None:
    cls.__getattribute__ = lambda self, name: (
        "changed" if name == "tag" else object.__getattribute__(self, name)
    )


def _swapped(cls: Any) -> None:
    """Each slot is found by the other's name."""
    if "x" in cls.__dict__ and "y" in cls.__dict__:
        cls.x, cls.y = cls.y, cls.x


GIVEN = Array("given")
CLASS_CHANGES: dict[str, Callable[[Any], Any]] = {
    "property": _property,
    "constant property": lambda cls: setattr(
        cls, "x", property(lambda self: GIVEN, lambda self, value: None)
    ),
    "getattribute": _getattribute,
    "getattr": lambda cls: setattr(cls, "__getattr__", lambda self, name: f"no {name}"),
    "another attribute": lambda cls: setattr(cls, "default", Array("default")),
    "descriptor": lambda cls: setattr(cls, "tag", _Loud()),
    "swapped": _swapped,
    "another slot": lambda cls: "spare" in cls.__dict__ and setattr(cls, "x", cls.spare),
    "no slot": lambda cls: "x" in cls.__dict__ and delattr(cls, "x"),
    "bases": lambda cls: setattr(cls, "__bases__", (_Base,)),
    "metaclass": lambda cls: setattr(type(cls), "x", Array("of the metaclass")),
}


def _other_order(x: Any) -> None:
    items = list(x.__dict__.items())
    x.__dict__.clear()
    x.__dict__.update(reversed(items))


def _other_class(x: Any) -> None:
    space = next(s for s in SPACES.values() if s.get("__slots__") == vars(type(x)).get("__slots__"))
    x.__class__ = type("Other", type(x).__bases__, {**space, "layout": type(x).layout})


INSTANCE_CHANGES: dict[str, Callable[[Any], Any]] = {
    "one deleted": lambda x: delattr(x, "x"),
    "all deleted": lambda x: [delattr(x, name) for name in NAMES],
    "one more": lambda x: setattr(x, "extra", 1),
    "another dict": lambda x: setattr(x, "__dict__", dict(x.__dict__, x=Array("new"))),
    "dict of a subclass": lambda x: setattr(
        x, "__dict__", type("D", (dict,), {"__getitem__": lambda self, key: 1})(x.__dict__)
    ),
    "odd names": lambda x: setattr(
        x, "__dict__", {type("S", (str,), {})(k): v for k, v in x.__dict__.items()}
    ),
    "another order": _other_order,
    "a number in the dict": lambda x: x.__dict__.update({1: 2}),
    "shadowed": lambda x: x.__dict__.update(x=Array("shadow"), tag="shadow"),
    "another class": _other_class,
    "subclass": lambda x: setattr(x, "__class__", type("Sub", (type(x),), {"__slots__": ()})),
}
