"""The README's programs run as printed, and do what the text around them says."""

import re
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(section: str, language: str = "python") -> list[str]:
    """Returns the blocks of code of a section, in order."""
    text = README.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


@pytest.fixture(scope="module")
def namespace() -> dict[str, Any]:
    """The names that the programs about parts of a tree define, run one after the other."""
    found: dict[str, Any] = {}
    for block in blocks("Parts of a tree"):
        exec(compile(block, "README.md", "exec"), found)
    return found


def test_partition_by_path(namespace: dict[str, Any]) -> None:
    assert filterjit.tree_paths(namespace["head"]) == ["layers.2.weight", "layers.2.bias"]
    assert filterjit.tree_paths(namespace["biases"]) == ["layers.0.bias", "layers.1.bias"]


def test_each_label_has_its_own_rule(namespace: dict[str, Any]) -> None:
    labels = namespace["labels"]
    assert labels.layers[2].bias == labels.layers[2].weight == "head"
    assert (labels.layers[0].weight, labels.layers[0].bias) == ("body", "bias")
    model, state = namespace["model"], namespace["state"]
    fresh = namespace["optimizer"].init(namespace["params"])
    losses = []
    model = namespace["combine"](namespace["params"], namespace["static"])
    state = fresh
    for _ in range(20):
        model, state, value = namespace["step"](model, state, namespace["x"], namespace["y"])
        losses.append(float(value))
    assert losses[-1] < losses[0] / 2


def test_only_the_adapters_train(namespace: dict[str, Any], tmp_path: Path) -> None:
    adapted, trained, frozen = (namespace[name] for name in ("adapted", "trained", "frozen"))
    after = namespace["combine"](trained, frozen)
    for old, new in zip(adapted.layers, after.layers, strict=True):
        assert new.base.weight is old.base.weight and new.base.bias is old.base.bias
        assert not jnp.array_equal(new.up, old.up)
    assert eqx.tree_equal(namespace["restored"], after)
    np.savez(tmp_path / "adapters.npz", **namespace["saved"])
    with np.load(tmp_path / "adapters.npz") as stored:
        loaded = {path: jnp.asarray(stored[path]) for path in stored.files}
    restored = namespace["structure"].combine(loaded, namespace["others"])
    assert eqx.tree_equal(restored, after)
    assert jax.tree_util.tree_structure(restored) == jax.tree_util.tree_structure(after)


def test_the_output_of_explain(capsys: pytest.CaptureFixture[str]) -> None:
    section = "Why it compiled again"
    (block,) = blocks(section)
    exec(compile(block, "train.py", "exec"), {})
    (said,) = blocks(section, "text")
    assert capsys.readouterr().out == said


def test_ahead_of_time(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    section = "Ahead of time"
    (block,) = blocks(section)
    exec(compile(block, "serve.py", "exec"), {"__name__": "serve"})
    (said,) = blocks(section, "text")
    out = capsys.readouterr().out
    assert out.startswith(said)
    assert out.removeprefix(said).startswith("compiled 3 of 3 in ")


def test_frozen_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("Frozen arguments")
    found: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), found)
    x = jnp.ones(2)
    assert jnp.allclose(filterjit.load("serve.jit")(x), found["model"](x), atol=1e-6)
    assert filterjit.saved_info("serve.jit").frozen[0] == 4


def test_the_one_line_change_can_be_imported() -> None:
    (block,) = blocks("The change you make")
    exec(compile(block, "README.md", "exec"), {})
