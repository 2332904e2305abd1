"""Small programs that are edited: ``python edited_programs.py FOLDER [CACHE]`` runs those in a folder.

`programs` reads them from a file of this folder. The script imports each module of FOLDER whose name
begins with ``program_``, runs it, and writes a JSON object of its result and of how often JAX traced
and compiled meanwhile, with a program cache if CACHE is given.
"""

import dataclasses
import importlib
import json
import re
import sys
import traceback
from collections.abc import Callable
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
"""
_EDIT = re.compile(r"@\{(.*?)\|(.*?)\}@", re.S)


@dataclasses.dataclass(frozen=True)
class Program:
    """The files of a program, before and after an edit, by their paths."""

    name: str
    module: str
    before: dict[str, str]
    after: dict[str, str]


def programs(file: str) -> list[Program]:
    text = Path(__file__).with_name(file).read_text()
    return [_program(one) for one in re.split(r"^## ", text, flags=re.M)[1:]]


def _program(text: str) -> Program:
    name, _, rest = text.partition("\n")
    module = "program_" + re.sub(r"\W+", "_", name)
    main, *others = re.split(r"^#### ", rest.replace("MOD", module), flags=re.M)
    # A docstring stays the first statement.
    first, _, body = main.partition("\n") if main.startswith('"') else ("", "", main)
    found = {f"{module}.py": f"{first}\n{_HEADER}{body}"}
    for other in others:
        path, _, source = other.partition("\n")
        found[path] = source
    return Program(name, module, _version(found, 1), _version(found, 2))


def _version(files: dict[str, str], number: int) -> dict[str, str]:
    def chosen(match: re.Match[str]) -> str:
        return match[number].replace("\\n", "\n")

    return {path: _EDIT.sub(chosen, source) for path, source in files.items()}


def write(folder: Path, files: dict[str, str]) -> None:
    for path, source in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(source)


# ---- running them ----


class _Counter:
    def __init__(self) -> None:
        self.traced = self.compiled = 0

    def __call__(self, event: str, _: float, **__: Any) -> None:
        self.traced += event.endswith("jaxpr_trace_duration")
        self.compiled += event.endswith("backend_compile_duration")


def _run(module: str, count: _Counter) -> dict[str, Any]:
    import filterjit
    from support.comparison import comparable

    found = importlib.import_module(module)
    main: Callable[..., Any] = getattr(found, "main", None) or (
        lambda jit: jit(found.f)(*getattr(found, "args", (found.X,)))
    )
    before = count.traced, count.compiled
    try:
        result = repr(comparable(main(filterjit.filter_jit)))
    except Exception as e:
        result = f"{type(e).__name__}: {str(e).splitlines()[:1]}"
    traced, compiled = count.traced - before[0], count.compiled - before[1]
    return {"result": result, "traced": traced, "compiled": compiled}


def _main() -> None:
    import jax

    import filterjit

    folder, *cache = sys.argv[1:]
    sys.dont_write_bytecode = True
    sys.path.insert(0, folder)
    sys.argv[1:] = []
    if cache:
        filterjit.program_cache(*cache)
    count = _Counter()
    jax.monitoring.register_event_duration_secs_listener(count)
    found = {}
    for path in sorted(Path(folder).glob("program_*.py")):
        if re.search("_(other|third|one|two|base)$", path.stem):
            continue
        try:
            found[path.stem] = _run(path.stem, count)
        except Exception:
            found[path.stem] = {"result": traceback.format_exc(), "traced": 0, "compiled": 0}
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    _main()
