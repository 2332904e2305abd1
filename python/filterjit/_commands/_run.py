"""``python -m filterjit run``: runs a program like python, after `install`.

The program gets its own ``__main__`` module, with python's usual names, until the interpreter ends.
``runpy._run_module_as_main``, which python itself calls, runs modules, folders and zip files.
Errors, warnings and tracebacks are therefore python's, and `sys.excepthook` is called without our
frames.

The differences:

- Our frames are below the program's in ``traceback.print_stack()`` and ``sys._getframe()``, and
  count towards the recursion limit.
- ``sys.orig_argv`` is filterjit's.
- ``sys.modules`` has the modules that `install` needs.
"""

import argparse
import builtins
import importlib.machinery
import os
import pkgutil
import runpy
import sys
import types
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from .._base._after_import import after_import
from .._base._switches import switches
from .._install import install


def run(argv: Sequence[str], kind: str, options: argparse.Namespace) -> None:
    """Runs a script, a module (``-m``) or code (``-c``) like python. Exceptions, including
    ``SystemExit``, are passed on, and set the program's exit status.

    Arguments:
        argv: the script's path, the module's name or the code, then the program's arguments. The
            path can be ``-`` for standard input, or a folder or zip file with a ``__main__.py``.
        kind: ``-m``, ``-c``, or anything else for a script.
        options: the options of the command.
    """
    if options.measured:
        from . import _pays

        _pays.record(options.measured)
    if not options.plain:
        install(jax=options.jax)
    switches.explain = switches.explain or options.explain
    if options.report:
        after_import("jax", _start_report)
    try:
        {"-m": _run_module, "-c": _run_text}.get(kind, _run_script)(argv)
    except SystemExit:
        raise
    except BaseException:
        sys.excepthook = _without_own_frames(sys.excepthook)
        raise
    finally:
        if options.report:
            _print_report(options)


def _start_report() -> None:
    from .._observe._recorder import recorder
    from .._observe._records import functions

    recorder.listen()  # even if the program jits nothing with filterjit
    functions.keep_alive()
    switches.time_calls = True


def _print_report(options: argparse.Namespace) -> None:
    """Prints the report, without affecting the exit status."""
    import_module("jax")  # first: hooks that wait for JAX import the modules below

    from .._observe._report import report
    from .._observe._report_output import advise

    found = report()
    sys.stdout.flush()
    advice = advise(found, explained=options.explain, jax=options.jax)
    print(found, advice, sep="\n", file=sys.stderr)


def _new_main() -> types.ModuleType:
    """Replaces the process's ``__main__`` with a new module, as at python's start. Returns it."""
    main = types.ModuleType("__main__")
    main.__loader__ = importlib.machinery.BuiltinImporter
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    return main


# python calls it for `-m` and for folders, with the same arguments.
_run_as_main: Callable[[str, bool], object] = runpy._run_module_as_main  # type: ignore[attr-defined]


def _run_module(argv: Sequence[str]) -> None:
    sys.argv = ["-m", *argv[1:]]  # until the module is found
    _new_main()
    _run_as_main(argv[0], True)


def _run_text(argv: Sequence[str]) -> None:
    sys.argv = ["-c", *argv[1:]]
    _set_first_path("")
    exec(compile(argv[0], "<string>", "exec", dont_inherit=True), _new_main().__dict__)


def _run_script(argv: Sequence[str]) -> None:
    path = argv[0]
    sys.argv = list(argv)
    if path == "-":
        _set_first_path("")
        _execute(_new_main(), "<stdin>", sys.stdin.buffer.read())
    elif pkgutil.get_importer(path) is not None:  # a folder or a zip file
        _set_first_path(os.path.join(os.getcwd(), path), always=True)
        _new_main()
        _run_as_main("__main__", False)
    else:
        _run_file(path)


def _run_file(path: str) -> None:
    file = os.path.join(os.getcwd(), path)  # not normalised, like python
    try:
        with open(path, "rb") as opened:
            source = opened.read()
    except OSError as e:
        # The same message and exit status as python's.
        print(
            f"{sys.executable}: can't open file {file!r}: [Errno {e.errno}] {e.strerror}",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    main = _new_main()
    if path.endswith(".pyc"):
        loader = importlib.machinery.SourcelessFileLoader("__main__", file)
        main.__loader__ = loader
        _execute(main, file, loader.get_code("__main__"))
    else:
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", file)
        _execute(main, file, source)


def _set_first_path(path: str, always: bool = False) -> None:
    """Replaces ``sys.path[0]``, which is the working directory because of ``-m filterjit``."""
    if not sys.flags.safe_path:
        sys.path[0] = path
    elif always:
        sys.path.insert(0, path)


def _execute(main: types.ModuleType, file: str, source: bytes | types.CodeType | None) -> None:
    names = main.__dict__
    names["__file__"] = file
    if sys.version_info < (3, 15):
        names["__cached__"] = None
    if isinstance(source, bytes):
        source = compile(source, file, "exec", dont_inherit=True)
    assert source is not None
    exec(source, names)
    # In python, code that runs after a script, such as `atexit` functions, doesn't see these.
    names.pop("__file__", None)
    names.pop("__cached__", None)


_Hook = Callable[[type[BaseException], BaseException, types.TracebackType | None], Any]


def _without_own_frames(hook: _Hook) -> _Hook:
    """Returns an excepthook that calls `hook` once, without this command's frames."""

    def excepthook(
        kind: type[BaseException], value: BaseException, tb: types.TracebackType | None
    ) -> None:
        sys.excepthook = hook
        while tb is not None and tb.tb_frame.f_code.co_filename != __file__:
            tb = tb.tb_next
        while tb is not None and tb.tb_frame.f_code.co_filename == __file__:
            tb = tb.tb_next
        sys.last_traceback = tb
        hook(kind, value.with_traceback(tb), tb)

    return excepthook
