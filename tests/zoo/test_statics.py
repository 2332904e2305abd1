"""Each static of the zoo, in each place of an argument: values that differ are different programs.

A jitted function returns `seen` of its argument, which cannot be wrong if it is the same without
jit. So each value has a program of its own, equal copies share it, and a change is noticed.
"""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from filterjit import _core, filter_jit
from filterjit._compat import _executable_compat
from filterjit._functions import _function_keys
from filterjit._observe._compare import Comparison
from filterjit._trees import _registry
from zoo import classes, containers, libraries, objects, values
from zoo.zoo_support import LEAVES, PLACES, seen

STATICS = {
    f"{module.__name__.removeprefix('zoo.')}: {name}": static
    for module in (values, containers, classes, objects)
    for name, static in module.STATICS.items()
}
SLOW = {f"libraries: {name}": static for name, static in libraries.STATICS.items()}
NAMES = [*STATICS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
STATICS |= SLOW
# Leaves below a container are handled alike: `test_one_answer` has them all.
BELOW = ("containers", "Partial", "dataclass", "key")
IN_PLACES = [
    pytest.param(
        name,
        place,
        marks=[pytest.mark.slow] * (name in SLOW) + [pytest.mark.thorough] * (place in BELOW),
    )
    for name, static in STATICS.items()
    for place in static.places
]


@pytest.mark.slow
def test_all_libraries() -> None:
    """Tells which libraries' statics are left out."""
    if libraries.MISSING:
        pytest.skip(f"not installed: {', '.join(libraries.MISSING)}")


def jitted(place: str) -> Any:
    functions: Any = "structure" if place == "closure" else "identity"
    return filterjit.filter_jit(lambda x: seen(x), functions=functions)


MANY = 130  # calls, after which there is a record of what the arguments were


@pytest.mark.recompiles
@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
@pytest.mark.parametrize(("name", "place"), IN_PLACES)
def test_calls(name: str, place: str) -> None:
    static = STATICS[name]
    put, f = PLACES[place], jitted(place)
    values = static.make()
    try:
        arguments = [put(value) for value in values]
    except (TypeError, ValueError):  # it has no hash, and cannot be a key
        assert "key" in place
        return
    # What JAX builds for a function: it sorts the keys of dicts.
    answers = [seen(jtu.tree_map(lambda leaf: leaf, argument)) for argument in arguments]
    assert len(set(answers)) == len(values), "the function does not show its argument"
    try:
        assert [f(argument) for argument in arguments] == answers
    except (TypeError, ValueError):
        assert place in LEAVES
        with pytest.raises((TypeError, ValueError)):
            [eqx.filter_jit(lambda x: seen(x))(argument) for argument in arguments]
        return
    # The same objects again, and equal ones.
    assert [f(argument) for argument in reversed(arguments)] == answers[::-1]
    assert len(f.variants) == len(values)
    apart = static.apart_in_functions(values)
    assert [f(put(value)) for value in static.make()] == answers
    if place == "closure":
        assert len(f.variants) - len(values) == apart
    else:
        assert static.shared == (len(f.variants) == len(values))
    if static.change is None or "key" in place:  # a dict does not find a key that has changed
        return
    first, count = arguments[0], len(f.variants)
    for _ in range(MANY if place == "static field" else 1):
        assert f(first) == answers[0]
    static.change(values[0])
    changed = seen(jtu.tree_map(lambda leaf: leaf, first))
    assert changed not in answers
    if static.noticed if place != "closure" else not static.opaque:
        assert not f.explain(first).hit
        assert f(first) == f(first) == changed
        assert len(f.variants) == count + 1
    else:
        assert f(first) in (answers[0], changed)
    if static.noticed and place == "static field":  # also right after the first call
        f, value = filterjit.filter_jit(lambda x: seen(x)), static.make()[0]
        argument = put(value)
        assert f(argument) == answers[0]
        static.change(value)
        assert f(argument) == changed
    # The object that the first program was traced with is not what it was.
    assert f(put(static.make()[0])) == answers[0]


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
@pytest.mark.parametrize("registry", [_registry.registry, _function_keys.registry])
@pytest.mark.parametrize("name", NAMES)
def test_one_answer(name: str, registry: _core.Registry) -> None:
    """Prediction, look-up and `explain` say the same of any two values: whether they are equal, as
    they were when each was looked up."""
    static, testing = STATICS[name], pytest.importorskip("filterjit._testing")
    for place in static.places:
        if place == "closure" and registry is _registry.registry:
            continue  # functions are compared by identity there
        put, values = PLACES[place], static.make()
        copies = [*values, *static.make()]
        earlier: list[tuple[int, Any]] = []
        for i, value in enumerate([*copies, values[0]]):
            if i == len(copies):
                if static.change is None or "key" in place:
                    break
                static.change(value)
            try:
                argument = put(value)
                now = _core.flatten(registry, argument)[1]
                hash(now)
            except (TypeError, ValueError):
                continue  # it is refused
            for k, was in earlier:
                if place not in ("argument", "static field") and i - k > 1 and i - k != len(values):
                    continue  # equal ones, and neighbours
                # The second match knows the contents that the first may have taken.
                predicted = [testing.match(was, argument) is not None for _ in range(2)]
                answers = {*predicted, was == now, not Comparison(registry, was, now).causes}
                assert len(answers) == 1, (place, k, i)
                if static.shared and static.noticed and registry is _registry.registry:
                    assert answers == {k + len(values) == i < len(copies)}, (place, k, i)
            earlier.append((i, now))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not _executable_compat.can_save(), reason="needs JAX 0.7.2")
@pytest.mark.parametrize("name", NAMES)
def test_files(name: str, tmp_path: Path) -> None:
    """Statics that are different programs for a hit are different signatures of a file, or none."""
    static = STATICS[name]
    put, values = PLACES[static.places[0]], static.make()
    jitted, calls = filter_jit(lambda value: jnp.ones(2)), [put(value) for value in values]
    try:
        jitted(calls[0])
        jitted.save(tmp_path / "f")
        loaded = filterjit.load(tmp_path / "f")
    except (ValueError, TypeError, RecursionError):
        return  # no file holds it
    for call in calls:
        before = jitted.cache_info().misses
        jitted(call)
        if jitted.cache_info().misses == before:
            assert loaded(call).tolist() == [1, 1]
        else:
            with pytest.raises(filterjit.MismatchError):
                loaded(call)
