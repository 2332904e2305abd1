"""What people were told of programs that compile: each row has a program, and words of what is said."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import filterjit
from filterjit import filter_jit, partition
from support.processes import run, run_code

X = jnp.arange(5.0)
KEY = jax.random.key(0)
OPERATIONS: dict[str, Callable[[], Any]] = {
    "an index": lambda: X[0],
    "a slice": lambda: X[1:3],
    "a split key": lambda: jax.random.split(KEY, 17),
    "arithmetic": lambda: X + 1.25,
    "a function of jnp": lambda: jnp.cumsum(jnp.asarray(np.ones(23))),
    "a loop": lambda: jax.lax.fori_loop(0, 3, lambda i, x: x * 1.75, X),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_outside_of_a_jitted_function_is_forbidden(name: str) -> None:
    jax.clear_caches()
    with filterjit.forbid_compile(), pytest.raises(filterjit.ForbiddenCompileError) as raised:
        OPERATIONS[name]()
    text = str(raised.value)
    assert "(test_causes.py:" in text and "an operation outside of a jitted function" in text
    assert "move it into a jitted function, or use NumPy" in text and "before" not in text


def test_other_programs_that_are_forbidden() -> None:
    for f in (jax.jit(lambda x: x * 3), filter_jit(lambda x: x * 3)):
        with filterjit.forbid_compile(), pytest.raises(filterjit.ForbiddenCompileError) as raised:
            f(X)
        assert "make such a call before" in str(raised.value)
        assert "an operation outside" not in str(raised.value)


def test_the_report_names_the_line_whose_operations_compile(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import jax.numpy as jnp, numpy as np\n"
        "for i in range(1, 12):\n"
        "    x = jnp.asarray(np.ones(i))\n"
        "    y = (x * 2.5).sum() + jnp.sin(x).max() + jnp.cumsum(x)[0]\n"
    )
    done = run("-m", "filterjit", "run", "--report", "train.py", cwd=tmp_path, timeout=240)
    assert (
        "(not jitted by filterjit): train.py:4: operations outside of a jitted function compiled"
        in done.stderr
    )


def test_lines_of_operations_as_numbers() -> None:
    filter_jit(lambda x: x)(X)  # from now on, JAX's events are heard
    jax.clear_caches()
    X + 5.5
    lines = filterjit.report().as_dict()["others"]["operations"]
    assert any(x["file"] == __file__ and x["compiles"] > 0 < x["compiling"] for x in lines)


@pytest.mark.parametrize("tree", [{"0": X, "b": X}, {0: X, 1: X}, (X, X), [X, X]])
def test_a_quoted_name_in_a_pattern_is_that_of_a_key_or_an_index(tree: Any) -> None:
    chosen, _ = partition(tree, "['0']")
    assert [x is X for x in jax.tree.leaves(chosen)] == [True]


# ---- why a call compiles ----

OPTIMIZER = lambda: optax.adam(1e-3)


def _first() -> Callable[[Any, Any], Any]:
    return lambda x, o: x


# Each row has a function, the arguments of two calls, and what is said of the second one.
EXPLAINED: dict[str, tuple[Callable[[], Any], list[Callable[[], Any]], list[str]]] = {
    "an old key": (
        lambda: filter_jit(lambda key: key),
        [lambda: jax.random.key(0), lambda: jax.random.PRNGKey(0)],
        ["`key`: different dtype: was key<fry>[], is uint32[2] of PRNGKey", "not by `PRNGKey`"],
    ),
    "a new key": (
        lambda: filter_jit(lambda key: key),
        [lambda: jax.random.split(jax.random.PRNGKey(0), 5), lambda: jax.random.key(0)],
        ["`key`: different dtype: was uint32[5,2] of PRNGKey, is key<fry>[]", "not by `PRNGKey`"],
    ),
    "an optimizer of jit": (
        lambda: filterjit.jit(_first(), static_argnames="o"),
        [lambda: (X, OPTIMIZER()), lambda: (X, OPTIMIZER())],
        ["`o.update`: recreated function", "create `o` once, and pass the same object"],
    ),
    "an optimizer of nnx.jit": (
        lambda: filterjit.nnx.jit(_first(), static_argnames="o"),
        [lambda: (X, OPTIMIZER()), lambda: (X, OPTIMIZER())],
        ["`o.update`: recreated function", "create `o` once, and pass the same object"],
    ),
    "a number of a static tuple": (
        lambda: filterjit.jit(_first(), static_argnames="o"),
        [lambda: (X, (1, 2)), lambda: (X, (1, 3))],
        ["`o[1]`: different static value: was the int 2, is the int 3", "leave it out of `static_"],
    ),
    "an object in a static tuple": (
        lambda: filterjit.jit(_first(), static_argnames="o"),
        [lambda: (X, (object(), 2)), lambda: (X, (object(), 2))],
        ["`o[0]`: different object, which is equal only to itself", "Create it once"],
    ),
    "a method of a library's object": (
        lambda: filter_jit(_first()),
        [lambda: (X, optax.MultiSteps(OPTIMIZER(), 2).gradient_transformation())] * 2,
        ["`o.update`: bound method of a different instance", "A library makes it: create `o` once"],
    ),
    "a rate in a chain": (
        lambda: filter_jit(_first(), functions="structure"),
        [lambda: (X, optax.adamw(1e-3, mask={"a": True})), lambda: (X, optax.adamw(1e-2, mask={"a": True}))],
        ["is a new function with the same code but another `step_size`", "Each value has its own program"],
    ),
    "a mask": (
        lambda: filter_jit(_first(), functions="structure"),
        [lambda: (X, optax.adamw(1e-3, mask={"a": True})), lambda: (X, optax.adamw(1e-3, mask={"a": False}))],
        ["is a new function with the same code but another `mask`", "Each value has its own program"],
    ),
    "another optimizer": (
        lambda: filter_jit(_first(), functions="structure"),
        [lambda: (X, optax.adam(1e-3)), lambda: (X, optax.sgd(1e-3))],
        ["the same function, which holds other functions", "this is normal if there are few"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPLAINED)
def test_why_a_call_compiles(name: str) -> None:
    make, (first, second), expected = EXPLAINED[name]
    f, arguments = make(), [x if type(x) is tuple else (x,) for x in (first(), second())]
    f(*arguments[0])
    text = str(f.explain(*arguments[1]))
    for words in expected:
        assert words in text
    assert "as an array" not in text


def test_the_closest_program_has_the_same_shapes() -> None:
    run_code(
        """
        import itertools, os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
        import jax, jax.numpy as jnp
        from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
        import filterjit

        for axis, order in itertools.product((AxisType.Auto, AxisType.Explicit), ((4, 8), (8, 4))):
            mesh = jax.make_mesh((4,), ("x",), (axis,))
            whole, parts = (NamedSharding(mesh, spec) for spec in (P(), P("x")))
            f = filterjit.filter_jit(lambda xs, y: sum(xs))
            for n in order:
                f([jax.device_put(jnp.ones(n), whole)] * 3, jnp.ones(2))
            x = jax.device_put(jnp.ones(4), parts)
            texts = [str(f.explain([x] * 3, jnp.ones(2)))]
            try:
                with filterjit.forbid_compile():
                    f([x] * 3, jnp.ones(2))
            except filterjit.ForbiddenCompileError as e:
                texts.append(str(e))
            assert len(texts) == 2
            for text in texts:
                assert "`xs[0]`: different sharding" in text and "shape" not in text, (axis, text)
        """
    )


SETTINGS: dict[str, Any] = {
    "jax_debug_nans": True,
    "jax_debug_infs": True,
    "jax_enable_checks": True,
    "jax_default_prng_impl": "rbg",
    "jax_default_matmul_precision": "highest",
    "jax_numpy_rank_promotion": "raise",
    "jax_enable_x64": True,
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_a_cause_if_it_makes_jax_compile(name: str) -> None:
    f = filter_jit(lambda x: x * 2)
    f(X)
    before = getattr(jax.config, name)
    jax.config.update(name, SETTINGS[name])
    try:
        explanation = f.explain(X)
        f(X)
    finally:
        jax.config.update(name, before)
    assert explanation.hit == (f.report().as_dict()["functions"][0]["compiles"] == 1)
    assert explanation.hit or name in str(explanation)


def test_in_shardings_place_an_array_that_is_committed_elsewhere() -> None:
    mesh = jax.make_mesh((1,), ("x",))
    f = filter_jit(lambda x: x * 2, in_shardings=jax.sharding.PartitionSpec())
    with jax.set_mesh(mesh):
        f(X)
        x = jax.device_put(X, jax.devices()[0])
        assert f.explain(x).hit
        f(x)
    assert f.report().as_dict()["functions"][0]["compiles"] == 1


@pytest.mark.parametrize("calls", [1, 2, 20])
def test_another_functions_clear_cache_drops_nothing_of_a_call_that_was_refused(calls: int) -> None:
    traces = []

    @filter_jit
    def f(x: Any) -> Any:
        traces.append(None)
        return x * 2

    other = filter_jit(lambda x: x + 1)
    f(X), other(X)
    y = jnp.ones(7)
    with filterjit.forbid_compile(), pytest.raises(filterjit.ForbiddenCompileError):
        f(y)
    for _ in range(calls):
        f(y)
    other.clear_cache()
    assert f.explain(y).hit
    f(y)
    assert len(traces) == 2


# ---- what is created again in each epoch ----


def _of_shapes(f: Any, *others: Any) -> None:
    for n in (3, 2):
        for _ in range(5):
            f(jnp.ones(n), *others)


def _epoch_of_function() -> Callable[[int], None]:
    def epoch(i: int) -> None:
        o = OPTIMIZER()
        _of_shapes(filter_jit(lambda x: o.update(x, o.init(x))[0]))

    return epoch


def _epoch_of(jitted: Any, make: Callable[[int], Any]) -> Callable[[], Callable[[int], None]]:
    def start() -> Callable[[int], None]:
        f = jitted(_first())
        return lambda i: _of_shapes(f, make(i))

    return start


def _table() -> Callable[[int], None]:
    f, optimizers = filter_jit(_first()), [optax.adam(10.0**-i) for i in range(12)]
    return lambda i: [f(X, o) for o in optimizers for _ in range(5)] and None


def _sweep() -> Callable[[int], None]:
    return lambda i: _of_shapes(filter_jit(lambda x: x * i))


EPOCHS: dict[str, tuple[Callable[[], Callable[[int], None]], str]] = {
    "an optimizer": (_epoch_of(filter_jit, lambda i: OPTIMIZER()), "create `o` once"),
    "an optimizer of nnx.jit": (
        _epoch_of(lambda f: filterjit.nnx.jit(f, static_argnums=1), lambda i: OPTIMIZER()),
        "create `o` once",
    ),
    "an optimizer in a module": (
        _epoch_of(
            filterjit.nnx.jit,
            lambda i: nnx.Optimizer(
                nnx.Linear(2, 2, rngs=nnx.Rngs(0)), OPTIMIZER(), wrt=nnx.Param
            ),
        ),
        "create `o.tx` once",
    ),
    "a lambda": (_epoch_of(filter_jit, lambda i: lambda x: x), "Define it once"),
    "a function": (_epoch_of_function, "defined or jitted again each time"),
    "a table": (_table, ""),
    "a sweep": (_sweep, ""),
    "numbers": (_epoch_of(filter_jit, lambda i: i), ""),
    "optimizers of other rates": (_epoch_of(filter_jit, lambda i: optax.adam(10.0**-i)), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", EPOCHS)
def test_what_is_created_again_in_each_epoch(name: str) -> None:
    start, expected = EPOCHS[name]
    epoch = start()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(12):
            epoch(i)
    told = [str(w.message) for w in caught if w.category is filterjit.RetraceWarning]
    assert len(told) == bool(expected)
    assert all("was compiled 8 times" in text and expected in text for text in told)


# ---- optimizers that functions="structure" takes for one ----

RATE = optax.cosine_decay_schedule(1e-3, 100)
LABELS = {"w": "a", "b": "b"}
SHARED: dict[str, Callable[[], Any]] = {
    "adam": lambda: optax.adam(1e-3),
    "a cosine schedule": lambda: optax.adam(optax.cosine_decay_schedule(1e-3, 100)),
    "a piecewise schedule": lambda: optax.sgd(optax.piecewise_constant_schedule(0.1, {10: 0.1})),
    "a warm-up": lambda: optax.adam(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100)),
    "joined": lambda: optax.sgd(optax.join_schedules([lambda i: 0.1, lambda i: 0.2], [10])),
    "masked": lambda: optax.masked(optax.adam(1e-3), {"w": True, "b": False}),
    "a mask": lambda: optax.adamw(1e-3, mask={"w": True, "b": False}),
    "several": lambda: optax.multi_transform({"a": optax.adam(1e-3), "b": optax.sgd(0.1)}, LABELS),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=1e-3),
    "an injected schedule": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=RATE),
    "several steps": lambda: optax.MultiSteps(optax.adam(1e-3), 4).gradient_transformation(),
    "an array": lambda: optax.adam(jnp.asarray(1e-3)),
}


@pytest.mark.parametrize("name", SHARED)
def test_equal_optimizers_share_a_program(name: str) -> None:
    f = filter_jit(_first(), functions="structure")
    for _ in range(3):
        f(X, SHARED[name]())
    assert len(f.variants) == 1


def test_what_a_library_holds_is_compared_by_contents() -> None:
    def step(x: Any, o: Any) -> Any:
        return o.update({"w": x, "b": x}, o.init({"w": x, "b": x}))[0]

    f, mask = filter_jit(step, functions="structure"), {"w": True, "b": False}
    o = optax.masked(optax.scale(2.0), mask)
    assert [float(y[0]) for y in f(X + 1, o).values()] == [1.0, 2.0]
    mask["b"] = True
    assert [float(y[0]) for y in f(X + 1, o).values()] == [2.0, 2.0]
    for rate in (3.0, 4.0):
        o = optax.scale(jnp.asarray(rate))
        assert float(f(X + 1, o)["w"][0]) == rate
    assert len(f.variants) == 4
