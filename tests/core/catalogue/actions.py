"""The actions of the traps of the hostile matrix."""

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

from core_support import Array, core
from places import NOTHING, ActionError, Interrupt, Wide, World, echo

ACTIONS: dict[str, Callable[[World], Any]] = {}
HARMLESS = set()


def action(harmless: bool = False) -> Callable[[Callable[[World], Any]], Callable[[World], Any]]:
    def register(act: Callable[[World], Any]) -> Callable[[World], Any]:
        ACTIONS[act.__name__] = act
        if harmless:
            HARMLESS.add(act.__name__)
        return act

    return register


@action()
def raises(w: World) -> Any:
    raise ActionError


@action()
def interrupts(w: World) -> Any:
    raise Interrupt


@action()
def raises_with_notes_that_fail(w: World) -> Any:
    class Loud(ActionError):
        def add_note(self, note: str) -> None:
            raise ActionError

        def __setattr__(self, name: str, value: Any) -> None:
            raise ActionError

    raise Loud


@action()
def runs_out_of_stack(w: World) -> Any:
    return runs_out_of_stack(w)


@action()
def runs_out_of_memory(w: World) -> Any:
    raise MemoryError


@action(harmless=True)
def does_it_again(w: World) -> Any:
    """Makes the same call within itself, three deep."""
    if w.inside < 3:
        w.inside += 1
        w.met, w.armed = w.at - 1, True
        w.call()
        w.inside -= 1
    w.armed = False
    return NOTHING


@action(harmless=True)
def calls_with_others(w: World) -> Any:
    for n in (1, "a", True):
        w.ordinary_call(n)
    return NOTHING


@action(harmless=True)
def calls_until_others_are_evicted(w: World) -> Any:
    for n in range(20):
        w.ordinary_call(f"static {n}")
    gc.collect()
    return NOTHING


@action(harmless=True)
def clears_the_cache(w: World) -> Any:
    for cache in w.caches():
        cache.clear()
    gc.collect()
    return NOTHING


@action(harmless=True)
def clears_and_fills_the_cache(w: World) -> Any:
    for cache in w.caches():
        cache.clear()
    w.ordinary_call()
    w.spare += [Array(i) for i in range(50)]
    return NOTHING


@action(harmless=True)
def deletes_the_function(w: World) -> Any:
    w.jits.clear()
    w.hooks.caches.clear()
    gc.collect()
    return NOTHING


@action(harmless=True)
def collects(w: World) -> Any:
    for _ in range(3):
        gc.collect()
    return NOTHING


@action(harmless=True)
def lets_another_thread_run(w: World) -> Any:
    wrong: list[BaseException] = []

    def other() -> None:
        try:
            for n in (1, "a", True):
                w.ordinary_call(n)
            w.call()
        except BaseException as e:
            wrong.append(e)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and not wrong, wrong
    return NOTHING


@action()
def empties(w: World) -> Any:
    w.items.clear()
    gc.collect()
    return NOTHING


@action()
def shrinks(w: World) -> Any:
    if w.items:
        w.items.pop() if isinstance(w.items, list) else w.items.popitem()
    return NOTHING


@action()
def grows(w: World) -> Any:
    if isinstance(w.items, list):
        w.items.extend([Array()] * 1000)
    else:
        w.items.update({f"new{i}": 1 for i in range(1000)})
    return NOTHING


@action()
def replaces(w: World) -> Any:
    for place in range(len(w.items)) if isinstance(w.items, list) else list(w.items):
        w.items[place] = [Array()]
    gc.collect()
    return NOTHING


@action()
def puts_others_under_other_keys(w: World) -> Any:
    if isinstance(w.items, list):
        w.items.reverse()
    elif w.items is not w.container:
        w.container.__dict__ = {"other": 1}
    else:
        others = dict(enumerate(w.items.values()))
        w.items.clear()
        w.items.update(others)
    gc.collect()
    return NOTHING


@action()
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


@action()
def empties_and_changes_its_class(w: World) -> Any:
    empties(w)
    return changes_its_class(w)


@action()
def takes_the_attributes_of_another(w: World) -> Any:
    """The class of the other instance shares no keys with the trap's own class."""

    class Elsewhere(Wide):
        dynamic = ()

    for x in (w.trap, w.container):
        if isinstance(x, Wide):
            spare = [Elsewhere(a=1) for _ in range(100)]
            x.__class__ = Elsewhere
            x.__dict__ = vars(spare[-1])
            w.spare.append(spare)
    return NOTHING


class Broken:
    """An object whose special methods fail."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ActionError

    def __eq__(self, other: object) -> bool:
        raise ActionError

    def __len__(self) -> int:
        return -1

    def __iter__(self) -> Iterator[Any]:
        raise ActionError

    def __repr__(self) -> str:
        raise ActionError

    def __str__(self) -> str:
        raise ActionError


def gives(name: str, make: Callable[[], Any]) -> None:
    def give(w: World) -> Any:
        return make()

    ACTIONS[f"gives {name}"] = give


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
    ("an exception", lambda: ActionError()),
    ("a broken object", Broken),
    ("an array", lambda: Array(1)),
    ("the core's own types", lambda: (core.Structure, core.Cache, core.Identity)),
):
    gives(_name, _make)
