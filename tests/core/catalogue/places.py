"""The World of the hostile matrix: a call with a trap in it, and what the trap does.

A *place* puts a trap into a tree, a registry, the options, or the arguments of a tree function.
An *action* is what the trap does, once.
"""

from collections.abc import Callable
from typing import Any

import core_support as cs
from core_support import Array, Value
from node_support import wide

NOTHING = object()


class ActionError(Exception):
    """What most actions that fail raise."""


class Interrupt(BaseException):
    """As KeyboardInterrupt, it must not be swallowed."""


Fields = wide(5)


class World:
    """A FilterJit, a tree with a trap in it, and the action of the trap.

    The trap acts when it is met the `at`-th time while `armed`.  `run` is how a place uses the
    tree, if not as the argument of the FilterJit.
    """

    def __init__(self, action: Callable[["World"], Any], at: int, container: Any = list) -> None:
        self.action, self.at, self.met, self.armed, self.acted = action, at, 0, False, 0
        self.hooks = cs.Hooks(cs.make_registry(), maxsize=6)
        self.container: Any = container()
        self.trap: Any = None
        self.remake: Callable[[], Any] | None = None  # makes a fresh trap for each call
        self.x, self.y, self.k = Array("x"), Array("y"), Array("k")
        self.jits: list[Any] = []
        self.run: Callable[[Any], Any] | None = None
        self.caches: Callable[[], list[Any]] = lambda: [self.f._parts()[0]]
        self.others: Callable[[], Any] = lambda: ([Array(1), Value("x" * 50)], (Array(2), 1))
        self.spare: list[Any] = []
        self.inside = 0

    def registry(self, **changes: Any) -> None:
        self.hooks = cs.Hooks(cs.make_registry(**changes), maxsize=6)

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
            self.jits.append(cs.make_jit(echo, self.hooks))
        return self.jits[-1]


def echo(tree: Any = None, *rest: Any, **kwargs: Any) -> Any:
    return tree


Wide = wide(25)


PLACES: dict[str, Callable[[World], Any]] = {}
# Where Python prints the exception of a callback, and goes on.
UNRAISABLE = set()


def place(unraisable: bool = False) -> Callable[[Callable[[World], Any]], Callable[[World], Any]]:
    def register(make: Callable[[World], Any]) -> Callable[[World], Any]:
        PLACES[make.__name__] = make
        if unraisable:
            UNRAISABLE.add(make.__name__)
        return make

    return register


def static_type(**methods: Any) -> type:
    """A class with these methods, whose instances are all equal."""
    space = {
        "__hash__": lambda self: 7,
        "__eq__": lambda self, other: type(self) is type(other) or NotImplemented,
        **methods,
    }
    return type("Static", (), space)


def static(**methods: Any) -> Any:
    return static_type(**methods)()


def loud_eq(w: World) -> type:
    """A class of statics with the trap in their ``__eq__``."""
    return static_type(__eq__=lambda self, other: w.answer(True))


def loud_str(w: World, name: str) -> type:
    """A subclass of str with the trap in the method of that name."""

    def method(self: Any, other: Any) -> Any:
        return w.answer(getattr(str, name)(self, other))

    return type("Loud", (str,), {"__slots__": (), "__hash__": str.__hash__, name: method})


def renewed(w: World, make: Callable[[], Any]) -> Any:
    """Makes a trap now, and another for each call."""
    w.remake = make
    return make()


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
