#!/usr/bin/env python3
"""Prints docs/errors.md: the errors and warnings that filterjit raises, each by a program, and the
causes of a retrace (`causes.py`).

    .venv/bin/python .ci/errors.py > docs/errors.md

Each row is a program that runs here, in an empty folder, and raises at its end what the row says.
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
from causes import code, escape

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

An arrow marks a note of the exception, or what to do. Addresses are shortened. Errors of the
function's own code, of JAX, Equinox and Flax are raised as they are, some with a note that has the
path in the arguments.
"""

# The title of each table, what is said before it, and the programs.
SECTIONS: list[tuple[str, str, list[str]]] = [
    (
        "A call",
        "",
        [
            "f()",
            "f(x, [{1}])",
            "f(x, bytearray(2))",
            "@dataclasses.dataclass\nclass Config:\n    size: int\nf(x, Config(1))",
            "class Batch:\n    __hash__ = None\n    def __init__(self): self.images = jnp.ones(2)\nf(x, Batch())",
            "class Plain:\n    __hash__ = None\nf(x, Plain())",
            "f(x, types.SimpleNamespace(size=1))",
            "class Odd:\n    def __hash__(self): raise OSError('no network')\nf(x, Odd())",
            "class Batch:\n    def __init__(self): self.images = jnp.ones(2)\nf(x, Batch())",
            "f(x, {1: x, 'a': x})",
            "step = filter_jit(f.__wrapped__, donate='all')\nstep(x)\nstep(x)",
            "hash(filter_jit(linear))",
            "loop = []\nloop.append(loop)\nf(x, loop)",
        ],
    ),
    (
        "Compiling too often",
        "[Why it compiled again](debugging.md) has the remedies.",
        [
            "step = filter_jit(f.__wrapped__, on_retrace='raise')\nstep(x, 1)\nstep(x, 2)",
            "step = filter_jit(f.__wrapped__, on_retrace='warn')\nstep(x, 1)\nstep(x, 2)",
            "f(x)\nwith forbid_compile():\n    f(x, 2)",
            "step = f.__wrapped__\nwith forbid_compile():\n    jax.jit(step)(x)",
            "f.trace(x)\nwith forbid_compile():\n    f(x)",
            "allow_compile()",
            "for n in range(30):\n    f(x, n)",
        ],
    ),
    (
        "Options",
        "Of `filter_jit`. Those of `filterjit.jit` and `filterjit.nnx.jit` read alike.",
        [
            "filter_jit(f, static_argnums=1)",
            "filter_jit(f, args=1)",
            "filter_jit(f, max_size=3)",
            "filter_jit(f, keep_unused='yes')",
            "filter_jit(f, device='cpu')",
            "filter_jit(3)",
            "async def request(x): ...\nfilter_jit(request)",
            "filter_jit(type('Model', (), {'__init__': lambda self, x: setattr(self, 'x', x)}))(x)",
            "filter_jit(f.__wrapped__, traced=('n',))(x, 'relu')",
            "filter_jit(f, donate='everything')",
            "filter_jit(f, donate=1)",
            "filter_jit(f, donate={'x': 3})",
            "filter_jit(lambda model: 0, donate={'model': '**.wieght'})(linear)",
            "filter_jit(lambda x: x, donate=('y',))(x)",
            "filter_jit(lambda x: x.sum(), donate=('x',))(x)",
            "filter_jit(f, traced='n')",
            "filter_jit(lambda c: 0, traced={'c': '**.lrr'})({'lr': 0.1})",
            "filter_jit(lambda c: 0, traced={'c': 'opt'})({'opt': {'lr': 0.1}})",
            "filter_jit(lambda c: 0, traced={'c': 'name'})({'lr': 0.1, 'name': 'adam'})",
            "filterjit.jit(lambda x: (x, 'text')).compile(x)",
            "filter_jit(f, functions='equal')",
            "filter_jit(f, on_retrace='print')",
            "filter_jit(f, maxsize=0)",
            "filter_jit(f, same_on_all_processes='yes')",
            "filter_jit(f, in_shardings=3)",
            "filter_jit(f, mesh='data')",
        ],
    ),
    (
        "`partial` and `freeze`",
        "",
        [
            "filter_jit(f.__wrapped__, donate='all').partial(x)",
            "filter_jit(f.__wrapped__, donate='all').freeze(x)",
            "filter_jit(linear, donate='all').freeze()",
            "filter_jit(f.__wrapped__, donate='all-except-first').freeze(x).partial(x)",
            "f.freeze(jax.ShapeDtypeStruct((2,), 'float32'))",
            "filter_jit(f.__wrapped__, donate='all-except-first').freeze(x=x)",
            "f.freeze(x, 1, 2)",
            "f.freeze(x)(x, 1)",
            "filterjit.jit(lambda x: x, donate_argnums=0).freeze()",
            "filter_jit(f.__wrapped__, in_shardings=P()).freeze(x)",
            "frozen = f.freeze(x)\nx.delete()\nfrozen()",
            "class Layer(eqx.Module):\n    sizes: list = eqx.field(static=True)\nlayer = Layer([1])\n"
            "frozen = filter_jit(lambda layer, x: x).freeze(layer)\nlayer.sizes.append(2)\nfrozen(x)",
        ],
    ),
    (
        "Compiled functions and files",
        "[Ahead of time](ahead-of-time.md) says what a file holds. A file of another mesh, process or "
        "kind of machine is refused in the same way.",
        [
            "f.lower(x, 1).compile()(x, 2)",
            "f.lower(x).compile()(jnp.ones(3))",
            "f.warm_up_all(3)",
            "f.warm_up_all([(x,)])",
            "load(3)",
            "f.warm_up_all([((x,), {})], threads=0)",
            "f.lower(x).compile().save('f.jit', platforms=('cuda',))",
            "f.lower(x).compile().save('f.jit', portable=True, platforms='cuda')",
            "f.lower(x).compile().save('f.jit')\nload('f.jit').save('again.jit')",
            "f.lower(x, lambda x: x).compile().save('f.jit')",
            "f.lower(x, object()).compile().save('f.jit')",
            "filter_jit(lambda x: jax.pure_callback(np.sin, x, x)).lower(x).compile().save('f.jit')",
            "filter_jit(lambda x: jax.pure_callback(np.sin, x, x)).lower(x).save('f.jit')",
            "filter_jit(f.__wrapped__, in_shardings={'x': P('data')}, mesh=mesh).lower(x).save('f.jit')",
            "f.lower(x).compile().save('.')",
            "f.lower(x).compile().save('missing/f.jit')",
            "pathlib.Path('f.jit').write_text('no program')\nload('f.jit')",
            "f.lower(x).compile().save('f.jit')\ndata = bytearray(pathlib.Path('f.jit').read_bytes())\n"
            "data[-1] ^= 1\npathlib.Path('f.jit').write_bytes(data)\nload('f.jit')",
            "f.lower(x).compile().save('f.jit')\ndata = pathlib.Path('f.jit').read_bytes()\n"
            "pathlib.Path('f.jit').write_bytes(data[:100])\nload('f.jit')",
            "f.lower(x).compile().save('f.jit')\nload('f.jit', devices=1)",
            "f.lower(x).compile().save('f.jit')\nload('f.jit', devices=devices)",
            "filter_jit(f.__wrapped__, in_shardings={'x': P('data')}, mesh=mesh).lower(x).compile().save('f.jit')\n"
            "load('f.jit', devices=jax.make_mesh((2,), ('model',)))",
            "f.lower(x).compile().save('f.jit', portable=True, platforms=('cuda',))\nload('f.jit')",
            "module = sys.modules['act'] = types.ModuleType('act')\n"
            "exec('def act(x): return 2 * x', vars(module))\n"
            "f.lower(x, module.act).compile().save('f.jit')\ndel sys.modules['act']\nload('f.jit')",
            "module = sys.modules['act'] = types.ModuleType('act')\n"
            "exec('def act(x): return 2 * x', vars(module))\n"
            "f.lower(x, module.act).compile().save('f.jit')\ndel module.act\nload('f.jit')",
        ],
    ),
    (
        "Trees, filters and path patterns",
        "",
        [
            "partition(linear, 1)",
            "partition(linear, 'layers[')",
            "partition({'a': {'b': x}}, 'a')",
            "partition(linear, 'wieght')",
            "Filter('weight', missing='no')",
            "partition(linear, lambda leaf: None)",
            "partition({'a': x}, {'a': '**'})",
            "Filter('**.weight')(x)",
            "combine({'a': x}, {'a': x}, strict=True)",
            "combine({'a': x}, {'b': x})",
            "structure, arrays, rest = partition_dict(linear, is_array)\nstructure.combine(rest)",
            "structure, *parts = partition_dict(linear, is_array)\nstructure.combine(*parts, [x])",
            "partition_dict({1: x, 'a': x})",
            "partition_dict({'a': {'b': x}, 'a.b': x})",
            "partition({'a': x}, '**.' * 2000 + 'a')",
            "partition({'a': x}, {'a': {'b': True}}, is_leaf=lambda node: node is x)",
            "filter_jit(lambda x: partition({'a': x}, {'a': x}))(x)",
            "leaves, structure = flatten(linear)\nunflatten(structure, leaves[:1])",
            "leaves, structure = flatten(x)\nunflatten(leaves, structure)",
        ],
    ),
    (
        "Loops and branches",
        "Of `filterjit.lax`. What the carry or the branches return in another shape or dtype is JAX's "
        "own error, with the path in the tree.",
        [
            "lax.scan(lambda c, x: ({**c, 'n': c['n'] + 1}, x), {'n': 0, 'x': x}, x)",
            "lax.fori_loop(0, 3, lambda i, c: c + i, 0)",
            "lax.scan(lambda c, x: ((0.5, c[1]), x), (x, 'name'), x)",
            "lax.scan(lambda c, x: c, x, x)",
            "lax.scan(lambda c, x: (c, x), {1, 2}, x)",
            "lax.scan(x, x, x)",
            "lax.cond(True, lambda: (x, 1), lambda: (x, 2))",
            "lax.switch(0, [lambda: 'a', lambda: 'b'])",
            "lax.cond(True, jnp.sin, jnp.cos, x, operand=x)",
            "from flax import nnx\nmodel = nnx.Linear(2, 2, rngs=nnx.Rngs(0))\n"
            "lax.scan(lambda c, x: (c, x), model, x)",
        ],
    ),
    (
        "Flax NNX",
        "[Which calls](nnx.md) are made by `flax.nnx.jit` is no error: `step.report()` tells.",
        [
            "import filterjit.nnx\nfilterjit.nnx.cached_partial(3, x)",
            "from flax import nnx\nclass Counter(nnx.Module):\n    def __init__(self): self.n = nnx.Variable(jnp.ones(2))\n"
            "@filter_jit\ndef count(counter):\n    counter.n[...] += 1\ncount(Counter())",
        ],
    ),
    (
        "Shardings",
        "[Many devices](sharding.md). `ProcessMismatchError` needs several processes: it tells which of "
        "them is about to run what, the path in the arguments at which the calls differ, and the first "
        "line in which the programs do.",
        [
            "filter_jit(f.__wrapped__, in_shardings={'y': P()}, mesh=mesh)(x)",
            "filter_jit(f.__wrapped__, in_shardings=(P(), P(), P()), mesh=mesh)(x)",
            "filter_jit(f.__wrapped__, in_shardings={'x': {'w': [P()]}}, mesh=mesh)({'w': {'a': x}})",
            "filter_jit(f.__wrapped__, in_shardings=P())(x)",
            "filter_jit(f.__wrapped__, in_shardings={'x': 'data'}, mesh=mesh)(x)",
            "filter_jit(f.__wrapped__, in_shardings={'x': P('model')}, mesh=mesh)(x)",
            "filter_jit(f.__wrapped__, in_shardings={'x': P('data')}, mesh=mesh)(jnp.ones(3))",
            "ShardingRules(3)",
            "fsdp(3)",
            "fsdp('data', min_size='1 MiB')",
            "ShardingRules({})",
            "ShardingRules({...: P(), '**.bias': P('data')})",
            "ShardingRules({'**.weight': 'data'})",
            "ShardingRules({'**.weight': lambda array, mesh: 'data'}).table(linear, mesh)",
            "ShardingRules({...: P()}).table(linear)",
            "ShardingRules({'**.wieght': P(), ...: P()}).table(linear, mesh)",
            "ShardingRules({'**': P(), '**.bias': P()}).table(linear, mesh)",
            "ShardingRules({'**.weight': P()}).table(linear, mesh)",
            "ShardingRules({...: P('data', 'data')}).table(linear.weight, mesh)",
            "place(x, 'data', mesh)",
            "place(jnp.ones(3), P('data'), mesh)",
            "place(x, P('data'))",
            "place(x, P('data'), 'data')",
        ],
    ),
]

# What needs more than such a program: the message as the source has it, and when it is raised.
ELSEWHERE: list[tuple[str, str]] = [
    (
        "process ... is about to run `...`, and other processes have not come to do the same in ... "
        "seconds: they run another program, or have failed, or are slow (FILTERJIT_PROCESSES_TIMEOUT).",
        "`ProcessMismatchError` of a function with `same_on_all_processes`; where the others are about to "
        "run another program, or their trace raises, it says so instead",
    ),
    (
        "it is the file of process ... of ..., and this is process ... of ...: each process loads the "
        "file that it has saved",
        "`load`, in several processes",
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
        "since it was written, .... Write it again; or pass check_sources=False, if you know that its "
        "program is the same",
        "`load`, where the source of one of your modules, or the version of a package that uses JAX, "
        "has changed",
    ),
    (
        "`...` is of format ...; filterjit ... reads format ....",
        "`load` of a file that another version of filterjit wrote",
    ),
    (
        "JAX loaded it from its persistent compilation cache, and XLA cannot serialize such an "
        "executable again. Set `jax_enable_compilation_cache` to False first, or pass portable=True",
        "`save`",
    ),
    (
        "`...` changed while it was flattened",
        "a call, where another thread, or a property of the object, changes an argument",
    ),
    (
        "filterjit cannot replace filter_jit in Equinox ..., whose internals it does not support; the "
        "program runs on Equinox's own. `filterjit.filter_jit` itself works.",
        "a warning of `install()`",
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
            yield class_name(type(e)), "\n".join([text, *(f"-> {n}" for n in notes_of(e))])
            return
    assert warned, f"raises nothing: {program}"
    for warning in warned:
        yield class_name(warning.category), str(warning.message)


def notes_of(e: BaseException) -> list[str]:
    return [note for note in getattr(e, "__notes__", []) if not note.startswith("-----")]


def class_name(cls: type) -> str:
    module = cls.__module__.partition(".")[0]
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"


def results() -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """Returns each section with rows of a program, a class, and a text."""
    begin = re.search(r"```python\n(.*?)```", HEAD, re.S)
    assert begin is not None
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for title, intro, programs in SECTIONS:
            rows = []
            for program in programs:
                os.chdir(tempfile.mkdtemp(dir=folder))
                names: dict[str, Any] = {"__name__": "__main__"}
                exec(compile(begin[1], "train.py", "exec"), names)
                for cls, text in messages(names, program):
                    rows.append((program, cls, text.replace(folder, "...")))
            found.append((title, intro, rows))
        os.chdir(ROOT)
    return found


def main() -> None:
    of_retraces = causes.section()
    lines = [HEAD]
    for title, intro, rows in results():
        lines += [
            f"## {title}\n",
            *([intro + "\n"] if intro else []),
            "| what is raised | by |",
            "|---|---|",
        ]
        for program, cls, text in rows:
            text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)
            # What CPython 3.14 says.
            text = re.sub(
                r"Stack overflow \(used \d+ kB\)", "maximum recursion depth exceeded", text
            )
            lines.append(f"| `{cls}`: {escape(text)} | {code(program)} |")
        lines.append("")
    lines += [
        of_retraces,
        "## With other machines, processes or versions\n",
        "| what is raised | when |",
        "|---|---|",
    ]
    lines += [f"| {escape(text)} | {when} |" for text, when in ELSEWHERE]
    sys.stdout.write("\n".join(lines).rstrip("\n") + "\n")


if __name__ == "__main__":
    main()
