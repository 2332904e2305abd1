#!/usr/bin/env python3
"""Prints docs/errors.md: the errors and warnings that filterjit raises, each by a program, and the
causes of a retrace (`causes.py`).

    .venv/bin/python .ci/errors.py > docs/errors.md

Each program runs here, in an empty folder, and raises at its end what the page says.
tests/test_errors_page.py compares the page with what this prints, and looks for each message of the
source on the page: one that is not there has to be named in its NOT_SHOWN, with the reason.
"""

import ast
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import causes  # which also chooses two devices of the CPU
from causes import example

ROOT = Path(__file__).resolve().parents[1]

HEAD = """<!-- printed by .ci/errors.py -->
# What a message means

What filterjit raises and warns of, each with a program that does so, and
[what it says of a retrace](#causes-of-a-retrace). To find a message, search this page for a few of
its words that name no value. The programs begin with

```python
import dataclasses, pathlib, sys, types

import equinox as eqx
import filterjit
import jax
import jax.numpy as jnp
import numpy as np
from filterjit import *
from filterjit import lax
from filterjit.aot import saved_info
from filterjit.sharding import ShardingRules, fsdp, place
from jax.sharding import PartitionSpec as P

x = jnp.ones(2)
key = jax.random.key(0)
linear = eqx.nn.Linear(2, 2, key=key)
devices = jax.devices()  # two here
mesh = jax.make_mesh((len(devices),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))


@filter_jit
def f(x, n=None):
    return x
```

Tracebacks are left out. Addresses are shortened. Errors of the function's own code, of JAX, Equinox
and Flax are raised as they are, some with a note that has the path in the arguments.
"""

# The title of each section, what is said before it, and the programs by their titles.
SECTIONS: list[tuple[str, str, dict[str, str]]] = [
    (
        "A call",
        "",
        {
            "A set": "f(x, [{1}])",
            "A dataclass that is not frozen": (
                "@dataclasses.dataclass\nclass Config:\n    size: int\nf(x, Config(1))"
            ),
            "An object with arrays, and without a hash": (
                "class Batch:\n"
                "    __hash__ = None\n"
                "    def __init__(self): self.images = jnp.ones(2)\n"
                "f(x, Batch())"
            ),
            "An object without a hash": ("class Plain:\n    __hash__ = None\nf(x, Plain())"),
            "A `__hash__` that raises": (
                "class Odd:\n    def __hash__(self): raise OSError('no network')\nf(x, Odd())"
            ),
            "An object with arrays": (
                "class Batch:\n    def __init__(self): self.images = jnp.ones(2)\nf(x, Batch())"
            ),
            "Keys that cannot be sorted": "f(x, {1: x, 'a': x})",
            "An array that was donated": (
                "step = filter_jit(f.__wrapped__, donate='all')\nstep(x)\nstep(x)"
            ),
            "The hash of a jitted Module": "hash(filter_jit(linear))",
            "A list that contains itself": ("loop = []\nloop.append(loop)\nf(x, loop)"),
        },
    ),
    (
        "Compiling too often",
        "[Why it compiled again](debugging.md) has the remedies.",
        {
            'With `on_retrace="raise"`': (
                "step = filter_jit(f.__wrapped__, on_retrace='raise')\nstep(x, 1)\nstep(x, 2)"
            ),
            "After `forbid_compile`": ("f(x)\nwith forbid_compile():\n    f(x, 2)"),
            "After `forbid_compile`, plain `jax.jit`": (
                "step = f.__wrapped__\nwith forbid_compile():\n    jax.jit(step)(x)"
            ),
            "`allow_compile()` without `with`": "allow_compile()",
            "Another value in each call": ("for n in range(30):\n    f(x, n)"),
        },
    ),
    (
        "Options",
        "Of `filter_jit`. Those of `filterjit.jit` and `filterjit.nnx.jit` read alike.",
        {
            "An option of `jit` alone": "filter_jit(f, static_argnums=1)",
            "An old option of Equinox": "filter_jit(f, args=1)",
            "A misspelt option": "filter_jit(f, max_size=3)",
            "An option that JAX deprecates": "filter_jit(f, device='cpu')",
            "Jitting what is not a function": "filter_jit(3)",
            "Jitting an `async` function": ("async def request(x): ...\nfilter_jit(request)"),
            "Jitting a class that is no pytree": "filter_jit(type('Model', (), {'__init__': lambda self, x: setattr(self, 'x', x)}))(x)",
            "`traced=` for a string": "filter_jit(f.__wrapped__, traced=('n',))(x, 'relu')",
            "`donate=` with a misspelt mode": "filter_jit(f, donate='everything')",
            "`donate=` with a misspelt path": "filter_jit(lambda model: 0, donate={'model': '**.wieght'})(linear)",
            "`donate=` with a misspelt parameter": "filter_jit(lambda x: x, donate=('y',))(x)",
            "`donate=` without a result that fits": "filter_jit(lambda x: x.sum(), donate=('x',))(x)",
            "`traced=` without a tuple": "filter_jit(f, traced='n')",
            "`traced=` with the path of a string": "filter_jit(lambda c: 0, traced={'c': 'name'})({'lr': 0.1, 'name': 'adam'})",
            "A result that `jit` cannot return": "filterjit.jit(lambda x: (x, 'text')).compile(x)",
            "`on_retrace=` with another word": "filter_jit(f, on_retrace='print')",
            "`same_on_all_processes=` with a string": "filter_jit(f, same_on_all_processes='yes')",
            "`in_shardings=` with a number": "filter_jit(f, in_shardings=3)",
            "`mesh=` with a name": "filter_jit(f, mesh='data')",
        },
    ),
    (
        "Compiled functions and files",
        "[Ahead of time](ahead-of-time.md) says what a file holds. A file of another mesh, process or kind of machine is refused in the same way.",
        {
            "Other statics": "f.lower(x, 1).compile()(x, 2)",
            "Other shapes": "f.lower(x).compile()(jnp.ones(3))",
            "`warm_up_all` without a list": "f.warm_up_all(3)",
            "`warm_up_all` without pairs": "f.warm_up_all([(x,)])",
            "`load` of a number": "load(3)",
            "`platforms=` without `portable=True`": "f.lower(x).compile().save('f.jit', platforms=('cuda',))",
            "`platforms=` with a string": "f.lower(x).compile().save('f.jit', portable=True, platforms='cuda')",
            "Saving a loaded function": (
                "f.lower(x).compile().save('f.jit')\nload('f.jit').save('again.jit')"
            ),
            "Saving a lambda": "f.lower(x, lambda x: x).compile().save('f.jit')",
            "Saving a callback": "filter_jit(lambda x: jax.pure_callback(np.sin, x, x)).lower(x).compile().save('f.jit')",
            "Saving what is not compiled, with a callback": "filter_jit(lambda x: jax.pure_callback(np.sin, x, x)).lower(x).save('f.jit')",
            "Saving what is not compiled, with shardings": "filter_jit(f.__wrapped__, in_shardings={'x': P('data')}, mesh=mesh).lower(x).save('f.jit')",
            "Loading another file": (
                "pathlib.Path('f.jit').write_text('no program')\nload('f.jit')"
            ),
            "Loading a damaged file": (
                "f.lower(x).compile().save('f.jit')\n"
                "data = bytearray(pathlib.Path('f.jit').read_bytes())\n"
                "data[-1] ^= 1\n"
                "pathlib.Path('f.jit').write_bytes(data)\n"
                "load('f.jit')"
            ),
            "Loading a file that was cut short": (
                "f.lower(x).compile().save('f.jit')\n"
                "data = pathlib.Path('f.jit').read_bytes()\n"
                "pathlib.Path('f.jit').write_bytes(data[:100])\n"
                "load('f.jit')"
            ),
            "`devices=` with a number": (
                "f.lower(x).compile().save('f.jit')\nload('f.jit', devices=1)"
            ),
            "`devices=` with too many": (
                "f.lower(x).compile().save('f.jit')\nload('f.jit', devices=devices)"
            ),
            "`devices=` with another mesh": (
                "filter_jit(f.__wrapped__, in_shardings={'x': P('data')}, mesh=mesh).lower(x).compile().save('f.jit')\n"
                "load('f.jit', devices=jax.make_mesh((2,), ('model',)))"
            ),
            "Loading a file for another platform": (
                "f.lower(x).compile().save('f.jit', portable=True, platforms=('cuda',))\n"
                "load('f.jit')"
            ),
            "A static whose module is not imported": (
                "module = sys.modules['act'] = types.ModuleType('act')\n"
                "exec('def act(x): return 2 * x', vars(module))\n"
                "f.lower(x, module.act).compile().save('f.jit')\n"
                "del sys.modules['act']\n"
                "load('f.jit')"
            ),
            "A static that its module lacks": (
                "module = sys.modules['act'] = types.ModuleType('act')\n"
                "exec('def act(x): return 2 * x', vars(module))\n"
                "f.lower(x, module.act).compile().save('f.jit')\n"
                "del module.act\n"
                "load('f.jit')"
            ),
        },
    ),
    (
        "Trees, filters and path patterns",
        "",
        {
            "What is no filter": "partition(linear, 1)",
            "A pattern that does not end": "partition(linear, 'layers[')",
            "The path of a node": "partition({'a': {'b': x}}, 'a')",
            "A misspelt path": "partition(linear, 'wieght')",
            "`missing=` with another word": "Filter('weight', missing='no')",
            "A filter that returns None": "partition(linear, lambda leaf: None)",
            "A pattern inside a tree of filters": "partition({'a': x}, {'a': '**'})",
            "A `Filter` that is called": "Filter('**.weight')(x)",
            "`combine` of two values for one place": "combine({'a': x}, {'a': x}, strict=True)",
            "`combine` of other trees": "combine({'a': x}, {'b': x})",
            "`Structure.combine` without all parts": (
                "structure, arrays, rest = partition_dict(linear, is_array)\n"
                "structure.combine(rest)"
            ),
            "`Structure.combine` of a list": (
                "structure, *parts = partition_dict(linear, is_array)\n"
                "structure.combine(*parts, [x])"
            ),
            "Keys that make equal paths": "partition_dict({'a': {'b': x}, 'a.b': x})",
            "A pattern that is too long": "partition({'a': x}, '**.' * 2000 + 'a')",
            "A tree of filters, deeper than the tree": "partition({'a': x}, {'a': {'b': True}}, is_leaf=lambda node: node is x)",
            "A tracer as a filter": "filter_jit(lambda x: partition({'a': x}, {'a': x}))(x)",
            "`unflatten` with too few leaves": (
                "leaves, structure = flatten(linear)\nunflatten(structure, leaves[:1])"
            ),
            "`unflatten` with its arguments exchanged": (
                "leaves, structure = flatten(x)\nunflatten(leaves, structure)"
            ),
        },
    ),
    (
        "Loops and branches",
        "Of `filterjit.lax`. What the carry or the branches return in another shape or dtype is JAX's own error, with the path in the tree.",
        {
            "A number that a step changes": "lax.scan(lambda c, x: ({**c, 'n': c['n'] + 1}, x), {'n': 0, 'x': x}, x)",
            "A carry that becomes a number": "lax.scan(lambda c, x: ((0.5, c[1]), x), (x, 'name'), x)",
            "A step that returns one value": "lax.scan(lambda c, x: c, x, x)",
            "A set in the carry": "lax.scan(lambda c, x: (c, x), {1, 2}, x)",
            "A step that is no function": "lax.scan(x, x, x)",
            "Branches with other statics": "lax.cond(True, lambda: (x, 1), lambda: (x, 2))",
            "`operand=` beside operands": "lax.cond(True, jnp.sin, jnp.cos, x, operand=x)",
            "An NNX Module as the carry": (
                "from flax import nnx\n"
                "model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))\n"
                "lax.scan(lambda c, x: (c, x), model, x)"
            ),
        },
    ),
    (
        "Flax NNX",
        "`flax.nnx.jit` makes [some calls](nnx.md#what-flax-still-does) itself. This is no error, and `step.report()` counts them.",
        {
            "A change that is lost": (
                "from flax import nnx\n"
                "class Counter(nnx.Module):\n"
                "    def __init__(self): self.n = nnx.Variable(jnp.ones(2))\n"
                "@filter_jit\n"
                "def count(counter):\n"
                "    counter.n[...] += 1\n"
                "count(Counter())"
            ),
        },
    ),
    (
        "Shardings",
        "[Many devices](sharding.md). `ProcessMismatchError` needs several processes: it tells which of them is about to run what, the path in the arguments at which the calls differ, and the first line in which the programs do.",
        {
            "Too many shardings": "filter_jit(f.__wrapped__, in_shardings=(P(), P(), P()), mesh=mesh)(x)",
            "A tree of shardings that does not fit": "filter_jit(f.__wrapped__, in_shardings={'x': {'w': [P()]}}, mesh=mesh)({'w': {'a': x}})",
            "A spec without a mesh": "filter_jit(f.__wrapped__, in_shardings=P())(x)",
            "The name of an axis as a sharding": "filter_jit(f.__wrapped__, in_shardings={'x': 'data'}, mesh=mesh)(x)",
            "An axis that the mesh lacks": "filter_jit(f.__wrapped__, in_shardings={'x': P('model')}, mesh=mesh)(x)",
            "An array that cannot be divided": "filter_jit(f.__wrapped__, in_shardings={'x': P('data')}, mesh=mesh)(jnp.ones(3))",
            "`ShardingRules` of a number": "ShardingRules(3)",
            "`fsdp` of a number": "fsdp(3)",
            "`min_size=` of a string": "fsdp('data', min_size='1 MiB')",
            "No rules": "ShardingRules({})",
            "A rule after the last one": "ShardingRules({...: P(), '**.bias': P('data')})",
            "A rule that is no spec": "ShardingRules({'**.weight': 'data'})",
            "A rule that returns no spec": "ShardingRules({'**.weight': lambda array, mesh: 'data'}).table(linear, mesh)",
            "`table` without a mesh": "ShardingRules({...: P()}).table(linear)",
            "A rule with a misspelt path": "ShardingRules({'**.wieght': P(), ...: P()}).table(linear, mesh)",
            "A rule that an earlier one hides": "ShardingRules({'**': P(), '**.bias': P()}).table(linear, mesh)",
            "An array without a rule": "ShardingRules({'**.weight': P()}).table(linear, mesh)",
            "A spec that has an axis twice": "ShardingRules({...: P('data', 'data')}).table(linear.weight, mesh)",
            "`place` without a mesh": "place(x, P('data'))",
            "`place` with what is no mesh": "place(x, P('data'), 'data')",
        },
    ),
]

# What needs more than such a program: the message as the source has it, and when it is raised.
ELSEWHERE: list[tuple[str, str]] = [
    (
        "process ... is about to run `...`, and other processes have not come to do the same in ... "
        "seconds: they run another program, or have failed, or are slow (FILTERJIT_PROCESSES_TIMEOUT).",
        "`same_on_all_processes`: a process that the others leave alone",
    ),
    (
        "it is the file of process ... of ..., and this is process ... of ...: each process loads the "
        "file that it has saved",
        "`load` in several processes",
    ),
    (
        "...; here are ...: .... Pass `devices=` to run it on others",
        "`load` of a program for more devices than there are",
    ),
    (
        "it is an executable for .... An executable runs only on the kind of machine and with the "
        "version of JAX that compiled it; `save(..., portable=True)` saves a program that others can "
        "compile",
        "`load` of a file of another machine or version",
    ),
    (
        "`...` is of format ...; filterjit ... reads format ....",
        "`load` of a file of another version of filterjit",
    ),
    (
        "JAX loaded it from its persistent compilation cache, and XLA cannot serialize such an "
        "executable again. Set `jax_enable_compilation_cache` to False first, or pass portable=True",
        "`save` of a program from JAX's cache",
    ),
    (
        "`...` changed while it was flattened",
        "An argument that another thread changes during the call",
    ),
    (
        "filterjit cannot replace filter_jit in Equinox ..., whose internals it does not support; the "
        "program runs on Equinox's own. `filterjit.filter_jit` itself works.",
        "`install()` with a version of Equinox that it does not know",
    ),
]


def messages(names: dict[str, Any], program: str) -> Iterator[tuple[str, str]]:
    """Gives the class and the text of what a program raises at its end, or warns of."""
    *before, last = ast.parse(program).body
    exec(compile(ast.Module(before, []), "train.py", "exec"), names)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            exec(compile(ast.Module([last], []), "train.py", "exec"), names)
        except BaseException as e:
            text = str(e) if not isinstance(e, KeyError) else e.args[0]
            yield class_name(type(e)), "\n".join([text, *notes_of(e)])
            return
    assert warned, f"raises nothing: {program}"
    for warning in warned:
        yield class_name(warning.category), str(warning.message)


def notes_of(e: BaseException) -> list[str]:
    return [note for note in getattr(e, "__notes__", []) if not note.startswith("-----")]


def class_name(cls: type) -> str:
    module = cls.__module__.partition(".")[0]
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"


def results() -> Iterator[tuple[str, str, list[tuple[str, str, str]]]]:
    """Gives each section with titles, programs, and what these raise."""
    begin = re.search(r"```python\n(.*?)```", HEAD, re.S)
    assert begin is not None
    with tempfile.TemporaryDirectory() as folder:
        for section, intro, programs in SECTIONS:
            found = []
            for title, program in programs.items():
                os.chdir(tempfile.mkdtemp(dir=folder))
                names: dict[str, Any] = {"__name__": "__main__"}
                exec(compile(begin[1], "train.py", "exec"), names)
                said = [f"{cls}: {text}" for cls, text in messages(names, program)]
                found.append((title, program, "\n".join(said).replace(folder, "...")))
            yield section, intro, found
        os.chdir(ROOT)


def main() -> None:
    of_retraces = causes.section()
    parts = [HEAD]
    for section, intro, found in results():
        parts.append(f"## {section}\n")
        if intro:
            parts.append(f"{intro}\n")
        for title, program, said in found:
            said = re.sub(r"0x[0-9a-f]{6,}", "0x...", said)
            # What CPython 3.14 says.
            said = re.sub(
                r"Stack overflow \(used \d+ kB\)", "maximum recursion depth exceeded", said
            )
            parts.append(example(title, program, said))
    parts += [of_retraces, "## With other machines, processes or versions\n"]
    parts += [f"### {when}\n\n```text\n{text}\n```\n" for text, when in ELSEWHERE]
    sys.stdout.write("\n".join(parts))


if __name__ == "__main__":
    main()
