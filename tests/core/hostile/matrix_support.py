"""The World of the hostile matrix: a trap in a call, and what is to happen where it is met.

A *place* puts a trap into a tree, a registry, a Python side, or the way in which a tree function
is called. A *deed* is what the trap does, once.
"""

from collections.abc import Callable
from typing import Any

import core_support as cs
from core_support import Array, Value

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


class Wide(cs.Module):
    dynamic = tuple(f"field{i:02}" for i in range(25))


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


def static_type(**methods: Any) -> type:
    """A class with these methods: all its instances are equal."""
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


def renewed(w: World, make: Callable[[], Any]) -> Any:
    """What is made now, and made again for each call."""
    w.remake = make
    return make()
