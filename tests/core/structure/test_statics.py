"""Statics compare exactly by type and value; keys of dicts likewise."""

import collections
import copy
import enum
import functools
import itertools
import math
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Hostile,
    Keyed,
    Linear,
    Point,
    Record,
    Unhashable,
    Value,
    core,
    make_registry,
)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    ONE = 1


class MyInt(int):
    pass


class MyFloat(float):
    pass


class MyStr(str):
    pass


class Flat(tuple):
    pass


class Factory(Value):
    def __call__(self) -> int:
        return 0


class Plain:
    """Compares by identity."""


plain = Plain()


def _new(value: Any) -> Any:
    """An equal object at another address, where there can be one."""
    if type(value) is float:
        return -math.nan if value != value and math.copysign(1, value) < 0 else float(repr(value))
    if type(value) in (tuple, frozenset):
        return type(value)(map(_new, value)) if value else value
    if type(value) in (MyInt, MyFloat, MyStr, Flat):
        return type(value)(value)
    if type(value) is str:
        return "".join(value)
    return value


# All of them different; by == many are the same.
DISTINCT: list[Any] = [
    1,
    True,
    1.0,
    complex(1),
    MyInt(1),
    MyFloat(1),
    Level.ONE,
    Color.RED,
    Color.BLUE,
    0,
    False,
    0.0,
    -0.0,
    complex(0.0, 0.0),
    complex(0.0, -0.0),
    complex(-0.0, 0.0),
    math.nan,
    math.inf,
    complex(math.nan, 0.0),
    2**70,
    "1",
    b"1",
    MyStr("1"),
    None,
    ...,
    NotImplemented,
    plain,
    Plain,
    Plain(),
    int,
    len,
    print,
    [].append,
    functools.partial(print),
    range(1),
    (),
    frozenset(),
    Flat(),
]
COMPOUND: list[Any] = [
    *((v,) for v in DISTINCT),
    *(frozenset([v]) for v in DISTINCT),
    *(((v,),) for v in (1, True, 1.0, 0.0, -0.0, math.nan)),
    *((frozenset([(v,)]),) for v in (1, True, 1.0, 0.0, -0.0)),
    Flat((1,)),
    Flat((True,)),
    Flat((1.0,)),
    (1, 2),
    (2, 1),
    frozenset([1, 2]),
    frozenset([1, 2.0]),
    frozenset([True, 2]),
    Point(1, 2),
    Point(True, 2),
]


def check_all_differ(registry: Any, trees: list[Any], again: list[Any]) -> None:
    structures = [core.flatten(registry, tree)[1] for tree in trees]
    copies = [core.flatten(registry, tree)[1] for tree in again]
    for structure in copies:
        hash(structure)
    for (i, s), (j, t) in itertools.product(enumerate(structures), enumerate(copies)):
        hash(s)
        assert (s == t) == (i == j), (s, t)
        assert (core.match(s, again[j]) is not None) == (i == j), (s, t)
        if i == j:
            assert hash(s) == hash(t)


@pytest.mark.parametrize("value", [3, (Value(1),), Value(1), [1]])
@pytest.mark.parametrize("hashed", [(), (0,), (1,), (0, 1)])
def test_equality_does_not_depend_on_what_was_hashed(
    registry: Any, value: Any, hashed: tuple[int, ...]
) -> None:
    for tree in (Linear(size=value), Box([], aux=value)):
        pair = [core.flatten(registry, tree)[1] for _ in range(2)]
        for i in hashed:
            hash(pair[i])
        assert pair[0] == pair[1] and pair[1] == pair[0]


def test_leaves_are_exact(registry: Any) -> None:
    leaves = [v for v in DISTINCT if type(v) is not tuple and v is not None]
    check_all_differ(registry, [[v] for v in leaves], [[_new(v)] for v in leaves])


def test_fields_are_exact(registry: Any) -> None:
    values = DISTINCT + COMPOUND
    check_all_differ(
        registry,
        [Linear(size=v) for v in values],
        [Linear(size=_new(v)) for v in values],
    )


def test_unhashable_fields_are_exact(registry: Any) -> None:
    """Static fields need no hash: lists, dicts and sets count by their contents."""

    def make() -> list[Any]:
        few = [1, True, 1.0, 0.0, -0.0, math.nan, "1", None]
        return [
            *([v] for v in few),
            *({v} for v in few),
            *({v: 0} for v in few),
            *({0: v} for v in few),
            *([[v]] for v in few),
            *(({"k": [v]},) for v in few),
            [],
            {},
            set(),
            [1, 2],
            [2, 1],
            {1, 2},
            {1, 2.0},
            {"a": 1, "b": 2},
        ]

    for wrap in (
        lambda v: Linear(size=v),
        lambda v: Record(1, 2, v),
        lambda v: Box([], aux=v),
    ):
        check_all_differ(registry, [wrap(v) for v in make()], [wrap(v) for v in make()])


def test_fields_without_a_hash_count_by_identity(registry: Any) -> None:
    x, y = Unhashable(), Unhashable()
    check_all_differ(
        registry,
        [Linear(size=v) for v in (x, y, [x], [y])],
        [Linear(size=v) for v in (x, y, [x], [y])],
    )


def test_values_by_their_own_equality(registry: Any) -> None:
    _, structure = core.flatten(registry, [Value(3), Array()])
    assert core.match(structure, [Value(3), Array()]) is not None
    assert core.match(structure, [Value(4), Array()]) is None
    assert core.match(structure, [3, Array()]) is None
    # By their own ==, and that of the type's fields takes 1 and True for the same.
    assert core.match(core.flatten(registry, [Value(1)])[1], [Value(True)]) is not None


def test_a_kind_with_a_key(registry: Any) -> None:
    trees = [[Keyed(v)] for v in (1, True, 1.0, (1,), (True,))]
    check_all_differ(registry, trees, [[Keyed(v)] for v in (1, True, 1.0, (1,), (True,))])


def test_nan_equals_itself(registry: Any) -> None:
    _, structure = core.flatten(registry, [math.nan, Array()])
    assert core.match(structure, [float("nan"), Array()]) is not None
    assert core.match(structure, [-math.nan, Array()]) is None


class TestMutation:
    """A static that changed between two calls is another one, also where it is the same
    object."""

    def test_value(self, registry: Any) -> None:
        value = Value(1)
        tree = [value, Array()]
        _, before = core.flatten(registry, tree)
        assert core.match(before, tree) is not None
        value.value = 2
        assert core.match(before, tree) is None
        _, after = core.flatten(registry, tree)
        hash(after)
        assert before != after
        value.value = 1
        assert core.match(before, tree) is not None

    @pytest.mark.parametrize(
        "value, change",
        [
            ([1], lambda v: v.append(2)),
            ([1], lambda v: v.__setitem__(0, True)),
            # Python's own hash takes these for the same.
            ([-1], lambda v: v.__setitem__(0, -2)),
            ([0], lambda v: v.__setitem__(0, 2**61 - 1)),
            ([2**70], lambda v: v.__setitem__(0, 2**70 + 2**61 - 1)),
            ({"a": 1}, lambda v: v.update(b=2)),
            ({"a": 1}, lambda v: v.update(a=1.0)),
            ({1}, lambda v: v.add(2)),
            ([[1]], lambda v: v[0].clear()),
            (([1],), lambda v: v[0].append(2)),
            (Value(1), lambda v: setattr(v, "value", 5)),
            ((Value(1),), lambda v: setattr(v[0], "value", 5)),
            (([Value(1)],), lambda v: setattr(v[0][0], "value", 5)),
            (Keyed(1), lambda v: setattr(v, "key", 1.0)),
        ],
    )
    @pytest.mark.parametrize("place", ["module", "dataclass", "custom"])
    def test_fields(self, registry: Any, value: Any, change: Any, place: str) -> None:
        value = copy.deepcopy(value)
        tree = {
            "module": lambda: Linear(weight=Array(), size=value),
            "dataclass": lambda: Record(Array(), 2, value),
            "custom": lambda: Box([Array()], aux=value),
        }[place]()
        _, before = core.flatten(registry, tree)
        assert core.match(before, tree) is not None
        hash(before)
        change(value)
        assert core.match(before, tree) is None
        _, after = core.flatten(registry, tree)
        hash(after)
        assert before != after

    @pytest.mark.parametrize("make", [lambda p: [p], lambda p: {"k": p}, lambda p: Keyed((0, p))])
    def test_another_at_the_same_address(self, registry: Any, make: Any) -> None:
        """What a value was made of is held, so nothing else gets its address."""
        value = make(Plain())
        tree = Record(1, 2, value)
        structures = []
        for _ in range(100):
            _, structure = core.flatten(registry, tree)
            hash(structure)
            assert core.match(structure, tree) is not None
            structures.append(structure)
            match value:
                case list():
                    value[0] = Plain()
                case dict():
                    value["k"] = Plain()
                case _:
                    value.key = (0, Plain())
            assert core.match(structure, tree) is None
        assert all(core.match(s, tree) is None for s in structures)

    @pytest.mark.parametrize("make", [lambda v: [v], lambda v: {"k": v}, Keyed])
    def test_what_the_structure_holds(self, registry: Any, make: Any) -> None:
        """It goes into the next trace: where it changed, an equal value is no match either."""
        value = make(1)
        _, structure = core.flatten(registry, Record(1, 2, value))
        hash(structure)
        assert core.match(structure, Record(1, 2, make(1))) is not None
        match value:
            case list():
                value[0] = 2
            case dict():
                value["k"] = 2
            case _:
                value.key = 2
        _, other = core.flatten(registry, Record(1, 2, make(1)))
        hash(other)
        assert structure != other and other != structure
        assert core.match(structure, Record(1, 2, make(1))) is None
        assert core.match(structure, Record(1, 2, value)) is None
        _, again = core.flatten(registry, Record(1, 2, make(2)))
        assert structure != again  # it is not hashed: as it is now

    def test_by_identity_can_change_at_will(self, registry: Any) -> None:
        thing = Plain()
        _, structure = core.flatten(registry, [thing])
        thing.anything = 1  # type: ignore[attr-defined]
        assert core.match(structure, [thing]) == ()
        assert core.match(structure, [Plain()]) is None


class TestKeyed:
    """Types for which the registry has a key, though they compare by identity."""

    @pytest.fixture
    def keyed(self) -> Any:
        return make_registry(keyed=((Plain, lambda p: p.key), (MyInt, lambda i: [int(i)])))

    def _plain(self, key: Any) -> Any:
        plain = Plain()
        plain.key = key  # type: ignore[attr-defined]
        return plain

    @pytest.mark.parametrize(
        "wrap",
        [
            lambda p: p,
            lambda p: (p, 1),
            lambda p: Linear(weight=p),
            lambda p: Linear(size=p),
            lambda p: Linear(size=(1, ((p,),))),
            lambda p: Linear(size=[p]),
            lambda p: Linear(size={"k": p}),
            lambda p: Linear(size={p}),
            lambda p: Linear(size=frozenset([p])),
            lambda p: Linear(size=Keyed(p)),
            lambda p: Box([1], aux=p),
            lambda p: Record(p, 1, p),
            lambda p: {(p, 1): 1},
        ],
    )
    def test_places(self, keyed: Any, wrap: Any) -> None:
        keys: list[Any] = [1, True, 1.0, (1,), [1], {1: 2}, {1}, frozenset([1, True, (1,)])]
        make = lambda: [wrap(self._plain(copy.copy(k))) for k in keys]
        structures = [core.flatten(keyed, tree)[1] for tree in make()]
        again = make()
        for i, s in enumerate(structures):
            hash(s)
            for j, tree in enumerate(again):
                _, t = core.flatten(keyed, tree)
                assert (s == t) == (i == j)
                hash(t)
                assert (s == t) == (i == j) == (t == s)
                if not isinstance(tree, dict):  # which finds its keys by their own ==
                    assert (core.match(s, tree) is not None) == (i == j)

    def test_the_very_object(self, keyed: Any) -> None:
        plain = self._plain(1)
        _, structure = core.flatten(keyed, [plain, Array()])
        hash(structure)
        array = Array()
        assert core.match(structure, [plain, array]) == (array,)
        plain.key = True
        assert core.match(structure, [plain, array]) is None
        plain.key = 1
        assert core.match(structure, [plain, array]) == (array,)

    def test_only_these_types(self, keyed: Any) -> None:
        class Sub(Plain):
            key = 1

        _, structure = core.flatten(keyed, [Sub(), MyInt(3), 3])
        assert core.match(structure, [Sub(), MyInt(3), 3]) is None
        _, structure = core.flatten(keyed, [MyInt(3), 3])
        assert core.match(structure, [MyInt(3), 3]) is not None
        assert core.match(structure, [3, MyInt(3)]) is None
        assert core.match(structure, [MyInt(4), 3]) is None

    def test_identity(self, keyed: Any) -> None:
        value: list[int] = []
        make = lambda v: [self._plain((core.identity(v), 1))]
        _, structure = core.flatten(keyed, make(value))
        assert core.match(structure, make(value)) == ()
        value.append(1)
        assert core.match(structure, make(value)) == ()
        assert core.match(structure, make([1])) is None
        for v in (list, [], (list,), core.identity, type(core.identity(1))):
            _, structure = core.flatten(keyed, make(v))
            for w in (list, [], (list,), core.identity, type(core.identity(1))):
                assert (core.match(structure, make(w)) is not None) == (v is w)
        assert core.match(core.flatten(keyed, [self._plain(core.identity(list))])[1],
                          [self._plain([])]) is None  # fmt: skip

    def test_key_that_fails(self, keyed: Any) -> None:
        plain = Plain()
        _, structure = core.flatten(keyed, [self._plain(1)])
        with pytest.raises(AttributeError):
            core.match(structure, [plain])
        with pytest.raises(AttributeError) as info:
            hash(core.flatten(keyed, [1, plain])[1])
        assert info.value.__filterjit_error_context__[:2] == ("hash", [(1,)])  # type: ignore[attr-defined]

    def test_key_without_end(self, keyed: Any) -> None:
        plain = Plain()
        plain.key = plain  # type: ignore[attr-defined]
        with pytest.raises(RecursionError):
            hash(core.flatten(keyed, [plain])[1])
        keyed = Keyed(0)
        keyed.key = (keyed,)
        with pytest.raises(RecursionError):
            hash(core.flatten(make_registry(), [keyed])[1])

    @pytest.mark.parametrize("bad", [(1,), ((1, 2),), ((int,),), [(int, str)], ([int, str],)])
    def test_bad_pairs(self, bad: Any) -> None:
        with pytest.raises(TypeError):
            make_registry(keyed=bad)
        with pytest.raises(TypeError, match="positional"):
            core.Registry(Array)


class TestErrors:
    @pytest.mark.parametrize(
        "value", [set(), bytearray(), Unhashable()], ids=lambda x: type(x).__name__
    )
    def test_unhashable_leaf(self, registry: Any, value: Any) -> None:
        tree = {"a": [1, Point(Array(), value)]}
        _, structure = core.flatten(registry, tree)
        for _ in range(2):
            with pytest.raises(TypeError, match="unhashable") as info:
                hash(structure)
            deed, path, blamed = info.value.__filterjit_error_context__  # type: ignore[attr-defined]
            assert (deed, path) == ("hash", [("a",), (1,), "y"]) and blamed is value
        with pytest.raises(TypeError, match="unhashable"):
            core.match(structure, tree)

    def test_containers_inside_a_key(self, registry: Any) -> None:
        """A value's own hash says whether it may be a leaf; what its key holds counts by its
        contents."""
        value = Keyed(([1], {1: {2}}))
        _, structure = core.flatten(registry, [0, value])
        hash(structure)
        assert core.match(structure, [0, Keyed(([1], {1: {2}}))]) == ()
        assert core.match(structure, [0, Keyed(([True], {1: {2}}))]) is None
        value.key[0].append(2)
        assert core.match(structure, [0, value]) is None

    def test_hash_that_fails(self, registry: Any) -> None:
        def fail() -> None:
            raise ZeroDivisionError("in hash")

        bad = Hostile(on_hash=fail)
        _, structure = core.flatten(registry, Linear(weight=[1, bad]))
        with pytest.raises(ZeroDivisionError) as info:
            hash(structure)
        assert info.value.__filterjit_error_context__ == ("hash", ["weight", (1,)], bad)  # type: ignore[attr-defined]

    def test_eq_that_fails(self, registry: Any) -> None:
        def fail() -> None:
            raise ZeroDivisionError("in eq")

        bad = Hostile(on_eq=fail)
        _, one = core.flatten(registry, [1, bad])
        _, two = core.flatten(registry, [1, Hostile()])
        hash(one), hash(two)
        with pytest.raises(ZeroDivisionError) as info:
            one == two  # noqa: B015
        deed, path, _ = info.value.__filterjit_error_context__  # type: ignore[attr-defined]
        assert (deed, path) == ("compare", [(1,)])
        with pytest.raises(ZeroDivisionError):
            core.match(one, [1, Hostile()])

    def test_eq_whose_answer_has_no_truth(self, registry: Any) -> None:
        class Vague:
            def __bool__(self) -> bool:
                raise ValueError("the truth value is ambiguous")

        _, structure = core.flatten(registry, [Hostile(equal=Vague())])
        with pytest.raises(ValueError, match="ambiguous"):
            core.match(structure, [Hostile()])

    def test_key_that_fails(self, registry: Any) -> None:
        keyed = Keyed(1)
        del keyed.key
        _, structure = core.flatten(registry, Record(0, keyed, 0))
        with pytest.raises(AttributeError) as info:
            hash(structure)
        assert info.value.__filterjit_error_context__[:2] == ("hash", ["other"])  # type: ignore[attr-defined]

    def test_exceptions_that_take_no_attributes(self, registry: Any) -> None:
        class Bare(Exception):
            def __setattr__(self, name: str, value: Any) -> None:
                raise RuntimeError("no attributes")

        def fail() -> None:
            raise Bare

        _, structure = core.flatten(registry, [Hostile(on_hash=fail)])
        with pytest.raises(Bare):
            hash(structure)

    def test_describe_that_fails(self, registry: Any) -> None:
        def fail() -> None:
            raise ZeroDivisionError("in describe")

        bad = Box([], hook=fail)
        with pytest.raises(ZeroDivisionError) as info:
            core.flatten(registry, {"k": (1, [bad])})
        assert info.value.__filterjit_error_context__ == ("flatten", [("k",), (1,), (0,)], bad)  # type: ignore[attr-defined]


class TestKeys:
    def test_insertion_order_does_not_count(self, registry: Any) -> None:
        x, y = Array("x"), Array("y")
        arrays, structure = core.flatten(registry, {"b": x, "a": y})
        assert arrays == (y, x)
        assert core.match(structure, {"a": y, "b": x}) == (y, x)
        assert list(structure.unflatten(arrays)) == ["a", "b"]
        arrays, structure = core.flatten(registry, {2: x, 1: y})
        assert core.match(structure, {1: y, 2: x}) == arrays == (y, x)

    def test_order_counts_in_an_ordered_dict(self, registry: Any) -> None:
        make = collections.OrderedDict
        _, structure = core.flatten(registry, make(b=1, a=2))
        assert core.match(structure, make(b=1, a=2)) is not None
        assert core.match(structure, make(a=2, b=1)) is None
        assert list(structure.unflatten(())) == ["b", "a"]

    def test_keys_are_exact(self, registry: Any) -> None:
        keys = [1, True, 1.0, 0.0, -0.0, "1", MyStr("1"), MyInt(1), (1,), (True,), None, Level.ONE]
        check_all_differ(registry, [{k: 0} for k in keys], [{_new(k): 0} for k in keys])
        make: Any = collections.OrderedDict
        check_all_differ(registry, [make({k: 0}) for k in keys], [make({k: 0}) for k in keys])
        check_all_differ(
            registry,
            [collections.defaultdict(int, {k: 0}) for k in keys],
            [collections.defaultdict(int, {k: 0}) for k in keys],
        )

    def test_str_subclasses(self, registry: Any) -> None:
        """Equal and of equal hash, so that the dict finds one for the other."""
        x = Array()
        _, plain = core.flatten(registry, {"a": x})
        _, own = core.flatten(registry, {MyStr("a"): x})
        assert core.match(plain, {MyStr("a"): x}) is None
        assert core.match(own, {"a": x}) is None
        assert core.match(own, {MyStr("a"): x}) == (x,)
        # A dict that once held such a key, and holds str alone now.
        was: dict[Any, Any] = {MyStr("b"): 1, "a": x}
        del was["b"]
        assert core.match(plain, was) == (x,)

    def test_other_keys_of_the_same_number(self, registry: Any) -> None:
        _, structure = core.flatten(registry, {"a": Array(), "b": 1})
        for tree in ({"a": Array(), "c": 1}, {"a": Array()}, {"a": Array(), "b": 1, "c": 1}):
            assert core.match(structure, tree) is None
        _, structure = core.flatten(registry, {1: Array(), 2: 1})
        for other in ({1: Array(), 3: 1}, {1: Array()}, {1: Array(), "2": 1}):
            assert core.match(structure, other) is None

    @pytest.mark.parametrize(
        "keys", [(1, "a"), (None, 1), (object(), object()), ((1, "a"), (1, 2)), (1j, 2j)]
    )
    def test_keys_that_cannot_be_sorted(self, registry: Any, keys: tuple[Any, ...]) -> None:
        bad = dict.fromkeys(keys, 0)
        tree = [0, {"k": Linear(weight=Array(), bias=bad)}]
        with pytest.raises(TypeError, match="not supported") as info:
            core.flatten(registry, tree)
        deed, path, value = info.value.__filterjit_error_context__  # type: ignore[attr-defined]
        assert (deed, path) == ("sort", [(1,), ("k",), "bias"]) and value is bad
        # In its own order, an OrderedDict has no need to sort.
        core.flatten(registry, collections.OrderedDict(bad))

    def test_match_against_keys_that_cannot_be_sorted(self, registry: Any) -> None:
        _, structure = core.flatten(registry, {1: 0, 2: 0})
        assert core.match(structure, {1: 0, "a": 0}) is None

    def test_default_factory_counts(self, registry: Any) -> None:
        make: Any = collections.defaultdict
        factories = [int, list, None, Factory(1), Factory(2)]
        trees = [make(f, a=Array()) for f in factories]
        again = [make(Factory(f.value) if type(f) is Factory else f, a=0) for f in factories]
        for tree in again:
            tree["a"] = Array()
        check_all_differ(registry, trees, again)
        arrays, structure = core.flatten(registry, trees[0])
        built = structure.unflatten(arrays)
        assert built.default_factory is int and built == trees[0]

    def test_nan_keys(self, registry: Any) -> None:
        tree = {math.nan: Array()}
        arrays, structure = core.flatten(registry, tree)
        assert core.match(structure, tree) == arrays
        # Another NaN is not found in the dict by this one: a miss, not an error.
        assert core.match(structure, {float("nan"): Array()}) is None


def test_arguments_of_same_static(registry: Any) -> None:
    for arguments in ((), (registry, 1), (1, 2, 3), (registry, 1, 2, 3)):
        with pytest.raises(TypeError, match="takes"):
            core.same_static(*arguments)
