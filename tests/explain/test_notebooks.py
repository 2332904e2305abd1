"""What a notebook shows: real notebooks, which Jupyter runs."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from filterjit._terminal import _notebook
from support.processes import environment

CELLS = (
    """
    import filterjit, jax, jax.numpy as jnp
    from filterjit import filter_jit
    from filterjit._terminal import _progress
    _progress._PATIENCE = 0.05
    x = jnp.ones(2)
    """,
    """
    @filter_jit
    def f(x, n):
        return x * n
    y = f(x, 2), f(x, 2)
    f.explain(x, 3)
    """,
    "f.warm_up_all([((jnp.ones(n), 2), {}) for n in (1, 2, 3)] + [((1,), {})])",
    """
    filterjit.switches.time_calls = True
    def make(k):
        return lambda x: x + k

    @filter_jit
    def g(fun, x):
        return fun(x)
    y = g(make(1), x)
    g.explain(make(2), x)
    """,
    """
    @filter_jit
    def slow(x):
        for i in range(60):
            x = jnp.sin(x) @ jnp.cos(x) + i
        return x
    y = slow(jnp.ones((3, 3)))
    """,
    "slow.report()",
    "f.report()",
    """
    filterjit.switches.progress = False
    y = slow(jnp.ones((4, 4)))
    """,
)


def run_notebook(folder: Path, patch: pytest.MonkeyPatch) -> list[list[dict[str, Any]]]:
    """Returns the outputs of each cell, after Jupyter has run them."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cells = [nbformat.v4.new_code_cell(textwrap.dedent(text).strip()) for text in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        patch.setenv(name, str(folder))
    nbclient.NotebookClient(notebook, timeout=500).execute(cwd=str(folder), env=environment())
    return [cell.outputs for cell in notebook.cells]


def text_of(output: dict[str, Any], kind: str = "text/plain") -> str:
    text = output["text"] if "text" in output else output["data"].get(kind, "")
    return "".join(text)


@pytest.mark.slow
def test_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = run_notebook(tmp_path, monkeypatch)
    last = [text_of(cell[-1]) if cell else "" for cell in outputs]

    assert last[1].splitlines()[:2] == [
        "`f`: compiles again because",
        "  `n`: different static value: was the int 2, is the int 3",
    ]
    assert last[2] == """{3: TypeError("f(): missing a required argument: 'n'")}"""
    assert "the function `make.<locals>.<lambda>` of In [4], line 3, is a new" in last[3]
    assert "It is recreated at In [4], line 3." in last[3]
    pattern = r"filterjit: compiled __main__\.slow \(In \[5\], line 1\) in \d+\.\d s"
    assert [re.fullmatch(pattern, text_of(one)) is not None for one in outputs[4]] == [True]
    assert "__main__.slow" in last[5]
    assert last[6].startswith("filterjit: where the time")
    assert outputs[7] == []  # the display is turned off
    assert "ipykernel" not in "".join(text_of(one) for cell in outputs for one in cell)


def test_outside_of_a_notebook() -> None:
    assert not _notebook.is_notebook()
    assert _notebook.cell_of("<ipython-input-1>") is None
