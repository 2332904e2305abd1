"""The actions of the traps of the hostile matrix."""

import functools
import gc
import threading
from collections.abc import Callable
from typing import Any

from core_support import Array, core
from outcome_support import Interrupt
from places import NOTHING, ActionError, Wide, World, echo

ACTIONS: dict[str, Callable[[World], Any]] = {}
HARMLESS = set()


def harmless(act: Callable[[World], None]) -> Callable[[World], None]:
    """Registers what must not change the result."""
    HARMLESS.add(act.__name__)
    return changes(act)


def changes(act: Callable[[World], None]) -> Callable[[World], None]:
    """Registers what is done before the right answer is given."""

    def do(w: World) -> Any:
        act(w)
        return NOTHING

    ACTIONS[act.__name__] = do
    return act


class Loud(ActionError):
    """Takes no notes."""

    def add_note(self, note: str) -> None:
        raise ActionError

    def __setattr__(self, name: str, value: Any) -> None:
        raise ActionError


def fail(error: type[BaseException], w: World) -> Any:
    raise error


for _name, _error in {
    "raises": ActionError,
    "interrupts": Interrupt,
    "raises_with_notes_that_fail": Loud,
    "runs_out_of_memory": MemoryError,
}.items():
    ACTIONS[_name] = functools.partial(fail, _error)


@changes
def runs_out_of_stack(w: World) -> None:
    runs_out_of_stack(w)


@harmless
def does_it_again(w: World) -> None:
    """Makes the same call within itself, three deep."""
    if w.inside < 3:
        w.inside += 1
        w.met, w.armed = w.at - 1, True
        w.call()
        w.inside -= 1
    w.armed = False


@harmless
def calls_with_others(w: World) -> None:
    for n in (1, "a", True):
        w.ordinary_call(n)


@harmless
def calls_until_others_are_evicted(w: World) -> None:
    for n in range(20):
        w.ordinary_call(f"static {n}")
    gc.collect()


@harmless
def clears_the_cache(w: World) -> None:
    for cache in w.caches():
        cache.clear()
    gc.collect()


@harmless
def clears_and_fills_the_cache(w: World) -> None:
    for cache in w.caches():
        cache.clear()
    w.ordinary_call()
    w.spare += [Array(i) for i in range(50)]


@harmless
def deletes_the_function(w: World) -> None:
    w.jits.clear()
    w.hooks.caches.clear()
    gc.collect()


@harmless
def collects(w: World) -> None:
    for _ in range(3):
        gc.collect()


@harmless
def lets_another_thread_run(w: World) -> None:
    wrong: list[BaseException] = []

    def other() -> None:
        try:
            calls_with_others(w)
            w.call()
        except BaseException as e:
            wrong.append(e)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and not wrong, wrong


def incomplete(objects: list[Any]) -> list[Any]:
    """The tuples and lists of which items are still NULL, by the number of objects that they refer to:
    to look at such an item would crash."""
    found: list[Any] = []
    for x in objects:
        cls = type(x)
        # ``tuple`` of a generator makes a tuple of 10 items first, before Python 3.14.
        if issubclass(cls, (tuple, list)) and len(x) != 10:
            # Instances of a heap type refer to their type too.
            others = 0 if cls in (tuple, list) or not cls.__flags__ & 1 << 9 else 1
            if len(gc.get_referents(x)) < len(x) + others:
                found.append((cls, len(x), gc.get_referents(x)))
    return found


@harmless
def looks_at_all_objects(w: World) -> None:
    """As a profiler's thread does, or a callback of the garbage collector."""
    objects = gc.get_objects()
    w.incomplete += incomplete(objects)
    # A Structure keeps its hash and its paths: nobody may ask for them before it has all nodes.
    w.structures += [(x, x._node(0)[4]) for x in objects if type(x) is core.Structure]


@changes
def empties(w: World) -> None:
    w.items.clear()
    gc.collect()


@changes
def shrinks(w: World) -> None:
    if w.items:
        w.items.pop() if isinstance(w.items, list) else w.items.popitem()


@changes
def grows(w: World) -> None:
    if isinstance(w.items, list):
        w.items.extend([Array()] * 1000)
    else:
        w.items.update({f"new{i}": 1 for i in range(1000)})


@changes
def replaces(w: World) -> None:
    for place in range(len(w.items)) if isinstance(w.items, list) else list(w.items):
        w.items[place] = [Array()]
    gc.collect()


@changes
def puts_others_under_other_keys(w: World) -> None:
    if isinstance(w.items, list):
        w.items.reverse()
    elif w.items is not w.container:
        w.container.__dict__ = {"other": 1}
    else:
        others = dict(enumerate(w.items.values()))
        w.items.clear()
        w.items.update(others)
    gc.collect()


@changes
def changes_its_class(w: World) -> None:
    for x in (w.trap, *gc.get_referents(w.trap)):
        cls = type(x)
        if isinstance(getattr(cls, "__init__", None), type(echo)):
            try:
                x.__class__ = type("Elsewhere", (cls,), {})
            except TypeError:
                pass
    gc.collect()


@changes
def empties_and_changes_its_class(w: World) -> None:
    empties(w)
    changes_its_class(w)


@changes
def takes_the_attributes_of_another(w: World) -> None:
    """The class of the other instance shares no keys with the trap's own class."""

    class Elsewhere(Wide):
        dynamic = ()

    for x in (w.trap, w.container):
        if isinstance(x, Wide):
            spare = [Elsewhere(a=1) for _ in range(100)]
            x.__class__ = Elsewhere
            x.__dict__ = vars(spare[-1])
            w.spare.append(spare)


class Broken:
    """An object whose special methods fail."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return -1

    def _fail(self, other: object = None) -> Any:
        raise ActionError

    __bool__ = __eq__ = __iter__ = __repr__ = __str__ = _fail


for _name, _make in {
    "None": lambda w: None,
    "NotImplemented": lambda w: NotImplemented,
    "a number": lambda w: -1,
    "a large number": lambda w: 2**80,
    "text": lambda w: "nonsense",
    "bytes": lambda w: b"nonsense",
    "an empty tuple": lambda w: (),
    "tuples of tuples": lambda w: (((),),) * 4,
    "an iterator": lambda w: iter([1, 2]),
    "an object": lambda w: object(),
    "a class": lambda w: World,
    "an exception": lambda w: ActionError(),
    "a broken object": lambda w: Broken(),
    "an array": lambda w: Array(1),
    "the core's own types": lambda w: (core.Structure, core.Cache, core.Identity),
}.items():
    ACTIONS[f"gives {_name}"] = _make
