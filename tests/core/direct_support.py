"""A stand-in for JAX, as direct calls (``_core.Direct``) see it: arrays, programs, configuration.

It keeps what JAX promises: avals are interned, what an array is never changes, and a program does
not check its arguments.  A program here does look, and notes in `Backend.wrong` if it was run with
arrays that it was not compiled for.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from core_support import core


class Aval:
    """A shape and dtype.  Those with a comma have several dimensions, so they have layouts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.has_layouts = "," in name

    def __repr__(self) -> str:
        return self.name


_AVALS: dict[str, Aval] = {}


def aval(name: str) -> Aval:
    return _AVALS.setdefault(name, Aval(name))


class Named:
    """Is equal to others of its class and name.  A comparison calls `on_eq` of both sides."""

    def __init__(self, name: str, on_eq: Callable[[], Any] | None = None) -> None:
        self.name, self.on_eq = name, on_eq

    def __eq__(self, other: object) -> bool:
        for side in (self, other):
            if isinstance(side, Named) and side.on_eq is not None:
                side.on_eq()
        return type(self) is type(other) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class Sharding(Named):
    pass


class OtherSharding(Named):
    """Says that it equals a Sharding, as no sharding of JAX's does."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = Named.__hash__


class Layout(Named):
    pass


ONE, TWO = Sharding("one"), Sharding("two")
_SHARDINGS = {(Sharding, x.name): x for x in (ONE, TWO)}
ROWS, COLUMNS = Layout("rows"), Layout("columns")


class DeletedError(RuntimeError):
    pass


class DirectArray:
    """An array of JAX's: what it is never changes, except that it may be deleted."""

    __slots__ = ("__weakref__", "_layout", "aval", "committed", "deleted", "sharding", "value")

    def __init__(
        self,
        value: Any = 0,
        name: str = "f32[3]",
        sharding: Any = ONE,
        committed: bool = True,
        layout: Any = ROWS,
    ) -> None:
        self.value, self.deleted = value, False
        self.aval, self.sharding, self.committed = aval(name), sharding, committed
        self._layout = layout

    @property
    def layout(self) -> Any:
        if self.deleted:
            raise DeletedError("a deleted array has no layout")
        return self._layout

    def delete(self) -> None:
        self.deleted = True

    @property
    def key(self) -> Any:
        """What ``jax.jit`` knows of it, in its key of a call."""
        layout = self._layout.name if self.aval.has_layouts else None  # else there is only one
        return self.aval.name, (type(self.sharding), self.sharding.name), self.committed, layout


class DirectKeys:
    """Typed random keys of JAX's, which wrap an array."""

    __slots__ = ("__weakref__", "data", "impl")

    def __init__(self, data: DirectArray, impl: Any = "threefry") -> None:
        self.data, self.impl = data, impl


class DirectHost:
    """An array of NumPy's: what it is may be changed in place."""

    def __init__(self, value: Any = 0, dtype: Any = "f32", shape: Any = (3,)) -> None:
        self.value, self.dtype, self.shape = value, dtype, shape

    def copy(self) -> DirectHost:
        return type(self)(self.value, self.dtype, self.shape)


class DirectScalar(DirectHost):
    """A scalar of NumPy's: its type is a subclass."""


def is_host(x: Any) -> bool:
    return isinstance(x, DirectHost) or type(x) in (int, float, bool, complex)


def aval_of(x: Any) -> Aval:
    if not is_host(x):
        return x.aval  # type: ignore[no-any-return]
    dtype, shape = getattr(x, "dtype", type(x).__name__), getattr(x, "shape", ())
    return aval(f"{dtype}{list(shape)}")


class SubArray(DirectArray):
    """Is no array of JAX's, as a tracer is not."""

    __slots__ = ()


class Program:
    """What ``jax.jit`` compiles for one key.

    Result `j` is like argument `j`, and its value tells from what it was computed.
    """

    def __init__(self, backend: Backend, key: Any, trace: int, reads: Sequence[bool]) -> None:
        self.backend, self.key, self.trace, self.reads = backend, key, trace, reads
        self.constants: tuple[Any, ...] = ()
        self.runs = 0
        self.fails: Exception | None = None
        self.made: Callable[[int, int], DirectArray] | None = None  # makes result `j`
        self.handlers = [Handler(self, j) for j in range(len(key[1]))]

    def read(self, arrays: Sequence[Any]) -> list[Any]:
        return [x for x, is_read in zip(arrays, self.reads, strict=True) if is_read]

    def values(self, arrays: Sequence[Any]) -> int:
        """What is computed from the arrays that are read."""
        return hash((self.trace, *(getattr(x, "value", x) for x in arrays)))

    def compute(self, arrays: Sequence[Any]) -> list[DirectArray]:
        """The results for all arguments, without a direct call."""
        raw = self.values([*self.constants, *self.read(arrays)])
        return [handler(raw) for handler in self.handlers]

    def execute(self, inputs: Any) -> int:
        self.runs += 1
        if self.fails is not None:
            raise self.fails
        count = len(self.constants)
        read = self.read(self.key[1])
        if type(inputs) is not tuple or len(inputs) != count + len(read):
            self.backend.wrong.append(("number of inputs", inputs))
        for x, constant in zip(inputs, self.constants, strict=False):
            if x is not constant:
                self.backend.wrong.append(("constant", x))
        for x, key in zip(inputs[count:], read, strict=True):
            if type(x) is not DirectArray or x.key != key:
                self.backend.wrong.append(("input", x, key))
            elif x.deleted:
                raise DeletedError("an array is deleted")
        if self.backend.key()[0] != self.key[0]:
            self.backend.wrong.append(("configuration", self.backend.key()[0], self.key[0]))
        return self.values(inputs)


class Handler:
    """Makes an array of a result of a program."""

    def __init__(self, program: Program, j: int) -> None:
        self.program, self.j = program, j

    def __call__(self, raw: int) -> DirectArray:
        if self.program.made is not None:
            return self.program.made(raw, self.j)
        name, (kind, sharding), committed, layout = self.program.key[1][self.j]
        made = _SHARDINGS.get((kind, sharding)) or kind(sharding)
        laid = COLUMNS if layout == "columns" else ROWS if layout in ("rows", None) else layout
        return DirectArray(raw + self.j, name, made, committed, laid)


class DirectJit:
    """``jax.jit`` of a function: it compiles one Program for each key.

    `reads` says which arguments a program reads.
    """

    def __init__(self, backend: Backend, reads: Callable[[int], bool] = lambda i: True) -> None:
        self.backend, self.reads = backend, reads
        self.programs: dict[Any, Program] = {}
        self.traces = itertools.count()
        self.calls = 0

    def program(self, arrays: Sequence[Any]) -> Program:
        key = self.backend.key(arrays)
        if key not in self.programs:
            reads = [self.reads(i) for i in range(len(arrays))]
            made = Program(self.backend, key, next(self.traces), reads)
            self.programs.setdefault(key, made)  # another thread may have compiled it meanwhile
        return self.programs[key]

    def __call__(self, *arrays: Any, **kwargs: Any) -> Any:
        self.calls += 1
        arrays = (*arrays, *kwargs.values())
        program = self.program(arrays)
        if any(getattr(x, "deleted", False) for x in program.read(arrays)):
            raise DeletedError("an array is deleted")
        return core.output_unflatten(program.trace, program.compute(arrays))


def new_plan(execute: Any, flags: bytes, **parts: Any) -> dict[str, Any]:
    """A plan of a program without results."""
    rest = {"handlers": [], "constants": (), "trace": 0, "checks_deleted": False, "puts": ()}
    return {"execute": execute, "flags": flags, **rest, **parts}


class Backend:
    """JAX: its configuration, and what a DirectContext is given.

    `parts` has the functions of the context by name; each may be replaced.
    """

    def __init__(self, after: int = 0) -> None:
        self.configuration: Any = (True, "highest", None)
        self.settings = SimpleNamespace(value="clean"), SimpleNamespace(value=None)
        self.is_disabled = self.is_profiled = False
        self.collected = 0
        self.plans = 0
        self.checks_deleted = False
        self.wrong: list[Any] = []
        self.parts: dict[str, Callable[..., Any]] = {
            **{
                f"get_{n}": operator.attrgetter(n)
                for n in ("aval", "sharding", "committed", "layout")
            },
            "is_deleted": operator.attrgetter("deleted"),
            **{f"get_{n}": operator.attrgetter(n) for n in ("data", "impl")},
            "put": self.put,
            "configuration": lambda: self.configuration,
            "get_setting": lambda setting: setting.value,
            "is_disabled": lambda: self.is_disabled,
            "is_profiled": lambda: self.is_profiled,
            "collect": self.collect,
            "make_arrays": lambda results, handlers: [handler(results) for handler in handlers],
            "plan": self.plan,
        }
        self.context = core.DirectContext(
            **{name: self._part(name) for name in self.parts},
            array_type=DirectArray,
            key_type=DirectKeys,
            host_array=DirectHost,
            host_scalar=DirectScalar,
            settings=self.settings,
        )
        self.context.enabled = True
        self.context.after = after

    def _part(self, name: str) -> Callable[..., Any]:
        return lambda *args: self.parts[name](*args)

    def collect(self) -> None:
        self.collected += 1

    def key(self, arrays: Sequence[Any] = ()) -> Any:
        """The key of a call; that of an array which is none of JAX's is its type."""

        def key_of(x: Any) -> Any:
            kind = type(x) if isinstance(x, SubArray) else False
            return aval_of(x).name, (Sharding, "one"), kind, None

        settings = tuple(setting.value for setting in self.settings)
        return (self.configuration, settings), tuple(
            x.key if type(x) is DirectArray else key_of(x) for x in arrays
        )

    def plan(self, source: Any, arrays: Any) -> Any:
        assert type(arrays) is tuple
        self.plans += 1
        program = source.program(arrays)
        flags = bytes(
            is_read | aval_of(x).has_layouts << 1
            for is_read, x in zip(program.reads, arrays, strict=True)
        )
        read = program.read(arrays)
        return {
            "execute": program.execute,
            "handlers": program.handlers,
            "constants": program.constants,
            "flags": flags,
            "trace": program.trace,
            "checks_deleted": self.checks_deleted,
            "puts": tuple((aval_of(x), ONE, ["a device"]) for x in read if is_host(x)),
        }

    def put(
        self, aval: Aval, sharding: Any, values: Any, devices: Any, *flags: bool
    ) -> DirectArray:
        assert (devices, flags) == (["a device"], (False, True))
        (x,) = values
        return DirectArray(getattr(x, "value", x), aval.name, sharding, committed=False)

    def jit(self, reads: Callable[[int], bool] = lambda i: True) -> Any:
        """A Direct around a new DirectJit."""
        jitted = DirectJit(self, reads)
        return core.Direct(self.context, jitted, jitted)


def way_of(direct: Any, *arrays: Any) -> str:
    """Makes a call, checks its Output, and returns the way that it went."""
    before = direct.counts
    output = direct(*arrays)
    way: str
    way, *others = (k for k, n in direct.counts.items() for _ in range(n - before.get(k, 0)))
    assert not others
    program = direct.jitted.program(arrays)
    assert type(output) is core.Output and program.backend.wrong == []
    found, trace = core.output_flatten(output)
    assert trace == program.trace
    for x, y in itertools.zip_longest(found, program.compute(arrays)):
        assert (x.value, x.key) == (y.value, y.key)
    return way


def ways_of(direct: Any, *calls: Sequence[Any]) -> list[str]:
    return [way_of(direct, *arrays) for arrays in calls]


def planned(backend: Backend, *arrays: Any, **options: Any) -> Any:
    """A Direct that calls with such arrays go through.  No others are noted."""
    backend.context.after = 0
    direct = backend.jit(**options)
    assert ways_of(direct, arrays, arrays) == ["waiting", "direct"]
    backend.context.after = 10**6
    return direct


def program_of(direct: Any, *arrays: Any) -> Any:
    return direct.jitted.program(arrays)
