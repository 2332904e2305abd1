"""Each place where Python code can run, times each deed that it may do there.

Afterwards nothing may have crashed, the exception is the deed's own or the result is right, the
cache is consistent, and a next plain call is right. matrix_support.py says what a place and a deed
are.
"""

import gc
import itertools
import sys
from typing import Any

import core_support as cs
import matrix_calls  # noqa: F401, each adds its places
import matrix_nodes  # noqa: F401
import matrix_trees  # noqa: F401
import pytest
from matrix_operations import DEEDS, HARMLESS
from matrix_support import PLACES, UNRAISABLE, Deed, Interrupt, World


def consistent(w: World) -> None:
    cache = w.f._parts()[0]
    variants = cache.variants()
    assert len(variants) <= cache.maxsize
    for a, b in itertools.combinations(variants, 2):
        assert a.structure != b.structure
    for variant in variants:
        hash(variant.structure)
        assert callable(variant.call)


def right(w: World, result: Any) -> bool:
    """Where the place has not been given an operation of its own, the result is the tree."""
    return w.operation is not None or cs.same(result, w.tree())


def attempt(name: str, deed: str, at: int, phase: str, container: type) -> bool:
    """Whether the place was met."""
    w = World(DEEDS[deed], at, container)
    w.trap = PLACES[name](w)
    w.fill()
    if w.operation is None:
        assert w.f is not None  # made before the trap is armed
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
        if deed == "raises" and name not in (
            "options.translate_error",
            "options.raise_binding_error",
        ):
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
