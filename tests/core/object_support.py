"""Checks of objects: nodes whose attributes the core reads and sets by name."""

from collections.abc import Callable
from typing import Any

from core_support import Array, Described, Object, core, identical, layout, testing
from outcome_support import attempt


def attributes(x: Any, static: bool = True) -> tuple[str, ...]:
    """The names of the dynamic and, unless `static` is False, the static attributes."""
    found: Any = x.describe() if isinstance(x, Described) else x.layout
    return (*found[0], *(found[1] if static else ()))


def check_walks(registry: Any, structure: Any, tree: Any) -> None:
    """The walks agree on a tree that may have changed, and so does `getattr`."""
    flat = attempt(core.flatten, registry, tree)
    match = attempt(testing.match, structure, tree)
    if isinstance(flat, Exception):
        # A match may end at an earlier difference.
        assert match is None or type(match) is type(flat), (flat, match)
        return
    assert not isinstance(match, Exception), match
    arrays, other = flat
    assert (match is not None) == (other == structure), (match, other, structure)
    assert match is None or identical(match, arrays)
    leaves, outer = core.tree_flatten(registry, tree, True, None)
    assert identical(outer._subtrees(tree), leaves)
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
