"""Lines of csrc/ that were run, file by file, and those that were not: ``coverage_report.py DIR``.

DIR is where the object files of a build with ``--coverage`` are. What is not reached is to stand
in uncovered.txt, with its reason. Fails under 95 % of lines.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

LEAST = 95.0
HERE = Path(__file__).parent
SOURCES = HERE.parent / "csrc"

Lines = dict[int, tuple[int, str]]  # how often each was run, and its function


def counts(folder: Path) -> dict[str, Lines]:
    """By file. A header's lines count as run where any file that includes it runs them."""
    files: dict[str, Lines] = defaultdict(dict)
    for data in sorted(folder.rglob("*.gcda")):
        done = subprocess.run(
            ["gcov", "--json-format", "--stdout", str(data)],
            capture_output=True,
            text=True,
            check=True,
        )
        report: dict[str, Any] = json.loads(done.stdout)
        for file in report["files"]:
            path = HERE.parent / file["file"]
            if not path.is_relative_to(SOURCES):
                continue  # the system's headers, and tests/core/testing.c
            lines = files[str(path.relative_to(SOURCES))]
            for line in file["lines"]:
                number = line["line_number"]
                before, function = lines.get(number, (0, line.get("function_name", "")))
                lines[number] = before + line["count"], function
    return files


def reasons() -> dict[tuple[str, str], str]:
    """Why lines are not reached, by file and function: `file function: reason` each."""
    found = {}
    for line in (HERE / "uncovered.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            place, reason = line.split(":", 1)
            file, function = place.split()
            found[file, function] = reason.strip()
    return found


def main(folder: str) -> int:
    files, why = counts(Path(folder)), reasons()
    if not files:
        print(f"no counts in {folder}")
        return 1
    run, total = 0, 0
    left: list[str] = []
    for name, lines in sorted(files.items()):
        missed = {n: function for n, (count, function) in lines.items() if count == 0}
        run, total = run + len(lines) - len(missed), total + len(lines)
        print(f"{name:20} {len(lines) - len(missed):5} of {len(lines):5} lines", end="")
        print(f"  {100 - 100 * len(missed) / len(lines):6.1f} %")
        text = (SOURCES / name).read_text().splitlines()
        for number, function in sorted(missed.items()):
            reason = why.get((name, function), "NO REASON GIVEN")
            left.append(f"{name}:{number}: {text[number - 1].strip()}  [{function}: {reason}]")
    print(*(["", "not run:", *left] if left else []), sep="\n")
    percent = 100 * run / total
    print(f"\n{run} of {total} lines, {percent:.2f} %; at least {LEAST} % are asked for")
    return 0 if percent >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
