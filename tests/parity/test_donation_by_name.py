"""`filter_jit(donate=...)` by names of parameters and by filters, and the warning of what no result can take."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from filterjit import Filter, filter_jit
from support.donation import array, deleted


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


def test_keywords() -> None:
    x, y = array(), array()
    filter_jit(doubled, donate=("more",))(x, other=y)
    assert deleted([x, y]) == [False, True]
    f = filter_jit(doubled, donate={"other": "a"})
    other = {"a": array(), "b": array()}
    f(array(), other=other)
    assert deleted(other) == [True, False]


def test_wrong_names_and_patterns() -> None:
    for option in ("donate", "traced"):
        with pytest.raises(
            ValueError, match=rf"`{option}` names 'stat', which is not a parameter.*mean 'state'"
        ):
            filter_jit(lambda state, model: state, **{option: ("stat", "model")})
    x = array()
    f = filter_jit(lambda state: state, donate={"state": "**.weights"})
    with pytest.raises(ValueError, match=r"matches no leaf: the tree has `b`, `w`") as e:
        f({"w": x, "b": x})
    assert "'**.weights'" in str(e.value) and "'state'" in str(e.value)
    assert f.cache_info().variants == 0 and not x.is_deleted()
    for wrong, error in (
        (3, TypeError),
        ((0,), TypeError),
        ({0: True}, TypeError),
        ({"state": object()}, ValueError),
        ("state", ValueError),
    ):
        with pytest.raises(error):
            filter_jit(doubled, donate=wrong)  # type: ignore[call-overload]


def is_matrix(x: Any) -> bool:
    return bool(x.ndim > 1)


def parts() -> Any:
    """A tree with a static leaf, of which a filter of arrays is not asked."""
    return {"w": jnp.ones((2, 2)), "b": array(), "n": jnp.arange(4), "name": "f"}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (is_matrix, [False, False, True]),
        (lambda x: x.ndim < 1, [False] * 3),
        (eqx.is_inexact_array, [True, False, True]),
        (eqx.is_array, [True] * 3),
        (jnp.integer, [False, True, False]),
        (Filter(jnp.floating) & "b", [True, False, False]),
        (~Filter(is_matrix), [True, True, False]),
        ({"w": True, "b": is_matrix, "n": False, "name": True}, [False, False, True]),
    ],
    ids=lambda x: "",
)
@pytest.mark.parametrize("sharded", [False, True])
def test_filters_of_arrays(chosen: Any, expected: list[bool], sharded: bool) -> None:
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    options: dict[str, Any] = {"out_shardings": sharding} if sharded else {}
    f = filter_jit(doubled, donate={"state": chosen}, **options)
    for _ in range(25):
        state, model = parts(), array()
        out = f(state, model)
        assert deleted([state[k] for k in "bnw"]) == expected and not model.is_deleted()
        assert out[0]["w"].tolist() == [[2, 2], [2, 2]] and out[0]["name"] == "f"
    assert f.cache_info().variants == 1 and f._cache_size() == 1
    g = f.partial(model=model)
    g(state := parts())
    assert deleted([state[k] for k in "bnw"]) == expected
    kept = parts()
    jax.jit(lambda w: f({**kept, "w": w})[0]["w"])(kept["w"])
    assert not any(deleted(kept))


def test_a_filter_of_arrays_that_sees_other_shapes() -> None:
    f = filter_jit(lambda state: doubled(state), donate={"state": is_matrix})
    for _ in range(20):
        for shape in ((3,), (3, 3), (2, 3), (1,)):
            state = {"a": jnp.ones(shape), "b": jnp.ones((2, 2))}
            out = f(state)[0]
            assert deleted(state) == [len(shape) > 1, True]
            assert out["a"].shape == shape and (out["a"] == 2).all()
    assert f.cache_info().variants == 1 and f._cache_size() == 4


def test_a_filter_of_arrays_cannot_ask_for_values() -> None:
    f = filter_jit(doubled, donate={"state": lambda x: x.sum() > 0})
    state = array()
    with pytest.raises(jax.errors.TracerBoolConversionError):
        f(state)
    assert not state.is_deleted() and f.cache_info().variants == 0


def test_filters_of_arrays_beside_other_options() -> None:
    f = filter_jit(
        lambda state: state["w"].sum() + state["b"],
        donate={"state": eqx.is_inexact_array},
    )
    with pytest.warns(
        UserWarning, match=r"`state\['w'\]`: float32\[2, 2\]: no such result"
    ) as caught:
        f(parts())
    assert {warning.filename for warning in caught} == {__file__}
    with pytest.raises(ValueError, match=r"would be donated"):
        filter_jit(doubled, donate={"state": is_matrix}).partial(array())
    g = filter_jit(doubled, donate={"state": is_matrix}, functions="structure")
    g({"w": (w := jnp.ones((2, 2))), "f": lambda: 1})
    assert w.is_deleted()
    compiled = g.lower({"w": jax.ShapeDtypeStruct((2, 2), "float32"), "f": len}).compile()
    compiled({"w": (w := jnp.ones((2, 2))), "f": len})
    assert w.is_deleted()
    with jax.disable_jit():
        g({"w": (w := jnp.ones((2, 2))), "f": len})
        assert not w.is_deleted()
    frozen = filter_jit(doubled, donate={"state": is_matrix}).freeze(model=array())
    frozen(w)
    assert w.is_deleted()


def test_memory_that_no_result_can_take() -> None:
    def total(state: Any) -> Any:
        return state["a"] * 2, state["b"].sum()

    def state() -> Any:
        return {"a": array(), "b": array(size=3)}

    for donate in ("all", {"state": "a"}):
        filter_jit(total, donate=donate)(state())  # type: ignore[call-overload]
    filter_jit(doubled, donate=("state",))(state())
    f = filter_jit(total, donate=("state",))
    with pytest.warns(UserWarning, match=r"`state\['b'\]`: float32\[3\]: no such result"):
        f(state())
    assert f.cache_info().variants == 1


@pytest.mark.parametrize(
    "call", [lambda f, *a: f(*a), lambda f, *a: f.lower(*a)], ids=["", "lower"]
)
@pytest.mark.parametrize(
    "donate",
    [("b",), {"b": "**"}, {"b": lambda x: x.ndim == 1}],
    ids=["name", "pattern", "function"],
)
@pytest.mark.parametrize("sharded", [False, True])
def test_unused_memory_can_be_an_error(donate: Any, sharded: bool, call: Any) -> None:
    """By Python's own filter of warnings; programs and arrays are as they were."""
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    f = filter_jit(
        lambda a, b: a + b.sum(), donate=donate, out_shardings=place if sharded else None
    )
    for size in (4, 4, 5):  # the first warning of a place is not the only one that counts
        a, b = array(), array(size=size + 1)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="donated arrays")
            with pytest.raises(UserWarning, match=r"`b`: float32\["):
                call(f, a, b)
        assert deleted(a, b) == [False, False] and f.variants == []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f(a, b)
    assert f._cache_size() == 1


def test_one_result_takes_the_memory_of_one_array() -> None:
    f = filter_jit(lambda a, b: a + b, donate=("a", "b"))
    with pytest.warns(UserWarning, match="`b`: float32") as e:
        f(array(), array())
    assert "`a`" not in str(e[0].message)


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
