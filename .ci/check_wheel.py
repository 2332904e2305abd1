#!/usr/bin/env python3
"""Checks the installed filterjit: ``check_wheel.py [--jax]``, from a folder without a checkout.

The package must come from site-packages, be complete, and have a stripped core of its version.
With JAX installed, functions are jitted with it; ``--jax`` fails where JAX is not installed.
"""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

# Twice the size of a stripped core. The symbols of debuggers make it five times as large.
MOST_BYTES = 400_000


def check_package() -> str:
    import filterjit
    from filterjit import _core

    installed = Path(sysconfig.get_path("platlib")).resolve()
    for module in (filterjit, _core):
        path = Path(module.__file__).resolve()
        assert path.is_relative_to(installed), f"{path} is not in {installed}"
    assert filterjit.__version__ == metadata.version("filterjit"), metadata.version("filterjit")
    size = os.path.getsize(_core.__file__)
    assert size < MOST_BYTES, f"{_core.__file__} takes {size:,} bytes: it was not stripped"
    folder = Path(filterjit.__file__).parent
    assert (folder / "py.typed").is_file() and (folder / "_core.pyi").is_file()
    assert not list(folder.glob("_testing*")), "the wheel has the core's tests"
    assert "jax" not in sys.modules, "importing filterjit has imported JAX"
    return f"filterjit {filterjit.__version__}, core of {size:,} bytes"


def check_command() -> str:
    command = Path(sysconfig.get_path("scripts")) / "filterjit"
    done = subprocess.run([command, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("usage: filterjit "), done
    return "the command"


def check_jit() -> str:
    import jax
    import jax.numpy as jnp

    import filterjit

    @filterjit.filter_jit
    def scale(tree, factor, *, name):
        return {name: jax.tree.map(lambda x: x * factor, tree["arrays"]), "kept": tree["kept"]}

    tree = {"arrays": [jnp.ones(3), jnp.arange(2.0)], "kept": "a static"}
    for factor, traces in ((2, 1), (2, 1), (3, 2), (2, 2)):
        out = scale(tree, factor, name="out")
        assert [x.tolist() for x in out["out"]] == [[factor] * 3, [0, factor]], out
        assert out["kept"] == "a static"
        info = scale.cache_info()
        assert info.misses == traces, info
    assert scale.cache_info().hits == 2, scale.cache_info()

    compiled = scale.lower(tree, 2, name="out").compile()
    assert compiled(tree, 2, name="out")["out"][1].tolist() == [0, 2]
    try:
        compiled(tree, 3, name="out")
    except filterjit.MismatchError:
        pass
    else:
        raise AssertionError("a compiled function has taken another static")
    first, rest = filterjit.partition(tree, "arrays[0]")
    assert filterjit.tree_paths(first) == ["arrays.0"], first
    assert filterjit.tree_paths(filterjit.combine(first, rest)) == filterjit.tree_paths(tree)
    return f"jitted with JAX {jax.__version__}"


def main(argv: list[str]) -> int:
    done = [check_package(), check_command()]
    if importlib.util.find_spec("jax") is not None:
        done.append(check_jit())
    else:
        assert "--jax" not in argv, "JAX is not installed"
        done.append("imported only: JAX is not installed")
    print(f"Python {sys.version.split()[0]}:", ", ".join(done))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
