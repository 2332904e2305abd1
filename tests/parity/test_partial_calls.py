"""`f.partial` with JAX arrays: results, shared programs, donation, and use as a pytree."""

import copy
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import filterjit
from filterjit.types import PartialFilterJit
from support.callables import Affine
from support.comparison import comparable

X = jnp.arange(4.0)


def test_it_is_a_pytree() -> None:
    f = filterjit.filter_jit(lambda model, x, *, shift: jnp.sum(model(x)) + shift)
    model = Affine(X, X)
    p = f.partial(model, shift=2.0 * X[1])
    arrays = [len(jtu.tree_leaves(eqx.filter(tree, eqx.is_array))) for tree in (p, model)]
    assert arrays[0] == arrays[1] + 1
    double = lambda tree: jtu.tree_map(lambda x: 2 * x if eqx.is_array(x) else x, tree)
    assert comparable(double(p)(X)) == comparable(f(double(model), X, shift=4.0 * X[1]))
    outer = filterjit.filter_jit(lambda g, x: g(x))
    assert comparable(outer(p, X)) == comparable(f(model, X, shift=2.0 * X[1]))
    grads = eqx.filter_grad(lambda g: g(X))(p)
    wanted = eqx.filter_grad(lambda m: f(m, X, shift=2.0))(model)
    assert comparable(jtu.tree_leaves(grads.args)) == comparable(jtu.tree_leaves(wanted))


def test_a_method() -> None:
    class Model(eqx.Module):
        w: Any

        @filterjit.filter_jit
        def __call__(self, x: Any, power: int = 1) -> Any:
            return self.w * x**power

    model = Model(X)
    for p, rest in ((Model.__call__.partial(model), (X, 2)), (model.__call__.partial(X), (2,))):
        assert comparable(p(*rest)) == comparable(model(X, 2))
        assert comparable(p(*rest[:-1])) == comparable(model(X))


def test_what_is_read_of_a_partial_is_a_copy() -> None:
    """Later traces, and ahead of time, see the arguments as they were given."""

    @filterjit.filter_jit
    def f(options: Any, x: Any, *, more: Any) -> Any:
        return options["scale"] * x + more["shift"][0]

    given, more = {"scale": 2.0}, {"shift": [0.0]}
    p = f.partial(given, more=more)
    assert p(X).tolist() == [0, 2, 4, 6]
    p.args[0]["scale"] = given["scale"] = 3.0
    p.keywords["more"]["shift"][0] = more["shift"][0] = 1.0
    for x in (X, jnp.arange(4), jnp.arange(2.0), X):  # a hit, traced again twice, a hit
        assert p(x).tolist() == (2.0 * x).tolist()
    jax.clear_caches()
    f.clear_cache()
    assert p(X).tolist() == [0, 2, 4, 6]
    with jax.disable_jit():
        assert p(X).tolist() == [0, 2, 4, 6]
    assert f.explain(*p.args, X, **p.keywords).hit
    compiled = f.lower(*p.args, X, **p.keywords).compile()
    assert compiled(*p.args, X, **p.keywords).tolist() == [0, 2, 4, 6]


def test_arrays_and_statics_that_change_are_noticed_by_each_call() -> None:
    class M(eqx.Module):
        w: Any
        scales: list[float] = eqx.field(static=True)

        def __call__(self, x: Any) -> Any:
            return self.w * self.scales[0] + x

    f = filterjit.filter_jit(lambda m, x: m(x))
    m = M(np.ones(4), [2.0])
    p = f.partial(m)
    for x in (X, jnp.arange(4)):
        assert p(x).tolist() == [2, 3, 4, 5]
    m.scales[0] = 3.0
    for x in (X, jnp.arange(4), X):
        assert p(x).tolist() == [3, 4, 5, 6]
    m.w[:] = 2.0
    for x in (X, jnp.arange(4), X):
        assert p(x).tolist() == [6, 7, 8, 9]


# ---- what a call passes on ----


def everything(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def test_keywords_of_the_call_take_precedence() -> None:
    f = filterjit.filter_jit(lambda *, a, b=2, c=3: (a, b, c))
    p = f.partial(a="a", b="b")
    assert p() == ("a", "b", 3) and p(b=5) == ("a", 5, 3) and p(c="c", a="d") == ("d", "b", "c")
    assert p() == ("a", "b", 3)
    assert p.keywords == {"a": "a", "b": "b"} and p.args == () and p.func is f


def test_errors() -> None:
    f = filterjit.filter_jit(lambda a, b: (a, b))
    for call in (f.partial(1), functools.partial(f.partial(1), 2, 3), f.partial(1, c=2)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError):
        f.partial(1)(2, a=3)
    assert f.partial(1)(2) == (1, 2)
    for bad in ((1, (), {}), (f, [], {}), (f, (), None), (f,)):
        with pytest.raises(TypeError):
            PartialFilterJit(*bad)
    with pytest.raises(TypeError, match="keywords must be strings"):
        PartialFilterJit(f, (), {1: 2})  # type: ignore[dict-item]


def test_what_its_function_has_and_it_has_not() -> None:
    f = filterjit.filter_jit(lambda x, y: x).partial(1)
    for name, has in (("warm_up", True), ("report", True), ("shape", False)):
        with pytest.raises(
            AttributeError, match=f"`PartialFilterJit` has no attribute `{name}`"
        ) as e:
            getattr(f, name)
        assert (f"`.func.{name}`" in str(e.value)) == has
        assert hasattr(f.func, name) == has


def test_copies_and_its_repr() -> None:
    f = filterjit.filter_jit(everything)
    p = PartialFilterJit(f, ([1, 2],), {"k": {"a": 3}})
    for q in (copy.copy(p), copy.deepcopy(p)):
        assert type(q) is PartialFilterJit
        assert q(5) == (([1, 2], 5), {"k": {"a": 3}})
    assert repr(p) == f"<partial of {f!r}, given 1 by position and ['k'] by name>"
    assert not hasattr(p, "function") and not hasattr(p, "__name__")
