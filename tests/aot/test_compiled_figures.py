"""What a compiled function tells of itself: `report`, `cache_info`, `explain`."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import filterjit
from filterjit import MismatchError, filter_jit
from support.direct import counts

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
    (cause,) = explanation.causes
    now = "without it" if name == "given" else f"with {cause.now}"
    said = f"{cause.place}: compiled for {cause.was}, called {now}"
    assert said in str(error.value) or name == "structure"


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
