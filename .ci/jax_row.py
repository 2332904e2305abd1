"""What `.ci/every_jax` runs with one version of JAX: ``jax_row.py ROW [PYTEST_ARGUMENT ...]``.

Writes a row of the table into the file ROW. Exits with the status of the tests, or 1 if the README's
program fails.
"""

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
TESTS = [f"tests/{name}" for name in ("parity", "structs", "eqx", "nnx")]
PYTEST = ("-X", "faulthandler", "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "-rs")
RATIOS = ("mlp", "transformer", "dict_100")


def run(*command: str, out: Any = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, stdout=out, encoding="utf-8"
    )


def ratio(case: str) -> str:
    options = ("--case", case, "--peer", "flat", "--until", "return")
    done = run("benchmarks/dispatch.py", *options, out=subprocess.PIPE)
    return "failed" if done.returncode else re.findall(r"([\d.]+)x$", done.stdout, re.M)[-1]


def main() -> int:
    row, *arguments = sys.argv[1:]
    started = time.perf_counter()
    program = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    wrong = run("-c", program[1]).returncode
    ratios = [ratio(case) for case in RATIOS]
    if not any(x.startswith("tests") for x in arguments):
        arguments += TESTS
    report = f"{row}.xml"
    most = ("-m", "not slow and not thorough", f"--junit-xml={Path(report).resolve()}")
    failed = run(*PYTEST, *most, *arguments).returncode
    suite = ElementTree.parse(report).getroot()[0].attrib
    all_of, skipped = int(suite["tests"]), int(suite["skipped"])
    broken = int(suite["failures"]) + int(suite["errors"])
    versions = [importlib.metadata.version(x) for x in ("jax", "equinox", "flax")]
    cells = [
        versions[0], platform.python_version(), *versions[1:], "fails" if wrong else "runs",
        all_of - skipped - broken, skipped, broken, *ratios,
    ]  # fmt: skip
    Path(row).write_text(f"| {' | '.join(map(str, cells))} |\n", "utf-8")
    print(f"JAX {versions[0]}: {time.perf_counter() - started:.0f} s")
    return failed or wrong


if __name__ == "__main__":
    sys.exit(main())
