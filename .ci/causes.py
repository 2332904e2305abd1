"""The table of docs/errors.md that shows what filterjit says about each cause of a retrace.

Each row is a program that `.ci/errors.py`, which prints the page, runs: its first call, then
``explain`` of its second one, then the second one itself, which must trace, compile or raise as
explained.
"""

import os
import re
import warnings
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax

import filterjit

HEAD = """## Causes of a retrace

What `f.explain(...)` says of the call in the second column, after that in the first. The programs
begin with

```python
import dataclasses, enum, functools, pathlib

import equinox as eqx
import filterjit
import filterjit.nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from filterjit import filter_jit

x = jnp.ones(2)


@filter_jit
def f(x, n=None):
    return x
```

and each is a file `train.py`. The first line of a text, which is the same in most rows, is left out:
`` `f`: compiles again because ``. Addresses are shortened.

"""

# The program up to the first call, and the second call.
CAUSES: list[tuple[str, str]] = [
    # ---- values
    ("f(x, 1)", "f(x, 2)"),
    ("f(x, 0.1)", "f(x, 0.2)"),
    ("f(x, True)", "f(x, False)"),
    ("f(x, 'sum')", "f(x, 'mean')"),
    ("f(x, pathlib.PurePosixPath('a.npy'))", "f(x, pathlib.PurePosixPath('b.npy'))"),
    ("class Mode(enum.Enum):\n    FAST = 1\n    EXACT = 2\nf(x, Mode.FAST)", "f(x, Mode.EXACT)"),
    ("f(x, jnp.float32)", "f(x, jnp.bfloat16)"),
    ("f(x, np.dtype('float32'))", "f(x, jnp.float32)"),
    ("f(x, (4, 8))", "f(x, (4, 16))"),
    (
        "@dataclasses.dataclass(frozen=True)\nclass Config:\n    size: int\nf(x, Config(1))",
        "f(x, Config(2))",
    ),
    (
        "class Layer(eqx.Module):\n    size: int = eqx.field(static=True)\nf(x, Layer(1))",
        "f(x, Layer(2))",
    ),
    ("f(x, eqx.nn.Dropout(0.5))", "f(x, eqx.nn.Dropout(0.5, inference=True))"),
    (
        "class Layer(eqx.Module):\n    sizes: list = eqx.field(static=True)\n"
        "layer = Layer([1])\nf(x, layer)\nlayer.sizes.append(2)",
        "f(x, layer)",
    ),
    # ---- functions and classes among the arguments
    ("f(x, jax.nn.relu)", "f(x, jax.nn.gelu)"),
    (
        "def logged(fun):\n    @functools.wraps(fun)\n    def wrapper(x):\n        return fun(x)\n"
        "    return wrapper\n@logged\ndef one(x): return x\n@logged\ndef two(x): return x\nf(x, one)",
        "f(x, two)",
    ),
    ("def make():\n    return lambda x: 2 * x\nf(x, make())", "f(x, make())"),
    ("def make(n):\n    return lambda x: n * x\nf(x, make(1))", "f(x, make(2))"),
    (
        "cell = 'def act(x): return x'\nexec(cell)\nf(x, act)\nexec(cell)  # the cell runs twice",
        "f(x, act)",
    ),
    (
        "exec('def act(x): return x')\nf(x, act)\nexec('def act(x): return 2 * x')  # edited",
        "f(x, act)",
    ),
    ("def act(x): return x\nf(x, act)", "f(x, jax.jit(act))"),
    ("def act(x): return x\nf(x, filter_jit(act))", "f(x, filter_jit(act, donate='all'))"),
    (
        "@filterjit.jit(static_argnames='n')\ndef f(x, n): return x\n"
        "def make(): return lambda x: 2 * x\nf(x, make())",
        "f(x, make())",
    ),
    (
        "@filterjit.jit(static_argnames='n')\ndef f(x, n): return n * x\nf(x, 1)",
        "f(x, 2)",
    ),
    (
        "def scale(x, by): return by * x\nf(x, functools.partial(scale, by=1))",
        "f(x, functools.partial(scale, by=2))",
    ),
    ("f(x, optax.sgd(0.1))", "f(x, optax.sgd(0.1))"),
    (
        "class Plain:\n    def method(self, x): return x\nf(x, Plain().method)",
        "f(x, Plain().method)",
    ),
    ("class Plain: pass\nf(x, Plain())", "f(x, Plain())"),
    (
        "class Batch:\n    def __init__(self): self.images = jnp.ones(2)\nf(x, Batch())",
        "f(x, Batch())",
    ),
    ("f(x, int)", "f(x, float)"),
    (
        "def make():\n    class Plain: pass\n    return Plain()\nf(x, make())",
        "f(x, make())",
    ),
    # ---- types and structures
    ("f(x, 1)", "f(x, 1.0)"),
    ("f(x, 1)", "f(x, True)"),
    ("f(x, 1.0)", "f(x, x)"),
    ("f(x, 'a')", "f(x, x)"),
    ("f(x, None)", "f(x, x)"),
    ("f(x)", "f(x, 2)"),
    ("f(x, (x, x))", "f(x, [x, x])"),
    ("f(x, [x])", "f(x, [x, x])"),
    ("f(x, np.ones(3))", "f(x, [1.0, 1.0, 1.0])"),
    ("f(x, {'a': x})", "f(x, {'a': x, 'b': x})"),
    ("f(x, {'a': x, 'b': x})", "f(x, {'b': x})"),
    (
        "key = jax.random.key(0)\nf(x, eqx.nn.Linear(2, 2, key=key))",
        "f(x, eqx.nn.MLP(2, 2, 4, 1, key=key))",
    ),
    (
        "def make():\n    class Model(eqx.Module):\n        weight: jax.Array\n    return Model(x)\n"
        "f(x, make())",
        "f(x, make())",
    ),
    (
        "key = jax.random.key(0)\nf(x, eqx.nn.MLP(2, 2, 4, depth=1, key=key))",
        "f(x, eqx.nn.MLP(2, 2, 4, depth=2, key=key))",
    ),
    (
        "key = jax.random.key(0)\nf(x, eqx.nn.MLP(2, 2, 4, depth=1, key=key))",
        "f(x, eqx.nn.MLP(2, 2, 8, depth=1, key=key))",
    ),
    # ---- arrays
    ("for n in (1, 4, 16):\n    f(jnp.ones((n, 2)))", "f(jnp.ones((7, 2)))"),
    ("f({'image': x})", "f({'image': x.astype(jnp.int8)})"),
    ("f(jnp.ones(()))", "f(jnp.asarray(1.0))"),
    ("f(x)", "f(jax.device_put(x, jax.devices()[1]))"),
    ("f(jax.device_put(x, jax.devices()[0]))", "f(np.ones(2, np.float32))"),
    (
        "mesh = jax.make_mesh((2,), ('data',))\nspec = jax.NamedSharding(mesh, jax.P('data'))\nf(x)",
        "f(jax.device_put(x, spec))",
    ),
    ("f = filter_jit(f, donate='all')\nf(x)", "f(x)"),
    ("f(x)\njax.config.update('jax_default_matmul_precision', 'highest')", "f(x)"),
    # ---- the function itself
    (
        "def make():\n    @filter_jit\n    def f(x): return x\n    return f\nfirst = make()\nfirst(x)\nf = make()",
        "f(x)",
    ),
    (
        "def make(n):\n    @filter_jit\n    def f(x): return n * x\n    return f\nfirst = make(1)\nfirst(x)\nf = make(2)",
        "f(x)",
    ),
    (
        "def step(x): return x\nfirst = filterjit.nnx.jit(step)\nfirst(x)\nf = filterjit.nnx.jit(step)",
        "f(x)",
    ),
    (
        "def model(): return eqx.nn.MLP(2, 2, 4, 1, activation=a, key=jax.random.key(0))\n"
        "a = jax.nn.relu\nfirst = filter_jit(model())\nfirst(x)\na = jax.nn.tanh\nf = filter_jit(model())",
        "f(x)",
    ),
    (
        "class Plain:\n    def method(self, x): return x\nfirst = filter_jit(Plain().method)\nfirst(x)\n"
        "f = filter_jit(Plain().method)",
        "f(x)",
    ),
    (
        "def step(x): return x\nfirst = filter_jit(step)\nfirst(x)\nf = filter_jit(step, donate='all')",
        "f(x)",
    ),
    ("f(x)\nf.clear_cache()", "f(x)"),
    (
        "f = filter_jit(lambda x, n: x, maxsize=2)\nfor n in (1, 2, 3):\n    f(x, n)",
        "f(x, 1)",
    ),
    (
        "f = filter_jit(lambda x, g: x, functions='structure')\nf(x, functools.partial(max, 1))",
        "f(x, functools.partial(max, 2))",
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


def code(text: str) -> str:
    return "<br>".join(
        "\u2003" * ((len(line) - len(line.lstrip())) // 4) + _in_cell(f"`{line.strip()}`")
        for line in text.splitlines()
    )


def escape(text: str) -> str:
    """Returns a text for a cell of a table."""
    lines = text.splitlines()
    text = "<br>".join(line.strip().replace("->", "\u2192") for line in lines)
    parts = re.split(r"(`[^`]*`|<br>)", text)
    return "".join(
        _in_cell(part) if i % 2 else re.sub(r"[<|]|__|\*\*", _entities, part)
        for i, part in enumerate(parts)
    )


def _in_cell(code: str) -> str:
    """Returns code in which no bar ends a cell: `\\|` stands for one on GitHub alone."""
    if "|" not in code:
        return code
    return f"<code>{re.sub('[<|]', _entities, code.strip('`'))}</code>"


def _entities(found: re.Match[str]) -> str:
    return "".join("&lt;" if c == "<" else f"&#{ord(c)};" for c in found[0])


def section() -> str:
    """Returns the section of the page."""
    # To filterjit, the programs are one file that defines `f` again and again.
    warnings.simplefilter("ignore", filterjit.RetraceWarning)
    rows = ["| | first | then | what is said |", "|--:|---|---|---|"]
    for i, (before, call) in enumerate(CAUSES, 1):
        said = say(before, call).removeprefix("`f`: compiles again because\n")
        rows.append(f"| {i} | {code(before)} | `{call}` | {escape(said)} |")
    return HEAD + "\n".join(rows) + "\n"
