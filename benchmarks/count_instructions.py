"""Counts the instructions that each step of a call takes in the C core, without JAX.

    python benchmarks/count_instructions.py [--check | --update]

The same code on the same tree takes the same number of instructions, however busy the machine
is, so a count can be compared with a bound, unlike a time.  This program runs itself under
callgrind, with the stand-in for ``jax.jit`` of tests/core/hooks_support.py, and reads how many
instructions the C function of each step takes per call, with all functions that it calls.

Counts depend on the compiler, the interpreter and the C library, so instructions.json has bounds
for each combination.  Growth needs none: ten times the nodes take ten times the instructions.
``$FILTERJIT_CORE_DIR`` is the folder of the core; .ci/instructions builds it.
"""

import argparse
import functools
import gc
import itertools
import json
import operator
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
SIZES = (100, 1_000)  # of the trees that grow
ALONE = " alone"  # ends the names of these, which have nodes or leaves of one kind
GROWTH = 0.25  # the part that the allocator may add in a larger tree
STEPS = {  # the C functions of each step
    "bind": ("fj_bind",),
    "match": ("fj_match_arguments",),
    "flatten": ("fj_flatten_arguments",),
    "look-up": ("fj_structure_hash", "fj_cache_find"),
    "build": ("fj_build_tree",),
    "call": ("fj_call",),
    "direct": ("direct_vectorcall",),
}
WARM = 3  # calls that are not counted
TIMES = 5  # the cheapest of so many calls counts, as the allocator sometimes tidies up
MARK = "getppid"  # callgrind writes its counts where this is called, and starts again at zero
# Large blocks of memory then grow without being copied.
MALLOC = ("mmap_threshold", "trim_threshold", "top_pad")
TABLE = 32  # entries in the table of a registry with 6 to 21 types
Counts = dict[str, int]
Calls = dict[str, tuple[int, int]]  # by C function: the number of calls, and their instructions


# ---- under valgrind ----

# The fields of Equinox's layers: those with children, and static ones.
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
# One object of each built-in type in the trees.
BUILTINS: tuple[Any, ...] = ([], (), {}, None, 0, "", range(0), json.dumps)


def _classes() -> dict[str, Any]:
    """A class of arrays, one for each kind of object, and one for each layer.

    The core finds types by their addresses in a table.  Each class gets an entry without a
    collision, so that no count depends on these addresses.
    """
    from core_support import Array, Described, Module, Pair, Slots, Variable

    made: dict[str, tuple[type, dict[str, Any]]] = {
        "Array": (Array, {"__slots__": ()}),
        "Pair": (Pair, {}),
        "Slots": (Slots, {"__slots__": ()}),
        "Variable": (Variable, {"__slots__": ()}),
        "Described": (Described, {}),
    }
    for name, (dynamic, static) in LAYERS.items():
        fields = {"dynamic": tuple(dynamic.split()), "static": tuple(static.split())}
        made[name] = Module, fields
    taken = {id(type(x)) // 16 % TABLE for x in BUILTINS}
    kept = []
    classes: dict[str, Any] = {}
    for name, (base, members) in made.items():
        while (place := id(cls := type(name, (base,), members)) // 16 % TABLE) in taken:
            kept.append(cls)  # so that the next class has another address
        taken.add(place)
        classes[name] = cls
    return classes


def _trees(classes: dict[str, Any]) -> dict[str, Any]:
    """The trees by name: models of the layers, and flat trees."""
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

    def variable() -> Any:
        return classes["Variable"](array(), trainable=True, hooks=None)

    def described() -> Any:
        nodes = ("weight", "bias")
        return classes["Described"](
            nodes, weight=variable(), bias=variable(), size=3, use_bias=True
        )

    return {
        "50 objects": [classes["Pair"](x=array(), y=array(), tag=3) for _ in range(50)],
        "50 objects with slots": [classes["Slots"](x=array(), y=array(), tag=3) for _ in range(50)],
        "32 modules that describe themselves, 64 variables": [described() for _ in range(32)],
        "MLP": mlp(5, layer),
        "MLP with statics compared by ==": mlp(5, range(0)),
        "transformer of 24 layers": [block() for _ in range(24)],
        "dict of 100 arrays": {f"name {i}": array(i) for i in range(100)},
        "list of 10,000 strings": [f"name {i}" for i in range(10_000)],
    }


def _growing(classes: dict[str, Any], n: int) -> dict[str, Any]:
    """Trees of `n` nodes or leaves of one kind, by name."""
    array = classes["Array"]

    def pairs(name: str) -> list[Any]:
        return [classes[name](x=array(), y=array(), tag=3) for _ in range(n)]

    def linear(i: int) -> Any:
        return classes["Linear"](
            weight=array(), bias=array(), in_features=i, out_features=32, use_bias=True
        )

    return {
        "modules": [linear(i) for i in range(n)],
        "objects": pairs("Pair"),
        "objects with slots": pairs("Slots"),
        "tuples": [(array(), i) for i in range(n)],
        "dicts": [{"x": array(), "y": array(), "tag": 3} for _ in range(n)],
        "items of a dict": {f"name {i:04}": array() for i in range(n)},
        "strings": [f"name {i}" for i in range(n)],
    }


def _jit(function: Callable[..., Any], array_type: type) -> Any:
    """A FilterJit whose compiled callable returns the result of its first call."""
    import core_support
    import hooks_support

    class Hooks(hooks_support.Hooks):
        def compile(self, f: Any, variant: Any) -> Any:
            compiled = super().compile(f, variant)
            outputs: list[Any] = []

            def call(*arrays: Any) -> Any:
                if not outputs:
                    outputs.append(compiled(*arrays))
                return outputs[0]

            return call

    registry = core_support.make_registry(array_type=array_type)
    core_support.core.flatten(registry, BUILTINS)  # the table does not grow later
    return hooks_support.make_jit(function, Hooks(registry))


def _direct() -> tuple[Callable[..., object], list[Any], list[Any]]:
    """A Direct, whose calls are direct from the second on, and two lists of arrays for it.  It is
    given C functions only."""
    from core_support import core

    class Array:
        __slots__ = ("__weakref__",)
        aval, sharding, committed, layout = "aval", "sharding", True, "layout"

    names = ("aval", "sharding", "committed", "layout")
    configuration = functools.partial(tuple, tuple(map(str, range(50))))  # tuple(x) is x
    context = core.DirectContext(
        **{f"get_{name}": operator.attrgetter(name) for name in names},
        array_type=Array,
        key_type=type(None),
        host_array=memoryview,
        host_scalar=memoryview,
        is_deleted=operator.attrgetter("is_deleted"),
        configuration=configuration,
        get_setting=str,
        settings=("setting",) * 3,
        make_arrays=operator.concat,
        plan=lambda source, arrays: {
            "execute": list,
            "flags": bytes([3] * len(arrays)),
            "trace": 0,
            "checks_deleted": False,
            "handlers": [],
            "constants": (),
            "puts": (),
        },
        **dict.fromkeys(("get_data", "get_impl", "put"), id),
        **dict.fromkeys(("is_disabled", "is_profiled"), bool),
        collect=dict,
    )
    context.enabled = True
    direct = core.Direct(context, lambda *arrays: core.output_unflatten(0, arrays), "a source")
    arrays, others = ([Array() for _ in range(100)] for _ in range(2))
    return direct, arrays, others


def _workloads() -> Iterator[tuple[Sequence[str], str, Callable[[], object]]]:
    """Yields steps, the name of the tree or arguments, and a call that takes the steps."""
    classes = _classes()
    array = classes["Array"]
    a, b, c = array(), array(), array()
    f = _jit(lambda a, b, c: a, array)
    yield ("bind", "call"), "3 arrays by position", lambda: f(a, b, c)
    yield ("bind", "call"), "2 of 3 by keyword", lambda: f(a, c=c, b=b)
    for name, tree in _trees(classes).items():
        jit = _jit(lambda tree: tree, array)
        # Before the first call there is no variant to match.
        yield ("flatten",), name, functools.partial(jit._find_or_compile, tree)
        # Two trees alternate, so that there is no record of either.
        trees = itertools.cycle([tree, jit(tree)])
        yield ("match", "build", "call"), name, lambda jit=jit, trees=trees: jit(next(trees))
        again = _jit(lambda tree: tree, array)
        yield ("call",), f"{name}, again", functools.partial(again, tree)
        if name == "MLP":
            # What Python does in the first call with shardings: it switches the variant's `call`.
            sharded = _jit(lambda tree: tree, array)
            sharded(tree)
            (variant,) = sharded._parts()[0].variants()
            variant._switch(variant._call)
            yield ("call",), f"{name}, again, with rules", functools.partial(sharded, tree)
    direct, arrays, others = _direct()
    yield ("direct",), "100 arrays, again", lambda: direct(*arrays)
    direct, arrays, others = _direct()
    lists = itertools.cycle([arrays, others])
    yield ("direct",), "100 arrays, others", lambda: direct(*next(lists))
    many = _jit(lambda i, x: x, array)
    for i in range(1000):
        many(i, a)
    yield ("look-up",), "1,000 variants", lambda: [many._find_or_compile(i, a) for i in range(1000)]
    for n in SIZES:
        for kind, tree in _growing(classes, n).items():
            jit = _jit(lambda tree: tree, array)
            name = f"{n:,} {kind}{ALONE}"
            yield ("flatten", "look-up"), name, functools.partial(jit._find_or_compile, tree)
            trees = itertools.cycle([tree, jit(tree)])
            yield ("match", "build"), name, lambda jit=jit, trees=trees: jit(next(trees))


def perform() -> None:
    """Runs each workload, with marks between its calls, and prints its steps and name."""
    gc.disable()
    for steps, name, call in _workloads():
        for _ in range(WARM):
            call()
        for _ in range(TIMES):
            os.getppid()
            call()
        os.getppid()
        print(json.dumps([steps, name]))


# ---- reading the profile ----


def read_calls(profile: str) -> Calls:
    """Reads a profile without compression, where the line after ``calls=`` has the cost."""
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
    """How many instructions a step takes on average."""
    if missing := [name for name in STEPS[step] if name not in calls]:
        raise SystemExit(f"callgrind saw no call of {', '.join(missing)}: renamed, or stripped?")
    return round(sum(cost / number for number, cost in map(calls.__getitem__, STEPS[step])))


def count() -> Counts:
    """Counts instructions by step and workload.

    The interpreter under valgrind has its own environment, because the order of sets and the
    layout of memory depend on it.
    """
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
            first = i * (TIMES + 1) + 2  # the part before ends at the first mark
            parts = [Path(folder, f"part.{first + k}").read_text() for k in range(TIMES)]
            calls = [read_calls(part) for part in parts]
            steps, name = json.loads(line)
            for step in steps:
                counts[f"{step}, {name}"] = min(instructions(x, step) for x in calls)
    return counts


# ---- bounds ----


def environment() -> str:
    """The environment on which the counts depend, besides the code."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC"))[0]
    asked = subprocess.run([compiler, "-dumpfullversion"], stdout=subprocess.PIPE, text=True)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return (
        f"{platform.machine()}, {python} by {platform.python_compiler()}, "
        f"{Path(compiler).name} {asked.stdout.strip()}, {' '.join(platform.libc_ver())}"
    )


def compare(counts: Counts, bounds: Counts) -> tuple[list[str], list[str]]:
    """Prints a table. Lists the counts above their bounds by more than the tolerance, and those
    below."""
    width = max(map(len, counts))
    worse: list[str] = []
    better: list[str] = []
    print(f"{'operation':{width}}  instructions       bound  difference")
    for name, count in counts.items():
        bound = bounds.get(name, count)
        part = (count - bound) / bound
        difference = f"{part:+.1%}".replace("%", " %")
        held = f"{bound:10,}  {difference:>10}" if name in bounds else f"{'-':>10}"
        print(f"{name:{width}}  {count:12,}  {held}")
        if abs(part) > TOLERANCE:
            text = f"{name}: {count:,} instructions, {difference} of {bound:,}"
            (worse if count > bound else better).append(text)
    return worse, better


def judge_growth(counts: Counts) -> list[str]:
    """Lists the steps that take more than in proportion to the size of the tree."""
    small, large = SIZES
    found: list[str] = []
    for name, less in counts.items():
        of_large = name.replace(f", {small:,} ", f", {large:,} ")
        if name.endswith(ALONE) and of_large != name:
            times = counts[of_large] / less
            if times > large / small * (1 + GROWTH):
                found.append(f"{of_large}: {times:.1f} times the instructions of {small:,}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="fail where a count is over its bound")
    what.add_argument("--update", action="store_true", help="make these counts the bounds")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind is not installed: nothing was counted", file=sys.stderr)
        return 0 if options.check else 1
    if sys.stderr.isatty():
        print("counting under valgrind, half a minute ...", file=sys.stderr)
    counts = count()
    all_bounds: dict[str, Counts] = json.loads(BOUNDS.read_text()) if BOUNDS.exists() else {}
    here = environment()
    bounds = all_bounds.get(here, {})
    worse, better = compare(counts, bounds)
    if options.update:
        bounds = {name: n for name, n in counts.items() if not name.endswith(ALONE)}
        BOUNDS.write_text(json.dumps({**all_bounds, here: bounds}, indent=2, sort_keys=True) + "\n")
        return 0
    if not bounds:
        print(f"no bounds for {here}: --update makes them", file=sys.stderr)
    worse += judge_growth(counts)
    said = [f"better: {text}; --update tightens the bound\n" for text in better]
    sys.stderr.writelines([*said, *(f"worse: {text}\n" for text in worse)])
    return 1 if worse and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
