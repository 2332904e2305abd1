"""Each program of the zoo, with its configuration in each place: ours returns what `jax.jit`
returns with everything closed over, accepts what Equinox accepts, and does not trace a
configuration again that was made again where Equinox does not."""

import equinox as eqx
import pytest
import zoo_programs  # noqa: F401
from zoo_support import (
    MISSING,
    PLACES,
    PROGRAMS,
    Call,
    X,
    check,
    configurations,
    everywhere,
    exactly,
    may_share,
    oracle,
    run,
)

import filterjit


@pytest.mark.parametrize(("name", "place"), everywhere())
def test_program(name: str, place: str) -> None:
    assert check(PROGRAMS[name], place) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_shows_its_configuration(name: str) -> None:
    """Each configuration gives another result: otherwise the program would show nothing."""
    results = oracle(name)
    different = {step: result for step, result in results.items() if "again" not in step}
    assert all(
        one == another or different[one] != different[another]
        for one in different
        for another in different
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled(name: str) -> None:
    """A function that was compiled for a configuration refuses others, or returns what they need."""
    made = PROGRAMS[name]
    places = [place for place in ("argument", "static field") if place in made.places]
    for place in places or made.places[:1]:
        put, take = PLACES[place]
        f = filterjit.filter_jit(lambda arg, x, take=take: made.body(take(arg), x))
        first = made.make()
        argument = put(first)
        try:
            compiled = f.lower(argument, X).compile()
        except filterjit.StaticArgumentError:
            assert run(made, place, eqx.filter_jit, 1)[0].failed
            continue
        for step, configuration in configurations(made):
            cfg = configuration(first)
            try:
                result = exactly(compiled(argument if cfg is first else put(cfg), X))
            except filterjit.MismatchError:
                assert "first" not in step
                continue
            call = Call(step, result, 0)
            assert result == oracle(name)[step] or may_share(made, call), step


def test_all_libraries() -> None:
    """Tells which libraries' programs were left out."""
    if MISSING:
        pytest.skip(f"not installed: {', '.join(MISSING)}")
