"""How a program of the zoo is declared, and how it is run.

A program is a function of a configuration and an array, a function that makes the configuration,
functions that make others, and a change in place. It is traced, so its result may depend on all
that can be seen of the configuration::

    @program(lambda: Config(1), lambda: Config(True), change=lambda c: setattr(c, "n", 2))
    def frozen_dataclass(cfg, x):
        return x * jnp.asarray(cfg.n)

`run` jits it and calls it with one configuration after the other, each of them somewhere in an
argument (`PLACES`): as it is, in a static field, and so on. `oracle` computes what each call has to
return by a new `jax.jit` for each, with the configuration closed over, which cannot be wrong.
"""

import dataclasses
import functools
import itertools
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from flax.nnx import Variable

import filterjit
from support.comparison import Jit, Traces
from support.modules import Holder
from support.nodes import Custom, Point
from support.statics import Constant

X = jnp.array([1, 2, 3])

# Why a configuration that was changed in place, or another one, may be taken for the first.
IDENTITY = {"changed in place": "it is compared by identity"}
OWN_EQUALITY = {"changed in place": "its own `__eq__` and `__hash__` say that it is the same"}

# ---- declaring programs ----

Make = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    body: Callable[[Any, Any], Any]
    make: Make  # makes equal configurations
    others: tuple[Make, ...]  # each makes a configuration with another result
    change: Callable[[Any], object] | None  # in place
    places: tuple[str, ...]
    shares: Mapping[str, str]
    retraced: str


PROGRAMS: dict[str, Program] = {}
MISSING: list[str] = []  # libraries that are not installed


def program(
    make: Make,
    *others: Make,
    change: Callable[[Any], object] | None = None,
    places: tuple[str, ...] | None = None,
    shares: Mapping[str, str] = {},
    retraced: str = "",
) -> Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]:
    """Declares the decorated function as a program.

    `shares` names steps that may return what the first call returned, as in Equinox, with the
    reason: by which rule the two configurations are equal. `retraced` is the reason why a
    configuration that is made again is traced again, and not in Equinox.
    """

    def declare(body: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        name = body.__name__
        assert name not in PROGRAMS
        where = tuple(PLACES) if places is None else places
        PROGRAMS[name] = Program(name, body, make, others, change, where, shares, retraced)
        return body

    return declare


def needs(*libraries: str) -> Callable[[Callable[..., None]], None]:
    """Calls the decorated function, which declares programs, with these libraries if they are
    installed."""

    def declare(declare_programs: Callable[..., None]) -> None:
        try:
            found = [__import__(name) for name in libraries]
        except ImportError as e:
            MISSING.append(e.name or str(e))
        else:
            declare_programs(*found)

    return declare


def told(x: Any, *values: Any) -> Any:
    """Adds a number to `x` that is made of the ``repr`` of the values."""
    return x + zlib.crc32(repr(values).encode()) % 99_991


# ---- where a configuration stands in an argument ----

Place = tuple[Callable[[Any], Any], Callable[[Any], Any]]

# Each puts a configuration into an argument, and takes it out again.
PLACES: dict[str, Place] = {
    "argument": (lambda c: c, lambda arg: arg),
    "containers": (lambda c: {"a": [(c, 1)]}, lambda arg: arg["a"][0][0]),
    "Partial": (lambda c: jtu.Partial(told, c), lambda arg: arg.args[0]),
    "dataclass": (lambda c: Constant((c, 1)), lambda arg: arg.value[0]),
    "static field": (lambda c: Holder(None, c), lambda arg: arg.s),
    "containers in a static field": (
        lambda c: Holder(None, Point(1, [{"k": (c, 1)}])),
        lambda arg: arg.s.y[0]["k"][0],
    ),
    "dataclass in a static field": (
        lambda c: Holder(None, Constant(c)),
        lambda arg: arg.s.value,
    ),
    "Module in a static field": (lambda c: Holder(None, Holder(c)), lambda arg: arg.s.x),
    "aux data": (lambda c: Custom(None, label=c), lambda arg: arg.label),
    "metadata of a Variable": (lambda c: Variable._new(None, {"c": c}), lambda arg: arg.c),
}
# Where arrays and NumPy's scalars are static too.
STATIC = tuple(PLACES)[3:]
FIELDS = tuple(PLACES)[4:]


# ---- running programs ----


@dataclasses.dataclass(frozen=True)
class Call:
    """What a call did."""

    step: str
    result: Any  # something that compares with ``==``, or the exception
    traces: int  # of this call

    @property
    def failed(self) -> bool:
        return isinstance(self.result, Exception)


def exactly(result: Any) -> Any:
    """Returns all that can be seen of a result, as something that compares with ``==``."""
    leaves, structure = jtu.tree_flatten(result)
    arrays = [(str(x.dtype), x.shape, x.weak_type, np.asarray(x).tobytes()) for x in leaves]
    return arrays, str(structure)


def configurations(made: Program) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yields the steps of a run: a name, and a function from the first configuration, which lives
    as long as the run, to the one of the call."""
    yield "first", lambda first: first
    yield "made again", lambda first: made.make()
    for i, other in enumerate(made.others):
        yield f"other {i + 1}", lambda first, other=other: other()
    yield "first again", lambda first: first
    if made.change is not None:
        yield "changed in place", lambda first: (made.change(first), first)[1]  # type: ignore[misc]
    yield "made again at last", lambda first: made.make()


@functools.cache
def oracle(name: str) -> dict[str, Any]:
    """Returns what each step of a program has to return."""
    made = PROGRAMS[name]
    first, results = made.make(), {}
    for step, configuration in configurations(made):
        cfg = configuration(first)
        if step in ("made again", "first again", "made again at last"):
            results[step] = results["first"]
        else:
            # A new function for each call: jax.jit knows nothing of the configuration.
            results[step] = exactly(jax.jit(lambda x, cfg=cfg: made.body(cfg, x))(X))
    return results


def run(made: Program, place: str, jit: Jit, steps: int | None = None) -> list[Call]:
    """Calls a program, jitted, with one configuration after the other."""
    put, take = PLACES[place]
    traces = Traces()

    @jit
    def f(arg: Any, x: Any) -> Any:
        traces.tick()
        return made.body(take(arg), x)

    first = made.make()
    kept = None  # the same argument again: what is in it may have changed
    calls = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A JAX array is being set as static")
        for step, configuration in itertools.islice(configurations(made), steps):
            before = traces.count
            cfg = configuration(first)
            try:
                if cfg is not first:
                    result = exactly(f(put(cfg), X))
                else:
                    kept = put(cfg) if kept is None else kept
                    result = exactly(f(kept, X))
            except Exception as e:
                result = e.with_traceback(None)
            calls.append(Call(step, result, traces.count - before))
    return calls


def may_share(made: Program, call: Call) -> bool:
    return call.step in made.shares and call.result == oracle(made.name)["first"]


def problems(made: Program, place: str, ours: list[Call], equinox: list[Call]) -> list[str]:
    """Returns what is wrong with the calls of our jitted function, given those of Equinox's."""
    expected = oracle(made.name)
    if equinox[0].failed:
        # Equinox refuses the configuration: there is no such program.
        return [] if ours[0].failed else [f"accepted, Equinox raises {equinox[0].result!r}"]
    found = []
    for mine, theirs in itertools.zip_longest(ours, equinox):
        if mine.failed:
            if theirs is not None and theirs.failed:
                continue  # a configuration that Equinox refuses
            text = str(mine.result).split("\n")[0][:120]
            found.append(f"{mine.step}: refused: {type(mine.result).__name__}: {text}")
            if mine is ours[0]:
                return found
        elif mine.result != expected[mine.step] and not may_share(made, mine):
            stale = next((s for s, r in expected.items() if r == mine.result), "none")
            found.append(f"{mine.step}: wrong, the result of `{stale}`")
            if theirs is not None:
                found[-1] += ", as Equinox" if theirs.result == mine.result else "; Equinox right"
    again, theirs = ours[1], equinox[1]
    if made.retraced or again.failed or theirs.failed:
        return found
    if again.traces and not theirs.traces:
        found.append("made again: traced again, Equinox does not")
    return found


def check(made: Program, place: str) -> list[str]:
    """Runs a program on both, and returns what is wrong with ours."""
    ours = run(made, place, filterjit.filter_jit)
    # Equinox's first two calls tell whether it accepts the configuration, and how often it traces.
    found = problems(made, place, ours, run(made, place, eqx.filter_jit, 2))
    return found and problems(made, place, ours, run(made, place, eqx.filter_jit))


def summary(made: Program, calls: list[Call]) -> str:
    """Returns a word for each call: `right`, `wrong` or `error`, with the number of its traces."""
    expected = oracle(made.name)
    words = (
        "error" if c.failed else "right" if c.result == expected[c.step] else "wrong" for c in calls
    )
    return " ".join(f"{word}{'+' * c.traces}" for word, c in zip(words, calls, strict=True))
