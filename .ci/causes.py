"""The part of docs/errors.md that shows what filterjit says about each cause of a retrace.

`.ci/errors.py`, which prints the page, runs each program: its first call, then ``explain`` of its
second one, then the second one itself, which must trace, compile or raise as explained.
"""

import ast
import os
import re
import textwrap
import warnings
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax

import filterjit

HEAD = """## Causes of a retrace

In each example, the last line asks about a call; the lines before it are calls already made. Each
program is a file `train.py` that begins with

```python
import dataclasses, enum, functools, pathlib

import equinox as eqx
import filterjit
import jax
import jax.numpy as jnp
import numpy as np
import optax
from filterjit import filter_jit
from flax import nnx

x = jnp.ones(2)


@filter_jit
def f(x, n=None):
    return x
```

The first line, `` `f`: compiles again because ``, is left out.

"""

# The titles, the programs up to the first call, and the second calls.
CAUSES: list[tuple[str, str, str]] = [
    # ---- values
    ("A number", ("f(x, 1)"), "f(x, 2)"),
    ("A flag", ("f(x, True)"), "f(x, False)"),
    ("A string", ("f(x, 'sum')"), "f(x, 'mean')"),
    ("A path", ("f(x, pathlib.PurePosixPath('a.npy'))"), "f(x, pathlib.PurePosixPath('b.npy'))"),
    (
        "A member of an enum",
        ("class Mode(enum.Enum):\n    FAST = 1\n    EXACT = 2\nf(x, Mode.FAST)"),
        "f(x, Mode.EXACT)",
    ),
    ("A dtype", ("f(x, jnp.float32)"), "f(x, jnp.bfloat16)"),
    ("A dtype in another spelling", ("f(x, np.dtype('float32'))"), "f(x, jnp.float32)"),
    ("A number in a tuple", ("f(x, (4, 8))"), "f(x, (4, 16))"),
    (
        "A frozen dataclass",
        ("@dataclasses.dataclass(frozen=True)\nclass Config:\n    size: int\nf(x, Config(1))"),
        "f(x, Config(2))",
    ),
    (
        "A static field",
        ("class Layer(eqx.Module):\n    size: int = eqx.field(static=True)\nf(x, Layer(1))"),
        "f(x, Layer(2))",
    ),
    (
        "A static that was changed in place",
        (
            "class Layer(eqx.Module):\n"
            "    sizes: list = eqx.field(static=True)\n"
            "layer = Layer([1])\n"
            "f(x, layer)\n"
            "layer.sizes.append(2)"
        ),
        "f(x, layer)",
    ),
    ("Bytes", "f(x, b'sum')", "f(x, b'mean')"),
    (
        "A NumPy array in a static field",
        "class Layer(eqx.Module):\n    scale: np.ndarray = eqx.field(static=True)\n"
        "f(x, Layer(np.ones(1)))",
        "f(x, Layer(np.zeros(1)))",
    ),
    # ---- functions and classes among the arguments
    ("Another function", ("f(x, jax.nn.relu)"), "f(x, jax.nn.gelu)"),
    (
        "A function that is made again",
        ("def make():\n    return lambda x: 2 * x\nf(x, make())"),
        "f(x, make())",
    ),
    (
        "A closure over another value",
        ("def make(n):\n    return lambda x: n * x\nf(x, make(1))"),
        "f(x, make(2))",
    ),
    (
        "A cell that runs twice",
        ("cell = 'def act(x): return x'\nexec(cell)\nf(x, act)\nexec(cell)  # the cell runs twice"),
        "f(x, act)",
    ),
    (
        "A function that was edited",
        ("exec('def act(x): return x')\nf(x, act)\nexec('def act(x): return 2 * x')  # edited"),
        "f(x, act)",
    ),
    ("A function, jitted or not", ("def act(x): return x\nf(x, act)"), "f(x, jax.jit(act))"),
    (
        "A function that is made again, in `jit`",
        (
            "@filterjit.jit(static_argnames='n')\n"
            "def f(x, n): return x\n"
            "def make(): return lambda x: 2 * x\n"
            "f(x, make())"
        ),
        "f(x, make())",
    ),
    (
        "A static argument of `jit`",
        ("@filterjit.jit(static_argnames='n')\ndef f(x, n): return n * x\nf(x, 1)"),
        "f(x, 2)",
    ),
    (
        "A partial",
        ("def scale(x, by): return by * x\nf(x, functools.partial(scale, by=1))"),
        "f(x, functools.partial(scale, by=2))",
    ),
    ("An optimizer that is made again", ("f(x, optax.sgd(0.1))"), "f(x, optax.sgd(0.1))"),
    (
        "A bound method of a new instance",
        ("class Plain:\n    def method(self, x): return x\nf(x, Plain().method)"),
        "f(x, Plain().method)",
    ),
    ("An object that is made again", ("class Plain: pass\nf(x, Plain())"), "f(x, Plain())"),
    ("Another class as an argument", ("f(x, int)"), "f(x, float)"),
    ("An int and a float", ("f(x, 1)"), "f(x, 1.0)"),
    (
        'Global variables, with functions="structure"',
        "f = filter_jit(lambda x, g: x, functions='structure')\n"
        "cell, one, two = 'def act(x): return x', {}, {}\nexec(cell, one)\nexec(cell, two)\n"
        "f(x, one['act'])",
        "f(x, two['act'])",
    ),
    (
        'A partial, with functions="structure"',
        "f = filter_jit(lambda x, g: x, functions='structure')\nf(x, functools.partial(max, 1))",
        "f(x, functools.partial(max, 2))",
    ),
    (
        "A function that filterjit has jitted",
        "def act(x): return x\nf(x, filter_jit(act))",
        "f(x, filter_jit(act, donate='all'))",
    ),
    (
        'A closure over a list, with functions="structure"',
        "f = filter_jit(lambda x, g: x, functions='structure')\n"
        "def make(sizes): return lambda: sizes\nf(x, make([1]))",
        "f(x, make([1]))",
    ),
    # ---- types and structures
    ("A number and an array", ("f(x, 1.0)"), "f(x, x)"),
    ("None and an array", ("f(x, None)"), "f(x, x)"),
    ("An argument that is left out", ("f(x)"), "f(x, 2)"),
    ("A tuple and a list", ("f(x, (x, x))"), "f(x, [x, x])"),
    ("A longer list", ("f(x, [x])"), "f(x, [x, x])"),
    ("An array and a list", ("f(x, np.ones(3))"), "f(x, [1.0, 1.0, 1.0])"),
    ("Another key in a dict", ("f(x, {'a': x})"), "f(x, {'a': x, 'b': x})"),
    (
        "Another class of models",
        ("key = jax.random.key(0)\nf(x, eqx.nn.Linear(2, 2, key=key))"),
        "f(x, eqx.nn.MLP(2, 2, 4, 1, key=key))",
    ),
    (
        "A class that is made again",
        (
            "def make():\n"
            "    class Model(eqx.Module):\n"
            "        weight: jax.Array\n"
            "    return Model(x)\n"
            "f(x, make())"
        ),
        "f(x, make())",
    ),
    (
        "A model of another size",
        ("key = jax.random.key(0)\nf(x, eqx.nn.MLP(2, 2, 4, depth=1, key=key))"),
        "f(x, eqx.nn.MLP(2, 2, 8, depth=1, key=key))",
    ),
    ("A string, then an array", "f(x, 'a')", "f(x, x)"),
    ("A flag, then an array", "f(x, True)", "f(x, jnp.any(x > 0))"),
    (
        "An ordered dict",
        "import collections\nf(x, collections.OrderedDict(a=x, b=x))",
        "f(x, collections.OrderedDict(b=x, a=x))",
    ),
    (
        "A Module of Flax that is given twice",
        "@filterjit.nnx.jit\ndef f(a, b): return a.kernel[...]\n"
        "one, two = (nnx.Linear(2, 2, rngs=nnx.Rngs(0)) for _ in 'ab')\nf(one, two)",
        "f(one, one)",
    ),
    (
        "A Module of Flax with another attribute",
        "@filterjit.nnx.jit\ndef f(model): return model.kernel[...]\n"
        "model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))\nf(model)\nmodel.scale = nnx.Param(x)",
        "f(model)",
    ),
    # ---- arrays
    ("Another shape", ("for n in (1, 4, 16):\n    f(jnp.ones((n, 2)))"), "f(jnp.ones((7, 2)))"),
    ("Another dtype", ("f({'image': x})"), "f({'image': x.astype(jnp.int8)})"),
    ("A weak type", ("f(jnp.ones(()))"), "f(jnp.asarray(1.0))"),
    ("Another device", ("f(x)"), "f(jax.device_put(x, jax.devices()[1]))"),
    (
        "An array on a mesh",
        (
            "auto = jax.sharding.AxisType.Auto\n"
            "mesh = jax.make_mesh((2,), ('data',), axis_types=(auto,))\n"
            "spec = jax.NamedSharding(mesh, jax.P('data'))\n"
            "f(x)"
        ),
        "f(jax.device_put(x, spec))",
    ),
    (
        "Another spec on explicit axes",
        "mesh = jax.make_mesh((2,), ('data',), axis_types=(jax.sharding.AxisType.Explicit,))\n"
        "one, two = (jax.device_put(x, jax.NamedSharding(mesh, jax.P(axis))) for axis in ('data', None))\n"
        "f(one)",
        "f(two)",
    ),
    (
        "Another sharding",
        "auto = jax.sharding.AxisType.Auto\n"
        "mesh = jax.make_mesh((2,), ('data',), axis_types=(auto,))\n"
        "def put(spec): return jax.device_put(x, jax.NamedSharding(mesh, spec))\n"
        "f(put(jax.P('data')))",
        "f(put(jax.P()))",
    ),
    ("An array that was donated", ("f = filter_jit(f, donate='all')\nf(x)"), "f(x)"),
    (
        "JAX's configuration",
        ("f(x)\njax.config.update('jax_default_matmul_precision', 'highest')"),
        "f(x)",
    ),
    (
        "A function that is jitted again",
        (
            "def make():\n"
            "    @filter_jit\n"
            "    def f(x): return x\n"
            "    return f\n"
            "first = make()\n"
            "first(x)\n"
            "f = make()"
        ),
        "f(x)",
    ),
    ("Another number of dimensions", "f(x)", "f(jnp.ones((2, 2)))"),
    ("Weak dtypes", "f(jnp.asarray(1))", "f(jnp.asarray(1.0))"),
    ("Random keys", "f(jax.random.key(0))", "f(jax.random.key(0, impl='rbg'))"),
    # ---- the function itself
    (
        "Other options",
        (
            "def step(x): return x\n"
            "first = filter_jit(step)\n"
            "first(x)\n"
            "f = filter_jit(step, donate='all')"
        ),
        "f(x)",
    ),
    ("A cache that was cleared", ("f(x)\nf.clear_cache()"), "f(x)"),
    (
        "A full cache",
        ("f = filter_jit(lambda x, n: x, maxsize=2)\nfor n in (1, 2, 3):\n    f(x, n)"),
        "f(x, 1)",
    ),
]

compiled: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **kwargs: (
        compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
)


def say(before: str, call: str) -> str:
    """Returns what `explain` says of the last call of a program."""
    names: dict[str, Any] = {"__name__": "train"}
    begin = re.search(r"```python\n(.*?)```", HEAD, re.S)
    assert begin is not None
    exec(compile(begin[1], "begin.py", "exec"), names)
    exec(compile(before, "train.py", "exec"), names)
    said = str(eval(compile(call.replace("(", ".explain(", 1), "train.py", "eval"), names))
    compiled.clear()
    try:
        eval(compile(call, "train.py", "eval"), names)
    except (RuntimeError, ValueError) as e:
        assert "deleted" in str(e) and "raises an error" in said, said
    else:
        assert compiled, f"the call did not do as explained: {said}"
    jax.config.update("jax_default_matmul_precision", None)
    return re.sub(r"0x[0-9a-f]{6,}", "0x...", said)


def session(program: str) -> str:
    """Returns a program as a session with the interpreter shows it."""
    begins = {
        min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        for node in ast.parse(program).body
    }
    return "\n".join(
        (">>> " if number in begins else "... ") + line
        for number, line in enumerate(program.splitlines(), 1)
    )


def example(title: str, program: str, said: str) -> str:
    """Returns a section of the page."""
    return f"### {title}\n\n```pycon\n{session(program)}\n{said}\n```\n"


def section() -> str:
    """Returns the section of the page."""
    # To filterjit, the programs are one file that defines `f` again and again.
    warnings.simplefilter("ignore", filterjit.RetraceWarning)
    parts = []
    for title, before, call in CAUSES:
        said = re.sub("^`.*`: compiles again because\n", "", say(before, call))
        program = f"{before}\n{call.replace('(', '.explain(', 1)}"
        parts.append(example(title, program, textwrap.dedent(said)))
    return HEAD + "\n".join(parts)
