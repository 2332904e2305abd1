"""Small programs that are edited, or whose world changes, between two starts.

`programs` reads them from a file of this folder. ``python edited_programs.py FOLDER [CACHE]`` runs
those in FOLDER, each with a program cache of its own in CACHE, and writes a JSON object: of each
program the result, how often the main thread traced and XLA compiled before it, and what a
StaleProgramError said. Each program is alone: its modules leave with it.
"""

import contextlib
import dataclasses
import importlib
import json
import logging
import os
import re
import site
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_HEADER = """\
import contextlib, dataclasses, enum, functools, itertools, operator, os, sys, typing
import equinox as eqx
import filterjit
import jax
import jax.numpy as jnp
import numpy as np
X = jnp.arange(3.0)
HERE = os.path.dirname(__file__)
FILE = os.path.join(HERE, "world.txt")
WORLD = float(os.environ["WORLD"])
"""
EDIT = re.compile(r"@\{(.*?)\|(.*?)\}@", re.S)


@dataclasses.dataclass(frozen=True)
class Program:
    """The files of a program, in both worlds, by their paths. One named ``environ`` has variables
    of the environment; a folder named ``site-packages`` has what is installed."""

    name: str
    module: str
    files: tuple[dict[str, str], dict[str, str]]


def catalogue(text: str) -> dict[str, str]:
    """Returns programs by their names: each begins with ``## NAME``."""
    found = (one.partition("\n") for one in re.split(r"^## ", text, flags=re.M)[1:])
    return {name: source for name, _, source in found}


def edited(text: str, world: int) -> str:
    return EDIT.sub(lambda match: match[1 + world].replace("\\n", "\n"), text)


def programs(file: str) -> list[Program]:
    text = Path(__file__).with_name(file).read_text()
    return [_program(name, source) for name, source in catalogue(text).items()]


def _program(name: str, text: str) -> Program:
    module = "program_" + re.sub(r"\W+", "_", name)
    main, *others = re.split(r"^#### ", text.replace("MOD", module), flags=re.M)
    # A docstring stays the first statement.
    first, _, body = main.partition("\n") if main.startswith('"') else ("", "", main)
    found = {f"{module}.py": f"{first}\n{_HEADER}{body}", "world.txt": "@{2.0|3.0}@"}
    found |= {path: source for path, _, source in (one.partition("\n") for one in others)}
    before, after = ({edited(k, n): edited(v, n) for k, v in found.items()} for n in (0, 1))
    return Program(name, module, (before, after))


def write(folder: Path, chosen: list[Program], world: int) -> dict[str, str]:
    """Writes the files of the programs in one of the worlds. Returns its environment: the strings
    have other hashes in each."""
    variables = {"WORLD": ("2.0", "3.0")[world], "PYTHONHASHSEED": str(world + 1)}
    for program in chosen:
        files = program.files[world]
        for path in program.files[1 - world].keys() - files.keys():
            (folder / program.module / path).unlink(missing_ok=True)
        for path, source in files.items():
            at = folder / program.module / path
            at.parent.mkdir(parents=True, exist_ok=True)
            if "site-packages" not in path or not at.exists() or at.read_text() != source:
                at.write_text(source)
        lines = files.get("environ", "").split()
        variables |= dict(line.split("=") for line in lines)
    return variables


# ---- running them ----


class _Counter:
    def __init__(self) -> None:
        self.traced = self.compiled = 0

    def __call__(self, event: str, _: float, **__: Any) -> None:
        is_caller = threading.current_thread() is threading.main_thread()
        self.traced += is_caller and event.endswith("jaxpr_trace_duration")
        self.compiled += event.endswith("backend_compile_duration")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    path, argv, variables = list(sys.path), list(sys.argv), dict(os.environ)
    sys.path.insert(0, str(folder))
    if (folder / "site-packages").exists():
        site.addsitedir(str(folder / "site-packages"))
    try:
        with warnings.catch_warnings():  # filters and levels are in the keys of the others
            yield
    finally:
        for logger in list(logging.root.manager.loggerDict.values()):
            if isinstance(logger, logging.Logger) and logger.name.startswith(folder.name):
                logger.setLevel(logging.NOTSET)
        sys.path[:], sys.argv[:] = path, argv
        os.environ.clear()
        os.environ.update(variables)
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


def _run(folder: Path, cache: Path | None, count: _Counter) -> dict[str, Any]:
    import filterjit
    from support.comparison import comparable

    module = importlib.import_module(folder.name)
    main: Callable[..., Any] = getattr(module, "main", None) or (
        lambda jit: jit(module.f)(*getattr(module, "args", (module.X,)))
    )
    found: dict[str, Any] = {"result": "", "traced": 0, "compiled": 0, "said": ""}
    try:
        with filterjit.program_cache(cache) if cache else contextlib.nullcontext():
            before = count.traced, count.compiled
            try:
                found["result"] = repr(comparable(main(filterjit.filter_jit)))
            except filterjit.StaleProgramError:
                raise
            except Exception as e:
                found["result"] = f"{type(e).__name__}: {str(e).splitlines()[:1]}"
            found["traced"] = count.traced - before[0]
            found["compiled"] = count.compiled - before[1]
    except filterjit.StaleProgramError as e:
        found["said"] = str(e)
    if hasattr(module, "expected"):
        found["expected"] = repr(comparable(module.expected()))
    return found


def _main() -> None:
    import jax

    folder, *caches = map(Path, sys.argv[1:])
    sys.dont_write_bytecode = True
    sys.argv[1:] = []
    del os.environ["PYTHONHASHSEED"]  # as where each process has another one
    count = _Counter()
    jax.monitoring.register_event_duration_secs_listener(count)
    found = {}
    for own in sorted(folder.iterdir()):
        cache = caches[0] / own.name if caches else None
        with _alone(own):
            try:
                found[own.name] = _run(own, cache, count)
            except Exception:
                found[own.name] = {"result": traceback.format_exc(), "said": ""}
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    _main()
