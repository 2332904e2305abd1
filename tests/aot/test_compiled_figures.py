"""What a compiled function tells of itself: `report`, `cache_info`, `explain`."""

import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import filterjit
from filterjit import MismatchError, filter_jit
from filterjit._observe._functions import functions
from support.direct import counts
from support.processes import environment, run_code

X = jnp.arange(4.0)


def scale_for_figures(model: Any, x: Any, n: int = 2) -> Any:
    return model["w"] * x * n


@pytest.fixture(params=["compiled", "loaded"])
def compiled(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    found = filter_jit(scale_for_figures).lower({"w": X}, X, 3).compile()
    if request.param == "compiled":
        return found
    found.save(tmp_path / "scale.jit")
    return filterjit.load(tmp_path / "scale.jit")


@pytest.fixture
def timed() -> Iterator[None]:
    filterjit.time_calls()
    yield
    filterjit.time_calls(False)


def row_of(f: Any) -> dict[str, Any]:
    (row,) = f.report().as_dict()["functions"]
    json.dumps(row)
    return row


OTHERS: dict[str, tuple[Callable[[], tuple[Any, ...]], str]] = {
    "static": (
        lambda: ({"w": X}, X, 4),
        "`n`: different static value: was the int 3, is the int 4",
    ),
    "type": (lambda: ({"w": X}, X, 3.0), "`n`: different type: was the int 3, is the float 3.0"),
    "given": (
        lambda: ({"w": X}, X),
        "`n`: argument added or left out: was the int 3, is not given",
    ),
    "structure": (
        lambda: ({"w": X, "b": X}, X, 3),
        "`model`: different structure: was a dict of 'w', is one with 'b'",
    ),
    "shape": (
        lambda: ({"w": X}, jnp.ones(5), 3),
        "`x`: different shape: was float32[4], is float32[5]",
    ),
    "dtype": (
        lambda: ({"w": X}, X.astype(jnp.int32), 3),
        "`x`: different dtype: was float32[4], is int32[4]",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_explain_says_what_a_call_raises(compiled: Any, name: str) -> None:
    make, expected = OTHERS[name]
    explanation = compiled.explain(*make())
    assert not explanation and explanation.compiled
    assert str(explanation).splitlines() == [
        "`scale_for_figures`: raises MismatchError because",
        f"  {expected}",
        "  -> Compile it for these arguments too, or call the function itself.",
    ]
    assert explanation.line == f"raises MismatchError because {expected}"
    with pytest.raises(MismatchError) as error:
        compiled(*make())
    assert all(cause.path in str(error.value) for cause in explanation.causes)


def test_explain_of_a_call_that_runs(compiled: Any) -> None:
    explanation = compiled.explain({"w": X + 1}, x=X, n=3)
    assert explanation and str(explanation) == "`scale_for_figures`: hit"
    assert compiled.cache_info()[:2] == (0, 0)  # nothing ran
    assert (compiled({"w": X + 1}, x=X, n=3) == (X + 1) * X * 3).all()
    deleted = jnp.ones(4)
    deleted.delete()
    text = str(compiled.explain({"w": deleted}, X, 3))
    assert text.startswith("`scale_for_figures`: raises an error because\n  `model['w']`: deleted")
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments but 4 were given"):
        compiled.explain(X, X, 3, 4)


def test_counters(compiled: Any, timed: None) -> None:
    for _ in range(40):
        compiled({"w": X}, X, 3)
    for make, _ in OTHERS.values():
        with pytest.raises(MismatchError):
            compiled(*make())
    info = compiled.cache_info()
    assert info[:4] == (40, len(OTHERS), 1, 1) and info.bytes > 0
    row = row_of(compiled)
    assert row["calls"] == 40 + len(OTHERS) and row["hits"] == 40 and row["traces"] == 0
    if jax.__version_info__ >= (0, 12):  # older ones have no direct calls of compiled functions
        assert row["direct"] == counts(compiled)["direct"] > 10
    assert row["dispatch"] > 0 and row["bytes"] == info.bytes
    assert row["cause"] is None and row["decorator"] == "compiled"
    assert "n=3" in row["variants"][0]["arguments"]
    assert str(compiled.report()).splitlines()[2].split()[2:4] == ["46", "40"]


def test_the_report_of_the_process_has_it_also_after_its_end(tmp_path: Path) -> None:
    def ended_in_figures(x: Any) -> Any:
        return x + 1

    compiled = filter_jit(ended_in_figures).lower(X).compile()
    compiled.save(tmp_path / "f.jit")
    loaded = filterjit.load(tmp_path / "f.jit")
    compiled(X), compiled(X), loaded(X)

    def calls() -> list[int]:
        rows = filterjit.report().as_dict()["functions"]
        return [row["calls"] for row in rows if "ended_in_figures (" in row["name"]]

    assert sorted(calls()) == [1, 2]
    del compiled, loaded
    gc.collect()
    assert sorted(calls()) == [1, 2]


def test_clearing_the_caches_leaves_it_as_it_is(compiled: Any) -> None:
    compiled({"w": X}, X, 3)
    filterjit.clear_caches()
    jax.clear_caches()
    assert (compiled({"w": X}, X, 3) == X * X * 3).all()
    assert compiled.cache_info()[:3] == (2, 0, 1)


def test_a_program_with_symbolic_dimensions_tells_what_it_compiled(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    (n,) = jax.export.symbolic_shape("n")
    spec = jax.ShapeDtypeStruct((n,), jnp.float32)
    filter_jit(lambda x: x * 2).lower(spec).save(tmp_path / "f.jit")
    loaded = filterjit.load(tmp_path / "f.jit")
    for size in (1, 2, 3, 2, 1):
        loaded(jnp.ones(size))
    row = row_of(loaded)
    assert (row["calls"], row["hits"], row["compiles"]) == (5, 5, 3) and row["compiling"] > 0
    assert loaded.explain(jnp.ones(9))
    assert "was float32[n], is float32[2,2]" in str(loaded.explain(jnp.ones((2, 2))))


def test_a_compiled_function_is_freed(compiled: Any) -> None:
    compiled({"w": X}, X, 3)
    compiled.report(), compiled.cache_info(), compiled.explain({"w": X}, X, 4)
    before = {id(cache) for cache, _ in functions.live()}
    other = filter_jit(lambda x: x - 1).lower(X).compile()
    other(X), other.report(), other.cache_info()
    del other
    gc.collect()
    assert {id(cache) for cache, _ in functions.live()} <= before


def test_attributes_are_listed(compiled: Any) -> None:
    assert {"explain", "report", "cache_info", "save", "as_text"} <= {*dir(compiled)}


def test_a_process_that_only_loads(tmp_path: Path) -> None:
    filter_jit(scale_for_figures).lower({"w": X}, X, 3).compile().save(tmp_path / "scale.jit")
    code = f"""
        import jax.numpy as jnp
        import filterjit
        filterjit.time_calls()
        scale = filterjit.load({str(tmp_path / "scale.jit")!r})
        x = jnp.ones(4)
        for _ in range(30):
            scale({{"w": x}}, x, 3)
        try:
            scale({{"w": x}}, x, 5)
        except filterjit.MismatchError:
            pass
        print(scale.cache_info()[:4])
        (row,) = filterjit.report().as_dict()["functions"]
        print(row["name"], row["calls"], row["hits"], row["dispatch"] > 0)
        print(scale.explain({{"w": x}}, x, 5).line)
    """
    done = run_code(code, env=environment())
    assert done.stdout.splitlines() == [
        "(30, 1, 1, 1)",
        "scale_for_figures (loaded) 31 30 True",
        "raises MismatchError because `n`: different static value: was the int 3, is the int 5",
    ]
