"""The command line: ``python -m filterjit``.

What a command needs is imported when it runs.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def _add_demo(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="train a classifier with equinox.filter_jit and with ours, and compare",
        description=(
            "Trains one small classifier of handwritten digits twice, with equinox.filter_jit "
            "and with filterjit.filter_jit, by turns. Prints a table, draws a picture, and fails "
            "if the two do not learn the very same numbers."
        ),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--steps", type=_count, default=6000, help="training steps of each")
    parser.add_argument("--batch-size", type=_count, default=32, help="digits a step")
    parser.add_argument("--seed", type=int, default=0, help="of parameters, batches and split")
    parser.add_argument(
        "--output",
        metavar="PREFIX",
        default="./demo",
        help="the picture goes to PREFIX.svg and PREFIX.png",
    )
    parser.add_argument("--no-plot", action="store_true", help="draw no picture")
    parser.set_defaults(run=_run_demo)


def _run_demo(options: argparse.Namespace) -> int:
    from ._commands import _demo

    return _politely(_demo.run, options)


def _add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run a program with ours in the place of equinox.filter_jit",
        description=(
            "Runs a script or a module as python itself would, with filterjit.filter_jit in the "
            "place of equinox.filter_jit, also in the libraries that the program uses."
        ),
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="at the end, tell on stderr where the time of the jitted functions went",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="tell on stderr, whenever a jitted function is traced again, why",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="run a module")
    parser.add_argument("program", help="the script, or the name of the module")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    parser.set_defaults(run=_run_program)


def _run_program(options: argparse.Namespace) -> int:
    from ._commands import _run

    _run.run(
        [options.program, *options.args],
        module=options.module,
        report=options.report,
        explain=options.explain,
    )
    return 0


def _add_show(commands: Any) -> None:
    parser = commands.add_parser(
        "show",
        help="tell what a file of `compiled.save` is",
        description="Tells what a file of `compiled.save` is, without loading it.",
    )
    parser.add_argument("file", help="the file")
    parser.set_defaults(run=lambda options: _politely(_show, options))


def _show(options: argparse.Namespace) -> int:
    from ._aot._file import saved_info

    try:
        print(saved_info(options.file))
    except (OSError, ValueError) as e:
        print(e, file=sys.stderr)
        return 1
    return 0


def _add_bench(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        help="time calls of ours, of equinox.filter_jit, of jax.jit and of others",
        description=(
            "Times what a call costs on many pytrees, by turns, and prints a table of ratios. "
            "Needs a source checkout: benchmarks/dispatch.py has more options."
        ),
    )
    parser.add_argument("--quick", action="store_true", help="a rough look")
    parser.add_argument(
        "--plot", metavar="FILE", help="draw how the cost grows with the number of arrays"
    )
    parser.set_defaults(run=_run_bench)


def _run_bench(options: argparse.Namespace) -> int:
    from ._commands import _bench

    return _bench.run(options)


def _parser() -> argparse.ArgumentParser:
    from . import __version__

    parser = argparse.ArgumentParser(
        prog="python -m filterjit", description="equinox.filter_jit with its dispatch in C."
    )
    parser.add_argument("--version", action="version", version=f"filterjit {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_run(commands)
    _add_show(commands)
    _add_bench(commands)
    return parser


@contextlib.contextmanager
def _no_lost_interrupt() -> Iterator[None]:
    """Raises a KeyboardInterrupt again that came where none can be raised.

    JAX has the garbage collector call Python. Ctrl-C there would be printed and forgotten.
    """
    import _thread
    import threading

    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            threading.Timer(0.02, _thread.interrupt_main).start()
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _politely(command: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Runs a command of ours: Ctrl-C is one line, and a reader that has enough is no error."""
    try:
        with _no_lost_interrupt():
            status = command(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status: 2 if it could not start, 130 after Ctrl-C."""
    options = _parser().parse_args(argv)
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    status = main()
    if status == 130:
        # At once: where JAX was compiling, a thread of its still is, and an orderly exit would
        # take the device away from under it, and crash.
        sys.stdout.flush()
        os._exit(status)
    sys.exit(status)
