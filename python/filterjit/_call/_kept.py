"""Programs that are kept from one run of a program to the next: the calls of a variant.

A *keeper* finds the program of a call, before anything is traced or by what a trace makes, or keeps
the program (`_aot._program_cache` has the only one). It is asked once for each kind of call: for the
avals, the placements and the configuration of JAX. A hit never comes here: the variant's `call` is
what runs the program, and this module gets the call back

* from a loaded program, when a call is of another kind than it was loaded for (`_Other`);
* from ``jax.jit``, when it is about to trace a kind that the keeper was not asked about: then the
  flat function raises `_NotAsked` before the user's function runs.

Both reach the hook `call_again`, which makes the call again through `KeptCall`. A keeper that doubts
a program which runs already (`KeptCall.doubt`) gets the next call.
"""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax

from .. import _core
from .._base._locks import RLock, taken
from .._compat import _executable_compat, _jax_compat
from .._observe import _records
from .._shardings._place import is_tracing
from .._shardings._specs import default_device
from . import _direct
from ._flat_function import FlatFunction
from ._keepers import Keep, Keeper, keep_nothing
from ._sharded_call import ShardedCall, stand_ins

_jax_compat.hide_from_tracebacks(__file__)

_MOST_KINDS = 256
_SOME_CALLS = 4


class _NotAsked(Exception):
    """A trace begins, and the keeper has not been asked for the program."""


class _Other(Exception):
    """A loaded program was called with arrays of another kind."""


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
        return context, tuple([(jax.typeof(x), placement(x)) for x in arrays])
    except TypeError:
        return None  # no arrays of JAX, which says so itself


def placement(x: Any) -> Any:
    """Returns the sharding of an array, and whether it is committed to it; of what is no array of JAX
    yet, such as a spec or an array of NumPy, those of an array that is made of it."""
    if isinstance(x, jax.ShapeDtypeStruct) and x.sharding is not None:
        return x.sharding, True
    return _records.placement(x) or (jax.sharding.SingleDeviceSharding(default_device()), False)


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
        jitted: the ``jax.jit`` of the variant, or its `ShardedCall`.
        traced: what calls it.
    """

    def __init__(
        self,
        keeper: Keeper,
        variant: _core.Variant,
        cache: _core.Cache,
        flat: FlatFunction,
        make: Callable[[_core.Variant], Any],
    ) -> None:
        self.keeper = keeper
        self.variant = weakref.ref(variant)
        self.cache = weakref.ref(cache)
        self.registry = cache.hooks.registry
        self.flat = flat
        self.jitted = make(variant)
        is_sharded = isinstance(self.jitted, ShardedCall)
        self.traced: Callable[..., _core.Output]
        self.traced = self.jitted if is_sharded else flat.callable_of(self.jitted)
        self.__dict__["jit_id"] = flat.jit_id
        self._make = make
        self._lock = RLock()
        self._programs: dict[Any, _Loaded | None] = {}  # by kind; None: it was traced
        self._asking: dict[Any, RLock] = {}  # by kind
        self._doubts: list[Callable[[], None]] = []
        self._is_dispatching = False
        self._num_calls = 0  # that were of a known kind
        self._direct: Any = None
        self._dropped: list[Any] = []
        flat.before_trace = weakref.WeakMethod(self.before_trace)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "jitted" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.jitted, name)

    def __call__(self, *arrays: Any) -> _core.Output:
        for check in taken(self._doubts):
            check()
        if isinstance(self.jitted, ShardedCall):
            arrays = self.jitted.placed(arrays)
        kind = self._kind_to_keep(arrays)
        self._num_calls += kind in self._programs
        found, keep = self._find(kind, arrays)
        with _asked(self):
            output: _core.Output = (self.traced if found is None else found.call)(*arrays)
        keep(None)
        return output

    def warm_up(self, arrays: tuple[Any, ...], run: Callable[[], Any]) -> tuple[Any, Keep]:
        """Finds the program of later calls, or calls `run`, which traces.

        Arguments:
            arrays: of such a call, or specs.

        Returns:
            The result of `run`, or None if the program was found; and what keeps its program.
        """
        found, keep = self._find(self._kind_to_keep(arrays), arrays)
        return (run() if found is None else None), keep

    def _kind_to_keep(self, arrays: tuple[Any, ...]) -> Any:
        """Returns the kind of a call; None if no program is kept for it."""
        kind = _kind(arrays)
        return kind if kind in self._programs or len(self._programs) < _MOST_KINDS else None

    def _find(self, kind: Any, arrays: tuple[Any, ...]) -> tuple[_Loaded | None, Keep]:
        """Returns what runs the program of a kind, which it asks the keeper for once, and what keeps it.

        Nothing is ever forgotten: a call that is running does not hold what it calls.
        """
        keep: Keep = keep_nothing
        if kind is None:
            self.keeper.settle()
            return None, keep
        if kind not in self._programs:
            with self._asking.setdefault(kind, RLock()):  # other threads wait
                if kind not in self._programs:
                    stage, keep = self.keeper.find(self, arrays)
                    self._add(kind, None if stage is None else _Loaded(stage, kind, self))
        self._settle()
        return self._programs[kind], keep

    def _add(self, kind: Any, found: _Loaded | None) -> None:
        with self._lock:
            self._programs[kind] = found
            others = list(self._programs.values())
            if others.count(None) < len(others) > 1 or len(others) >= _MOST_KINDS:
                self._is_dispatching = True

    def _settle(self) -> None:
        """Sets what makes the calls of the variant: this object, where its calls are of several kinds
        or a program is in doubt; else the program that was found.

        After some calls that were all traced, it is the ``jax.jit``. Before, JAX would compile the
        first calls of a training again, for where its own results are, and not trace.
        """
        variant = self.variant()
        if variant is None:
            return
        with self._lock:
            others = list(self._programs.values())
            if self._doubts:
                variant.call = self
            elif self._is_dispatching:
                self._direct = self._direct or _direct.wrap(self, self)
                variant.call = self._direct
            elif others[:1] != [None] and len(others) == 1:
                assert others[0] is not None
                variant.call = others[0].call
            elif self._num_calls >= _SOME_CALLS:
                variant.call = self.traced

    def is_loaded(self, arrays: tuple[Any, ...]) -> bool:
        """Whether the program for these arrays was found."""
        if isinstance(self.jitted, ShardedCall):
            arrays = self.jitted.placed(arrays, stand_ins)
        return self._programs.get(_kind(arrays)) is not None

    # ---- called by keepers ----

    def alive(self) -> tuple[_core.Variant, _core.Cache, Any]:
        """Returns the variant, the cache and its hooks, in a call."""
        variant, cache = self.variant(), self.cache()
        assert variant is not None and cache is not None
        return variant, cache, cache.hooks

    def lower(self, arrays: tuple[Any, ...], *, anew: bool = False) -> Any:
        """Traces a call and returns the ``jax.stages.Lowered``; `anew`, not what JAX has kept of an
        earlier trace, and without keeping this one for calls."""
        variant, cache, _ = self.alive()
        jitted = self._make(variant) if anew else self.jitted
        with _asked(self):
            lowered = jitted.trace(*arrays).lower()
        if anew:
            cache.ignore_trace(variant, lowered.out_tree.node_data()[1])
        return lowered

    def doubt(self, check: Callable[[], None]) -> None:
        """Calls `check` in the next call of the variant, before a program runs; what it raises, the
        call raises."""
        self._doubts.append(check)
        self._settle()

    def drop(self, stage: Any) -> None:
        """Lets calls trace for which a program was found that is another one."""
        with self._lock:
            for kind, found in self._programs.items():
                if found is not None and found.stage is stage:
                    self._programs[kind] = None
                    self._dropped.append(found)  # calls that are running do not hold it
            self._is_dispatching = True
            self._dropped.append(self._direct)
            self._direct = None
        self._settle()

    # ---- called by hooks, and where a flat function is traced ----

    def before_trace(self) -> None:
        if self not in _thread.asked:
            raise _NotAsked

    def is_of_other(self, exception: Exception, arrays: tuple[Any, ...]) -> bool:
        """Returns whether to make a call again that has failed, as it was of another kind."""
        if self._is_other_kind(exception, arrays):
            return True
        sharded = self.jitted
        return isinstance(sharded, ShardedCall) and sharded.is_of_other(exception, arrays)

    def _is_other_kind(self, exception: Exception, arrays: tuple[Any, ...]) -> bool:
        variant = self.variant()
        if variant is None or isinstance(exception, (_NotAsked, _Other)):
            return variant is not None
        # A loaded program cannot be transformed, nor run under `jax_disable_jit`.
        is_mine = self._is_dispatching or variant.call in (self, self.traced)
        return not (is_mine or self.is_loaded(arrays))

    def call_again(self, exception: Exception, arrays: tuple[Any, ...]) -> bool:
        """Returns `is_of_other`. If so, this object makes the calls that are not direct from then on, or
        the `ShardedCall`."""
        if self._is_other_kind(exception, arrays):
            self._is_dispatching = True
            self._settle()
            return True
        return isinstance(self.jitted, ShardedCall) and self.jitted.call_again(exception, arrays)

    def plan_source(self, arrays: tuple[Any, ...]) -> Any:
        """Returns what `_direct` makes the plan of a call from."""
        found = self._programs.get(_kind(arrays))
        return self.jitted if found is None else found.stage

    # ---- the methods of a ``jax.jit`` ----

    def trace(self, *arrays: Any) -> Any:
        self.keeper.settle()
        with _asked(self):
            return self.jitted.trace(*arrays)

    def eval_shape(self, *arrays: Any) -> Any:
        self.keeper.settle()
        with _asked(self):
            return self.jitted.eval_shape(*arrays)


@contextlib.contextmanager
def _asked(call: KeptCall) -> Iterator[None]:
    """A context in which the programs of a `KeptCall` may be traced in this thread."""
    _thread.asked.append(call)
    try:
        yield
    finally:
        _thread.asked.pop()
