"""`install` and `uninstall`: filterjit in the place of `equinox.filter_jit` and `flax.nnx.jit`, and
back."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import filterjit
import filterjit.nnx
from filterjit import _core, _install
from filterjit._compat import _equinox_compat
from filterjit._compat import _nnx_compat as compat
from support.threads import at_once


def runs_on_filterjit(f: object, *args: object) -> bool:
    """Whether filterjit dispatches a call of `f`: only there do 1 and True differ."""
    return f(1, *args) != f(True, *args)  # type: ignore[operator]


@eqx.filter_jit
def made_before(x: object) -> str:
    return type(x).__name__


# What is replaced, with the options of `install`.
REPLACED: dict[str, tuple[Callable[[], Any], Any, dict[str, Any]]] = {
    "filter_jit": (lambda: eqx.filter_jit, filterjit.filter_jit, {}),
    "nnx.jit": (lambda: nnx.jit, filterjit.nnx.jit, {}),
    "nnx.compat.jit": (lambda: nnx.compat.jit, None, {}),
    "nnx.cached_partial": (lambda: nnx.cached_partial, filterjit.nnx.cached_partial, {}),
    "nnx.compat.cached_partial": (lambda: nnx.compat.cached_partial, None, {}),
    "jax.jit": (lambda: jax.jit, None, {"jax": True}),
}


@pytest.mark.parametrize("name", REPLACED)
def test_what_is_replaced_and_put_back(name: str) -> None:
    """Installing, or uninstalling, twice has no further effect."""
    get, ours, options = REPLACED[name]
    original = get()

    def is_ours() -> bool:
        return get() is not original and ours in (None, get())

    for _ in range(2):
        filterjit.install(**options)
        assert is_ours()
    for _ in range(2):
        filterjit.uninstall()
        assert get() is original
    filterjit.install()
    assert is_ours() != bool(options)
    filterjit.uninstall()
    with filterjit.install(**options):
        assert is_ours()
        with filterjit.install():
            assert is_ours()
        assert is_ours()
    assert get() is original
    with pytest.raises(ZeroDivisionError), filterjit.install(**options):
        raise ZeroDivisionError
    assert get() is original


def test_options_of_a_wrapper_made_before() -> None:
    @eqx.filter_jit(donate="all-except-first", inline=True, keep_unused=True)
    def f(x: jax.Array, y: jax.Array) -> jax.Array:
        return x + y

    with filterjit.install():
        x, y = jnp.zeros(3), jnp.ones(3)
        f(x, y)
        assert not x.is_deleted()
        assert y.is_deleted()
        jaxpr = jax.make_jaxpr(lambda x, y: f(x, y))(x, jnp.ones(3))
    # Up to JAX 0.11 the trace inlines the function. Since 0.12 the lowering does, and the equation
    # of the call records the option.
    plain = jax.make_jaxpr(jax.jit(lambda x, y: x + y, inline=True, keep_unused=True))(x, x)
    assert _options_of_calls(jaxpr) == _options_of_calls(plain)


def _options_of_calls(jaxpr: Any) -> list[tuple[Any, Any]]:
    calls = [e.params for e in jaxpr.jaxpr.eqns if e.primitive.name in ("jit", "pjit")]
    return [(params["inline"], params["keep_unused"]) for params in calls]


def test_lower_of_a_wrapper_made_before() -> None:
    f = eqx.filter_jit(lambda x, n: x * n)
    with filterjit.install():
        compiled = f.lower(jnp.ones(2), 3).compile()
        assert compiled(jnp.ones(2), 3).tolist() == [3, 3]
        with pytest.raises(TypeError, match="compiled for other arguments"):
            compiled(jnp.ones(2), 4)


def test_a_wrapper_has_one_counterpart() -> None:
    f = eqx.filter_jit(lambda x: x)
    counterpart = _install._counterpart_of(f)
    assert isinstance(counterpart, _core.FilterJit)
    assert _install._counterpart_of(f) is counterpart
    for other in (copy.copy(f), copy.deepcopy(f), jax.tree_util.tree_map(lambda x: x, f)):
        assert _install._counterpart_of(other) is not counterpart
    assert _install._counterpart_of(f) is counterpart


def test_a_pickled_wrapper_needs_no_filterjit() -> None:
    """cloudpickle pickles a wrapper with its ``__dict__``."""
    f = eqx.filter_jit(lambda x: x)
    before = set(vars(f))
    with filterjit.install():
        f(1)
    [added] = vars(f).keys() - before
    data = pickle.dumps(vars(f)[added])
    assert b"filterjit" not in data
    object.__setattr__(f, added, pickle.loads(data))
    with filterjit.install():
        assert f(1) == 1


@pytest.mark.recompiles
def test_wrappers_made_before_that_refer_to_themselves_are_freed() -> None:
    original = eqx.filter_jit

    def make() -> Any:
        @original
        def f(x: Any, again: bool = True) -> Any:
            return f(x, False) if again else x

        return f

    alive = []
    with filterjit.install():
        for _ in range(20):
            f = make()
            f(jnp.ones(2))
            alive.append(weakref.ref(f))
            del f
        gc.collect()
        assert [ref() for ref in alive] == [None] * 20


def test_methods_of_a_module_made_before() -> None:
    class Model(eqx.Module):
        weight: jax.Array

        @eqx.filter_jit
        def __call__(self, x: jax.Array) -> jax.Array:
            return self.weight * x

    model = Model(jnp.array(3.0))
    before = model(jnp.array(2.0))
    with filterjit.install():
        assert model(jnp.array(2.0)) == before
        assert eqx.filter_vmap(model)(jnp.arange(3.0)).tolist() == [0, 3, 6]


def test_threads() -> None:
    def work(_: int) -> None:
        for i in range(30):
            with filterjit.install():
                assert made_before(float(i)) == "float"
            assert made_before(jnp.ones(2)).endswith("Tracer")

    assert at_once(6, work) == [None] * 6
    filterjit.uninstall()
    assert not runs_on_filterjit(made_before)


def test_unknown_equinox_warns_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    original = eqx.filter_jit
    # An Equinox whose wrapper lacks a field that filterjit needs.
    fields = dict(eqx._jit._JitWrapper.__dataclass_fields__)
    fields.pop("_cached")
    monkeypatch.setattr(eqx._jit._JitWrapper, "__dataclass_fields__", fields)
    with pytest.warns(UserWarning, match=eqx.__version__):
        filterjit.install()
    assert eqx.filter_jit is original
    assert not runs_on_filterjit(made_before)


def test_unknown_jit_options_run_on_equinox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_equinox_compat, "_JIT_INFO", ("an_option_of_tomorrow",))
    f = eqx.filter_jit(lambda x: type(x).__name__)
    with filterjit.install():
        assert not runs_on_filterjit(f)


def test_the_private_name_that_tests_use() -> None:
    with filterjit.install():
        f = eqx.filter_jit(lambda x: x + 1)
        sizes = [f._cached._cache_size(), f(jnp.ones(1)), f._cached._cache_size()]
        f._cached._clear_cache()  # type: ignore[attr-defined]
        assert [*sizes[::2], f._cached._cache_size()] == [0, 1, 0]  # type: ignore[attr-defined]


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        filterjit.nothing  # noqa: B018
    assert set(dir(filterjit)) == {
        *("__version__", "lax", "nnx", "sharding", "types"),
        *filterjit.__all__,
    }


def test_without_flax() -> None:
    original = nnx.jit
    filterjit.install(flax=False)
    assert nnx.jit is original
    with filterjit.install():
        assert nnx.jit is filterjit.nnx.jit
    assert nnx.jit is original
    assert eqx.filter_jit is filterjit.filter_jit


class Counter(nnx.Module):
    def __init__(self) -> None:
        self.count = nnx.Variable(jnp.zeros(()))


def test_both_modes_of_graphs() -> None:
    def f(m: Any) -> Any:
        m.count[...] += 1
        m.new = 1

    def g(m: Any) -> Any:
        m.count[...] += 1
        return m.count[...]

    before = nnx.jit(g)
    with filterjit.install():
        m = Counter()
        compatible = nnx.compat.jit(f)
        assert isinstance(compatible, filterjit.nnx.NNXJit)
        compatible(m)
        assert m.count[...] == 1 and m.new == 1
        assert not compatible.handed_over or not compat.supported
        assert nnx.jit(g)(m) == 2
        assert before(m) == 3
        assert not isinstance(before, filterjit.nnx.NNXJit)


@pytest.mark.skipif(not compat.supported, reason="all calls are handed over")
def test_cached_partial() -> None:
    def f(m: Any, n: Any) -> Any:
        m.count[...] += n
        return m.count[...]

    before = nnx.jit(f)
    with filterjit.install():
        m = Counter()
        jitted = nnx.jit(f)
        for cached_partial in (nnx.cached_partial, nnx.compat.cached_partial):
            assert cached_partial(jitted, m)(1) == m.count[...]
            assert cached_partial(before, m)(1) == m.count[...]
        assert m.count[...] == 4 and not jitted.handed_over


@pytest.mark.skipif(not compat.supported, reason="all calls are handed over, for that reason")
def test_a_report_tells_what_was_handed_over() -> None:
    with filterjit.install():

        @nnx.jit(static_argnames="m", graph=False)  # which is handed over
        def with_static_module(m: Any, n: Any) -> Any:
            return m.count[...] + n

        m = Counter()
        assert with_static_module(m, 1) == 1
        assert with_static_module(m, 2) == 2
    reason = "a static argument is a Variable or a Module"
    for report in (with_static_module.report(), filterjit.report()):
        assert f"2 of its calls fell back to flax.nnx.jit: {reason}." in str(report)
    row = with_static_module.report().as_dict()["functions"][0]
    assert row["handed_over"] == {reason: 2}
    assert row["name"].endswith("with_static_module")
