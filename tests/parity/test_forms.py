"""What can be jitted, and how the result looks: functions, partials, Modules, callable objects."""

import copy
import functools
import gc
import inspect
import pickle
import sys
import typing
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import filterjit
from filterjit._compat import _nnx_compat
from support.callables import CALLABLES, Affine, decorated, scale
from support.comparison import Jit, Traces, check, check_error, comparable, on_both
from support.trees import MODULES, ONE, TWO
from support.versions import auto_mesh

EVERY = CALLABLES | {
    name: MODULES[name]()
    for name in (
        *("of functions", "wrapper", "wrapper in a wrapper"),
        *("bound method", "bound method of a nested one", "filter_grad", "filter_checkpoint"),
    )
}


@pytest.mark.parametrize("name", EVERY)
def test_callables(name: str) -> None:
    fun = EVERY[name]
    check(lambda jit: (jit(fun)(ONE), jit(fun)(TWO), jit()(fun)(ONE), fun(ONE))[:3])
    # As an argument of another function.
    call = lambda f, x: f(x)
    check(lambda jit: (jit(call)(fun, ONE), jit(call)(jit(fun), TWO)))
    signature = check(lambda jit: str(inspect.signature(jit(fun))))
    assert signature == str(inspect.signature(fun))
    if name not in ("eqx.filter_jit", "filterjit.filter_jit"):
        check(lambda jit: jit(fun).__wrapped__)
    if name in CALLABLES and "filter_jit" not in name:  # for some Modules, Equinox has its own mark
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            check(lambda jit, a=attribute: getattr(jit(fun), a, "no such attribute"))


def test_what_equinox_does_otherwise() -> None:
    """By decision. A jitted function is a pytree, and no Module. As a function, it can be given
    attributes. It takes over those of what is jitted, as ``functools.wraps`` does, and holds that
    itself, not a copy."""

    def f(x: Any) -> Any:
        return x

    f.note = "mine"  # type: ignore[attr-defined]
    jitted, affine = filterjit.filter_jit(f), Affine(TWO)
    assert jitted.note == "mine" and not isinstance(jitted, eqx.Module)
    jitted.note = "another"
    assert (jitted.note, f.note) == ("another", "mine")  # type: ignore[attr-defined]
    assert repr(filterjit.filter_jit(scale)).startswith("<filter_jit of <function scale")
    assert repr(filterjit.filter_jit(affine)).startswith("<filter_jit of Affine")
    assert filterjit.filter_jit(affine).__wrapped__ is affine
    assert jtu.tree_leaves(jitted) == []
    assert jtu.tree_leaves(filterjit.filter_jit(affine)) == [affine.w]  # not the number


def test_annotations_are_read_and_set() -> None:
    """As of a function, they are evaluated when they are read, from Python 3.14 on."""

    def f(x: int) -> Any:
        return x

    g = filterjit.filter_jit(f)
    assert g.__annotations__ == f.__annotations__
    assert typing.get_type_hints(g) == typing.get_type_hints(f)
    g.__annotations__ = {"x": str}
    assert g.__annotations__ == {"x": str} and f.__annotations__["x"] in (int, "int")
    del g.__annotations__
    # Before Python 3.14, who reads those of the class FilterJit leaves an empty dict in the class.
    assert not getattr(filterjit.filter_jit(functools.partial(f)), "__annotations__", None)
    bound = type("Owner", (), {"f": g})().f
    assert getattr(bound, "__annotations__", None) == getattr(g, "__annotations__", None)


# Calls of either `filter_jit`, and the first words of the error.
AS_EQUINOX: list[tuple[Callable[[Jit], Any], type[Exception], str]] = [
    *((lambda jit, bad=bad: jit(bad), TypeError, "is not a callable object")
      for bad in (None, 3, "name", [], ONE, property(lambda self: 1), classmethod(scale))),
    *((lambda jit, bad=bad: jit(bad), ValueError, "no signature found") for bad in (max, dict, type)),
    *((lambda jit, bad=bad: jit(donate=bad)(scale), ValueError, "must be one of 'all'")
      for bad in ("some", "")),
    *((lambda jit, n=n: jit(scale, **{n: 1}), ValueError, f"^{n} is deprecated")
      for n in ("default", "fn", "args", "kwargs", "out")),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "words"), AS_EQUINOX)
def test_refused_as_by_equinox(call: Any, kind: type[Exception], words: str) -> None:
    check_error(call, kind, words)


@pytest.mark.parametrize(
    "options", [{"inline": True}, {"keep_unused": True}, {"keep_unused": False, "inline": False}]
)
@on_both
def test_jitkwargs(jit: Jit, traces: Traces, options: dict[str, Any]) -> Any:
    def f(x: Any, y: Any, z: Any = 3) -> Any:
        traces.tick()
        return x + 1, z

    f1, f2 = jit(f, **options), jit(**options)(f)
    results = [f1(ONE, TWO), f1(TWO, TWO), f2(ONE, TWO, 4), f1(ONE, 5)]
    text = f1.lower(ONE, TWO).as_text()
    jaxpr = str(jax.make_jaxpr(lambda x: f1(x, x)[0])(ONE))
    # keep_unused changes how many parameters the program has, inline changes the jaxpr.
    return results, traces.count, text.count("%arg1"), "jit" in jaxpr


def _raised(f: Any) -> Any:
    """Returns the type of the error that a function raises in a trace, or None."""
    try:
        jax.jit(f)(ONE)
    except Exception as e:
        return type(e)
    return None


def test_compiler_options(jit: Jit) -> None:
    options = {"xla_embed_ir_in_executable": True}
    f = jit(scale, compiler_options=options)
    assert (f(ONE), f(TWO), f(ONE, 3)) == (2, 4, 3)
    plain = jax.jit(lambda x: x * 2, compiler_options=options)
    assert _raised(lambda x: f(x)) == _raised(lambda x: plain(x))  # in a trace
    with pytest.raises(jax.errors.JaxRuntimeError, match="no such option"):
        jit(scale, compiler_options={"no such option": "1"})(ONE)


def test_copies_behave_alike(jit: Jit, traces: Traces) -> None:
    f = jit(traces.counting(scale))
    for twin in (copy.copy(f), copy.deepcopy(f)):
        assert twin(ONE) == 2 and twin.__name__ == "scale"
    assert traces.count == 1
    assert copy.copy(jit(Affine(TWO)))(ONE) == 3


@pytest.mark.parametrize("name", ["function", "Module", "functools.partial", "staticmethod"])
def test_pickle_of_a_wrapper(name: str) -> None:
    fun = CALLABLES[name]
    f = filterjit.filter_jit(fun, donate="all")
    twin = pickle.loads(pickle.dumps(f))
    assert comparable(twin(jnp.array(1.0))) == comparable(fun(ONE))
    assert twin._hooks.settings.donate.mode == "all"
    assert str(inspect.signature(twin)) == str(inspect.signature(f))


class Jitted(eqx.Module):
    a: Any

    @filterjit.filter_jit
    def method(self, x: Any) -> Any:
        return self.a * x


def test_pickles_by_name() -> None:
    """As of functions. Equinox's wrapper cannot be pickled."""
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    bound = Jitted(3).method
    for dumps in (pickle.dumps, pickle._dumps):  # type: ignore[attr-defined]
        twin = pickle.loads(dumps(bound))
        assert twin.__func__ is bound.__func__ and twin(ONE) == 3
    assert copy.copy(bound)(ONE) == copy.deepcopy(bound)(ONE) == 3


def test_cloudpickle() -> None:
    """It pickles by value what cannot be imported: local classes, functions that refer to
    themselves, and formerly the type of bound methods, without end."""
    cloudpickle = pytest.importorskip("cloudpickle")

    @filterjit.filter_jit
    def power(n: int, x: Any) -> Any:
        return ONE if n == 0 else x * power(n - 1, x)

    class Local(Jitted):
        @filterjit.filter_jit
        def local(self, x: Any) -> Any:
            return self.a * x, Local

    def again(x: Any) -> Any:
        return pickle.loads(cloudpickle.dumps(x))

    assert power(3, TWO) == again(power)(3, TWO) == 8
    assert again(Local(3).local)(ONE)[0] == again(Local(3)).local(ONE)[0] == 3
    assert again(Jitted(3).method)(ONE) == 3


X = jnp.arange(2.0)


def named(x: Any) -> Any:
    "Doc."
    return x


JITS = [filterjit.jit, filterjit.filter_jit, filterjit.nnx.jit]


@pytest.mark.parametrize("jit", JITS)
def test_functions_of_the_main_script(jit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cloudpickle pickles may be loaded where another script is the main one: by value."""
    cloudpickle = pytest.importorskip("cloudpickle")
    f = jit(lambda x: x * 3)
    f.__module__, f.__qualname__ = "__main__", "of_main"
    monkeypatch.setattr(sys.modules["__main__"], "of_main", f, raising=False)
    assert pickle.loads(pickle.dumps(f)) is f
    twin = pickle.loads(cloudpickle.dumps(f))
    assert twin is not f and twin(ONE) == 3


@pytest.mark.parametrize("jit", [*JITS, jax.jit])
def test_what_can_be_set_on_a_jitted_function(jit: Any) -> None:
    for name in ("__wrapped__", "__name__", "__doc__", "__module__", "note"):
        f = jit(lambda x: x + 1)
        setattr(f, name, "mine")
        assert getattr(f, name) == "mine"
        assert f(X).tolist() == f(X).tolist() == [1, 2]


@pytest.mark.parametrize("jit", JITS)
def test_wraps_around_a_jitted_function(jit: Any) -> None:
    if jit is filterjit.nnx.jit and not _nnx_compat.supported:
        pytest.skip("filterjit.nnx hands over all calls with this version of Flax")
    f = functools.wraps(named)(jit(lambda x: x + 1))
    assert f.__wrapped__ is named and (f.__name__, f.__doc__) == ("named", "Doc.")
    assert f(X).tolist() == f(X).tolist() == [1, 2]
    assert jax.make_jaxpr(f)(X).out_avals[0].shape == (2,)
    assert f.lower(X).compile()(X).tolist() == [1, 2]
    assert f.explain(X).hit and "lambda" in repr(f)
    f.clear_cache()
    assert f(X).tolist() == [1, 2]
    del f.__wrapped__
    with pytest.raises(AttributeError):
        del f.__wrapped__


def test_wraps_around_a_pytree_that_jax_rebuilt() -> None:
    f = functools.wraps(named)(filterjit.filter_jit(eqx.nn.Linear(2, 2, key=jax.random.key(0))))
    other = jax.tree.map(jnp.zeros_like, f)
    assert other(X).tolist() == [0, 0] and isinstance(other.__wrapped__, eqx.nn.Linear)


def sizes(f: Any) -> tuple[int, int, int]:
    f(X)
    before = f._cache_size()
    f._clear_cache()
    between = f._cache_size()
    f(X)
    return before, between, f._cache_size()


def size_of_placements(jit: Any) -> list[int]:
    f, found = jit(lambda x: x + 1), []
    placed = jax.device_put(X, jax.sharding.NamedSharding(auto_mesh("x"), P("x")))
    for x in (X, X, X[:1], jax.device_put(X, jax.devices()[0]), placed, X):
        f(x)
        found.append(f._cache_size())
    assert jit is jax.jit or f.cache_info().programs == found[-1]
    return found


USED_BY_LIBRARIES: dict[str, Callable[[Any], Any]] = {
    "_cache_size and _clear_cache": lambda jit: sizes(jit(lambda x: x + 1)),
    "_cache_size of placements": size_of_placements,
    "_fun": lambda jit: jit(named)._fun is named,
    "_jit_info": lambda jit: jit(named, static_argnames="x")._jit_info.static_argnames,
    "clear_cache": lambda jit: jit(named).clear_cache(),
}


@pytest.mark.parametrize("name", USED_BY_LIBRARIES)
def test_what_libraries_use_of_a_jitted_function(name: str) -> None:
    program = USED_BY_LIBRARIES[name]
    assert program(filterjit.jit) == program(jax.jit)


@pytest.mark.parametrize("jit", JITS)
def test_no_tracing_names_the_users_function(jit: Any) -> None:
    def text(jit: Any) -> str:
        f = jit(named)
        with jax.no_tracing(True), pytest.raises(RuntimeError) as raised:
            f(X)
        return str(raised.value)

    assert text(jit) == text(jax.jit)
    assert f"named at {__file__}:" in text(jit)


def test_a_wrapper_that_compiled_may_die_before_an_equal_one() -> None:
    """They share their programs, also those with shardings."""
    mesh = auto_mesh("a")
    for options in ({"maxsize": 5}, {"in_shardings": P("a"), "donate": "all", "mesh": mesh}):

        def f(x: Any) -> Any:
            return x + 1

        first = filterjit.filter_jit(f, **options)
        first.cache_info()
        second = filterjit.filter_jit(f, **options)
        second(jnp.ones(2))
        del second
        gc.collect()
        for n in (2, 3, 3):
            np.testing.assert_array_equal(first(jnp.ones(n)), 2 * np.ones(n))
        assert first.eval_shape(jnp.ones(4)).shape == (4,)
        assert first.cache_info()[:3] == (2, 2, 1)


@pytest.mark.parametrize(
    "jitted", [filterjit.filter_jit(abs), filterjit.jit(abs), Jitted(3).method, jax.jit(abs)]
)
def test_a_jitted_function_is_seen_to_be_one(jitted: Any) -> None:
    """What a library asks that refuses such functions, and what people ask of ``jax.jit``."""
    chex, hk = pytest.importorskip("chex"), pytest.importorskip("haiku")
    for refuse in (lambda: chex.assert_max_traces(jitted, 1), lambda: hk.transform(jitted)):
        with pytest.raises(ValueError, match="jit"):
            refuse()
    assert isinstance(jitted, jax.stages.Wrapped) and jitted.__wrapped__(-1) in (1, -3)
    before = jitted._cache_size()
    jitted(jnp.ones(2))
    assert jitted._cache_size() == before + 1
    assert jitted.eval_shape(jnp.ones(3)).shape == (3,)
