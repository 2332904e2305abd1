"""Instructions that each step of a call takes in the C core, counted by callgrind; without JAX.

    python benchmarks/count_instructions.py [--check | --update]

The same code on the same tree takes the same instructions however busy the machine is, so a
count can be held to a bound, where a time cannot. This runs itself under valgrind, with the trees
and the stand-in for ``jax.jit`` of tests/core/core_support.py, and takes from callgrind what the
C function behind each step costs a call, with all that it calls.

Counts depend on the compiler, the interpreter and the C library, so instructions.json has bounds
for each combination. ``$FILTERJIT_CORE_DIR`` is where the core lies; .ci/instructions builds one.
"""

import argparse
import functools
import gc
import itertools
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BOUNDS = HERE / "instructions.json"
TOLERANCE = 0.03
STEPS = {  # the C functions that do them
    "bind": ("fj_bind",),
    "match": ("fj_match_arguments",),
    "flatten": ("fj_flatten_arguments",),
    "look-up": ("fj_structure_hash", "fj_cache_find"),
    "build": ("fj_build_tree",),
    "call": ("fj_call",),
}
WARM = 3  # calls that are not counted
TIMES = 5  # calls of which the cheapest counts: now and then the allocator tidies up
MARK = "getppid"  # where nothing else calls it: callgrind writes what it has, and starts anew
# Large blocks of memory grow without being copied, whatever lies behind them.
MALLOC = ("mmap_threshold", "trim_threshold", "top_pad")
TABLE = 32  # places in a registry that knows from 6 to 21 types
Counts = dict[str, int]
Calls = dict[str, tuple[int, int]]  # of a C function: how many, and what they took together


# ---- under valgrind ----

# The fields of Equinox's own layers: those that are part of the tree, and those that are static.
LAYERS = {
    "Linear": ("weight bias", "in_features out_features use_bias"),
    "Norm": ("weight bias", "shape eps use_weight use_bias"),
    "MLP": (
        "layers activation final_activation",
        "use_bias use_final_bias in_size out_size width_size depth",
    ),
    "Attention": (
        "query_proj key_proj value_proj output_proj dropout",
        "num_heads query_size key_size value_size output_size qk_size",
    ),
    "Block": ("attention_norm attention mlp_norm mlp", ""),
}
# One of each built-in type that is used.
BUILTINS: tuple[Any, ...] = ([], (), {}, None, 0, "", range(0), json.dumps)


def _classes() -> dict[str, Any]:
    """A class for arrays and one for each layer. The core finds types by their addresses in a
    table, and no count shall depend on where these happen to be: each has a place to itself."""
    from core_support import Array, Module

    made: dict[str, tuple[type, dict[str, Any]]] = {"Array": (Array, {"__slots__": ()})}
    for name, (dynamic, static) in LAYERS.items():
        fields = {"dynamic": tuple(dynamic.split()), "static": tuple(static.split())}
        made[name] = Module, fields
    taken = {id(type(x)) // 16 % TABLE for x in BUILTINS}
    kept = []
    classes: dict[str, Any] = {}
    for name, (base, members) in made.items():
        while (place := id(cls := type(name, (base,), members)) // 16 % TABLE) in taken:
            kept.append(cls)  # so that the next one is elsewhere
        taken.add(place)
        classes[name] = cls
    return classes


def _trees(classes: dict[str, Any]) -> dict[str, Any]:
    """The trees by name: models of such layers, and flat ones."""
    array = classes["Array"]

    def layer(name: str, *dynamic: Any) -> Any:
        cls = classes[name]
        fields = zip(cls.dynamic, dynamic, strict=True)
        return cls(**dict(fields), **dict.fromkeys(cls.static, 32))

    def mlp(depth: int, activation: Any) -> Any:
        layers = tuple(layer("Linear", array(), array()) for _ in range(depth))
        return layer("MLP", layers, activation, activation)

    def block() -> Any:
        first, second = (layer("Norm", array(), array()) for _ in range(2))
        projections = [layer("Linear", array(), None) for _ in range(4)]
        attention = layer("Attention", *projections, 1)
        return layer("Block", first, attention, second, mlp(3, layer))

    return {
        "MLP": mlp(5, layer),
        "MLP that needs care": mlp(5, range(0)),  # whose == is called
        "transformer of 24 layers": [block() for _ in range(24)],
        "dict of 100 arrays": {f"name {i}": array(i) for i in range(100)},
        "list of 10,000 strings": [f"name {i}" for i in range(10_000)],
    }


def _jit(function: Callable[..., Any], array_type: type) -> Any:
    """A FilterJit whose compiled callable only returns what it returned first."""
    import core_support

    class Options(core_support.Options):
        def compile(self, f: Any, variant: Any) -> Any:
            compiled = super().compile(f, variant)
            outputs: list[Any] = []

            def call(*arrays: Any) -> Any:
                if not outputs:
                    outputs.append(compiled(*arrays))
                return outputs[0]

            return call

    registry = core_support.make_registry(array_type=array_type)
    core_support.core.flatten(registry, BUILTINS)  # the table has its size from now on
    return core_support.make_jit(function, Options(registry))


def _workloads() -> Iterator[tuple[Sequence[str], str, Callable[[], object]]]:
    """Steps, on what, and a call that takes them."""
    classes = _classes()
    array = classes["Array"]
    a, b, c = array(), array(), array()
    f = _jit(lambda a, b, c: a, array)
    yield ("bind", "call"), "3 arrays by position", lambda: f(a, b, c)
    yield ("bind", "call"), "2 of 3 by keyword", lambda: f(a, c=c, b=b)
    for name, tree in _trees(classes).items():
        jit = _jit(lambda tree: tree, array)
        # Before its first call there is nothing to match with.
        yield ("flatten",), name, functools.partial(jit._lookup, tree)
        # Two trees in turn, so that neither is remembered.
        trees = itertools.cycle([tree, jit(tree)])
        yield ("match", "build", "call"), name, lambda jit=jit, trees=trees: jit(next(trees))
        again = _jit(lambda tree: tree, array)
        yield ("call",), f"{name}, again", functools.partial(again, tree)
    many = _jit(lambda i, x: x, array)
    for i in range(1000):
        many(i, a)
    yield ("look-up",), "1,000 variants", lambda: [many._lookup(i, a) for i in range(1000)]


def perform() -> None:
    """Takes the steps of each workload, with marks between, and prints what they were."""
    gc.disable()
    for steps, name, call in _workloads():
        for _ in range(WARM):
            call()
        for _ in range(TIMES):
            os.getppid()
            call()
        os.getppid()
        print(json.dumps([steps, name]))


# ---- what callgrind tells ----


def read_calls(profile: str) -> Calls:
    """From a profile without compression: what a call took is in the line after ``calls=``."""
    number: Counter[str] = Counter()
    cost: Counter[str] = Counter()
    callee = ""
    lines = iter(profile.splitlines())
    for line in lines:
        key, _, value = line.partition("=")
        if key == "cfn":
            callee = value
        elif key == "calls":
            number[callee] += int(value.split()[0])
            cost[callee] += int(next(lines).split()[1])
    return {name: (number[name], cost[name]) for name in number}


def instructions(calls: Calls, step: str) -> int:
    """What a step takes on average."""
    if missing := [name for name in STEPS[step] if name not in calls]:
        raise SystemExit(f"callgrind saw no call of {', '.join(missing)}: renamed, or stripped?")
    return round(sum(cost / number for number, cost in map(calls.__getitem__, STEPS[step])))


def count() -> Counts:
    """Instructions by step and what it works on. The interpreter under valgrind gets an
    environment of its own, on which the order of sets and the layout of memory depend."""
    path = [str(HERE), str(HERE.parent / "tests" / "core")]
    code = f"import sys; sys.path[:0] = {path}; import count_instructions as c; c.perform()"
    environ = {
        k: v for k, v in os.environ.items() if k in ("FILTERJIT_CORE_DIR", "LD_LIBRARY_PATH")
    }
    environ["PYTHONHASHSEED"] = "0"
    environ["GLIBC_TUNABLES"] = ":".join(f"glibc.malloc.{k}=4096" for k in MALLOC)
    with tempfile.TemporaryDirectory() as folder:
        valgrind = (
            f"valgrind --quiet --tool=callgrind --compress-strings=no --compress-pos=no "
            f"--dump-before={MARK} --callgrind-out-file={folder}/part"
        )
        command = [*valgrind.split(), sys.executable, "-SPB", "-c", code]
        done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
        counts = {}
        for i, line in enumerate(done.stdout.splitlines()):
            first = i * (TIMES + 1) + 2  # the part before is that of all up to the first mark
            parts = [Path(folder, f"part.{first + k}").read_text() for k in range(TIMES)]
            calls = [read_calls(part) for part in parts]
            steps, name = json.loads(line)
            for step in steps:
                counts[f"{step}, {name}"] = min(instructions(x, step) for x in calls)
    return counts


# ---- bounds ----


def environment() -> str:
    """What the counts depend on besides the code."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC"))[0]
    asked = subprocess.run([compiler, "-dumpfullversion"], stdout=subprocess.PIPE, text=True)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return (
        f"{platform.machine()}, {python} by {platform.python_compiler()}, "
        f"{Path(compiler).name} {asked.stdout.strip()}, {' '.join(platform.libc_ver())}"
    )


def difference(count: int, bound: int) -> str:
    return f"{(count - bound) / bound:+.1%}".replace("%", " %")


def table(counts: Counts, bounds: Counts) -> str:
    width = max(map(len, ("operation", *counts)))
    lines = [f"{'operation':{width}}  instructions       bound  difference"]
    for name, count in counts.items():
        bound = bounds.get(name)
        held = f"{bound:10,}  {difference(count, bound):>10}" if bound else f"{'-':>10}"
        lines.append(f"{name:{width}}  {count:12,}  {held}")
    return "\n".join(lines)


def judge(counts: Counts, bounds: Counts) -> tuple[list[str], list[str]]:
    """What is worse than its bound by more than the tolerance, and what is better by that."""
    worse: list[str] = []
    better: list[str] = []
    for name, bound in bounds.items():
        count = counts.get(name, bound)
        if abs(count - bound) > TOLERANCE * bound:
            text = f"{name}: {count:,} instructions, {difference(count, bound)} of {bound:,}"
            (worse if count > bound else better).append(text)
    return worse, better


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="fail where a count is over its bound")
    what.add_argument("--update", action="store_true", help="make these counts the bounds")
    options = parser.parse_args(argv)
    if shutil.which("valgrind") is None:
        print("valgrind is not installed: nothing was counted", file=sys.stderr)
        return 0 if options.check else 1
    if sys.stderr.isatty():
        print("counting under valgrind, half a minute ...", file=sys.stderr)
    counts = count()
    known: dict[str, Counts] = json.loads(BOUNDS.read_text()) if BOUNDS.exists() else {}
    here = environment()
    bounds = known.get(here, {})
    print(table(counts, bounds))
    if options.update:
        BOUNDS.write_text(json.dumps({**known, here: counts}, indent=2, sort_keys=True) + "\n")
        return 0
    if not bounds:
        print(f"no bounds for {here}: --update makes them", file=sys.stderr)
    worse, better = judge(counts, bounds)
    for text in better:
        print(f"better: {text}; --update tightens the bound", file=sys.stderr)
    for text in worse:
        print(f"worse: {text}", file=sys.stderr)
    return 1 if worse and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
