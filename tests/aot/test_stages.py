"""`trace`, `lower`, `compile` and `eval_shape`, compared with those of jax.jit."""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from filterjit import filter_jit, forbid_compile

X = jnp.arange(6.0).reshape(2, 3)
SPEC = jax.ShapeDtypeStruct((2, 3), jnp.float32)


def work(x: Any, y: Any) -> Any:
    return {"product": x @ y["right"].T, "same": (x, None)}, jnp.sum(y["right"])


def stages(function: Any, *args: Any) -> dict[str, Any]:
    traced = function.trace(*args)
    lowered = traced.lower()
    return {"traced": traced, "lowered": lowered, "compiled": lowered.compile()}


@pytest.fixture(scope="module")
def of_jax() -> dict[str, Any]:
    return stages(jax.jit(work), X, {"right": X})


@pytest.fixture(scope="module", params=["arrays", "specs"])
def of_filterjit(request: pytest.FixtureRequest) -> dict[str, Any]:
    x = X if request.param == "arrays" else SPEC
    return stages(filter_jit(work), x, {"right": x})


# Attributes that the tests compare separately: objects without ``==``, and text that contains stack
# frames.
_OTHERWISE = {"jaxpr", "lojax", "call", "lower", "compile", "as_text", "compiler_ir"}
_OTHERWISE |= {"cost_analysis", "memory_analysis", "runtime_executable"}


@pytest.mark.parametrize("stage", ["traced", "lowered", "compiled"])
def test_attributes_of_a_stage(
    stage: str, of_filterjit: dict[str, Any], of_jax: dict[str, Any]
) -> None:
    names = [name for name in dir(of_jax[stage]) if not name.startswith("_")]
    missing = {"closure_convert"}  # of flat arrays
    assert set(names) - missing <= set(dir(of_filterjit[stage]))
    for name in names:
        if name in _OTHERWISE | missing:
            continue
        try:
            expected = getattr(of_jax[stage], name)
        except Exception:  # some of JAX's attributes do not work on every platform
            continue
        # The text of a method has an address.
        found = re.sub(" at 0x[0-9a-f]+", "", str(getattr(of_filterjit[stage], name)))
        assert found == re.sub(" at 0x[0-9a-f]+", "", str(expected)), name
    for name in ("__jax_array__", "no_such_thing"):  # dunders are not forwarded
        with pytest.raises(AttributeError):
            getattr(of_filterjit[stage], name)
    assert repr(of_filterjit[stage]) == f"<{stage.capitalize()} of work>"
    assert isinstance(filter_jit(work), jax.stages.Wrapped)


def test_the_programs(of_filterjit: dict[str, Any], of_jax: dict[str, Any]) -> None:
    def program(text: str) -> list[Any]:  # names of arguments and line numbers differ
        return re.findall(r"stablehlo\.\w+|= (\S+ [\w-]+)\(", text)

    assert str(of_filterjit["traced"].jaxpr) == str(of_jax["traced"].jaxpr)
    for stage in ("lowered", "compiled"):
        assert program(of_filterjit[stage].as_text()) == program(of_jax[stage].as_text()) != []
    for dialect in ("stablehlo", "hlo"):
        found = of_filterjit["lowered"].compiler_ir(dialect=dialect)
        assert type(found) is type(of_jax["lowered"].compiler_ir(dialect=dialect))
    result = of_filterjit["compiled"](X, {"right": X})
    assert eqx.tree_equal(result, of_jax["compiled"](X, {"right": X}))
    assert jax.tree.structure(result) == jax.tree.structure(work(X, {"right": X}))


def mixed(model: Any, x: Any, n: int, *, name: str = "a") -> Any:
    return {"out": model(x) * n, "name": name, "model": model}


def make_model() -> Any:
    return eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0))


def test_trees_hold_the_statics() -> None:
    model = make_model()
    for made in stages(filter_jit(mixed), model, X[0], 3).values():
        (info, x, n), kwargs = made.args_info
        assert type(info) is eqx.nn.MLP and info.activation is model.activation
        assert type(info.layers[0].weight) is jax.stages.ArgInfo
        assert x.shape == (3,) and not x.donated and (n, kwargs) == (3, {})
        if hasattr(made.stage, "out_info"):
            assert made.out_info["name"] == "a" and made.out_info["out"].shape == (2,)
            assert made.out_info["model"].activation is model.activation
        assert made.in_tree == jax.tree.structure(((info, x, n), kwargs))
        if hasattr(made.stage, "input_shardings"):
            assert made.input_shardings[0][2] == 3
        if hasattr(made.stage, "out_tree"):
            assert made.out_tree == jax.tree.structure({"model": info, "name": 0, "out": 0})


def test_specs_in_a_module() -> None:
    """As an argument, and as the function: calls find the program."""
    f, x, spec = filter_jit(mixed), X[0], jax.ShapeDtypeStruct((3,), jnp.float32)
    model, model_spec = make_model(), eqx.filter_eval_shape(make_model)
    found = f.eval_shape(model_spec, spec, 3)
    assert eqx.tree_equal(found, eqx.filter_eval_shape(mixed, model, x, 3))
    compiled = f.lower(model_spec, spec, 3).compile()
    filter_jit(model_spec).lower(spec).compile()
    expected = model(x)
    with forbid_compile():
        outs = [(g(model, x, 3)["out"], 3) for g in (compiled, f)]
        outs.append((filter_jit(model).lower(x).compile()(x), 1))
    assert f.cache_info()[:2] == (1, 0)
    for out, n in outs:
        np.testing.assert_allclose(np.asarray(out) / n, expected, rtol=1e-6)


def test_eval_shape() -> None:
    dtypes = ("float32", "bfloat16", bool, jax.random.key(0).dtype)
    specs = [jax.ShapeDtypeStruct((2, 3), dtype) for dtype in dtypes]
    f = filter_jit(lambda x, n: (x[0], n, [x]))
    for x in (X, np.ones((2, 3), np.float32), *specs):
        shape = f.eval_shape(x, 3)
        assert (shape[0], shape[2]) == jax.eval_shape(lambda x: (x[0], [x]), x) and shape[1] == 3
    assert f.report().as_dict()["functions"][0]["compiles"] == 0


@pytest.mark.parametrize("options", [{}, {"in_shardings": jax.P("a"), "donate": "all"}], ids=str)
def test_symbolic_dimensions(options: dict[str, Any]) -> None:
    n, m = export.symbolic_shape("n, m")
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((n, m), (m, 2 * n + 1), (3,))]

    def f(a: Any, b: Any, c: Any) -> dict[str, Any]:
        return {"product": a @ b, "rest": [jnp.concatenate([a.ravel(), c])]}

    mesh = jax.make_mesh((1,), ("a",))
    ours = filter_jit(f, mesh=mesh, **options) if options else filter_jit(f)
    theirs = jax.jit(f)
    expected = theirs.eval_shape(*specs)
    assert jax.tree.map(str, ours.eval_shape(*specs)) == jax.tree.map(str, expected)
    assert str(ours.trace(*specs).jaxpr) == str(theirs.trace(*specs).jaxpr)
    if not options:
        assert ours.lower(*specs).out_info.keys() == expected.keys()
    other = [jax.ShapeDtypeStruct((2, 3), jnp.float32), jnp.ones((3, 5)), jnp.ones(3)]
    assert ours.eval_shape(*other)["product"].shape == (2, 5)


def test_a_failed_lower_leaves_the_cache_as_it_was() -> None:
    fail = [True]

    @filter_jit
    def f(x: Any) -> Any:
        if fail:
            raise KeyError("no")
        return x

    for name in ("lower", "trace", "eval_shape", "__call__"):
        with pytest.raises(KeyError, match="no"):
            getattr(f, name)(X)
        assert f.variants == []
    fail.clear()
    f.lower(X).compile()
    fail.append(True)
    with pytest.raises(KeyError):
        f.lower(X[0])
    assert len(f.variants) == 1 and f(X).shape == (2, 3)
