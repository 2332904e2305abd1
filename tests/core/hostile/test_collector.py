"""Other code sees the parts of a tree in ``gc.get_objects()`` only once they are complete.

A profiler's thread, a finalizer, a callback of the garbage collector, or the constructor of a node
may look at all containers at any time.  A tuple or list whose items are still NULL would crash it.
The hostile matrix (core/catalogue) looks wherever Python code can run in the core.
"""

import collections
import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from actions import incomplete
from catalogue import OPERATIONS
from core_support import Array, Record
from hooks_support import make_jit


@contextlib.contextmanager
def looking() -> Iterator[list[Any]]:
    """Collects as often as possible, and looks if the core has started the collection, which it can do
    on Python 3.11: in each allocation."""
    found: list[Any] = []

    def look(*_: Any) -> None:
        file = sys._getframe(1).f_code.co_filename
        if "operations" in file:
            found.extend(incomplete(gc.get_objects()))

    threshold = gc.get_threshold()
    gc.callbacks.append(look)
    gc.set_threshold(1)
    try:
        yield found
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(look)


# Operations in which Python has incomplete tuples, as they use ``map`` or ``zip``.
OF_PYTHON = ("bound_methods", "many_leaves", "types_that_come_and_go")


def test_collections_in_operations() -> None:
    for name, make in OPERATIONS.items():
        if name in OF_PYTHON:
            continue
        call, check = make()
        gc.freeze()  # a look is short then
        with looking() as found:
            result = call()
        check(result)
        assert found == [], name


def test_a_named_tuple_is_not_made_if_a_child_fails() -> None:
    """Its ``__del__`` would see NULL."""

    class Named(collections.namedtuple("Named", ("x", "y"))):  # type: ignore[misc]
        def __del__(self) -> None:
            deleted.append(tuple(self))

    class Fails(Record):
        fails = False

        def __init__(self, **fields: Any) -> None:
            super().__init__(**fields)
            if Fails.fails:
                raise ZeroDivisionError

    deleted: list[Any] = []
    named = Named(Array(), Fails(data=Array(), other=1, tag=2))
    f = make_jit(lambda x: named)
    f(Array())
    Fails.fails = True
    deleted.clear()
    with pytest.raises(ZeroDivisionError):
        f(Array())
    assert deleted == []
