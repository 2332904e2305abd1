"""Each place where Python code can run, times each deed that it may do there.

A *place* puts a trap into a tree, a registry, a Python side, or the way in which a tree function
is called. A *deed* is what the trap does, once. Afterwards nothing may have crashed, the exception
is the deed's own or the result is right, the cache is consistent, and a next plain call is right.
"""

import collections
import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import core_support as cs
import pytest
from core_support import Array, Linear, Point, Record, Value, core

NOTHING = object()


class Deed(Exception):
    pass


class Interrupt(BaseException):
    """Such as KeyboardInterrupt: nobody may swallow it."""


class World:
    """A FilterJit, a tree with a trap in it, and what is to happen where the trap is met."""

    def __init__(self, deed: Callable[["World"], Any], at: int, container: type = list) -> None:
        self.deed, self.at, self.met, self.armed, self.acted = deed, at, 0, False, False
        self.options = cs.Options(cs.make_registry(), maxsize=6)
        self.container: Any = container()
        self.trap: Any = None
        self.remake: Callable[[], Any] | None = None  # where each call is to have a fresh one
        self.x, self.y, self.k = Array("x"), Array("y"), Array("k")
        self.jits: list[Any] = []
        self.operation: Callable[[Any], Any] | None = None
        self.spare: list[Any] = []
        self.inside = 0

    def registry(self, **changes: Any) -> None:
        self.options = cs.Options(cs.make_registry(**changes), maxsize=6)

    def hook(self, *args: Any) -> Any:
        """What the deed gives back, to be the answer of the place; NOTHING for the right one."""
        if not self.armed:
            return NOTHING
        self.met += 1
        if self.met != self.at:
            return NOTHING
        self.acted = True
        self.armed = False
        return self.deed(self)

    def answer(self, right: Any) -> Any:
        given = self.hook()
        return right if given is NOTHING else given

    def fill(self) -> None:
        """The trap, with things around it that nobody else holds."""
        items = [self.x, [Array(1), Value("x" * 50)], self.trap, (Array(2), 1), {"a": self.y}]
        if isinstance(self.container, list):
            self.container[:] = items
        else:
            self.container.clear()
            self.container.update({f"k{i}": item for i, item in enumerate(items)})

    def tree(self) -> Any:
        return [self.container, {"k": self.k}]

    def renew(self) -> None:
        if self.remake is not None:
            place = 2 if isinstance(self.container, list) else "k2"
            if len(self.container) == 5:
                self.trap = self.container[place] = self.remake()

    def call(self) -> Any:
        tree = self.tree()
        if self.operation is not None:
            return self.operation(tree)
        # Held by the stack alone, as a temporary is.
        return self.jits[-1](tree) if self.jits else None

    def plain(self, n: Any = 1) -> Any:
        return self.f([self.x, n, {"k": self.k}])

    @property
    def f(self) -> Any:
        if not self.jits:
            self.jits.append(cs.make_jit(echo, self.options))
        return self.jits[-1]


def echo(tree: Any = None, *rest: Any, **kwargs: Any) -> Any:
    return tree


# ---- deeds ----

DEEDS: dict[str, Callable[[World], Any]] = {}
HARMLESS = set()


def deed(harmless: bool = False) -> Callable[[Callable[[World], Any]], Callable[[World], Any]]:
    def note(act: Callable[[World], Any]) -> Callable[[World], Any]:
        DEEDS[act.__name__] = act
        if harmless:
            HARMLESS.add(act.__name__)
        return act

    return note


@deed()
def raises(w: World) -> Any:
    raise Deed


@deed()
def interrupts(w: World) -> Any:
    raise Interrupt


@deed()
def raises_with_notes_that_fail(w: World) -> Any:
    class Loud(Deed):
        def add_note(self, note: str) -> None:
            raise Deed

        def __setattr__(self, name: str, value: Any) -> None:
            raise Deed

    raise Loud


@deed()
def runs_out_of_stack(w: World) -> Any:
    return runs_out_of_stack(w)


@deed()
def runs_out_of_memory(w: World) -> Any:
    raise MemoryError


@deed(harmless=True)
def does_it_again(w: World) -> Any:
    """The same call within itself, three deep."""
    if w.inside < 3:
        w.inside += 1
        w.met, w.armed = w.at - 1, True
        w.call()
        w.inside -= 1
    w.armed = False
    return NOTHING


@deed(harmless=True)
def calls_with_others(w: World) -> Any:
    for n in (1, "a", True):
        w.plain(n)
    return NOTHING


@deed(harmless=True)
def calls_until_others_are_evicted(w: World) -> Any:
    for n in range(20):
        w.plain(f"static {n}")
    gc.collect()
    return NOTHING


@deed(harmless=True)
def clears_the_cache(w: World) -> Any:
    w.f.parts()[0].clear()
    gc.collect()
    return NOTHING


@deed(harmless=True)
def clears_and_fills_the_cache(w: World) -> Any:
    w.f.parts()[0].clear()
    w.plain()
    w.spare += [Array(i) for i in range(50)]
    return NOTHING


@deed(harmless=True)
def deletes_the_function(w: World) -> Any:
    w.jits.clear()
    w.options.caches.clear()
    gc.collect()
    return NOTHING


@deed(harmless=True)
def collects(w: World) -> Any:
    for _ in range(3):
        gc.collect()
    return NOTHING


@deed(harmless=True)
def lets_another_thread_run(w: World) -> Any:
    wrong: list[BaseException] = []

    def other() -> None:
        try:
            for n in (1, "a", True):
                w.plain(n)
            w.call()
        except BaseException as e:
            wrong.append(e)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and not wrong, wrong
    return NOTHING


@deed()
def empties(w: World) -> Any:
    w.container.clear()
    gc.collect()
    return NOTHING


@deed()
def shrinks(w: World) -> Any:
    if w.container:
        w.container.pop() if isinstance(w.container, list) else w.container.popitem()
    return NOTHING


@deed()
def grows(w: World) -> Any:
    if isinstance(w.container, list):
        w.container.extend([Array()] * 1000)
    else:
        w.container.update({f"new{i}": 1 for i in range(1000)})
    return NOTHING


@deed()
def replaces(w: World) -> Any:
    if isinstance(w.container, list):
        w.container[:] = [[Array()] for _ in w.container]
    else:
        for key in list(w.container):
            w.container[key] = [Array()]
    gc.collect()
    return NOTHING


@deed()
def changes_its_class(w: World) -> Any:
    for x in (w.trap, *gc.get_referents(w.trap)):
        cls = type(x)
        if isinstance(getattr(cls, "__init__", None), type(echo)):
            try:
                x.__class__ = type("Elsewhere", (cls,), {})
            except TypeError:
                pass
    gc.collect()
    return NOTHING


@deed()
def empties_and_changes_its_class(w: World) -> Any:
    empties(w)
    return changes_its_class(w)


@deed()
def takes_the_attributes_of_another(w: World) -> Any:
    """Whose class shares no keys with its own."""

    class Elsewhere(Wide):
        dynamic = ()

    for x in (w.trap, w.container):
        if isinstance(x, Wide):
            spare = [Elsewhere(a=1) for _ in range(100)]
            x.__class__ = Elsewhere
            x.__dict__ = vars(spare[-1])
            w.spare.append(spare)
    return NOTHING


class Ambiguous:
    """Neither true nor false, neither hashable nor comparable."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise Deed

    def __eq__(self, other: object) -> bool:
        raise Deed

    def __len__(self) -> int:
        return -1

    def __iter__(self) -> Iterator[Any]:
        raise Deed

    def __repr__(self) -> str:
        raise Deed

    def __str__(self) -> str:
        raise Deed


def gives(name: str, make: Callable[[], Any]) -> None:
    def give(w: World) -> Any:
        return make()

    DEEDS[f"gives {name}"] = give


for _name, _make in (
    ("None", lambda: None),
    ("NotImplemented", lambda: NotImplemented),
    ("a number", lambda: -1),
    ("a large number", lambda: 2**80),
    ("text", lambda: "nonsense"),
    ("bytes", lambda: b"nonsense"),
    ("an empty tuple", lambda: ()),
    ("tuples of tuples", lambda: (((),),) * 4),
    ("an iterator", lambda: iter([1, 2])),
    ("an object", object),
    ("a class", lambda: World),
    ("an exception", lambda: Deed()),
    ("what is ambiguous", Ambiguous),
    ("an array", lambda: Array(1)),
    ("the core's own types", lambda: (core.Structure, core.Cache, core.Frozen)),
):
    gives(_name, _make)

# ---- places ----

PLACES: dict[str, Callable[[World], Any]] = {}
# Where Python prints what a callback raises, and goes on.
UNRAISABLE = set()


def place(unraisable: bool = False) -> Callable[[Callable[[World], Any]], Callable[[World], Any]]:
    def note(make: Callable[[World], Any]) -> Callable[[World], Any]:
        PLACES[make.__name__] = make
        if unraisable:
            UNRAISABLE.add(make.__name__)
        return make

    return note


def static(w: World, of: type = object, **methods: Any) -> Any:
    """An instance of a class with these methods, which are given the instance's world."""
    space = {
        "__hash__": lambda self: 7,
        "__eq__": lambda self, other: type(self) is type(other) or NotImplemented,
        **methods,
    }
    return type("Static", (of,), space)()


def renewed(w: World, make: Callable[[], Any]) -> Any:
    w.remake = make
    return make()


@place()
def hash_of_a_static(w: World) -> Any:
    return static(w, __hash__=lambda self: w.answer(7))


@place()
def eq_of_a_static(w: World) -> Any:
    return renewed(w, type(static(w, __eq__=lambda self, other: w.answer(True))))


@place()
def eq_within_a_tuple(w: World) -> Any:
    loud = type(static(w, __eq__=lambda self, other: w.answer(True)))
    return renewed(w, lambda: (1, (loud(), 2.5)))


@place()
def eq_within_a_set(w: World) -> Any:
    make = type(static(w, __eq__=lambda self, other: self is other or w.answer(False)))
    return renewed(w, lambda: frozenset([make(), make(), make()]))


@place()
def iter_of_a_set(w: World) -> Any:
    def elements(self: Any) -> Any:
        return w.answer(frozenset.__iter__(self))

    return type("Elements", (frozenset,), {"__iter__": elements})([1, (2, Value(3))])


@place()
def key_of_a_type(w: World) -> Any:
    w.registry(keyed=((Value, lambda v: w.answer([v.value])),))
    return Value(3)


@place()
def key_of_a_kind(w: World) -> Any:
    def classify(cls: type, x: Any) -> Any:
        return ("static", lambda v: w.answer((v.key,))) if cls is cs.Keyed else cs.classify(cls, x)

    w.registry(classify=classify)
    return cs.Keyed(3)


@place()
def classify(w: World) -> Any:
    class New:
        pass

    def ask(cls: type, x: Any) -> Any:
        return w.answer(("static", None)) if cls is New else cs.classify(cls, x)

    w.registry(classify=ask)
    return New()


@place()
def classify_of_a_node(w: World) -> Any:
    class New(Linear):
        pass

    def ask(cls: type, x: Any) -> Any:
        right = cs.classify(cls, x)
        return w.answer(right) if cls is New else right

    w.registry(classify=ask)
    return New(weight=Array(), size=1)


@place()
def truth_of_a_detail(w: World) -> Any:
    class Pair(Point):
        __slots__ = ()

    class Detail:
        def __bool__(self) -> Any:
            return w.answer(True)

    def ask(cls: type, x: Any) -> Any:
        return ("namedtuple", Detail()) if cls is Pair else cs.classify(cls, x)

    w.registry(classify=ask)
    return Pair(Array(), 1)


@place()
def subclasscheck(w: World) -> Any:
    class Meta(type):
        def __subclasscheck__(cls, other: type) -> Any:
            return w.answer(False)

    class Abstract(metaclass=Meta):
        pass

    def ask(cls: type, x: Any) -> Any:
        return ("array",) if issubclass(cls, Abstract) else cs.classify(cls, x)

    w.registry(classify=ask)
    return static(w)


@place()
def instancecheck(w: World) -> Any:
    class Meta(type):
        def __instancecheck__(cls, other: Any) -> Any:
            return w.answer(False)

    class Abstract(metaclass=Meta):
        pass

    w.registry(is_array=lambda x: isinstance(x, Abstract) or cs.is_array(x))
    return cs.Maybe(False)


@place()
def class_that_lies(w: World) -> Any:
    lie = property(lambda self: w.answer(list))
    cls = type("Liar", (cs.Maybe,), {"__class__": lie})
    w.registry(is_array=lambda x: isinstance(x, tuple) or x.traced)
    return cls(True)


@place()
def is_array(w: World) -> Any:
    w.registry(is_array=lambda x: w.answer(True))
    return cs.Maybe(True)


@place()
def truth_of_is_array(w: World) -> Any:
    class Truth:
        def __bool__(self) -> Any:
            return w.answer(True)

    w.registry(is_array=lambda x: Truth())
    return cs.Maybe(True)


@place()
def split(w: World) -> Any:
    w.registry(split=lambda x: w.answer(cs.split(x)))
    return cs.Box([Array(), 1], aux=2)


@place()
def describe(w: World) -> Any:
    w.registry(describe=lambda x: w.answer(cs.describe(x)))
    return cs.Box([Array(), 1], aux=2)


@place()
def children_of_split(w: World) -> Any:
    def children(x: Any) -> Any:
        yield x.children[0]
        given = w.hook()
        yield x.children[1] if given is NOTHING else given

    w.registry(split=lambda x: (children(x), x.aux))
    return cs.Box([Array(), 1], aux=2)


@place()
def eq_of_aux(w: World) -> Any:
    loud = type(static(w, __eq__=lambda self, other: w.answer(True)))
    return renewed(w, lambda: cs.Box([Array(), 1], aux=loud()))


@place()
def hash_of_aux(w: World) -> Any:
    return cs.Box([Array(), 1], aux=static(w, __hash__=lambda self: w.answer(3)))


@place()
def field_of_a_dataclass(w: World) -> Any:
    def read(self: Any) -> Any:
        return w.answer(self.__dict__["data"])

    loud = property(read, lambda self, x: self.__dict__.update(data=x))
    return type("LoudRecord", (Record,), {"data": loud})(Array(), 1, 2)


class Wide(cs.Module):
    dynamic = tuple(f"field{i:02}" for i in range(25))


@place()
def field_of_a_module(w: World) -> Any:
    """A static in the first of many fields."""
    loud = type(static(w, __eq__=lambda self, other: w.answer(True)))
    fields = {name: [name] for name in Wide.dynamic}
    return renewed(w, lambda: Wide(**{**fields, Wide.dynamic[0]: loud()}))


@place()
def names_of_attributes(w: World) -> Any:
    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> Any:
            return w.answer(str.__eq__(self, other))

    module = Linear(size=1)
    module.__dict__ = {Name("weight"): w.y, "bias": None, Name("size"): 1, "activation": 2}
    return module


@place()
def eq_of_keys(w: World) -> Any:
    class Key(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> Any:
            return w.answer(str.__eq__(self, other))

    return renewed(w, lambda: {Key("a"): w.y, Key("b"): 1})


@place()
def order_of_keys(w: World) -> Any:
    class Key(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __lt__(self, other: Any) -> Any:
            return w.answer(str.__lt__(self, other))

    return {Key("b"): w.y, Key("a"): 1}


@place()
def keys_of_an_ordered_dict(w: World) -> Any:
    key = type(static(w, __eq__=lambda self, other: self is other or w.answer(True)))
    return renewed(w, lambda: collections.OrderedDict([(key(), w.y), ("a", 1)]))


@place()
def eq_of_a_default_factory(w: World) -> Any:
    loud = {"__eq__": lambda self, other: w.answer(True), "__call__": lambda self: None}
    factory = type(static(w, **loud))
    w.operation = lambda tree: (w.f(tree), tree)[1]  # the result has the variant's own
    return renewed(w, lambda: collections.defaultdict(factory(), a=w.y))


@place()
def new_of_a_named_tuple(w: World) -> Any:
    def new(cls: Any, x: Any, y: Any) -> Any:
        return w.answer(tuple.__new__(cls, (x, y)))

    cls = type("LoudPair", (Point,), {"__new__": new, "__slots__": ()})
    w.registry(classify=lambda c, x: ("namedtuple", False) if c is cls else cs.classify(c, x))
    return cls(w.y, 1)


@place()
def init_of_a_dataclass(w: World) -> Any:
    def init(self: Any, data: Any, other: Any, tag: Any) -> Any:
        given = w.hook()
        Record.__init__(self, data, other, tag)
        return None if given is NOTHING else given

    return type("LoudRecord", (Record,), {"__init__": init})(w.y, 1, 2)


@place()
def unflatten_of_a_node(w: World) -> Any:
    class LoudBox(cs.Box):
        def __new__(cls, *args: Any) -> Any:
            return w.answer(object.__new__(cls))

    return LoudBox([w.y, 1], 2)


@place()
def descriptor_of_a_module(w: World) -> Any:
    def store(self: Any, x: Any) -> None:
        w.hook()
        self.__dict__["weight"] = x

    loud = property(lambda self: self.__dict__["weight"], store)
    return type("LoudLinear", (Linear,), {"weight": loud})(weight=w.y, size=1)


@place()
def setitem_of_an_ordered_dict(w: World) -> Any:
    def setitem(self: Any, key: Any, value: Any) -> None:
        w.hook()
        collections.OrderedDict.__setitem__(self, key, value)

    cls = type("LoudDict", (collections.OrderedDict,), {"__setitem__": setitem})
    w.registry(classify=lambda c, x: ("ordered_dict",) if c is cls else cs.classify(c, x))
    return cls(a=w.y, b=1)


@place(unraisable=True)
def finalizer_of_a_leaf(w: World) -> Any:
    """Runs as the second call's arguments are dropped, or what the trace made."""

    class Mortal(Array):
        def __del__(self) -> None:
            w.hook()

    w.registry(split=lambda x: ((Mortal(), 1), x.aux))
    w.operation = lambda tree: (w.f(tree), tree)[1]
    return cs.Box([Array(), 1], aux=2)


@place(unraisable=True)
def weakref_callback(w: World) -> Any:
    def watch(x: Any) -> Any:
        array = Array()
        w.spare.append(weakref.ref(array, w.hook))
        return (array, 1), x.aux

    w.registry(split=watch)
    w.operation = lambda tree: (w.f(tree), tree)[1]
    return cs.Box([Array(), 1], aux=2)


@place(unraisable=True)
def finalizer_of_an_old_variant(w: World) -> Any:
    class Mortal:
        def __del__(self) -> None:
            w.hook()

    w.options.on["settle"] = lambda variant, arrays, outputs: setattr(variant, "notes", Mortal())
    w.operation = lambda tree: [w.f(tree), [w.plain(n) for n in range(8)]][0]
    return None


def hook_of_options(name: str) -> None:
    def make(w: World) -> Any:
        original = getattr(w.options, name)

        def hook(*args: Any) -> Any:
            given = w.hook()
            return original(*args) if given is NOTHING else given

        setattr(w.options, name, hook)
        w.options.waits = True
        if name in ("failed", "misfit"):
            w.operation = lambda tree: failing_call(w, tree, name)
        return None

    PLACES[f"options.{name}"] = make


def failing_call(w: World, tree: Any, name: str) -> Any:
    try:
        if name == "misfit":
            if not w.jits:
                w.jits.append(cs.make_jit(lambda tree: tree, w.options))
            w.jits[-1](tree, tree)
        else:
            w.f([tree, cs.Unhashable()])
    except TypeError:
        pass
    return tree


for _name in ("prepare", "compile", "failed", "misfit", "guard", "settle", "wait"):
    hook_of_options(_name)


@place()
def the_function_itself(w: World) -> Any:
    w.jits.append(cs.make_jit(lambda tree: w.answer(tree), w.options))
    return None


@place()
def the_variant_s_callable(w: World) -> Any:
    original = w.options.compile

    def compile(f: Any, variant: Any) -> Any:
        call = original(f, variant)
        return lambda *arrays: w.answer(call(*arrays))

    w.options.compile = compile  # type: ignore[method-assign]
    return None


@place(unraisable=True)
def what_was_deferred(w: World) -> Any:
    w.options.waits = True
    w.options.on["guard"] = lambda variant: variant.defer(w.hook)
    return None


@place()
def marker_of_a_result_without_arrays(w: World) -> Any:
    f = cs.make_jit(echo, w.options)

    def run(tree: Any) -> Any:
        variant, _ = f.lookup(tree)
        variant.finish(1, lambda: w.answer(Array()))
        return f(tree)

    w.operation = run
    return None


@place()
def arguments_of_a_partial(w: World) -> Any:
    """A static that is met in the arguments that were given once, and in those given now."""
    loud = type(static(w, __eq__=lambda self, other: w.answer(True)))
    w.operation = lambda tree: w.f.partial(tree, k=[loud()])(extra=tree)
    return renewed(w, loud)


@place()
def keywords_of_a_partial(w: World) -> Any:
    """Names that are given twice, while what was given is emptied and filled."""

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> Any:
            p.keywords.clear() if w.armed else None
            p.keywords.update({f"name{i}": w.x for i in range(100)}) if w.armed else None
            return w.answer(str.__eq__(self, other))

    p = w.f.partial(k=[w.x], m=[w.y])
    w.operation = lambda tree: p(tree, **{Name("z"): 1})
    return None


@place()
def instance_of_a_bound_method(w: World) -> Any:
    class Thing(Linear):
        method = cs.make_jit(lambda self, tree: tree, w.options)

    thing = Thing(weight=w.y, size=static(w, __hash__=lambda self: w.answer(1)))
    w.operation = lambda tree: thing.method(tree)
    return None


# Of trees without a call: the operation is given the tree and has the trap in its own ways.


def operation(
    name: str, run: Callable[[World, Any, Any], Any], trap: Callable[[World], Any] | None = None
) -> None:
    def make(w: World) -> Any:
        w.operation = lambda tree: run(w, w.options.registry, tree)
        return None if trap is None else trap(w)

    PLACES[name] = make


def loud_key(w: World) -> Any:
    class Key(str):
        __slots__ = ()

        def __str__(self) -> Any:
            return w.answer("text")

        def __repr__(self) -> Any:
            return w.answer("text")

    return {Key("b"): w.y}


def loud_repr(w: World) -> Any:
    return static(w, __repr__=lambda self: w.answer("loud"), __eq__=lambda self, other: False)


def loud_fields(w: World) -> Any:
    class Fields:
        def __get__(self, instance: Any, owner: Any) -> Any:
            return w.answer(("x", "y"))

    cls = type("Loud", (Point,), {"_fields": Fields(), "__slots__": ()})
    w.registry(classify=lambda c, x: ("namedtuple", True) if c is cls else cs.classify(c, x))
    return cls(w.y, 1)


def loud_name(w: World) -> Any:
    class Meta(type):
        @property
        def __name__(cls) -> Any:  # type: ignore[override]
            return w.answer("name")

    return Meta("Loud", (Linear,), {})(weight=w.y)


def two(w: World, tree: Any) -> tuple[Any, Any]:
    """A tree twice, each with a static of its own."""
    loud = type(static(w, __eq__=lambda self, other: w.answer(True)))
    return (Linear(weight=tree, size=loud()), Linear(weight=tree, size=loud()))


def structure_of(registry: Any, tree: Any) -> Any:
    return core.tree_flatten(registry, tree, ("arrays",), None)[1]


def other_statics(w: World, registry: Any, tree: Any) -> Any:
    """Two trees whose statics differ, so that both are written down."""
    structure = core.tree_flatten(registry, Linear(size=loud_repr(w)), True, None)[1]
    other = Linear(size=loud_repr(w))
    try:
        structure.flatten_up_to(other)
    except ValueError:
        return tree
    return tree


def other_aux(w: World, registry: Any, tree: Any) -> Any:
    boxes = [cs.Box([1], aux=loud_repr(w)) for _ in range(2)]
    try:
        core.tree_map(registry, max, tuple(boxes), None)
    except ValueError:
        return tree
    return tree


def unknown_groups(w: World, registry: Any, tree: Any) -> Any:
    try:
        structure_of(registry, [w.x]).combine({loud_repr(w): 1})
    except ValueError:
        return tree
    return tree


def tree_filter(w: World, registry: Any, tree: Any) -> Any:
    program = ("tree", [1, {"k": 2}], lambda f: w.answer(("leaf", lambda leaf: True)))
    return core.partition(registry, tree, (program,), None, None)


operation("repr of a key", lambda w, r, t: repr(structure_of(r, t)), loud_key)
operation("repr of a static", lambda w, r, t: repr(structure_of(r, t)), loud_repr)
operation("name of a class", lambda w, r, t: repr(structure_of(r, t)), loud_name)
operation("str of a key", lambda w, r, t: core.tree_paths(r, t, None), loud_key)
operation("str of a key that is given", lambda w, r, t: structure_of(r, t).paths, loud_key)
operation("fields of a named tuple", lambda w, r, t: core.tree_paths(r, t, None), loud_fields)
operation("reprs of statics that differ", other_statics)
operation("reprs of aux data that differ", other_aux)
operation("repr of an unknown path", unknown_groups)
operation("is_leaf", lambda w, r, t: core.tree_leaves(r, t, lambda x: w.answer(False)))
operation("map", lambda w, r, t: core.tree_map(r, lambda x: w.answer(x), (t,), None))
operation("map of two", lambda w, r, t: core.tree_map(r, lambda *xs: w.answer(1), (t, t), None))
operation("eq in a map", lambda w, r, t: core.tree_map(r, lambda *xs: 1, two(w, t), None))
operation("eq in combine", lambda w, r, t: core.combine(r, two(w, t), None, False))
operation(
    "predicate",
    lambda w, r, t: core.partition(r, t, (("leaf", lambda x: w.answer(True)),), None, None),
)
operation(
    "predicate of arrays",
    lambda w, r, t: core.partition_dict(
        r, t, ("array", lambda x: w.answer(True)), (("arrays",),), None
    )[1:],
)
operation(
    "glob",
    lambda w, r, t: core.tree_flatten(
        r, t, ("path", (("deep",), ("glob", lambda x: w.answer(True)))), None
    )[0],
)
operation("a program of a tree", tree_filter)
operation(
    "str of a key in a pattern",
    lambda w, r, t: core.tree_flatten(r, t, ("path", (("deep",), ("name", "text"))), None)[0],
    loud_key,
)
operation(
    "leaves that are given",
    lambda w, r, t: structure_of(r, [w.x] * 3).unflatten(w.answer(Array(i)) for i in range(3)),
)
operation(
    "groups by loud keys",
    lambda w, r, t: structure_of(r, [w.x]).combine(
        {
            type(
                "K",
                (str,),
                {"__hash__": lambda s: hash("0"), "__eq__": lambda s, o: w.answer(True)},
            )(): 1
        }
    ),
)

# ---- all of them ----


def consistent(w: World) -> None:
    cache = w.f.parts()[0]
    variants = cache.variants()
    assert len(variants) <= cache.maxsize
    for a, b in itertools.combinations(variants, 2):
        assert a.structure != b.structure
    for variant in variants:
        assert hash(variant.structure) == hash(variant.structure) and callable(variant.call)


def right(w: World, result: Any) -> bool:
    """Where the place has not been given an operation of its own, the result is the tree."""
    return w.operation is not None or cs.same(result, w.tree())


def attempt(name: str, deed: str, at: int, phase: str, container: type) -> bool:
    """Whether the place was met."""
    w = World(DEEDS[deed], at, container)
    w.trap = PLACES[name](w)
    w.fill()
    if w.operation is None:
        assert w.f is not None
    if phase != "first":
        w.call()
    if phase == "again":
        w.renew()
        w.call()
    if phase == "other":
        w.plain()
    w.renew()
    w.armed, result = True, None
    try:
        try:
            result = w.call()
        finally:
            w.armed = False
    except Interrupt:
        assert deed == "interrupts"
    except SystemError:
        raise
    except Exception as e:
        assert w.acted and deed not in HARMLESS, (name, deed, phase, e)
        if deed == "raises" and name not in ("options.failed", "options.misfit"):
            assert isinstance(e, Deed), e
    else:
        assert deed != "interrupts" or not w.acted or name in UNRAISABLE, "swallowed"
        if deed in HARMLESS or not w.acted:
            assert right(w, result), (name, deed, phase, result)
    result = None
    gc.collect()
    consistent(w)
    for n in (1, "plain", True):
        for _ in range(2):
            assert cs.same(w.plain(n), [w.x, n, {"k": w.k}])
    # What the deed has left of the container is used as it is now, then as it was.
    for _ in range(2):
        try:
            w.renew()
            w.call()
        except Exception as e:
            assert not isinstance(e, SystemError)
        w.fill()
    consistent(w)
    return w.acted


@pytest.fixture(autouse=True)
def _unraisable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda details: None)


PHASES = ("first", "again", "other")
CHANGES = ("empties", "shrinks", "grows", "replaces")


@pytest.mark.parametrize("name", PLACES)
def test_place_and_deeds(name: str) -> None:
    met = dict.fromkeys(DEEDS, 0)
    for deed, phase in itertools.product(DEEDS, PHASES):
        for container in (list, dict) if deed in CHANGES else (list,):
            for at in (1, 2, 3):
                if not attempt(name, deed, at, phase, container):
                    break
                met[deed] += 1
    assert all(met.values()), [deed for deed in met if not met[deed]]
