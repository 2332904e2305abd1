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

ROOT = Path(__file__).parent.parent
TESTS = [f"tests/{name}" for name in ("parity", "structs", "eqx", "nnx")]
PYTEST = ("-X", "faulthandler", "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "-rs")
RATIOS = ("mlp", "transformer", "dict_100")
MEASURE = """
import sys
from cases import CASES
from dispatch import measure
row = measure(CASES[sys.argv[1]](), ["filterjit", "flat"], ["return"], 3)["return"]
print(row.ratio("filterjit", "flat"))
"""


def run(*command: str, **variables: str) -> tuple[int, str]:
    """Runs Python. Returns its exit status, and its output, which is shown as well."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **variables}
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    return process.wait(), "".join(lines)


def program() -> str:
    """Returns the first program of README.md."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def ratio(case: str) -> str:
    status, out = run("-c", MEASURE, case, PYTHONPATH=str(ROOT / "benchmarks"))
    return "failed" if status else f"{float(out.split()[-1]):.2f}"


def main() -> int:
    row, *arguments = sys.argv[1:]
    started = time.perf_counter()
    wrong, _ = run("-c", program())
    ratios = [ratio(case) for case in RATIOS]
    if not any(x.startswith("tests") for x in arguments):
        arguments += TESTS
    failed, out = run(*PYTEST, "-m", "not slow and not thorough", *arguments)
    counts = {
        what: count for count, what in re.findall(r"(\d+) (passed|failed|skipped|error)", out)
    }
    versions = [importlib.metadata.version(x) for x in ("jax", "equinox", "flax")]
    cells = [
        versions[0], platform.python_version(), *versions[1:],
        "fails" if wrong else "runs", counts.get("passed", "0"), counts.get("skipped", "0"),
        str(int(counts.get("failed", 0)) + int(counts.get("error", 0))), *ratios,
    ]  # fmt: skip
    Path(row).write_text(f"| {' | '.join(cells)} |\n", "utf-8")
    print(f"JAX {versions[0]}: {time.perf_counter() - started:.0f} s")
    return failed or wrong


if __name__ == "__main__":
    sys.exit(main())
