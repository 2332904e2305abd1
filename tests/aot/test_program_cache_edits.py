"""Programs that are edited between two runs with a program cache: never a stale answer.

The programs are in edits_that_matter.txt and edits_that_do_not.txt. One process runs all of them as
they are and fills the cache, another one runs all of them after their edit, and its results are
compared with those of a process without the cache.
"""

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from edited_programs import Program, programs, write

from support.processes import environment, run

SCRIPT = Path(__file__).with_name("edited_programs.py")
MATTER = programs("edits_that_matter.txt")
HARMLESS = programs("edits_that_do_not.txt")
Results = dict[str, dict[str, Any]]


@dataclasses.dataclass
class Runs:
    """The results of processes: before the edits, once more, after them, and before them again,
    with the cache; and before and after the edits without it."""

    first: Results
    second: Results
    edited: Results
    reverted: Results
    plain_before: Results
    plain_after: Results


def results(folder: Path, *cache: Path) -> Results:
    done = run(SCRIPT, folder, *cache, timeout=600, env=environment())
    assert "program cache" not in done.stderr, done.stderr
    found: Results = json.loads(done.stdout.splitlines()[-1])
    return found


def run_all(chosen: list[Program], at: Path) -> Runs:
    folder, cache = at / "programs", at / "cache"

    def write_all(version: str) -> None:
        for program in chosen:
            write(folder, getattr(program, version))

    write_all("before")
    with ThreadPoolExecutor(1) as pool:
        plain = pool.submit(results, folder)
        first = results(folder, cache)
        plain_before = plain.result()
    second = results(folder, cache)
    write_all("after")
    with ThreadPoolExecutor(1) as pool:
        plain = pool.submit(results, folder)
        edited = results(folder, cache)
        plain_after = plain.result()
    write_all("before")
    reverted = results(folder, cache)
    return Runs(first, second, edited, reverted, plain_before, plain_after)


def differences(chosen: list[Program], found: Results, expected: Results) -> dict[str, str]:
    """Returns the results that are not what they are without the cache, by the name of the program."""
    return {
        program.name: f"{found[program.module]['result']}, not {expected[program.module]['result']}"
        for program in chosen
        if found[program.module]["result"] != expected[program.module]["result"]
    }


def check(chosen: list[Program], runs: Runs) -> None:
    assert differences(chosen, runs.first, runs.plain_before) == {}
    assert differences(chosen, runs.second, runs.plain_before) == {}
    assert differences(chosen, runs.edited, runs.plain_after) == {}
    assert differences(chosen, runs.reverted, runs.plain_before) == {}


def nothing_traced(chosen: list[Program], found: Results) -> list[str]:
    return [p.name for p in chosen if not found[p.module]["traced"] + found[p.module]["compiled"]]


def test_some_edits(tmp_path: Path) -> None:
    check(MATTER[::12], run_all(MATTER[::12], tmp_path))


@pytest.mark.thorough
def test_edits_that_matter(tmp_path: Path) -> None:
    """Each changes the result, and none gives an answer of the program before it."""
    runs = run_all(MATTER, tmp_path)
    check(MATTER, runs)
    same = {p.name for p in MATTER} - differences(MATTER, runs.edited, runs.first).keys()
    assert same == set()
    kept = nothing_traced(MATTER, runs.second)
    print(f"{len(MATTER)} programs, {len(kept)} of them kept")
    assert len(kept) > 150


@pytest.mark.thorough
def test_edits_that_do_not(tmp_path: Path) -> None:
    runs = run_all(HARMLESS, tmp_path)
    check(HARMLESS, runs)
    traced = {p.name for p in HARMLESS} - set(nothing_traced(HARMLESS, runs.edited))
    assert len(traced) <= len(HARMLESS) // 4, traced
