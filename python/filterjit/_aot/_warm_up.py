"""Compiles a function for many signatures before the first call, in parallel."""

import concurrent.futures
import contextlib
import contextvars
import dataclasses
import logging
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax

from .. import _core
from .._base._arrays import Aval
from .._base._checks import positive_int
from .._base._errors import short_repr
from .._base._package import public_type
from .._call._events import stack_level
from .._trees._registry import is_array, leaves_of
from . import _keep, _stages
from ._prepared import PreparedCall, is_spec, place_of, prepare

logger = logging.getLogger("filterjit")


@public_type
@dataclasses.dataclass
class Warmed:
    """The outcome of ``warm_up`` or ``warm_up_all`` for one signature. Times are in seconds.

    Attributes:
        signature: a description of the arguments.
        tracing: the time of tracing and lowering.
        compiling: the time of XLA, including the wait for a free core.
        error: the exception, or None.
        same_as: the number of an earlier signature with the same program, or None.
        loaded: whether the program was loaded from the folder of `keep_programs`.
    """

    signature: str
    tracing: float = 0.0
    compiling: float = 0.0
    error: Exception | None = None
    same_as: int | None = None
    loaded: bool = False

    def __str__(self) -> str:
        if self.error is not None:
            first, *_ = str(self.error).split("\n")
            return f"{self.signature}: {type(self.error).__name__}: {first}"
        if self.same_as is not None:
            return f"{self.signature}: the same as number {self.same_as}"
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
        done = sum(one.error is None and one.same_as is None for one in self.signatures)
        failed = f"; {len(self.errors)} failed" if self.errors else ""
        head = f"compiled {done - loaded} of {len(self.signatures)} in {self.seconds:.3f} s"
        head += f"; {loaded} loaded" * bool(loaded) + failed
        return "\n".join([head, *(f"  {i}: {one}" for i, one in enumerate(self.signatures))])


def _describe_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    def describe(x: Any) -> str:
        try:
            return str(Aval.of(x)) if hasattr(x, "shape") and hasattr(x, "dtype") else short_repr(x)
        except Exception:
            return short_repr(x)

    named = (f"{key}={describe(x)}" for key, x in kwargs.items())
    return ", ".join([*map(describe, args), *named])


def _check_signatures(signatures: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    found: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    if not isinstance(signatures, Iterable) or isinstance(signatures, Mapping):
        raise TypeError(
            "`warm_up_all(signatures)` must be a list of pairs (args, kwargs), such as [((x, 2), {})], not "
            f"{short_repr(signatures)}"
        )
    for i, one in enumerate(signatures):
        match one:
            case (tuple() | list() as args, Mapping() as kwargs):
                found.append((tuple(args), dict(kwargs)))
            case _:
                raise TypeError(
                    f"signature {i} of `warm_up_all` is not a pair (args, kwargs) of a tuple and a "
                    f"dict, as in [((x, 2), {{}})], but {short_repr(one)}"
                )
    return found


def _warn_of_shapes(
    f: _core.FilterJit, pairs: Iterable[tuple[tuple[Any, ...], dict[str, Any]]]
) -> None:
    """Warns if a call without arrays has a tuple of ints, which might be meant as a shape."""
    for args, kwargs in pairs:
        if any(is_array(x) or is_spec(x) for x in leaves_of((args, kwargs))):
            continue
        names = f._parts()[0].signature.names
        for name, x in [*zip(names, args, strict=False), *kwargs.items()]:
            if type(x) is tuple and x and {type(n) for n in x} == {int}:
                warnings.warn(
                    f"`warm_up`: argument `{name}` is the tuple {x}. For an array of this shape, pass "
                    f"`jax.ShapeDtypeStruct({x}, jnp.float32)`.",
                    stacklevel=stack_level(),
                )
                return


def warm_up(f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Warmed:
    """Compiles a function for one call. Raises any error."""
    one = Warmed(_describe_call(args, kwargs))
    _warm_up(f, [(args, kwargs)], 1, [one])
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
    pairs = _check_signatures(signatures)
    positive_int("warm_up_all(..., threads=...)", threads, or_none=True)
    threads = max(1, min(threads or os.cpu_count() or 1, len(pairs)))
    if jax.process_count() > 1:
        threads = 1  # all processes must trace in the same order
    start = time.perf_counter()
    results = [Warmed(_describe_call(*pair)) for pair in pairs]
    _warm_up(f, [((*first, *args), kwargs) for args, kwargs in pairs], threads, results)
    for i, one in enumerate(results):
        if one.error is not None:
            logger.warning("warm_up_all: signature %d failed: %s", i, one)
    return WarmUp(tuple(results), time.perf_counter() - start)


def _warm_up(
    f: _core.FilterJit,
    pairs: Sequence[tuple[tuple[Any, ...], dict[str, Any]]],
    threads: int,
    results: Sequence[Warmed],
) -> None:
    """Compiles a function for each ``(args, kwargs)``, and writes the outcomes into `results`.
    Traces run in the calling thread, under its JAX options, such as a mesh."""
    seen: dict[Any, int] = {}
    _warn_of_shapes(f, pairs)

    @contextlib.contextmanager
    def working(i: int, what: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        except Exception as e:
            results[i].error = e
        setattr(results[i], what, time.perf_counter() - began)

    def compile_one(
        i: int,
        lowered: _stages.Lowered[Any, Any],
        kept: _keep.Kept | None,
        arrays: tuple[Any, ...],
    ) -> None:
        with working(i, "compiling"):
            with lowered.prepared.working():
                compiled = lowered.stage.compile()
            if kept is not None:
                kept.write(lambda: compiled, arrays)

    with concurrent.futures.ThreadPoolExecutor(threads, "filterjit-warm-up") as pool:
        futures = []
        try:
            for i, (args, kwargs) in enumerate(pairs):
                with working(i, "tracing"), _stages.refusing(f):
                    prepared = prepare(f, args, kwargs)
                    key = _program_key(prepared)
                    if key in seen:
                        results[i].same_as = seen[key]
                        continue
                    kept = _keep.find_kept(prepared)
                    results[i].loaded = kept is not None and kept.load(prepared.arrays) is not None
                    if not results[i].loaded:
                        lowered = _stages.trace_prepared(prepared).lower()
                        run = contextvars.copy_context().run
                        futures.append(
                            pool.submit(run, compile_one, i, lowered, kept, prepared.arrays)
                        )
                    seen[key] = i
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _program_key(prepared: PreparedCall) -> Any:
    """Returns equal keys for signatures that share an executable."""
    return prepared.variant, tuple([(Aval.of(x), place_of(x)) for x in prepared.arrays])
