"""What is remembered of a large argument never hides a difference that a walk would see.

What is changed between two calls is seen by the next one, in each kind of container.  The result of
each call is compared with the current tree: `same` compares exact types, statics by the core's rule,
and arrays by identity.
"""

import collections
import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import core_support as cs
import pytest
import trees_support as ts
from core_support import Array, Described, Frozen, Linear, Maybe, Module, OtherArray, Variable, same
from hooks_support import make_jit
from outcome_support import attempt, nothing
from trees_support import CLASS_CHANGES, INSTANCE_CHANGES, HeldMixed, OtherLinear, check_walks
from trees_support import OBJECTS as MAKERS

COPIES = 24  # so that the argument has more nodes than FJ_KNOWN_MIN_NODES


def jit() -> Any:
    return make_jit(lambda tree: tree)


def remember(f: Any, tree: Any) -> None:
    """Calls often enough for a record, whatever happened before: see LONGEST_STREAK in known.c."""
    for _ in range(66):
        f(tree)
    assert same(f(tree), tree)


def model(make: Callable[[int], Any]) -> Any:
    """Many instances, in the containers that a record knows.

    All other statics are inert; otherwise the core walks the model each time.
    """
    rows = [make(i) for i in range(COPIES)]
    inner = Linear(weight=rows[8:16], bias=("a", 1), size="inner", activation=Linear)
    return {"rows": rows[:8], "more": (inner, None, ("a", 1)), "p": cs.Point(rows[16:], Array())}


def rows_of(tree: Any) -> list[Any]:
    return [*tree["rows"], *tree["more"][0].weight, *tree["p"].x]


def made(make: Callable[[int], Any]) -> tuple[Any, Any, Any]:
    f, tree = jit(), model(make)
    remember(f, tree)
    return f, tree, rows_of(tree)[11]


def is_right(f: Any, tree: Any, calls: int = 1) -> bool:
    """Calls, and returns whether the tree can be flattened."""
    flat = attempt(cs.core.flatten, f._hooks.registry, tree)
    for _ in range(calls):
        found = attempt(f, tree)
    if isinstance(flat, Exception):
        assert type(found) is type(flat), found
        return False
    assert same(found, tree)
    return True


def is_seen(f: Any, tree: Any, change: Callable[[], Any]) -> None:
    """Whether the next calls are right, and those after a new record."""
    change()
    for _ in range(3):
        can_be_flattened = is_right(f, tree)
    if can_be_flattened:
        remember(f, tree)


# ---- rows of a model, and values in them ----


def leaf(i: int) -> Linear:
    return Linear(weight=Array(i), bias=None, size=i, activation=f"name {i}")


class Behind(Module):
    """Its fields come after another attribute, which the first instance alone has."""

    dynamic, static = Linear.dynamic, Linear.static


Behind(early=1, weight=Array(), bias=None, size=1, activation=None)


DICTS: dict[str, Callable[[int], Any]] = {
    "without a record": lambda i: collections.defaultdict(int, w=Array(i), n=i, s=f"name {i}"),
    "dict": lambda i: {"w": Array(i), "b": None, "n": i, "s": f"name {i}"},
    "unsorted": lambda i: dict(zip("dbac", (Array(i), 1, Array(-i), (1, 2)), strict=True)),
    "numbers": lambda i: {3: Array(i), 1: Array(-i), 2: i},
    "dict_field": lambda i: Frozen({"w": Array(i), "b": i}),
    "statics in a slot": lambda i: Variable(Array(i), kind=i, other="text"),
}
# The objects that can be changed.
OBJECTS: dict[str, Callable[[int], Any]] = {
    name: lambda i, make=make: make(Array(i), Array(-i), "tag")  # type: ignore[misc]
    for name, make in MAKERS.items()
    if name not in ("Part", "Nothing", "NothingInSlots", "Frozen of nothing", "InitSlots")
}
ROWS: dict[str, Callable[[int], Any]] = {
    "modules": lambda i: [leaf(i), (leaf(i + 1), i), cs.Point(leaf(i + 2), Array())],
    "fields behind another attribute": lambda i: Behind(
        weight=Array(i), bias=1, size=i, activation="a"
    ),
    **DICTS,
    **OBJECTS,
}
VALUES: list[Callable[[], Any]] = [
    *(Array, OtherArray, lambda: Maybe(True), lambda: Maybe(False), lambda: None, lambda: 7),
    *(lambda: random.random(), lambda: "".join(["te", "xt"]), lambda: cs.Value(3)),
    *(lambda: (1, (2, 3)), lambda: [Array(), 1], lambda: {"k": Array()}, lambda: leaf(3)),
    lambda: OtherLinear(weight=Array(), bias=None, size=3, activation="name 3"),
    lambda: cs.Slots(x=1, y=Array(), tag=2),
    lambda: cs.Pair(x=1, y=Array(), tag=2),
]


def items_of(x: Any) -> list[tuple[Any, Any]]:
    """The children of a container by their places in it; those in tuples have none."""
    if isinstance(x, dict):
        return list(x.items())
    if isinstance(x, Module):
        return list(vars(x).items())
    if isinstance(x, (cs.Object, Described)):
        return [(name, getattr(x, name)) for name in ts.attributes(x) if name != "nodes"]
    return list(enumerate(x)) if isinstance(x, (list, tuple)) else []


def places(tree: Any) -> list[tuple[Any, Any, Any]]:
    """Places where a value can be put, as (owner, name, value), a container before what is in it."""
    found: list[tuple[Any, Any, Any]] = []
    for name, value in items_of(tree):
        found += [] if isinstance(tree, tuple) else [(tree, name, value)]
        found += places(value)
    return found


def put(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, (list, dict)):
        owner[name] = value
    else:
        object.__setattr__(owner, name, value)


@pytest.mark.parametrize("kind", ROWS)
def test_a_new_value_in_any_place(kind: str) -> None:
    f, tree, one = made(ROWS[kind])
    for owner, name, before in places(one)[:3] + random.Random(0).sample(places(tree), 2):
        for make in VALUES:
            put(owner, name, make())
            for _ in range(2):
                assert same(f(tree), tree)
            put(owner, name, before)
            f = jit()  # which needs a shorter streak than one whose record was wrong
            assert is_right(f, tree, 10)


@pytest.mark.parametrize("kind", ROWS)
def test_addresses_that_come_back(kind: str) -> None:
    make, f = ROWS[kind], jit()
    seen: set[int] = set()
    again = 0
    for i in range(30):
        others = [make(j) for j in range(i % 5)]  # so that not all addresses come back
        tree = [make(j) for j in range(COPIES)]
        tree[i % COPIES] = make(99 + i)
        again += id(tree) in seen
        seen.add(id(tree))
        assert is_right(f, tree, 66)
        # The same containers with others in them, at the addresses of those that die.
        for j in (3, 5, 3):
            tree[j] = None
            tree[j] = make(-j)
            assert is_right(f, tree)
        del tree, others
        if again == 5:
            break


# ---- changes one after another ----


SEQUENCES: dict[str, tuple[Callable[[int], Any], list[Callable[[Any], Any]]]] = {
    "module": (
        leaf,
        [
            vars,  # makes the dict
            lambda x: object.__setattr__(x, "__name__", "extra"),
            lambda x: object.__delattr__(x, "__name__"),
            lambda x: object.__delattr__(x, "size"),
            lambda x: object.__setattr__(x, "size", 5),
            lambda x: setattr(x, "__dict__", dict(vars(x), size=6)),
            lambda x: object.__setattr__(x, "__class__", OtherLinear),
            lambda x: object.__setattr__(x, "__class__", Linear),
        ],
    ),
    "described": (
        lambda i: Described(("x", "y"), x=Array(i), y=[Array()], tag=i),
        [
            lambda x: setattr(x, "nodes", ("x",)),
            lambda x: setattr(x, "y", "text"),
            lambda x: setattr(x, "nodes", ("x", "tag")),
            lambda x: setattr(x, "new", Array()),
            lambda x: delattr(x, "new"),
            lambda x: setattr(x, "__dict__", dict(vars(x))),
            lambda x: vars(x).update(x=1, nodes=()),
            lambda x: x.__dict__.update({k: x.__dict__.pop(k) for k in list(vars(x))}),
            lambda x: setattr(x, "__class__", type("Other", (Described,), {})),
        ],
    ),
    "dict fields": (
        lambda i: HeldMixed(items={"k": Array(i)}, x=Array(-i), meta={"m": 1}, tag="tag"),
        [
            *(lambda x, name=name: delattr(x, name) for name in ("tag", "meta", "x", "items")),  # type: ignore[misc]
            *(lambda x, name=name: setattr(x, name, {"k": 2}) for name in ("items", "x", "meta")),  # type: ignore[misc]
            lambda x: setattr(x, "tag", "tag"),
        ],
    ),
    "empty dict": (
        lambda i: {"w": Array(i), "n": i, "d": {}, "frozen": Frozen({}), "one": {1: 1}},
        [
            lambda x: x["one"].clear(),
            *(lambda x, k=k: x[k].update(k=Array()) for k in ("d", "d", "one", "one")),  # type: ignore[misc]
            *(lambda x, k=k: x[k].clear() for k in ("d", "one")),  # type: ignore[misc]
            *(lambda x: x["frozen"].items.update(k=Array()),) * 2,
            lambda x: x["frozen"].items.clear(),
        ],
    ),
    # The record gives the array that is there now.
    "array of an object in slots": (
        lambda i: Variable(Array(i), kind="same"),
        [
            lambda x: setattr(x, "value", Array("new")),
            *(
                lambda x, value=value: setattr(x, "value", value)  # type: ignore[misc]
                for each in (OtherArray(), None, 1, "text", [Array()], (Array(), 1), leaf(1))
                for value in (each, Array())
            ),
            lambda x: delattr(x, "value"),
            lambda x: setattr(x, "value", Array()),
            lambda x: setattr(x, "metadata", {"kind": "other"}),
            lambda x: x.metadata.update(kind="another"),
            lambda x: setattr(x, "__class__", type("V", (Variable,), {"__slots__": ()})),
        ],
    ),
}


def test_changes_one_after_another() -> None:
    for make, changes in SEQUENCES.values():
        f, tree, one = made(make)
        for change in changes:
            is_seen(f, tree, lambda: change(one))  # noqa: B023


def test_the_array_of_an_object_is_replaced() -> None:
    f, tree, one = made(SEQUENCES["array of an object in slots"][0])
    shared = tree["rows"][4] = tree["rows"][3]  # an object that occurs twice
    remember(f, tree)
    for i in range(200):
        one.value = Array(f"new {i}")
        shared.value = OtherArray(i) if i % 50 == 0 else Array(i)
        assert same(f(tree), tree)


# ---- dicts ----


def dict_of(x: Any) -> Any:
    return x if isinstance(x, dict) else x.items if isinstance(x, Frozen) else x.metadata


DICT_CHANGES: dict[str, Callable[[Any], Any]] = {
    "an equal static": lambda d: d.update({list(d)[-1]: "".join(["te", "xt"])}),
    "another key": lambda d: d.update({"new": 1}) if "w" in d else d.update({99: 1}),
    "a key less": lambda d: d.popitem(),
    "cleared": lambda d: d.clear(),
    "deleted and added": lambda d: d.update({k: d.pop(k) for k in [next(iter(d))]}),
    "all deleted and added": lambda d: d.update({k: d.pop(k) for k in list(d)}),
    "reversed": lambda d: d.update({k: d.pop(k) for k in list(d)[::-1]}),
    "values swapped": lambda d: d.update(zip(list(d)[:2], list(d.values())[1::-1], strict=True)),
    "equal keys that are others": lambda d: d.update(
        {f"{k}."[:-1] if isinstance(k, str) else float(k): d.pop(k) for k in list(d)}
    ),
    "True for 1": lambda d: d.update({True: d.pop(1)}) if 1 in d else None,
    "a key that is an object": lambda d: d.update({cs.Value(1): d.pop(next(iter(d)))}),
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


@pytest.mark.parametrize("count", [50, 1500])
def test_a_large_dict_in_another_order(count: int) -> None:
    """Keys that are far from where they are looked for."""
    names = [f"k{i:04}" for i in range(count)]
    random.Random(1).shuffle(names)
    f = jit()
    tree = {name: Array(i) for i, name in enumerate(names)}
    remember(f, tree)
    for name in names[:: count // 10]:
        is_seen(f, tree, lambda: tree.update({name: Array("new")}))  # noqa: B023
    is_seen(f, tree, lambda: tree.update({name: tree.pop(name) for name in names[:5]}))


# ---- objects ----


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


def _deleted_with_a_default(cls: Any, rows: Any) -> None:
    for name in ("x", "tag"):
        delattr(rows[3], name)
        if name not in vars(cls):  # no slot
            setattr(cls, name, Array("default"))


def _fewer_versions(cls: Any, rows: Any) -> None:
    """CPython counts no more than 1000 versions of a class."""
    for i in range(1200):
        cls.counter = i
        attempt(getattr, rows[0], "x")


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    **{
        f"{name} of the class": lambda cls, rows, change=change: change(cls)  # type: ignore[misc]
        for name, change in CLASS_CHANGES.items()
    },
    **{
        name: lambda cls, rows, change=change: change(rows[3])  # type: ignore[misc]
        for name, change in INSTANCE_CHANGES.items()
    },
    "another slot": _other_slot,
    "no slots": _no_slots,
    "deleted with a default": _deleted_with_a_default,
    "all shadowed": lambda cls, rows: [vars(each).update(x=Array("shadow")) for each in rows],
    "no more versions": _fewer_versions,
}

# Those after which no result can be built.
NOT_BUILT = ("property of the class", "bases of the class", "all deleted")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("space", ts.SPACES)
@pytest.mark.parametrize("warm", [False, True])
def test_a_class_or_an_instance_that_changes(space: str, change: str, warm: bool) -> None:
    """Calls see what `getattr` sees, and so does each walk."""
    cls = ts.new_class(space)
    f, tree, one = made(lambda i: cls(x=Array(i), y=Array(-i), tag=i))
    rows, registry = rows_of(tree), f._hooks.registry
    _, structure = cs.core.flatten(registry, rows)
    if warm:
        _fewer_versions(cls, rows)
        remember(f, tree)
        check_walks(registry, structure, rows)
    done = attempt(CHANGES[change], cls, rows)
    for _ in range(2):
        check_walks(registry, structure, rows)
    if change in NOT_BUILT:
        return
    is_seen(f, tree, nothing)
    if not isinstance(done, Exception):
        for name in ("x", "tag"):
            is_seen(f, tree, lambda: attempt(setattr, one, name, Array("last")))  # noqa: B023


# ---- statics and other arguments ----


@pytest.mark.parametrize("changed", ["own", "equal copy", "first of two"])
def test_a_static_that_changes_in_place(changed: str) -> None:
    f, tree = jit(), model(leaf)
    one = rows_of(tree)[5]
    object.__setattr__(one, "size", [1, (2,)])
    first = one.size
    f(tree)
    if changed != "own":
        object.__setattr__(one, "size", [1, (2,)])
    remember(f, tree)
    assert len(f._parts()[0].variants()) == 1
    (first if changed == "first of two" else one.size).append(3)
    f(tree)
    assert len(f._parts()[0].variants()) == 2


def test_other_arguments() -> None:
    """They are compared, and the largest may not be the first."""
    f = make_jit(lambda *trees, **more: (trees, more))
    small, large = [leaf(1)] * 3, model(leaf)
    for changes in range(3):
        for _ in range(100):
            assert same(f(small, large), ((small, large), {}))
            assert same(f(k=large), ((), {"k": large}))
        for other in (1, True, 2.0, Array(), large["rows"]):
            assert same(f(other, large), ((other, large), {}))
            assert same(f(k=large, l=other), ((), {"k": large, "l": other}))
        (small if changes == 0 else large["rows"])[0] = leaf(2 + changes)
    f = make_jit(lambda *trees: trees[0])  # they are packed in a tuple at the same address
    for tree in (model(leaf), model(leaf)):
        assert same(f(tree), tree)
        remember(f, tree)


def test_nothing_is_held() -> None:
    f, tree, one = made(leaf)
    dead = [weakref.ref(x) for x in (rows_of(tree)[0], one, one.weight)]
    del tree, one
    assert all(ref() is None for ref in dead)
    assert len(f._parts()[0].variants()) == 1


def test_changed_within_the_call() -> None:
    """The walk of another argument runs Python code, which changes the remembered argument."""

    def hook() -> None:
        f._parts()
        tree["rows"][0] = leaf(99)
        tree["rows"].append(Array())
        for _ in range(3):
            f(tree, 0)
        gc.collect()

    f = make_jit(lambda tree, n: (tree, n))
    tree, array = model(leaf), Array()
    for _ in range(100):
        f(tree, array)
    for _ in range(3):
        result, _ = f(tree, Maybe(True, hook))
        assert len(result["rows"]) <= len(tree["rows"])
    for _ in range(66):
        assert same(f(tree, array), (tree, array))
