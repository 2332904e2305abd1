"""The record of arguments with dicts, objects and described types, as test_known.py has it for others.

What is changed between two calls is seen by the next one, in each kind of container.
"""

import collections
import random
from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    Array,
    Described,
    Frozen,
    Hooks,
    Linear,
    Object,
    OtherArray,
    Pair,
    Point,
    Slots,
    Value,
    Variable,
    core,
    layout,
    make_jit,
    make_registry,
    same,
)
from node_support import HeldMixed, Mixed
from object_support import CLASS_CHANGES, INSTANCE_CHANGES, SPACES, attributes, new_class
from outcome_support import attempt
from trees_support import OBJECTS as MAKERS

COPIES = 24  # so that the argument has more nodes than FJ_KNOWN_MIN_NODES


def jit() -> Any:
    return make_jit(lambda tree: tree, Hooks(make_registry()))


def remember(f: Any, tree: Any) -> None:
    """Calls often enough for a record, whatever happened before: see LONGEST_STREAK in known.c."""
    for _ in range(66):
        f(tree)
    assert same(f(tree), tree)


def model(make: Callable[[int], Any]) -> Any:
    """Many instances, in the containers that a record knows."""
    rows = [make(i) for i in range(COPIES)]
    return {"rows": rows[:8], "more": (rows[8:16], None, ("a", 1)), "p": Point(rows[16:], Array())}


def rows_of(tree: Any) -> list[Any]:
    return [*tree["rows"], *tree["more"][0], *tree["p"].x]


def made(make: Callable[[int], Any]) -> tuple[Any, Any, Any]:
    f, tree = jit(), model(make)
    remember(f, tree)
    return f, tree, rows_of(tree)[11]


def is_seen(f: Any, tree: Any, change: Callable[[], Any]) -> None:
    """Whether the next calls are right, and those after a new record."""
    change()
    for _ in range(3):
        flat = attempt(core.flatten, f._hooks.registry, tree)
        found = attempt(f, tree)
        if isinstance(flat, Exception):
            assert type(found) is type(flat), found
        else:
            assert same(found, tree), change
    if not isinstance(flat, Exception):
        remember(f, tree)


# ---- dicts ----

DICTS: dict[str, Callable[[int], Any]] = {
    "without a record": lambda i: collections.defaultdict(int, w=Array(i), n=i, s=f"name {i}"),
    "dict": lambda i: {"w": Array(i), "b": None, "n": i, "s": f"name {i}"},
    "unsorted": lambda i: dict(zip("dbac", (Array(i), 1, Array(-i), (1, 2)), strict=True)),
    "numbers": lambda i: {3: Array(i), 1: Array(-i), 2: i},
    "held": lambda i: Frozen({"w": Array(i), "b": i}),
    "statics in a slot": lambda i: Variable(Array(i), kind=i, other="text"),
}


def dict_of(x: Any) -> Any:
    return x if isinstance(x, dict) else x.items if isinstance(x, Frozen) else x.metadata


DICT_CHANGES: dict[str, Callable[[Any], Any]] = {
    "another value": lambda d: d.update({next(iter(d)): Array("new")}),
    "another static": lambda d: d.update({list(d)[-1]: 99}),
    "an equal static": lambda d: d.update({list(d)[-1]: "".join(["te", "xt"])}),
    "another key": lambda d: d.update({"new": 1}) if "w" in d else d.update({99: 1}),
    "a key less": lambda d: d.popitem(),
    "cleared": lambda d: d.clear(),
    "deleted and added": lambda d: d.update({k: d.pop(k) for k in [next(iter(d))]}),
    "all deleted and added": lambda d: d.update({k: d.pop(k) for k in list(d)}),
    "reversed": lambda d: d.update({k: d.pop(k) for k in list(d)[::-1]}),
    "values swapped": lambda d: d.update(zip(list(d)[:2], list(d.values())[1::-1], strict=True)),
    "replaced by None": lambda d: d.update({next(iter(d)): None}),
    "another kind of array": lambda d: d.update({next(iter(d)): OtherArray()}),
    "equal keys that are others": lambda d: d.update(
        {
            (k + "." if isinstance(k, str) else k)[:-1] if isinstance(k, str) else float(k): d.pop(
                k
            )
            for k in list(d)
        }
    ),
    "True for 1": lambda d: d.update({True: d.pop(1)}) if 1 in d else None,
    "a key that is an object": lambda d: d.update({Value(1): d.pop(next(iter(d)))}),
    "grown and shrunk": lambda d: (
        [d.update({f"x{i}": i}) for i in range(100)],
        [d.pop(f"x{i}") for i in range(100)],
    ),
}


@pytest.mark.parametrize("change", DICT_CHANGES)
@pytest.mark.parametrize("kind", DICTS)
def test_a_dict_that_changes(kind: str, change: str) -> None:
    f, tree, one = made(DICTS[kind])
    is_seen(f, tree, lambda: DICT_CHANGES[change](dict_of(one)))


@pytest.mark.parametrize("kind", DICTS)
def test_another_dict(kind: str) -> None:
    f, tree, one = made(DICTS[kind])
    rows = tree["rows"]

    def other() -> None:
        rows[1] = DICTS[kind](1)

    def same() -> None:
        if isinstance(rows[2], dict):
            rows[2] = rows[2].copy()
        elif isinstance(rows[2], Frozen):
            rows[2].items = dict(rows[2].items)
        else:
            rows[2].metadata = dict(rows[2].metadata)

    def subclass() -> None:
        cls = type("D", (dict,), {})
        if isinstance(one, Variable):
            one.metadata = cls(one.metadata)

    for change in (other, same, subclass):
        is_seen(f, tree, change)


def test_an_empty_dict() -> None:
    f = jit()
    tree = [model(lambda i: {"w": Array(i), "n": i}), {}, Frozen({}), {1: 1}]
    remember(f, tree)
    tree[3].clear()
    remember(f, tree)
    for d in (tree[1], tree[2].items, tree[3]):
        is_seen(f, tree, lambda d=d: d.update(k=Array()))  # type: ignore[misc]
        is_seen(f, tree, lambda d=d: d.update(k=Array()))  # type: ignore[misc]
        is_seen(f, tree, lambda d=d: d.clear())  # type: ignore[misc]


def test_words_that_mean_something_else() -> None:
    """Three entries of a dict of str take as many words as two of another dict."""

    class Key:
        def __init__(self, hash_value: int) -> None:
            self.hash_value = hash_value

        def __hash__(self) -> int:
            return self.hash_value

        def __lt__(self, other: Any) -> bool:
            return self.hash_value < other.hash_value

    f, tree, _ = made(lambda i: {"a": "b", "c": i, "d": Array(i)})
    one = tree["rows"][3]
    # The block of this one would begin with the same three words.
    other: Any = {Key(id("a")): 1, Key(1): 2}
    one.clear()
    is_seen(f, tree, lambda: one.update(other))


@pytest.mark.parametrize("count", [50, 1500])
def test_a_large_dict_in_another_order(count: int) -> None:
    """Keys that are far from where they are looked for."""
    names = [f"k{i:04}" for i in range(count)]
    random.Random(1).shuffle(names)
    f = jit()
    tree = {name: Array(i) for i, name in enumerate(names)}
    remember(f, tree)

    def put(name: str) -> Callable[[], Any]:
        return lambda: tree.update({name: Array("new")})

    for name in names[:: count // 10]:
        is_seen(f, tree, put(name))
    is_seen(f, tree, lambda: tree.update({name: tree.pop(name) for name in names[:5]}))


# ---- objects ----

# What can be changed.
OBJECTS = [
    name
    for name in MAKERS
    if name not in ("Part", "Nothing", "NothingInSlots", "Frozen of nothing", "InitSlots")
]
VALUES: dict[str, Callable[[], Any]] = {
    "array": Array,
    "other array": OtherArray,
    "none": lambda: None,
    "int": lambda: 7,
    "text": lambda: "".join(["te", "xt"]),
    "value": lambda: Value(3),
    "tuple": lambda: (1, (2, 3)),
    "list": lambda: [Array(), 1],
    "dict": lambda: {"k": Array()},
    "slots": lambda: Slots(x=1, y=Array(), tag=2),
    "pair": lambda: Pair(x=1, y=Array(), tag=2),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_a_new_value_of_each_attribute(name: str) -> None:
    f, tree, one = made(lambda i: MAKERS[name](Array(i), Array(-i), "tag"))
    while isinstance(one, (list, tuple)):
        one = one[0]
    for attribute in attributes(one)[:5]:
        if attribute == "nodes":
            continue
        for make in VALUES.values():
            before = getattr(one, attribute)
            object.__setattr__(one, attribute, make())
            for _ in range(3):
                assert same(f(tree), tree)
            object.__setattr__(one, attribute, before)
            f = jit()  # which needs a shorter streak than one whose memo has failed
            for _ in range(10):
                found = f(tree)
            assert same(found, tree)


@pytest.mark.parametrize("name", OBJECTS)
def test_an_attribute_that_is_deleted(name: str) -> None:
    for default in (False, True):
        f, tree, one = made(lambda i: MAKERS[name](Array(i), Array(-i), "tag"))
        while isinstance(one, (list, tuple)):
            one = one[0]
        if isinstance(one, Described):
            continue
        for attribute in attributes(one)[:3]:
            if default and hasattr(type(one), attribute):
                continue
            before = getattr(one, attribute)
            if default:
                setattr(type(one), attribute, Array("default"))
            is_seen(f, tree, lambda: object.__delattr__(one, attribute))  # noqa: B023
            is_seen(f, tree, lambda: object.__setattr__(one, attribute, before))  # noqa: B023
            if default:
                delattr(type(one), attribute)
                is_seen(f, tree, lambda: None)


def _other_slot(cls: Any, rows: Any) -> None:
    """A slot stands in the place of an attribute in the dict."""
    if "spare" in cls.__dict__:
        for each in rows:
            each.spare = Array("spare")
        cls.x = cls.spare


def _no_slots(cls: Any, rows: Any) -> None:
    """The dict has the values of the slots, in the same order, by other names."""
    if "y" in cls.__dict__ and "spare" in cls.__dict__:
        for each in rows:
            each.__dict__.update(y=each.x, x=each.y, tag=each.tag)
        del cls.x, cls.y, cls.tag


def _fewer_versions(cls: Any, rows: Any) -> None:
    """CPython counts no more than 1000 versions of a class."""
    for i in range(1200):
        cls.counter = i
        attempt(getattr, rows[0], "x")


def of_the_class(change: str) -> Callable[[Any, Any], Any]:
    return lambda cls, rows: CLASS_CHANGES[change](cls)


def of_a_row(change: str) -> Callable[[Any, Any], Any]:
    return lambda cls, rows: INSTANCE_CHANGES[change](rows[3])


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    # Those after which a result can still be built.
    **{
        f"{name} of the class": of_the_class(name)
        for name in CLASS_CHANGES
        if name not in ("property", "bases")
    },
    **{name: of_a_row(name) for name in INSTANCE_CHANGES if name != "all deleted"},
    "another slot": _other_slot,
    "no slots": _no_slots,
    "all shadowed": lambda cls, rows: [vars(each).update(x=Array("shadow")) for each in rows],
    "no more versions": _fewer_versions,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("warm", [False, True])
def test_a_class_or_an_instance_that_changes(space: str, change: str, warm: bool) -> None:
    cls = new_class(space)
    f, tree, one = made(lambda i: cls(x=Array(i), y=Array(-i), tag=i))
    if warm:
        _fewer_versions(cls, rows_of(tree))
        remember(f, tree)
    done = []
    is_seen(f, tree, lambda: done.append(attempt(CHANGES[change], cls, rows_of(tree))))
    if not isinstance(done[0], Exception):
        for name in ("x", "tag"):
            is_seen(f, tree, lambda: attempt(setattr, one, name, Array("last")))  # noqa: B023


def test_an_attribute_that_a_slot_hides() -> None:
    """The __dict__ has a value by the name of a slot, and counts as many attributes as fields."""

    class Hidden(Object):
        __slots__ = ("__dict__", "a")
        layout = layout(("a", "b"), made=list)

    f = jit()
    tree = [Hidden(a=Array(i), b=Array(-i)) for i in range(40)]
    for each in tree:
        each.__dict__["a"] = Array("hidden")
    remember(f, tree)
    is_seen(f, tree, lambda: setattr(tree[4], "a", Array("new")))
    is_seen(f, tree, lambda: vars(tree[4]).update(a=Array("new")))


def test_an_object_that_is_a_tuple() -> None:
    """Its attributes are in its __dict__; its items are no part of the tree."""

    class Both(tuple[Any, ...], Object):  # type: ignore[misc]
        layout = layout(("x", "y"), mode="call")

        def __new__(cls, x: Any, y: Any) -> Any:
            return tuple.__new__(cls, (x, y))

        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

    f = jit()
    tree = [Both(Array(i), Array(-i)) for i in range(40)]
    remember(f, tree)
    is_seen(f, tree, lambda: setattr(tree[3], "x", Array("new")))
    is_seen(f, tree, lambda: delattr(tree[3], "x"))


def test_a_dict_of_a_subclass_that_looks_like_the_copy() -> None:
    """Its own attributes are what the record has of its items."""

    class D(dict):  # type: ignore[type-arg]
        pass

    f = jit()
    tree = []
    for i in range(40):
        new = Pair()
        new.__dict__ = D(x=Array(i), y=Array(-i), tag=1)
        for name, value in list(vars(new).items()):
            setattr(vars(new), f"key of {name}", name)
            setattr(vars(new), f"value of {name}", value)
        tree.append(new)
    remember(f, tree)
    is_seen(f, tree, lambda: vars(tree[3]).update(x=Array("new")))


# ---- described types ----


def test_described_types() -> None:
    f, tree, one = made(lambda i: Described(("x", "y"), x=Array(i), y=[Array()], tag=i))
    for change in (
        lambda: setattr(one, "nodes", ("x",)),
        lambda: setattr(one, "y", "text"),
        lambda: setattr(one, "nodes", ("x", "tag")),
        lambda: setattr(one, "new", Array()),
        lambda: delattr(one, "new"),
        lambda: setattr(one, "__dict__", dict(vars(one))),
        lambda: vars(one).update(x=1, nodes=()),
        lambda: one.__dict__.update({k: one.__dict__.pop(k) for k in list(vars(one))}),
        lambda: setattr(one, "__class__", type("Other", (Described,), {})),
    ):
        is_seen(f, tree, change)


# ---- addresses ----


@pytest.mark.parametrize("name", [*DICTS, *OBJECTS])
def test_addresses_that_come_back(name: str) -> None:
    make: Any = DICTS.get(name) or (lambda i: MAKERS[name](Array(i), Array(-i), "tag"))
    f = jit()
    seen: set[int] = set()
    again = 0
    for i in range(60):
        others = [make(j) for j in range(i % 5)]  # so that not all addresses come back
        tree = [make(j) for j in range(COPIES)]
        tree[i % COPIES] = make(99 + i)
        again += id(tree) in seen
        seen.add(id(tree))
        for _ in range(66):
            result = f(tree)
        assert same(result, tree)
        # The same containers with others in them, at the addresses of those that die.
        for j in (3, 5, 3):
            tree[j] = None
            tree[j] = make(-j)
            assert same(f(tree), tree)
        del tree, result, others
        if again == 5:
            break


def test_random_changes() -> None:
    """Rows of all kinds, any of which may change into any other."""
    source = random.Random(2)
    makers: list[Callable[[], Any]] = [
        *(lambda make=make: make(source.randrange(3)) for make in DICTS.values()),  # type: ignore[misc]
        *(lambda name=name: MAKERS[name](Array(), Array(), "tag") for name in OBJECTS),  # type: ignore[misc]
        lambda: HeldMixed(items={}, x=Array(), meta={"k": (1, "a")}, tag="tag"),
        lambda: Linear(weight=Array(), bias={"k": Frozen({"a": Array()})}, size=1, activation=2),
        lambda: Mixed(x=Slots(x=1, y=None, tag=1), y=Array(), tag=1),
    ]
    for _ in range(8):
        f = jit()
        tree = [source.choice(makers)() for _ in range(30)]
        for _ in range(40):
            tree[source.randrange(30)] = source.choice(makers)()
            one = source.choice(tree)
            if type(one) is dict and one:
                one[source.choice(list(one))] = source.choice((Array(), 1, None))
            elif isinstance(one, Object) and attributes(one):
                attempt(setattr, one, source.choice(attributes(one)), Array())
            flat = attempt(core.flatten, f._hooks.registry, tree)
            for _ in range(source.choice((1, 2, 6, 66))):
                found = attempt(f, tree)
            if isinstance(flat, Exception):
                assert type(found) is type(flat)
            else:
                assert same(found, tree)


# ---- an object in slots whose only child is an array ----


def test_the_array_of_an_object_is_replaced() -> None:
    """The record stays, and gives the array that is there now."""
    f, tree, one = made(lambda i: Variable(Array(i), kind="same"))
    shared = rows_of(tree)[3]
    tree["rows"][4] = shared  # an object that occurs twice
    remember(f, tree)
    for i in range(200):
        one.value = Array(f"new {i}")
        shared.value = OtherArray(i) if i % 50 == 0 else Array(i)
        assert same(f(tree), tree)
    for value in (OtherArray(), None, 1, "text", [Array()], (Array(), 1), Variable(Array())):
        is_seen(f, tree, lambda: setattr(one, "value", value))  # noqa: B023
        is_seen(f, tree, lambda: setattr(one, "value", Array()))
    is_seen(f, tree, lambda: delattr(one, "value"))
    is_seen(f, tree, lambda: setattr(one, "value", Array()))
    is_seen(f, tree, lambda: setattr(one, "metadata", {"kind": "other"}))
    is_seen(f, tree, lambda: rows_of(tree)[7].metadata.update(kind="other"))
    is_seen(f, tree, lambda: setattr(one, "__class__", type("V", (Variable,), {"__slots__": ()})))
