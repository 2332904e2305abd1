"""Classes of nodes whose attributes the core reads and sets by name: each mode, each place."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import core_support
from core_support import (
    Array,
    Box,
    Described,
    Frozen,
    Module,
    Object,
    Pair,
    Slots,
    Variable,
    classify,
    core,
    identical,
    testing,
)
from outcome_support import attempt


def layout(
    dynamic: tuple[str, ...],
    static: tuple[str, ...] = (),
    keys: tuple[Any, ...] | None = None,
    held: tuple[str, ...] = (),
    mode: str = "fill",
    **makers: Callable[[], Any],
) -> tuple[Any, ...]:
    return dynamic, static, keys, held, mode, makers


class Called(Object):
    """Is built by a call, which has a say in its attributes."""

    layout = layout(("x", "y"), ("tag",), mode="call")
    made = 0

    def __init__(self, x: Any, y: Any, tag: Any) -> None:
        Called.made += 1
        super().__init__(x=x, y=y, tag=tag)


@dataclasses.dataclass
class Init:
    """Is built without a call of its ``__init__``, which does nothing but set the attributes."""

    x: Any
    y: Any
    tag: Any
    details = layout(("x", "y"), ("tag",), mode="init")


@dataclasses.dataclass(frozen=True, slots=True)
class InitSlots:
    tag: Any
    x: Any
    y: Any


class Base(Object):
    __slots__ = ("tag", "x")


class Inherited(Base):
    """Has slots of its own and of its base."""

    __slots__ = ("y",)
    layout = layout(("x", "y"), ("tag",))


class Mixed(Object):
    """Has attributes in slots and in the ``__dict__``."""

    __slots__ = ("__dict__", "x")
    layout = layout(("x", "y"), ("tag",))


class MixedMade(Object):
    """Has its fields in the ``__dict__``, and what is made besides in a slot."""

    __slots__ = ("__dict__", "made")
    layout = layout(("x", "y"), ("tag",), made=list)


class HeldMixed(Object):
    """A held mapping, a child beside it, and a held mapping of statics."""

    layout = layout(
        ("items", "x"), ("meta", "tag"), (None, "x", "meta", ("tag",)), ("items", "meta")
    )


class Children(Object):
    """Has no static attribute."""

    __slots__ = ("x",)
    layout = layout(("x",), (), ((0,),))


class Nothing(Object):
    """Has no attribute at all."""

    layout = layout(())


class OnlyStatic(Object):
    __slots__ = ("tag",)
    layout = layout((), ("tag",))


class Partial(functools.partial):  # type: ignore[type-arg]
    """A function and its arguments, as ``jax.tree_util.Partial``."""

    details = layout(("args", "keywords"), ("func",), ((0,), (1,), "func"), mode="partial")


def wide_object(count: int, slots: bool, mode: str = "fill") -> Any:
    names = tuple(f"field{i:02}" for i in range(count))
    space = {"layout": layout(names[:-2], names[-2:], mode=mode)}
    return type("WideObject", (Object,), {**space, **({"__slots__": names} if slots else {})})


WIDE = {(n, slots): wide_object(n, slots) for n in (29, 30, 31, 40) for slots in (False, True)}

_DETAILS: dict[Any, tuple[Any, ...]] = {
    Init: Init.details,
    InitSlots: layout(("x", "y"), ("tag",), mode="init"),
    Partial: Partial.details,
}


def classify_object(cls: type, x: Any) -> tuple[Any, ...]:
    details = _DETAILS.get(cls)
    return classify(cls, x) if details is None else ("object", None, *details)


def flatten_one_level(x: Any) -> tuple[Any, Any]:
    if isinstance(x, Box):
        return core_support.flatten_one_level(x)
    names, static, *_ = x.layout
    return [getattr(x, name) for name in names], tuple([getattr(x, name) for name in static])


def flatten_with_keys(x: Any) -> tuple[Any, ...]:
    if isinstance(x, Box):
        return core_support.flatten_with_keys(x)
    children, aux = flatten_one_level(x)
    return (
        tuple(children),
        aux,
        lambda *parts: _rebuilt(type(x), parts[-1], aux),
        tuple([(i,) for i in range(len(children))]),
    )


def _rebuilt(cls: Any, children: Any, aux: Any) -> Any:
    new = object.__new__(cls)
    dynamic, static, _, _, _, makers = cls.layout
    made = [make() for make in makers.values()]
    names, values = (*dynamic, *static, *makers), (*children, *aux, *made)
    Object.__init__(new, **dict(zip(names, values, strict=True)))
    return new


make_registry = functools.partial(
    core_support.make_registry,
    classify=classify_object,
    flatten_one_level=flatten_one_level,
    flatten_with_keys=flatten_with_keys,
)


def _wide(key: tuple[int, bool]) -> Callable[..., Any]:
    cls = WIDE[key]
    names, static, *_ = cls.layout
    return lambda x, y, tag: cls(
        **{name: (x, y)[i % 2] for i, name in enumerate(names)}, **dict.fromkeys(static, tag)
    )


# Each makes an instance from two children and a static.
MAKE: dict[str, Callable[[Any, Any, Any], Any]] = {
    **{
        cls.__name__: lambda x, y, tag, cls=cls: cls(x=x, y=y, tag=tag)  # type: ignore[misc]
        for cls in (Pair, Slots, Called, Init, InitSlots, Inherited, Mixed)
    },
    "MixedMade": lambda x, y, tag: MixedMade(x=x, y=y, tag=tag, made=[]),
    "Frozen": lambda x, y, tag: Frozen({"b": x, "a": y, "c": tag}),
    "Frozen of numbers": lambda x, y, tag: Frozen({2: x, 1: y, -3: tag}),
    "Frozen of nothing": lambda x, y, tag: [Frozen({}), x, y, tag],
    "Variable": lambda x, y, tag: [Variable(x, tag=tag, other=1), Variable((y,))],
    "HeldMixed": lambda x, y, tag: HeldMixed(items={"k": x}, x=y, meta={"m": tag, "l": 1}, tag=tag),
    "Children": lambda x, y, tag: Children(x=[Children(x=x), y, tag]),
    "Nothing": lambda x, y, tag: [Nothing(), x, y, tag],
    "OnlyStatic": lambda x, y, tag: (OnlyStatic(tag=tag), x, y),
    "Partial": lambda x, y, tag: Partial(max, x, (tag,), key=y),
    "Described": lambda x, y, tag: Described(("x", "y"), x=x, y=[y], tag=tag),
    **{f"Wide {n}{' slots' * slots}": _wide((n, slots)) for n, slots in WIDE},
}


def example(name: str, tag: Any = "tag") -> Any:
    return MAKE[name](Array(1), Array(2), tag)


def attributes(x: Any, static: bool = True) -> tuple[str, ...]:
    """The names of the dynamic and, unless `static` is False, the static attributes."""
    found: Any = x.describe() if isinstance(x, Described) else _DETAILS.get(type(x)) or x.layout
    return (*found[0], *(found[1] if static else ()))


def equivalent(a: Any, b: Any) -> bool:
    """As core_support.same, of all classes of this file."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (Object, Described, Init, InitSlots, Partial)):
        names = attributes(a)
        return names == attributes(b) and all(
            equivalent(getattr(a, name), getattr(b, name)) for name in names
        )
    if isinstance(a, Module):
        return equivalent(vars(a), vars(b))
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(equivalent, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equivalent(a[k], b[k]) for k in a)
    return a is b if isinstance(a, Array) else bool(a == b)


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
    assert identical(outer.flatten_up_to(tree), leaves)
    for node in tree:
        seen: list[Any] = []
        for name in attributes(node, static=False):
            value = getattr(node, name)
            # A held dict stands in the place of the object.
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
