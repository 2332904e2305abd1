"""Child processes of a program under ``python -m filterjit run``: `install` is called in them too.

A forked child has all that its parent has. For the start methods ``spawn`` and ``forkserver``,
``multiprocessing`` starts a new interpreter. Before anything else, it sends the pickled dict that
``multiprocessing.spawn.get_preparation_data`` returns: the ``sys.path`` and ``sys.argv`` of the
parent, and the place of its main module, which the child imports next. `inherit` replaces this
function by one that adds an entry. The child ignores the entry, but unpickling it calls `set_up`,
before the child imports the main module. So children that ``multiprocessing`` starts are covered:
``Process``, ``Pool``, ``Manager``, ``concurrent.futures``, and the children of children.

Interpreters that are started in other ways, for example with ``subprocess``, run on Equinox.
Without a file in ``site-packages``, nothing would read a message to them. The server of
``forkserver`` may import the main module itself, and does so on Equinox. The children that it forks
replace what it has made.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

from .. import _install
from .._base._after_import import after_import
from .._base._package import PACKAGE
from .._base._switches import switches


def inherit(explain: bool) -> None:
    """Makes the children of this process run after `install`, as long as it is installed here.

    Arguments:
        explain: whether the children explain retraces.
    """

    def replace() -> None:
        # Imported already: this module is not imported for programs that do without it.
        from multiprocessing import spawn

        original: Callable[..., dict[str, Any]] = spawn.get_preparation_data

        @functools.wraps(original)
        def get_preparation_data(*args: Any, **kwargs: Any) -> dict[str, Any]:
            data = original(*args, **kwargs)
            if _install.is_installed():
                data["filterjit"] = _SetUp(
                    data["sys_path"], explain, _install.is_installed(jax=True)
                )
            return data

        spawn.get_preparation_data = get_preparation_data

    after_import("multiprocessing.spawn", replace)


def set_up(explain: bool, jax: bool) -> None:
    """Prepares a child, before it imports the main module."""
    _install.install(jax=jax)
    inherit(explain)
    switches.explain = switches.explain or explain


# The child runs on the very package that this process runs on, which `sys_path` may not lead to:
# it was found in the working directory, for example. `sys_path` is what multiprocessing sets next.
_CODE = """\
import sys
sys.path[:] = [folder, *sys_path]
import filterjit
sys.path[:] = sys_path
from filterjit._commands._children import set_up
set_up(explain, jax)
"""


class _SetUp:
    """An object that calls `set_up` where it is unpickled, and becomes None.

    The pickle names nothing of filterjit's, because the child cannot import it yet.
    """

    def __init__(self, sys_path: list[str], explain: bool, jax: bool) -> None:
        self._variables = {
            "sys_path": sys_path,
            "folder": os.path.dirname(PACKAGE),
            "explain": explain,
            "jax": jax,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (_CODE, self._variables)
