"""The examples in docstrings run as printed, and each public name has a docstring.

An example runs by itself, in an empty folder, with the names of filterjit and those below. `...` in
an output stands for anything.
"""

import doctest
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from filterjit import nnx
from support.docstrings import public_docstrings

NAMES = {"eqx": eqx, "jax": jax, "jnp": jnp, "np": np, "filterjit": filterjit} | {
    name: getattr(filterjit, name) for name in filterjit.__all__
}
DOCS = public_docstrings() | {
    "Compiled.save": filterjit.filter_jit(lambda x: x).lower(1).compile().save.__doc__ or "",
    "nnx.jit": nnx.jit.__doc__ or "",
    "nnx.NNXJit": nnx.NNXJit.__doc__ or "",
}
EXAMPLES = {name: doc for name, doc in DOCS.items() if ">>>" in doc}
# What is called first has an example.
FIRST = {
    *("filter_jit", "install", "installed", "load", "nnx.jit", "Compiled", "Structure"),
    *(f"FilterJit.{name}" for name in ("lower", "compile", "eval_shape", "warm_up", "partial", "freeze")),
    *("FilterJit.explain", "FilterJit.cache_info"),
    *("pack", "Packed", "Packed.replace", "ShardingRules", "place", "Filter"),
    *("partition", "partition_dict", "combine", "flatten", "flatten_up_to", "unflatten"),
    *("tree_map", "tree_leaves", "tree_paths"),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCS)
def test_it_has_a_docstring(name: str) -> None:
    assert DOCS[name].strip()


def test_what_is_called_first_has_an_example() -> None:
    assert FIRST - EXAMPLES.keys() == set()


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = dict(NAMES)
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], names, name, None, 0)
    assert test.examples
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    runner.run(test, out=said.append)
    assert not said, "".join(said)
