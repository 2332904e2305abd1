"""What can be passed to a jitted function: any tree, and any change to one."""

import collections
import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import optax
import pytest

import filterjit

from .nodes import (
    ARRAY,
    KEY,
    LAYER,
    MAKERS,
    MLP,
    Child,
    Childless,
    Custom,
    FlaxStruct,
    Frozen,
    Module,
    Plain,
    Point,
    Registered,
    Static,
    bare,
    identity,
)
from .support import Jit, Traces, check, check_error, picture

ONE = jnp.array(1.0)


@pytest.mark.parametrize("name", MAKERS)
def test_any_tree_is_taken(name: str) -> None:
    """By position, by keyword, made anew, copied, and as it came back: what the function sees,
    what it returns, and how often it is traced."""
    make = MAKERS[name]
    duplicate = (lambda x: x) if name in ("module", "device") else copy.copy

    def show(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return "array", leaf.shape, str(leaf.dtype), leaf.weak_type
        return picture(leaf)

    def body(jit: Jit) -> Any:
        traces = Traces()
        seen: list[Any] = []

        @jit
        def f(x: Any, *rest: Any, k: Any = None) -> Any:
            traces.tick()
            seen.append([show(leaf) for leaf in jtu.tree_leaves((x, rest, k))])
            seen.append(str(jtu.tree_structure(x)))
            seen.append([jtu.tree_structure(t) == jtu.tree_structure(x) for t in (*rest, k)])
            return x, rest, k, type(x).__name__

        value = make()
        results = [f(value), f(value), f(x=value), f(make()), f(duplicate(make()))]
        counts = [traces.count]
        results.append(f(results[0][0]))
        counts.append(traces.count)
        results.append(f([value], {"k": value}, k=value))
        counts.append(traces.count)
        structure = jtu.tree_structure(value)
        same = [jtu.tree_structure(r[0]) == structure for r in results[:6]]
        return results, counts, seen, same

    check(body)


def test_one_function_for_all_trees() -> None:
    """All in one cache, from first to last and back."""

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x

        # A dtype is == to what stands for it, so that Equinox takes it for a ShapeDtypeStruct.
        values = [make() for name, make in MAKERS.items() if name != "dtype"]
        results = [f(x) for x in values]
        count = traces.count
        again = [f(x) for x in reversed(values)]
        return results, again, count, traces.count

    check(body)


# ---- arrays ----


def test_what_is_an_array() -> None:
    values: list[Any] = [
        ONE,
        np.ones(2),
        np.float32(1),
        np.float64(1),
        np.int8(1),
        np.bool_(True),
        1,
        1.0,
        True,
        1j,
        "a",
        None,
        b"a",
    ]

    def body(jit: Jit) -> Any:
        f = jit(lambda x: isinstance(x, jax.core.Tracer))
        return [f(x) for x in values]

    assert check(body) == [True] * 6 + [False] * 7


@pytest.mark.parametrize(
    "bad",
    [
        np.array(["text"]),
        np.array([None, 1], dtype=object),
        np.str_("text"),
        np.datetime64("2020-01-01"),
        np.array([1], dtype=">i4"),
        np.zeros(2, dtype=[("a", np.int32)]),
        np.void(b"ab"),
    ],
    ids=lambda x: str(x.dtype),
)
def test_numpy_that_jax_cannot_take(bad: Any) -> None:
    """JAX's own errors; and the function works afterwards."""

    def body(jit: Jit) -> Any:
        f = jit(lambda x: x + 1)
        with pytest.raises((TypeError, ValueError)) as info:
            f(bad)
        return type(info.value).__name__, f(ONE), f(ONE)

    check(body)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.ma.masked_array(np.ones(3, np.float32), [0, 1, 0]),
        lambda: np.ones((2, 2), np.float32).view(np.matrix),
        lambda: np.ones(3, np.float32).view(type("Mine", (np.ndarray,), {})),
        lambda: np.float16(1),
        lambda: np.longdouble(1),
        lambda: np.ones(3, np.longdouble),
        lambda: np.complex128(1j),
        lambda: np.uint64(2**40),
        lambda: np.zeros(3, jax.dtypes.float0),
    ],
    ids=[
        "masked",
        "matrix",
        "subclass",
        "float16",
        "longdouble",
        "longdouble array",
        "complex128",
        "uint64",
        "float0",
    ],
)
def test_odd_numpy(make: Callable[[], Any]) -> None:
    def outcome(jit: Jit) -> Any:
        try:
            return jit(lambda x: (x, x.shape, str(x.dtype)))(make())
        except (TypeError, ValueError, OverflowError) as e:
            return type(e).__name__, str(e).split("<")[0][:50]

    check(outcome)


class WithJaxArray:
    """JAX takes it for an array where one is needed; to ``filter_jit`` it is a static."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __jax_array__(self) -> Any:
        return self.value


def test_objects_with_jax_array() -> None:
    value = WithJaxArray(ONE)

    def body(jit: Jit) -> Any:
        return jit(lambda x: (type(x).__name__, x.value + 1))(value)

    assert check(body) == ("WithJaxArray", 2)


def test_mutable_arrays() -> None:
    """Refs are arrays to Equinox or not; ours follows."""

    def body(jit: Jit) -> Any:
        ref = jax.new_ref(jnp.zeros(3))

        @jit
        def f(ref: Any, x: Any) -> Any:
            ref[...] += x
            return ref[...].sum()

        try:
            return f(ref, ONE), f(ref, ONE), ref[...]
        except Exception as e:
            return type(e).__name__

    check(body)


def test_committed_and_uncommitted_arrays(jit: Jit) -> None:
    f = jit(lambda x, y: x + y)
    device = jax.devices()[0]
    committed = jax.device_put(ONE, device)
    for _ in range(2):
        assert f(ONE, ONE).committed is False
        assert f(committed, ONE).committed is True


def test_arrays_between_different_types(jit: Jit) -> None:
    """jax.Array, NumPy and tracer at the same place: the same variant."""
    traces = Traces()

    @jit
    def f(x: Any) -> Any:
        traces.tick()
        return x["a"] + 1

    for x in (jnp.ones(3), np.ones(3, np.float32), jnp.ones(3)):
        assert picture(f({"a": x})) == picture(jnp.ones(3) + 1)
    assert picture(jax.jit(lambda x: f({"a": x}))(jnp.ones(3))) == picture(jnp.ones(3) + 1)
    assert picture(jax.vmap(lambda x: f({"a": x}))(jnp.ones((2, 3)))).__class__ is tuple
    assert traces.count == 1


# ---- statics ----


def test_equal_statics_share(jit: Jit) -> None:
    """Equal by value, though not the same object."""
    traces = Traces()

    @jit
    def f(x: Any, s: Any) -> Any:
        traces.tick()
        return x + 1

    makers: list[Callable[[], Any]] = [
        lambda: int("1000000"),
        lambda: float("1.5"),
        lambda: "".join(["a", "b", "c" * 10]),
        lambda: ("".join(["a", "b"]), [int("1000")]),
        lambda: frozenset([1, "".join(["x", "yz"])]),
        lambda: Plain(int("12345"), "".join(["b", "c"])),
        lambda: jax.ShapeDtypeStruct((2, 3), jnp.float32),
        lambda: jnp.dtype("bfloat16"),
        lambda: jtu.tree_structure([0, {"a": 1}]),
        lambda: Static(("".join(["x", "y"]), 1)),
        lambda: jax.sharding.PartitionSpec("".join(["a", "b"])),
        lambda: complex("1+2j"),
        lambda: b"".join([b"a", b"b"]),
        lambda: range(int("5")),
        lambda: slice,
        lambda: "".join.__name__.__class__,
        lambda: Plain(1).__eq__.__self__,
    ]
    for i, make in enumerate(makers):
        for _ in range(3):
            f(ONE, make())
        assert traces.count == i + 1, make()


def test_shape_dtype_structs_are_static(jit: Jit) -> None:
    f = jit(lambda s: (jnp.zeros(s.shape, s.dtype), s))
    for shape in ((2,), (3,), (2,)):
        struct = jax.ShapeDtypeStruct(shape, jnp.int32)
        array, back = f(struct)
        assert (array.shape, str(array.dtype), back) == (shape, "int32", struct)


def test_treedefs_are_static(jit: Jit) -> None:
    """The usual way to pass a tree in two parts."""
    traces = Traces()

    @jit
    def f(leaves: Any, treedef: Any) -> Any:
        traces.tick()
        return jtu.tree_map(lambda x: x * 2, jtu.tree_unflatten(treedef, leaves))

    for tree in ({"b": ONE, "a": [ONE]}, [ONE, ONE], Module(ONE), Custom(ONE, ARRAY), Point(ONE)):
        leaves, treedef = jtu.tree_flatten(eqx.filter(tree, eqx.is_array))
        for _ in range(2):
            result = f(leaves, treedef)
            assert jtu.tree_structure(result) == treedef
    assert traces.count == 5


def test_dtypes_are_not_scalar_types(jit: Jit, ours: bool) -> None:
    """``np.dtype("float32") == jnp.float32``, and they hash alike."""
    f = jit(lambda d: d)
    dtype = jnp.dtype("float32")
    assert f(dtype) is dtype
    # By decision statics compare by type as well; Equinox gives the dtype back.
    assert (f(jnp.float32) is jnp.float32) is ours


@pytest.mark.parametrize("value", [{"k": [1]}, [1], {1, 2}], ids=["dict", "list", "set"])
def test_treedefs_with_unhashable_parts(jit: Jit, value: Any) -> None:
    """Treedefs have a hash whatever is in them."""
    traces = Traces()

    @jit
    def f(leaves: Any, treedef: Any) -> Any:
        traces.tick()
        return jtu.tree_unflatten(treedef, leaves).name

    for _ in range(3):
        leaves, treedef = jtu.tree_flatten(Module(ONE, copy.deepcopy(value)))
        assert f(leaves, treedef) == value
    assert traces.count == 1


@dataclasses.dataclass(frozen=True)
class HashWithoutSome:
    name: str
    extras: Any = dataclasses.field(default_factory=dict, hash=False)


@dataclasses.dataclass(frozen=True)
class OwnHash:
    name: str
    extras: Any = dataclasses.field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclasses.dataclass
class HashById:
    name: str
    extras: Any = dataclasses.field(default_factory=dict)

    def __hash__(self) -> int:
        return id(self)


@pytest.mark.parametrize("cls", [HashWithoutSome, OwnHash])
def test_dataclasses_with_a_hash_of_some_fields(jit: Jit, cls: Any) -> None:
    """Its own hash makes it hashable, whatever its fields are; all fields are compared."""
    traces = Traces()

    @jit
    def f(c: Any, x: Any) -> Any:
        traces.tick()
        return c.name, sorted(c.extras), x

    for _ in range(2):
        assert f(cls("a"), ONE) == ("a", [], 1)
        assert f(cls("a", {"k": [1]}), ONE) == ("a", ["k"], 1)
        assert f([cls("b", {"k": [1]})][0], ONE) == ("b", ["k"], 1)
    assert traces.count == 3


def test_dataclasses_hashed_by_identity(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(c: Any, x: Any) -> Any:
        traces.tick()
        return c.name, x

    one, two = HashById("one"), HashById("two", {"k": 1})
    for _ in range(2):
        assert (f(one, ONE), f(two, ONE)) == (("one", 1), ("two", 1))
    assert traces.count == 2


def test_a_model_in_two_parts(jit: Jit) -> None:
    """``eqx.partition`` outside, ``eqx.combine`` inside."""
    traces = Traces()

    @jit
    def f(params: Any, static: Any, x: Any) -> Any:
        traces.tick()
        return eqx.combine(params, static)(x)

    x = jnp.ones(2)
    for _ in range(3):
        params, static = eqx.partition(MLP, eqx.is_inexact_array)
        assert picture(f(params, static, x)) == picture(f(MLP, static, x))
    assert traces.count == 2


def test_functions_as_statics(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(g: Any, x: Any) -> Any:
        traces.tick()
        return g(x)

    assert f(jnp.sin, ONE) == jnp.sin(ONE)
    assert f(jnp.sin, ONE) == jnp.sin(ONE)
    assert f(lambda x: x + 1, ONE) == 2
    assert f(lambda x: x + 2, ONE) == 3
    holder = PlainHolder()
    for _ in range(2):
        assert f(holder.method, ONE) == 6  # a new bound method each time, equal to the last
    assert f(PlainHolder().method, ONE) == 6
    assert f(MLP, jnp.ones(2)).shape == (2,)
    assert f(MLP.__call__, jnp.ones(2)).shape == (2,)
    assert f(jit(jnp.cos), ONE) == jnp.cos(ONE)
    assert f(jit(jnp.cos), ONE) == jnp.cos(ONE)
    assert traces.count == 8


class PlainHolder:
    def method(self, x: Any) -> Any:
        return x + 5


def test_exact_types_of_dict_keys_and_containers(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(x: Any) -> Any:
        traces.tick()
        return type(x).__name__, len(x)

    cases = [
        (ONE, 2), [ONE, 2], {"a": ONE, "b": 2}, collections.OrderedDict(a=ONE, b=2),
        collections.defaultdict(None, a=ONE, b=2), Point(ONE, 2), (ONE, 2, 3), [ONE],
        {"a": ONE}, {"a": ONE, "c": 2}, (ONE, (2,)), (ONE, [2]),
    ]  # fmt: skip
    for _ in range(2):
        for case in cases:
            assert f(case) == (type(case).__name__, len(case))
    assert traces.count == len(cases)


def test_arrays_and_statics_at_the_same_place(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(x: Any) -> Any:
        traces.tick()
        return isinstance(x[0], jax.core.Tracer)

    for _ in range(2):
        for value, traced in ((1.0, False), (ONE, True), (None, False), ("a", False),
                              (np.float32(1), True), (jnp.sin, False)):  # fmt: skip
            assert f([value]) is traced
    assert traces.count == 6  # ONE and np.float32(1) differ in weak type


# ---- Modules ----


def test_missing_fields(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(m: Any) -> Any:
        traces.tick()
        return sorted(k for k in m.__dict__ if not k.startswith("__")), m

    for _ in range(2):
        names, back = f(bare())
        assert names == ["a"]
        assert "b" not in back.__dict__
        assert f(Module(ARRAY))[0] == ["a", "b", "name"]
    assert traces.count == 2


@pytest.mark.parametrize("field", ["a", "b", "name"])
def test_fields_changed_behind_its_back(jit: Jit, field: str) -> None:
    """``object.__setattr__`` between calls: seen, each time."""

    @jit
    def f(m: Any) -> Any:
        value = getattr(m, field, "missing")
        value = "None" if value is None else value
        return value if isinstance(value, str) else jnp.sum(jnp.asarray(value))

    m = Module(ARRAY)
    for value in ("x", "y", "x", ""):
        object.__setattr__(m, field, value)
        assert f(m) == value
    if field != "name":
        for number in (1.0, 2.0, 2, ONE, ARRAY, 1.0):
            object.__setattr__(m, field, number)
            assert f(m) == jnp.sum(jnp.asarray(number))
    object.__delattr__(m, field)
    assert f(m) == {"a": "missing", "b": "None", "name": "name"}[field]


def test_deep_changes_are_seen(jit: Jit) -> None:
    """Five levels down, in a Module, a list, a dict."""
    traces = Traces()

    @jit
    def f(m: Any, x: Any) -> Any:
        traces.tick()
        leaf = m.a[0]["k"].a.a
        return leaf.name, x + leaf.a

    leaf = Module(1)
    inner = {"k": Module(Module(leaf))}
    model = Module([inner])
    assert f(model, ONE) == ("name", 2)
    object.__setattr__(leaf, "name", "other")
    assert f(model, ONE) == ("other", 2)
    object.__setattr__(leaf, "a", 5)
    assert f(model, ONE) == ("other", 6)
    inner["k"] = Module(Module(Module(7, "third")))
    assert f(model, ONE) == ("third", 8)
    model.a[0] = {"k": Module(Module(leaf))}
    assert f(model, ONE) == ("other", 6)
    object.__setattr__(leaf, "a", jnp.array(9.0))
    assert f(model, ONE) == ("other", 10)
    assert traces.count == 5


def test_lists_and_dicts_changed_between_calls(jit: Jit) -> None:
    @jit
    def f(x: Any) -> Any:
        return jtu.tree_map(lambda a: a if isinstance(a, str) else a + 1, x)

    values: list[Any] = [ONE]
    table: dict[str, Any] = {"a": ONE}
    assert picture(f([values, table])) == picture([[ONE + 1], {"a": ONE + 1}])
    values.append("x")
    table["b"] = "y"
    assert picture(f([values, table])) == picture([[ONE + 1, "x"], {"a": ONE + 1, "b": "y"}])
    values[0], table["a"] = "z", 5
    assert f([values, table]) == [["z", "x"], {"a": 6, "b": "y"}]
    values.clear()
    table.clear()
    assert f([values, table]) == [[], {}]


@pytest.mark.parametrize("make", [lambda: [1, 2], lambda: {"k": 1}, lambda: {1, 2}],
                         ids=["list", "dict", "set"])  # fmt: skip
def test_unhashable_static_fields(make: Callable[[], Any]) -> None:
    """Static fields need no hash; leaves do."""

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(m: Any, x: Any) -> Any:
            traces.tick()
            return m.name, x + 1, m

        results = [f(Module(ARRAY, make()), ONE) for _ in range(3)]
        same = Module(ARRAY, make())
        results += [f(same, ONE), f(same, ONE)]
        return results, traces.count

    check(body)


def test_unhashable_static_field_changed_in_place() -> None:
    # Equinox's key holds the very list, which changes along: a stale answer. Ours sees it.
    def run(jit: Jit) -> list[Any]:
        @jit
        def f(m: Any, x: Any) -> Any:
            return x + sum(m.name)

        values = [1, 2]
        m = Module(None, values)  # type: ignore[arg-type]
        results = [f(m, ONE)]
        values.append(10)
        results.append(f(m, ONE))
        values[:] = [1, 2]
        results.append(f(m, ONE))
        values[0] = 5
        results.append(f(m, ONE))
        return [float(r) for r in results]

    assert run(filterjit.filter_jit) == [4, 14, 4, 8]
    assert run(eqx.filter_jit) == [4, 4, 4, 4]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_nested_unhashable_static_field_changed_in_place(depth: int) -> None:
    innermost = {"k": [1]}
    value: Any = innermost
    for _ in range(depth):
        value = (value, "x") if depth % 2 else {"nested": value}

    @filterjit.filter_jit
    def f(m: Any, x: Any) -> Any:
        inner = m.name
        while "k" not in inner:
            inner = inner[0] if isinstance(inner, tuple) else inner["nested"]
        return x + sum(inner["k"])

    m = Module(None, value)
    for n in (1, 2, 3):
        assert f(m, ONE) == 1 + sum(innermost["k"])
        assert f(m, ONE) == 1 + sum(innermost["k"])
        innermost["k"].append(n)


def test_mutable_object_in_a_static_field() -> None:
    """An object with a hash of its contents: an equal one shares, a changed one does not."""

    class Config:
        def __init__(self, n: int) -> None:
            self.n = n

        def __eq__(self, other: Any) -> bool:
            return self.n == other.n

        def __hash__(self) -> int:
            return hash(self.n)

    traces = Traces()

    @filterjit.filter_jit
    def f(m: Any, x: Any) -> Any:
        traces.tick()
        return x + m.name.n

    config = Config(1)
    m = Module(None, config)  # type: ignore[arg-type]
    assert f(m, ONE) == 2
    assert f(Module(None, Config(1)), ONE) == 2  # type: ignore[arg-type]
    config.n = 5
    assert f(m, ONE) == 6
    config.n = 1
    assert f(m, ONE) == 2


def test_aux_data_changed_in_place() -> None:
    """Unhashable aux data of a registered node."""

    @filterjit.filter_jit
    def f(x: Any, y: Any) -> Any:
        return y + sum(x.aux)

    node = Childless([1, 2])
    assert f(node, ONE) == 4
    node.aux.append(3)
    assert f(node, ONE) == 7
    assert f(Childless([1, 2]), ONE) == 4
    assert f(Childless([1, 2, 3]), ONE) == 7


def test_class_attributes_are_no_fields(jit: Jit) -> None:
    class M(eqx.Module):
        a: Any
        constant = 3

    f = jit(lambda m: m.a + m.constant)
    assert f(M(ONE)) == 4
    assert f(M(2)) == 5


def test_wrapper_modules_are_told_apart(jit: Jit) -> None:
    """The attributes that ``module_update_wrapper`` sets are part of the key."""
    traces = Traces()

    class Wrapper(eqx.Module):
        fn: Any

        @property
        def __wrapped__(self) -> Any:
            return self.fn

        def __call__(self, x: Any) -> Any:
            return self.fn(x), self.__name__

    def one(x: Any) -> Any:
        return x + 1

    def two(x: Any) -> Any:
        return x + 2

    @jit
    def call(m: Any, x: Any) -> Any:
        traces.tick()
        return m(x)

    wrapped_one = eqx.module_update_wrapper(Wrapper(one))
    wrapped_two = eqx.module_update_wrapper(Wrapper(two))
    for _ in range(2):
        assert call(wrapped_one, ONE) == (2, "one")
        assert call(wrapped_two, ONE) == (3, "two")
        assert jit(wrapped_one)(ONE) == (2, "one")
    object.__setattr__(wrapped_two, "__name__", "renamed")
    assert call(wrapped_two, ONE) == (3, "renamed")
    assert traces.count == 3


def test_modules_with_the_same_fields_of_other_classes(jit: Jit) -> None:
    traces = Traces()

    class A(eqx.Module):
        a: Any

    class B(eqx.Module):
        a: Any

    @jit
    def f(m: Any) -> Any:
        traces.tick()
        return type(m).__name__

    for _ in range(2):
        assert (f(A(ONE)), f(B(ONE)), f(A(1)), f(B(1))) == ("A", "B", "A", "B")
    assert traces.count == 4


def test_a_field_that_becomes_static_and_back(jit: Jit) -> None:
    """One class, all combinations of what its fields can hold."""
    traces = Traces()

    @jit
    def f(m: Any) -> Any:
        traces.tick()
        return m

    combinations = [Child(a, "n", b, c) for a in (ONE, 1, None, [ONE]) for b in (ARRAY, "s")
                    for c in ((), {"k": ONE})]  # fmt: skip
    for _ in range(2):
        for m in combinations:
            assert picture(f(m)) == picture(m)
    assert traces.count == len(combinations)


def test_modules_with_many_fields(jit: Jit) -> None:
    """More than a class's shared keys hold."""
    names = [f"field_{i}" for i in range(80)]
    Wide = dataclasses.make_dataclass("Wide", [(n, Any) for n in names], bases=(eqx.Module,))
    traces = Traces()

    @jit
    def f(m: Any) -> Any:
        traces.tick()
        return sum(getattr(m, n) for n in names), m

    m = Wide(*(jnp.array(float(i)) for i in range(80)))
    for _ in range(3):
        total, m = f(m)
        assert total == sum(range(80))
    assert traces.count == 1


def test_fields_set_in_another_order(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(m: Any) -> Any:
        traces.tick()
        return m.a - m.b

    for i, order in enumerate((["a", "b", "name"], ["name", "b", "a"], ["b", "name", "a"]) * 2):
        m = object.__new__(Module)
        for name in order:
            value = {"a": jnp.array(float(i)), "b": ONE, "name": "n"}[name]
            object.__setattr__(m, name, value)
        assert f(m) == i - 1
    assert traces.count == 1


def test_extra_attributes_are_dropped() -> None:
    def body(jit: Jit) -> Any:
        m = Module(ARRAY)
        object.__setattr__(m, "extra", 1)
        f = jit(lambda m: (hasattr(m, "extra"), m))
        results = [f(m), f(m)]
        object.__setattr__(m, "extra", 2)
        return results, f(m), jtu.tree_structure(f(m)[1]) == jtu.tree_structure(m)

    check(body)


def test_dict_replaced(jit: Jit) -> None:
    """``__dict__`` itself written to: the instance has a real dict from then on."""
    m = Module(ONE)
    f = jit(lambda m: (m.a + 1, m.name))
    assert f(m) == (2, "name")
    m.__dict__["name"] = "other"
    assert f(m) == (2, "other")
    m.__dict__["a"] = jnp.array(5.0)
    assert f(m) == (6, "other")
    for _ in range(2):
        assert f(Module(ONE)) == (2, "name")


# ---- states, optimisers, layers ----


def test_stateful_layers() -> None:
    def body(jit: Jit) -> Any:
        traces = Traces()

        class Model(eqx.Module):
            norm: eqx.nn.BatchNorm
            linear: eqx.nn.Linear

            def __init__(self) -> None:
                self.norm = eqx.nn.BatchNorm(2, axis_name="batch", mode="batch")
                self.linear = LAYER

            def __call__(self, x: Any, state: Any) -> Any:
                x, state = self.norm(x, state)
                return self.linear(x), state

        @jit
        def step(model: Any, state: Any, xs: Any) -> Any:
            traces.tick()
            return jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(
                xs, state
            )

        model, state = eqx.nn.make_with_state(Model)()
        outputs = []
        for i in range(4):
            output, state = step(model, state, jnp.arange(8.0).reshape(4, 2) + i)
            outputs.append(output)
        return outputs, jtu.tree_leaves(state), traces.count

    check(body)


def test_state_is_used_up() -> None:
    """A State that was passed on is invalid, as Equinox says."""

    def body(jit: Jit) -> Any:
        index = eqx.nn.StateIndex(ONE)

        class Counter(eqx.Module):
            index: eqx.nn.StateIndex

            def __call__(self, state: Any) -> Any:
                return state.set(self.index, state.get(self.index) + 1)

        counter, state = eqx.nn.make_with_state(Counter)(index)
        step = jit(counter)
        after = step(step(state))
        try:
            reuse: Any = step(state).get(counter.index)
        except ValueError as e:
            reuse = str(e)
        return after.get(counter.index), reuse

    check(body)


def test_an_optimiser_step(jit: Jit) -> None:
    traces = Traces()
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))

    @jit
    def step(model: Any, state: Any, x: Any, y: Any, optimiser: Any) -> Any:
        traces.tick()

        def loss(m: Any) -> Any:
            return jnp.mean((jax.vmap(m)(x) - y) ** 2)

        value, grads = eqx.filter_value_and_grad(loss)(model)
        updates, state = optimiser.update(grads, state, eqx.filter(model, eqx.is_array))
        return eqx.apply_updates(model, updates), state, value

    model, x = MLP, jax.random.normal(KEY, (8, 2))
    y = x[:, ::-1]
    state = optimiser.init(eqx.filter(model, eqx.is_array))
    losses = []
    for _ in range(5):
        model, state, loss = step(model, state, x, y, optimiser)
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    assert traces.count == 1


def test_layers_run() -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    layers: list[tuple[Any, tuple[Any, ...]]] = [
        (eqx.nn.Conv1d(2, 1, 2, key=KEY), (x,)),
        (eqx.nn.LSTMCell(3, 2, key=KEY), (x[0], (jnp.ones(2), jnp.zeros(2)))),
        (eqx.nn.Embedding(4, 3, key=KEY), (jnp.array(2),)),
        (eqx.nn.Identity(), (x,)),
        (eqx.nn.MLP("scalar", "scalar", 4, 1, key=KEY), (ONE,)),
    ]

    def body(jit: Jit) -> Any:
        results = []
        for layer, args in layers:
            call = jit(lambda layer, *args: layer(*args))
            results += [call(layer, *args), jit(layer)(*args)]
        return results

    check(body)


def test_one_trace_for_equal_models(jit: Jit) -> None:
    """Models made alike share, their arrays being other."""
    traces = Traces()

    @jit
    def f(model: Any, x: Any) -> Any:
        traces.tick()
        return model(x)

    for seed in range(4):
        f(eqx.nn.MLP(2, 2, 4, 2, key=jax.random.key(seed)), jnp.ones(2))
    assert traces.count == 1
    f(eqx.nn.MLP(2, 2, 5, 2, key=KEY), jnp.ones(2))
    assert traces.count == 2


# ---- registered types ----


@pytest.mark.parametrize("cls", [Registered, FlaxStruct])
def test_meta_fields_are_static(jit: Jit, cls: Any) -> None:
    traces = Traces()

    @jit
    def f(x: Any) -> Any:
        traces.tick()
        return x.meta, x.a

    for _ in range(2):
        for meta in ("one", "two", (1, 2), None):
            assert f(cls(ONE, meta=meta)) == (meta, 1)
    assert traces.count == 4


def test_dataclasses_changed_in_place(jit: Jit) -> None:
    @jit
    def f(x: Any) -> Any:
        return x.meta, x.a

    d = Registered(ONE)
    assert f(d) == ("meta", 1)
    d.meta = "other"
    assert f(d) == ("other", 1)
    d.a = "static"
    assert f(d) == ("other", "static")


def test_dataclasses_keep_their_order_of_fields() -> None:
    """`data_fields` in another order than the class has them."""
    check(
        lambda jit: [
            jit(lambda x: x)(Frozen(ONE, 2, "k")),
            jit(lambda x: x.b)(Frozen(1, ARRAY, "k")),
        ]
    )


def test_nodes_in_nodes() -> None:
    layers: list[Callable[[Any, int], Any]] = [
        lambda tree, i: Module(tree, f"level {i}"),
        lambda tree, i: Registered(tree, i, str(i)),
        lambda tree, i: Custom(tree, i, label=i),
        lambda tree, i: FlaxStruct(tree, b=i),
        lambda tree, i: Point(tree, i),
        lambda tree, i: {"k": tree, "j": i},
        lambda tree, i: [tree],
    ]

    def nest(depth: int) -> Any:
        tree: Any = ARRAY
        for i in range(depth):
            tree = layers[i % len(layers)](tree, i)
        return tree

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x

        return [f(nest(d)) for d in (3, 10, 21, 3, 10, 21)], traces.count

    check(body)


def test_flatten_functions_that_raise() -> None:
    class Bad:
        broken = True

    def flatten(x: Any) -> Any:
        if x.broken:
            raise RuntimeError("cannot be taken apart")
        return (), None

    jtu.register_pytree_node(Bad, flatten, lambda *_: Bad())
    check_error(lambda jit: jit(lambda x: 1)(Bad()), RuntimeError, "cannot be taken apart")

    def body(jit: Jit) -> Any:
        f = jit(lambda x: 1)
        bad = Bad()
        with pytest.raises(RuntimeError):
            f(bad)
        bad.broken = False
        return f(bad), f(bad)

    check(body)


def test_static_class_equality(jit: Jit) -> None:
    """``register_static``: by its own equality."""
    traces = Traces()

    @jit
    def f(s: Any, x: Any) -> Any:
        traces.tick()
        return s.value, x

    for value in (1, 2, 1, 2):
        assert f(Static(value), ONE) == (value, 1)
    assert traces.count == 2


def test_identity_is_kept_for_static_objects(jit: Jit) -> None:
    token = object()
    f = jit(lambda t, x: t is token)
    assert f(token, ONE) is True
    assert f(object(), ONE) is False
    assert jit(lambda g: g is identity)(identity) is True
