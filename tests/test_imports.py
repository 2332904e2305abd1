"""The modules of the package: which a start does without, and the names that they share with C."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import filterjit
from filterjit._observe import _report
from support.processes import ROOT, run_code

# What is called, in this order, and a module that is imported then.
USES = {
    "f.explain(jnp.ones(2), 4)": "_observe._explain",
    "f(jnp.ones(2), 4)": "_observe._compare",
    "f.report()": "_observe._report",
    "f.lower(jnp.ones(2), 3)": "_aot._stages",
    "f.warm_up_all([])": "_aot._warm_up",
    "filterjit.partition_dict({'a': jax.tree_util.Partial(max, jnp.ones(2))})": "_trees._partition",
}
PROGRAM = f"""
import json, sys
import filterjit, jax, jax.numpy as jnp
from filterjit import filter_jit

def imported():
    return [x.removeprefix("filterjit.") for x in sys.modules if x.startswith("filterjit.")]

f = filter_jit(lambda x, n: n * x)
f(jnp.ones(2), 3), f(jnp.ones(2), 3)
found = {{"": imported()}}
for code in {list(USES)}:
    exec(code)
    found[code] = imported()
found["optional"] = [x for x in ("flax", "chex", "haiku", "optax", "equinox") if x in sys.modules]
print(json.dumps(found))
"""

# What a first call does not need, and what of `_observe` is imported for it.
LEFT_OUT = ("_aot", "_commands", "_functions", "_install", "_nnx", "_shardings", "_processes")
LEFT_OUT += ("_call._as_in_jax", "_jit._plain", "_trees._partition")
OBSERVE = ("forbid", "listener", "plain_objects", "recorder", "records", "retraces", "wording")


def left_out(name: str, found: set[str]) -> set[Any]:
    """Returns the ends of the names of `name` and of the modules in it, of those that are found."""
    return {x[len(name) :] for x in found if x == name or x.startswith(name + ".")}


def test_a_checkout_that_is_not_built(tmp_path: Path) -> None:
    source = Path(filterjit.__file__).parent
    ignore = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(source, tmp_path / "filterjit", ignore=ignore)
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        from filterjit import jit
    """
    done = run_code(code, tmp_path, status=1)
    assert "ImportError: filterjit's C core isn't built for this Python" in done.stderr


def test_what_is_imported_when_it_is_used() -> None:
    found: dict[str, list[str]] = json.loads(run_code(PROGRAM).stdout)
    first = set(found[""])
    assert found["optional"] == []
    assert [name for name in LEFT_OUT if left_out(name, first)] == []
    assert left_out("_observe", first) == {"", *(f"._{name}" for name in OBSERVE)}
    for code, module in USES.items():
        assert module in found[code] and module not in first, code


def test_names_that_the_core_shares() -> None:
    header = (ROOT / "csrc" / "call" / "direct_argument.h").read_text()
    assert re.findall(r"^    ROUTE\((\w+)\)", header, re.M) == ["direct", *_report._REASONS]
