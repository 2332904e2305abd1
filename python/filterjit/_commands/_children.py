"""Calls `install` in child processes of a program under ``python -m filterjit run``.

A forked child inherits everything. For ``spawn`` and ``forkserver``, ``multiprocessing`` starts a
new interpreter and first sends it the pickled dict of
``multiprocessing.spawn.get_preparation_data``: the parent's ``sys.path`` and ``sys.argv``, and the
place of its main module, which the child imports next. `inherit` wraps this function to add an
entry. The child ignores the entry, but unpickling it calls `set_up`, before the child imports the
main module. This covers all children that ``multiprocessing`` starts: ``Process``, ``Pool``,
``Manager``, ``concurrent.futures``, and their own children.

Interpreters started in other ways, for example with ``subprocess``, run on Equinox, because without
a file in ``site-packages``, nothing would read a message to them. The ``forkserver`` might import
the main module itself, on Equinox. The children that it forks replace its functions.
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
    """Makes children of this process call `install`, while it is installed here."""

    def replace() -> None:
        # Already imported; at the top, it would be imported in every program.
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


# The child must use this very package. `sys_path`, which multiprocessing sets next, might not lead
# to it: it could have been found in the working directory.
_CODE = """\
import sys
sys.path[:] = [folder, *sys_path]
import filterjit
sys.path[:] = sys_path
from filterjit._commands._children import set_up
set_up(explain, jax)
"""


class _SetUp:
    """Calls `set_up` when it is unpickled, and becomes None. The pickle doesn't refer to filterjit,
    because the child can't import it yet."""

    def __init__(self, sys_path: list[str], explain: bool, jax: bool) -> None:
        self._variables = {
            "sys_path": sys_path,
            "folder": os.path.dirname(PACKAGE),
            "explain": explain,
            "jax": jax,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (_CODE, self._variables)
