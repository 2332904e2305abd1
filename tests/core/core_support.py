"""The C core for its tests, with ordinary leaves and nodes.

This file imports neither JAX nor the package ``filterjit``: it loads the extensions by their paths.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import importlib.machinery
import importlib.util
import os
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, ClassVar, NamedTuple

# Without a GIL, the core asks for what it otherwise reads by address.
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

# ---- the extension modules ----


_SOURCE = Path(__file__).parents[2] / "python" / "filterjit"


def _folders() -> Iterator[Path]:
    """The folders of the extensions: a build folder, or the source tree and the package."""
    if given := os.environ.get("FILTERJIT_CORE_DIR"):
        yield Path(given)
        yield Path(given) / "filterjit"
        return
    yield _SOURCE
    spec = importlib.util.find_spec("filterjit")
    yield from map(Path, (spec and spec.submodule_search_locations) or ())


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_extension(name: str) -> Any:
    """Loads ``filterjit.<name>`` without its package; returns None where it is not built."""
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    paths = [folder / (name + suffix) for folder in _folders() for suffix in suffixes]
    return next((_load(f"filterjit.{name}", path) for path in paths if path.exists()), None)


core: Any = load_extension("_core")
if core is None:
    raise ImportError(f"no filterjit._core in any of {[str(f) for f in _folders()]}")
_messages = [folder / "_base" / "_messages.py" for folder in (_SOURCE, *_folders())]
messages = _load("filterjit_messages", next(path for path in _messages if path.exists()))
# None where it is not built: see FILTERJIT_TESTING in setup.py.
testing: Any = load_extension("_testing")

# ---- leaves ----


class Array:
    """The type of most arrays: `array_type` of the registry."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Array({self.value!r})"


class OtherArray(Array):
    """An array of another type, as NumPy arrays are for JAX."""

    __slots__ = ()


class Maybe:
    """An array or a static, depending on the instance, as a tracer is."""

    def __init__(self, traced: bool, hook: Callable[[], Any] | None = None) -> None:
        self.traced, self.hook = traced, hook


class Keyed:
    """A static that is compared by its key."""

    def __init__(self, key: Any) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class Value:
    """A mutable static, which is equal if its `value` is."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"Value({self.value!r})"


class Hostile:
    """A static whose ``__eq__`` and ``__hash__`` call hooks and return the given answers.

    A comparison calls `on_eq` of both sides.
    """

    def __init__(
        self, on_hash: Any = None, on_eq: Any = None, hash_value: int = 7, equal: Any = True
    ) -> None:
        self.on_hash, self.on_eq = on_hash, on_eq
        self.hash_value, self.equal = hash_value, equal

    def __hash__(self) -> int:
        if self.on_hash is not None:
            self.on_hash()
        return self.hash_value

    def __eq__(self, other: object) -> Any:
        for side in (self, other):
            if isinstance(side, Hostile) and side.on_eq is not None:
                side.on_eq()
        return self.equal


class Unhashable:
    """A static that has no hash."""

    __hash__ = None  # type: ignore[assignment]


# ---- nodes ----


class Module:
    """A node whose fields are in its ``__dict__``, as those of an Equinox Module are.

    A subclass names its fields in `dynamic` and `static`.
    """

    dynamic: tuple[str, ...] = ()
    static: tuple[str, ...] = ()

    def __init__(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)


WRAPPER = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__")


class Linear(Module):
    dynamic = ("weight", "bias")
    static = ("size", "activation")


class Point(NamedTuple):
    x: Any
    y: Any


class LoudPoint(collections.namedtuple("LoudPoint", ("x", "y"))):
    """A named tuple whose class must be called: it is not filled directly."""

    made = 0

    def __new__(cls, x: Any, y: Any) -> LoudPoint:
        LoudPoint.made += 1
        return super().__new__(cls, x, y)


@dataclasses.dataclass
class Record:
    """A node that is rebuilt by calling its class."""

    data: Any
    other: Any
    tag: Any


def layout(
    dynamic: tuple[str, ...],
    static: tuple[str, ...] = (),
    keys: tuple[Any, ...] | None = None,
    dict_fields: tuple[str, ...] = (),
    mode: str = "fill",
    **makers: Callable[[], Any],
) -> tuple[Any, ...]:
    """The details of a kind that is read by name."""
    return dynamic, static, keys, dict_fields, mode, makers


def object_of(layout: tuple[Any, ...]) -> dict[str, Any]:
    """What `classify` says of a type with this layout."""
    names = ("dynamic", "static", "keys", "dict_fields", "build", "factories")
    return {"kind": "object", **dict(zip(names, layout, strict=True))}


class Object:
    """A node whose attributes the core reads and sets by name, in the ``__dict__`` or in slots."""

    __slots__ = ()
    layout: ClassVar[tuple[Any, ...]]

    def __init__(self, **attributes: Any) -> None:
        for name in list(attributes):
            object.__setattr__(self, name, attributes[name])


class Pair(Object):
    """Has its attributes in the ``__dict__``, which are set directly."""

    layout = layout(("x", "y"), ("tag",))


class Slots(Object):
    """Has its attributes in slots, which are set directly."""

    __slots__ = ("__weakref__", "tag", "x", "y")
    layout = layout(("x", "y"), ("tag",), ("x", (1,), "tag"))


class Frozen(Object):
    """A mapping in one attribute, and another attribute that is made with the instance."""

    layout = layout(("items",), (), (None,), ("items",), made=list)

    def __init__(self, items: Any) -> None:
        super().__init__(items=items, made=[])


class Variable(Object):
    """A value, and a dict of static values."""

    __slots__ = ("metadata", "value")
    layout = layout(("value",), ("metadata",), (None, "metadata"), ("metadata",))

    def __init__(self, value: Any, **metadata: Any) -> None:
        super().__init__(value=value, metadata=metadata)


class Part(functools.partial):  # type: ignore[type-arg]
    """A function and its arguments, as ``jax.tree_util.Partial``."""

    layout = layout(("args", "keywords"), ("func",), ((0,), (1,), "func"), mode="partial")


class Described:
    """A node whose instances tell in `nodes` which of their attributes are children."""

    nodes: tuple[str, ...]

    def __init__(self, nodes: Any = (), **attributes: Any) -> None:
        vars(self).update(attributes, nodes=tuple(nodes))

    def describe(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Any, ...] | None] | None:
        dynamic: list[str] = []
        static: list[str] = []
        for name in sorted(vars(self)):
            (dynamic if name in self.nodes else static).append(name)
        return tuple(dynamic), tuple(static), None


class Box:
    """A custom node, which callbacks flatten, one level at a time."""

    def __init__(
        self, children: Sequence[Any], aux: Any = None, hook: Callable[[], Any] | None = None
    ) -> None:
        self.children = list(children)
        self.aux = aux
        self.hook = hook


missing = type("Missing", (), {"__repr__": lambda self: "missing"})()


def flatten_one_level(x: Any) -> tuple[Any, Any]:
    if not isinstance(x, Box):
        dynamic, static, *_ = x.layout
        return [getattr(x, name) for name in dynamic], tuple([getattr(x, name) for name in static])
    if x.hook is not None:
        x.hook()
    return x.children, x.aux


def flatten_with_keys(x: Any) -> tuple[Any, ...]:
    children, aux = flatten_one_level(x)
    cls: Any = type(x)
    keys = tuple((i,) for i in range(len(children)))
    rebuild = cls if isinstance(x, Box) else functools.partial(_rebuild_object, cls)
    return tuple(children), aux, lambda aux, leaves: rebuild(leaves, aux), keys


def _rebuild_object(cls: Any, children: Any, aux: Any) -> Any:
    new = object.__new__(cls)
    dynamic, static, _, _, _, makers = cls.layout
    made = [make() for make in makers.values()]
    names, values = (*dynamic, *static, *makers), (*children, *aux, *made)
    Object.__init__(new, **dict(zip(names, values, strict=True)))
    return new


def is_array(x: Any) -> bool:
    if isinstance(x, Maybe):
        if x.hook is not None:
            x.hook()
        return x.traced
    return isinstance(x, Array)


_BUILTIN: dict[type, str] = {
    type(None): "none",
    tuple: "tuple",
    list: "list",
    dict: "dict",
    collections.OrderedDict: "ordered_dict",
    collections.defaultdict: "default_dict",
}


def _key_of(keyed: Keyed) -> Any:
    return keyed.key


def static(key: Any = None, fixed: Any = None, contents: Any = None) -> dict[str, Any]:
    """What `classify` says of a type of statics."""
    return {"kind": "static", "key": key, "fixed": fixed, "contents": contents}


def classify(cls: type, x: Any) -> dict[str, Any]:
    if cls in _BUILTIN:
        return {"kind": _BUILTIN[cls]}
    if issubclass(cls, Module):
        return {"kind": "module", "dynamic": cls.dynamic, "static": cls.static, "extra": WRAPPER}
    if issubclass(cls, Record):
        return object_of(layout(("data", "other"), ("tag",), mode="call"))
    if hasattr(cls, "layout"):
        return object_of(cls.layout)
    if issubclass(cls, Described):
        return {"kind": "described", "describe": cls.describe}
    if issubclass(cls, Box):
        return {"kind": "custom"}
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        fill = cls is not LoudPoint
        return {"kind": "namedtuple", "dynamic": cls._fields, "fill_directly": fill}
    if issubclass(cls, Maybe):
        return {"kind": "maybe_array"}
    if issubclass(cls, Keyed):
        return static(_key_of)
    return {"kind": "array" if issubclass(cls, Array) else "static"}


POLICY = {"traced", "traced_in", "keyed", "by_identity"}  # arguments of `Registry.with_policy`


def make_registry(**changes: Any) -> Any:
    parts: dict[str, Any] = {
        "array_type": Array,
        "classify": classify,
        "is_array": is_array,
        "flatten_one_level": flatten_one_level,
        "flatten_with_keys": flatten_with_keys,
        "missing": missing,
        "messages": messages,
    }
    policy = {name: changes.pop(name) for name in POLICY & changes.keys()}
    made = core.Registry(**{**parts, **changes})
    return made.with_policy(**policy) if policy else made


def num_types(registry: Any) -> int:
    """How many living types a registry knows. A new type makes it drop the kinds of dead ones."""
    gc.collect()
    registry.kind(type("New", (), {})())
    found: int = testing.num_types(registry)
    return found - 1


# ---- comparing ----


def _attributes(x: Any) -> dict[str, Any]:
    """The attributes that belong to the tree and are set; `missing` stands for those that are not."""
    if hasattr(type(x), "layout"):
        return {name: getattr(x, name) for names in x.layout[:2] for name in names}
    names = (*x.dynamic, *x.static, *WRAPPER) if isinstance(x, Module) else vars(x)
    return {k: v for k, v in vars(x).items() if k in names and v is not missing}


def nodes_of(structure: Any) -> list[tuple[Any, ...]]:
    """Returns a structure's nodes, each with its children."""
    indices = range(structure._node(0)[4])
    return [(*structure._node(i), structure._children(i)) for i in indices]


def same(a: Any, b: Any) -> bool:
    """Whether two trees have the same types, statics equal by the core's rule, and the same
    array objects."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (Array, Maybe)) or a is None:
        return a is b
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, (Module, Record, Described)) or hasattr(type(a), "layout"):
        x, y = _attributes(a), _attributes(b)
        return x.keys() == y.keys() and all(same(x[k], y[k]) for k in x)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        in_order = not isinstance(a, collections.OrderedDict) or list(a) == list(b)
        factory = getattr(a, "default_factory", None) is getattr(b, "default_factory", None)
        return in_order and factory and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, Box):
        return same(a.children, b.children) and same(a.aux, b.aux)
    if isinstance(a, (FunctionType, BuiltinFunctionType, type)):
        return a is b
    return bool(a == b)


def identical(a: Any, b: Any) -> bool:
    """Whether two sequences hold the same objects."""
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))
