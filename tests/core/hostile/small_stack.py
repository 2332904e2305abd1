"""Uses deep trees, or calls within calls without end, on a thread with a small stack.

Usage: ``small_stack.py KIB DEPTH``, ``small_stack.py KIB variables`` or ``small_stack.py KIB calls``;
0 KiB stands for the main thread.
"""

import contextlib
import functools
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import core_support as cs
from core_support import Array, Box, Described, Hostile, Maybe, OtherArray, core, make_registry
from hooks_support import make_jit
from hostile_support import NESTS, made_of, nest, uses
from outcome_support import raised
from trees_support import tree_leaves
from variable_support import TraceState, Tree, Var, VariableJit, make_variable_jit

kept: list[Any] = []


def deep_trees(depth: int) -> Callable[[], None]:
    """The main thread makes trees and Structures, and the thread with the small stack uses them."""
    registry = make_registry()
    for name, (make, _) in NESTS.items():
        tree = nest(make, depth)
        kept.append((name, tree, made_of(registry, tree, tree)))

    def run() -> None:
        for name, tree, made in list(kept):
            new = made_of(registry, tree, tree)
            kept.append([uses(registry, tree, tree, each) for each in (made, new)])
            kept.append(new)
            print(name)

    return run


def deep_variables() -> None:
    """Calls with one Variable in a deep tree."""
    jit = make_variable_jit(lambda tree: None)
    makes: list[Callable[[Any], Any]] = [lambda t: [t], lambda t: (t,), lambda t: {"a": t}]
    for make in (*makes, lambda t: Tree(x=t)):
        for depth in (100, 900, 9_000, 50_000):
            tree: Any = Var(Array(1))
            for _ in range(depth):
                tree = make(tree)
            kept.append(tree)
            for call in (jit, jit, jit._nodes, jit):
                with contextlib.suppress(RecursionError):
                    call(tree)
            jit(Var(Array(1)))
    assert not any(jit.handed_over)


# ---- calls that make themselves again ----


def of_arguments() -> Iterator[tuple[str, Callable[[], Any]]]:
    f = make_jit(lambda x: 1)

    class Lacks(cs.Slots):
        def __getattr__(self, name: str) -> Any:
            return f(Lacks())

    class Told(Described):
        def describe(self) -> Any:
            return f(Told())

    makers: dict[str, Callable[[], Any]] = {
        "hash": lambda: Hostile(lambda: f(makers["hash"]())),
        "eq": lambda: Hostile(None, lambda: f(makers["eq"]()), hash_value=8),
        "is_array": lambda: Maybe(True, lambda: f(makers["is_array"]())),
        "flatten_one_level": lambda: Box([], hook=lambda: f(makers["flatten_one_level"]())),
        "getattr": Lacks,
        "describe": Told,
    }
    f(makers["eq"]())
    for name, make in makers.items():
        yield name, lambda make=make: f(make())  # type: ignore[misc]
    # The Structure tells of no Python code; an attribute that is missing later asks for some.
    known = [Lacks(x=Array(), y=Array(), tag=1)]
    f(known), f(known)
    del known[0].y
    yield "missing attribute", lambda: f(known)


def of_tree_functions() -> Iterator[tuple[str, Callable[[], Any]]]:
    registry = make_registry()
    calls: dict[str, Callable[[Any], Any]] = {
        "is_leaf": lambda f: tree_leaves(registry, 1, f),
        "partition": lambda f: core.partition(registry, [1], (("leaf", f),), None, None),
        "flatten": lambda f: core.tree_flatten(registry, 1, ("leaf", f), None),
        "pattern": lambda f: core.tree_flatten(registry, [1], ("path", (f,)), None),
    }
    nested = "tree", 0, lambda x: nested
    yield "filters", lambda: core.partition(registry, [1], (nested,), None, None)
    for name, call in calls.items():

        def again(x: Any = None, call: Callable[[Any], Any] = call) -> Any:
            return call(again)

        yield name, again


def of_variables() -> Iterator[tuple[str, Callable[[], Any]]]:
    class Guard:
        value = property(lambda self: guarded(Array(1)))

    class Told(Tree):
        def describe(self) -> Any:
            return traced(Told())

    class Ends(VariableJit):
        def _finish(self, *args: Any) -> Any:
            return finished(Array(1))

        def _settle(self, variables: Any) -> Any:
            return settled(Var(OtherArray(1)))

        def _hand_over(self, *args: Any) -> Any:
            handed._reason = "reason"
            return handed(1)

    make = functools.partial(make_variable_jit, lambda x: None)
    jit = make_variable_jit(lambda x: jit(x))
    guarded = make(guards=((Guard(), "value", None, "no"),))
    traced = make(traced=lambda x: (None, b"", ()), graph=2)
    settled = make(traced=lambda x: (None, b"", ()), graph=2, cls=Ends)
    finished = make(traced=lambda x: (None, None, ()), cls=Ends)
    handed = make(cls=Ends)
    handed._reason = "reason"

    def native() -> Any:
        state: Any = type("State", (), {})()
        x = Var(Array(1), state)
        state.is_valid = functools.partial(traced, x)  # no Python frame
        return traced(x)

    def new() -> Any:
        return Var(Array(1), TraceState(hook=lambda: traced(new())))

    for f in (traced, settled):
        f(Array(1)), f(Var(Array(1)))
    yield "native", native
    yield "is_valid", lambda: traced(new())
    yield "described", lambda: traced(Told())
    yield "handed over", lambda: handed(1)
    yield "guard", lambda: guarded(Array(1))
    yield "function", lambda: jit(Array(1))
    yield "finish", lambda: finished(Array(1))
    yield "settle", lambda: settled(Var(OtherArray(1)))


def endless_calls() -> None:
    for calls in (of_arguments, of_tree_functions, of_variables):
        for name, call in calls():
            print(name, flush=True)
            for _ in range(3):
                raised(RecursionError, call)


def main() -> None:
    size, what = sys.argv[1:]
    runs = {"calls": endless_calls, "variables": deep_variables}
    run = runs[what] if what in runs else deep_trees(int(what))

    def report() -> None:
        run()
        print("ended")

    if int(size) == 0:
        _, most = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, most))  # as on most systems
        report()
    else:
        threading.stack_size(int(size) << 10)
        thread = threading.Thread(target=report)
        thread.start()
        thread.join()
    if what != "calls":  # deep instances are deallocated recursively
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
