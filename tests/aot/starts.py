"""Starts programs in forked processes, which find JAX imported: importing takes longer than all else.

Standard input has a list of starts in JSON, each with the files to write, what to run, and its
arguments. What the starts have printed is written as a list of JSON, in the same order.
"""

import json
import os
import runpy
import sys
import traceback
import types
from pathlib import Path
from typing import Any


def start(files: dict[str, str], what: str, arguments: list[str]) -> Any:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.dup2(write, 1)
            sys.path.insert(0, os.getcwd())
            sys.argv = [what, *arguments]
            if what == "-c":
                main = sys.modules["__main__"] = types.ModuleType("__main__")
                exec(files[what], vars(main))
            elif what.startswith("-m"):
                runpy.run_module(what[2:], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(what, run_name="__main__")
            sys.stdout.flush()
        except SystemExit as e:  # of a parent that has waited for its child
            os._exit(int(bool(e.code)))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if status == 0 else f"status {status}"


if __name__ == "__main__":
    sys.dont_write_bytecode = True  # the files change within the resolution of their times
    import equinox  # noqa: F401 (children find it imported)

    import filterjit

    assert filterjit.filter_jit
    print(json.dumps([start(*one) for one in json.load(sys.stdin)]))
