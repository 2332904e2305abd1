"""Functions that fail, and what a call returns or raises."""

from collections.abc import Callable
from typing import Any


def nothing() -> None:
    pass


def fail(*args: Any) -> Any:
    raise ZeroDivisionError("on purpose")


def attempt(call: Callable[..., Any], *args: Any) -> Any:
    """Returns what the call returns, or the exception that it raises.  A SystemError is raised."""
    try:
        return call(*args)
    except SystemError:
        raise
    except Exception as e:
        return e


def raised(error: Any, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns the exception of the type `error` that the call raises, without its traceback.

    There may be several types."""
    try:
        call(*args, **kwargs)
    except error as e:
        return e.with_traceback(None)
    raise AssertionError(f"{call} did not raise {error}")
