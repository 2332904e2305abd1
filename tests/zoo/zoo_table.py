"""Prints what each call of each program does on Equinox and on ours, and what is wrong with ours:

python tests/zoo/zoo_table.py [a part of a program's name ...]

A line for each program and place has a word for each call (`right`, `wrong`: the result of another
configuration, or `error`), and a + for each time that it was traced.
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import equinox as eqx
import zoo_programs  # noqa: F401
from zoo_support import MISSING, PROGRAMS, problems, run, summary

import filterjit
from support.compiled import compiled_once


def main(parts: list[str]) -> None:
    for made in PROGRAMS.values():
        if parts and not any(part in made.name for part in parts):
            continue
        for place in made.places:
            equinox, ours = (run(made, place, f) for f in (eqx.filter_jit, filterjit.filter_jit))
            print(f"{made.name} | {place} | {summary(made, equinox)} | {summary(made, ours)}")
            for problem in problems(made, place, ours, equinox):
                print(f"    {problem}")
        sys.stdout.flush()
    print("not installed:", *MISSING)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, compiled_once(folder):
        main(sys.argv[1:])
