"""Checks of options. Messages name them as users write them: ``"filter_jit(..., maxsize=...)"``."""

import difflib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


class _NotGiven:
    """The type of `NOT_GIVEN`, a default for arguments that can be None."""

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Any = _NotGiven()


def did_you_mean(given: Any, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns " Did you mean 'x'?", or "" if nothing is close."""
    others = [word for word in known if word != given]
    close = difflib.get_close_matches(given, others, 1, cutoff) if isinstance(given, str) else []
    return f" Did you mean {close[0]!r}?" if close else ""


def option_names(function: Callable[..., Any]) -> list[str]:
    """Returns the public keyword parameters that have a default."""
    parameters = inspect.signature(function).parameters.values()
    # Before JAX 0.6, options of jax.jit can be passed by position too.
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = [p.name for p in parameters if p.kind in kinds and p.default is not p.empty]
    return [name for name in found if not name.startswith("_")]


def known_options(
    function: str,
    given: Iterable[str],
    known: Iterable[str],
    others: Mapping[str, str] | None = None,
) -> None:
    """Raises TypeError for an unknown keyword argument of `function`, with Python's wording.
    `others` maps options of similar functions to advice."""
    known, others = list(known), others or {}
    for name in given:
        if name not in known:
            raise TypeError(
                f"{function}() got an unexpected keyword argument {name!r}."
                + (
                    (name in others and f" {others[name]}")
                    or did_you_mean(name, known)
                    or did_you_mean(name, others)
                    or f" There are {', '.join(map(repr, known))}."
                )
            )


def one_of(option: str, value: Any, words: Sequence[str], *, also: str = "") -> None:
    """Raises ValueError unless `value` is one of some words. `also` describes other valid values,
    which the caller has already accepted."""
    if not (isinstance(value, str) and value in words):
        *first, last = map(repr, words)
        listed = f"{', '.join(first)}{',' * (len(first) > 1)} or {last}"
        raise ValueError(
            f"`{option}` must be one of {listed}.\nIt is {value!r}."
            + did_you_mean(value, words)
            + (f" It can also be {also}." if also else "")
        )


def check_bool(option: str, value: Any, *, or_none: bool = False) -> None:
    """Raises ValueError unless `value` is a bool, or None with `or_none`."""
    if not (isinstance(value, bool) or (value is None and or_none)):
        raise ValueError(f"`{option}` must be a bool{' or None' * or_none}, not {value!r}.")


def positive_int(option: str, value: Any, *, or_none: bool = False) -> None:
    """Raises ValueError unless `value` is a positive int (not ``True``), or None with `or_none`."""
    if value is None and or_none:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        expected = "a positive int or None" if or_none else "a positive int"
        raise ValueError(f"`{option}` must be {expected}, not {value!r}.")


def check_callable(option: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(f"`{option}` must be a function, not {value!r}.")


def as_path(option: str, value: Any) -> str:
    """Returns a path as a str. Raises TypeError for anything else."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"`{option}` must be the path of a file, not {value!r}.")
    return os.fsdecode(value)
