"""Jupyter notebooks: the names of cells, and lines of output that change.

A notebook has imported IPython, so this module imports nothing new. If IPython fails, the program
gets no error: there is no name or no line then.
"""

import contextlib
import re
import sys
from collections.abc import Callable
from typing import Any


def _shell() -> Any:
    """Returns the shell of IPython that runs the program; None without."""
    get = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get is None else get()


def is_notebook() -> bool:
    """Whether the program runs in a kernel of Jupyter."""
    with contextlib.suppress(Exception):
        return getattr(_shell(), "kernel", None) is not None
    return False


def cells_run() -> int | None:
    """Returns how many cells were run; None without IPython."""
    with contextlib.suppress(Exception):
        found: int | None = getattr(_shell(), "execution_count", None)
        return found
    return None


def cell_of(file: str) -> str | None:
    """Returns what a notebook calls the cell that it compiled as `file`, such as ``In [3]``; None
    for any other file."""
    with contextlib.suppress(Exception):
        _, name = _shell().compile.format_code_name(file)
        found = re.search(r"\[(\d+)\]", name)
        return None if found is None else f"In [{found[1]}]"
    return None


def show_line(text: str) -> Callable[[str], None]:
    """Shows a line below the cell that runs. Returns a function that puts another text in its
    place."""
    with contextlib.suppress(Exception):
        from IPython.display import display

        handle = display({"text/plain": text}, raw=True, display_id=True)

        def replace(text: str) -> None:
            with contextlib.suppress(Exception):
                handle.update({"text/plain": text}, raw=True)

        return replace
    return lambda text: None
