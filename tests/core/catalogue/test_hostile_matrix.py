"""Each place where Python code can run, times each action that it may take there.

Nothing may crash.  The call raises the exception of the action or returns the right result, the
cache stays consistent, and the next ordinary calls are right.
"""

import collections
import gc
import itertools
import sys
from typing import Any

import core_support as cs
import pytest
from actions import ACTIONS, HARMLESS
from catalogue import PLACES
from outcome_support import Interrupt
from places import PASSED_ON, UNRAISABLE, ActionError, Fields, World, make_world


def consistent(w: World) -> None:
    cache = w.f._parts()[0]
    variants = cache.variants()
    assert len(variants) <= cache.maxsize
    for a, b in itertools.combinations(variants, 2):
        assert a.structure != b.structure
    for variant in variants:
        hash(variant.structure)
        assert callable(variant._call)


def right(w: World, result: Any) -> bool:
    """Unless the place has a function of its own, the result is the tree."""
    return w.run is not None or cs.same(result, w.tree())


def trap_acts(name: str, action: str, at: int, phase: str, container: Any) -> bool:
    """Makes a call with a trap and checks its outcome.  Returns whether the trap acted."""
    w, result = make_world(name, ACTIONS[action], at, phase, container), None
    harmless = action in HARMLESS or (action == "raises" and name in PASSED_ON)
    try:
        try:
            result = w.call()
        finally:
            w.armed = False
    except Interrupt:
        assert action == "interrupts"
    except SystemError:
        raise
    except Exception as e:
        assert w.acted and not harmless, (name, action, phase, e)
        if action == "raises" and name != "options.failed":
            assert isinstance(e, ActionError), e
    else:
        assert action != "interrupts" or not w.acted or name in UNRAISABLE, "swallowed"
        if harmless or not w.acted:
            assert right(w, result), (name, action, phase, result)
    assert w.incomplete == []
    assert all(structure._node(0)[4] == count for structure, count in w.structures)
    result = None
    gc.collect()
    consistent(w)
    for n in (1, "text", True):
        for _ in range(2):
            assert cs.same(w.ordinary_call(n), [w.x, n, {"k": w.k}])
    # The container is used as the action has left it, then as it was.
    for _ in range(2):
        try:
            w.renew()
            w.call()
        except Exception as e:
            assert not isinstance(e, SystemError)
        w.fill()
    consistent(w)
    return w.acted > 0


@pytest.fixture(autouse=True)
def _unraisable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda details: None)


# The containers of the trap, where the action changes them.
PHASES: dict[str, tuple[Any, ...]] = {
    "first": (list, dict, Fields),
    "again": (list, dict, Fields, lambda: collections.defaultdict(int)),
    "other": (list, dict, collections.OrderedDict),
}
CHANGES = ("empties", "shrinks", "grows", "replaces", "puts_others_under_other_keys")
IN_EACH_CONTAINER = (*CHANGES, "looks_at_all_objects")


@pytest.mark.parametrize("name", PLACES)
def test_place_and_actions(name: str) -> None:
    met = dict.fromkeys(ACTIONS, 0)
    for action, phase in itertools.product(ACTIONS, PHASES):
        for container in PHASES[phase][: 9 if action in IN_EACH_CONTAINER else 1]:
            for at in (1, 2, 3):
                if not trap_acts(name, action, at, phase, container):
                    break
                met[action] += 1
    assert all(met.values()), [action for action in met if not met[action]]
