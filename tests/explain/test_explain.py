"""Why a call compiles again: each cause is provoked by a real program, and must be explained.

docs/errors.md and tests/messages.md have a program for each cause. The cases here are those that its programs do not have.
Each case calls a function twice. The test compares the explanation of the second call, made before
it, with what the call then does.
"""

import argparse
import dataclasses
import functools
import types
from typing import Any

import equinox as eqx
import flax.core
import flax.linen
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from explain_support import Aux, Plain, Static, closure, jitted
from jax.sharding import PartitionSpec as P

import filterjit
import filterjit.nnx
from filterjit import filter_jit
from filterjit._observe import _compare
from filterjit.types import Explanation
from support.statics import Constant
from support.trees import bare
from support.versions import auto_mesh

KEY = jax.random.key(0)
X = jnp.ones(2)


def mlp(activation: Any = jax.nn.relu, depth: int = 1) -> eqx.nn.MLP:
    return eqx.nn.MLP(2, 2, 4, depth, activation=activation, key=KEY)


class Unreadable(Constant):
    def __fspath__(self) -> str:
        raise OSError


def linear(size: int) -> Any:
    return eqx.nn.Linear(size, 2, key=KEY)


def scale(x: Any, by: float) -> Any:
    return x * by


class Jitted:
    @filter_jit
    def method(self, x: Any) -> Any:
        return x


JITTED = Jitted(), Jitted()
PLAIN = Plain()


@dataclasses.dataclass
class Meta:
    weight: Any
    value: Any


jax.tree_util.register_dataclass(Meta, ["weight"], ["value"])


def decorator(fun: Any) -> Any:
    @functools.wraps(fun)
    def wrapper(*args: Any) -> Any:
        return fun(*args)

    return wrapper


@decorator
def decorated_once(x: Any) -> Any:
    return x


@decorator
def decorated_twice(x: Any) -> Any:
    return x + x


def with_default(k: Any) -> Any:
    return lambda x, k=k: x


def with_name(name: Any) -> Any:
    def named(x: Any, *, k: int = 1) -> Any:
        return x

    named.name = name  # type: ignore[attr-defined]
    return named


def calling(fun: Any) -> Any:
    return lambda x: fun(x)


STRUCTURE: dict[str, Any] = {"functions": "structure"}
OF_JIT: dict[str, Any] = {"jit": filterjit.jit, "static_argnames": "b"}
VALUE = "Each value has its own program: pass what changes often"
BOTH = {"a": 1, "b": 2}, {"b": 2, "a": 1}
ORDERS = "a dict of 'a', 'b'", "one in the order 'b', 'a'", "same order"
# What is passed as `b` in the first call and in the second, the options, and the cause: its kind, its
# path, and a piece of the text of `was`, `now` and `remedy`.
CASES: dict[str, tuple[Any, Any, dict[str, Any], tuple[str, str, str, str, str]]] = {
    "negative zero": (0.0, -0.0, {}, ("static", "b", "float 0.0", "float -0.0", "array")),
    "missing key": ({"a": X, "c": X}, {"a": X}, {},
        ("structure", "b", "'c'", "without 'c'", "same keys")),
    "ufuncs": (jnp.add, np.sin, {},
        ("other function", "b", "the function `add`", "the function `sin`", "Each function")),
    "two functions under one decorator": (decorated_once, decorated_twice, {},
        ("other function", "b", "`decorated_once` of test_explain.py", "`decorated_twice`", "Each")),
    "a partial of a library's function": (
        *(functools.partial(jax.nn.leaky_relu, negative_slope=x) for x in (0.1, 0.2)), {},
        ("recreated", "b", "leaky_relu", "another `negative_slope`", "Each partial is new. Make it")),
    "a text or a list of texts": ("a", ["a"], {},
        ("structure", "b", "str 'a'", "list of 1 item", "same type of container")),
    "flax module": (flax.linen.Dense(2), flax.linen.Dense(3), {},
        ("static", "b", "features = 2", "features = 3", "Each value has its own")),
    "FrozenDict": (flax.core.FrozenDict({"a": X}), flax.core.FrozenDict({"c": X}), {},
        ("structure", "b", "'a'", "'c'", "same keys")),
    "a string that differs late": (f"{'a' * 100}b{'c' * 100}", f"{'a' * 100}d{'c' * 100}", {},
        ("static", "b", "the str 'aaaaaa...aaaaaaaaaaaaaaabccc", "...aaaaaaaaaaaaaaadccc", "few")),
    "a jitted method in a field": (*(Static(X, one.method) for one in JITTED), {},
        ("bound method", "b.value", "`Jitted.method` of the Jitted", "of the Jitted", "Create the instance once")),
    "a number in aux data": (Aux((1, 2)), Aux((1, 3)), {},
        ("static", "b[1]", "aux data the int 2", "int 3", "not a part of the aux data")),
    "the order of a dict in one": (*(Static(X, [x]) for x in BOTH), {},
        ("static", "b.value[0]", *ORDERS)),
    "the order of a dict in an object in one": (*(Static(X, Constant((x,))) for x in BOTH), {},
        ("static", "b.value.value[0]", *ORDERS)),
    "a dict of numbers": ({1: 2.0}, {1: 3.0}, {},
        ("static", "b[1]", "float 2.0", "float 3.0", "make it an array")),
    "a dataclass that differs late": (Constant(("a" * 100, "b")), Constant(("a" * 100, "c")), {},
        ("static", "b", "Constant(value=...aaa", "aaaa', 'c'))", "pass that part as an")),
    "a dict whose keys have no order": (
        *(bare(Static, weight=X, value={0: n, "a": 1}) for n in (1, 2)), {},
        ("static", "b.value", "{0: 1, 'a': 1}", "{0: 2, 'a': 1}", "pass that part as an array")),
    "a static whose own code raises": (Unreadable(1), Unreadable(2), {},
        ("static", "b", "Unreadable(value=1)", "(value=2): comparing them raised OSError", "own")),
    "a new key": (jax.random.split(jax.random.PRNGKey(0), 5), KEY, {},
        ("dtype", "b", "uint32[5,2] of PRNGKey", "key<fry>[]", "not by `PRNGKey`")),
    "a partial of a method": (*(functools.partial(PLAIN.method, 1) for _ in range(2)), {},
        ("recreated", "b", "`Plain.method`", "a new partial", "Each partial is new. Define it")),
    "a function that is wrapped again": (decorator(calling), decorator(calling), {},
        ("recreated", "b", "", "", f"at test_explain.py:{decorator.__code__.co_firstlineno + 1}. Def")),
    "one that a library wraps": (jax.vmap(calling), jax.vmap(calling), {},
        ("recreated", "b", "", "a new function", "Each function is new. Define it once")),
    "a closure over a dict": (*(with_default({"n": 1}) for _ in range(2)), {},
        ("recreated", "b", "", "same code", "Define it once, outside the loop.")),
    "arrays in a tuple": ((X, X), X, {},
        ("structure", "b", "a tuple of 2 items", "an array", "same type of container")),
    "a number of jit that is traced": (jnp.int32(1), 2.0, {"jit": filterjit.jit},
        ("dtype", "b", "int32[]", "float32[] of weak type", "jnp.asarray(b, dtype=...)")),
    "a number of jit that is static": (1, 2.0, OF_JIT,
        ("type", "b", "the int 1", "the float 2.0", "Pass the same type on every call.")),
    "a scalar of jit that is static": (np.float32(1), np.float32(2), OF_JIT,
        ("static", "b", "float32(1.0)", "float32(2.0)", "Each value has its own program.")),
    "a static field of JAX's": (Meta(X, {"a": 1, "c": 2}), Meta(X, {"a": 1, "c": 3}), {},
        ("static", "b.value['c']", "int 2", "int 3", "an array (`jnp.asarray`), and its field not")),
    "specs": (P("a"), P("b"), {}, ("static", "b", "'a'", "'b'", "Each value has its own program.")),
    "dtypes": (np.dtype("float32"), np.dtype("int32"), {},
        ("static", "b", "dtype float32", "dtype int32", "Each dtype has its own program")),
    # What differs in functions by structure.
    "a closure": (closure(1), closure(2), STRUCTURE,
        ("recreated", "b", "", "same code but another `n`", VALUE)),
    "a closure of a closure": (calling(closure(1)), calling(closure(2)), STRUCTURE,
        ("recreated", "b", "", "same code but another `n`", VALUE)),
    "a partial": (*(functools.partial(closure(n)) for n in (1, 2)), STRUCTURE,
        ("recreated", "b", "", "a new partial with another `n`", VALUE)),
    "a default": (with_default(1), with_default(2), STRUCTURE,
        ("recreated", "b", "", "same code but another default of `k`", VALUE)),
    "an attribute": (with_name(1), with_name(2), STRUCTURE,
        ("recreated", "b", "", "same code but another attribute `name`", VALUE)),
    # Of optimizers.
    "an optimizer of jit": (optax.adam(1e-3), optax.adam(1e-3), OF_JIT,
        ("recreated", "b.update", "", "", "create `b` once, and pass the same object")),
    "a method of a library's object": (
        *(optax.MultiSteps(optax.adam(1e-3), 2).gradient_transformation() for _ in range(2)), {},
        ("bound method", "b.update", "", "", "Create the `MultiSteps` once")),
    "a rate in a chain": (*(optax.adamw(x, mask={"a": True}) for x in (1e-3, 1e-2)), STRUCTURE,
        ("recreated", "b.update", "", "a new function with the same code but another `step_size`",
         "Each value has its own program")),
    "another optimizer": (optax.adam(1e-3), optax.sgd(1e-3), STRUCTURE,
        ("other function", "b.update", "", "another function of the same name and place",
         "this is normal if there are few")),
}  # fmt: skip


def only(explanation: Explanation) -> Any:
    [cause] = explanation.causes
    return cause


def check(cause: Any, expected: tuple[str, str, str, str, str]) -> None:
    kind, path, was, now, remedy = expected
    assert (cause.kind, cause.path) == (kind, path), cause
    assert was in cause.was and now in cause.now and remedy in cause.remedy, cause
    assert kind in ("static", "type") or "as an array" not in str(cause)


@pytest.mark.compiled_in
@pytest.mark.parametrize("name", CASES)
def test_causes(name: str) -> None:
    *values, options, expected = CASES[name]
    first, second = ((X, value) for value in values)
    at_the_trace: list[Explanation] = []
    f, traces = jitted(on_retrace=at_the_trace.append, **options)
    f(*first), f(*first)
    assert f.explain(*first).hit and at_the_trace == []
    explanation = f.explain(*second)
    assert not explanation and not explanation.hit and len(traces) == len(f.variants) == 1
    check(explanation.causes[-1], expected)
    text = str(explanation)
    assert text.index(expected[1]) < text.index(explanation.causes[-1].remedy)
    assert "compiles again because" in text and "f`" in text.splitlines()[0]
    f(*second)
    assert len(traces) == 2, "the call did not do as explained"
    assert f.explain(*second).hit and f.explain(*first).hit
    (told,) = at_the_trace
    check(told.causes[-1], expected)


def test_a_number_in_a_module_of_nnx() -> None:
    class Model(flax.nnx.Module):
        def __init__(self, n: int) -> None:
            self.n, self.w = n, flax.nnx.Param(X)

    f = filterjit.nnx.jit(lambda model, k=1: model.w[...] * model.n, static_argnames="k")
    f(Model(2))
    assert "static_argnames" not in only(f.explain(Model(3))).remedy
    assert "static_argnames" in f.explain(Model(2), 3).causes[0].remedy


def test_a_wrapper_is_explained_by_the_names_of_its_function() -> None:
    def named(x: Any, y: Any) -> Any:
        return y

    f = filterjit.jit(functools.wraps(named)(lambda *args: named(*args)))
    f(X, X)
    assert only(f.explain(X, X[:1])).path == "y"


def test_meshes() -> None:
    on_mesh = jax.device_put(X, jax.sharding.NamedSharding(auto_mesh("a"), P("a")))
    called, warm = filter_jit(lambda x: x), filter_jit(lambda x: x)
    called(X), warm.warm_up(jax.ShapeDtypeStruct(X.shape, X.dtype))
    for f, remedy in ((called, "Place it once"), (warm, "Give the ShapeDtypeStruct")):
        check(only(f.explain(on_mesh)), ("mesh", "x", "on no mesh", "on a mesh of a=1", remedy))
        assert "P(None" not in str(f.explain(on_mesh))


def test_a_class_of_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (type("Config", (), {"__module__": "__main__"}) for _ in range(2))
    f, _ = jitted()
    f(X, one())
    assert "outside the loop" in only(f.explain(X, two())).remedy
    monkeypatch.setattr(_compare, "is_notebook", lambda: True)
    assert "Each run of a cell" in only(f.explain(X, two())).remedy


def hidden(fun: Any) -> Any:
    """A decorator that does not say what it wraps."""

    def inner(x: Any) -> Any:
        return fun(x)

    return inner


@pytest.mark.parametrize(
    ("jit", "is_hidden"),
    [
        (lambda f: filter_jit(decorator(f)), False),
        (lambda f: filter_jit(hidden(f)), True),
        (filterjit.nnx.jit, False),
    ],
)
def test_two_functions_under_one_decorator_are_two(jit: Any, is_hidden: bool) -> None:
    def first(x: Any) -> Any:
        return x

    def second(x: Any) -> Any:
        return x

    one, two = jit(first), jit(second)
    one(X)
    assert only(two.explain(X)).kind == "first"
    cause = only(jit(first).explain(X))
    assert cause.kind == "function" and cause.place == "the function"
    assert cause.now == "the same function, wrapped or jitted again" or is_hidden
    line = hidden.__code__.co_firstlineno + 3 if is_hidden else first.__code__.co_firstlineno
    assert f"test_explain.py:{line}" in cause.was and f"test_explain.py:{line}" in cause.remedy


def test_two_instances_and_their_methods_are_not_recreated() -> None:
    class Callable_(Plain):
        def __call__(self, x: Any) -> Any:
            return x

    one, two = Callable_(), Callable_()
    filter_jit(one)(X), filter_jit(one.method)(X)
    cause = only(filter_jit(two).explain(X))
    check(cause, ("identity", "the function", "Callable_", "Callable_", "the same object"))
    cause = only(filter_jit(two.method).explain(X))
    check(
        cause,
        ("bound method", "the function", "Plain.method", "Plain.m", "Create the instance once"),
    )
    filter_jit(mlp())(X)
    cause = only(filter_jit(mlp(jax.nn.gelu)).explain(X))
    check(cause, ("other function", "the function.activation", "relu", "gelu", "Each function"))
    assert cause.place == "`the function.activation`"


@pytest.mark.parametrize("trace", [
    lambda f: jax.eval_shape(f, X), lambda f: jax.grad(f)(X), lambda f: jax.jit(lambda x: f(x))(X),
    lambda f: f.trace(X),
])  # fmt: skip
def test_a_trace_is_no_program(trace: Any) -> None:
    f = filter_jit(lambda x: x.sum())
    trace(f)
    assert only(f.explain(X)).kind == "not compiled"
    f(X)
    assert f.explain(X).hit


def test_the_first_call_is_not_a_retrace() -> None:
    explanations: list[Explanation] = []
    f = filter_jit(lambda a: a, on_retrace=explanations.append)
    explanation = f.explain(X)
    assert only(explanation).kind == "first" and "no program is compiled" in str(explanation)
    assert f.variants == []
    f(X)
    assert explanations == []


# Some calls, another one, and where it differs from the one that differs least.
LEAST: list[tuple[list[tuple[Any, ...]], tuple[Any, ...], list[str]]] = [
    ([(X, {"a": 1, "b": 2}), (X, [1, 2]), (X, (1, 2, 3))], (X, [1, 3]),
        ["b[1]: the int 2 the int 3"]),
    ([(X,), (jnp.ones(3, int),)], (jnp.ones(3),), ["a: float32[2] float32[3]"]),
    ([(X,), (jnp.ones((3, 1)),)], (jnp.ones(3),), ["a: float32[2] float32[3]"]),
    ([(X, 1), (jnp.ones(3), 1), (jnp.ones(3, int), 2)], (X, 3), ["b: the int 1 the int 3"]),
    ([(X, 1)], (jnp.ones(3), 2), ["b: the int 1 the int 2", "a: float32[2] float32[3]"]),
    ([(X, [X])], (X, [jnp.ones(3), X]), ["b: a list of 1 item a list of 2 items"]),
    ([(jnp.ones((n, 16)),) for n in (1, 4, 64, 16)], (jnp.ones((5, 16)),),
        ["a: float32[1|4|16|64,16] float32[5,16]"]),
    ([(X,), (jnp.ones(5),), (X, 1)], (jnp.ones(3),), ["a: float32[2|5] float32[3]"]),
    ([(jnp.ones((2, 3)),), (jnp.ones((4, 5)),)], (jnp.ones((2, 4)),),
        ["a: float32[2,3] or float32[4,5] float32[2,4]"]),
    ([({"k": [X, X]}, True), ({"k": [X, X], "l": X}, False), ({"k": [KEY, KEY]}, False)],
        ({"k": [KEY, KEY]}, True), ["b: False True"]),
    ([(X, linear(4)), (X, linear(3))], (X, linear(8)),
        ["b.in_features: the int 3 the int 8", "b.weight: float32[2,3|4] float32[2,8]"]),
    ([(X, linear(4)), (jnp.ones(3), linear(8))], (X, linear(8)), ["a: float32[3] float32[2]"]),
    ([(X, {"k": {"a": X}}), (X, [X])], (X, {"k": [X]}), ["b['k']: a dict a list of 1 item"]),
]  # fmt: skip


@pytest.mark.parametrize(("calls", "now", "paths"), LEAST)
def test_the_program_that_differs_least_is_told(calls: Any, now: Any, paths: list[str]) -> None:
    f, traces = jitted()
    for call in calls:
        f(*call)
    assert [f"{c.path}: {c.was} {c.now}" for c in f.explain(*now).causes] == paths
    f(*now)
    assert len(traces) == len(calls) + 1


def test_arrays_of_the_function_and_the_configuration_are_compared_too() -> None:
    filter_jit(eqx.Partial(scale, X))(1)
    with jax.default_matmul_precision("highest"):
        causes = filter_jit(eqx.Partial(scale, jnp.ones(3))).explain(2).causes
    assert [(c.kind, c.path) for c in causes] == [
        ("static", "args[0]"), ("shape", "the function.args[0]"), ("config", "")
    ]  # fmt: skip


def test_many_differences_are_shortened() -> None:
    f, _ = jitted()
    f(X, list(range(50)))
    explanation = f.explain(X, list(range(1, 51)))
    assert len(explanation.causes) == 24  # of those that differ
    assert "and 44 more" in str(explanation) and len(str(explanation).splitlines()) < 12


def test_the_order_of_causes() -> None:
    f, _ = jitted()
    f(X, [1, mlp(), 2])
    kinds = [cause.kind for cause in f.explain(X, [5, mlp(depth=2), 2.0]).causes]
    assert kinds == ["structure", "type", "static", "static"]


def test_methods() -> None:
    class Model(eqx.Module):
        weight: Any
        name: str = eqx.field(static=True, default="a")

        @filter_jit
        def __call__(self, x: Any) -> Any:
            return self.weight * x

    model = Model(X)
    model(X)
    assert model.__call__.explain(X).hit
    assert only(Model(X, "b").__call__.explain(X)).path == "self.name"


@dataclasses.dataclass(frozen=True)
class Options:
    table: Any


@dataclasses.dataclass
class Unregistered:
    size: int
    weight: Any
    inner: Any = None


# Statics that cannot be hashed, and what helps.
UNHASHABLE: list[tuple[Any, str]] = [
    (Unregistered(1, [X], Unregistered(2, X)), "Its `weight`, `inner` hold arrays: make"),
    (Options({"a": 1}), "with values that can be hashed (tuples instead of lists)"),
    (bytearray(b"a"), "Pass bytes."),
    (argparse.Namespace(size=X), "Pass the values in it that the function uses."),
    (types.MappingProxyType({}), "Pass the values in it that the function uses."),
]


def test_what_helps_against_a_static_that_cannot_be_hashed() -> None:
    f, _ = jitted()
    for value, said in UNHASHABLE:
        with pytest.raises(filterjit.StaticArgumentError) as caught:
            f(X, {"k": value})
        text = str(caught.value)
        assert "argument `b['k']` is static, but it cannot be hashed" in text and said in text
        assert "jnp.asarray" not in text


@pytest.mark.parametrize("again", ["return x", "return 2 * x"], ids=["same", "edited"])
def test_a_cell_that_ran_twice(again: str) -> None:
    names: dict[str, Any] = {"filter_jit": filter_jit}
    for body in ("return x", again):
        exec(compile(f"@filter_jit\ndef f(x): {body}", "cell.py", "exec"), names)
        said = str(names["f"].explain(X))
        names["f"](X)
    if again == "return x":
        assert "the function: defined or jitted again" in said and "compiles again" in said
    else:
        assert "no program is compiled for it yet" in said


SETTINGS: dict[str, Any] = {
    "jax_debug_nans": True, "jax_debug_infs": True, "jax_enable_checks": True,
    "jax_default_prng_impl": "rbg", "jax_default_matmul_precision": "highest",
    "jax_numpy_rank_promotion": "raise", "jax_enable_x64": True,
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_a_cause_if_it_makes_jax_compile(name: str) -> None:
    f = filter_jit(lambda x: x * 2)
    f(X)
    before = getattr(jax.config, name)
    jax.config.update(name, SETTINGS[name])
    try:
        explanation = f.explain(X)
        f(X)
    finally:
        jax.config.update(name, before)
    assert explanation.hit == (f.report().as_dict()["functions"][0]["compiles"] == 1)
    assert explanation.hit or name in str(explanation)


def test_in_shardings_place_an_array_that_is_committed_elsewhere() -> None:
    mesh = jax.make_mesh((1,), ("x",))
    f = filter_jit(lambda x: x * 2, in_shardings=jax.sharding.PartitionSpec())
    with jax.set_mesh(mesh):
        f(X)
        x = jax.device_put(X, jax.devices()[0])
        assert f.explain(x).hit
        f(x)
    assert f.report().as_dict()["functions"][0]["compiles"] == 1
