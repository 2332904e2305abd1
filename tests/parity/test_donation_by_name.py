"""`filter_jit(donate=...)` by names of parameters and by path patterns, and `donate_unused`."""

import pickle
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import filterjit
from filterjit import Filter, filter_jit


def array(value: float = 1.0, size: int = 4) -> jax.Array:
    return jnp.full((size,), value)


def deleted(tree: Any) -> list[bool]:
    return [x.is_deleted() for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]


def doubled(state: Any, model: Any = None, *rest: Any, cache: Any = None, **more: Any) -> Any:
    return jax.tree.map(
        lambda x: x * 2 if eqx.is_array(x) else x, (state, model, rest, cache, more)
    )


def net() -> Any:
    return eqx.nn.MLP(2, 2, 3, 1, key=jax.random.key(0))


@pytest.mark.parametrize("donate", [("state",), ["state"], {"state"}, {"state": True}], ids=repr)
def test_names(donate: Any) -> None:
    f = filter_jit(doubled, donate=donate)
    for _ in range(25):
        state, model = {"a": array(), "n": 3}, [array()]
        f(state, model)
        assert deleted((state, model)) == [True, False]
        state = {"a": array(), "n": 3}
        f(model=model, state=state)
        assert deleted((state, model)) == [True, False]


def test_all_kinds_of_parameters() -> None:
    f = filter_jit(doubled, donate=("rest", "cache", "other"))
    state, model, one, two, cache, other, kept = (array(i) for i in range(7))
    f(state, model, one, [two], cache={"c": cache}, other=other, kept=kept)
    given = [state, model, one, two, cache, other, kept]
    assert deleted(given) == [False, False, True, True, True, True, False]
    f(array(), array())  # nothing that is donated was given


def test_the_name_of_keywords() -> None:
    f = filter_jit(doubled, donate=("more",))
    x, y = array(), array()
    f(x, other=y)
    assert deleted([x, y]) == [False, True]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**.weight", [True, False, True, False]),
        ("layers[0].**", [True, True, False, False]),
        (Filter("**.weight") | "**.bias", [True] * 4),
        (~Filter("layers[1].*"), [True, True, False, False]),
        (True, [True] * 4),
        (False, [False] * 4),
    ],
    ids=repr,
)
def test_patterns(pattern: Any, expected: list[bool]) -> None:
    f = filter_jit(doubled, donate={"state": True, "model": pattern})
    for _ in range(3):
        state, model = array(), net()
        f(state, model)
        arrays = [y for layer in model.layers for y in (layer.weight, layer.bias)]
        assert deleted([state, *arrays]) == [True, *expected]


def test_a_pattern_of_a_keyword() -> None:
    f = filter_jit(doubled, donate={"other": "a"})
    other = {"a": array(), "b": array()}
    f(array(), other=other)
    assert deleted(other) == [True, False]


def test_wrong_names_and_patterns() -> None:
    f = filter_jit(lambda state, model: state, donate=("stat", "model"))
    x = array()
    with pytest.raises(ValueError, match=r"'stat', which is not a parameter.*mean 'state'"):
        f(x, x)
    f = filter_jit(lambda state: state, donate={"state": "**.weights"})
    with pytest.raises(ValueError, match=r"matches no array: the argument has `b`, `w`") as e:
        f({"w": x, "b": x})
    assert "'**.weights'" in str(e.value) and "'state'" in str(e.value)
    assert f.cache_info().variants == 0 and not x.is_deleted()
    for wrong, error in (
        (3, TypeError),
        ((0,), TypeError),
        ({0: True}, TypeError),
        ({"state": eqx.is_array}, ValueError),
        ({"state": object()}, ValueError),
        ("state", ValueError),
    ):
        with pytest.raises(error):
            filter_jit(doubled, donate=wrong)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="donate_unused"):
        filter_jit(doubled, donate_unused="no")  # type: ignore[call-overload]


@pytest.mark.parametrize("donate", [("state",), "all"], ids=str)
def test_memory_that_no_result_can_take(donate: Any) -> None:
    def total(state: Any) -> Any:
        return state["a"] * 2, state["b"].sum()

    def state() -> Any:
        return {"a": array(), "b": array(size=3)}

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filter_jit(total, donate=donate)(state())
        filter_jit(total, donate=donate, donate_unused="ignore")(state())
    f = filter_jit(total, donate=donate, donate_unused="warn")
    with pytest.warns(UserWarning, match=r"`state\['b'\]`: float32\[3\]: no such result"):
        f(state())
    f = filter_jit(total, donate=donate, donate_unused="raise")
    with pytest.raises(ValueError, match=r"`state\['b'\]`: float32\[3\]: no such result"):
        f(state())
    assert f.cache_info().variants == 0
    enough = filter_jit(doubled, donate=donate, donate_unused="raise")
    enough(state())


def test_one_result_takes_the_memory_of_one_array() -> None:
    f = filter_jit(lambda a, b: a + b, donate=("a", "b"), donate_unused="raise")
    with pytest.raises(ValueError, match="`b`: float32") as e:
        f(array(), array())
    assert "`a`" not in str(e.value)


def test_with_shardings() -> None:
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    f = filter_jit(
        lambda state, x: (state * 2, x.sum()),
        donate=("state", "x"), donate_unused="raise", out_shardings=sharding,
    )  # fmt: skip
    with pytest.raises(ValueError, match="`x`: float32"):
        f(array(), array(size=3))
    g = filter_jit(lambda state, x: (state * 2, x), donate=("state",), out_shardings=sharding)
    state, x = array(), array()
    g(state, x)
    assert deleted([state, x]) == [True, False]


def test_methods_that_keep_arguments() -> None:
    f = filter_jit(doubled, donate={"state": True, "cache": "a"})
    with pytest.raises(ValueError, match=r"argument 0 of `partial` would be donated"):
        f.partial(array())
    with pytest.raises(ValueError, match=r"`cache` of `partial` would be donated"):
        f.partial(cache=array())
    model = array()
    g = f.partial(model=model)
    state = array()
    g(state)
    assert deleted([state, model]) == [True, False]


def test_functions_of_equal_options_share_their_programs() -> None:
    f, g = (filter_jit(doubled, donate=("state",)) for _ in range(2))
    assert f == g and filter_jit(doubled, donate=("model",)) != f
    assert "donate=('state',)" in str(f._hooks.settings)
    again = pickle.loads(pickle.dumps(f))
    state = array()
    again(state)
    assert deleted(state) == [True]


def test_under_a_trace_nothing_is_donated() -> None:
    f = filterjit.filter_jit(doubled, donate=("state",))
    x = array()
    jax.jit(lambda y: f(y)[0])(x)
    assert not x.is_deleted()
