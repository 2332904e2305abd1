"""Random differences at random places: path, cause and remedy are right, and the remedy helps.

A case is a difference, such as a number that changes, at a place in nested containers, in an
argument of one of several forms. What the explanation advises is done by the test, if a program can
do it, and the function is traced once then.
"""

import functools
import random
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from explain_support import Aux, Data, Holder, Plain, Static, X, closure

import filterjit
from filterjit import filter_jit
from support.statics import Constant

COUNT = 300


class Box(eqx.Module):
    value: Any
    size: int = 3


class Point(NamedTuple):
    x: Any
    y: Any = 1


class Equal(Plain):
    def __eq__(self, other: object) -> bool:
        return type(other) is Equal

    def __hash__(self) -> int:
        return 0


@jax.tree_util.register_pytree_node_class
class Registered(Holder):
    def tree_flatten(self) -> Any:
        return (self.weight,), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> "Registered":
        made = object.__new__(cls)
        (made.weight,) = children
        return made


class Method(eqx.Module):
    weight: Any

    def method(self, x: Any) -> Any:
        return x


def scaled(by: Any, x: Any) -> Any:
    return x * by


SAME = Plain()
FIRST = closure(1.0)
BOTH = [{"a": 1, "b": 2}, {"b": 2, "a": 1}]
Make = Callable[[int], Any]


class Difference(NamedTuple):
    """The value of each call by its number, the kind of the cause, and what the path goes on with.
    `remedies` are pieces of the remedy, with the values if it is followed; None if the piece says
    that the difference is normal."""

    make: Make
    kind: str
    remedies: dict[str, Make | None]
    path: str = ""
    is_static: bool = True  # can be in aux data and static fields


STRUCTURE = 'functions="structure"'
NORMAL = "this is normal"
DIFFERENCES: dict[str, Difference] = {
    "float": Difference(float, "static", {"array": lambda i: jnp.asarray(float(i))}),
    "int": Difference(lambda i: i + 2, "static", {"array": lambda i: jnp.asarray(i)}),
    "flag": Difference(lambda i: i % 2 == 0, "static", {NORMAL: None}),
    "text": Difference(lambda i: f"text {i}", "static", {"Leave it out": lambda i: None}),
    "dtype": Difference(lambda i: [jnp.float32, np.dtype("f4")][i % 2], "static",
        {"Write the dtype the same way": lambda i: jnp.float32}),
    "order": Difference(lambda i: Static(X, BOTH[i % 2]), "static",
        {"same keys in the same order": lambda i: Static(X, BOTH[0])},
        ".value", is_static=False),
    "order in a dataclass": Difference(lambda i: Static(X, Point(Constant(BOTH[i % 2]))), "static",
        {"same keys in the same order": lambda i: Static(X, Point(Constant(BOTH[0])))},
        ".value.x.value", is_static=False),
    "keys": Difference(lambda i: {"a": 1} | {f"b{i}": 1}, "structure",
        {"the same keys on every call": lambda i: {"a": 1, "b": 1}}),
    "length": Difference(lambda i: ["s"] * (i + 2), "structure",
        {"keep it the same": lambda i: ["s"] * 9}),
    "container": Difference(lambda i: [("s",), ["s"]][i % 2], "structure",
        {"the same type of container": lambda i: ["s"]}),
    "none": Difference(lambda i: [None, "s"][i % 2], "structure, type", {NORMAL: None}),
    "type": Difference(lambda i: ["s", b"s"][i % 2], "type",
        {"Pass the same type": lambda i: "s"}),
    "lambda": Difference(lambda i: lambda x: x + 1, "recreated",
        {"Define it once": lambda i: FIRST, STRUCTURE: lambda i: lambda x: x + 1}),
    "closure": Difference(lambda i: closure(float(i)), "recreated",
        {"Make it once, and pass `n` as an argument": lambda i: FIRST}),
    "partial": Difference(lambda i: functools.partial(scaled, float(i)), "recreated",
        {"Make it once, and pass `args[0]` as an argument": lambda i: scaled}),
    "other function": Difference(lambda i: [jnp.sin, jnp.cos][i % 2], "other function",
        {NORMAL: None}),
    "method": Difference(lambda i: Plain().method, "bound method",
        {"make its class an equinox.Module": lambda i: Method(X).method,
         "Create the instance once": lambda i: SAME.method}),
    "object": Difference(lambda i: Plain(), "identity",
        {"Create it once": lambda i: SAME, "define `__eq__` and `__hash__`": lambda i: Equal()}),
    "holder": Difference(lambda i: Holder(), "identity",
        {"make `Holder` a pytree": lambda i: Registered(), "same object.": lambda i: SAME}),
    "class": Difference(lambda i: type("A", (), {}), "class", {"Define the class once": lambda i: Box}),
    "shape": Difference(lambda i: jnp.ones(i + 1), "shape",
        {"filterjit.pad_to": lambda i: filterjit.pad_to(jnp.ones(i + 1), 8)}, is_static=False),
    "rank": Difference(lambda i: jnp.ones([1] * i), "shape", {NORMAL: None}, is_static=False),
    "array dtype": Difference(lambda i: jnp.ones(2, ["int32", "float32"][i % 2]), "dtype",
        {"astype": lambda i: jnp.ones(2, ["int32", "float32"][i % 2]).astype("float32")},
        is_static=False),
    "weak type": Difference(lambda i: [jnp.asarray(2.0), jnp.float32(2)][i % 2], "weak type",
        {"Give it a dtype": lambda i: jnp.asarray([2.0, jnp.float32(2)][i % 2], dtype="float32")},
        is_static=False),
    "number or array": Difference(lambda i: [2.0, jnp.asarray(2.0)][i % 2], "type",
        {"Pass an array": lambda i: jnp.asarray([2.0, jnp.asarray(2.0)][i % 2])}, is_static=False),
    "flag or array": Difference(lambda i: [True, jnp.asarray(True)][i % 2], "type",
        {"Pass `bool(...)`": lambda i: bool([True, jnp.asarray(True)][i % 2])}, is_static=False),
    "text or array": Difference(lambda i: ["s", X][i % 2], "type",
        {"Pass an array on every call": lambda i: X}, is_static=False),
}  # fmt: skip

# How a container is made of a value, and what the path goes on with.
CONTAINERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "dict": (lambda x: {"k": x, "z": 1}, "['k']"),
    "list": (lambda x: [X, x], "[1]"),
    "tuple": (lambda x: (x, "s"), "[0]"),
    "numbers": (lambda x: [0.5, x], "[1]"),
    "module": (Box, ".value"),
    "namedtuple": (Point, ".x"),
    "dataclass": (lambda x: Data(x, X), ".rate"),
    "static": (lambda x: Static(X, x), ".value"),
    "aux": (lambda x: Aux(("a", x)), "[1]"),
}
IN_STATIC = {"static": Box, "aux": functools.partial(Aux, "a")}  # and the same, traced


def count_traces(options: dict[str, Any]) -> tuple[Any, list[None]]:
    """Returns a new jitted function, and a list that grows with each of its traces."""
    traces: list[None] = []

    def f(a: Any = None, *rest: Any, key: Any = None, **more: Any) -> Any:
        traces.append(None)
        return X

    return filter_jit(f, **options), traces


# How a function is called with a value, and the value's path.
WRAP = {name: make for name, (make, _) in CONTAINERS.items()}
FORMS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "argument": (lambda x: ((x,), {}), "a"),
    "keyword": (lambda x: ((X,), {"key": x}), "key"),
    "rest": (lambda x: ((X, 1, x), {}), "rest[1]"),
    "more": (lambda x: ((X,), {"n": x}), "more['n']"),
}


def wrapped(containers: list[str], x: Any, is_traced: bool = False) -> Any:
    for name in containers:
        x = (IN_STATIC if is_traced and name in IN_STATIC else WRAP)[name](x)
    return x


def helps(
    form: str, options: dict[str, Any], make: Make, containers: list[str], is_traced: bool = False
) -> bool:
    f, traces = count_traces(options)
    for i in range(4):
        args, kwargs = FORMS[form][0](wrapped(containers, make(i), is_traced))
        f(*args, **kwargs)
    return len(traces) == 1


def array_of(difference: Difference, container: str) -> Make:
    return lambda i: jnp.asarray(WRAP[container](difference.make(i)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_difference(seed: int) -> None:
    rng = random.Random(seed)
    name = sorted(DIFFERENCES)[seed % len(DIFFERENCES)]
    difference, form = DIFFERENCES[name], rng.choice(sorted(FORMS))
    usable = [x for x in CONTAINERS if difference.is_static or x not in IN_STATIC]
    containers = rng.choices(usable, k=rng.randint(0, 3))
    # What is in a static field or in aux data is in no further one.
    inner = [i for i, x in enumerate(containers) if x in IN_STATIC]
    containers = [
        x for i, x in enumerate(containers) if not inner or i <= inner[0] or x not in IN_STATIC
    ]
    f, traces = count_traces({"on_retrace": "ignore"})
    of_call, root = FORMS[form]
    path = root + "".join(CONTAINERS[x][1] for x in reversed(containers)) + difference.path
    args, kwargs = of_call(wrapped(containers, difference.make(0)))
    f(*args, **kwargs)
    args, kwargs = of_call(wrapped(containers, difference.make(1)))
    explanation = f.explain(*args, **kwargs)
    f(*args, **kwargs)
    said = f"{name} in {containers} of {form}:\n{explanation}"
    assert len(traces) == 2, said
    (cause,) = explanation.causes
    assert cause.kind in difference.kind and cause.path == path, said
    remedy = cause.remedy
    followed = False
    for piece, make in difference.remedies.items():
        if piece not in remedy:
            continue
        followed = True
        if make is None:
            continue
        options = {"functions": "structure"} if piece == STRUCTURE else {}
        places, is_traced = containers, "field not static" in remedy or "the aux data" in remedy
        if found := re.search(r"pass `jnp.asarray\((.*)\)`, one array", remedy):
            parent = path.removesuffix(CONTAINERS[containers[0]][1])
            assert found[1] == parent, said
            make, places = array_of(difference, containers[0]), containers[1:]
        assert helps(form, options, make, places, is_traced), said
        if found := re.search(r"filter_jit\(traced=(\(.*?\))\)", remedy):
            assert helps(form, {"traced": eval(found[1])}, difference.make, containers), said
    assert followed, said
