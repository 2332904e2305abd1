"""The World of the hostile matrix: a call with a trap in it, and what the trap does.

A *place* puts a trap into a tree, a registry, the options, or the arguments of a tree function.
An *action* is what the trap does, once.
"""

import functools
from collections.abc import Callable
from typing import Any

import core_support as cs
import hooks_support as hs
from core_support import Array, Value, core
from outcome_support import nothing
from trees_support import wide

NOTHING = object()


class ActionError(Exception):
    """What most actions that fail raise."""


Fields = wide(5)


class World:
    """A FilterJit, a tree with a trap in it, and the action of the trap.

    The trap acts when it is met the `at`-th time while `armed`.  `run` is how a place uses the
    tree, if not as the argument of the FilterJit.
    """

    def __init__(self, action: Callable[["World"], Any], at: int, container: Any = list) -> None:
        self.action, self.at, self.met, self.armed, self.acted = action, at, 0, False, 0
        self.hooks = hs.Hooks(cs.make_registry(), maxsize=6)
        self.container: Any = container()
        self.trap: Any = None
        self.remake: Callable[[], Any] | None = None  # makes a fresh trap for each call
        self.x, self.y, self.k = Array("x"), Array("y"), Array("k")
        self.jits: list[Any] = []
        self.run: Callable[[Any], Any] | None = None
        self.caches: Callable[[], list[Any]] = lambda: [self.f._parts()[0]]
        self.others: Callable[[], Any] = lambda: ([Array(1), Value("x" * 50)], (Array(2), 1))
        self.spare: list[Any] = []
        self.incomplete: list[Any] = []  # what other code has seen
        self.structures: list[tuple[Any, int]] = []  # which it has seen, with how many nodes
        self.inside = 0
        self.forget: Callable[[], None] = nothing
        self.classes: dict[Any, Any] = {}

    def hook(self, *args: Any) -> Any:
        """Returns the answer that the place is to give; NOTHING stands for the right one."""
        if not self.armed:
            return NOTHING
        self.met += 1
        if self.met != self.at:
            return NOTHING
        self.acted += 1
        self.armed = False
        return self.action(self)

    def answer(self, right: Any) -> Any:
        given = self.hook()
        return right if given is NOTHING else given

    def fill(self) -> None:
        """Puts the trap into the container, among objects that nothing else holds."""
        one, other = self.others()
        items = [self.x, one, self.trap, other, {"a": self.y}]
        if isinstance(self.container, list):
            self.container[:] = items
        else:
            self.items.clear()
            self.items.update(zip(Fields.dynamic, items, strict=True))

    @property
    def items(self) -> Any:
        """The list or dict that holds the items of the container."""
        return vars(self.container) if isinstance(self.container, Fields) else self.container

    def tree(self) -> Any:
        return [self.container, {"k": self.k}]

    def renew(self) -> None:
        if self.remake is not None:
            place = 2 if isinstance(self.container, list) else Fields.dynamic[2]
            if len(self.items) == 5:
                self.trap = self.items[place] = self.remake()

    def call(self) -> Any:
        tree = self.tree()
        if self.run is not None:
            return self.run(tree)
        # Only the stack holds the tree, as it holds a temporary.
        return self.jits[-1](tree) if self.jits else None

    def quietly(self, call: Callable[[], Any]) -> Any:
        """Makes a call in which the trap does not act."""
        self.armed, armed = False, self.armed
        try:
            return call()
        finally:
            self.armed = armed

    def ordinary_call(self, n: Any = 1) -> Any:
        return self.f([self.x, n, {"k": self.k}])

    @property
    def f(self) -> Any:
        if not self.jits:
            self.jits.append(hs.make_jit(echo, self.hooks))
        return self.jits[-1]

    def after(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with the trap at its end."""
        return lambda *args, **names: self.answer(function(*args, **names))

    def loud(self, base: type, method: str) -> Any:
        """A subclass of `base` with the trap in the method of that name."""

        def make() -> type:
            space = {"__hash__": base.__hash__, "__slots__": ()}
            return type("Loud", (base,), {**space, method: self.after(getattr(base, method))})

        return self.once((base, method), make)

    def loud_field(self, base: type, name: str, on_set: bool = False) -> Any:
        """A subclass with the trap in reading or setting an attribute, which is in the `__dict__`."""

        def read(x: Any) -> Any:
            value = x.__dict__[name]
            return value if on_set else self.answer(value)

        def store(x: Any, value: Any) -> None:
            if on_set:
                self.hook()
            x.__dict__[name] = value

        return type("Loud", (base,), {name: property(read, store)})

    def mortal(self, base: Any, *args: Any) -> Any:
        """An instance of `base` whose finalizer is the trap, unless it is `quiet`."""
        space = {"quiet": False, "__del__": lambda x: x.quiet or self.hook()}
        return self.once(base, lambda: type("Mortal", (base,), space))(*args)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` has made for that key."""
        if key not in self.classes:
            self.classes[key] = make()
        return self.classes[key]


def echo(tree: Any = None, *rest: Any, **kwargs: Any) -> Any:
    return tree


def call_it(w: World, tree: Any) -> Any:
    """Makes a call whose result may be another."""
    w.f(tree)
    return tree


def compare(w: World, tree: Any) -> Any:
    """Compares the tree with the structure of an equal one, and with itself."""
    registry = w.hooks.registry
    structure = w.quietly(lambda: core.tree_flatten(registry, tree, True, None))[1]
    w.renew()
    structure._subtrees(tree)
    core.combine(registry, (tree, tree), None, False)
    return tree


Wide = wide(25)


class Static:
    """All instances of a class are equal."""

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) or NotImplemented

    def __call__(self) -> None: ...


PLACES: dict[str, Callable[[World], Any]] = {}
# Where Python prints the exception of a callback, and goes on.
UNRAISABLE = set()
# Where an Exception is no error of the call, as another function is called in its place.
PASSED_ON = set()


def place(
    name: str,
    trap: Callable[[World], Any] = lambda w: None,
    *,
    registry: Callable[[World], dict[str, Any]] | None = None,
    kind: tuple[type, Callable[[World], Any]] | None = None,
    run: Callable[[World, Any], Any] | None = None,
    fresh: bool = False,
    unraisable: bool = False,
    passed_on: bool = False,
) -> None:
    """Registers a place. `trap` returns what is put into the tree, and is called again for each call
    if that is to be `fresh`. `registry` returns what is special of the registry, and `kind` is a type
    with what `classify` says of it. `run` makes the call."""

    def put(w: World) -> Any:
        changes = {} if registry is None else registry(w)
        if kind is not None:
            cls, told = kind
            changes["classify"] = lambda c, x: told(w) if issubclass(c, cls) else cs.classify(c, x)
        if changes:
            w.hooks = hs.Hooks(cs.make_registry(**changes), maxsize=6)
        if run is not None:
            w.run = functools.partial(run, w)
        if fresh:
            w.remake = functools.partial(trap, w)
        return trap(w)

    PLACES[name] = put
    if unraisable:
        UNRAISABLE.add(name)
    if passed_on:
        PASSED_ON.add(name)


def make_world(
    name: str,
    action: Callable[[World], Any],
    at: int = 1,
    phase: str = "first",
    container: Any = list,
) -> World:
    """A World whose trap, in the place of that name, is armed for the next call.

    That call is the `first` one, comes `again` after two others, or comes after one of an`other`
    variant.
    """
    w = World(action, at, container)
    w.trap = PLACES[name](w)
    w.fill()
    if w.run is None:
        assert w.f is not None  # made before the trap is armed
    if phase != "first":
        w.call()
    if phase == "again":
        w.renew()
        w.call()
    if phase == "other":
        w.ordinary_call()
    w.renew()
    w.armed = True
    return w
