"""``python -m filterjit run``: runs a program after `install`, otherwise as python does."""

import os
import runpy
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from .._base._package import PACKAGE
from .._install import install


def run(argv: Sequence[str], *, module: bool, report: bool, explain: bool) -> None:
    """Runs a script, or a module if `module` is true, as ``python [-m]`` does.

    Exceptions, including ``SystemExit``, are passed on, so the exit status is that of the program.

    Arguments:
        argv: the path of the script or the name of the module, then the program's arguments.
        module: whether ``argv[0]`` is a module.
        report: whether to print a report of the jitted functions to stderr at the end.
        explain: whether to print an explanation of each retrace to stderr.
    """
    install()
    if explain:
        from .._observe._retraces import log_retraces

        log_retraces()
    if report:
        from .._observe._report import keep_functions, time_calls

        keep_functions()
        time_calls()
    sys.excepthook = _without_own_frames(sys.excepthook)
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
        # The message and the exit status are those of python.
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


def _without_own_frames(hook: _Hook) -> _Hook:
    """Returns an excepthook that omits the frames of this command from tracebacks."""

    def excepthook(
        kind: type[BaseException], value: BaseException, tb: types.TracebackType | None
    ) -> None:
        while tb is not None:
            file = tb.tb_frame.f_code.co_filename
            if not (file.startswith((PACKAGE, "<frozen runpy>")) or file == runpy.__file__):
                break
            tb = tb.tb_next
        hook(kind, value.with_traceback(tb), tb)

    return excepthook
