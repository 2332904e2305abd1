"""``python -m filterjit run``: a whole program with `install` in force, else as without us."""

import os
import runpy
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from .._base._package import PACKAGE
from .._install import install


def run(argv: Sequence[str], *, module: bool, report: bool, explain: bool) -> None:
    """Runs ``argv[0]``, a script or (`module`) a module, as ``python [-m]`` would.

    Exceptions, ``SystemExit`` and signals pass through, so the exit status is the program's.
    With `report`, the table of `_report` goes to stderr at the end; with `explain`, each retrace is
    explained on stderr when it happens.
    """
    install()
    if explain:
        from .._observe._retraces import log_retraces

        log_retraces()
    if report:
        from .._observe._report import keep_functions, time_calls

        keep_functions()
        time_calls()
    sys.excepthook = _without_our_frames(sys.excepthook)
    try:
        if module:
            _run_module(argv)
        else:
            _run_script(argv)
    finally:
        if report:
            from .._observe._report import report as make_report

            sys.stdout.flush()
            print(make_report().text(sys.stderr), file=sys.stderr)


def _run_module(argv: Sequence[str]) -> None:
    sys.argv = list(argv)
    sys.path[0] = os.getcwd()
    runpy.run_module(argv[0], run_name="__main__", alter_sys=True)


def _run_script(argv: Sequence[str]) -> None:
    path = argv[0]
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        sys.argv = list(argv)
        sys.path[0] = path
        runpy.run_path(path, run_name="__main__")
        return
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as e:
        # Python's own words and exit status.
        print(
            f"{sys.executable}: can't open file {os.path.abspath(path)!r}: "
            f"[Errno {e.errno}] {e.strerror}",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__, __spec__=None, __cached__=None)
    sys.modules["__main__"] = main
    sys.argv = list(argv)
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    exec(compile(source, path, "exec"), main.__dict__)


_Hook = Callable[[type[BaseException], BaseException, types.TracebackType | None], Any]


def _without_our_frames(hook: _Hook) -> _Hook:
    """A ``sys.excepthook`` that starts tracebacks where the program starts."""
    here = PACKAGE

    def excepthook(
        kind: type[BaseException], value: BaseException, tb: types.TracebackType | None
    ) -> None:
        while tb is not None:
            file = tb.tb_frame.f_code.co_filename
            if not (file.startswith((here, "<frozen runpy>")) or file == runpy.__file__):
                break
            tb = tb.tb_next
        hook(kind, value.with_traceback(tb), tb)

    return excepthook
