"""Errors before the function runs: they name the place, and leave the cache unchanged."""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import filterjit
from support.comparison import Jit, Traces, check, on_both
from support.flax_nodes import FlaxStruct
from support.modules import Module
from support.nodes import Custom, Point, Registered

ONE = jnp.array(1.0)


class Unhashable:
    """Compares by value and has no hash."""

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Unhashable)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<unhashable>"


class BadRepr(Unhashable):
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@dataclasses.dataclass
class MutableConfig:
    n: int = 1


@dataclasses.dataclass(frozen=True)
class FrozenConfig:
    values: Any


UNHASHABLE: dict[str, tuple[Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]], str]] = {
    "first": (lambda v: ((v,), {}), "x"),
    "by keyword": (lambda v: ((), {"x": v}), "x"),
    "second": (lambda v: ((1, v), {}), "rest[0]"),
    "in *args": (lambda v: ((1, 2, 3, v), {}), "rest[2]"),
    "keyword-only": (lambda v: ((1,), {"k": v}), "k"),
    "in **kwargs": (lambda v: ((1,), {"b": v, "a": 1}), "more['b']"),
    "in a list": (lambda v: (([1, v],), {}), "x[1]"),
    "in a tuple": (lambda v: (((ONE, (1, v)),), {}), "x[1][1]"),
    "in a dict": (lambda v: (({"b": 1, "a": v},), {}), "x['a']"),
    "in a dict by int": (lambda v: (({3: v},), {}), "x[3]"),
    "in an OrderedDict": (lambda v: ((collections.OrderedDict(b=1, a=v),), {}), "x['a']"),
    "in a defaultdict": (lambda v: ((collections.defaultdict(int, a=v),), {}), "x['a']"),
    "in a named tuple": (lambda v: ((Point(1, v),), {}), "x.y"),
    "in a Module": (lambda v: ((Module(ONE, b=v),), {}), "x.b"),
    "deep": (lambda v: (([{"k": Module((1, Point(v)))}],), {}), "x[0]['k'].a[1].x"),
    "in a dataclass": (lambda v: ((Registered(v),), {}), "x.a"),
    "in a node": (lambda v: ((Custom(1, v),), {}), "x[1]"),
    "in a flax.struct": (lambda v: ((FlaxStruct(ONE, v),), {}), "x.b"),
}


def target(x: Any, *rest: Any, k: Any = None, **more: Any) -> Any:
    return ONE


@pytest.mark.parametrize("name", UNHASHABLE)
def test_unhashable_statics(jit: Jit, ours: bool, name: str) -> None:
    """The error names the place. The next good call traces no more often, whether the bad call was
    the first or came later."""
    traces = Traces()
    f = jit(traces.counting(target))
    make, path = UNHASHABLE[name]
    args, kwargs = make(5)
    bad = [{1, 2}, bytearray(b"a"), MutableConfig(), FrozenConfig([1]), FrozenConfig(ONE)]
    bad += [Unhashable(), set(range(10_000)), *([BadRepr()] if ours else [])]
    for value in bad:
        bad_args, bad_kwargs = make(value)
        with pytest.raises((TypeError, ValueError)) as info:
            f(*bad_args, **bad_kwargs)
        # By decision: an error of both types that names the place. Equinox raises JAX's ValueError,
        # which shows all static values at once.
        if ours:
            text = str(info.value)
            assert type(info.value) is filterjit.StaticArgumentError
            assert isinstance(info.value, TypeError) and isinstance(info.value, ValueError)
            assert f"`{path}`" in text and f"{type(value).__name__}`" in text
            assert ("<unhashable>" in text) == (type(value) is Unhashable) and len(text) < 600
        assert f(*args, **kwargs) == 1
        assert traces.count == 1, value


def test_path_in_a_method(jit: Jit) -> None:
    class M(eqx.Module):
        a: Any

        @jit
        def method(self, x: Any) -> Any:
            return x

        def __call__(self, x: Any) -> Any:
            return x

    for call, path in (
        (lambda: M(Unhashable()).method(ONE), "self.a"),
        (lambda: M(1).method({"k": Unhashable()}), "x['k']"),
        (lambda: jit(M([Unhashable()]))(ONE), "the function"),
        (lambda: jit(eqx.Partial(target, Unhashable()))(ONE), "the function"),
    ):
        with pytest.raises((TypeError, ValueError)) as info:
            call()
        if isinstance(info.value, filterjit.StaticArgumentError):
            assert f"`{path}" in str(info.value)
        else:
            assert jit is eqx.filter_jit


# ---- statics that misbehave ----


class Rebel:
    """Raises in `__hash__` or in `__eq__` while `hash_fails` or `eq_fails` is set."""

    def __init__(self, name: str = "") -> None:
        self.name, self.hash_fails, self.eq_fails = name, False, False

    def __hash__(self) -> int:
        if self.hash_fails:
            raise ZeroDivisionError("in __hash__")
        return 7

    def __eq__(self, other: Any) -> bool:
        if self.eq_fails or getattr(other, "eq_fails", False):
            raise ZeroDivisionError("in __eq__")
        return isinstance(other, Rebel) and self.name == other.name


def notes(error: BaseException) -> str:
    return " ".join(getattr(error, "__notes__", []))


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [1, {"k": v}], lambda v: Module(v),
                                  lambda v: Point(1, v)],
                         ids=["itself", "list", "Module", "named tuple"])  # fmt: skip
@pytest.mark.parametrize("method", ["hash", "eq"])
def test_methods_that_raise(jit: Jit, ours: bool, wrap: Any, method: str) -> None:
    """JAX turns the error into a ValueError; filterjit raises it unchanged, with a note."""
    traces = Traces()
    f = jit(traces.counting(target))
    good, bad = wrap(Rebel("one")), Rebel("one" if method == "hash" else "two")
    assert f(good) == 1
    for _ in range(2):
        setattr(bad, f"{method}_fails", True)
        with pytest.raises((ZeroDivisionError, ValueError)) as info:
            f(wrap(bad))
        if ours:
            assert type(info.value) is ZeroDivisionError
            doing = "hashing" if method == "hash" else "comparing"
            assert f"while {doing} the static `x" in notes(info.value)
        setattr(bad, f"{method}_fails", False)
        assert f(good) == 1
    assert f(wrap(bad)) == 1
    assert traces.count == (1 if method == "hash" else 2)


def test_eq_that_answers_with_an_array(jit: Jit, ours: bool) -> None:
    class ArrayLike:
        def __eq__(self, other: Any) -> Any:
            return np.array([True, False])

        def __hash__(self) -> int:
            return 3

    f = jit(lambda x: ONE)  # a new function: keys of other tests would be compared too
    assert f(ArrayLike()) == 1
    with pytest.raises(ValueError, match=r"truth value|ambiguous|static|hash") as info:
        f(ArrayLike())
    if ours:
        assert "`x`" in notes(info.value)


@pytest.mark.parametrize(
    "bad, path",
    [
        ({1: ONE, "a": ONE}, "x"),
        ([{"k": {None: 1, 0: 2}}], "x[0]['k']"),
        (Point({1: 1, "a": 2}), "x.x"),
        ({(1, "a"): 1, ("a", 1): 2}, "x"),
    ],
    ids=["top", "nested", "named tuple", "tuples"],
)
def test_keys_that_cannot_be_sorted(jit: Jit, ours: bool, bad: Any, path: str) -> None:
    traces = Traces()
    f = jit(traces.counting(target))
    assert f({"a": 1}) == 1
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=r"sort|compar|<") as info:
            f(bad)
        if ours:
            assert f"`{path}`" in str(info.value)
        assert f({"a": 1}) == 1
    assert traces.count == 1


def test_keys_whose_comparison_raises(jit: Jit) -> None:
    class Key:
        def __lt__(self, other: Any) -> bool:
            raise ZeroDivisionError("in __lt__")

    f = jit(lambda x: ONE)
    with pytest.raises((ZeroDivisionError, ValueError, TypeError)):
        f({Key(): 1, Key(): 2})
    assert f(1) == 1


# ---- depth ----


def cyclic(make: Callable[[Any], Any]) -> Any:
    """Returns a tree that has itself in it."""
    holder: list[Any] = [1]
    holder.append(make(holder))
    return holder


def deep(make: Callable[[Any], Any]) -> Any:
    x: Any = make(1)
    for _ in range(100_000):
        x = make(x)
    return x


ENDLESS: dict[str, Callable[[], Any]] = {
    "list": lambda: cyclic(lambda x: x),
    "dict": lambda: cyclic(lambda x: {"self": x}),
    "Module": lambda: cyclic(Module),
    "deep list": lambda: deep(lambda x: [x]),
    "deep tuple": lambda: deep(lambda x: (x,)),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_trees(name: str) -> None:
    """A RecursionError, not a crash, of an argument, a static and a result. Runs on filterjit only:
    JAX's own flattening may crash."""
    traces = Traces()
    f = filterjit.filter_jit(traces.counting(target))
    assert f([1]) == 1
    tree, module = ENDLESS[name](), Module(1)
    object.__setattr__(module, "name", tree)
    static = [((module,), {})] if name == "deep tuple" else []
    for args, kwargs in [((tree,), {}), ((1,), {"k": tree}), *static] * 2:
        with pytest.raises(RecursionError):
            f(*args, **kwargs)
        assert f([1]) == 1
    assert traces.count == 1
    assert f(Module(1, ((((1,),),),))) == 1  # type: ignore[arg-type]
    g = filterjit.filter_jit(lambda x, make: make())
    with pytest.raises(RecursionError):
        g(ONE, ENDLESS[name])
    assert g(ONE, list) == []


def test_moderately_deep_trees(jit: Jit) -> None:
    """Trees of a depth that JAX itself handles."""
    x: Any = ONE
    for i in range(300):
        x = [x, i] if i % 2 else {"k": x}
    f = jit(lambda x: x)
    for _ in range(2):
        assert jtu.tree_structure(f(x)) == jtu.tree_structure(x)


# ---- arrays that are gone ----


@pytest.mark.parametrize("where", ["first", "in a Module", "the function", "keyword"])
def test_deleted_arrays(jit: Jit, ours: bool, where: str) -> None:
    class Held(eqx.Module):
        w: Any

        def __call__(self, x: Any, k: Any = None) -> Any:
            return jnp.ones(3)

    f = jit(Held(ONE))
    assert f([ONE]).tolist() == [1, 1, 1]
    gone = jnp.arange(3.0)
    held = jit(Held(gone), keep_unused=True)
    gone.delete()
    calls: dict[str, Callable[[], Any]] = {
        "first": lambda: jit(lambda x: x + 1)(gone),
        "in a Module": lambda: jit(lambda m: m.a[0] + 1)(Module([gone])),
        "the function": lambda: held([ONE]),
        "keyword": lambda: jit(lambda x, *, k: x + k["a"])(ONE, k={"a": gone}),
    }
    path = {"first": "x", "in a Module": "m.a[0]", "the function": "the function.w",
            "keyword": "k['a']"}[where]  # fmt: skip
    for _ in range(2):
        with pytest.raises((RuntimeError, ValueError), match="deleted") as info:
            calls[where]()
        if ours:
            assert path in notes(info.value)


def test_after_a_deleted_array(jit: Jit) -> None:
    traces = Traces()
    f = jit(traces.counting(lambda x: x + 1))
    gone = jnp.arange(3.0)
    assert f(gone).tolist() == [1, 2, 3]
    gone.delete()
    for _ in range(2):
        with pytest.raises((RuntimeError, ValueError), match="deleted"):
            f(gone)
        assert f(jnp.arange(3.0)).tolist() == [1, 2, 3]
    assert traces.count == 1


# ---- the rest ----


def test_statics_that_change_their_hash_while_called(jit: Jit) -> None:
    """A hash that differs each time: each call traces, and none fails."""
    count = 0

    class Restless:
        def __hash__(self) -> int:
            nonlocal count
            count += 1
            return count

        def __eq__(self, other: Any) -> bool:
            return self is other

    restless = Restless()
    f = jit(lambda r, x: x + 1)
    for _ in range(3):
        assert f(restless, ONE) == 2


def test_statics_that_call_the_function_again() -> None:
    """An ``__eq__`` that calls the function that is being called."""

    class Calls:
        def __init__(self, n: int) -> None:
            self.n = n

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: Any) -> bool:
            f("within", ONE)
            return isinstance(other, Calls) and self.n == other.n

    f = filterjit.filter_jit(lambda s, x: x + getattr(s, "n", 0))
    for n in (1, 2, 3, 2, 1):
        assert f(Calls(n), ONE) == 1 + n


def test_arguments_that_change_while_they_are_taken_apart() -> None:
    """A list emptied by the ``__hash__`` of one of its elements."""

    class Empties:
        def __init__(self, holder: list[Any]) -> None:
            self.holder = holder

        def __hash__(self) -> int:
            self.holder.clear()
            return 1

        def __eq__(self, other: Any) -> bool:
            return isinstance(other, Empties)

    f = filterjit.filter_jit(lambda xs, y: y)
    for _ in range(3):
        holder: list[Any] = []
        holder += [Empties(holder), 1, ONE, "x"]
        try:
            assert f(holder, ONE) == 1
        except RuntimeError as e:
            assert "changed" in str(e)
    assert f([], ONE) == 1


def test_numpy_statics_in_tuples_of_static_fields(jit: Jit) -> None:
    """An array in a static field: an error, or a comparison by identity, never a crash."""

    def body(jit: Jit) -> Any:
        with pytest.warns(UserWarning, match="A JAX array is being set as static"):
            m = Module(1, jnp.ones(2))  # type: ignore[arg-type]
        f = jit(lambda m, x: x + m.name.sum())
        return f(m, ONE), f(m, ONE)

    check(body)


def test_errors_are_fresh_each_time() -> None:
    """An error has no path or note of an earlier one."""
    error = ZeroDivisionError("always the same object")

    class Raises:
        def __hash__(self) -> int:
            raise error

    f = filterjit.filter_jit(target)
    for args in (([Raises()],), (1, Raises())):
        error.__notes__ = []
        with pytest.raises(ZeroDivisionError) as info:
            f(*args)
        assert len(info.value.__notes__) == 1
    assert "rest[0]" in info.value.__notes__[0]


@on_both
def test_incompatible_devices_or_shardings(jit: Jit) -> Any:
    """JAX's message for arguments on incompatible devices."""
    mesh = jax.make_mesh((1,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    sharded = jax.device_put(jnp.ones(2), jax.NamedSharding(mesh, jax.P("a")))
    f = jit(lambda x, y: x + y)
    result = f(sharded, jnp.ones(2))
    return result, str(result.sharding.spec) if hasattr(result.sharding, "spec") else None
