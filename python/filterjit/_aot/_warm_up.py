"""Compiles a function for many signatures before the first call, in parallel."""

import concurrent.futures
import contextvars
import dataclasses
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from .. import _core
from .._base._arrays import Aval
from .._base._checks import positive_int
from .._base._errors import short_repr
from .._base._package import public_type
from . import _keep, _stages
from ._prepared import prepare

logger = logging.getLogger("filterjit")


@public_type
@dataclasses.dataclass
class Warmed:
    """The outcome of ``warm_up`` or ``warm_up_all`` for one signature. Times are in seconds.

    Attributes:
        signature: a description of the arguments.
        tracing: the time of tracing and lowering, or of loading.
        compiling: the time of XLA, including the wait for a free core.
        error: the exception, or None.
        loaded: whether the program was loaded from the folder of `keep_programs`.
    """

    signature: str
    tracing: float = 0.0
    compiling: float = 0.0
    error: Exception | None = None
    loaded: bool = False

    def __str__(self) -> str:
        if self.error is not None:
            first, *_ = str(self.error).split("\n")
            return f"{self.signature}: {type(self.error).__name__}: {first}"
        if self.loaded:
            return f"{self.signature}: loaded in {self.tracing:.3f} s"
        return f"{self.signature}: traced {self.tracing:.3f} s, compiled {self.compiling:.3f} s"


@public_type
@dataclasses.dataclass(frozen=True)
class WarmUp:
    """The outcome of ``warm_up_all``: a `Warmed` for each of the `signatures`, and the total time
    in `seconds`. ``str()`` returns a readable list."""

    signatures: tuple[Warmed, ...]
    seconds: float

    @property
    def errors(self) -> tuple[Exception, ...]:
        """The exceptions of the failed signatures."""
        return tuple(one.error for one in self.signatures if one.error is not None)

    def __repr__(self) -> str:
        loaded = sum(one.loaded for one in self.signatures)
        failed = len(self.errors)
        compiled = len(self.signatures) - loaded - failed
        head = f"compiled {compiled} of {len(self.signatures)} in {self.seconds:.3f} s"
        head += f"; {loaded} loaded" * bool(loaded) + f"; {failed} failed" * bool(failed)
        return "\n".join([head, *(f"  {i}: {one}" for i, one in enumerate(self.signatures))])


def warm_up(f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Warmed:
    """Compiles a function for one call. Raises any error."""
    (one,) = _warm_up(f, (), [(args, kwargs)], 1)
    if one.error is not None:
        raise one.error
    return one


def warm_up_all(
    f: _core.FilterJit,
    first: tuple[Any, ...],
    signatures: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
    threads: int | None,
) -> WarmUp:
    """Compiles a function for each ``(args, kwargs)``, preceded by the arguments `first`."""
    positive_int("warm_up_all(..., threads=...)", threads, or_none=True)
    if jax.process_count() > 1:
        threads = 1  # all processes must trace in the same order
    start = time.perf_counter()
    results = _warm_up(f, first, _checked(signatures), threads or os.cpu_count() or 1)
    for i, one in enumerate(results):
        if one.error is not None:
            logger.warning("warm_up_all: signature %d failed: %s", i, one)
    return WarmUp(tuple(results), time.perf_counter() - start)


def _checked(signatures: Any) -> list[tuple[Sequence[Any], Mapping[str, Any]]]:
    if not isinstance(signatures, Iterable) or isinstance(signatures, Mapping):
        signatures = [signatures]
    found = list(signatures)
    for i, one in enumerate(found):
        match one:
            case (tuple() | list(), Mapping()):
                continue
        raise TypeError(
            f"signature {i} of `warm_up_all` is not a pair (args, kwargs) of a tuple and a dict, "
            f"as in [((x, 2), {{}})], but {short_repr(one)}"
        )
    return found


def _warm_up(
    f: _core.FilterJit,
    first: tuple[Any, ...],
    signatures: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
    threads: int,
) -> list[Warmed]:
    """Compiles a function for each signature. Traces run in the calling thread, under its JAX
    options, such as a mesh. Each compilation runs in a thread of a pool."""
    results, futures = [], []
    pool = concurrent.futures.ThreadPoolExecutor(threads, "filterjit-warm-up")
    try:
        for args, kwargs in signatures:
            one = Warmed(_describe(args, kwargs))
            results.append(one)
            start = time.perf_counter()
            try:
                with _stages.refusing(f):
                    prepared = prepare(f, (*first, *args), dict(kwargs))
                    kept = _keep.find_kept(prepared)
                    one.loaded = kept is not None and kept.load(prepared.arrays) is not None
                    if not one.loaded:
                        lowered = _stages.trace_prepared(prepared).lower()
                        run = contextvars.copy_context().run
                        arrays = prepared.arrays
                        futures.append(pool.submit(run, _compile, one, lowered, kept, arrays))
            except Exception as e:
                one.error = e
            one.tracing = time.perf_counter() - start
        for future in futures:
            future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return results


def _compile(
    one: Warmed,
    lowered: _stages.Lowered[Any, Any],
    kept: _keep.Kept | None,
    arrays: tuple[Any, ...],
) -> None:
    start = time.perf_counter()
    try:
        with lowered.prepared.working():
            compiled = lowered.stage.compile()
        if kept is not None:
            kept.write(lambda: compiled, arrays)
    except Exception as e:
        one.error = e
    one.compiling = time.perf_counter() - start


def _describe(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    def describe(x: Any) -> str:
        try:
            return str(Aval.of(x)) if hasattr(x, "shape") and hasattr(x, "dtype") else short_repr(x)
        except Exception:
            return short_repr(x)

    return ", ".join([*map(describe, args), *(f"{k}={describe(x)}" for k, x in kwargs.items())])
