"""Hits, ``functions="structure"``, digests and files say the same of values: one table tells them
what a value consists of."""

import itertools
import json
from typing import Any

import pytest

from filterjit import _core
from filterjit._functions import _function_keys
from filterjit._trees import _codes
from filterjit._trees._registry import registry
from filterjit._trees._values import ROWS, facts_of
from support.modules import Holder
from support.processes import environment, run
from zoo import random_values
from zoo.random_values import digest, held_values


def structure(of: _core.Registry, x: Any) -> Any:
    return _core.flatten(of, Holder(None, x))[1]


def test_the_core_compares_what_the_rows_say() -> None:
    """It has rules of its own for built-in types."""
    of_rows = [x for _, _, x in held_values() if facts_of(type(x)).base is type(x)]
    for x in of_rows:
        assert not (_core.is_fixed(registry, x) and facts_of(type(x)).is_mutable)
    shared = 0
    for x, y in itertools.combinations(of_rows, 2):
        if type(x) is type(y) and not ROWS[type(x)].is_around:
            parts = map(ROWS[type(x)].contents, (x, y))
            shared += (is_shared := _core.same_static(registry, x, y))
            assert is_shared == _core.same_static(registry, *parts)
    assert shared > 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_say_the_same() -> None:
    """Of 500 random values, in this process and in another one."""
    values = held_values()
    env = environment(PYTHONHASHSEED="1")
    given = json.loads(
        run("-c", "import zoo.random_values as r; r.write()", timeout=120, env=env).stdout
    )
    found = {"shared": 0, "apart": 0, "described": 0, "encoded": 0}
    for (_, _, x), (described, encoded) in zip(values, given, strict=True):
        assert digest(x) == described
        found["described"] += described is not None
        if encoded is not None:
            found["encoded"] += 1
            codes, names = encoded
            assert _core.same_static(registry, _codes.Coder(names=names).decode(codes), x)
    for holder in random_values.HOLDERS:
        held = [
            (
                structure(registry, x),
                structure(_function_keys.registry, x),
                described,
                with_others,
                x,
            )
            for (where, with_others, x), (described, _) in zip(values, given, strict=True)
            if where == holder and described is not None
        ]
        for (a, f, da, oa, x), (b, g, db, ob, y) in itertools.combinations(held, 2):
            found["shared" if a == b or f == g else "apart"] += 1
            if a == b or f == g:
                assert da == db, (x, y)
            elif da == db and not (oa or ob):
                # A callback could change a container that a function holds, so it counts itself.
                assert holder in ("closure", "partial") and _function_keys.are_equal(x, y), (x, y)
    assert min(found.values()) > 100, found
