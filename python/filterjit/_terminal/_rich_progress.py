"""Progress displays on stderr by ``rich``, where there is a terminal and ``rich`` is installed."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress


def stderr_is_terminal() -> bool:
    """Whether stderr is a terminal; False where it is None, closed or another kind of object."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except Exception:
        return False


def progress(columns: Callable[[Any], Sequence[Any]], **options: Any) -> "Progress | None":
    """Returns a ``rich.progress.Progress`` on stderr that leaves nothing there when it stops.

    Returns None if stderr is not a terminal, if the terminal cannot move its cursor, or if
    ``rich`` is not installed.

    Arguments:
        columns: a function that returns the columns of the display, given the module
            ``rich.progress``. It is a function because ``rich`` is imported here only.
        options: further options of the Progress. ``auto_refresh=False`` makes it work without a
            thread of its own.
    """
    if not stderr_is_terminal():
        return None
    try:
        import rich.progress
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        return None
    return rich.progress.Progress(
        *columns(rich.progress),
        console=console,
        transient=True,
        # A redirection would put the old sys.stdout back at the end, although the program may
        # have replaced it in the meantime.
        redirect_stdout=False,
        redirect_stderr=False,
        **options,
    )
