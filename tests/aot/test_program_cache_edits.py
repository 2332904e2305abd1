"""Programs that are edited, or whose world changes, between starts with a program cache.

Each result is right, or the process says that it was not: the oracle is a start without the cache.
The programs are in edits_that_matter.txt, worlds.txt and edits_that_do_not.txt. Names have a meaning:
what is "changed by the trace" is changed when the proof traces; what is set around the only call, or
changes after it, "meanwhile" the program is proven, may be a false alarm, once; "in the key" is what is
never a reason to say anything.
"""

import collections
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from edited_programs import Program, programs, write

from support.processes import environment, run

SCRIPT = Path(__file__).with_name("edited_programs.py")
MATTER = programs("edits_that_matter.txt")
CHANGES = programs("worlds.txt")
HARMLESS = programs("edits_that_do_not.txt")
# A program is compiled, tried, proven and proven; its world changes, stays, and is what it was.
STARTS = 0, 0, 0, 0, 1, 1, 0
PROVEN, AGAIN, CHANGED, REVERTED = 2, 3, 4, 6
Results = dict[str, dict[str, Any]]


def results(variables: dict[str, str], folder: Path, *cache: Path) -> Results:
    done = run(SCRIPT, folder, *cache, timeout=600, env=environment(**variables))
    assert "program cache" not in done.stderr, done.stderr
    found: Results = json.loads(done.stdout.splitlines()[-1])
    return found


def run_all(chosen: list[Program], at: Path) -> tuple[list[Results], list[Results]]:
    """Returns what each start finds, and what a start without the cache finds in each world."""
    found: list[Results] = []
    plain: dict[int, Results] = {}
    with ThreadPoolExecutor(1) as pool:
        for world in STARTS:
            variables = write(at / "programs", chosen, world)
            oracle = None if world in plain else pool.submit(results, variables, at / "programs")
            found.append(results(variables, at / "programs", at / "cache"))
            if oracle is not None:
                plain[world] = oracle.result()
    return found, [plain[0], plain[1]]


def verdict(found: dict[str, Any], plain: dict[str, Any]) -> str:
    right = found["result"] == found.get("expected", plain["result"])
    if found["said"]:
        return "alarmed" if right else "loud"
    return "right" if right else "silent"


def check(chosen: list[Program], found: list[Results], plain: list[Results]) -> None:
    """Asserts that no start is wrong in silence, and that a start says nothing where its world is
    that of the start before. Prints how many starts are right."""
    wrong = []
    for number, (world, now) in enumerate(zip(STARTS, found, strict=True)):
        verdicts = collections.Counter[str]()
        for p in chosen:
            one, other = now[p.module], plain[world][p.module]
            is_right = verdict(one, other)
            verdicts["right by a trace" if is_right == "right" and one["traced"] else is_right] += 1
            if is_right == "right":
                continue
            if (
                number in (CHANGED, REVERTED)
                and is_right != "silent"
                and "in the key" not in p.name
            ):
                continue
            if number == PROVEN and is_right == "alarmed" and "meanwhile" in p.name:
                continue
            if is_right == "silent" and not one["traced"] and "changed by the trace" in p.name:
                continue
            wrong.append(f"start {number}, {p.name}: {is_right}\n{one}\nand not {other['result']}")
        print(f"start {number}: {dict(verdicts)}")
    assert not wrong, "\n".join(wrong)


def traced(chosen: list[Program], found: Results) -> list[str]:
    """Returns the programs that the thread of the caller has traced."""
    return [p.name for p in chosen if found[p.module]["traced"]]


# Of the first, nothing is traced before the result, from the third start on.
KEPT = {
    "jitted method", "optimizer", "custom derivative, backwards", "flatten of a registered class",
    "inner jax.jit that was traced before", "filterjit.jit", "model of Flax", "large constant",
    "shardings of the arguments", "static part of the result", "trace that raises in one world only",
    "another version of an installed package, in the key", "a package that is edited, in the key",
}  # fmt: skip
ALSO = {
    "function that is frozen", "weak type of the result", "argument that is returned", "time",
    "global that is set around the call, meanwhile", "thread that calls, meanwhile",
}  # fmt: skip


def test_some_changes(tmp_path: Path) -> None:
    every = MATTER + CHANGES
    chosen = [p for i, p in enumerate(every) if i % 16 == 0 or p.name in KEPT | ALSO]
    assert {p.name for p in chosen} > KEPT | ALSO
    found, plain = run_all(chosen, tmp_path)
    check(chosen, found, plain)
    kept = [p for p in chosen if p.name in KEPT]
    assert traced(kept, found[PROVEN]) == traced(kept, found[AGAIN]) == []


@pytest.mark.thorough
@pytest.mark.parametrize("chosen", [MATTER, CHANGES], ids=["edits", "worlds"])
def test_changes_that_matter(chosen: list[Program], tmp_path: Path) -> None:
    found, (before, after) = run_all(chosen, tmp_path)
    same = [p.name for p in chosen if before[p.module]["result"] == after[p.module]["result"]]
    assert same == []
    check(chosen, found, [before, after])
    assert len(traced(chosen, found[PROVEN])) < len(chosen) // 8


@pytest.mark.thorough
def test_edits_that_do_not_matter(tmp_path: Path) -> None:
    """None compiles after the edit, and nothing is traced before a result without one."""
    found, plain = run_all(HARMLESS, tmp_path)
    check(HARMLESS, found, plain)
    assert traced(HARMLESS, found[PROVEN]) == traced(HARMLESS, found[AGAIN]) == []
    assert [p.name for p in HARMLESS if found[CHANGED][p.module]["compiled"]] == []
