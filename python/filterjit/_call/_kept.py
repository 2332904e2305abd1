"""Programs that are kept from one run of a program to the next: the calls of a variant.

A *keeper* finds the program of a call before anything is traced, or watches the trace and keeps the
program (`_aot._program_cache` has the only one). It is asked once for each kind of call: for the
avals, the placements and the configuration of JAX. A hit never comes here: the variant's `call` is
what runs the program, and this module gets the call back

* from a loaded program, when a call is of another kind than it was loaded for (`_Other`);
* from ``jax.jit``, when it is about to trace a kind that the keeper was not asked about: then the
  flat function raises `_NotAsked` before the user's function runs.

Both reach the hook `call_again`, which makes the call again through `KeptCall`.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import jax

from .. import _core
from .._compat import _executable_compat, _jax_compat
from .._observe import _records
from .._shardings._place import is_tracing
from .._shardings._specs import default_device
from . import _direct
from ._flat_function import FlatFunction

_jax_compat.hide_from_tracebacks(__file__)

_MOST_KINDS = 256
_SOME_CALLS = 4


class _NotAsked(Exception):
    """A trace begins, and the keeper has not been asked for the program."""


class _Other(Exception):
    """A loaded program was called with arrays of another kind."""


class Keeper(Protocol):
    """Where programs are kept."""

    def find(self, call: "KeptCall", arrays: tuple[Any, ...]) -> tuple[Any, Any]:
        """Returns the ``jax.stages.Compiled`` of a call, or None, and what `trace` is to be told.

        The variant then has the structure of the result. It does not raise.
        """
        ...

    def trace(
        self, call: "KeptCall", arrays: tuple[Any, ...], key: Any, run: Callable[[], Any], /
    ) -> tuple[Any, "Keep"]:
        """Calls `run`, which traces, and returns its result and what keeps the program; `key` is
        what `find` has returned."""
        ...


Keep = Callable[[tuple[Any, Any] | None], None]
"""Keeps the program of a trace. It takes the ``jax.stages.Lowered`` and the ``Compiled``, or None if
JAX has compiled it for a call."""


def keep_nothing(_: tuple[Any, Any] | None) -> None:
    """Is what keeps a program where there is nothing to keep, or no keeper."""


class _Loaded:
    """A program that was found, for one kind of call.

    Attributes:
        stage: the ``jax.stages.Compiled``.
        call: runs it; raises `_Other` for calls of other kinds.
    """

    def __init__(self, stage: Any, kind: Any, of: "KeptCall") -> None:
        clear = of.jitted.clear_cache

        def check(arrays: tuple[Any, ...]) -> None:
            if _kind(arrays) != kind:
                raise _Other

        self.stage = stage
        call = _executable_compat.compiled_call(stage, check)
        call.clear_cache = clear  # which JAX has for a ``jax.jit`` only
        self.call = _direct.wrap(call, stage)


def _kind(arrays: tuple[Any, ...]) -> Any:
    """Returns what decides which program a call runs; None if programs are not kept for it."""
    context = _jax_compat.trace_context()
    if context is None or is_tracing() or any(isinstance(x, jax.core.Tracer) for x in arrays):
        return None
    config = jax.config
    if config.jax_disable_jit or config.jax_debug_nans or config.jax_debug_infs:
        return None
    try:
        return context, tuple([(_jax_compat.aval(x), placement(x)) for x in arrays])
    except TypeError:
        return None  # no arrays of JAX, which says so itself


def placement(x: Any) -> Any:
    """Returns the sharding of an array, and whether it is committed to it; of a spec, those of an
    array that is made for it; None for anything else."""
    if not isinstance(x, jax.ShapeDtypeStruct):
        return _records.placement(x)
    if x.sharding is not None:
        return x.sharding, True
    return jax.sharding.SingleDeviceSharding(default_device()), False


class _Thread(threading.local):
    def __init__(self) -> None:
        self.asked: list[KeptCall] = []  # whose programs may be traced


_thread = _Thread()


class KeptCall:
    """The `call` of a variant whose programs are kept, until it is known what runs them.

    Attributes:
        keeper: where its programs are kept.
        variant, cache: weak references.
        registry: of the arguments.
        donated: the positions of the arrays that it donates.
        jitted: the ``jax.jit`` of the variant.
        traced: what calls it.
        traces: what the keeper knows of the variant's traces, by their numbers.
    """

    def __init__(
        self,
        keeper: Keeper,
        variant: _core.Variant,
        cache: _core.Cache,
        donated: tuple[int, ...],
        flat: FlatFunction,
        jitted: Any,
    ) -> None:
        self.keeper = keeper
        self.variant = weakref.ref(variant)
        self.cache = weakref.ref(cache)
        self.registry = cache.hooks.registry
        self.donated = donated
        self.flat = flat
        self.jitted = jitted
        self.traced: Callable[..., _core.Output] = flat.callable_of(jitted)
        self.__dict__["jit_id"] = flat.jit_id
        self.traces: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._programs: dict[Any, _Loaded | None] = {}  # by kind; None: it was traced
        self._is_dispatching = False
        self._num_calls = 0  # that were of a known kind
        self._direct: Any = None
        self._error: Exception | None = None
        flat.before_trace = weakref.WeakMethod(self.before_trace)
        calls[variant] = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "jitted" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.jitted, name)

    def __call__(self, *arrays: Any) -> _core.Output:
        if self._error is not None:
            raise self._error
        kind = self._kind_to_keep(arrays)
        if kind is None:
            return self._run(self.traced, arrays)
        if kind in self._programs:
            found = self._programs[kind]
            self._settle()
        else:
            found, key = self._find(kind, arrays)
            if found is None:
                with _asked(self):
                    output: _core.Output
                    output, keep = self.keeper.trace(
                        self, arrays, key, lambda: self.traced(*arrays)
                    )
                    keep(None)
                    return output
        return self._run(self.traced if found is None else found.call, arrays)

    def warm_up(self, arrays: tuple[Any, ...], run: Callable[[], Any]) -> tuple[Any, Keep]:
        """Finds the program of later calls, or calls `run`, which traces.

        Arguments:
            arrays: of such a call, or specs.

        Returns:
            The result of `run`, or None if the program was found; and what keeps its program.
        """
        kind = self._kind_to_keep(arrays)
        if kind is None:
            return run(), keep_nothing
        if kind in self._programs:
            return (run() if self._programs[kind] is None else None), keep_nothing
        found, key = self._find(kind, arrays)
        if found is not None:
            return None, keep_nothing
        return self.keeper.trace(self, arrays, key, run)

    def _kind_to_keep(self, arrays: tuple[Any, ...]) -> Any:
        """Returns the kind of a call; None if no program is kept for it."""
        kind = _kind(arrays)
        return kind if kind in self._programs or len(self._programs) < _MOST_KINDS else None

    def _find(self, kind: Any, arrays: tuple[Any, ...]) -> tuple[_Loaded | None, Any]:
        """Asks the keeper for the program of a kind. Returns it, and what `Keeper.trace` is told."""
        stage, key = self.keeper.find(self, arrays)
        return self._add(kind, None if stage is None else _Loaded(stage, kind, self)), key

    def _add(self, kind: Any, found: _Loaded | None) -> _Loaded | None:
        """Remembers what runs calls of a kind, and lets the variant call it. Returns what another
        thread has remembered before, if one has.

        Nothing is ever forgotten: a call that is running does not hold what it calls.
        """
        variant = self.variant()
        with self._lock:
            found = self._programs.setdefault(kind, found)
            others = list(self._programs.values())
            if others.count(None) < len(others) > 1 or len(others) >= _MOST_KINDS:
                self._is_dispatching = True
            if variant is not None:
                if self._is_dispatching:
                    self._make_calls_of(variant)
                elif found is not None:
                    variant.call = found.call
        return found

    def _make_calls_of(self, variant: _core.Variant) -> None:
        """Lets this object make the calls of its variant that are not direct. The caller has the lock."""
        self._direct = self._direct or _direct.wrap(self, self)
        variant.call = self._direct

    def _settle(self) -> None:
        """After some calls that were all traced, lets the variant call the ``jax.jit``. Before, JAX
        would compile the first calls of a training again, for where its own results are, and not
        trace."""
        self._num_calls += 1
        if self._num_calls < _SOME_CALLS or self._is_dispatching:
            return
        variant = self.variant()
        with self._lock:
            traced = all(program is None for program in self._programs.values())
            if traced and not self._is_dispatching and variant is not None:
                variant.call = self.traced

    def _run(self, call: Callable[..., _core.Output], arrays: tuple[Any, ...]) -> _core.Output:
        with _asked(self):
            return call(*arrays)

    def fail(self, error: Exception) -> None:
        """Makes the calls from now on raise an error: a program that was found is not the right one."""
        self._error = error
        if (variant := self.variant()) is not None:
            variant.call = self

    def is_loaded(self, arrays: tuple[Any, ...]) -> bool:
        """Whether the program for these arrays was found."""
        return self._programs.get(_kind(arrays)) is not None

    # ---- called by hooks, and where a flat function is traced ----

    def before_trace(self) -> None:
        if self not in _thread.asked:
            raise _NotAsked

    def is_of_other(self, exception: Exception, arrays: tuple[Any, ...]) -> bool:
        """Returns whether to make a call again that has failed, as it was of another kind."""
        variant = self.variant()
        if variant is None or self._error is not None:
            return False
        if isinstance(exception, (_NotAsked, _Other)):
            return True
        # A loaded program cannot be transformed, nor run under `jax_disable_jit`.
        if self._is_dispatching or variant.call is self or variant.call is self.traced:
            return False
        return not self.is_loaded(arrays)

    def call_again(self, exception: Exception, arrays: tuple[Any, ...]) -> bool:
        """Returns `is_of_other`. If so, this object makes the calls that are not direct from then on."""
        variant = self.variant()
        if variant is None or not self.is_of_other(exception, arrays):
            return False
        with self._lock:
            self._is_dispatching = True
            self._make_calls_of(variant)
        return True

    def plan_source(self, arrays: tuple[Any, ...]) -> Any:
        """Returns what `_direct` makes the plan of a call from."""
        found = self._programs.get(_kind(arrays))
        return self.jitted if found is None else found.stage

    # ---- the methods of a ``jax.jit`` ----

    def trace(self, *arrays: Any) -> Any:
        with _asked(self):
            return self.jitted.trace(*arrays)

    def eval_shape(self, *arrays: Any) -> Any:
        with _asked(self):
            return self.jitted.eval_shape(*arrays)

    def clear_cache(self) -> None:
        self.jitted.clear_cache()


class _asked:
    """A context in which the programs of a `KeptCall` may be traced in this thread."""

    __slots__ = ("_call",)

    def __init__(self, call: KeptCall) -> None:
        self._call = call

    def __enter__(self) -> None:
        _thread.asked.append(self._call)

    def __exit__(self, *_: Any) -> None:
        _thread.asked.pop()


# Of a variant; it lives as long as the variant, whatever its `call` is.
calls: weakref.WeakKeyDictionary[_core.Variant, KeptCall] = weakref.WeakKeyDictionary()

# Returns the keeper for the option `program_cache` of a function, if there is one.
# `_aot._program_option` sets it.
keeper_for: Callable[[Any], Keeper | None] | None = None
