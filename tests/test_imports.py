"""The modules of the package: which a start does without, and how they are called."""

import json
import pathlib
from collections import Counter
from typing import Any

import pytest

import filterjit
from support.processes import run_code

IMPORTED = """
import json, sys
import jax.numpy as jnp
{}
print(json.dumps(sorted(name.removeprefix("filterjit.") for name in sys.modules if name.startswith("filterjit."))))
"""

CALL = """
from filterjit import filter_jit
f = filter_jit(lambda x, n: n * x)
f(jnp.ones(2), 3), f(jnp.ones(2), 3)
"""

# What is imported of modules and packages that a first call does not need.
LEFT_OUT = {
    "_aot": set(),
    "_commands": set(),
    "_functions": set(),
    "_install": set(),
    "_nnx": set(),
    "_shardings": set(),
    "_call._plain_hooks": set(),
    "_processes": set(),
    "_jit._freeze": set(),
    "_jit._partial": set(),
    "_jit._plain": set(),
    "_trees._partition": set(),
}
OBSERVE = (
    "_compiled_in",
    "_forbid",
    "_listener",
    "_recorder",
    "_records",
    "_retraces",
    "_wording",
)


def imported(code: str) -> set[str]:
    names: list[str] = json.loads(run_code(IMPORTED.format(code)).stdout.splitlines()[-1])
    return set(names)


def left_out(name: str, found: set[str]) -> set[Any]:
    """Returns the ends of the names of `name` and of the modules in it, of those that are found."""
    return {x[len(name) :] for x in found if x == name or x.startswith(name + ".")}


@pytest.fixture(scope="module")
def of_a_call() -> set[str]:
    return imported(CALL)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_a_first_call_does_not_import(name: str, of_a_call: set[str]) -> None:
    assert left_out(name, of_a_call) == LEFT_OUT[name]


def test_what_is_observed_in_a_first_call(of_a_call: set[str]) -> None:
    assert left_out("_observe", of_a_call) == {"", *("." + name for name in OBSERVE)}


@pytest.mark.parametrize(
    ("code", "module"),
    [
        ("f.lower(jnp.ones(2), 3)", "_aot._stages"),
        ("f.warm_up_all([])", "_aot._warm_up"),
        ("f.explain(jnp.ones(2), 4)", "_observe._explain"),
        ("f.report()", "_observe._report"),
        ("f.freeze(jnp.ones(2))", "_jit._freeze"),
        ("f.partial(jnp.ones(2))", "_jit._partial"),
        ("f(jnp.ones(2), 4)", "_observe._compare"),
    ],
)
def test_what_is_imported_when_it_is_used(code: str, module: str) -> None:
    assert module in imported(CALL + code)


def test_no_name_of_a_module_occurs_twice() -> None:
    """A module's name says what is in it without the name of its folder."""
    package = pathlib.Path(filterjit.__file__).parent
    names = Counter(
        file.parent.name if file.stem == "__init__" else file.stem for file in package.rglob("*.py")
    )
    assert [name for name, n in names.items() if n > 1] == []
