"""JAX's and Equinox's transformations of jitted functions, and inside jitted functions."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from filterjit import filter_jit
from support.callables import CALLABLES, Affine, square
from support.comparison import Jit, Traces, on_both
from support.transforms import TRANSFORMS
from support.trees import ONE, TWO

VECTOR = jnp.arange(1.0, 4.0)


@pytest.mark.parametrize("name", TRANSFORMS)
@on_both
def test_outside_and_inside(jit: Jit, traces: Traces, name: str) -> Any:
    """Each transformation of a jitted function and in a jitted function: results and traces."""
    transform = TRANSFORMS[name]

    def counted(x: Any) -> Any:
        traces.tick()
        return square(x)

    outside = transform(jit(counted))
    results = [outside(VECTOR), outside(VECTOR + 1)]
    counts = [traces.count]
    inside = jit(transform(lambda x: counted(x)))
    results += [inside(VECTOR), inside(VECTOR + 1)]
    counts.append(traces.count)
    both = jit(transform(lambda x: jit(counted)(x)))
    results += [both(VECTOR), both(VECTOR * 2)]
    counts.append(traces.count)
    model = jit(Affine(TWO))
    results.append(transform(lambda x: model(x))(VECTOR))
    return results, counts


def test_tracers_in_every_place(jit: Jit, traces: Traces) -> None:
    """Tracers in containers, fields, keywords, in the function itself, and in closures."""

    @jit
    def f(x: Any, *rest: Any, k: Any, **more: Any) -> Any:
        traces.tick()
        return x["a"].w * rest[0][0] + k + more["m"].b

    def g(x: Any) -> Any:
        closure = jit(lambda y: x * y)
        made = f({"a": Affine(x)}, [x], k=x, m=Affine(1, x))
        return made + jit(Affine(x))(x) + closure(ONE) + closure(TWO)

    value = lambda x: x * x + 2 * x + x * x + 1 + 3 * x
    assert g(TWO) == jax.jit(g)(TWO) == jit(g)(TWO) == value(2)
    assert jax.grad(g)(TWO) == 4 + 1 + 1 + 4 + 3
    assert jax.vmap(g)(VECTOR).tolist() == [value(x) for x in (1.0, 2.0, 3.0)]
    assert traces.count == 2  # under vmap, the constants of g are not weakly typed


GIVEN = [
    *map(np.array, (["a"], [None], [b"a"], ["2020-01-01"])),
    *(np.ma.masked_array([1.0, 2.0], [0, 1]), np.array([(1, 2.0)], "i4,f4"), np.array([1.0])),
    *(np.array(["2020"], "M8"), np.longdouble(1), np.str_("a"), 2**40, -(2**80), jnp.ones(2)),
]


@pytest.mark.parametrize("given", GIVEN, ids=repr)
@pytest.mark.parametrize(
    "jit",
    [
        filter_jit,
        filter_jit(donate="warn"),
        filterjit.jit,
        lambda f: filterjit.jit(f, donate_argnums=0),
    ],
)
def test_disable_jit_hands_on_what_jax_cannot_trace(jit: Any, given: Any) -> None:
    seen: list[Any] = []
    with jax.disable_jit():
        f = jit(lambda x: (seen.append(x), x, "no array")[1:])
        assert f(given)[0] is given and f(given)[1] == "no array"
    assert len(seen) == 2 and all(x is given for x in seen)


ERRORS = [
    KeyError("mine"),
    *(kind() for kind in (KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration)),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_of_the_function(jit: Jit, traces: Traces, error: BaseException) -> None:
    """An exception while tracing is raised unchanged, with the user's frames, in each call."""

    @jit
    def f(x: Any, fail: Any) -> Any:
        traces.tick()
        if fail:
            raise error
        return x

    assert f(ONE, False) == 1
    for n in range(3):
        with pytest.raises(type(error)) as info:
            f(ONE, True)
        assert info.value is error and info.traceback[-1].name == "f"
        assert traces.count == n + 2
    assert f(ONE, False) == 1
    assert traces.count == 4


@on_both
def test_a_linen_module_is_static(jit: Jit, traces: Traces) -> Any:
    """It is no pytree and can be hashed. Its methods are functions like others."""
    nn = pytest.importorskip("flax.linen")
    params = nn.Dense(4).init(jax.random.key(0), VECTOR)
    apply = jit(traces.counting(lambda model, params, x: model.apply(params, x)))
    found = [apply(nn.Dense(4), params, VECTOR) for _ in range(3)]
    assert traces.count == 1
    return found, jit(nn.Dense(4).apply)(params, VECTOR)


# ---- names ----

NAMED = (
    *("function", "lambda", "functools.partial", "Module", "method of a Module"),
    *("filter_grad function", "eqx.filter_jit"),
)


@pytest.mark.parametrize("name", NAMED)
@on_both
def test_name_of_the_program(jit: Jit, name: str) -> Any:
    """Profiles, dumps and logs show the program's name."""
    f = jit(CALLABLES[name])
    lowered = f.lower(TWO)
    (found,) = re.findall(r"module @(\w+)", lowered.as_text())
    (compiled,) = re.findall(r"HloModule (\w+)", lowered.compile().compiled.as_text())
    assert found.startswith("jit_")
    return found, compiled
