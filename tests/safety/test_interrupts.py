"""Exceptions at any line of the Python side, such as Ctrl-C, leave the state consistent.

A trace function raises at the n-th line of ``python/filterjit`` that an operation runs, for every
n. Signals are handled between some bytecodes only. Between the end of a ``with`` block and its
``__exit__`` no signal can raise, so these places are left out.
"""

import collections
import dataclasses
import dis
import logging
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import filterjit
from filterjit._base import _locks
from filterjit._call import _running
from filterjit._observe import _forbid
from filterjit._observe._recorder import recorder
from filterjit._observe._records import functions
from filterjit._terminal import _progress

PACKAGE = str(Path(filterjit.__file__).parent)
X = jnp.arange(3.0)


# ---- exceptions at a line ----

# The argument of the CALL of ``__exit__(None, None, None)``. Python 3.14 counts `self`.
_EXIT_ARGUMENTS = 3 if sys.version_info >= (3, 14) else 2
_exits: dict[types.CodeType, set[int]] = {}


def _uninterrupted(code: types.CodeType) -> set[int]:
    """Returns the offsets at which only a trace function can raise. These are the regular end of a
    ``with`` block, ``__exit__(None, None, None)``, also below a return value, and the NOP of a
    ``try:``, which CPython 3.11 leaves out of the range of the ``with`` around it."""
    if code not in _exits:
        instructions = list(dis.get_instructions(code))
        found = {i.offset for i in instructions if i.opname == "NOP"}
        instructions = [i for i in instructions if i.opname not in ("PRECALL", "NOP")]
        for i in range(len(instructions) - 3):
            four = instructions[i : i + 4]
            nones = all(x.opname == "LOAD_CONST" and x.argval is None for x in four[:3])
            if nones and four[3].opname == "CALL" and four[3].arg == _EXIT_ARGUMENTS:
                found.add(four[0].offset)
                while i > 0 and instructions[i - 1].opname == "SWAP":  # two of them since 3.14
                    i -= 1
                    found.add(instructions[i].offset)
        _exits[code] = found
    return _exits[code]


class Injection:
    """Raises `error` at the `at`-th line of filterjit's Python code that this thread runs."""

    def __init__(self, error: type[BaseException], at: int) -> None:
        self.error, self.at = error, at
        self.lines = 0
        self.place = ""
        self.places: list[str] = []

    def __enter__(self) -> "Injection":
        self.before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)

    def _call(self, frame: types.FrameType, event: str, _: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, frame: types.FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lasti not in _uninterrupted(frame.f_code):
            self.lines += 1
            place = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
            self.places.append(place)
            if self.lines == self.at:
                sys.settrace(None)
                self.place = place
                raise self.error("on purpose")
        return self._line


# ---- the state that must not change ----


def _callback_filters() -> list[Any]:
    return list(logging.getLogger("jax._src.callback").filters)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes jobs be watched as on a terminal, but never long enough to be shown."""
    monkeypatch.setattr(_progress, "_enabled", lambda: True)
    monkeypatch.setattr(_progress, "_PATIENCE", 60.0)


@pytest.fixture(autouse=True)
def _fresh_locks() -> Iterator[None]:
    """Replaces the locks, so that a test that leaves one locked does not block the others."""
    yield
    _locks._after_fork()


class State:
    """The state that an interrupted operation must leave unchanged."""

    def __init__(self) -> None:
        self.filters = list(warnings.filters)
        self.callback_filters = _callback_filters()

    def check(self) -> None:
        assert list(warnings.filters) == self.filters
        assert _callback_filters() == self.callback_filters
        assert recorder._thread.stack == []
        assert (
            _forbid._here.get() == ()
            and _forbid._forbids == []
            and recorder._thread.untraced.job is None
        )
        # An interrupt where a pool is left does not wait for its threads. They end by themselves, but
        # until then they start threads of the display, and one that is being started has no `join`.
        for name in ("filterjit-warm-up", "filterjit-progress"):
            for thread in threading.enumerate():
                if thread.name.startswith(name):
                    thread.join(10)
                    assert not thread.is_alive()
        for quiet in (_running._quiet_callbacks, _running._quiet_donation):
            assert quiet._calls == set()
        for lock in (functions.lock, _progress._line._lock):
            assert lock.acquire(blocking=False)
            lock.release()


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of operation: a function's options, the statics that it was called with before, whether
    it has a callback, and what is done with it."""

    statics: tuple[int, ...] = ()
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    callback: bool = False
    run: Callable[["Operation"], object] = lambda operation: operation.call(5)


class Operation:
    """An operation to interrupt: `run`, then `check`, once per instance."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.traces = kind, 0

        def body(x: jax.Array, n: int, g: Any = None) -> jax.Array:
            self.traces += 1
            if kind.callback:
                jax.debug.callback(lambda x: None, x)
            return x * n

        self.f: Any = filterjit.filter_jit(body, **kind.options)
        for n in kind.statics:
            self.call(n)

    def call(self, n: int) -> None:
        assert self.f(jnp.arange(3.0), n).tolist() == [0, n, 2 * n]

    def run(self) -> None:
        self.kind.run(self)

    def check(self) -> None:
        variants, traces = self.f.variants, self.traces
        assert all(v.num_traces == 1 for v in variants)
        assert self.f.cache_info().variants == len(variants)
        for _ in range(2):
            self.call(5)
        assert self.traces <= traces + 1, "at most once more"
        if "maxsize" in self.kind.options:
            assert 1 <= len(variants) <= 2 == len(self.f.variants)
            return
        assert len(self.f.variants) == len({*self.kind.statics, 5})
        for n in self.kind.statics:
            self.call(n)
        assert self.traces <= traces + 1, "the others are still there"
        notes = [len(v._record.traces) for v in self.f.variants]
        assert notes == [1] * len(notes)


def _ahead(operation: Operation) -> None:
    compiled = operation.f.lower(jax.ShapeDtypeStruct((3,), jnp.float32), 5).compile()
    assert compiled(jnp.arange(3.0), 5).tolist() == [0, 5, 10]


def _warm_up(operation: Operation) -> None:
    spec = jax.ShapeDtypeStruct((3,), jnp.float32)
    done = operation.f.warm_up_all([((spec, 5), {}), ((spec, 5), {})], threads=1)
    for error in done.values():
        raise error


def _explain(operation: Operation) -> None:
    operation.f.explain(X, 5), operation.f.cache_info(), str(operation.f.report())


KINDS = {
    "call": Kind(),
    "second miss": Kind((1, 2)),
    "donating": Kind((1,), {"donate": "all"}),
    "with a callback": Kind(callback=True),
    "hit with a callback": Kind((5,), callback=True),
    "evicting": Kind((1, 2), {"maxsize": 2}),
    "structural": Kind((1,), {"functions": "structure"}),
    "watched": Kind((1,), {"on_retrace": "log"}),
    "ahead of time": Kind(options={"donate": "all"}, run=_ahead),
    "eval_shape": Kind(run=lambda operation: operation.f.eval_shape(X, 5)),
    "warm-up": Kind(run=_warm_up),
    "explain": Kind((1,), run=_explain),
}


def _interrupt(kind: Kind, error: type[BaseException], at: int) -> str:
    """Interrupts an operation at a line event and checks the state. Returns the place, or "" if there
    are fewer line events."""
    state, operation = State(), Operation(kind)
    raised: BaseException | None = None
    with Injection(error, at) as injection:
        try:
            operation.run()
        except BaseException as e:
            raised = e
    try:
        if error is KeyboardInterrupt and injection.place:
            assert isinstance(raised, KeyboardInterrupt), "the interrupt got lost"
        raised = None
        state.check()
        operation.check()
        state.check()
    except BaseException as e:
        e.add_note(f"interrupted at {injection.place}, line event {at}")
        raise
    return injection.place


# How often each line was interrupted so far, in all operations. A line that many of them run is not
# interrupted in each of them.
_counts: collections.Counter[tuple[type[BaseException], str]] = collections.Counter()


def _places(kind: Kind, error: type[BaseException], some: int) -> list[int]:
    """Returns the line events to interrupt: about `some`, in lines not interrupted before."""
    Operation(kind).run()  # imports and first uses
    with Injection(error, -1) as injection:
        Operation(kind).run()
    first: dict[str, int] = {}
    for i, place in enumerate(injection.places, 1):
        if _counts[error, place] < 1:
            first.setdefault(place, i)
    found = sorted(first.values())
    return found[:: max(1, len(found) // some)]


def _inject(name: str, error: type[BaseException], some: int) -> None:
    """Interrupts operations at their lines, one operation for each line."""
    for at in _places(KINDS[name], error, some):
        _counts[error, _interrupt(KINDS[name], error, at)] += 1


@pytest.mark.recompiles
@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_interrupts(name: str, terminal: None) -> None:
    _inject(name, KeyboardInterrupt, 16)


@pytest.mark.recompiles
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("with a callback", ZeroDivisionError),
        pytest.param("donating", MemoryError, marks=pytest.mark.slow),
        pytest.param("donating", ZeroDivisionError, marks=pytest.mark.slow),
        pytest.param("with a callback", MemoryError, marks=pytest.mark.slow),
    ],
)
def test_errors(name: str, error: type[Exception], terminal: None) -> None:
    _inject(name, error, 8)
