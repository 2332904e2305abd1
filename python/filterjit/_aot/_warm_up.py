"""Compiles a function for many signatures before the first call, in parallel."""

import concurrent.futures
import contextvars
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from .. import _core
from .._base._checks import positive_int
from .._base._errors import short_repr
from . import _stages

logger = logging.getLogger("filterjit")


def warm_up_all(
    f: _core.FilterJit,
    first: tuple[Any, ...],
    signatures: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
    threads: int | None,
) -> dict[int, Exception]:
    """Compiles a function for each ``(args, kwargs)``, preceded by the arguments `first`. Returns
    the errors by signature number.

    Traces run in the calling thread, under its JAX options, such as a mesh. Each compilation runs
    in a thread of a pool.
    """
    positive_int("warm_up_all(..., threads=...)", threads, or_none=True)
    if jax.process_count() > 1:
        threads = 1  # all processes must trace in the same order
    errors: dict[int, Exception] = {}
    futures = {}
    pool = concurrent.futures.ThreadPoolExecutor(
        threads or os.cpu_count() or 1, "filterjit-warm-up"
    )
    try:
        for i, (args, kwargs) in enumerate(_checked(signatures)):
            try:
                finish = _stages.begin(f, (*first, *args), dict(kwargs))
                futures[i] = pool.submit(contextvars.copy_context().run, finish)
            except Exception as e:
                errors[i] = e
        for i, future in futures.items():
            try:
                future.result()
            except Exception as e:
                errors[i] = e
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    errors = dict(sorted(errors.items()))
    for i, error in errors.items():
        line, *_ = str(error).split("\n")
        logger.warning("warm_up_all: signature %d failed: %s: %s", i, type(error).__name__, line)
    return errors


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
