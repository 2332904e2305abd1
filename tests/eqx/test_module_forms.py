"""Equinox Modules, and what happens to their fields: the results are Equinox's, and C reads the fields.
`tests/parity/test_inputs.py` passes Modules of every form."""

from typing import Any

import equinox as eqx
import pytest

from support.comparison import Jit, Traces, check_calls, on_both
from support.features import kind
from support.modules import Child, Module, OwnEquality
from support.trees import MODULES, ONE, TWO, unset


@pytest.mark.parametrize("name", MODULES)
def test_kind(name: str) -> None:
    """C reads all but ``eqx.nn.State``, which is no Module."""
    x = MODULES[name]()
    assert isinstance(x, eqx.Module) is (name != "state")
    assert kind(x) == ("custom" if name == "state" else "module")


@on_both
def test_check_init_is_run_inside_and_nowhere_else(jit: Jit, traces: Traces) -> Any:
    class Counting(eqx.Module):
        a: Any

        def __check_init__(self) -> None:
            traces.tick()

    f = jit(lambda x: (x, Counting(x.a + 1)))
    f(f(Counting(ONE))[1])
    assert traces.count == 2


@on_both
def test_missing_fields_are_missing_in_the_result(jit: Jit) -> Any:
    f = jit(lambda x: x)
    found = []
    for fields in ({}, {"a": ONE}, {"b": TWO}, {"name": "n"}, {"a": ONE, "flags": (2,)}):
        out = f(unset(Child, **fields))
        found.append([hasattr(out, name) for name in ("a", "name", "b", "flags")])
    return found


def test_equality_of_modules() -> None:
    """It is called for those in static fields only."""
    values = [OwnEquality(ONE, name) for name in "xyx"]
    assert check_calls(lambda x: (x.name, x.a), lambda: values) == 2
    make = lambda: [Module(ONE, OwnEquality(1, name)) for name in "xyx"]  # type: ignore[arg-type]
    assert check_calls(lambda x: x.a, make) == 1
