"""Uncommon uses of `filterjit.jit`, beside ``jax.jit``: what its options are given as, what the
jitted function is asked, and what is changed afterwards."""

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
import filterjit.nnx
from support.comparison import Traces
from support.plain import compare, described, on_both_jits

x = jnp.arange(4.0)


def is_traced(a: Any, b: Any) -> Any:
    return jnp.array([isinstance(y, jax.core.Tracer) for y in (a, b)])


# ---- options ----


@pytest.mark.parametrize(
    ("option", "values"),
    [("static_argnums", [1]), ("static_argnums", [0, 1]), ("static_argnames", ["b"])],
    ids=str,
)
@on_both_jits
def test_static_arguments_in_an_iterator(
    jit: Any, traces: Traces, option: str, values: list[Any]
) -> Iterator[Any]:
    for made in (iter(values), (value for value in values)):
        yield described(jit(is_traced, **{option: made}), 1, 2)
    yield described(jit(**{option: iter(values)})(is_traced), 1, b=2)


@pytest.mark.parametrize("options", [{"donate_argnums": 1}, {"donate_argnames": "b"}], ids=str)
@on_both_jits
def test_donated_arguments_in_an_iterator(
    jit: Any, traces: Traces, options: dict[str, Any]
) -> Iterator[Any]:
    f = jit(lambda a, b: (a, b * 2), **{name: iter([y]) for name, y in options.items()})
    for _ in range(20):
        y = jnp.ones(3)
        yield described(f, x, y)
        yield y.is_deleted()


def test_options_are_as_they_were() -> None:
    """Containers that are changed after they were given."""
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    def program(jit: Any, traces: Traces) -> Iterator[Any]:
        good: dict[str, Any] = {"xla_embed_ir_in_executable": True}
        bad: dict[str, Any] = {"xla_no_such_flag": True}
        f, g = (jit(lambda y: y + 1, compiler_options=options) for options in (good, bad))
        good.update(bad)
        bad.clear()
        yield described(f, x)
        yield described(g, x)[0]

        shardings = {"a": device}
        f = jit(lambda tree: tree, in_shardings=(shardings,), out_shardings=shardings)
        shardings["b"] = device
        yield described(f, {"a": x})

        positions, names = [0], ["a"]
        f, g = jit(is_traced, static_argnums=positions), jit(is_traced, static_argnames=names)
        positions.append(1)
        names.append("b")
        yield described(f, 1, 2)
        yield described(g, 1, 2)

    compare(program)


# ---- what the function is asked ----


class Scale:
    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, y: Any, n: int = 2) -> Any:
        return y * self.by * n

    @classmethod
    def of_class(cls, y: Any) -> Any:
        """Adds."""
        return y + 1


def plain(a: Any, /, b: int = 2, *c: Any, d: int = 3, **e: Any) -> Any:
    return a


@on_both_jits
def test_names_and_signatures(jit: Any, traces: Traces) -> Iterator[Any]:
    partial = functools.partial(plain, 1)
    for fun in (plain, partial, functools.partial(partial, d=1), Scale(2.0), Scale.of_class,
                functools.wraps(plain)(lambda *args, **kwargs: 1), jit(plain), jnp.sin):  # fmt: skip
        f = jit(fun)
        for name in ("__name__", "__qualname__", "__module__"):
            yield getattr(f, name)
        yield inspect.signature(f), inspect.getfullargspec(f)
        yield f.__signature__ == inspect.signature(f)


def test_a_function_without_a_signature() -> None:
    f = filterjit.jit(max)
    assert not hasattr(f, "__signature__")
    with pytest.raises(ValueError, match="no signature"):
        inspect.signature(f)
    assert not hasattr(filterjit.types.FilterJit, "__signature__")


# ---- what is changed afterwards ----


@on_both_jits
def test_functions_that_change(jit: Any, traces: Traces) -> Iterator[Any]:
    def f(a: Any, b: Any = 1, *, n: Any = 2) -> Any:
        traces.tick()
        return a + b * n

    g = jit(f, static_argnames="n")
    yield described(g, x)
    f.__defaults__ = (5,)
    f.__kwdefaults__ = {"n": 3}
    yield described(g, x)
    yield described(g, jnp.ones(2))
    f.__defaults__ = None
    yield described(g, jnp.ones(3))

    def h(a: Any) -> Any:
        return a + 1

    g = jit(h)
    yield described(g, x)
    h.__code__ = (lambda a: a + 100).__code__
    yield described(g, x)
    yield described(g, jnp.ones(2))


# ---- decisions: what differs ----


def test_keys_and_aux_data_are_exact() -> None:
    f = filterjit.jit(lambda tree: tree)
    for key in (1.0, 1, True, 0.0, -0.0):
        (found,) = f({key: x})
        assert repr(found) == repr(key)
    jax.clear_caches()
    g = jax.jit(lambda tree: tree)
    assert [repr(*g({key: x})) for key in (1.0, 1, True)] == ["1.0"] * 3


class WithAux:
    def __init__(self, a: Any, aux: Any) -> None:
        self.a, self.aux = a, aux


jax.tree_util.register_pytree_node(
    WithAux, lambda w: ((w.a,), w.aux), lambda aux, children: WithAux(children[0], aux)
)


def test_arrays_as_aux_data_are_compared_by_contents() -> None:
    f = filterjit.jit(lambda w: w.a * w.aux)
    for aux in (np.ones(4), np.ones(4), np.full(4, 2.0)):
        assert f(WithAux(x, aux)).tolist() == (x * aux).tolist()
    assert f.cache_info()[:2] == (1, 2)
    g = jax.jit(lambda w: w.a * w.aux)
    g(WithAux(x, np.ones(4)))
    with pytest.raises(ValueError, match="metadata"):
        g(WithAux(x, np.ones(4)))


def test_a_static_whose_eq_raises_equals_itself_only() -> None:
    class Bad:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

    f = filterjit.jit(lambda y, n: y + 1, static_argnums=1)
    for _ in range(2):
        assert f(1, Bad()) == 2
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        g = jax.jit(lambda y, n: y + 1, static_argnums=1)
        g(1, Bad()), g(1, Bad())


def test_shardings_of_parameters_that_are_left_out() -> None:
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    f = filterjit.jit(lambda a, b=1.0: a * b, in_shardings=(device, None))
    assert f(x).tolist() == x.tolist() and f(x, b=2.0).tolist() == (2 * x).tolist()
    with pytest.raises(ValueError, match="in_shardings"):
        jax.jit(lambda a, b=1.0: a * b, in_shardings=(device, None))(x)
