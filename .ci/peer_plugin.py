"""A plugin of pytest: filterjit in the place of what $PEER names, in its own tests; see
``peer_tests``."""

import atexit
import collections
import functools
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import jax

import filterjit

REAL = jax.jit
MADE: list[dict[str, int]] = []  # by each function made, the calls that it handed over


@functools.wraps(REAL)
def jit(*args: Any, **options: Any) -> Any:
    caller = str(sys._getframe(1).f_globals.get("__name__"))
    if not (caller.endswith("_test") or caller == "__main__"):
        return REAL(*args, **options)
    made = filterjit.jit(*args, **options)
    if args:
        MADE.append(made._hooks.handed_over)
    return made


def install_flax() -> None:
    import flax.nnx
    from flax.nnx import compat

    import filterjit.nnx
    from filterjit._nnx import _nnx_jit

    hand_over = _nnx_jit.NNXJit._hand_over

    def counted(self: Any, reason: str, args: Any, kwargs: Any) -> Any:
        MADE.append({reason: 1})
        return hand_over(self, reason, args, kwargs)

    _nnx_jit.NNXJit._hand_over = counted  # type: ignore[method-assign]
    for name in ("jit", "cached_partial"):
        ours = getattr(filterjit.nnx, name)
        setattr(flax.nnx, name, ours)
        setattr(compat, name, functools.partial(ours, graph=True, graph_updates=True))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts: collections.Counter[str] = collections.Counter()
    for handed_over in MADE:
        counts.update(handed_over)
    for reason, count in counts.most_common():
        terminalreporter.write_line(f"calls handed over: {reason}: {count}")


match os.environ["PEER"]:
    case "flax":
        install_flax()
    case "jax":
        jax.jit = jit
    case _:
        filterjit.install()

if __name__ == "__main__":  # runs the file of tests that is the first argument
    file = sys.argv[1]
    if any("worker_id" in argument for argument in sys.argv):
        del sys.argv[1]  # the first process starts the others with its own arguments
        atexit.register(pytest_terminal_summary, SimpleNamespace(write_line=print))
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__ = file
    with open(file, encoding="utf-8") as opened:
        exec(compile(opened.read(), file, "exec"), module.__dict__)
