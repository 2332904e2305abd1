"""Where Equinox is not exact: equal is not the same; and how long things live."""

import collections
import dataclasses
import enum
import functools
import gc
import math
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from support.comparison import Jit, Traces, comparable
from support.nodes import Custom, FlaxStruct, Registered, Static

ONE = jnp.array(1.0)
NUMBERS = [1, True, 1.0, 0.0, -0.0]


class Holder(eqx.Module):
    x: Any = None
    s: Any = eqx.field(static=True, default=None)


@dataclasses.dataclass(frozen=True)
class Frozen:
    v: Any


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots:
    v: Any
    w: Any = 0


@dataclasses.dataclass(frozen=True)
class FrozenPartly:
    v: Any
    ignored: Any = dataclasses.field(default=0, compare=False)


class Pair(NamedTuple):
    a: Any
    b: Any = None


class FloatSubclass(float):
    pass


class IntSubclass(int):
    pass


class StrSubclass(str):
    pass


class TupleSubclass(tuple):
    __slots__ = ()


class Number(enum.IntEnum):
    ONE = 1


# Each puts a static in some place of an argument.
PLACES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda v: v,
    "tuple": lambda v: (v, "a"),
    "nested tuple": lambda v: ((("x", (v,)),), ()),
    "list": lambda v: [ONE, v],
    "dict": lambda v: {"k": v},
    "named tuple": lambda v: Pair(ONE, v),
    "Module": lambda v: Holder(v),
    "static field": lambda v: Holder(None, v),
    "tuple in a static field": lambda v: Holder(None, (1, (v, "a"))),
    "list in a static field": lambda v: Holder(None, [1, [v]]),
    "dict in a static field": lambda v: Holder(None, {"k": {"l": v}}),
    "frozen dataclass": lambda v: Frozen(v),
    "frozen dataclass with slots": lambda v: FrozenSlots(1, v),
    "frozen dataclass in a frozen dataclass": lambda v: Frozen(Frozen(v)),
    "tuple in a frozen dataclass": lambda v: Frozen((v, "a")),
    "frozen dataclass in a static field": lambda v: Holder(None, Frozen(v)),
    "dict key": lambda v: {v: ONE},
    "key of an OrderedDict": lambda v: collections.OrderedDict([(v, ONE)]),
    "tuple as a dict key": lambda v: {(v, "a"): ONE},
    "meta field": lambda v: Registered(ONE, meta=v),
    "tuple in a meta field": lambda v: Registered(ONE, meta=(v,)),
    "flax.struct": lambda v: FlaxStruct(ONE, meta=v),
    "aux data": lambda v: Custom(ONE, label=v),
    "treedef": lambda v: jtu.tree_structure({v: 1}),
    "range in a frozenset": lambda v: frozenset([(v, "a")]),
    "frozenset": lambda v: frozenset([v]),
}


def numbers_in(tree: Any) -> list[str]:
    """The numbers of an argument, wherever they are, with their types and signs."""
    if isinstance(tree, (bool, int, float)) and not isinstance(tree, enum.Enum):
        return [f"{type(tree).__name__} {tree!r}"]
    parts: Any = ()
    if isinstance(tree, (tuple, list, frozenset)):
        parts = tree
    elif isinstance(tree, dict):
        parts = tree.items()
    elif isinstance(tree, jtu.PyTreeDef):
        parts = [tree.node_data()[1]]
    elif isinstance(tree, Custom):
        parts = [tree.label]
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        parts = [getattr(tree, f.name) for f in dataclasses.fields(tree)]
    return [number for part in parts for number in numbers_in(part)]


@pytest.mark.parametrize("place", PLACES)
def test_five_variants(place: str) -> None:
    """By decision 1, True, 1.0, 0.0 and -0.0 are five; Equinox shares what is ==."""
    traces = Traces()

    @filterjit.filter_jit
    def f(x: Any, y: Any) -> Any:
        traces.tick()
        return numbers_in(x), y

    put = PLACES[place]
    for _ in range(2):
        for order in (NUMBERS, reversed(NUMBERS)):
            for v in order:
                assert f(put(v), ONE)[0] == numbers_in(put(v))
    assert traces.count == 5


def test_equinox_shares_them() -> None:
    """The difference itself, where it is plainest."""
    describe = lambda v: f"{type(v).__name__} {v!r}"
    theirs, ours = eqx.filter_jit(describe), filterjit.filter_jit(describe)
    assert [theirs(v) for v in NUMBERS] == ["int 1"] * 3 + ["float 0.0"] * 2
    assert [ours(v) for v in NUMBERS] == [
        "int 1",
        "bool True",
        "float 1.0",
        "float 0.0",
        "float -0.0",
    ]


EQUALS: dict[str, list[Any]] = {
    "subclasses of int": [1, IntSubclass(1), Number.ONE, True],
    "subclasses of float": [1.5, FloatSubclass(1.5)],
    "subclasses of str": ["a", StrSubclass("a")],
    "subclasses of tuple": [Frozen((1,)), Frozen(TupleSubclass((1,))), Frozen(Pair(1))],
    "complex": [1 + 0j, complex(1, -0.0), 1, 1.0],
    "signs in complex": [complex(0.0, 0.0), complex(-0.0, 0.0), complex(0.0, -0.0)],
    "sets": [frozenset([1]), frozenset([True]), frozenset([1.0])],
    "strings and bytes": ["a", b"a"],
    "empty": [Frozen(()), Frozen(frozenset()), Frozen(""), Frozen(b""), Frozen(None), Frozen(0)],
    "dtypes": [jnp.dtype("float32"), jnp.float32, "float32", float],
    "dataclasses": [Frozen(1), FrozenSlots(1), FrozenPartly(1)],
}


@pytest.mark.parametrize("name", EQUALS)
def test_equal_values_of_other_types(name: str) -> None:
    traces = Traces()

    @filterjit.filter_jit
    def f(v: Any, x: Any) -> Any:
        traces.tick()
        return type(v), repr(v), x

    for _ in range(2):
        for v in EQUALS[name]:
            kind, text, _ = f(v, ONE)
            assert (kind, text) == (type(v), repr(v))
    assert traces.count == len(EQUALS[name])


def test_nan_equals_itself(jit: Jit, ours: bool) -> None:
    """By decision: by bits. In Equinox each NaN that is not the same object traces anew."""
    traces = Traces()

    @jit
    def f(v: Any, x: Any) -> Any:
        traces.tick()
        return v, x

    for _ in range(3):
        assert math.isnan(f(float("nan"), ONE)[0])
    assert traces.count == (1 if ours else 3)


def test_fields_left_out_of_comparison_do_not_count(jit: Jit) -> None:
    """``field(compare=False)``: the class's own say."""
    traces = Traces()

    @jit
    def f(v: Any, x: Any) -> Any:
        traces.tick()
        return v.v, x

    for i in range(3):
        assert f(FrozenPartly(1, i), ONE) == (1, 1)
    assert traces.count == 1


def test_own_equality_is_respected(jit: Jit) -> None:
    class CaseInsensitive:
        def __init__(self, text: str) -> None:
            self.text = text

        def __eq__(self, other: Any) -> bool:
            return isinstance(other, CaseInsensitive) and self.text.lower() == other.text.lower()

        def __hash__(self) -> int:
            return hash(self.text.lower())

    traces = Traces()

    @jit
    def f(v: Any, x: Any) -> Any:
        traces.tick()
        return v.text, x

    for text in ("abc", "ABC", "Abc"):
        assert f(CaseInsensitive(text), ONE)[0] == "abc"
    assert f(Static(CaseInsensitive("abC")).value, ONE)[0] == "abc"
    assert traces.count == 1


def test_hash_collisions(jit: Jit) -> None:
    class Same:
        def __init__(self, n: int) -> None:
            self.n = n

        def __hash__(self) -> int:
            return 0

        def __eq__(self, other: Any) -> bool:
            return isinstance(other, Same) and self.n == other.n

    traces = Traces()

    @jit
    def f(v: Any, x: Any) -> Any:
        traces.tick()
        return v.n, x

    for _ in range(2):
        for n in range(15):
            assert f(Same(n), ONE) == (n, 1)
    assert f(Same(-1), ONE)[0] == f(Same(-2), ONE)[0] + 1
    assert traces.count == 17


def test_many_variants_at_random(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(n: Any, x: Any, *, k: Any) -> Any:
        traces.tick()
        return n, k, x

    keys = [(i * 7919) % 101 for i in range(25)]
    for _ in range(3):
        for n in keys:
            assert f(n, ONE, k=str(n)) == (n, str(n), 1)
    assert traces.count == len(set(keys))


def test_dict_order_and_insertion_do_not_matter(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(d: Any) -> Any:
        traces.tick()
        return d

    one = {"a": 1, "b": ONE}
    two = {"b": ONE, "a": 1}
    three = {"x": 0, "b": ONE, "a": 1}
    del three["x"]
    for d in (one, two, three):
        assert comparable(f(d)) == comparable(one)
    assert traces.count == 1


# ---- lowered and compiled ----


def test_compiled_for_other_statics(jit: Jit, ours: bool) -> None:
    f = jit(lambda x, n: x * n)
    compiled = f.lower(ONE, 3).compile()
    assert compiled(ONE, 3) == 3
    # By decision a TypeError; Equinox silently runs what was compiled for 3.
    if ours:
        for bad in (4, 3.0, "3", None, ONE):
            with pytest.raises(TypeError):
                compiled(ONE, bad)
    else:
        assert compiled(ONE, 4) == 3
    assert compiled(ONE * 2, 3) == 6


def test_compiled_error_shows_both(jit: Jit) -> None:
    f = filterjit.filter_jit(lambda x, mode: x)
    compiled = f.lower(ONE, "train").compile()
    with pytest.raises(TypeError, match=r"(?s)compiled for.*train.*called with.*eval"):
        compiled(ONE, "eval")


def test_compiled_shapes(jit: Jit) -> None:
    compiled = jit(lambda x: x + 1).lower(jnp.ones(3)).compile()
    assert compiled(jnp.zeros(3)).tolist() == [1, 1, 1]
    with pytest.raises((TypeError, ValueError)):
        compiled(jnp.ones(4))
    with pytest.raises((TypeError, ValueError)):
        compiled(jnp.ones(3, int))


def test_compiled_results_of_any_structure(jit: Jit) -> None:
    f = jit(lambda x, k: {"x": Holder(x + 1, "s"), "k": k, "n": None})
    compiled = f.lower(ONE, "key").compile()
    for x in (ONE, ONE * 5):
        assert comparable(compiled(x, "key")) == comparable(f(x, "key"))


def test_lowering_shape_dtype_structs(ours: bool, jit: Jit) -> None:
    """By decision: it is an array that is not there yet, as in ``jax.jit``. In a call, and in
    Equinox's `lower` too, it is a static."""
    f = jit(lambda s: jnp.zeros(s.shape))
    struct = jax.ShapeDtypeStruct((2,), jnp.float32)
    assert f(struct).tolist() == [0, 0]
    compiled = f.lower(struct).compile()
    assert compiled(jnp.ones(2) if ours else struct).tolist() == [0, 0]


def test_lowered_tells(jit: Jit) -> None:
    lowered = jit(lambda x, n: jnp.sin(x) * n).lower(ONE, 2)
    assert "sine" in lowered.as_text()
    assert lowered.compile()(ONE, 2) == jnp.sin(ONE) * 2


def test_lower_shares_the_trace(jit: Jit) -> None:
    traces = Traces()
    f = jit(traces.counting(lambda x: x + 1))
    f.lower(ONE).compile()(ONE)
    f(ONE)
    f.lower(ONE)
    assert traces.count == 1


def test_lower_of_methods_and_modules(jit: Jit, ours: bool) -> None:
    class M(eqx.Module):
        w: Any

        @jit
        def method(self, x: Any) -> Any:
            return self.w * x

        def __call__(self, x: Any) -> Any:
            return self.w + x

    assert M.method.lower(M(ONE * 3), ONE).compile()(M(ONE * 4), ONE) == 4
    lowered = jit(M(ONE)).lower(ONE)
    assert lowered.compile()(ONE * 5) == 6
    # Equinox's bound method is a Partial, without `lower`.
    if ours:
        assert M(ONE).method.lower(ONE).compile()(M(ONE * 7), ONE) == 7


def test_aot_of_donating_functions(jit: Jit) -> None:
    f = jit(lambda x: x + 1, donate="all")
    x = jnp.ones(5)
    assert f.lower(x).compile()(x).tolist() == [2] * 5
    assert x.is_deleted()


# ---- lifetime: ours alone, since Equinox keeps statics for ever ----


class Token:
    """A static that can be watched."""


def collect() -> None:
    for _ in range(3):
        gc.collect()


def caches_die(make: Callable[[Any], Callable[..., Any]]) -> None:
    """A jitted function, its statics and its programs go with it."""
    token = Token()
    fun = make(token)
    f = filterjit.filter_jit(fun)
    f(ONE, token)
    f(ONE, [token, 1])
    f(jnp.ones(3), token)
    variants = f._parts()[0].variants()
    watched = [weakref.ref(token), weakref.ref(f), weakref.ref(f._parts()[0])]
    watched += [weakref.ref(v) for v in variants] + [weakref.ref(v.call) for v in variants]
    try:
        watched.append(weakref.ref(fun))
    except TypeError:
        pass
    assert len(variants) == 2
    del token, fun, f, variants
    collect()
    assert [w() for w in watched] == [None] * len(watched)


def test_a_function_dies() -> None:
    def make(token: Any) -> Any:
        def f(x: Any, s: Any) -> Any:
            return x + 1

        return f

    caches_die(make)


def test_a_closure_dies() -> None:
    def make(token: Any) -> Any:
        def f(x: Any, s: Any) -> Any:
            return x + 1, token, s

        return f

    caches_die(make)


def test_a_lambda_dies() -> None:
    caches_die(lambda token: lambda x, s: (x, s, token))


@pytest.mark.parametrize("what", ["instance", "method", "jitted method"])
def test_modules_die(what: str) -> None:
    """The wrapper, the model and its arrays. (The caches belong to the class's function, and
    JAX's registry of pytrees keeps each Module class for ever: statics stay with it.)"""

    def make() -> list[Any]:
        class M(eqx.Module):
            token: Any
            w: Any

            def method(self, x: Any) -> Any:
                return self.w * x

            def __call__(self, x: Any) -> Any:
                return self.w + x

            @filterjit.filter_jit
            def jitted(self, x: Any) -> Any:
                return self.w - x

        m = M("static", jnp.ones(7))
        fun = {"instance": m, "method": m.method, "jitted method": m.jitted}[what]
        f = filterjit.filter_jit(fun)
        f(ONE)
        f(jnp.ones(7))
        return [weakref.ref(x) for x in (f, m, m.w)]

    watched = make()
    collect()
    assert [w() for w in watched] == [None] * 3


def test_caches_of_one_function_are_bounded() -> None:
    """Each object's method is another function for the one in the class that keeps them."""

    class C:
        def method(self, x: Any) -> Any:
            return x

    def make() -> Any:
        c = C()
        assert isinstance(hash(filterjit.filter_jit(c.method)), int)  # asks for its cache
        return weakref.ref(c)

    watched = [make() for _ in range(6000)]
    collect()
    assert sum(w() is not None for w in watched) < 5000


def test_a_plain_method_of_a_local_class_dies() -> None:
    def make(token: Any) -> Any:
        class C:
            def __init__(self) -> None:
                self.token = token

            def method(self, x: Any, s: Any) -> Any:
                return x, s, self.token

        return C().method

    caches_die(make)


def test_a_callable_object_of_a_local_class_dies() -> None:
    def make(token: Any) -> Any:
        class C:
            def __call__(self, x: Any, s: Any) -> Any:
                return x, s, token

        return C()

    caches_die(make)


def test_a_function_that_returns_modules_dies() -> None:
    def make(token: Any) -> Any:
        class M(eqx.Module):
            x: Any
            token: Any = eqx.field(static=True)

        def f(x: Any, s: Any) -> Any:
            return M(x, token), s, (lambda: token)

        return f

    caches_die(make)


@pytest.mark.parametrize("partial", [functools.partial, jtu.Partial, eqx.Partial])
def test_partials_die(partial: Any) -> None:
    def make(token: Any) -> Any:
        def f(bound: Any, x: Any, s: Any) -> Any:
            return bound, x, s

        return partial(f, token)

    caches_die(make)


def test_wrapped_functions_die() -> None:
    def make(token: Any) -> Any:
        def f(x: Any, s: Any) -> Any:
            return x, token

        @functools.wraps(f)
        def g(*args: Any) -> Any:
            return f(*args)

        return g

    caches_die(make)


def test_a_jitted_jitted_function_dies() -> None:
    caches_die(lambda token: filterjit.filter_jit(lambda x, s: (x, s, token)))


def test_a_transformed_function_dies() -> None:
    def make(token: Any) -> Any:
        def f(x: Any, s: Any) -> Any:
            return jnp.sum(x), (s, token)

        return eqx.filter_grad(f, has_aux=True)

    caches_die(make)


def test_a_failing_function_dies() -> None:
    def make() -> list[Any]:
        token = Token()

        def f(x: Any, s: Any) -> Any:
            raise ZeroDivisionError

        g = filterjit.filter_jit(f)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                g(ONE, token)
        assert g._parts()[0].variants() == []
        return [weakref.ref(x) for x in (token, f, g)]

    watched = make()
    collect()
    assert [w() for w in watched] == [None] * 3


def test_jitted_methods_of_a_local_class_die() -> None:
    def make() -> list[Any]:
        class P:
            @filterjit.filter_jit
            def method(self, x: Any, s: Any) -> Any:
                return x, s

        p, token = P(), Token()
        p.method(ONE, token)
        P.method(p, ONE, s=token)
        return [weakref.ref(x) for x in (P, p, token, P.method)]

    watched = make()
    collect()
    assert [w() for w in watched] == [None] * 4


def test_nested_jits_die() -> None:
    def make() -> list[Any]:
        token = Token()

        @filterjit.filter_jit
        def inner(x: Any, s: Any) -> Any:
            return x + 1, s

        @filterjit.filter_jit
        def outer(x: Any, s: Any) -> Any:
            return inner(x, s), jax.grad(lambda y: inner(y, s)[0])(x)

        outer(ONE, token)
        jax.jit(lambda x: outer(x, token)[1])(ONE)
        return [weakref.ref(x) for x in (token, inner, outer)]

    watched = make()
    collect()
    assert [w() for w in watched] == [None] * 3


def test_arguments_are_not_kept() -> None:
    """Arrays and containers of a call are free as soon as the caller drops them."""

    @filterjit.filter_jit
    def f(x: Any) -> Any:
        return x["a"].x + 1

    class Watched(Holder):
        pass

    model = Watched(jnp.ones(3))
    array = weakref.ref(model.x)
    module = weakref.ref(model)
    result = f({"a": model})
    f({"a": model})
    del model
    collect()
    assert module() is None
    assert array() is None
    assert result.tolist() == [2, 2, 2]


def test_reference_counts_do_not_grow(jit: Jit) -> None:
    """Of statics, arrays, keys and the function, over many calls."""
    token, array = Token(), jnp.ones(3)
    tree = {"k": [token, array], "h": Holder(array, token), "p": Pair(array, (token,))}
    f = jit(lambda t, x, **kw: (t, x + 1, kw))
    f(tree, array, k=token)
    collect()
    before = [sys.getrefcount(x) for x in (token, array, f, None, "k")]
    for _ in range(200):
        f(tree, array, k=token)
    collect()
    after = [sys.getrefcount(x) for x in (token, array, f, None, "k")]
    assert all(abs(b - a) < 50 for a, b in zip(before, after, strict=True))


def test_output_statics_do_not_keep_inputs_alive() -> None:
    f = filterjit.filter_jit(lambda x, n: (x, n))
    big = jnp.ones(100)
    result, _ = f(big, 1)
    watched = weakref.ref(big)
    del big
    collect()
    assert watched() is None or result is watched()


def test_dropped_objects_with_reused_addresses(jit: Jit) -> None:
    """A new object where a dead one was is another static."""
    f = jit(lambda v, x: (v.n, x))

    class Boxed:
        def __init__(self, n: int) -> None:
            self.n = n

    for n in range(20):
        assert f(Boxed(n), ONE)[0] == n


# ---- sharing ----


def test_two_wrappers_share(jit: Jit) -> None:
    traces = Traces()
    f = traces.counting(lambda x: x + 1)
    one, two = jit(f), jit(f)
    assert one == two
    assert hash(one) == hash(two)
    assert one(ONE) == two(ONE) == jit(f)(ONE) == 2
    assert traces.count == 1
    del one
    collect()
    assert two(ONE) == jit(f)(ONE) == 2
    assert traces.count == 1


def test_wrappers_made_in_a_loop_share(jit: Jit) -> None:
    traces = Traces()

    class M(eqx.Module):
        w: Any
        n: int = eqx.field(static=True, default=1)

        def method(self, x: Any) -> Any:
            traces.tick()
            return self.w * x * self.n

        def __call__(self, x: Any) -> Any:
            traces.tick()
            return self.w + x

    for i in range(5):
        m = M(jnp.array(float(i)))
        assert jit(m.method)(ONE) == i
        assert jit(M(ONE * i).method)(ONE) == i
    assert traces.count == 1
    for i in range(5):
        assert jit(M(jnp.array(float(i))))(ONE) == i + 1
        assert jit(eqx.Partial(M(ONE * i)))(ONE) == i + 1
    assert traces.count == 3
    assert jit(M(ONE, 2).method)(ONE) == 2
    assert traces.count == 4


def test_partials_made_in_a_loop_share(jit: Jit) -> None:
    traces = Traces()
    f = traces.counting(lambda a, x: a * x)
    for i in range(4):
        assert jit(eqx.Partial(f, ONE * i))(ONE) == i
        assert jit(jtu.Partial(f, ONE * i))(ONE) == i
    assert traces.count == 2
    for i in range(3):
        assert jit(eqx.Partial(f, i))(ONE) == i
        assert jit(eqx.Partial(f, i))(ONE) == i
    assert traces.count == 5


def test_methods_of_plain_objects_share_by_object(jit: Jit) -> None:
    traces = Traces()

    class C:
        def __init__(self, n: int) -> None:
            self.n = n

        def method(self, x: Any) -> Any:
            traces.tick()
            return x + self.n

    one, two = C(1), C(2)
    for _ in range(3):
        assert jit(one.method)(ONE) == 2
        assert jit(two.method)(ONE) == 3
    assert traces.count == 2


def test_equal_modules_share(jit: Jit) -> None:
    traces = Traces()

    class M(eqx.Module):
        act: Any
        w: Any

        @jit
        def __call__(self, x: Any) -> Any:
            traces.tick()
            return self.act(self.w * x)

    for i in range(4):
        M(jnp.tanh, ONE * i)(ONE)
    assert traces.count == 1
    M(jnp.sin, ONE)(ONE)
    assert traces.count == 2


def test_other_options_do_not_share(ours: bool, jit: Jit) -> None:
    """By decision a cache for each set of options; Equinox shares between "all" and "warn"."""
    traces = Traces()
    f = traces.counting(lambda x: x + 1)
    for options in (
        {},
        {"donate": "all"},
        {"inline": True},
        {"keep_unused": True},
        {"donate": "warn"},
    ):
        for _ in range(2):
            assert jit(f, **options)(jnp.ones(3)).tolist() == [2, 2, 2]
    assert traces.count == (5 if ours else 4)
    assert (jit(f) == jit(f, donate="all")) is False


def test_other_functions_do_not_share(jit: Jit) -> None:
    traces = Traces()

    def make(n: int) -> Any:
        def f(x: Any) -> Any:
            traces.tick()
            return x + n

        return f

    functions = [make(n) for n in range(5)]
    for _ in range(2):
        assert [float(jit(f)(ONE)) for f in functions] == [1, 2, 3, 4, 5]
    assert traces.count == 5
    assert jit(functions[0]) != jit(functions[1])
    assert (jit(functions[0]) == functions[0]) is False


def test_functions_copied_with_wraps_do_not_share(jit: Jit) -> None:
    def f(x: Any) -> Any:
        return x + 1

    assert jit(f)(ONE) == 2

    @functools.wraps(f)
    def g(x: Any) -> Any:
        return x + 10

    assert jit(g)(ONE) == 11
    assert jit(f)(ONE) == 2
    assert jit(g)(ONE) == 11


def test_redefined_functions_do_not_share(jit: Jit) -> None:
    namespace: dict[str, Any] = {}
    for n in range(4):
        exec(f"def f(x): return x + {n}", namespace)
        assert jit(namespace["f"])(ONE) == 1 + n


def test_code_replaced_in_place(jit: Jit) -> None:
    """A function whose ``__code__`` changes is still the same function: no new trace."""
    f = lambda x: x + 1
    jitted = jit(f)
    assert jitted(ONE) == 2
    f.__code__ = (lambda x: x + 5).__code__
    assert jitted(ONE) == 2
    assert jitted(jnp.ones(1)) == 6


def test_wrappers_as_static_arguments(jit: Jit) -> None:
    """Equal wrappers in static fields share."""
    traces = Traces()

    def g(x: Any) -> Any:
        return x * 2

    @jit
    def f(h: Any, x: Any) -> Any:
        traces.tick()
        return h.s(x)

    for _ in range(3):
        assert f(Holder(None, jit(g)), ONE) == 2
    assert traces.count == 1


# ---- configuration ----


def test_enable_x64(jit: Jit) -> None:
    traces = Traces()
    f = jit(traces.counting(lambda x, n: (x * 1.0, jnp.asarray(1.0), n)))
    for _ in range(2):
        assert [str(a.dtype) for a in f(jnp.arange(3), 1)[:2]] == ["float32", "float32"]
        with jax.enable_x64(True):
            assert [str(a.dtype) for a in f(jnp.arange(3), 1)[:2]] == ["float64", "float64"]
            assert str(f(jnp.arange(3, dtype="int32"), 1)[1].dtype) == "float64"
    assert traces.count == 3


@pytest.mark.parametrize(
    "config",
    [
        lambda: jax.default_matmul_precision("float32"),
        lambda: jax.numpy_dtype_promotion("strict"),
        lambda: jax.numpy_rank_promotion("raise"),
        lambda: jax.debug_nans(True),
        lambda: jax.default_prng_impl("rbg"),
        lambda: jax.threefry_partitionable(False),
        lambda: jax.softmax_custom_jvp(False),
        lambda: jax.transfer_guard("allow"),
        lambda: jax.default_device(jax.devices()[0]),
        lambda: jax.named_scope("scope"),
        lambda: jax.log_compiles(False),
    ],
    ids=lambda c: c.__code__.co_names[1],
)
def test_configurations_trace_as_often(config: Callable[[], Any]) -> None:
    """What is part of JAX's key is its own business: as many traces as Equinox."""

    def count(jit: Jit) -> list[int]:
        traces = Traces()
        f = jit(traces.counting(lambda x, k: (x @ x, k)))
        counts = []
        for _ in range(2):
            f(jnp.ones((2, 2)), "k")
            counts.append(traces.count)
            with config():
                f(jnp.ones((2, 2)), "k")
            counts.append(traces.count)
        return counts

    assert count(filterjit.filter_jit) == count(eqx.filter_jit)


def test_meshes_trace_as_often() -> None:
    def count(jit: Jit) -> list[int]:
        traces = Traces()
        f = jit(traces.counting(lambda x: x + 1))
        counts = []
        mesh = jax.make_mesh((1,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
        for _ in range(2):
            f(ONE)
            with jax.set_mesh(mesh):
                f(ONE)
            f(jax.device_put(ONE, jax.NamedSharding(mesh, jax.P())))
            counts.append(traces.count)
        return counts

    assert count(filterjit.filter_jit) == count(eqx.filter_jit)


def test_arrays_trace_as_often() -> None:
    """Weak types, dtypes, shapes, NumPy: JAX's key."""

    def count(jit: Jit) -> list[int]:
        traces = Traces()
        f = jit(traces.counting(lambda t: jtu.tree_map(lambda x: x * 2, t)))
        counts = []
        arrays: list[Any] = [
            jnp.array(1.0), jnp.asarray(1.0), jnp.float32(1), jnp.ones(()), jnp.ones(1), jnp.ones((1, 1)),
            jnp.ones(2), jnp.ones(2, int), jnp.ones(2, bool), jnp.ones(2, "bfloat16"),
            jnp.ones(2, "complex64"), jnp.zeros(0), jax.random.key(0),
        ]  # fmt: skip
        for _ in range(2):
            for x in arrays[:-1]:
                f({"x": x})
                counts.append(traces.count)
                f({"x": jnp.asarray(x).__array__()})
                counts.append(traces.count)
                f([x, x])
                counts.append(traces.count)
        return counts

    ours, theirs = count(filterjit.filter_jit), count(eqx.filter_jit)
    assert ours == theirs
    assert ours[-1] == ours[len(ours) // 2 - 1]


def test_clear_caches(jit: Jit) -> None:
    """After ``jax.clear_caches()`` all is traced anew, and all still works."""
    traces = Traces()

    @jit
    def f(x: Any, k: Any) -> Any:
        traces.tick()
        return {"x": x + 1, "k": k, "shape": x.shape}

    for n in range(1, 4):
        for _ in range(2):
            assert f(ONE, "k") == {"x": 2, "k": "k", "shape": ()}
            assert f(jnp.ones(1), "k")["shape"] == (1,)
        assert traces.count == 2 * n
        jax.clear_caches()


def test_equinox_clear_caches(jit: Jit) -> None:
    f = jit(lambda x, k: (x + 1, k))
    assert f(ONE, 1) == (2, 1)
    eqx.clear_caches()
    assert f(ONE, 1) == (2, 1)
    assert jit(f.__wrapped__)(ONE, 2) == (2, 2)
