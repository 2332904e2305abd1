"""The command line as a whole, and what it and reports say of versions. Its commands have tests where
their subjects have."""

import platform
from importlib import metadata
from typing import Any

import jax
import pytest

import filterjit
from filterjit import __main__ as cli
from filterjit import _core, filter_jit
from filterjit._base import _versions
from support.processes import run, run_code


def test_it_imports_no_optional_package() -> None:
    heavy = ("jax", "equinox", "optax", "rich", "matplotlib", "sklearn")
    code = f"""
        import sys, filterjit.__main__
        from filterjit._base import _versions
        print(_versions.describe())
        sys.exit(any(m in sys.modules for m in {heavy}))
    """
    assert f"(JAX {metadata.version('jax')}, " in run_code(code).stdout


@pytest.mark.parametrize("arguments", [[], ["no"], ["show"], ["run"]])
def test_bad_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as e:
        cli.main(arguments)
    assert e.value.code == 2
    assert capsys.readouterr().err.startswith("usage: python -m filterjit ")


def test_the_module_is_the_command() -> None:
    said = run("-m", "filterjit", "--help", timeout=120).stdout
    assert said.startswith("usage: python -m filterjit ") and "{" not in said


# ---- versions ----


@pytest.mark.parametrize(("tested", "is_newer"), [(jax.__version__, False), ("0.4.38", True)])
def test_a_newer_jax_is_said_once(
    tested: str, is_newer: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(_versions, "TESTED_JAX", tested)
    said = f"JAX {jax.__version__} is newer than {tested}, the newest version that"
    f = filter_jit(lambda x: x)
    f(1)
    assert str(filterjit.report()).count(said) == is_newer
    assert said not in str(f.report())
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    shown = capsys.readouterr().out
    assert end.value.code == 0
    line = f"filterjit {filterjit.__version__} (JAX {jax.__version__}, CPython {platform.python_version()})\n"
    assert shown.startswith(line) and shown.count(said) == is_newer
    assert is_newer or shown == line


def test_internals_that_are_not_known_are_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "filterjit does not know the internals of CPython"
    assert said not in _versions.describe()
    monkeypatch.setattr(_core, "reads_instance_values", 0)
    assert _versions.describe().count(said) == str(filterjit.report()).count(said) == 1


def test_versions_are_compared_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, tested, is_newer in [
        ("0.12.0.1", "0.12.0", False),
        ("0.12.1", "0.12.0", True),
        ("0.9.2", "0.12.0", False),
        ("1.0", "0.12.0", True),
        ("0.12.0.dev20270101+abc", "0.12.0", False),
        ("unknown", "0.12.0", False),
    ]:
        monkeypatch.setattr(_versions, "TESTED_JAX", tested)
        monkeypatch.setattr(jax, "__version__", version)
        assert (_versions.warning() is not None) == is_newer, version


def test_versions_that_are_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _versions.too_old() is None
    monkeypatch.setattr(jax, "__version__", "0.4.37")
    assert "JAX 0.4.37 is older than 0.4.38" in _versions.describe()
    monkeypatch.setattr("flax.__version__", "0.12.7")
    assert "All calls of `nnx.jit` fall back to Flax 0.12.7." in _versions.describe()
    code = """
        import jax
        jax.__version__ = "0.4.37"
        import filterjit
        filterjit.jit, filterjit.filter_jit
    """
    assert run_code(code).stderr.count("UserWarning: JAX 0.4.37 is older than 0.4.38") == 1
