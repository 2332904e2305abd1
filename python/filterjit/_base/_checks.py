"""Checks of options that several functions take."""

from typing import Any


class _NotGiven:
    """The type of the default of an argument for which each value, None too, has a meaning."""

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN = _NotGiven()


def positive_int(option: str, value: Any, *, or_none: bool = False) -> None:
    """Raises ValueError if `value` is not a positive int; ``True`` is no int here.

    `option` names the option in the message, such as ``"filter_jit(..., maxsize=...)"``. With
    `or_none`, the option may also be None.
    """
    if value is None and or_none:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        expected = "a positive int or None" if or_none else "a positive int"
        raise ValueError(f"`{option}` must be {expected}, not {value!r}.")
