"""Each allocation of the core fails once: ``python allocations.py NAME``; all without a name.

Each scenario makes what it needs and returns a call and a check of its result. The call is made
with its first allocation failing, then with its second, until none is left to fail; each time it
must raise MemoryError or succeed, leave nothing behind, and be right the next time.

It is a program of its own: nothing else allocates in its process, and it may crash. CPython itself
leaks where an allocation fails in `list(tuple)`, for a closure's cell or for `*args`, loses an
exception where one fails for its text, and 3.12 crashes where one fails for a function. So the
little Python that runs here does without these.
"""

from __future__ import annotations

import _testcapi
import collections
import functools
import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import core_support as cs
from core_support import Array, Linear, Module, OtherArray, Point, Record, Value, core, same

Call = Callable[[], Any]
Check = Callable[[Any], None]
SCENARIOS: dict[str, Callable[[], tuple[Call, Check]]] = {}

MOST = 3000  # allocations in a scenario
PROBES = 200  # allocations after the call, of which one fails if none did in the call


def scenario(make: Callable[[], tuple[Call, Check]]) -> Callable[[], tuple[Call, Check]]:
    SCENARIOS[make.__name__] = make
    return make


def fail(*args: Any) -> Any:
    raise ZeroDivisionError("by zero")


def first(a: Any, b: Any) -> Any:
    return a


def expect(condition: Any) -> None:
    """An assertion that makes no long text."""
    if not condition:
        raise AssertionError


def equals(expected: Any) -> Check:
    return lambda found: expect(same(found, expected))


def raised(error: type[BaseException], call: Callable[..., Any], *args: Any) -> str:
    """The text of the error that the call is to raise."""
    try:
        call(*args)
    except error as e:
        return str(e)
    raise AssertionError(f"{call} did not raise {error}")


# What all scenarios share, so that its reference counts tell.
X, Y, OTHER, STATIC, KEYED = Array("x"), Array("y"), OtherArray(), Value(3), cs.Keyed((1,))
HOLE = Value("hole")
SHARED: list[Any] = [
    *(None, True, False, X, Y, OTHER, STATIC, KEYED, HOLE, len, cs.missing, (), 2**70),
    *(Array, Linear, Point, Record, Value, cs.LoudPoint, cs.classify),
    *(t for t in vars(core).values() if isinstance(t, type)),
]


class Box(cs.Box):
    """Holds the very children."""

    def __init__(self, children: Any, aux: Any = None, hook: Any = None) -> None:
        self.children, self.aux, self.hook = children, aux, hook


def split(x: Any) -> Any:
    if x.hook is not None:
        x.hook()
    return x.children, x.aux


KEYS = ((0,), (1,), (2,), (3,))
MANY = (1,) * 20


def describe(x: Any) -> Any:
    children, aux = split(x)
    return children, aux, functools.partial(type(x), aux=aux), KEYS[: len(children)]


make_registry = functools.partial(cs.make_registry, split=split, describe=describe)


class Wide(Module):
    """Has more fields than are read into an array on the stack."""

    dynamic = tuple(f"field{i}" for i in range(40))


class Slotted(Module):
    """A field of it is a descriptor, so it is built field by field."""

    dynamic = ("weight",)
    static = ("size",)
    weight = property(
        lambda self: self.__dict__["weight"], lambda self, x: self.__dict__.update(weight=x)
    )


class Key(str):
    """A key whose text is made by Python code."""

    __slots__ = ()

    def __str__(self) -> str:
        return "key " + str.__str__(self)


class Elements(frozenset):  # type: ignore[type-arg]
    """A set whose elements Python code enumerates; it compares as its base does."""

    def __iter__(self) -> Any:
        return frozenset.__iter__(self)


TREES: dict[str, Callable[[], Any]] = {
    "tuple": lambda: (X, 1, (2, "a"), None),
    "list": lambda: [X, [Y, 2.5], []],
    "dict": lambda: {"a": X, "b": {"c": 1}},
    "keys": lambda: {2: X, 1: {3.5: Y}},
    "ordered": lambda: collections.OrderedDict(b=X, a=1),
    "default": lambda: collections.defaultdict(list, k=X),
    "named": lambda: Point(X, cs.LoudPoint(1, Y)),
    "module": lambda: Linear(weight=X, bias=[Y], size=3, activation=len),
    "wrapper": lambda: Linear(weight=X, size=[1, {"k": 2}], __name__="f"),
    "wide": lambda: Wide(**dict.fromkeys(Wide.dynamic, X)),
    "slotted": lambda: Slotted(weight=X, size=(1, Value(2))),
    "record": lambda: Record(X, [1], ("a", frozenset([1, 2]))),
    "box": lambda: Box(
        (
            X,
            3,
        ),
        aux=("a", Value(1)),
    ),
    "statics": lambda: [STATIC, KEYED, 2**70, -(2**70), 1.5, 2j, frozenset([1, (2, 3)]), "text"],
    "asked": lambda: [cs.Maybe(True), cs.OtherArray()],
    "sets": lambda: Linear(size=Elements([1, (2, STATIC)]), activation={"k": {1, 2}}),
    "many": lambda: [[X] * 60, [Y, 1] * 60],
}


def mixed() -> Any:
    return {
        "m": Linear(weight=X, bias=[Y], size=3, activation=len),
        "p": (Point(X, 2), None),
        "d": collections.defaultdict(int, k=OTHER),
        "r": Record(X, [1], "a"),
        "b": Box(
            (
                Y,
                3,
            ),
            aux=1,
        ),
        "s": [STATIC, (1, 2), "text"],
    }


# ---- trees and structures ----


def each_kind(name: str, make: Callable[[], Any]) -> None:
    def flatten() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()

        def check(found: Any) -> None:
            expect(same(found[1].unflatten(found[0]), tree))

        return lambda: core.flatten(registry, tree), check

    def build() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        arrays, structure = core.flatten(registry, tree)
        return lambda: structure.unflatten(arrays), equals(tree)

    def hashing() -> tuple[Call, Check]:
        registry = make_registry()
        structure, other = (core.flatten(registry, make())[1] for _ in "ab")
        return lambda: hash(structure), lambda found: expect(found == hash(other))

    def equality() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        a, b = (core.flatten(registry, tree)[1] for _ in "ab")
        hash(a)
        return lambda: a == b, lambda found: expect(found is True)

    def match() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        arrays, structure = core.flatten(registry, tree)
        hash(structure)
        again = make() if name != "asked" else tree
        if name == "asked":
            arrays = core.flatten(registry, again)[0]
        return lambda: core.match(structure, again), equals(arrays)

    def described() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        structure = core.flatten(registry, tree)[1]

        def call() -> Any:
            return repr(structure), structure.array_paths(), structure.nodes(), structure.span()

        expected = repr(structure), structure.array_paths()
        # A repr for which an allocation failed can leave its mark on the next one: {...}.
        return call, lambda found: expect(found[:2] == expected or "..." in found[0])

    def leaves() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        expected = list(core.tree_flatten(registry, tree, True, None)[0])
        return lambda: core.tree_leaves(registry, tree, None), equals(expected)

    def mapped() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        return lambda: core.tree_map(registry, first, (tree, tree), None), equals(tree)

    def upto() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        leaves, structure = core.tree_flatten(registry, tree, True, None)
        return lambda: structure.flatten_up_to(tree), equals(leaves)

    def paths() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        structure = core.tree_flatten(registry, tree, ("arrays",), None)[1]
        fresh = core.tree_flatten(registry, tree, ("arrays",), None)[1].paths

        def call() -> Any:
            return core.tree_paths(registry, tree, None), structure.paths

        return call, lambda found: expect(found[1] == fresh and len(found[0]) >= len(fresh))

    def filtered() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()

        def call() -> Any:
            arrays, structure = core.tree_flatten(registry, tree, ("arrays",), None)
            return structure.unflatten(arrays), repr(structure), structure

        def check(found: Any) -> None:
            expect(same(found[0], tree) and found[2] == call()[2])

        return call, check

    def parts() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()
        leaves, structure = core.tree_flatten(registry, tree, ("arrays",), None)

        def check(made: Any) -> None:
            expect(made == structure and same(made.unflatten(leaves), tree))

        return lambda: core.from_parts(registry, HOLE, *structure.parts(HOLE)), check

    def partition() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()

        def call() -> Any:
            parts = core.partition(registry, tree, (("arrays",),), None, None)
            return core.combine(registry, parts, None, True)

        return call, equals(tree)

    def dicts() -> tuple[Call, Check]:
        registry, tree = make_registry(), make()

        def call() -> Any:
            structure, *groups = core.partition_dict(registry, tree, True, (("arrays",),), None)
            return structure.combine(*reversed(groups))

        return call, equals(tree)

    for kind in (
        *(flatten, build, hashing, equality, match, described, leaves, mapped, upto, paths),
        *(filtered, parts, partition, dicts),
    ):
        SCENARIOS[f"{kind.__name__}_{name}"] = kind


for _name, _make in TREES.items():
    each_kind(_name, _make)


@scenario
def same_static() -> tuple[Call, Check]:
    registry = make_registry()
    a, b = ([1, {"k": {2, (3, STATIC)}}, Elements([1, 2]), KEYED, 2**70] for _ in "ab")
    return lambda: core.same_static(registry, a, b), lambda found: expect(found is True)


@scenario
def identity() -> tuple[Call, Check]:
    return lambda: core.identity(X), lambda found: expect(hash(found) is not None)


@scenario
def keyed_types() -> tuple[Call, Check]:
    registry = make_registry(keyed=((Value, lambda v: [v.value, {1: 2}]),))
    a, b = (core.flatten(registry, [Value(1), Linear(size=Value([2]))])[1] for _ in "ab")
    expected = hash(b)
    return lambda: (hash(a), a == b), lambda found: expect(found == (expected, True))


@scenario
def registries() -> tuple[Call, Check]:
    def call() -> Any:
        registry = make_registry()
        return [registry.kind(x) for x in (X, 1, [], Linear(), Point(1, 2), Box(()), STATIC)]

    return call, equals(["array", "static", "list", "module", "namedtuple", "generic", "static"])


@scenario
def types_that_come_and_go() -> tuple[Call, Check]:
    registry = make_registry()

    def call() -> Any:
        kinds = [type(f"T{i}", (Linear,), {}) for i in range(9)]
        return [registry.kind(cls()) for cls in kinds]

    return call, equals(["module"] * 9)


@scenario
def errors_with_paths() -> tuple[Call, Check]:
    """The path that an error is to name is left out where there is no room for it."""
    registry = make_registry()
    tree = [X, {"k": (X, cs.Hostile(on_hash=fail))}]
    structure = core.flatten(registry, tree)[1]
    fixed = core.tree_flatten(registry, tree, ("arrays",), None)[1]
    keys, box = {1: X, "a": X}, Box((X,), hook=fail)

    def call() -> Any:
        return (
            raised(ZeroDivisionError, hash, structure),
            raised(ZeroDivisionError, hash, fixed),
            raised(TypeError, core.flatten, registry, [keys]),
            raised(TypeError, core.tree_leaves, registry, [keys], None),
            raised(ZeroDivisionError, core.tree_paths, registry, {"a": box}, None),
        )

    return call, lambda found: expect("by zero" in found[0] and "not supported" in found[2])


@scenario
def trees_that_differ() -> tuple[Call, Check]:
    registry = make_registry()

    class Loud:
        def __repr__(self) -> str:
            return "loud " + str(id(self))[:0]

    one = {
        "a": [X, (X, X)],
        "m": Linear(weight=X, bias=Y, size=Loud(), activation=1),
        "b": Box((X,), aux=Loud()),
    }
    ordered = collections.OrderedDict([(Key("a"), X), (Key("b"), Y)])
    cases: list[tuple[Any, Any]] = [
        (one, {**one, "a": [X, X]}),
        (one, {**one, "a": [X]}),
        (one, {**one, "m": Linear(weight=X, bias=Y, size=Loud(), activation=1)}),
        (one, {**one, "m": Linear(weight=X)}),
        (one, {**one, "m": Linear(weight=X, size=one["m"].size, more=1)}),
        (one, {**one, "b": Box((X,), aux=Loud())}),
        (
            one,
            {
                **one,
                "b": Box(
                    (
                        X,
                        X,
                    ),
                    aux=one["b"].aux,
                ),
            },
        ),
        (one, {k: one[k] for k in "ab"}),
        (ordered, collections.OrderedDict(reversed(ordered.items()))),
        (collections.defaultdict(list, a=X), collections.defaultdict(Loud, a=X)),
        (None, X),
        (Point(X, X), (X, X)),
    ]
    structures = [core.tree_flatten(registry, a, True, None)[1] for a, _ in cases]

    def call() -> Any:
        for structure, (_, b) in zip(structures, cases, strict=True):
            raised(ValueError, structure.flatten_up_to, b)
        return raised(ValueError, core.tree_map, registry, max, cases[0], None)

    return call, lambda text: expect("differs from tree 1 at `['a'][1]`" in text)


@scenario
def groups_that_do_not_fit() -> tuple[Call, Check]:
    registry = make_registry()
    tree = {Key(k): X for k in "abcdefghijklmn"}

    def call() -> Any:
        structure, group = core.partition_dict(registry, tree, True, (), None)
        fresh = core.tree_flatten(registry, tree, True, None)[1]
        missing = raised(ValueError, fresh.combine, {})
        other = {STATIC: 1, **dict.fromkeys(list(group)[:3], X)}
        doubled = {"a": {"b": X}, "a.b": X}
        return (
            missing,
            raised(ValueError, structure.combine, group, other),
            raised(TypeError, structure.combine, group, 3),
            raised(ValueError, structure.unflatten, [X]),
            raised(ValueError, core.partition_dict, registry, doubled, True, (), None),
            raised(ValueError, core.combine, registry, (tree, tree), None, True),
        )

    def check(found: Any) -> None:
        expect("and 4 more" in found[0] and "Value(3)" in found[1] and "two leaves" in found[4])

    return call, check


@scenario
def combine_without_paths() -> tuple[Call, Check]:
    """The paths are written by Python code, after room for a complaint has been made."""
    registry = make_registry()
    tree = {Key("a"): X, Key("b"): Y}
    structure = core.tree_flatten(registry, tree, True, None)[1]
    groups = {"key a": Y, "key b": X}
    swapped = {Key("a"): Y, Key("b"): X}
    return lambda: structure.combine(groups), lambda found: expect(found == swapped)


@scenario
def filters() -> tuple[Call, Check]:
    registry, tree = make_registry(), mixed()
    glob = ("glob", lambda text: text in ("weight", "0", "d"))
    programs: tuple[Any, ...] = (
        ("and", ("arrays",), ("path", (("any",), ("name", "0")))),
        ("or", ("path", (("deep",), glob)), ("not", True)),
        ("array", lambda x: isinstance(x, OtherArray)),
        ("path", (("name", "s"), ("slice", 0, 2, None))),
        ("path", (("name", "b"), ("index", 1))),
        ("tree", {k: len if k == "b" else False for k in "bdmprs"}, lambda f: ("leaf", callable)),
        ("path", ((("name", "é")), ("glob", bool))),
    )

    def call() -> Any:
        parts = core.partition(registry, tree, programs, None, None)
        return core.combine(registry, parts, None, True)

    return call, equals(tree)


@scenario
def filters_that_fail() -> tuple[Call, Check]:
    registry, tree = make_registry(), mixed()
    bad: list[tuple[type[BaseException], Any]] = [
        (TypeError, ("leaf", lambda leaf: None)),
        (ValueError, ("unheard of",)),
        (ValueError, ("path", (("name", "m"),))),
        (ValueError, ("path", (("any",), ("slice", 0, 1, 0)))),
        (ValueError, ("path", (("any",),) * 63)),
        (ValueError, ("tree", {"m": True}, lambda f: f)),
        (ZeroDivisionError, ("or", False, ("not", ("array", fail)))),
    ]

    def call() -> Any:
        return [
            raised(error, core.partition, registry, tree, (program,), None, None)
            for error, program in bad
        ]

    return call, lambda found: expect("returned None" in found[0] and "`['m']`" in found[2])


@scenario
def wide_maps() -> tuple[Call, Check]:
    registry = make_registry()
    trees = ([X, [Y] * 70, (1,)],) * 12
    last = lambda *row: row[-1]
    return lambda: core.tree_map(registry, last, trees, None), equals(trees[0])


@scenario
def is_leaf() -> tuple[Call, Check]:
    registry, tree = make_registry(), mixed()
    predicate = lambda x: isinstance(x, (list, Point))

    def call() -> Any:
        return core.tree_leaves(registry, tree, predicate)

    return call, lambda found: expect(len(found) == 9)


# ---- binding ----


@scenario
def signatures() -> tuple[Call, Check]:
    def call() -> Any:
        signature = core.Signature(("a", "b", "rest", "k", "more"), 0, 2, True, True, b"\1\0\0\1\0")
        return signature.bind(1, 2, 3, 4, k=5, z=6, w=7)

    expected = {"a": 1, "b": 2, "rest": (3, 4), "k": 5, "more": {"z": 6, "w": 7}}
    return call, equals(expected)


# ---- calls ----


class Jitted:
    """A variant's callable: it returns the slots of the arguments, `nothing` for those that were
    not given, and is traced for each type of the first array's value."""

    def __init__(self, options: Options, f: Any, variant: Any) -> None:
        self.options, self.variant = options, weakref.ref(variant)
        self.own, self.count = len(f.parts()[1]), variant.structure.num_leaves
        self.traces: dict[Any, int] = {}

    def __call__(
        self, a: Any = None, b: Any = None, c: Any = None, d: Any = None, e: Any = None
    ) -> Any:
        arrays = (a, b, c, d, e)[: self.own + self.count]
        out = arrays[self.own :]
        key = type(a.value) if arrays else None
        if key not in self.traces:
            variant = self.variant()
            slots = variant.slots(arrays)[1]
            if slots[1] is self.options.fails:
                raise ZeroDivisionError
            out, self.traces[key] = core.output_flatten(variant.finish(slots, Array))
        return core.output_unflatten(self.traces[key], out or (X,))


class Options(cs.Options):
    """Without what Python does for signatures."""

    fails: Any = "a static that makes the function fail"

    def prepare(self, f: Any) -> Any:
        self._note("prepare", f)
        arrays, structure = core.flatten(self.registry, f.__wrapped__)
        cache = self.caches.get(structure)
        if cache is None:
            cache = core.Cache(self.registry, structure, SIGNATURE, self, self.maxsize, {})
            self.caches[structure] = cache
        return cache, arrays

    def compile(self, f: Any, variant: Any) -> Any:
        self._note("compile", f, variant)
        return Jitted(self, f, variant)

    def misfit(self, f: Any, args: Any, kwargs: Any) -> None:
        raise TypeError("they do not fit")


SIGNATURE = core.Signature(("a", "b", "rest", "k", "more"), 0, 2, True, True, b"\1\0\0\0\0")


def function() -> None:
    """What is wrapped, and never called."""


class Kept:
    """A jitted function that has been called before, and how its cache stands."""

    def __init__(self, **options: Any) -> None:
        self.options = Options(make_registry(), **options)
        self.f = cs.make_jit(function, self.options)
        self.nothing = self.options.registry

    def variants(self) -> set[Any]:
        return set(self.f.parts()[0].variants())

    def scenario(
        self,
        *args: Any,
        check: Check | None = None,
        more: int = 0,
        call: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Call, Check]:
        """A call with these arguments; it may add `more` variants and take none away."""
        before = self.variants()
        some = (*args[:2], self.nothing, self.nothing)[:2]
        expected = [*some, args[2:] or self.nothing, kwargs.pop("k", self.nothing)]
        expected.append(dict(kwargs) or self.nothing)
        if expected[3] is not self.nothing:
            kwargs["k"] = expected[3]

        def verify(found: Any) -> None:
            (check or equals(expected))(found)
            after = self.variants()
            expect(before <= after and len(after) <= len(before) + more)

        return functools.partial(call or self.f, *args, **kwargs), verify


def refuse(error: type[BaseException], call: Callable[..., Any], *args: Any, **kw: Any) -> str:
    """As `raised`, with keywords."""
    return raised(error, functools.partial(call, *args, **kw))


@scenario
def first_call() -> tuple[Call, Check]:
    m = Linear(weight=X, bias=[Y], size=3)
    return Kept().scenario(m, X, 1, k=[Y, 1], z="a", more=1)


@scenario
def misses() -> tuple[Call, Check]:
    kept = Kept()
    kept.f(X, 1)
    return kept.scenario(X, "other", [Value(1)], k=2, more=1)


@scenario
def hit_plain() -> tuple[Call, Check]:
    kept = Kept()
    m = Linear(weight=X, bias=[Y], size=3)
    kept.f(m, X, 1, "a", k=Y, z=(1, 2))
    return kept.scenario(m, X, 1, "a", k=Y, z=(1, 2))


for _name, _make in TREES.items():
    if _name not in ("asked", "many", "wide"):  # more arrays than Jitted takes

        def hit_careful(name: str = _name) -> tuple[Call, Check]:
            kept = Kept()
            kept.f(TREES[name](), k=STATIC)
            return kept.scenario(TREES[name](), k=Value(3))

        SCENARIOS[f"hit_careful_{_name}"] = hit_careful


def large() -> Any:
    return [Linear(weight=None, bias=(i, "a"), size=i) for i in range(30)] + [X]


@scenario
def hit_that_learns_a_memo() -> tuple[Call, Check]:
    kept = Kept()
    model = large()
    kept.f(model)
    kept.f(model)
    return kept.scenario(model)


@scenario
def hit_with_a_memo() -> tuple[Call, Check]:
    kept = Kept()
    model = large()
    for _ in range(5):
        kept.f(model)
    return kept.scenario(model)


@scenario
def hit_after_a_memo_was_wrong() -> tuple[Call, Check]:
    kept = Kept()
    model = large()
    for _ in range(5):
        kept.f(model)
    model[3].bias = (3, "a")
    return kept.scenario(model)


@scenario
def look_up_of_many_arrays() -> tuple[Call, Check]:
    kept = Kept()
    arrays = [X] * 1200
    structure = kept.f.lookup(arrays)[0].structure

    def check(found: Any) -> None:
        expect(found[0].structure == structure and len(found[1]) == 1200)

    kept.scenario(arrays)
    return functools.partial(kept.f.lookup, arrays), check


@scenario
def look_up_among_variants() -> tuple[Call, Check]:
    kept = Kept()
    for n in (1, True, "a", Value(2), 2.5):
        kept.f(X, n)
    return kept.scenario(X, 1)


@scenario
def traces_again() -> tuple[Call, Check]:
    kept = Kept()
    for value in (1, 2.5):
        kept.f(Array(value))
    return kept.scenario(Array("text"))


@scenario
def cache_growth() -> tuple[Call, Check]:
    kept = Kept()
    for n in range(5):
        kept.f(X, n)
    return kept.scenario(X, 5, more=1)


@scenario
def eviction() -> tuple[Call, Check]:
    """A call that fails before it has been traced takes nobody's place."""
    kept = Kept(maxsize=5)
    for n in range(5):
        kept.f(X, n)
    before = kept.variants()
    call, _ = kept.scenario(X, "new")

    def attempt() -> Any:
        try:
            return call()
        except MemoryError:
            new = kept.variants() - before
            expect(len(kept.variants()) == 5 and all(variant.num_traces for variant in new))
            raise

    def check(found: Any) -> None:
        equals([X, "new", *[kept.nothing] * 3])(found)
        expect(len(kept.variants()) == 5 and len(kept.variants() - before) == 1)

    return attempt, check


@scenario
def misfit() -> tuple[Call, Check]:
    kept = Kept()
    kept.f(X)

    def call() -> Any:
        return [refuse(TypeError, kept.f), refuse(TypeError, kept.f, X, 1, 2, a=1)]

    return call, equals(["they do not fit"] * 2)


@scenario
def many_parameters() -> tuple[Call, Check]:
    names = tuple(f"a{i}" for i in range(20))
    options = Options(make_registry())
    structure = core.flatten(options.registry, len)[1]
    signature = core.Signature(names, 0, 20, False, False, bytes(20))
    cache = core.Cache(options.registry, structure, signature, options, 4, {})
    f = core.rebuild(cache, ())
    f(X, a19=Y)

    def check(found: Any) -> None:
        expect(found[0] is X and found[19] is Y)

    return lambda: f(X, a19=Y), check


@scenario
def function_that_fails() -> tuple[Call, Check]:
    kept = Kept()
    kept.f(X, 1)
    before = kept.variants()

    def check(found: Any) -> None:
        expect(kept.variants() == before)

    return lambda: refuse(ZeroDivisionError, kept.f, X, kept.options.fails), check


@scenario
def static_that_fails() -> tuple[Call, Check]:
    kept = Kept()
    kept.f(X, cs.Hostile())
    on_hash, on_eq = cs.Hostile(on_hash=fail), cs.Hostile(on_eq=fail)

    def call() -> Any:
        return [refuse(ZeroDivisionError, kept.f, X, s) for s in (on_hash, on_eq)]

    return call, lambda found: expect(len(found) == 2)


@scenario
def programs_that_may_raise() -> tuple[Call, Check]:
    kept = Kept()
    kept.options.waits = True
    kept.options.on["guard"] = lambda variant: (variant.defer(int), variant.defer(list))
    kept.f(X)
    return kept.scenario(X)


@scenario
def functions_with_arrays() -> tuple[Call, Check]:
    options = Options(make_registry())
    f = cs.make_jit(Linear(weight=X, size=1), options)
    f(Y)
    cache, arrays = f.parts()

    def call() -> Any:
        g = core.rebuild(cache, arrays)
        return [g(Y)[0], g.__wrapped__.weight, repr(g)[:14], g == f, g.lookup(Y)[1]]

    return call, equals([Y, X, "<filter_jit of", False, (X, Y)])


@scenario
def wrappers() -> tuple[Call, Check]:
    kept = Kept()

    def call() -> Any:
        f = core.FilterJit(len, kept.options, None, {"__name__": "f"})
        g = core.rebuild(*f.parts())
        return [f == g, hash(f) == hash(g), f.__name__, bool(repr(g)), f.__reduce__()[1]]

    return call, equals([True, True, "f", True, (len,)])


@scenario
def lookups() -> tuple[Call, Check]:
    kept = Kept()
    kept.f(X, 1)

    def call() -> Any:
        variant, arrays = kept.f.lookup(X, 1)
        found, _, _ = kept.f.peek(X, 1)
        none, structure, more = kept.f.peek(X, "unknown", k=Y)
        return [variant is found, arrays, none, more, len(structure.nodes()), found.num_traces]

    return call, equals([True, (X,), None, (X, Y), 6, 1])


@scenario
def variants() -> tuple[Call, Check]:
    kept = Kept()
    kept.f([X])
    variant = kept.f.lookup([X])[0]

    def call() -> Any:
        wrapped, slots = variant.slots((X,))
        output = variant.finish([X, 1], int)
        arrays, trace = core.output_flatten(output)
        made = variant.result(core.output_unflatten(trace, [Y]))
        marked = variant.finish(1, Array).arrays
        return [wrapped is function, slots[0], len(slots), arrays, made, len(marked)]

    return call, equals([True, [X], 5, (X,), [Y, 1], 1])


@scenario
def caches() -> tuple[Call, Check]:
    kept = Kept()
    kept.f(X)
    cache = kept.f.parts()[0]

    def call() -> Any:
        made = core.Cache(kept.options.registry, cache.function, SIGNATURE, 1, 2, {})
        return made.variants(), made.maxsize, len(cache.variants())

    return call, equals(([], 2, 1))


def thing() -> tuple[Any, Kept]:
    kept = Kept()

    class Thing(Linear):
        method = kept.f

    one = Thing(weight=X, size=1)
    one.method(Y)
    one.method(*MANY)
    return one, kept


@scenario
def bound_methods() -> tuple[Call, Check]:
    one, _ = thing()
    # A bound method is made, and called with and without room for itself before the arguments.
    return (
        lambda: [one.method(Y)[1], next(map(one.method, (Y,)))[1], one.method(*MANY)[2]],
        equals([Y, Y, (1,) * 19]),
    )


@scenario
def attributes_of_bound_methods() -> tuple[Call, Check]:
    one, kept = thing()
    kept.options.lower = lambda f, args, kwargs: args[1:]  # type: ignore[method-assign, assignment]

    def call() -> Any:
        m = one.method
        return [
            m == one.method,
            bool(repr(m)),
            hash(m) == hash(one.method),
            m.lower(Y),
            m.__doc__ is m.__func__.__doc__,
            m.__reduce__()[1][1] is one,
            m.__wrapped__.__self__ is one,
            core.BoundFilterJit(kept.f, one) == m,
        ]

    return call, equals([True, True, True, (Y,), True, True, True, True])


@scenario
def partials() -> tuple[Call, Check]:
    kept = Kept()
    given = Linear(weight=X, size=[1])

    def call() -> Any:
        p = core.PartialFilterJit(kept.f, ([X, 1], given), {"k": {"a": Y}})
        return p(Y, k=1, z=X), repr(p)[:8]

    return call, equals(([[X, 1], given, (Y,), 1, {"z": X}], "<partial"))


@scenario
def hits_of_partials() -> tuple[Call, Check]:
    kept = Kept()
    p = kept.f.partial([X, 1], k={"a": Y})
    p(Y), p(Y, z=X), p(*MANY, k=1)

    def call() -> Any:
        return p(Y), p(Y, z=X)[4], p(*MANY, k=1)[2]

    none = kept.nothing
    return call, equals(([[X, 1], Y, none, {"a": Y}, none], {"z": X}, (1,) * 19))


# ---- one after the other ----


# CPython remembers by which names types were asked for attributes.
forget_names = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
# What CPython says where it loses the exception that a Python function raises.
LOST = ("error return without exception set",)
# Two sets are compared by way of a list of a tuple, which CPython 3.11 leaks. 3.13 leaks the
# attributes of an instance that dies with its dict, if that has no memory for a copy of them.
LEAKED = {"match_sets", "hit_careful_sets"}
if sys.version_info >= (3, 13):
    LEAKED |= {"parts_slotted", "partition_slotted", "bound_methods"}
NAMES = ["blocks", *(f"references to {x!r}"[:60] for x in SHARED)]


def references() -> list[int]:
    return [sys.getrefcount(x) for x in SHARED]


def attempt(make: Callable[[], tuple[Call, Check]], n: int | None) -> tuple[bool, bool]:
    """Calls with the n-th allocation failing; whether it did, and whether that raised."""
    call, check = make()
    failed, probes = False, []
    gc.disable()
    if n is not None:
        _testcapi.set_nomemory(n, n + 1)
    try:
        found = call()
    except MemoryError:
        failed = True
    finally:
        if n is not None and not failed:
            try:
                for _ in range(PROBES):
                    probes.append(object())
            except MemoryError:
                pass
        _testcapi.remove_mem_hooks()
        gc.enable()
    if not failed:
        check(found)
    check(call())
    return failed or len(probes) == PROBES, failed


def leaked(make: Callable[[], tuple[Call, Check]], n: int) -> list[str]:
    """What grows each time. What fills up once (free lists, say) does not."""
    growth: dict[str, int] = {}
    for times in (2, 4, 8, 8):
        forget_names()
        gc.collect()
        before = references()
        blocks = sys.getallocatedblocks()
        for _ in range(times):
            attempt(make, n)
        forget_names()
        gc.collect()
        blocks = sys.getallocatedblocks() - blocks
        changes = [blocks, *(b - a for a, b in zip(before, references(), strict=True))]
        growth = {k: by // times for k, by in zip(NAMES, changes, strict=True) if by >= times}
        if not growth:
            break
    return [f"{what} by {by}" for what, by in growth.items()]


def run(name: str) -> tuple[int, int, list[str]]:
    """How many allocations failed, how many of them raised, and what went wrong."""
    make = SCENARIOS[name]
    raises, wrong = 0, []
    gc.collect()
    gc.freeze()
    for n in range(-2, MOST):
        print(name, n, file=sys.stderr, flush=True)
        try:
            if n < 0:
                attempt(make, None)
                continue
            failed, did_raise = attempt(make, n)
            if not failed:
                return n, raises, wrong
            raises += did_raise
            if name not in LEAKED:
                wrong += [f"{name}, allocation {n}: left {what}" for what in leaked(make, n)]
        except BaseException as e:
            if (n >= 0 and str(e) in LOST) or str(e).startswith("<function "):
                continue
            cause = f" from {e.__cause__!r}" if e.__cause__ else ""
            where = e.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            line = where.tb_lineno if where else 0
            file = Path(where.tb_frame.f_code.co_filename).name if where else ""
            wrong.append(f"{name}, allocation {n}: {e!r}{cause}, {file}:{line}")
            if n < 0:
                return 0, 0, wrong
    return MOST, raises, [*wrong, f"{name}: more than {MOST} allocations"]


def main(names: list[str]) -> int:
    total = [0, 0, 0]
    for name in names or SCENARIOS:
        failed, raises, wrong = run(name)
        print(f"{name}: {failed} failed, {raises} raised", *wrong, sep="\n    ", flush=True)
        total = [total[0] + failed, total[1] + raises, total[2] + len(wrong)]
    print(f"{total[0]} allocations failed, {total[1]} raised; {total[2]} went wrong")
    return 1 if total[2] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
