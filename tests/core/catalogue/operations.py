"""The registry of the operations, and the objects that they share.

An operation uses the core in one way: it makes its objects, and returns a call and a check of the
call's result. The call can be made again and again. allocations.py makes each of its allocations
fail, and leaks.py repeats it.

CPython itself leaks if an allocation fails in `list(tuple)`, for the cell of a closure or for
`*args`, loses an exception if one fails for its text, and 3.12 crashes if one fails for a
function. The Python code of the operations avoids these.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import core_support as cs
from core_support import Array, Linear, OtherArray, Point, Record, Value, core, same
from outcome_support import raised
from trees_support import TREES as ALL_TREES

Operation = tuple[Callable[[], Any], Callable[[Any], None]]
OPERATIONS: dict[str, Callable[[], Operation]] = {}
# Those with too many allocations to let each fail, or in which CPython crashes if one fails.
ONLY_REPEATED: set[str] = set()


def add(
    name: str,
    make: Callable[[], Any],
    use: Callable[..., Any],
    check: Callable[..., Any],
    repeated: bool = False,
) -> None:
    """Registers an operation: `use` is called with what `make` makes, an argument or a tuple of them.
    `check` is called with the same and with the result, and returns whether that is right."""

    def operation() -> Operation:
        made = make()
        args = made if type(made) is tuple else (made,)

        def verify(found: Any) -> None:
            assert check(*args, found)

        call: Any = functools.partial(use, *args)
        call.lists = [[] for _ in range(100)]  # CPython has no more of these to give again
        return call, verify

    OPERATIONS[name] = operation
    if repeated:
        ONLY_REPEATED.add(name)


def operation(
    make: Callable[[], Any],
    expected: Any = None,
    check: Callable[..., Any] | None = None,
    repeated: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the function below as an operation, which returns what is `expected`."""

    def register(use: Callable[..., Any]) -> Callable[..., Any]:
        add(use.__name__, make, use, check or (lambda *made: same(made[-1], expected)), repeated)
        return use

    return register


def given(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def after(
    name: str,
    new: Callable[[], Any],
    make: Callable[[], Any],
    *before: Callable[[], Any],
    equal: int = 0,
    same: int = 0,
    change: Callable[[Any, Any], Any] | None = None,
) -> None:
    """Registers a call of the `jit` of what `new` makes, with the arguments that `make` makes. It comes
    after calls with others, with so many `equal` and with the `same` arguments, and after a change."""

    def made() -> Any:
        owner, (args, kwargs) = new(), make()
        others = [other() for other in (*before, *[make] * equal)]
        for a, k in (*others, *[(args, kwargs)] * same):
            owner.jit(*a, **k)
        if change is not None:
            change(owner, args)
        owner.called(args, kwargs)
        return owner, functools.partial(owner.jit, *args, **kwargs)

    add(name, made, lambda owner, call: call(), lambda owner, call, found: owner.is_right(found))


def errors(
    make: Callable[[], list[tuple[Any, ...]]],
    texts: dict[int, str] | None = None,
    repeated: bool = False,
) -> None:
    """Registers calls that raise. Each is an exception's type, a function and its arguments. `texts`
    has a part of some messages, by the number of the call."""

    def check(calls: Any, found: Any) -> bool:
        return all(text in str(found[i]) for i, text in (texts or {}).items())

    add(make.__name__, make, lambda calls: [raised(*call) for call in calls], check, repeated)


def is_true(*made: Any) -> bool:
    return made[-1] is True


# All operations share these objects, so that their reference counts show a leak.
X, Y, OTHER, STATIC, KEYED = Array("x"), Array("y"), OtherArray(), Value(3), cs.Keyed((1,))
HOLE = Value("hole")
SHARED: list[Any] = [
    *(None, True, False, X, Y, OTHER, STATIC, KEYED, HOLE, len, cs.missing, (), 2**70),
    *(Array, Linear, Point, Record, Value, cs.LoudPoint, cs.classify),
    *(t for t in vars(core).values() if isinstance(t, type)),
]


class Box(cs.Box):
    """Holds the children as they are given, in place of a new list of them."""

    def __init__(self, children: Any, aux: Any = None, hook: Any = None) -> None:
        self.children, self.aux, self.hook = children, aux, hook


def flatten_one_level(x: Any) -> Any:
    if x.hook is not None:
        x.hook()
    return x.children, x.aux


KEYS = ((0,), (1,), (2,), (3,))


def rebuild_box(aux: Any, children: Any) -> Any:
    return Box(children, aux)


def flatten_with_keys(x: Any) -> Any:
    children, aux = flatten_one_level(x)
    return children, aux, rebuild_box, KEYS[: len(children)]


make_registry = functools.partial(
    cs.make_registry, flatten_one_level=flatten_one_level, flatten_with_keys=flatten_with_keys
)


class Elements(frozenset):  # type: ignore[type-arg]
    """A set whose elements Python code enumerates; it compares as its base does."""

    def __iter__(self) -> Any:
        return frozenset.__iter__(self)


def mixed() -> Any:
    """One tree with most kinds of nodes and statics. None describes itself: see LEAKED in
    allocations.py."""
    static = ("a", 1.5, frozenset([1]))
    return {
        "m": Linear(weight=X, bias=[X], size=[1, {"k": 2}], activation=len, __name__="f"),
        "p": (Point(X, 2), cs.LoudPoint(1, X), None),
        "r": Record(X, [1], static),
        "b": Box((X, 3), aux=static),
        "f": [cs.Frozen({"k": X, "a": [1, X]}), cs.Variable(X, kind=STATIC)],
        "t": (cs.Pair(x=X, y=cs.Slots(x=1, y=2, tag=3), tag=1),),
        "o": collections.OrderedDict(b=1, a=X),
        "d": collections.defaultdict(int, k=OTHER),
        "s": [STATIC, (1, 2), KEYED, 2.5, len, "text"],
    }


_OWN = ("custom", "custom_empty")  # trees_support has them with a Box that makes a list
_BY_IDENTITY = ("maybe_array", "maybe_static", "list_of_leaves", "other_array")
_WIDE = tuple(f"Wide {n}{slots}" for n in (29, 30, 31) for slots in ("", " slots"))

TREES: dict[str, Callable[[], Any]] = {
    **{
        name: functools.partial(make, X, Y, OTHER)
        for name, make in ALL_TREES.items()
        if name not in _OWN + _BY_IDENTITY + _WIDE
    },
    "box": lambda: Box((X, 3), aux=("a", Value(1))),
    "statics": lambda: [STATIC, KEYED, 2**70, -(2**70), 1.5, 2j, frozenset([1, (2, 3)]), "text"],
    "maybe": lambda: [cs.Maybe(True), OtherArray()],
    "sets": lambda: Linear(size=Elements([1, (2, STATIC)]), activation={"k": {1, 2}}),
    "many": lambda: [[X] * 60, [Y, 1] * 60],
}
