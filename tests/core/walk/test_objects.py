"""Objects: attributes by name in the ``__dict__`` or in slots, and types whose instances describe
theirs.  Each walk sees what `getattr` sees, whatever has changed since the last one."""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    Array,
    Described,
    Frozen,
    Object,
    Options,
    Pair,
    Slots,
    Value,
    Variable,
    classify,
    core,
    identical,
    make_jit,
    testing,
)
from hostile_support import NESTS, nest
from object_support import (
    MAKE,
    Called,
    HeldMixed,
    Init,
    InitSlots,
    Mixed,
    Partial,
    attributes,
    equivalent,
    example,
    layout,
    make_registry,
)
from outcome_support import attempt


@pytest.fixture
def registry() -> Any:
    return make_registry()


def jit() -> Any:
    return make_jit(lambda tree: tree, Options(make_registry()))


# ---- all walks agree ----


@pytest.mark.parametrize("name", MAKE)
def test_the_walks_agree(registry: Any, name: str) -> None:
    for _ in range(3):  # the first match has found the places of the attributes
        tree = [example(name), 1]
        arrays, structure = core.flatten(registry, tree)
        built = structure.unflatten(arrays)
        assert equivalent(built, tree) and built[0] is not tree[0]
        for other in (tree, built):
            assert identical(testing.match(structure, other), arrays)
            again, equal = core.flatten(registry, other)
            assert identical(again, arrays)
            assert equal == structure and hash(equal) == hash(structure)
            assert equal._nodes() == structure._nodes() and repr(equal) == repr(structure)
        leaves, outer = core.tree_flatten(registry, tree, True, None)
        assert identical(outer.flatten_up_to(built), leaves)
        assert len(outer.paths) == len(leaves)
        assert equivalent(outer.unflatten(leaves), tree)
        assert core.from_parts(registry, Array, *outer._parts(Array)) == outer
        assert equivalent(core.tree_map(registry, lambda x, y: x, (tree, built), None), tree)
        parts = core.partition(registry, tree, (("arrays",),), None, None)
        assert equivalent(core.combine(registry, parts, None, True), tree)
        if len(set(outer.paths)) == len(outer.paths):
            outer, *groups = core.partition_dict(registry, tree, True, (("arrays",),), None)
            assert equivalent(outer.combine(*reversed(groups)), tree)
        f = jit()
        for other in (tree, tree, built, built):
            assert equivalent(f(other), tree)
        assert len(f._parts()[0].variants()) == 1


@pytest.mark.parametrize("name", MAKE)
def test_one_difference(registry: Any, name: str) -> None:
    make = MAKE[name]
    x, y = Array(1), Array(2)
    _, structure = core.flatten(registry, make(x, y, "tag"))
    others = [make(x, y, "other"), make(x, 1, "tag"), make([x], y, "tag"), make(x, None, "tag")]
    for other in others:
        for match in (testing.match(structure, other), testing.match(structure, [other])):
            assert match is None
        _, different = core.flatten(registry, other)
        assert different != structure
    assert identical(
        testing.match(structure, make(y, x, "tag")), core.flatten(registry, make(y, x, "tag"))[0]
    )
    for mutable in (Value(1), [1], 2.5):
        _, first = core.flatten(registry, make(x, y, Value(1)))
        found = testing.match(first, make(x, y, mutable))
        assert (found is not None) == (mutable == Value(1))


@pytest.mark.parametrize("name", MAKE)
def test_each_attribute_is_compared(registry: Any, name: str) -> None:
    """Each attribute in turn gets another value, and loses it."""
    tree = example(name)
    if not isinstance(tree, (Object, Init)):
        pytest.skip("its attributes cannot be set")
    for attribute in attributes(tree):
        tree = example(name)
        arrays, structure = core.flatten(registry, [tree])
        before = getattr(tree, attribute)
        object.__setattr__(tree, attribute, {"unlike": 1})
        check(registry, structure, [tree])
        assert testing.match(structure, [tree]) is None
        object.__delattr__(tree, attribute)
        with pytest.raises(AttributeError):
            core.flatten(registry, [tree])
        with pytest.raises(AttributeError):
            testing.match(structure, [tree])
        object.__setattr__(tree, attribute, before)
        assert identical(testing.match(structure, [tree]), arrays)
        check(registry, structure, [tree])


def check(registry: Any, structure: Any, tree: Any) -> None:
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


# ---- changes of the class ----


def _property(cls: Any) -> None:
    old = cls.__dict__.get("x")
    cls.x = property(lambda self: (old.__get__(self) if old else self.__dict__["x"], 1))


def _constant_property(cls: Any) -> None:
    given = Array("given")
    cls.x = property(lambda self: given)


def _getattribute(cls: Any) -> None:
    cls.__getattribute__ = lambda self, name: (
        "changed" if name == "tag" else object.__getattribute__(self, name)
    )


def _getattr(cls: Any) -> None:
    cls.__getattr__ = lambda self, name: f"no {name}"


def _default(cls: Any) -> None:
    cls.default = Array("default")


def _method(cls: Any) -> None:
    cls.method = lambda self: self


class _Loud:
    """A data descriptor."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        return "loud" if instance is not None else self

    def __set__(self, instance: Any, value: Any) -> None:
        pass


def _descriptor(cls: Any) -> None:
    cls.tag = _Loud()


def _swapped(cls: Any) -> None:
    """Each slot is found by the other's name."""
    if "x" in cls.__dict__ and "y" in cls.__dict__:
        cls.x, cls.y = cls.y, cls.x


def _other_slot(cls: Any) -> None:
    if "spare" in cls.__dict__:
        cls.x = cls.spare


def _no_slot(cls: Any) -> None:
    if "x" in cls.__dict__:
        del cls.x


def _bases(cls: Any) -> None:
    class Base(Object):
        __slots__ = ()
        tag = property(lambda self: "of the base")

    if cls.__bases__ == (Object,):
        cls.__bases__ = (Base,)


def _metaclass_attribute(cls: Any) -> None:
    type(cls).x = Array("of the metaclass")


CLASS_CHANGES = [
    _property,
    _constant_property,
    _getattribute,
    _getattr,
    _default,
    _method,
    _descriptor,
    _swapped,
    _other_slot,
    _no_slot,
    _bases,
    _metaclass_attribute,
]
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


@pytest.mark.parametrize("change", CLASS_CHANGES)
@pytest.mark.parametrize("mode", ["fill", "call", "init"])
@pytest.mark.parametrize("space", SPACES)
def test_a_class_that_changes(registry: Any, space: str, mode: str, change: Any) -> None:
    cls = new_class(space, mode)
    tree = [cls(x=Array(i), y=Array(-i), tag="tag") for i in range(2)]
    if space in ("slots and dict", "dict and a slot", "mixed"):
        for each in tree:
            each.spare = Array("spare")
            each.__dict__.update(other=1)
    _, structure = core.flatten(registry, tree)
    check(registry, structure, tree)
    f = make_jit(lambda tree: tree, Options(registry))
    f(tree)
    change(cls)
    for _ in range(2):
        check(registry, structure, tree)
        flat, found = attempt(core.flatten, registry, tree), attempt(f, tree)
        if isinstance(flat, Exception) or isinstance(found, Exception):
            continue
        # The result is built anew, by what the class now is.
        check(registry, flat[1], tree)
        built = attempt(flat[1].unflatten, flat[0])
        assert isinstance(built, Exception) or len(built) == 2
    # An instance with other values.
    other = [cls(), cls()]
    for i, each in enumerate(other):
        for name in NAMES:
            attempt(setattr, each, name, "tag" if name == "tag" else Array(i))
    check(registry, structure, other)


def test_the_version_of_a_class_that_is_not_counted(registry: Any) -> None:
    """CPython gives a class no more than 1000 versions, and none to a class with odd names."""
    for space in SPACES:
        cls = new_class(space)
        tree = [cls(x=Array(i), y=Array(-i), tag="tag") for i in range(2)]
        _, structure = core.flatten(registry, tree)
        for i in range(1200):
            cls.counter = i
            attempt(getattr, tree[0], "x")
            if i % 100 == 99:
                check(registry, structure, tree)
        cls.x = property(lambda self: 1)
        check(registry, structure, tree)
        assert testing.match(structure, tree) is None


class _Str(str):
    """A name that calls a hook when it is compared."""

    hook: Callable[[], Any] = staticmethod(lambda: None)
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _Str.hook()
        return False


def test_names_of_a_class_that_run_code(registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such code frees an array that the walk has met."""
    cls: Any = type("Odd", (Pair,), {_Str("x"): 1})
    tree: list[Any] = [Array(0), cls(x=Array(1), y=Array(2), tag=3)]
    _, structure = core.flatten(registry, tree)
    cls.other = 1

    def hook() -> None:
        tree[0] = 1
        spare.append([Array("spare") for _ in range(10)])

    spare: list[Any] = []
    monkeypatch.setattr(_Str, "hook", staticmethod(hook))
    found = testing.match(structure, tree)
    assert found is None or found[0].value == 0


# ---- changes of an instance ----


def _delete(x: Any) -> None:
    del x.x


def _empty(x: Any) -> None:
    for name in NAMES:
        delattr(x, name)


def _extra(x: Any) -> None:
    x.extra = 1


def _new_dict(x: Any) -> None:
    x.__dict__ = dict(x.__dict__, x=Array("new"))


def _dict_subclass(x: Any) -> None:
    x.__dict__ = type("D", (dict,), {"__getitem__": lambda self, key: 1})(x.__dict__)


def _odd_names(x: Any) -> None:
    x.__dict__ = {type("S", (str,), {})(name): value for name, value in x.__dict__.items()}


def _other_order(x: Any) -> None:
    items = list(x.__dict__.items())
    x.__dict__.clear()
    x.__dict__.update(reversed(items))


def _number_in_dict(x: Any) -> None:
    x.__dict__[1] = 2


def _shadow(x: Any) -> None:
    x.__dict__.update(x=Array("shadow"), tag="shadow")


def _other_class(x: Any) -> None:
    x.__class__ = type("Other", type(x).__bases__, dict(SPACES_OF[type(x)]))


def _subclass(x: Any) -> None:
    x.__class__ = type("Sub", (type(x),), {"__slots__": ()})


INSTANCE_CHANGES = [
    _delete,
    _empty,
    _extra,
    _new_dict,
    _dict_subclass,
    _odd_names,
    _other_order,
    _number_in_dict,
    _shadow,
    _other_class,
    _subclass,
]
SPACES_OF: dict[Any, dict[str, Any]] = {}


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("change", INSTANCE_CHANGES)
@pytest.mark.parametrize("space", SPACES)
def test_an_instance_that_changes(registry: Any, space: str, change: Any, default: bool) -> None:
    cls = new_class(space)
    SPACES_OF[cls] = {**SPACES[space], "layout": cls.layout}
    if default and "x" not in cls.__dict__:
        cls.x = Array("default")
    tree = [cls(x=Array(i), y=Array(-i), tag="tag") for i in range(2)]
    _, structure = core.flatten(registry, tree)
    f = make_jit(lambda tree: tree, Options(registry))
    f(tree)
    if isinstance(attempt(change, tree[1]), Exception):
        SPACES_OF.clear()
        return
    for _ in range(3):
        check(registry, structure, tree)
        found = attempt(f, tree)
        if not isinstance(attempt(core.flatten, registry, tree), Exception):
            assert equivalent(found, tree)
    SPACES_OF.clear()


def test_attributes_that_are_not_fields(registry: Any) -> None:
    """A cached property and the like are no part of the tree."""

    class Cached(Pair):
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


# ---- how an object is built ----


def test_init_is_a_call_once_the_class_has_changed(registry: Any) -> None:
    for slots in (False, True):
        cls = new_class("slots" if slots else "dict", "init")
        calls = []

        def init(self: Any, calls: Any = calls, **values: Any) -> None:
            calls.append(values)
            Object.__init__(self, **values)

        cls.__init__ = init
        tree = cls(x=Array(1), y=Array(2), tag="tag")
        arrays, structure = core.flatten(registry, tree)
        calls.clear()
        assert equivalent(structure.unflatten(arrays), tree)
        assert not calls, "nothing has changed since it was classified"
        cls.other = 1
        assert equivalent(structure.unflatten(arrays), tree)
        assert [list(call) for call in calls] == [["x", "y", "tag"]]
        del cls.other
        structure.unflatten(arrays)
        assert len(calls) == 2


def test_a_class_that_is_changed_by_the_call_of_another(registry: Any) -> None:
    """The call of the first object changes the class of the second, in the middle of a build."""
    cls = new_class("dict", "init")

    class First(Object):
        layout = layout(("x",), mode="call")

        def __init__(self, x: Any) -> None:
            super().__init__(x=x)
            if armed:
                cls.__init__ = lambda self, **values: Object.__init__(self, new=1, **values)

    armed: list[int] = []
    tree = [First(Array(0)), cls(x=Array(1), y=Array(2), tag="tag")]
    arrays, structure = core.flatten(registry, tree)
    armed.append(1)
    assert structure.unflatten(arrays)[1].new == 1


def test_fill_calls_no_code_of_the_class(registry: Any) -> None:
    class Loud(Pair):
        def __new__(cls, *args: Any) -> Any:
            raise AssertionError

        def __init__(self) -> None:
            raise AssertionError

        def __setattr__(self, name: str, value: Any) -> None:
            raise AssertionError

    tree = object.__new__(Loud)
    Object.__init__(tree, x=Array(1), y=Array(2), tag=3)
    arrays, structure = core.flatten(registry, tree)
    assert equivalent(structure.unflatten(arrays), tree)


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


def test_a_maker_that_fails_or_builds(registry: Any) -> None:
    def fails() -> Any:
        raise ZeroDivisionError

    def builds() -> Any:
        if len(depth) < 3:
            depth.append(1)
            assert equivalent(structure.unflatten(arrays), tree)
        return 1

    depth: list[int] = []
    bad = type("Bad", (Object,), {"layout": layout(("x",), one=list, two=fails)})
    arrays, structure = core.flatten(registry, [bad(x=Array(1))])
    with pytest.raises(ZeroDivisionError):
        structure.unflatten(arrays)
    deep = type("Deep", (Object,), {"layout": layout(("x",), one=builds)})
    tree = [deep(x=Array(1)), deep(x=Array(2))]
    arrays, structure = core.flatten(registry, tree)
    assert equivalent(structure.unflatten(arrays), tree)
    assert len(depth) == 3


def test_abstract_and_failing_classes(registry: Any) -> None:
    import abc

    class Abstract(Object, abc.ABC):
        layout = layout(("x",))

    arrays, structure = core.flatten(registry, Abstract(x=Array(1)))
    Abstract.__abstractmethods__ = frozenset(["f"])  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="abstract"):
        structure.unflatten(arrays)
    Called.made = 0
    tree = Called(Array(1), Array(2), 3)
    arrays, structure = core.flatten(registry, tree)
    assert equivalent(structure.unflatten(arrays), tree) and Called.made == 2


def test_partials(registry: Any) -> None:
    for tree in (
        Partial(max),
        Partial(max, Array(1), 2, key=Array(3), default=None),
        Partial(Partial(max, Array(1), a=1), Array(2), b=Array(3)),
        Partial(Partial, max, 1),
    ):
        arrays, structure = core.flatten(registry, tree)
        built = structure.unflatten(arrays)
        assert equivalent(built, tree) and equivalent(built.func, tree.func)
        assert identical(testing.match(structure, built), arrays)
    nested = Partial(max, Array(1))
    nested.__setstate__((Partial(min, 1), (Array(2),), {"k": Array(3)}, {}))
    arrays, structure = core.flatten(registry, nested)
    # As a call of the class would, it takes the inner one apart.
    assert structure.unflatten(arrays).func is min
    with pytest.raises(TypeError, match="mapping"):
        core.tree_map(registry, lambda x: 1, (Partial(max, k=1),), lambda x: type(x) is dict)
    with pytest.raises(TypeError):
        core.tree_map(registry, lambda x: 1, (Partial(max, k=1),), lambda x: type(x) is tuple)


# ---- held dicts ----


class _Sub(dict):  # type: ignore[type-arg]
    """A dict of another type, which can be a static leaf."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.mark.parametrize("value", [None, 1, [1], _Sub(k=1), "text"])
def test_a_held_value_that_is_no_dict(registry: Any, value: Any) -> None:
    """Its class is flattened by its functions then."""
    tree = [Frozen({"k": Array(1)})]
    _, structure = core.flatten(registry, tree)
    odd = [Frozen(value)]
    assert testing.match(structure, odd) is None
    arrays, other = core.flatten(registry, odd)
    assert "custom" in [node[0] for node in other._nodes()]
    assert identical(testing.match(other, odd), arrays)
    assert other.unflatten(arrays)[0].items == value
    _, outer = core.tree_flatten(registry, tree, True, None)
    with pytest.raises(ValueError, match="differs"):
        outer.flatten_up_to(odd)
    leaves, other = core.tree_flatten(registry, odd, True, None)
    assert identical(other.flatten_up_to(odd), leaves)


def test_a_held_dict(registry: Any) -> None:
    a, b = Array("a"), Array("b")
    tree = [Frozen({"a": a, "b": b})]
    arrays, structure = core.flatten(registry, tree)
    assert identical(arrays, (a, b)) and structure._array_paths() == [
        [(0,), ("a",)],
        [(0,), ("b",)],
    ]
    leaves, outer = core.tree_flatten(registry, tree, True, None)
    assert outer.paths == ("0.a", "0.b") and identical(leaves, (a, b))
    for items, expected in (
        ({"b": b, "a": a}, (a, b)),
        ({"b": a, "a": b}, (b, a)),
        ({"a": a}, None),
        ({"a": a, "c": b}, None),
        ({"a": a, "b": b, "c": 1}, None),
        ({"a": a, "b": 1}, None),
        ({}, None),
    ):
        tree[0].items = items
        found = testing.match(structure, tree)
        assert found is None if expected is None else identical(found, expected)
        check(registry, structure, tree)
    for pattern, expected in (
        ((("index", 0), ("name", "a")), ["0.a"]),
        ((("any",), ("any",)), ["0.a", "0.b"]),
        ((("deep",), ("name", "b")), ["0.b"]),
        ((("deep",), ("glob", "ab".__contains__)), ["0.a", "0.b"]),
    ):
        _, found = core.tree_flatten(registry, [Frozen({"a": a, "b": b})], ("path", pattern), None)
        assert list(found.paths) == expected
    with pytest.raises(ValueError, match="inner node"):
        core.tree_flatten(registry, [Frozen({"a": a})], ("path", (("any",),)), None)


def test_the_keys_of_a_variable(registry: Any) -> None:
    tree = {"a": Variable(Array(1), kind="k"), "b": Variable({"w": Array(2)}, kind="k")}
    _, outer = core.tree_flatten(registry, tree, True, None)
    assert outer.paths == ("a", "b.w")
    _, structure = core.flatten(registry, tree)
    assert structure._array_paths() == [[("a",)], [("b",), ("w",)]]
    for pattern, expected in (
        ((("name", "a"),), ["a"]),
        ((("any",),), ["a"]),
        ((("deep",),), ["a", "b.w"]),
        ((("name", "b"), ("name", "w")), ["b.w"]),
    ):
        assert list(core.tree_flatten(registry, tree, ("path", pattern), None)[1].paths) == expected
    tree["a"].metadata["kind"] = "other"
    check_all = testing.match(structure, tree)
    assert check_all is None
    with pytest.raises(ValueError, match="kind"):
        outer.flatten_up_to(tree)
    tree["a"].metadata = {"kind": "k", "more": 1}
    assert testing.match(structure, tree) is None
    with pytest.raises(ValueError, match="keys"):
        outer.flatten_up_to(tree)
    tree["a"].metadata = [("kind", "k")]
    assert testing.match(structure, tree) is None


@pytest.mark.parametrize("at", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "value", [{"k": Array(1)}, 1, _Sub(k=1), {"k": Array(1), "l": 2}, {}], ids=str
)
def test_a_held_value_that_changes_in_a_walk(registry: Any, value: Any, at: int) -> None:
    """The property reads another value from the `at`-th time on."""

    class Loud(Object):
        layout = layout(("items", "x"), held=("items",))
        count = 0

        @property
        def items(self) -> Any:
            Loud.count += 1
            return self.__dict__["items"] if Loud.count < at else value

        @items.setter
        def items(self, value: Any) -> None:
            self.__dict__["items"] = value

    tree = [Loud(items={"k": Array(1)}, x=Array(2)), Array(3)]
    for call in (
        lambda: core.flatten(registry, tree)[1].unflatten([Array(0)] * 3),
        lambda: core.tree_flatten(registry, tree, True, None)[1].flatten_up_to(tree),
        lambda: testing.match(core.flatten(registry, tree)[1], tree),
    ):
        Loud.count = 0
        found = attempt(call)
        assert isinstance(found, (RuntimeError, ValueError, tuple, list, type(None)))


def test_a_class_that_changes_in_a_walk(registry: Any) -> None:
    """Reading the held attribute gives the instance another class."""

    class Other(Object):
        layout = layout(("items",), held=("items",))

    class Loud(Object):
        layout = layout(("items", "x"), held=("items",))

        @property
        def items(self) -> Any:
            self.__class__ = Other
            return {"k": 1}

    def make() -> Any:
        new = object.__new__(Loud)
        vars(new).update(x=Array(1), items={"k": 1})
        return new

    with pytest.raises(RuntimeError, match="changed its class"):
        core.flatten(registry, [make()])
    with pytest.raises(RuntimeError, match="changed its class"):
        core.tree_leaves(registry, [make()], None)
    kept, Loud.items = Loud.items, None  # type: ignore[assignment, method-assign]
    del Loud.items
    _, structure = core.flatten(registry, [make()])
    _, outer = core.tree_flatten(registry, [make()], True, None)
    Loud.items = kept  # type: ignore[method-assign]
    for call in (lambda: testing.match(structure, [make()]), lambda: outer.flatten_up_to([make()])):
        with pytest.raises(RuntimeError, match="changed its class"):
            call()


# ---- the keys of dicts ----


@pytest.mark.parametrize("wrap", [lambda d: d, Frozen])
def test_keys_that_are_numbers(registry: Any, wrap: Any) -> None:
    x, y = Array(1), Array(2)
    big = 2**70
    _, structure = core.flatten(registry, wrap({1: x, 0: y}))
    for keys, fits in (
        ((0, 1), True),
        ((1, 0), True),
        ((True, False), False),
        ((1, False), False),
        ((1.0, 0), False),
        ((1, 2), False),
        (("1", "0"), False),
        ((1, 0, 2), False),
    ):
        values = {k: x if k == 1 else y for k in keys}
        found = testing.match(structure, wrap(values))
        assert (found is not None) == fits
        assert found is None or identical(found, (y, x))
        other = core.flatten(registry, wrap(values))[1]
        assert (other == structure) == fits
    _, structure = core.flatten(registry, wrap({big: x, -big: y}))
    assert identical(testing.match(structure, wrap({2**70: x, -(2**70): y})), (y, x))
    assert testing.match(structure, wrap({2**70: x, -(2**70) - 1: y})) is None
    _, odd = core.flatten(registry, wrap({True: x, 0: y}))
    assert testing.match(odd, wrap({1: x, 0: y})) is None
    assert identical(testing.match(odd, wrap({True: x, 0: y})), (y, x))
    built = odd.unflatten([y, x])
    assert any(k is True for k in (built.items if wrap is Frozen else built))


def test_dicts_that_are_all_static(registry: Any) -> None:
    """Each tree gets a copy, which may be changed."""
    for wrap in (lambda d: d, Frozen, lambda d: HeldMixed(items={}, x=1, meta=d, tag=d)):
        tree = [Array(0), wrap({"b": 1, "a": "text", "c": 2.5}), wrap({}), wrap({1: 2})]
        arrays, structure = core.flatten(registry, tree)
        first = structure.unflatten(arrays)
        assert equivalent(first, tree)
        for x in first[1:]:
            for name in ("items", "meta"):
                found = x if type(x) is dict else getattr(x, name, {})
                if type(found) is dict:
                    found["new"] = 1
        assert equivalent(structure.unflatten(arrays), tree)
        assert identical(testing.match(structure, tree), arrays)


# ---- described types ----


def test_described_types(registry: Any) -> None:
    x, y = Array(1), Array(2)
    tree = [Described(("x",), x=x, y="y", tag=1), Described(("x", "y"), x=x, y=y)]
    arrays, structure = core.flatten(registry, tree)
    assert identical(arrays, (x, x, y))
    again = [Described(("x",), tag=1, y="y", x=x), Described(("x", "y"), y=y, x=x)]
    assert identical(testing.match(structure, again), arrays)
    assert core.flatten(registry, again)[1] == structure
    others = [
        Described(("x",), x=x, y="y", tag=2),
        Described(("x",), x=x, y="y"),
        Described(("x",), x=x, y="y", tag=1, more=1),
        Described(("x", "y"), x=x, y="y", tag=1),
        Described((), x=x, y="y", tag=1),
        Described(("x",), x=x, z="y", tag=1),
        Described(("x",), x=1, y="y", tag=1),
    ]
    structures = [core.flatten(registry, [other, tree[1]])[1] for other in others]
    for i, (other, each) in enumerate(zip(others, structures, strict=True)):
        assert testing.match(structure, [other, tree[1]]) is None
        assert each != structure and all(each != s for s in structures[:i])
    _, outer = core.tree_flatten(registry, tree, True, None)
    for other in others[:6]:
        with pytest.raises(ValueError, match="differs"):
            outer.flatten_up_to([other, tree[1]])


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
        outer.flatten_up_to(tree)
        for told in kinds:
            if told not in (told_a, "custom") and told_a != "custom":
                with pytest.raises(ValueError, match="other attributes"):
                    outer.flatten_up_to(tree)


@pytest.mark.parametrize(
    "answer, error",
    [
        (1, TypeError),
        ((), TypeError),
        (((), (), None), RuntimeError),
        ((("x", "y"), (), None), RuntimeError),
        ((("x", 1), (), None), TypeError),
        ((["x"], (), None), TypeError),
        ((("x",), (), ()), TypeError),
        ((("x",), (), (1,)), TypeError),
        ((("x",), (), ((1, 2),)), TypeError),
        ((("x",), (), ([],)), TypeError),
    ],
)
def test_bad_descriptions(answer: Any, error: type[Exception]) -> None:
    def ask(cls: type, x: Any) -> Any:
        return ("described", None, lambda y: answer) if cls is Described else classify(cls, x)

    registry = make_registry(classify=ask)
    x = object.__new__(Described)
    vars(x).update(x=Array(1))
    for _ in range(2):
        with pytest.raises(error):
            core.flatten(registry, x)
    _, other = core.tree_flatten(make_registry(), [1], True, None)
    assert other.num_leaves == 1


def test_a_description_that_changes_the_instance(registry: Any) -> None:
    class Other(Described):
        pass

    def change(x: Any) -> Any:
        right = Described.describe(x)
        act(x)
        return right

    registry = make_registry(
        classify=lambda cls, x: (
            ("described", None, change) if cls is Described else classify(cls, x)
        )
    )
    acts: dict[str, Any] = {
        "class": lambda x: setattr(x, "__class__", Other),
        "more": lambda x: vars(x).update(more=1),
        "less": lambda x: vars(x).pop("x"),
        "dict": lambda x: setattr(x, "__dict__", {}),
        "other": lambda x: setattr(x, "__dict__", {"a": 1, "b": 2, "c": 3}),
    }
    for name, act in acts.items():
        found = attempt(core.flatten, registry, [Described(("x",), x=Array(1), y=2)])
        assert isinstance(found, RuntimeError) or name == "other"
        act = lambda x: None
        tree = [Described(("x",), x=Array(1), y=2)]
        _, outer = core.tree_flatten(registry, tree, True, None)
        act = acts[name]
        assert isinstance(attempt(outer.flatten_up_to, tree), (RuntimeError, ValueError))


def test_descriptions_that_describe(registry: Any) -> None:
    """A description flattens an instance that is described alike."""

    class Nested(Described):
        def describe(self) -> Any:
            if not inside:
                inside.append(1)
                structures.append(core.flatten(registry, Nested(("x",), x=Array(1)))[1])
            return Described.describe(self)

    inside: list[int] = []
    structures: list[Any] = []
    structures.append(core.flatten(registry, Nested(("x",), x=Array(1)))[1])
    assert structures[0] == structures[1]


# ---- details that do not fit ----


@pytest.mark.parametrize(
    "details",
    [
        (),
        (("x",),),
        (("x",), (), None, (), "fill"),
        (("x",), (), None, (), "unheard of", {}),
        (("x",), (), None, (), "call", {"y": list}),
        (("x",), (), None, (), "init", {"y": list}),
        (("x",), (), None, (), "partial", {}),
        (("x",), (), (), (), "fill", {}),
        (("x",), (), ("x", "y"), (), "fill", {}),
        (("x",), (), ([],), (), "fill", {}),
        (("x",), (), ((1, 2),), (), "fill", {}),
        ((1,), (), None, (), "fill", {}),
        (("x",), (1,), None, (), "fill", {}),
        (("x",), (), None, (), "fill", {1: list}),
        (["x"], (), None, (), "fill", {}),
        (("x",), (), None, (), None, {}),
        (("x",), (), None, None, "fill", {}),
        (("x",), (), None, (), "fill", None),
    ],
)
def test_bad_details(details: tuple[Any, ...]) -> None:
    registry = make_registry(
        classify=lambda cls, x: ("object", None, *details) if cls is Pair else classify(cls, x)
    )
    for _ in range(2):
        with pytest.raises((TypeError, ValueError)):
            core.flatten(registry, Pair(x=Array(1), y=2, tag=3))


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
    Alias.z = InitSlots.x  # type: ignore[assignment]
    for call in (lambda: core.flatten(registry, tree), lambda: testing.match(structure, tree)):
        with pytest.raises(TypeError):
            call()
    Alias.z = Mixed.__dict__["x"]
    for call in (lambda: core.flatten(registry, tree), lambda: testing.match(structure, tree)):
        with pytest.raises(TypeError):
            call()


def test_types_that_go(registry: Any) -> None:
    """A class, its kind and the kinds that it has described are freed."""
    import gc
    import weakref

    dead = []
    before = testing.num_types(registry)
    for i in range(20):
        for base in (Pair, Slots, Described):
            cls: Any = type("Mortal", (base,), {"__slots__": ()} if i % 2 else {})
            tree = cls(x=1, y=2, tag=3)
            arrays, structure = core.flatten(registry, tree)
            assert equivalent(structure.unflatten(arrays), tree)
            dead.append(weakref.ref(cls))
    del cls, tree, structure
    gc.collect()
    assert not any(ref() for ref in dead)
    assert testing.num_types(registry) <= before + 12


# ---- deep trees ----


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("depth", [10, 22, 23, 24, 25, 26, 47, 48, 49, 100])
def test_deep_matches(registry: Any, name: str, depth: int) -> None:
    make, _ = NESTS[name]
    tree, other, deeper = nest(make, depth), nest(make, depth), nest(make, depth + 1)
    _, structure = core.flatten(registry, [tree, 1])
    for each in (tree, other):
        arrays, _ = core.flatten(registry, each)
        assert identical(testing.match(structure, [each, 1]), arrays)
        assert testing.match(structure, [each, 2]) is None
    assert testing.match(structure, [deeper, 1]) is None
    f = make_jit(lambda tree: tree, Options(registry))
    for each in (tree, other, tree, deeper, other, *[tree] * 70):
        found = f(each)
        assert identical(core.flatten(registry, found)[0], core.flatten(registry, each)[0])


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the recursion limit counts no C code")
@pytest.mark.parametrize("name", [name for name in NESTS if name not in ("box", "ordered")])
def test_a_deep_match_runs_no_python_code(registry: Any, name: str) -> None:
    """It looks at the stack at each 24th level only; a walk that may run code does so at each."""
    tree = nest(NESTS[name][0], 100)
    _, structure = core.flatten(registry, tree)
    arrays = testing.match(structure, tree)
    before = sys.getrecursionlimit()
    here = len(inspect.stack(0))
    try:
        sys.setrecursionlimit(here + 30)
        found = testing.match(structure, tree)
    finally:
        sys.setrecursionlimit(before)
    assert identical(found, arrays)
