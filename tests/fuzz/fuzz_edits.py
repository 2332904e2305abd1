"""Programs that are edited, in a world that changes: ``python fuzz_edits.py SEED EDITS FOLDER``.

A program is three modules of random definitions, which call each other and read the world; the first
is installed. It is started until its entry in a program cache is proven. Then any constant, operator,
name, decorator, base or definition is edited, or a file, a variable of the environment, a global, what
a thread sets, the hashes of strings; some of it comes back later. Each start is compared with one
without the cache: its results are right, or it writes a StaleProgramError. Everything else is *silent*.

Processes are forked from workers that have imported JAX and have not started it, because importing
takes longer than all the rest; each worker has other hashes of strings. The last line on standard
output is a JSON object of counts.
"""

import ast
import atexit
import builtins
import copy
import decimal
import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

PER_PROGRAM = 20
WORKERS = 3
MODULES = "installed", "edited_a", "edited_b"
HEAD = """
import abc, collections, contextlib, contextvars, dataclasses, decimal, enum, functools, json, operator
import os, pathlib, sys, threading, typing
import equinox as eqx
import filterjit
import jax
import jax.numpy as jnp
import numpy as np
HERE = pathlib.Path(__file__).parent
LOCAL = threading.local()
CONTEXT = contextvars.ContextVar("n", default=1.0)
SET = THREAD = AROUND = 1.0
"""
# What pieces read of the world, by the word for it in them.
WORLD = {
    "FUZZ_N": "variable",
    "FUZZ_NAME": "variable that is a name",
    "n.json": "file",
    "builtin_n": "builtin",
    "SET": "global",
    "THREAD": "global that a thread sets",
    "AROUND": "global around the call",
    "LOCAL": "local of the thread",
    "CONTEXT": "context variable",
    "rand": "seed",
    "decimal": "precision",
}

# Each defines ``P(x)``, from a number N, another number M, and an expression E of ``x``.
PIECES = [
    "def P(x):\n    return E * N + M",
    "def P(x, n=N, *, m=M):\n    return E * n + m",
    "def P(x, many=([N], {'m': M}), w=np.array([N, M])):\n"
    "    return E * many[0][0] + many[1]['m'] * w[1]",
    "def P_make(n, m):\n    def inner(x):\n        return E * n + m\n    return inner\nP = P_make(N, M)",
    "def P_times(n):\n    def decorate(f):\n        @functools.wraps(f)\n        def wrapper(x):\n"
    "            return f(x) * n\n        return wrapper\n    return decorate\n"
    "@P_times(N)\ndef P(x):\n    return E + M",
    "P = functools.partial(lambda x, n, m: E * n + m, n=N, m=M)",
    "P_N = N\nP_M = M\ndef P(x):\n    return E * P_N + P_M",
    "P_T = {'a': [N, M], 'b': (M,)}\ndef P(x):\n    return E * P_T['a'][0] + P_T['b'][0]",
    "P_W = np.array([N, M], np.float32)\nP_V = jnp.array([M, N])\ndef P(x):\n"
    "    return E * P_W[0] + P_V[0]",
    "class P_C:\n    n = N\n    m: typing.ClassVar[float] = M\ndef P(x):\n    c = P_C\n"
    "    return E * c.n + c().m",
    "class P_C:\n    class D:\n        n = N\n    fs = [lambda x: E + M]\ndef P(x):\n"
    "    return (d := P_C.D).n * P_C.fs[0](x)",
    "class P_C:\n    @staticmethod\n    def f(x):\n        return E * N\n    @classmethod\n"
    "    def g(cls, x):\n        return cls.f(x) + M\ndef P(x):\n    return P_C.g(x)",
    "class P_C:\n    @property\n    def n(self):\n        return self._n + N\n    @n.setter\n"
    "    def n(self, value):\n        self._n = value * M\ndef P(x):\n    c = P_C()\n    c.n = 1.0\n"
    "    return E * c.n",
    "class P_C:\n    @functools.cached_property\n    def n(self):\n        return N\n"
    "    @functools.lru_cache\n    def m(self, k):\n        return M * k\ndef P(x):\n    c = P_C()\n"
    "    return E * c.n + c.m(1.0)",
    "class P_C:\n    def f(self, x, n):\n        return E * n\n"
    "    g = functools.partialmethod(f, n=N)\ndef P(x):\n    return P_C().g(x) + M",
    "class P_M(type):\n    def f(cls, x):\n        return E * N + cls.m\n"
    "class P_C(metaclass=P_M):\n    m = M\ndef P(x):\n    return P_C.f(x)",
    "class P_B:\n    n = N\n    def f(self, x):\n        return E * self.n\nclass P_C(P_B):\n"
    "    def f(self, x):\n        return super().f(x) + M\ndef P(x):\n    return P_C().f(x)",
    "class P_B:\n    n = 1.0\n    def f(self, x):\n        return E + M\nclass P_C(P_B):\n"
    "    n = N\n    def f(self, x):\n        return E * 2.0\ndef P(x):\n"
    "    return P_C().f(x) * P_C.n",
    "@dataclasses.dataclass(frozen=True)\nclass P_C:\n    n: float = N\n"
    "    m: list = dataclasses.field(default_factory=lambda: [M])\ndef P(x):\n    c = P_C()\n"
    "    return E * c.n + c.m[0]",
    "class P_C(eqx.Module):\n    w: typing.Any\n    n: float = eqx.field(static=True, default=N)\n"
    "    def __call__(self, x):\n        return E * self.n + self.w\ndef P(x):\n"
    "    return P_C(M)(x)",
    "def P(x):\n    return E * P.n + P.m\nP.n, P.m = N, M",
    "P = jax.jit(lambda x: E * N + M)",
    "@functools.partial(jax.jit, static_argnums=1)\ndef P_f(x, n):\n    return E * n + M\n"
    "def P(x):\n    return P_f(x, N)",
    "@jax.custom_jvp\ndef P_f(x):\n    return E * N\n@P_f.defjvp\ndef P_g(xs, ts):\n"
    "    return P_f(*xs), ts[0] * M\ndef P(x):\n    return jax.grad(lambda y: P_f(y).sum())(x)",
    "@jax.custom_vjp\ndef P_f(x):\n    return E * N\ndef P_b(r, g):\n    return (g * M,)\n"
    "P_f.defvjp(lambda x: (P_f(x), None), P_b)\ndef P(x):\n"
    "    return jax.grad(lambda y: P_f(y).sum())(x) + P_f(x)",
    "P = eqx.filter_jit(lambda x: E * N + M)",
    "P = filterjit.filter_jit(lambda x: E * N + M)",
    "P_T = [N, M]\ndef P(x):\n    return sum([E * n for n in P_T])",
    "class P_C(enum.Enum):\n    A = N\n    B = M\ndef P(x):\n    return E * P_C.A.value + P_C['B'].value",
    "class P_C(typing.NamedTuple):\n    n: float = N\n    m: float = M\ndef P(x):\n"
    "    return E * P_C().n + P_C(1.0)[1]",
    "P_NAME = 'a'\nclass P_C:\n    a = N\n    b = M\ndef P(x):\n"
    "    return E * getattr(P_C, P_NAME) + vars(P_C)['b']",
    "def P(x):\n    def body(carry, _):\n        return carry * N + M, None\n"
    "    return jax.lax.scan(body, E, None, length=2)[0]",
    "def P(x, n=2):\n    return E + M if n == 0 else P(x, n - 1) * N",
    "class P_C:\n    def __init__(self, n):\n        self.n = n\n    def __call__(self, x):\n"
    "        return E * self.n + M\nP = P_C(N)",
    "class P_D:\n    def __get__(self, x, cls):\n        return N\nclass P_C:\n    n = P_D()\n"
    "    def __getattr__(self, name):\n        return M\ndef P(x):\n"
    "    return E * P_C().n + P_C().other",
    "class P_C:\n    def __rmul__(self, x):\n        return x * N\n    __radd__ = lambda self, x: x + M\n"
    "    __array_priority__ = 1000\ndef P(x):\n    return P_C.__rmul__(P_C(), E) + P_C().__radd__(1.0)",
    "class P_B:\n    def __init_subclass__(cls, n=1.0):\n        cls.n = n\nclass P_C(P_B, n=N):\n"
    "    pass\ndef P(x):\n    return E * P_C.n + M",
    "@contextlib.contextmanager\ndef P_c():\n    yield N\ndef P(x):\n    with P_c() as n:\n"
    "        return E * n + M",
    "def P_g():\n    yield N\n    yield M\ndef P(x):\n    return E * sum(P_g())",
    "P_F = {'relu': jax.nn.relu, 'tanh': jnp.tanh, 'f': lambda x: E * N}\nP_KEY = 'f'\ndef P(x):\n"
    "    return P_F[P_KEY](x) + P_F['tanh'](x) * M",
    "P_t = collections.namedtuple('P_t', 'n m', defaults=(N, M))\ndef P(x):\n"
    "    return E * P_t().n + P_t().m",
    "P_f = functools.reduce(lambda f, n: (lambda x: f(x) * n), [N, M], lambda x: E)\ndef P(x):\n"
    "    return P_f(x)",
    "P_l = eqx.nn.Lambda(lambda x: E * N)\nP_s = eqx.nn.Sequential([P_l, eqx.nn.Lambda(jnp.tanh)])\n"
    "def P(x):\n    return P_s(x) + M",
    "class P_C(abc.ABC):\n    @property\n    @abc.abstractmethod\n    def n(self): ...\n"
    "class P_D(P_C):\n    n = N\ndef P(x):\n    return E * P_D().n + M",
    "P_a = operator.attrgetter('n')\nclass P_C:\n    n = N\n    m = M\ndef P(x):\n"
    "    return E * P_a(P_C) + operator.attrgetter('m')(P_C)",
    "def P(x):\n    import edited_a\n    from edited_a import FIRST as first\n"
    "    return E * edited_a.SECOND * N + first * M",
    "def P(x):\n    try:\n        return E * {'n': N}['m']\n    except KeyError:\n        return E * M + N",
    "def P(x):\n    return E * float(os.environ['FUZZ_N']) + M",
    "class P_C:\n    n = float(os.environ['FUZZ_N'])\ndef P(x):\n    return E * P_C.n + M",
    "def P(x):\n    return E * globals()[os.environ['FUZZ_NAME']] + M",
    "def P(x):\n    return E * json.loads((HERE / 'n.json').read_text()) + M",
    "with open(HERE / 'n.json') as P_file:\n    P_n = json.load(P_file)\ndef P(x):\n    return E * P_n",
    "P_load = functools.partial(np.fromfile, HERE / 'n.json', sep=' ')\ndef P(x):\n"
    "    return E * P_load()[0] + M",
    "def P(x):\n    return E * builtin_n + M",
    "P_T = {'n': lambda: SET}\ndef P(x):\n    return E * P_T['n']() + M",
    "class P_C:\n    @property\n    def n(self):\n        return THREAD\ndef P(x):\n"
    "    return E * P_C().n + M",
    "def P(x):\n    return E * AROUND + M",
    "def P(x):\n    return E * LOCAL.n + M",
    "def P(x):\n    return E * CONTEXT.get() + M",
    "def P(x):\n    return E * np.random.rand() + M",
    "def P(x):\n    return E * float(1 / decimal.Decimal(3)) + M",
    "P_S = {'a', 'bb', 'ccc', 'dddd', 'eeeee'}\ndef P(x):\n"
    "    return E * sum(i * len(s) for i, s in enumerate(P_S)) + M",
]  # fmt: skip


def program(rng: random.Random) -> dict[str, str]:
    """Returns the sources of the modules, each of which uses those before it."""
    sources: dict[str, str] = {}
    names: list[tuple[str, str]] = []
    for module in MODULES:
        lines = [HEAD, f"FIRST = {_number(rng)}", f"SECOND = {_number(rng)}"]
        lines += [f"import {other}" for other in sources]
        usable = []
        for other, name in names:
            imported = rng.random() < 0.5
            lines += [f"from {other} import {name}"] * imported
            usable.append(name if imported else f"{other}.{name}")
        own = [f"p{module[-1]}{i}" for i in range(rng.randint(2, 5))]
        for name in own:
            of = rng.choice(usable) if usable and rng.random() < 0.7 else None
            text = rng.choice(PIECES)
            if module != "edited_b" and "edited_a" in text:
                text = PIECES[0]
            lines.append(_filled(text, name, "x" if of is None else f"{of}(x)", rng))
            usable.append(name)
        sources[module] = "\n".join(lines) + "\n"
        names += [(module, name) for name in own]
    body = " + ".join(f"sys.modules[{module!r}].{name}(x)" for module, name in names)
    sources["edited_b"] += f"def everything(x):\n    return {body}\n"
    return sources


def _number(rng: random.Random) -> str:
    return repr(rng.choice([rng.randint(2, 9), rng.randint(1, 40) / 8]))


def _filled(text: str, name: str, inner: str, rng: random.Random) -> str:
    text = re.sub(r"\bP(?=_|\b)", name, text)
    text = re.sub(r"\b[NM]\b", lambda _: _number(rng), text)
    return re.sub(r"\bE\b", inner, text)


# ---- edits ----


class State:
    """What a program is at a moment: its sources, its world, and the worker that starts it."""

    def __init__(self, rng: random.Random) -> None:
        self.sources = program(rng)
        self.world = {word: rng.randint(2, 9) for word in WORLD}
        self.worker = rng.randrange(WORKERS)

    def edited(self, rng: random.Random) -> tuple[str, "State"]:
        """Returns the kind of an edit, and the program after it."""
        new, text = copy.deepcopy(self), "".join(self.sources.values())
        read = [word for word in WORLD if text.count(word) > len(MODULES) * HEAD.count(word)]
        chance = rng.random()
        if chance < 0.1:
            new.worker = rng.choice([n for n in range(WORKERS) if n != self.worker])
            return "hashes of strings", new
        if read and chance < 0.4:
            word = rng.choice(read)
            new.world[word] += rng.randint(1, 5)
            return WORLD[word], new
        module = rng.choice(MODULES)
        kind, new.sources[module] = _edited(self.sources[module], rng)
        return kind + (", installed" if module == "installed" else ""), new

    def write(self, folder: Path) -> None:
        (folder / "site-packages").mkdir(parents=True, exist_ok=True)
        (folder / "world.json").write_text(json.dumps(self.world))
        for module, source in self.sources.items():
            at = folder / "site-packages" if module == "installed" else folder
            (at / f"{module}.py").write_text(source)
            (at / "n.json").write_text(str(self.world["n.json"]))


_LISTS = "decorator_list", "bases", "elts", "keywords", "body"


def _edited(source: str, rng: random.Random) -> tuple[str, str]:
    while True:
        kind = _edit(tree := ast.parse(source), rng)
        text = ast.unparse(ast.fix_missing_locations(tree))
        if kind is not None and text != ast.unparse(ast.parse(source)):
            return kind, text + "\n"


def _edit(tree: ast.Module, rng: random.Random) -> str | None:
    """Edits a random place. Returns the kind of the edit, or None where there is no such place."""
    kind = rng.choice(["number", "type of a number", "operator", "result", "new member",
                       *("exchange", "drop", "order") * 3])  # fmt: skip
    nodes: list[Any] = list(ast.walk(tree))
    rng.shuffle(nodes)
    for node in nodes:
        match kind, node:
            case "number", ast.Constant(int() | float() as n):
                node.value = rng.choice([n + 1, n * 2, -n - 1])
            case "type of a number", ast.Constant(int() | float() as n):
                node.value = int(n) if type(n) is float else float(n)
            case "operator", ast.BinOp():
                node.op = rng.choice([ast.Add(), ast.Sub(), ast.Mult()])
            case "result", ast.Return(ast.expr() as value):
                node.value = ast.BinOp(value, ast.Add(), ast.Constant(rng.randint(1, 5)))
            case "new member", ast.ClassDef():
                name = rng.choice(["n", "m", "a", "b", "other", "f"])
                node.body.append(ast.parse(f"{name} = {_number(rng)}").body[0])
            case "exchange", ast.Name(ctx=ast.Load()) | ast.Call() | ast.Constant() | ast.Lambda():
                alike = [n for n in nodes if type(n) is type(node)]
                vars(node).update(copy.deepcopy(vars(rng.choice(alike))))
                return f"exchange of a {type(node).__name__}"
            case "drop" | "order", _:
                for field in rng.sample(_LISTS, len(_LISTS)):
                    items = getattr(node, field, ())
                    if node is tree or not isinstance(items, list) or not items[field == "body" :]:
                        continue
                    rng.shuffle(items) if kind == "order" else items.pop(rng.randrange(len(items)))
                    return f"{kind} in {field}"
                continue
            case _:
                continue
        return kind
    return None


# ---- a start, in a process that a worker forks ----

X = np.arange(1.0, 3.0, dtype=np.float32)
_traced_by: list[threading.Thread] = []


def _call(f: Any, x: Any) -> Any:
    _traced_by.append(threading.current_thread())
    return f(x)


def _start(folder: Path, cache: str | None, calls: int, found: Path) -> None:
    """Imports the program, makes its world and calls it. Writes what the calls return."""
    import jax

    import filterjit

    world = json.loads((folder / "world.json").read_text())
    os.environ |= {
        "FUZZ_N": str(world["FUZZ_N"]),
        "FUZZ_NAME": ("FIRST", "SECOND")[world["FUZZ_NAME"] % 2],
    }
    builtins.builtin_n = world["builtin_n"]  # type: ignore[attr-defined]
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(folder), str(folder / "site-packages")]
    if cache:
        filterjit.program_cache(cache)
    __import__("edited_b")
    modules = [sys.modules[name] for name in MODULES]

    def everywhere(name: str, value: float) -> None:
        for module in modules:
            setattr(module, name, value)

    everywhere("SET", world["SET"])
    thread = threading.Thread(target=everywhere, args=("THREAD", world["THREAD"]))
    thread.start()
    thread.join()
    for module in modules:
        module.LOCAL.n = world["LOCAL"]
        module.CONTEXT.set(world["CONTEXT"])
    np.random.seed(world["rand"])
    decimal.getcontext().prec = world["decimal"]
    f = filterjit.filter_jit(_call) if cache else jax.jit(_call, static_argnums=0)
    results = []
    for number in range(calls):
        time.sleep(0.02 * bool(number and cache))  # meanwhile, a proof may end
        everywhere("AROUND", world["AROUND"])
        y = np.asarray(f(modules[-1].everything, X))
        everywhere("AROUND", 1.0)
        at_once = threading.main_thread() not in _traced_by
        results.append(f"{y.dtype} {y.tolist()}")
        found.write_text(json.dumps([results, at_once]))


def _forked(folder: Path, cache: str | None, calls: int, found: Path) -> int:
    """Starts the program in another process, which ends as Python does. Returns its number."""
    found.unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child:
        return child
    status = 1
    signal.alarm(100)
    os.dup2(os.open(f"{found}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    try:
        _start(folder, cache, calls, found)
        status = 0
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(status)


def _outcome(child: int, found: Path) -> dict[str, Any]:
    _, status = os.waitpid(child, 0)
    results, at_once = json.loads(found.read_text()) if found.exists() else ([], False)
    said = Path(f"{found}.err").read_text(errors="replace")
    return {"status": status, "results": results, "at_once": at_once, "said": said[-2000:]}


def worker() -> None:
    """Starts the programs that standard input names, each with a cache and without."""
    import equinox  # noqa: F401  (before the fork, because importing it takes long)
    import jax  # noqa: F401

    import filterjit

    del os.environ["PYTHONHASHSEED"]  # as where each process has another one
    filterjit.filter_jit(_call), filterjit.program_cache  # imported before the fork, too
    gc.freeze()
    for line in sys.stdin:
        folder, calls = json.loads(line)
        places = Path(folder, "cached"), Path(folder, "plain")
        caches = str(Path(folder, "cache")), None
        children = [_forked(Path(folder), c, calls, p) for c, p in zip(caches, places, strict=True)]
        outcomes = [_outcome(child, p) for child, p in zip(children, places, strict=True)]
        print(json.dumps(outcomes), flush=True)


# ---- the fuzzer ----


def verdict(cached: dict[str, Any], plain: dict[str, Any]) -> str:
    results, loud = cached["results"], "StaleProgramError" in cached["said"]
    if results != plain["results"][: len(results)]:
        return "loud" if loud else "silent"
    if loud:
        return "alarmed"
    if plain["status"]:
        return "raised"
    if cached["status"] or len(results) < len(plain["results"]):
        return "failed"
    return "right at once" if cached["at_once"] else "right"


def run(seed: int, edits: int, folder: Path) -> dict[str, Counter[str]]:
    """Returns the verdicts on edits, by their kind."""
    counts, done = defaultdict[str, Counter[str]](Counter), 0
    workers = [
        subprocess.Popen(
            [sys.executable, __file__], env=os.environ | {"PYTHONHASHSEED": str(n + 1)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for n in range(WORKERS)
    ]  # fmt: skip

    def start(kind: str, state: State) -> str:
        state.write(at)
        worker = workers[state.worker]
        assert worker.stdin is not None and worker.stdout is not None
        print(json.dumps([str(at), rng.choice([1, 1, 4])]), file=worker.stdin, flush=True)
        cached, plain = json.loads(worker.stdout.readline())
        found = verdict(cached, plain)
        counts[kind][found] += 1
        if found in ("silent", "failed"):
            what = f"{at}, worker {state.worker}, {kind}: {found}"
            print(f"{what}\n{cached}\nand not\n{plain['results']}", flush=True)
        return found

    while done < edits:
        rng, at = random.Random(seed), folder / f"program{seed}"
        seed += 1
        now = State(rng)
        if "raised" in [start("none", now) for _ in range(3)]:
            continue
        states = [now]
        for _ in range(min(PER_PROGRAM, edits - done)):
            done += 1
            back = rng.random() < 0.2
            kind, new = ("back", rng.choice(states)) if back else now.edited(rng)
            if start(kind, new) != "raised":
                now = new
                states.append(new)
                for _ in range(rng.choice([0, 0, 1, 2])):
                    start("none", new)
        if sys.stderr.isatty():
            print(f"\r\x1b[K{done:,} of {edits:,} edits", end="", file=sys.stderr)
    for worker in workers:
        worker.communicate()
    return counts


def main() -> int:
    seed, edits, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    counts = run(seed, edits, folder)
    verdicts = "right at once", "right", "loud", "alarmed", "raised", "failed", "silent"
    print(f"\n{'':36}" + "".join(f"{v:>15}" for v in verdicts))
    total: Counter[str] = sum((c for kind, c in counts.items() if kind != "none"), Counter())
    for kind, found in [*sorted(counts.items()), ("all edits", total)]:
        print(f"{kind:36}" + "".join(f"{found[v]:15,}" for v in verdicts))
    print(json.dumps(total))
    return 1 if any(c["silent"] or c["failed"] for c in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main() if sys.argv[1:] else worker())
