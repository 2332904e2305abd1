"""Jupyter notebooks: names of cells, and updatable lines of output. An error in IPython never
reaches the program: it then gets no name or line."""

import contextlib
import re
import sys
from collections.abc import Callable
from typing import Any


def _shell() -> Any:
    """Returns the IPython shell that runs the program, or None."""
    get = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get is None else get()


def is_notebook() -> bool:
    """True in a Jupyter kernel."""
    with contextlib.suppress(Exception):
        return getattr(_shell(), "kernel", None) is not None
    return False


def cells_run() -> int | None:
    """Returns the number of executed cells, or None outside IPython."""
    with contextlib.suppress(Exception):
        found: int | None = getattr(_shell(), "execution_count", None)
        return found
    return None


def cell_of(file: str) -> str | None:
    """Returns the name of a notebook's cell compiled as `file`, such as ``In [3]``, or None."""
    with contextlib.suppress(Exception):
        _, name = _shell().compile.format_code_name(file)
        found = re.search(r"\[(\d+)\]", name)
        return None if found is None else f"In [{found[1]}]"
    return None


def show_line(text: str) -> Callable[[str], None]:
    """Shows a line below the running cell. Returns a function that replaces its text."""
    with contextlib.suppress(Exception):
        from IPython.display import display

        handle = display({"text/plain": text}, raw=True, display_id=True)

        def replace(text: str) -> None:
            with contextlib.suppress(Exception):
                handle.update({"text/plain": text}, raw=True)

        return replace
    return lambda text: None
