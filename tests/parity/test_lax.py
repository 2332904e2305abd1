"""`filterjit.lax` beside ``jax.lax``: the same bodies over arrays alone, and over trees with statics."""

import functools
import gc
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
from flax import nnx

import filterjit
from filterjit import filter_jit, is_array, lax
from support.comparison import Traces, comparable, identical
from support.modules import Holder
from support.statics import Level
from support.trees import KEY, MODULES, TREES

X = jnp.arange(1.0, 4.0)
MLP = eqx.nn.MLP(2, 2, 4, depth=1, activation=jax.nn.gelu, key=KEY)


@pytest.mark.parametrize("name", lax.__all__)
def test_signatures_are_those_of_jax(name: str) -> None:
    ours, theirs = (
        {p.name: (p.kind, p.default if p.name[:7] != "operand" else "") for p in found}
        for found in (
            inspect.signature(getattr(m, name)).parameters.values() for m in (lax, jax.lax)
        )
    )
    assert ours.pop("traced") == (inspect.Parameter.KEYWORD_ONLY, False)
    assert ours == theirs


# ---- all trees ----


def change(x: Any) -> Any:
    if not is_array(x) or jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return x
    return ~x if x.dtype == bool else x + jnp.ones((), x.dtype)


def changed(tree: Any) -> Any:
    return jax.tree.map(change, tree)


def first(tree: Any) -> Any:
    return [jnp.sum(x) for x in jax.tree.leaves(tree) if is_array(x) and x.dtype == jnp.float32]


ON_TREES: dict[str, Callable[[Any, Any], Any]] = {
    "scan": lambda lax, t: lax.scan(lambda c, x: (changed(c), (c, x, first(c))), t, X),
    "while_loop": lambda lax, t: lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, changed(c[1])), (jnp.asarray(0), t)
    )[1],
    "fori_loop": lambda lax, t: lax.fori_loop(0, 3, lambda i, c: changed(c), t),
    "cond": lambda lax, t: lax.cond(jnp.asarray(True), changed, lambda t: t, t),
    "switch": lambda lax, t: lax.switch(
        jnp.asarray(1), [lambda t, x: (t, x), lambda t, x: (changed(t), x + 1)], t, X
    ),
}
ALL = {k: v for k, v in (TREES | MODULES).items() if k != "flax NNX Module"}


# Each tree in one of the functions, and all in one of them.
CASES = [
    (program, name)
    for i, program in enumerate(ON_TREES)
    for j, name in enumerate(ALL)
    if program == "scan" or j % len(ON_TREES) == i
]


@pytest.mark.parametrize(("program", "name"), CASES)
def test_a_tree_comes_back_as_itself(program: str, name: str) -> None:
    """The jaxprs, that of the gradient too, are those of ``jax.lax`` on the arrays alone."""
    tree, run = ALL[name](), ON_TREES[program]
    leaves, treedef = jtu.tree_flatten(tree)
    places = [i for i, x in enumerate(leaves) if is_array(x)]
    arrays = [leaves[i] for i in places]

    def ours(arrays: Any) -> Any:
        found = dict(zip(places, arrays, strict=True))
        given = treedef.unflatten([found.get(i, x) for i, x in enumerate(leaves)])
        return [x for x in jax.tree.leaves(run(lax, given)) if is_array(x)]

    def theirs(arrays: Any) -> Any:
        return jax.tree.leaves(run(jax.lax, arrays))

    def gradient(run: Any) -> Any:
        def total(floats: dict[int, Any]) -> Any:
            return sum(first(run([floats.get(i, x) for i, x in enumerate(arrays)])), jnp.zeros(()))

        return jax.grad(total)

    floats = {i: jnp.asarray(x) for i, x in enumerate(arrays) if x.dtype == jnp.float32}
    assert jaxpr(ours, arrays) == jaxpr(theirs, arrays)
    if program in ("scan", "fori_loop", "cond"):
        assert jaxpr(gradient(ours), floats) == jaxpr(gradient(theirs), floats)
    result = run(lax, tree)
    last = result if program.startswith(("while", "fori", "cond")) else result[0]
    assert jtu.tree_structure(last) == treedef
    statics = [x for x in jax.tree.leaves(last) if not is_array(x)]
    assert identical(statics, [x for x in leaves if not is_array(x)])


def jaxpr(f: Any, *args: Any) -> str:
    return str(jax.make_jaxpr(f)(*args))


# ---- the options of jax.lax ----


def add(c: Any, x: Any) -> tuple[Any, Any]:
    return {"last": x, "sum": c["sum"] + x}, (c["sum"], x)


INIT = {"sum": jnp.zeros(()), "last": jnp.zeros(())}
WEAK = {"sum": jnp.asarray(0), "last": jnp.asarray(0.0)}
OPTIONS: dict[str, Callable[[Any], Any]] = {
    "reverse": lambda lax: lax.scan(add, INIT, X, reverse=True),
    "unroll": lambda lax: lax.scan(add, INIT, X, unroll=2),
    "length": lambda lax: lax.scan(lambda c, _: (c + 1, c), jnp.asarray(0), length=3),
    "no steps": lambda lax: lax.scan(add, INIT, X[:0]),
    "weak types": lambda lax: lax.scan(add, WEAK, X),
    "NumPy": lambda lax: lax.scan(
        add, {"sum": np.zeros(()), "last": np.float32(0)}, np.arange(3.0)
    ),
    "bounds": lambda lax: lax.fori_loop(np.int32(1), 4, lambda i, c: c + i, X),
    "a bool": lambda lax: lax.cond(True, jnp.sin, jnp.cos, X),
    "no operands": lambda lax: lax.cond(np.bool_(False), lambda: X, lambda: X + 1),
    "operand": lambda lax: lax.cond(True, jnp.sin, jnp.cos, operand=X),
    "vmap": lambda lax: jax.vmap(lambda x: lax.scan(add, INIT, x))(jnp.ones((2, 3))),
    "grad": lambda lax: jax.grad(lambda x: lax.scan(add, INIT, x * x)[0]["sum"])(X),
    "filter_jit": lambda lax: filter_jit(lambda x: lax.scan(filter_jit(add), INIT, x))(X),
    "a partial": lambda lax: lax.scan(functools.partial(lambda k, c, x: (c + k, x), 2), X, X),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_those_of_jax(name: str) -> None:
    ours, theirs = (jax.make_jaxpr(lambda m=m: OPTIONS[name](m))() for m in (lax, jax.lax))
    assert str(ours) == str(theirs)
    assert comparable(OPTIONS[name](lax)) == comparable(OPTIONS[name](jax.lax))
    with jax.disable_jit():
        outcomes = [outcome(lambda m=m: OPTIONS[name](m)) for m in (lax, jax.lax)]
    assert outcomes[0] == outcomes[1]


def outcome(run: Callable[[], Any]) -> Any:
    try:
        return comparable(run())
    except (TypeError, ValueError) as e:  # of no steps, and of other dtypes in each
        return str(e)


# ---- statics, and numbers ----


def test_statics_of_slices_and_of_results() -> None:
    def step(c: Any, x: Any) -> Any:
        assert (x["n"], c["act"]) == (3, jax.nn.gelu)
        return c, {"y": c["act"](x["a"]) * x["n"], "act": c["act"], "n": 2 * x["n"]}

    carry, ys = lax.scan(step, {"act": jax.nn.gelu}, {"a": X, "n": 3})
    assert carry == {"act": jax.nn.gelu} and (ys["act"], ys["n"]) == (jax.nn.gelu, 6)
    assert jnp.array_equal(ys["y"], jax.nn.gelu(X) * 3)
    assert lax.cond(X[0] > 0, lambda: ("name", X), lambda: ("name", 2 * X))[0] == "name"


def test_statics_are_compared_exactly_and_are_those_of_the_call() -> None:
    """JAX keeps a trace for statics that are equal: not for 1 and True, and its own objects do not
    come back."""
    seen: list[Any] = []

    def step(c: Any, x: Any) -> Any:
        seen.append(c[0])
        return c, None

    given = [1, True, 1.0, Level.HIGH, *(("a" * n).replace("b", "") for n in (900, 900))]
    found = [lax.scan(step, (static, X), length=2)[0][0] for static in given]
    assert identical(found, given)
    assert comparable(seen) == comparable(given[:-1]) and found[-1] is not found[-2]


def test_a_static_that_has_changed_in_place_is_another_one() -> None:
    held, traces = [1], Traces()

    def step(c: Any, x: Any) -> Any:
        traces.tick()
        return c, x * c.s[0]

    for n in (1, 1, 5, 5):
        held[0] = n
        holder, ys = lax.scan(step, Holder(X, held), X)
        assert holder.s is held and jnp.array_equal(ys, n * X)
    assert traces.count == 2


def test_numbers_are_traced_where_the_option_says() -> None:
    def body(i: Any, c: Any) -> Any:
        assert type(c["size"]) is int
        return {"n": c["n"] + 1, "rate": 0.5, "size": 3, "x": jnp.ones(c["size"])}

    init = {"n": 0, "rate": 0.1, "size": 3, "x": X}
    for traced in (filterjit.Filter("n") | "rate", lambda x: x != 3):
        found = lax.fori_loop(0, 4, body, init, traced=traced)
        expected = {"n": jnp.asarray(4), "rate": jnp.asarray(0.5), "size": 3, "x": jnp.ones(3)}
        assert comparable(found) == comparable(expected)
    both = [
        m.scan(lambda c, x: (c + 1, c), 0, length=3, **o)
        for m, o in ((lax, {"traced": True}), (jax.lax, {}))
    ]
    assert comparable(both[0]) == comparable(both[1])
    found = lax.cond(True, lambda a, b: a * 2, lambda a, b: a, 3, 4, traced="0")
    assert comparable(found) == comparable(jnp.asarray(6))


# ---- mistakes: tests/test_pages.py runs those in tests/messages.md ----

fori = functools.partial(lax.fori_loop, 0, 3)
LOOP = "`lax.fori_loop`: `body_fun` must return the carry with the same structure and the same statics:\n  "
CHANGES = "`lax.scan`: `f` must return the carry with the same structure and the same statics:\n  "
BRANCHES = "must return the same structure and the same statics:\n  "
PUT = "\n  -> A Python number is static: put an array into "
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a sum of vectors": (lambda: lax.scan(lambda c, x: (c + X, x), 0, X),
        CHANGES + "the carry: was the int 0, is an array" + PUT + "`init`.$"),
    "a count in a loop": (lambda: fori(lambda i, c: (c[0], [c[1][0] + 1]), (X, [0])),
        LOOP + "`[1][0]`: was the int 0, is the int 1" + PUT + "`init_val`, or pass `traced=...`.$"),
    "a number that is not traced": (
        lambda: lax.scan(lambda c, x: ((c[0] + 1, c[1] + 1), x), (0, 0), X, traced="0"),
        CHANGES + "`[1]`: was the int 0, is the int 1" + PUT + "`init`.$"),
    "a number of another type": (lambda: lax.scan(lambda c, x: (c + 0.5, x), 0, X),
        CHANGES + "the carry: was the int 0, is the float 0.5" + PUT + "`init`, or pass `traced=...`.$"),
    "a number of another type in a static field": (
        lambda: lax.scan(lambda c, x: (Holder(c.x, 1.5), x), Holder(X, 1), X),
        CHANGES + "`s`: was the int 1, is the float 1.5$"),
    "a number in a static field": (
        lambda: lax.scan(lambda c, x: (Holder(c.x, (1, 3)), x), Holder(X, (1, 2)), X),
        CHANGES + "`s[1]`: was the int 2, is the int 3$"),
    "a flag": (lambda: lax.while_loop(lambda c: c[0], lambda c: (jnp.asarray(False),), (True,)),
        "`[0]`: was True, is an array" + PUT + "`init_val`.$"),
    "a static that is changed in place": (
        lambda: lax.scan(lambda c, x: (c.s.append(1) or c, x), Holder(X, []), X),
        CHANGES + "`s`: was changed in place. What is static is the same in each step"),
    "a shape": (lambda: fori(lambda i, c: eqx.tree_at(lambda m: m.layers[1].bias, c, X), MLP),
        ".layers[1].bias has type float32[2] but the corresponding output "
        "carry component has type float32[3]"),
    "the third branch": (lambda: lax.switch(0, [lambda: "a", lambda: "a", lambda: "b"]),
        f"`lax.switch`: the branches {BRANCHES}the result: the str 'a' from `branches[0]`, "
        "the str 'b' from `branches[2]`"),
    "a Variable of NNX": (lambda: lax.cond(True, lambda v: v, lambda v: v, nnx.Param(X)),
        "`operands` of `lax.cond` holds a `Param` of NNX."),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    run, text = MISTAKES[name]
    for _ in range(2):  # JAX keeps no trace that has failed
        with pytest.raises(TypeError) as caught:
            run()
        assert text in str(caught.value).partition("\n-----")[0] + "$"


def test_a_pattern_of_no_leaf() -> None:
    with pytest.raises(ValueError, match="'rate' matches no leaf"):
        lax.scan(lambda c, x: (c, x), {"n": 0}, X, traced="rate")


def test_an_error_of_a_branch_is_its_own_and_raised_once(traces: Traces) -> None:
    def wrong(x: Any) -> Any:
        traces.tick()
        raise TypeError("another structure")

    with pytest.raises(TypeError, match="another structure") as caught:
        lax.cond(True, wrong, jnp.sin, X)
    assert traces.count == 1 and caught.value.__context__ is None


def test_errors_of_a_trace_name_the_path() -> None:
    def step(c: Any, x: Any) -> Any:
        return (c, x if c["w"] > 0 else -x)

    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"function step at .*c\['w'\]"):
        lax.scan(step, {"w": X[0], "name": "a"}, X)


# ---- traces ----


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "scan": lambda lax, f, t: lax.scan(f, t, X),
    "while_loop": lambda lax, f, t: lax.while_loop(never, f, t),
    "fori_loop": lambda lax, f, t: lax.fori_loop(0, 3, f, t),
    "cond": lambda lax, f, t: lax.cond(True, f, jnp.copy, t),
    "switch": lambda lax, f, t: lax.switch(1, [jnp.copy, f], t),
}


def never(c: Any) -> Any:
    return jnp.asarray(False)


@pytest.mark.parametrize("is_object", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_function_is_traced_once_and_is_freed(name: str, is_object: bool, traces: Traces) -> None:
    def body(*args: Any) -> Any:
        traces.tick()
        return args[-2:] if name == "scan" else args[-1]

    if is_object:
        body = type("Body", (), {"__call__": body})()

    for _ in range(5):
        CALLS[name](jax.lax, body, X)
    assert traces.count == 1
    for _ in range(5):
        CALLS[name](lax, body, X)
    assert traces.count == 2
    if name not in ("cond", "switch"):
        for act in (jax.nn.gelu, jax.nn.relu, jax.nn.gelu):
            CALLS[name](lax, body, {"x": X, "act": act})
        assert traces.count == 4
    freed = weakref.ref(body)
    del body
    gc.collect()
    assert freed() is None
