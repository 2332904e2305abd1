"""The command line: ``filterjit`` or ``python -m filterjit``."""

import argparse
import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any


def _add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run a script with filterjit.filter_jit instead of equinox.filter_jit",
        usage="%(prog)s [-h] [--jax] [--report] [--explain] [--compare] (SCRIPT | -m MODULE | -c CODE) [argument ...]",
        description=(
            "Runs a script, module or string like python, with equinox.filter_jit replaced with "
            "filterjit.filter_jit, and flax.nnx.jit with filterjit.nnx.jit, in libraries too. SCRIPT "
            "can be a folder or a zip file with a __main__.py, or - for standard input."
        ),
    )
    parser.add_argument(
        "--jax",
        action="store_true",
        help="replace jax.jit with filterjit.jit too, except inside JAX itself",
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="at the end, print to stderr where the time of jitted functions went",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print to stderr the reason each time a function compiles again",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help=(
            "run the script four times, without and with filterjit, and print which is faster and "
            "if the output differs; use one that ends by itself and can be repeated"
        ),
    )
    parser.add_argument(
        "--times", type=int, metavar="N", default=1, help="with --compare: repeat the four runs"
    )
    # For the runs of --compare:
    parser.add_argument("--measured", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-m", metavar="MODULE", help="run a module instead of a script")
    parser.add_argument("-c", metavar="CODE", help="run a string instead of a script")
    parser.set_defaults(run=_run_program)


_EXPECTED = {"-m": "-m MODULE", "-c": "-c CODE"}
_OPTIONS = {"--jax", "--report", "--explain", "--compare", "--times"}


def _split_run(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits the arguments of `run` from the program's: ``-m``, ``-c`` or the script, and the
    rest."""
    for i, argument in enumerate(argv[1:], 1):
        if argv[i - 1] == "--times":
            continue
        if argument == "--":
            return [*argv[:i]], [*argv[i + 1 :]]
        if argument == "-" or not argument.startswith("-") or argument[:2] in ("-m", "-c"):
            before = {x.partition("=")[0] for x in argv[:i]}
            late = [x for x in argv[i + 1 :] if x.partition("=")[0] in _OPTIONS - before]
            if late:
                print(
                    f"run: the script gets `{late[0]}`: options of run come before the script "
                    "(and `--`, where it has such options)",
                    file=sys.stderr,
                )
            return [*argv[:i]], [*argv[i:]]
    return [*argv], []


def _run_program(options: argparse.Namespace) -> int:
    program: list[str] = options.program
    kind = program[0][:2] if program else ""
    if kind in ("-m", "-c"):
        program = [program[0][2:], *program[1:]] if program[0] != kind else program[1:]
    if not program:
        options.error(f"expected {_EXPECTED.get(kind, 'SCRIPT, -m MODULE or -c CODE')}")
    if not kind.startswith("-") and program[0].endswith(".ipynb"):
        options.error("a notebook is not a script: call `filterjit.install()` in its first cell")

    if options.compare:
        return _compare(program, kind, options)

    from ._commands import _run

    _run.run(program, kind, options)
    return 0


def _compare(program: list[str], kind: str, options: argparse.Namespace) -> int:
    if options.report or options.explain:
        options.error("--compare prints no report: leave out --report and --explain")
    if kind == "-":
        options.error("the script runs several times, and standard input can be read only once")
    if options.times < 1:
        options.error("--times must be at least 1")

    from ._commands import _pays

    given = [kind if kind in ("-m", "-c") else "--", *program]
    compare = functools.partial(_pays.compare, given, jax=options.jax, times=options.times)
    return _with_exit_status(lambda _: compare(), options)


def _add_show(commands: Any) -> None:
    parser = commands.add_parser(
        "show",
        help="list the signatures in a saved file",
        description="Lists the signatures in a file that `f.save` wrote. It loads no program.",
    )
    parser.add_argument("file", help="path of the file")
    parser.set_defaults(run=lambda options: _with_exit_status(_show, options))


def _show(options: argparse.Namespace) -> int:
    from ._aot._file import info_of

    try:
        print(info_of(options.file)["text"])
    except (OSError, ValueError) as e:
        print(f"show: {e}", file=sys.stderr)
        return 1
    return 0


class _ShowVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from ._base._versions import describe

        print(describe())
        parser.exit()


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Drop-in replacements for equinox.filter_jit, flax.nnx.jit and jax.jit, dispatched in C.",
    )
    parser.add_argument(
        "--version",
        action=_ShowVersion,
        nargs=0,
        help="show the versions of filterjit, JAX and Python, and exit",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_run(commands)
    _add_show(commands)
    for command in commands.choices.values():
        command.set_defaults(error=command.error, known=[*command._option_string_actions])
    return parser


def _with_exit_status(
    command: Callable[[argparse.Namespace], int], options: argparse.Namespace
) -> int:
    """Runs a command without a traceback after Ctrl-C, and returns its exit status: 130 after
    Ctrl-C, 141 if the reader of stdout has closed it, as in ``| head``."""
    try:
        status = command(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def main(argv: Sequence[str] | None = None, prog: str = "python -m filterjit") -> int:
    """Runs the command in `argv` and returns its exit status: 2 if it couldn't start, 130 after
    Ctrl-C. Errors call the program `prog`."""
    argv = list(sys.argv[1:] if argv is None else argv)
    program: list[str] = []
    if argv[:1] == ["run"]:
        argv, program = _split_run(argv)
    given = argparse.Namespace(program=program, prog=prog)
    options, unknown = _parser(prog).parse_known_args(argv, given)
    if unknown:
        from ._base._checks import did_you_mean

        hint = did_you_mean(unknown[0].partition("=")[0], options.known, 0.75)
        if not hint and argv[0] == "run":
            hint = " Put the script's own options after SCRIPT."
        options.error(f"unrecognized arguments: {' '.join(unknown)}.{hint}")
    status: int = options.run(options)
    return status


def _main_and_exit(prog: str) -> None:
    status = main(prog=prog)
    if status == 130:
        # A regular exit would destroy a device that a thread of JAX might be using, and crash.
        sys.stdout.flush()
        os._exit(status)
    if status != 0:
        sys.exit(status)


def script() -> None:
    """The command ``filterjit``. It finds the same modules as ``python -m filterjit``."""
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    _main_and_exit("filterjit")


if __name__ == "__main__":
    _main_and_exit("python -m filterjit")
