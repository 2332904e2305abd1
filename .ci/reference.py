#!/usr/bin/env python3
"""Prints docs/reference.md: a signature and a sentence for each public name, from the docstrings.

    .venv/bin/python .ci/reference.py > docs/reference.md

On the site, .ci/docs_hooks.py puts the whole docstring in the place of each (`on_site`).
tests/test_readme.py compares the page with what this prints, and looks for each public name on it.
"""

import importlib
import inspect
import re
import sys
from typing import Any

HEAD = """<!-- printed by .ci/reference.py -->
# Reference

Each name is in the module `filterjit`, unless it begins with `aot.`, `lax.`, `nnx.`, `sharding.` or `types.`. Importing
filterjit imports neither JAX nor Equinox. `help(filterjit.filter_jit)` and the site that `make docs`
builds have all parameters.
"""

TAIL = """## The command line

| command | what it does |
|---|---|
| `python -m filterjit run SCRIPT args...` | runs a program after `install()`; `-m MODULE` runs a module |
| `python -m filterjit show FILE` | describes a file of `compiled.save` |
| `python -m filterjit --version` | the versions of filterjit, JAX and Python |

`run` takes SCRIPT as `python` does. Children that the program starts with `multiprocessing` run on
filterjit too.

| option of `run` | what it does |
|---|---|
| `--jax` | puts `filterjit.jit` in the place of `jax.jit` too ([From `jax.jit`](from-jax-jit.md#a-whole-program)) |
| `--report` | prints at the end where the time went ([an example](debugging.md#where-the-time-went)) |
| `--explain` | prints the reason whenever a jitted function compiles again ([an example](debugging.md)) |
| `--html FILE` | writes at the end a page with the report, a timeline of each function, and the reasons of its retraces |
"""

# The names of each section.
SECTIONS = {
    "Jitting": ["filter_jit", "jit", "types.FilterJit"],
    "Flax NNX": ["nnx.jit", "nnx.cached_partial"],
    "Loops and branches": ["lax.scan", "lax.while_loop", "lax.fori_loop", "lax.cond", "lax.switch"],
    "Many devices": ["sharding.ShardingRules", "sharding.fsdp", "sharding.place"],
    "Installing": ["install", "uninstall"],
    "Ahead of time": ["load", "aot.saved_info", "types.Compiled", "types.Lowered", "types.Traced"],
    "Compiling too often": ["forbid_compile", "allow_compile"],
    "Reports and settings": ["report", "clear_caches", "types.Switches"],
    "Trees": [
        *("partition", "combine", "partition_dict", "flatten", "unflatten", "tree_paths"),
        *("types.Structure", "Filter", "is_array", "is_inexact_array"),
    ],
    "Errors and warnings": [
        *("StaticArgumentError", "MismatchError", "ProcessMismatchError"),
        *("ForbiddenCompileError", "RetraceError", "RetraceWarning"),
    ],
    "Types of what these return": [
        *("types.BoundFilterJit", "nnx.NNXJit", "nnx.CachedJit"),
        *("types.Variant", "types.CacheInfo", "types.Explanation", "types.Cause", "types.Move"),
        *("types.Report", "types.SavedInfo", "types.WarmUp", "types.Warmed"),
    ],
}
# Those of the core, with what mkdocstrings is told of them.
OPTIONS = {
    "Variant": 'heading: filterjit.types.Variant\n      filters: ["!^_", "!^defer"]',
    "Structure": "heading: filterjit.types.Structure",
}
# Classes whose methods are listed. Those of others have the same, or are called by the core.
WITH_METHODS = {
    *("types.FilterJit", "types.Compiled", "types.Lowered", "types.Traced", "types.Report"),
    *("types.Structure",),
}
# Classes that users call.
MADE_BY_USERS = {"sharding.ShardingRules", "sharding.fsdp", "Filter"}
WITH_ATTRIBUTES = {"types.Switches"}


def on_site(page: str) -> str:
    """Returns the page with what mkdocstrings reads in the place of each entry."""
    paths = {name.removeprefix("types."): name for names in SECTIONS.values() for name in names}

    def directive(found: re.Match[str]) -> str:
        name = found[1]
        if name in OPTIONS:
            return f"::: filterjit._core.{name}\n    options:\n      {OPTIONS[name]}\n\n"
        return f"::: filterjit.{paths[name]}\n\n"

    return re.sub(r"^### ([^\n]*)\n.*?(?=^#)", directive, page, flags=re.M | re.S)


def find(name: str) -> Any:
    module, _, last = f"filterjit.{name}".rpartition(".")
    return getattr(importlib.import_module(module), last)


def docstring(name: str, x: Any) -> str:
    if inspect.isclass(x) or inspect.isroutine(x):
        return inspect.getdoc(x) or ""
    # That of an instance stands below the assignment.
    source = inspect.getsource(importlib.import_module("filterjit._trees._filters"))
    found = re.search(rf'^{name}: [^\n]*\n"""(.*?)"""', source, re.M | re.S)
    assert found is not None, name
    return found[1]


def sentence(text: str) -> str:
    text = " ".join(text.partition("\n\n")[0].split())
    return re.sub("``(.*?)``", r"`\1`", re.split(r"(?<=\.) ", text)[0])


def signature(name: str, x: Any) -> str:
    """Returns a call without annotations, as one writes it."""
    parts, keyword_only = [], False
    for p in inspect.signature(x).parameters.values():
        if p.name == "self" or (p.name.startswith("_") and p.kind is not p.VAR_KEYWORD):
            continue
        if p.kind is p.KEYWORD_ONLY and not keyword_only:
            if not any(part.startswith("*") for part in parts):
                parts.append("*")
            keyword_only = True
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        given = p.default is p.empty or "not given" in repr(p.default)
        parts.append(f"{star}{p.name}" + ("" if given else f"={p.default!r}"))
    return f"{name}({', '.join(parts)})"


def members(cls: type) -> dict[str, Any]:
    """Returns what a class has of filterjit's, also by bases that are not public."""
    return {
        name: x
        for base in reversed(cls.__mro__)
        if base.__module__.partition(".")[0] == "filterjit"
        for name, x in vars(base).items()
        if not name.startswith("_")
    }


def entry(name: str) -> str:
    x = find(name)
    lines = [f"### {name.removeprefix('types.')}"]
    if inspect.isroutine(x) or name in MADE_BY_USERS:
        lines.append(f"`{signature(name, x)}`")
    lines.append(sentence(docstring(name, x)))
    if inspect.isclass(x):
        found = members(x)
        if name in WITH_METHODS:
            methods = [k for k in found if inspect.isroutine(y := getattr(x, k)) and callable(y)]
            lines.append(
                "\n".join(
                    f"- `{signature('.' + k, getattr(x, k))}`: {sentence(docstring(k, getattr(x, k)))}"
                    for k in methods
                )
            )
        if name in WITH_ATTRIBUTES:
            fields = [k for k in inspect.get_annotations(x) if not k.startswith("_")]
            lines.append(f"Attributes: {', '.join(f'`{k}`' for k in fields)}.")
    return "\n\n".join(lines) + "\n"


def main() -> None:
    parts = [HEAD]
    for section, names in SECTIONS.items():
        parts += [f"## {section}\n", *map(entry, names)]
    sys.stdout.write("\n".join([*parts, TAIL]))


if __name__ == "__main__":
    main()
