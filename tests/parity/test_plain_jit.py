"""`filterjit.jit` and ``jax.jit``: the same bodies on both."""

import copy
import functools
import inspect
import pickle
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import filterjit
from filterjit._compat import _jax_compat
from support.comparison import Traces, comparable
from support.nodes import Point
from support.plain import compare, described, on_both_jits
from support.statics import Integer, Level
from support.trees import FlaxStruct

x = jnp.arange(3.0)
DEVICE = jax.sharding.SingleDeviceSharding(jax.devices()[0])
# Older versions of JAX count a negative number from the end of what a call passes.
NEGATIVE = not _jax_compat.resolves_negative_argnums()


# ---- leaves ----


LEAVES = [
    1, -1, 0, 2**30, True, False, 1.5, -0.0, float("inf"), 2j, np.float32(2), np.int8(3), np.bool_(True),
    np.float64(1.5), np.arange(3), np.ones(2, np.float16), x, jnp.int32(4), None, (), [], {},
]  # fmt: skip


@on_both_jits
def test_leaves_are_traced_as_in_jax(jit: Any, traces: Traces) -> Iterator[Any]:
    f = jit(traces.counting(lambda tree: (tree, jax.tree.map(lambda y: y * 2, tree))))
    for leaf in LEAVES:
        for tree in (leaf, {"a": [leaf], "b": (Point(leaf, 1.0), x)}):
            yield described(f, tree)
    yield described(f, FlaxStruct({"w": 2}, meta="net"))
    yield described(f, FlaxStruct({"w": 3}, meta="net"))
    yield described(f, FlaxStruct({"w": 3}, meta="other"))


@on_both_jits(handed_over=True)
def test_subclasses_of_numbers_are_made_by_jax(jit: Any, traces: Traces) -> Iterator[Any]:
    f = jit(lambda tree: tree["n"] * 2)
    for n in (Integer(3), Level.HIGH):
        yield described(f, {"n": n})
    if isinstance(f, filterjit.types.FilterJit):
        assert f._hooks.handed_over.total() == 2 and "2" in str(f.report())
        assert "falls back to `jax.jit`: a leaf of" in str(f.explain({"n": Level.HIGH}))


@pytest.mark.parametrize("name", ["explain", "warm_up", "lower"])
def test_looking_up_too_few_arguments(name: str) -> None:
    f = filterjit.jit(lambda a, b: a + b)
    with pytest.raises(TypeError, match=r"missing .* argument: 'b'"):
        getattr(f, name)(x)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        f(x)  # raised by jax.jit
    assert f._hooks.handed_over == {"the arguments do not fit the parameters": 1}


class HasArray:
    def __jax_array__(self) -> Any:
        return x


@pytest.mark.parametrize(
    "bad",
    ["text", 2**70, np.array(["a"]), np.array([object()]), len, HasArray(), {1, 2}],
    ids=lambda bad: type(bad).__name__,
)
@on_both_jits(handed_over=None)
def test_other_leaves_are_errors_of_jax(jit: Any, traces: Traces, bad: Any) -> Iterator[Any]:
    f = jit(lambda tree, scale: scale)
    yield described(f, {"layers": [1.0, bad]}, 2)
    yield described(f, 1.0, scale=bad)
    yield described(f, 1.0, 2)


@on_both_jits
def test_results_are_arrays(jit: Any, traces: Traces) -> Iterator[Any]:
    yield described(jit(lambda: {"a": (1, True, 2.5, 1j, None), "b": np.arange(2)}))
    yield described(jit(lambda y: (y, [])), 3)
    yield described(jit(lambda: None))


@on_both_jits(handed_over=True)
def test_bad_results_are_errors_of_jax(jit: Any, traces: Traces) -> Iterator[Any]:
    def named(y: Any) -> Any:
        return {"a": (y, "text")}

    yield described(jit(named), x)


# ---- static arguments ----


@on_both_jits
def test_static_arguments(jit: Any, traces: Traces) -> Iterator[Any]:
    @functools.partial(jit, static_argnums=1, static_argnames=None)
    def by_number(y: Any, n: Any, *, m: Any = 1) -> Any:
        traces.tick()
        return y * n * m if isinstance(n, (int, float)) else (y, len(n))

    for n in (2, 2, 3, "text", "text", (1, 2), (1, 2), (1, (2, "b")), frozenset({1})):
        yield described(by_number, x, n)
        yield described(by_number, x, n=n)
        yield described(by_number, x, n, m=3.0)


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": 0}, {"static_argnums": (0, 2)}, {"static_argnums": -1},
        {"static_argnums": [1]}, {"static_argnums": [0, 1]}, {"static_argnames": "b"},
        {"static_argnames": ["a", "k"]}, {"static_argnums": 1, "static_argnames": "k"},
        {"static_argnums": 0, "static_argnames": "c"}, {"static_argnums": 7},
        {"static_argnames": "unknown"}, {"static_argnames": "a", "donate_argnames": "a"},
    ],
    ids=str,
)  # fmt: skip
def test_ways_to_name_static_arguments(options: dict[str, Any]) -> None:
    def program(jit: Any, traces: Traces) -> Iterator[Any]:
        def f(a: Any, b: Any, c: Any = 3, *, k: Any = 4) -> Any:
            traces.tick()
            return are_traced(a, b, c, k)

        yield described(lambda: jit(f, **options) and None)
        try:
            made = [jit(f, **options), jit(f, **_as_iterators(options))]
        except ValueError:
            return
        for jitted in made:
            yield described(jitted, 1, 2)
            yield described(jitted, 1, b=2, c=5)
            yield described(jitted, a=1, b=2, k=5)
            yield described(jitted, 1, 2, 3, k=6)
            yield described(jitted, k=6, c=1, b=2, a=1)

    compare(program, NEGATIVE if -1 in options.values() else False)


def are_traced(*given: Any) -> Any:
    return jnp.array([isinstance(y, jax.core.Tracer) for y in given])


def _positional_only(a: Any, /, b: Any = 1) -> Any:
    return a


def _variable(a: Any, *args: Any, k: Any = 1, **kwargs: Any) -> Any:
    return a


def _variable_only(a: Any, *args: Any, **kwargs: Any) -> Any:
    return a


def _generator(a: Any, b: Any) -> Any:
    yield a


async def _coroutine(a: Any, b: Any) -> Any:
    return a


FORMS = (_positional_only, _variable, _variable_only, _generator, _coroutine)
FORMS += (functools.wraps(_variable)(lambda *args: args[0]),)


@pytest.mark.parametrize("names", ["a", "b", "k", "args", "kwargs", "c", ("b", "k"), 3, [3], ([],)])
def test_names_of_static_arguments_are_checked_at_once(names: Any) -> None:
    """With the errors of ``jax.jit``, whose own function is made later if it raises none."""

    def program(jit: Any, traces: Traces) -> Iterator[Any]:
        for fun in FORMS:
            yield described(lambda fun=fun: jit(fun, static_argnames=names) and None)
            yield described(lambda fun=fun: jit(fun) and None)

    compare(program)


def test_the_function_of_jax_jit_is_made_when_a_call_needs_it() -> None:
    f = filterjit.jit(lambda x, n: x * n, static_argnames="n")
    assert f(x, n=2).tolist() == [0, 2, 4] and "upstream" not in vars(f._hooks)
    assert f.lower(x, n=2).compile()(x).tolist() == [0, 2, 4] and "upstream" in vars(f._hooks)


def _as_iterators(options: dict[str, Any]) -> dict[str, Any]:
    return {name: iter(x) if isinstance(x, list) else x for name, x in options.items()}


@on_both_jits
def test_static_items_of_variable_arguments(jit: Any, traces: Traces) -> Iterator[Any]:
    def f(first: Any, *rest: Any, **more: Any) -> Any:
        traces.tick()
        return are_traced(first, *rest, *(more[n] for n in sorted(more)))

    g = jit(f, static_argnums=(2, 4), static_argnames="n")
    yield described(g, 1, 2, 3, 4, 5, 6)
    yield described(g, 1, 2, 3)
    yield described(g, 1, 2)
    yield described(g, 1, m=2, n=3)
    yield described(g, 1, 2, 3, n="text", z=1.0)


@on_both_jits(handed_over=True)
def test_a_number_from_the_end_of_variable_arguments(jit: Any, traces: Traces) -> Iterator[Any]:
    f = jit(lambda *args: args[0] * args[-1], static_argnums=-1)
    yield described(f, x, 2)
    yield described(f, x, x, 3)


@on_both_jits
def test_the_wrapper_of_a_function(jit: Any, traces: Traces) -> Iterator[Any]:
    def f(y: Any, n: int) -> Any:
        return jnp.ones(n) * y[0]

    @functools.wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        traces.tick()
        return f(*args, **kwargs)

    g = jit(wrapper, static_argnames="n")
    for n in (2, 3):
        yield described(g, x, n)
        yield described(g, x, n=n)


@pytest.mark.parametrize(
    "bad",
    [[1], {"a": 1}, (1, [2]), x, np.ones(2), {1}, types.SimpleNamespace(n=1)],
    ids=lambda x: type(x).__name__,
)
def test_a_static_argument_that_cannot_be_hashed(bad: Any) -> None:
    def program(jit: Any, traces: Traces) -> Iterator[Any]:
        f = jit(lambda y, n, m=1: y, static_argnames=("n", "m"))
        yield described(f, x, bad)
        yield described(f, x, 1, m=bad)
        yield described(f, x, 1)

    compare(program, handed_over=True)


def test_static_arguments_are_exact() -> None:
    """A difference that is a decision: types inside a static value count."""
    f = filterjit.jit(lambda y, n: y + n[0], static_argnums=1)
    assert [f(1, (n,)).dtype for n in (1, 1.0, True)] == [jnp.int32, jnp.float32, jnp.int32]
    assert f.cache_info().variants == 3


# ---- donation ----


@pytest.mark.parametrize(
    "options",
    [
        {"donate_argnums": 0}, {"donate_argnums": (0, 1)}, {"donate_argnums": [1]},
        {"donate_argnames": "b"}, {"donate_argnames": ["b"]}, {"donate_argnums": -1},
        {"donate_argnums": 1, "static_argnums": 2}, {"donate_argnums": 0, "donate_argnames": "b"},
        {"donate_argnums": 2, "static_argnums": 0},
    ],
    ids=str,
)  # fmt: skip
def test_donation(options: dict[str, Any]) -> None:
    def program(jit: Any, traces: Traces) -> Iterator[Any]:
        def f(a: Any, b: Any, c: Any) -> Any:
            traces.tick()
            return jax.tree.map(lambda y: y * 2, (a, b, c))

        g = jit(f, **_as_iterators(options))
        calls: list[Callable[..., Any]] = [
            g, lambda a, b, c: g(a, b=b, c=c), lambda a, b, c: g(a=a, b=b, c=c)
        ]  # fmt: skip
        for call in calls * 10:
            arrays = [{"w": jnp.ones(3)}, jnp.ones((2, 2)), 2]
            if options.get("static_argnums") == 0:
                arrays = [2, *arrays[:2]]
            yield described(call, *arrays)
            yield [y.is_deleted() for y in jax.tree.leaves(arrays) if isinstance(y, jax.Array)]

    compare(program, NEGATIVE if -1 in options.values() else False)


# ---- functions of all kinds ----


class Model:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def method(self, y: Any, n: int) -> Any:
        return y * self.scale * n

    def __call__(self, y: Any) -> Any:
        return y * self.scale


@on_both_jits
def test_methods_partials_and_callable_objects(jit: Any, traces: Traces) -> Iterator[Any]:
    class Own:
        scale = 3.0

        @functools.partial(jit, static_argnums=(0, 2))
        def method(self, y: Any, n: int) -> Any:
            traces.tick()
            return y * self.scale * n

        @staticmethod
        @jit
        def static(y: Any) -> Any:
            return y + 1

        @classmethod
        def cls(cls, y: Any) -> Any:
            return y + cls.scale

    own = Own()
    for n in (1, 2, 2):
        yield described(own.method, x, n)
    yield described(Own.static, x)
    yield described(jit(Own.cls), x)
    yield described(jit(Model(2.0).method, static_argnames="n"), x, 3)
    yield described(jit(Model(2.0)), x)
    yield described(jit(functools.partial(Model(2.0).method, n=3)), x)
    yield described(jit(functools.partial(jnp.add, x)), 1)
    yield described(jit(jax.tree_util.Partial(jnp.add, x)), 1)
    yield described(jit(jit(lambda y: y * 2)), x)
    yield described(jit(jnp.sin), x)
    yield described(jit(lambda y, *, k=2: y * k), x)


def test_pickles_and_copies() -> None:
    f = filterjit.jit(_doubled)
    assert f.__wrapped__ is _doubled and f.__doc__ == _doubled.__doc__
    assert pickle.loads(pickle.dumps(f))(2.0) == 4
    assert copy.deepcopy(f)(2.0) == 4
    assert filterjit.jit(static_argnames="n")(lambda n: jnp.ones(n))(n=2).shape == (2,)


def plain(a: Any, /, b: int = 2, *c: Any, d: int = 3, **e: Any) -> Any:
    return a


@on_both_jits
def test_names_and_signatures(jit: Any, traces: Traces) -> Iterator[Any]:
    partial = functools.partial(plain, 1)
    for fun in (plain, partial, functools.partial(partial, d=1), Model(2.0), Model(2.0).method,
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


def _doubled(y: Any) -> Any:
    """Doubles."""
    return y * 2


@on_both_jits
def test_errors_of_the_function_are_its_own(jit: Any, traces: Traces) -> Iterator[Any]:
    @jit
    def f(tree: Any) -> Any:
        return 1 if tree["a"] > 0 else 2

    @jit
    def g(y: Any) -> Any:
        raise KeyError("own")

    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"argument tree\['a'\]"):
        f({"a": 1.0})
    yield described(f, {"a": 1.0})
    yield described(g, 1.0)


# ---- the other methods ----


@on_both_jits
def test_stages(jit: Any, traces: Traces) -> Iterator[Any]:
    f = jit(lambda y, n: y * n, static_argnames="n")
    spec = jax.ShapeDtypeStruct((3,), jnp.float32)
    yield described(f.eval_shape, spec, n=2)
    traced = f.trace(x, 2)
    yield type(traced), str(traced.jaxpr), comparable(traced.out_info)
    lowered = f.lower(spec, 3)
    yield type(lowered), lowered.as_text()
    yield described(lowered.compile(), x)
    yield described(export.export(f), spec, n=2)[0]


@on_both_jits
def test_options_are_as_they_were(jit: Any, traces: Traces) -> Iterator[Any]:
    """Containers that are changed after they were given."""
    good: dict[str, Any] = {"xla_embed_ir_in_executable": True}
    bad: dict[str, Any] = {"xla_no_such_flag": True}
    f, g = (jit(lambda y: y + 1, compiler_options=options) for options in (good, bad))
    good.update(bad)
    bad.clear()
    yield described(f, x)
    yield described(g, x)[0]

    shardings: dict[str, Any] = {"a": DEVICE}
    f = jit(lambda tree: tree, in_shardings=(shardings,), out_shardings=shardings)
    shardings["b"] = DEVICE
    yield described(f, {"a": x})

    positions, names = [0], ["a"]
    is_traced = lambda a, b: are_traced(a, b)
    f, g = jit(is_traced, static_argnums=positions), jit(is_traced, static_argnames=names)
    positions.append(1)
    names.append("b")
    yield described(f, 1, 2)
    yield described(g, 1, 2)


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


def test_device_is_passed_on() -> None:
    for jit in (jax.jit, filterjit.jit):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            f = jit(lambda y: y + 1, device=jax.devices()[0])
            assert f(x).committed
        with pytest.warns(DeprecationWarning, match="device argument on jit"):
            jit(lambda y: y, backend="cpu")


@pytest.mark.parametrize("which", ["in_shardings", "out_shardings"])
@pytest.mark.parametrize(
    "f",
    [lambda x: 3, lambda x: np.arange(3), lambda x: {"a": (x, 1.5, np.float32(2))}],
    ids=["int", "NumPy", "tree"],
)
def test_results_with_shardings_under_disable_jit(f: Any, which: str) -> None:
    """They are what the function returned."""
    for given in (jnp.ones(2), 3, 2.5, True, np.float32(2)):
        types = []
        for jit in (jax.jit, filterjit.jit):
            g = jit(f, **{which: DEVICE})
            with jax.disable_jit():
                before = g(given)
            types.append([type(x) for out in (before, g(given)) for x in jax.tree.leaves(out)])
        assert types[0] == types[1], given


# ---- decisions: what differs from jax.jit ----


def test_a_static_whose_eq_raises_equals_itself_only() -> None:
    """Where ``jax.jit`` raises."""

    class Bad:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

    f = filterjit.jit(lambda y, n: y + 1, static_argnums=1)
    for _ in range(2):
        assert f(1, Bad()) == 2


def test_shardings_of_parameters_that_are_left_out() -> None:
    """Where ``jax.jit`` raises."""
    f = filterjit.jit(lambda a, b=1.0: a * b, in_shardings=(DEVICE, None))
    assert f(x).tolist() == x.tolist() and f(x, b=2.0).tolist() == (2 * x).tolist()


def test_explain_names_what_cannot_be_hashed() -> None:
    f = filterjit.jit(lambda x, n: x, static_argnames="n")
    with pytest.raises(filterjit.StaticArgumentError, match="argument `n` is static, but"):
        f.explain(x, [1])
