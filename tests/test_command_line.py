"""The command line as a whole. Its commands have tests where their subjects have."""

import subprocess
import sys
from importlib import metadata

import pytest

from filterjit import __main__ as cli
from support.processes import run_code


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
    done = subprocess.run(
        [sys.executable, "-m", "filterjit", "--help"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and "{" not in done.stdout and "demo" not in done.stdout
