"""The tests of the programs that a module declares: what test_values.py and the like import.

There is a file for each module of programs, since files are what pytest's workers share out.
"""

from typing import Any

import equinox as eqx
import jax
import pytest
from zoo_support import (
    PLACES,
    PROGRAMS,
    Call,
    X,
    check,
    configurations,
    exactly,
    may_share,
    oracle,
    run,
)

import filterjit
from filterjit import _core
from filterjit._functions import _function_keys
from filterjit._observe._compare import StructureComparison
from filterjit._trees import _registry
from filterjit._trees._nodes import tree_of

__all__ = [
    "test_compiled",
    "test_one_answer",
    "test_program",
    "test_the_program_shows_its_configuration",
]


def test_program(name: str, place: str) -> None:
    """Ours returns what `jax.jit` returns with everything closed over, accepts what Equinox accepts,
    and does not trace a configuration that was made again where Equinox does not."""
    assert check(PROGRAMS[name], place) == []


def test_the_program_shows_its_configuration(name: str) -> None:
    """Each other configuration gives another result: otherwise its calls would show nothing."""
    results = oracle(name)
    assert [s for s in results if "again" not in s and results[s] == results["first"]] == ["first"]


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
def test_compiled(name: str) -> None:
    """A function that was compiled for a configuration refuses others, or returns what they need."""
    made = PROGRAMS[name]
    for place in ("argument", "static field"):
        first = made.make()
        # `lower` takes a ShapeDtypeStruct in an argument for an array.
        if place not in made.places or isinstance(first, jax.ShapeDtypeStruct):
            continue
        put, take = PLACES[place]
        f = filterjit.filter_jit(lambda arg, x, take=take: made.body(take(arg), x))
        argument = put(first)
        try:
            compiled = f.lower(argument, X).compile()
        except (TypeError, ValueError):
            assert run(made, place, eqx.filter_jit, 1)[0].failed
            continue
        for step, configuration in configurations(made):
            cfg = configuration(first)
            try:
                result = exactly(compiled(argument if cfg is first else put(cfg), X))
            except filterjit.MismatchError:
                assert step not in ("first", "first again")
                continue
            assert result == oracle(name)[step] or may_share(made, Call(step, result, 0)), step


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
@pytest.mark.parametrize("registry", [_registry.registry, _function_keys.registry])
def test_one_answer(name: str, registry: _core.Registry) -> None:
    """Prediction, look-up and `explain` say the same of any two configurations: whether they are
    equal, as they were when each was looked up."""
    testing = pytest.importorskip("filterjit._testing")
    made = PROGRAMS[name]
    for place in made.places:
        put, _ = PLACES[place]
        first, kept = made.make(), None
        earlier: list[tuple[str, Any]] = []
        for step, configuration in configurations(made):
            cfg = configuration(first)
            try:
                if cfg is first:
                    argument = kept = put(cfg) if kept is None else kept
                else:
                    argument = put(cfg)
                now = _core.flatten(registry, argument)[1]
                hash(now)
            except (TypeError, ValueError):
                continue  # it is refused
            for was_step, was in earlier:
                # The second match knows the contents that the first may have taken.
                predicted = [testing.match(was, argument) is not None for _ in range(2)]
                comparison = StructureComparison(registry)
                comparison.compare(tree_of(was), tree_of(now))
                answers = [*predicted, was == now, not comparison.causes]
                assert len(set(answers)) == 1, (place, was_step, step, answers)
            earlier.append((step, now))
