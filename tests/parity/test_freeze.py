"""`f.freeze`: arguments given once, whose arrays are constants of the program."""

import copy
import inspect
import pickle
import warnings
import weakref
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import cases
import filterjit
from filterjit import filter_jit
from support.comparison import Traces, comparable
from support.lifetimes import freed

X = jnp.arange(4.0)


_MLP = eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(0))


def _mlp(seed: int = 0) -> Any:
    """Returns a model with arrays of its own."""
    return jtu.tree_map(lambda x: x + seed if eqx.is_array(x) else x, _MLP)


@filter_jit
def predict(model: Any, x: Any, scale: Any = 1.0) -> Any:
    return model(x) * scale


@filter_jit
def times(tree: Any, x: Any) -> Any:
    return jtu.tree_leaves(tree)[0] * x


def _close(a: Any, b: Any) -> bool:
    a, b = jtu.tree_leaves(a), jtu.tree_leaves(b)
    return len(a) == len(b) and all(
        x.dtype == y.dtype and x.shape == y.shape and np.allclose(x, y, rtol=1e-5, atol=1e-6)
        if eqx.is_array(x)
        else x == y
        for x, y in zip(a, b, strict=True)
    )


# ---- results ----


def test_weak_types_and_numpy() -> None:
    """Constants have the types that arguments have: NumPy's are traced, as JAX converts them."""
    f = filter_jit(lambda w, x: (w, w * x))
    half = jnp.ones(4, "bfloat16")
    for w in (jnp.asarray(2.0), jnp.full(4, 2.0), np.float64(2), np.arange(4), np.ones(4)):
        assert comparable(f.freeze(w)(half)) == comparable(f(w, half))
    at = filter_jit(lambda w, x: w.at[0].set(x))
    assert comparable(at.freeze(np.ones(3))(X[1])) == comparable(at(np.ones(3), X[1]))


def test_x64_at_the_time_of_the_trace() -> None:
    f = filter_jit(lambda w, x: w * x)
    w = np.arange(4.0)
    frozen = f.freeze(w)
    assert frozen(X).dtype == f(w, X).dtype == "float32"
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        x = np.ones(4)
        assert frozen(x).dtype == f(w, x).dtype == "float64"


# ---- arguments ----


def test_arguments_are_bound_as_by_partial() -> None:
    def f(a: Any, b: Any = 2.0, /, c: Any = 3.0, *more: Any, d: Any = 4.0, **named: Any) -> Any:
        return a, b, c, more, d, dict(named)

    jitted = filter_jit(f)
    given: list[tuple[Any, Any, Any, Any]] = [
        ((), {}, (X, 5.0), {"d": X}),
        ((X,), {}, (5.0, X, 1), {"e": X}),
        ((X, X, X, X, 2), {"d": 1}, (3, X), {"f": X}),
        ((X,), {"d": X, "e": 1}, (), {}),
        ((X,), {"d": X, "z": 1, "e": 2}, (X,), {"d": 2.0, "a": 3, "e": X}),
        ((X,), {"c": X}, (), {"c": 1}),
        ((X,), {"c": X}, (X,), {}),
    ]
    for args, kwargs, others, named in given:
        partial = jitted.partial(*args, **kwargs)
        frozen = jitted.freeze(*args, **kwargs)
        for _ in range(2):
            expected, found = partial(*others, **named), frozen(*others, **named)
            assert comparable(found) == comparable(expected)
            assert list(found[-1]) == list(expected[-1])
    for call in (
        lambda: jitted.freeze(X, c=X)(X, X),
        lambda: jitted.freeze()(),
        lambda: predict.freeze(X, X, X, X),
        lambda: predict.freeze(nothing=X),
        lambda: predict.freeze(X, model=X),
    ):
        with pytest.raises(TypeError):
            call()


def test_its_signature_and_its_errors() -> None:
    frozen = predict.freeze(_mlp())
    assert str(inspect.signature(frozen)) == "(x: Any, scale: Any = 1.0) -> Any"
    assert frozen.__name__ == "predict"
    with pytest.raises(TypeError, match=r"predict\(\) missing 1 required positional argument: 'x'"):
        frozen()
    by_name = predict.freeze(model=_mlp())
    assert str(inspect.signature(by_name)).startswith("(*, model: Any = <frozen>, x: Any")
    assert comparable(by_name(x=X)) == comparable(frozen(X))
    assert comparable(by_name(x=X, model=_mlp(1))) == comparable(predict(_mlp(1), X))


def test_shardings_are_refused() -> None:
    mesh = jax.make_mesh((1,), ("data",))
    for options in ({"in_shardings": P()}, {"out_shardings": P("data")}, {}):
        f = filter_jit(lambda x, y: x * y, mesh=mesh, **options)
        with pytest.raises(ValueError, match="`freeze` takes no function with in_shardings"):
            f.freeze(X)
    f = filter_jit(lambda x, y: x * y, same_on_all_processes=True)
    assert f.freeze(X)._hooks.settings.same_on_all_processes


def test_methods_and_models() -> None:
    class Model(eqx.Module):
        w: Any

        @filter_jit
        def apply(self, x: Any, power: int = 1) -> Any:
            return self.w * x**power

    class Plain:
        w = X
        apply = Model.apply

    for model in (Model(X), Plain()):
        frozen = model.apply.freeze()
        assert comparable(frozen(X, 2)) == comparable(model.apply(X, 2))
        by_class = type(model).apply.freeze(model, power=3)
        assert comparable(by_class(X)) == comparable(model.apply(X, 3))
        assert comparable(model.apply.freeze(X)(2)) == comparable(model.apply(X, 2))
    # The arrays in the function itself are constants too.
    for fun in (Model(X).apply, _mlp()):
        f = filter_jit(fun)
        own = f.freeze()
        assert jtu.tree_leaves(own) == [] and len(jtu.tree_leaves(eqx.filter(f, eqx.is_array)))
        assert comparable(own(X)) == comparable(f(X))


# ---- the arguments are as they were given ----


def test_changes_of_containers_do_not_matter() -> None:
    class Model(eqx.Module):
        layers: list[Any]
        bias: Any

        def __call__(self, x: Any) -> Any:
            return sum(layer["w"] * x for layer in self.layers) + self.bias

    bias = np.ones(4)
    model = Model([{"w": X}, {"w": X}], bias)
    frozen = predict.freeze(model)
    expected = comparable(predict(model, X)), comparable(predict(model, X, 2.0))
    model.layers[0]["w"] = X * 0
    model.layers.pop()
    bias[:] = 100
    object.__setattr__(model, "bias", X)
    assert comparable(frozen(X)) == expected[0]
    assert comparable(frozen(X, 2.0)) == expected[1]


def test_what_a_trace_changes_is_not_seen_by_the_next() -> None:
    @filter_jit
    def f(tree: Any, x: Any, number: int) -> Any:
        tree.append(x)
        return tree

    frozen = f.freeze([X])
    assert len(frozen(X, 1)) == len(frozen(X, 2)) == len(frozen(X, 1)) == 2


def test_aux_data_that_each_flatten_makes_anew() -> None:
    scaled = type("Scaled", (), {})
    jtu.register_pytree_node(scaled, lambda s: ((X,), (lambda y: y,)), lambda aux, xs: xs[0])
    assert comparable(times.freeze([scaled()])(X)) == comparable(X * X)


def test_a_static_that_changed_in_place_is_an_error_in_a_later_trace() -> None:
    class Model(eqx.Module):
        w: Any
        powers: list[int] = eqx.field(static=True)

        def __call__(self, x: Any) -> Any:
            return sum(self.w * x**power for power in self.powers)

    model = Model(X, [1, 2])
    frozen = predict.freeze(model)
    expected = comparable(frozen(X))
    model.powers.append(3)
    assert comparable(frozen(X)) == expected
    with pytest.raises(ValueError, match=r"changed in place after `freeze`.*`model.powers`\. Call"):
        frozen(X, 2.0)
    model.powers.pop()
    assert comparable(frozen(X, 2.0)) == comparable(predict(model, X, 2.0))


def test_a_static_that_cannot_be_hashed() -> None:
    with pytest.raises(filterjit.StaticArgumentError, match=r"argument `tree\['a'\]` is static"):
        times.freeze({"a": {1, 2}})
    with pytest.raises(filterjit.StaticArgumentError, match="argument `x` is static"):
        times.freeze(x={1, 2})


@pytest.mark.parametrize("again", [False, True])
def test_a_deleted_array(again: bool) -> None:
    model = _mlp()
    frozen = predict.freeze(model)
    if again:
        frozen = frozen.freeze(scale=2.0)
    expected = comparable(frozen(X))
    model.layers[1].weight.delete()
    assert comparable(frozen(X)) == expected  # the program has its own copy
    with pytest.raises(RuntimeError, match=r"argument `model.layers\[1\].weight` was deleted"):
        frozen(jnp.arange(4))
    assert comparable(frozen(X)) == expected


def test_arrays_that_cannot_be_arguments() -> None:
    with pytest.raises(TypeError) as caught:
        times.freeze({"a": np.array(["text"])})
    assert caught.value.__notes__ == ["(argument `tree['a']` of `freeze`)"]


def test_what_is_not_frozen_is_donated() -> None:
    for donate, kept in (("all", 0), ("all-except-first", 1)):
        f = filter_jit(lambda a, b: a + b, donate=donate)
        given = jnp.arange(4.0), jnp.ones(4)
        frozen = f.freeze(*given[:kept])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one of the two arrays is enough for the result
            frozen(*given[kept:])
        assert [x.is_deleted() for x in given] == [not kept, bool(kept)]
    with pytest.raises(ValueError, match="takes the first argument by position"):
        f.freeze(a=given[0])
    with pytest.raises(ValueError, match="in the function itself would be donated"):
        filter_jit(_mlp(), donate="all").freeze()


# ---- transformations ----


def test_tracers() -> None:
    """So it can be frozen inside a trace, and its gradients are those of a plain call."""
    model = _mlp()
    grads = eqx.filter_grad(lambda m: jnp.sum(predict.freeze(m)(X)))(model)
    expected = eqx.filter_grad(lambda m: jnp.sum(predict(m, X)))(model)
    assert _close(grads, expected)

    @jax.jit
    def outer(w: Any, x: Any) -> Any:
        frozen = times.freeze({"w": w, "b": X})
        return frozen(x) + frozen(x)

    assert comparable(outer(X, X)) == comparable(2 * X * X)
    stack = lambda x: jnp.stack([x, x, x]) if eqx.is_array(x) else x
    models = jtu.tree_map(stack, _mlp())
    assert eqx.filter_vmap(lambda m: predict.freeze(m)(X))(models).shape == (3, 2)


def test_freeze_of_freeze_and_partial_of_freeze() -> None:
    model = _mlp()
    once = predict.freeze(model)
    twice = once.freeze(X)
    assert _close(twice(2.0), predict(model, X, 2.0))
    assert _close(once.partial(X)(2.0), predict(model, X, 2.0))
    assert _close(twice.freeze(scale=3.0)(), predict(model, X, 3.0))
    count, size = twice._hooks.frozen
    assert (count, size) == (5, sum(x.nbytes for x in cases.arrays_in(model)) + X.nbytes)


# ---- its programs ----


def test_its_programs_are_its_own(traces: Traces) -> None:
    f = filter_jit(traces.counting(lambda w, x: w * x))
    first, second = f.freeze(X), f.freeze(X)
    assert first != second and hash(first) != hash(second) and first == first
    for frozen in (first, second, first, second):
        frozen(X)
    assert traces.count == 2
    first.clear_cache()
    first(X), second(X)
    assert traces.count == 3
    assert f.cache_info().variants == 0


def test_options_are_those_of_the_function() -> None:
    seen: list[Any] = []
    f = filter_jit(lambda w, x: w * x, on_retrace=seen.append, maxsize=7)
    frozen = f.freeze(X)
    frozen(X), frozen(X)
    frozen(jnp.ones((2, 4)))
    assert [cause.kind for cause in seen[0].causes] == ["shape"]
    assert frozen.cache_info().maxsize == 7
    compiled = filter_jit(lambda w, x: w * x, compiler_options={"xla_cpu_enable_fast_math": True})
    assert comparable(compiled.freeze(X)(X)) == comparable(X * X)
    structure = filter_jit(lambda w, g, x: g(w * x), functions="structure").freeze(X)
    for _ in range(3):
        structure(lambda y: y + 1, X)
    assert structure.cache_info().misses == 1


def test_explain_and_report() -> None:
    frozen = predict.freeze(_mlp())
    predict(_mlp(), X)
    assert not frozen.explain(X).hit
    frozen(X)
    assert frozen.explain(X).hit
    assert "`scale`" in str(frozen.explain(X, 2.0)) and "(frozen)" in str(frozen.explain(X, 2.0))
    assert "predict (frozen)" in str(frozen.report())
    assert "frozen predict: 4 arrays, 232 B" in repr(frozen)


def test_pickles_and_copies() -> None:
    frozen = predict.freeze(_Scaled(X))
    for again in (pickle.loads(pickle.dumps(frozen)), copy.copy(frozen), copy.deepcopy(frozen)):
        assert again is not frozen
        assert comparable(again(X)) == comparable(frozen(X))


class _Scaled(eqx.Module):
    w: Any

    def __call__(self, x: Any) -> Any:
        return self.w * x


# ---- lifetimes ----


@freed
def test_nothing_outlives_it() -> list[Any]:
    """The programs, and the arrays in them, are freed with what `freeze` returned."""
    w = X + 1
    frozen = predict.freeze(_Scaled(w))
    frozen(X), frozen(X, 2.0), frozen(jnp.ones((2, 4)))
    frozen.lower(X).compile()(X)
    frozen.trace(X)
    frozen.eval_shape(X)
    jax.grad(lambda x: jnp.sum(frozen(x)))(X)
    jax.vmap(frozen)(jnp.ones((2, 4)))
    jax.jit(frozen)(X)
    frozen.explain(X), frozen.report(), frozen.cache_info()
    return [
        weakref.ref(x) for x in (w, frozen, frozen._parts()[0], frozen._hooks, *frozen.variants)
    ]
