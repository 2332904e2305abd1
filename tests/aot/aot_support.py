"""Helpers of the tests of ahead-of-time compilation."""

import contextlib
import resource
import textwrap
import types
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import equinox as eqx

from support.processes import environment, run

HERE = Path(__file__).parent


class Compiles:
    """Counts the compilations of XLA; `since` returns the count and resets it."""

    def __init__(self) -> None:
        self.count = 0
        self.on = True

    def __call__(self, event: str, _: float, **__: Any) -> None:
        self.count += self.on and "backend_compile" in event

    def since(self) -> int:
        found, self.count = self.count, 0
        return found


def new_process() -> None:
    """Lets what follows count as another process for a program cache."""


def copied(f: Any) -> Any:
    """Returns another function with the same code, as a second run has one."""
    copy = types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
    copy.__qualname__, copy.__annotations__ = f.__qualname__, f.__annotations__
    return copy


def counts(f: Any) -> tuple[int, int]:
    """Returns how often a jitted function was traced, and how many programs of it were loaded."""
    (row,) = f.report().as_dict()["functions"]
    return row["traces"], row["loaded"]


def same(x: Any, y: Any) -> bool:
    return bool(eqx.tree_equal(x, y))


@contextlib.contextmanager
def full_disk(size: int = 1000) -> Iterator[None]:
    """A limit on the size of files stands for it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# ---- programs that are started ----


class Program:
    """A script that is started with a program cache in the folder beside it.

    Arguments:
        folder: of both.
        source: its indentation is removed.
        variables: of the environment of each start.
    """

    def __init__(self, folder: Path, source: str, **variables: str) -> None:
        self.path, self.cache = folder / "program.py", folder / "cache"
        self.own = {"FILTERJIT_PROGRAM_CACHE": str(self.cache)} | variables
        self.path.write_text(textwrap.dedent(source))

    def variables(self, **others: str) -> dict[str, str]:
        return environment([HERE], **self.own | others)

    def start(
        self, *arguments: str | Path, status: int | None = 0, **variables: str
    ) -> tuple[str, str]:
        """Returns what the process writes; `arguments` come before the script, or None of them."""
        env = self.variables(**variables)
        done = run(*arguments, self.path, env=env, timeout=300, status=status)
        return done.stdout, done.stderr

    def starts(self, variables: Sequence[dict[str, str]], **options: Any) -> list[tuple[str, str]]:
        """Starts several processes at once."""
        with ThreadPoolExecutor(len(variables)) as pool:
            return list(pool.map(lambda one: self.start(**one, **options), variables))
