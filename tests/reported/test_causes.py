"""What people were told of programs that compile: each row has a program, and words of what is said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from filterjit import filter_jit, partition
from support.processes import run

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
        "for i in range(1, 80):\n"
        "    x = jnp.asarray(np.ones(i))\n"
        "    y = (x * 2.5).sum() + jnp.sin(x).max() + jnp.cumsum(x)[0]\n"
    )
    done = run("-m", "filterjit", "run", "--report", "train.py", cwd=tmp_path, timeout=240)
    assert (
        "(not jitted by filterjit): train.py:4, outside of a jitted function, compiled"
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
