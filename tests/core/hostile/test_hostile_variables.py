"""Python code that runs in the middle of a VariableJit's call and changes what the call looks at."""

import gc
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from core_support import Array, Maybe, OtherArray
from hostile_support import Once
from outcome_support import fail
from process_support import output_of
from thread_support import in_threads
from variable_support import (
    Level,
    Param,
    TraceState,
    Tree,
    Var,
    add_one,
    block,
    large,
    make_variable_jit,
    same_as_fresh,
    step,
    variables_in,
    warm,
)


class Loud(str):
    """A key of a dict that is compared in Python."""

    hook: Any = None
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        if Loud.hook is not None:
            Loud.hook()
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        if Loud.hook is not None:
            Loud.hook()
        return str.__lt__(self, other)


class Guard(Level):
    """Has a value that runs a hook."""

    hook: Any = None

    def __getattribute__(self, name: str) -> Any:
        hook = object.__getattribute__(self, "__dict__").get("hook")
        if name == "value" and hook is not None:
            hook()
        return object.__getattribute__(self, name)


@pytest.fixture(autouse=True)
def _without_hooks() -> Iterator[None]:
    yield
    Tree.on_describe = Loud.hook = None


# ---- faults that these tests have found ----


def test_captures_that_another_call_replaces() -> None:
    """A call in the middle of a walk fills the same record, with an argument that dies."""

    def fun(a: Any, small: Any, b: Any, c: Any) -> None:
        pass

    jit = make_variable_jit(fun, traced=lambda a, small, b, c: (None, b"", ()))
    a, b, c, small = large(), large(), large(), Var(Array(1), TraceState())
    warm(jit, a, small, b, c)

    def others() -> None:
        old, b.blocks[0] = b.blocks[0], block(99)
        for _ in range(3):
            jit(a, small, b, c)
        new = large()
        warm(jit, a, small, new, c)
        del new
        b.blocks[0] = old

    jit(a, Var(Array(1), TraceState(hook=Once(others))), b, c)
    assert jit.handed_over == []
    warm(jit, a, small, b, c)


def test_a_finalizer_at_the_end_of_a_walk() -> None:
    """It makes a call while what the walk has met is stored."""
    jit = make_variable_jit(lambda tree: None)

    class Dying(TraceState):
        def __del__(self) -> None:
            for i in range(5):
                jit([Var(Array(i), TraceState()) for _ in range(100)])

    for _ in range(10):
        more = [Var(Array(i), TraceState()) for i in range(50)]
        jit([Var(Array(1)), *more, Var(Array(2), Dying())])
        states = TraceState(hook=lambda: jit([Var(Array(2), Dying()) for _ in range(40)]))
        jit([Var(Array(1), states)])
    assert jit.handed_over == []


RECURSION = """
import functools, resource, sys
resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
from variable_support import *
from core_support import OtherArray
from outcome_support import raised
jit = make_variable_jit(lambda x: jit(x))
traced = make_variable_jit(lambda x: None, traced=lambda x: (None, b"", ()), graph=2)
unfinished = make_variable_jit(lambda x: None, traced=lambda x: (None, None, ()))
class Guard:
    value = property(lambda self: guarded(Array(1)))
guarded = make_variable_jit(lambda x: None, guards=((Guard(), "value", None, "no"),))
def native():
    state = type("State", (), {})()
    x = Var(Array(1), state)
    state.is_valid = functools.partial(traced, x)  # no Python frame
    return x
def handed():
    jit._reason = "reason"
    return jit(1)
def described():
    Tree.on_describe = lambda x: traced(Tree(a=Array(1)))
    return traced(Tree(a=Array(1)))
def new(): return Var(Array(1), TraceState(hook=lambda: traced(new())))
def finish():
    type(jit)._finish = lambda *args: unfinished(Array(1))
    return unfinished(Array(1))
def settle():
    type(jit)._settle = lambda *args: traced(Var(OtherArray(1)))
    return traced(Var(OtherArray(1)))
calls = {
    "native": lambda: traced(native()), "is_valid": lambda: traced(new()), "describe": described,
    "handed over": handed, "guard": lambda: guarded(Array(1)), "function": lambda: jit(Array(1)),
    "finish": finish, "settle": settle,
}
for f in (traced, unfinished):
    f(Array(1))
traced(Var(Array(1)))
for _ in range(3):
    raised(RecursionError, calls[NAME])
print("ended")
"""


@pytest.mark.parametrize(
    "name",
    ["native", "is_valid", "describe", "handed over", "guard", "function", "finish", "settle"],
)
def test_calls_within_calls_without_end(name: str) -> None:
    assert "ended" in output_of("-c", RECURSION.replace("NAME", repr(name)))


# ---- changes in the middle of a call ----


def _call_again(jit: Any, tree: Any) -> None:
    jit(tree)
    jit(large(3))
    jit(Var(Array(1), TraceState()))


def _new_blocks(jit: Any, tree: Any) -> None:
    tree.blocks[:] = [block(i) for i in range(len(tree.blocks))]


def _swap_and_call(jit: Any, tree: Any) -> None:
    _new_blocks(jit, tree)
    for _ in range(70):
        jit(tree)
    _new_blocks(jit, tree)
    gc.collect()


def _put(name: str, make: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    return lambda jit, tree: [setattr(x, name, make()) for x in variables_in(tree)]


ACTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "clear caches": lambda jit, tree: jit._inner._parts()[0].clear(),
    "call again": _call_again,
    "many calls": lambda jit, tree: [jit(tree) for _ in range(70)],
    "new blocks": _new_blocks,
    "no blocks": lambda jit, tree: tree.blocks.clear(),
    "reversed blocks": lambda jit, tree: tree.blocks.reverse(),
    "fewer blocks": lambda jit, tree: tree.blocks.pop(),
    "more blocks": lambda jit, tree: tree.blocks.append(block(3)),
    "no attributes": lambda jit, tree: vars(tree).clear(),
    "an attribute less": lambda jit, tree: vars(tree).pop("rng", None),
    "another dict": lambda jit, tree: setattr(tree, "__dict__", {}),
    "table": lambda jit, tree: tree.table.clear(),
    "values": _put("_raw_value", lambda: Array(50)),
    "states": _put("_trace_state", TraceState),
    "raise": lambda jit, tree: fail(),
    "another thread": lambda jit, tree: in_threads(lambda n: [jit(large(5))] * 3, 2),
    "swap and call": _swap_and_call,
    "reason": lambda jit, tree: setattr(jit, "_reason", "given"),
    "collect": lambda jit, tree: gc.collect(),
    "shared blocks": lambda jit, tree: tree.blocks.append(tree.blocks[0]),
    "a shared variable": lambda jit, tree: setattr(tree, "rng", tree.blocks[2].w),
    "a cycle": lambda jit, tree: tree.blocks[0].more.append(tree),
}


def _in_describe(jit: Any, tree: Any, hook: Any) -> None:
    Tree.on_describe = lambda x: hook()
    tree.blocks[1].new = 3


def _in_a_class(jit: Any, tree: Any, hook: Any) -> None:
    """In `classify`, of a type that is new."""
    tree.blocks[1].new = type("NewTree", (Tree,), {})(x=Var(Array(1)))
    Tree.on_describe = lambda x: hook()


def _in_a_key(jit: Any, tree: Any, hook: Any) -> None:
    tree.table.update({Loud(name): Var(Array(1)) for name in "zb"})
    Loud.hook = hook


def _in_a_finalizer(jit: Any, tree: Any, hook: Any) -> None:
    space = {"__slots__": (), "__del__": lambda self: hook()}
    tree.blocks[1].b._raw_value = type("Dying", (Array,), space)(3)
    tree.rng._raw_value = OtherArray(4)


WHERE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "state": lambda jit, tree, hook: setattr(
        tree.blocks[1].w, "_trace_state", TraceState(hook=hook)
    ),
    "describe": _in_describe,
    "class": _in_a_class,
    "key": _in_a_key,
    "guard": lambda jit, tree, hook: setattr(jit.level, "hook", hook),
    "is_array": lambda jit, tree, hook: setattr(tree.blocks[1], "x", Maybe(True, hook)),
    "finalizer": _in_a_finalizer,
    "function": lambda jit, tree, hook: setattr(jit, "in_function", hook),
}


def _share(tree: Any, other: Any) -> None:
    tree.blocks[4] = tree.blocks[0]
    tree.blocks[5].w = tree.blocks[1].w
    other.blocks[2] = tree.blocks[1]
    other.rng = tree.rng


def _change(where: str, action: str, is_warm: bool, at: int, graph: int = 0) -> None:
    level = Guard()

    def fun(tree: Any, other: Any = None) -> None:
        if jit.in_function is not None:
            jit.in_function()
        add_one([tree, other])

    jit = make_variable_jit(fun, graph, guards=((level, "value", None, "guard"),))
    jit.level, jit.in_function = level, None
    tree, other, bystander = large(6), large(6), [Var(Array(1000)), Param(Array(1001))]
    new, more = large(6), large(6)
    if graph:
        _share(tree, other), _share(new, more)
    if is_warm:
        warm(jit, tree, other)
    WHERE[where](jit, tree, Once(lambda: ACTIONS[action](jit, tree), at))
    for _ in range(3):
        try:
            jit(tree, other)
        except Exception as e:
            # The count of the Variables does not fit, or the Python code has left nothing to walk.
            assert "VariableJit: " in str(e) or not isinstance(e, SystemError), e
    assert [x._raw_value.value for x in bystander] == [1000, 1001]
    jit.in_function = level.hook = Loud.hook = Tree.on_describe = None
    if jit._reason is not None:
        del jit._reason
    for _ in range(3):
        same_as_fresh(jit, new, more)
    warm(jit, new, more)
    same_as_fresh(jit, new, more)
    same_as_fresh(jit, more, new)
    assert jit.handed_over == []


@pytest.mark.slow
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_change_in_the_middle_of_a_call(
    where: str, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No crash, and the calls after it are right."""
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    for is_warm in (False, True):
        for at in (1, 2, 5):
            _change(where, action, is_warm, at)
        _change(where, action, is_warm, 2, graph=1)


def test_an_error_in_a_finalizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    _change("finalizer", "raise", True, 1)


def test_random_changes_in_the_middle() -> None:
    source = random.Random(5)
    jit = make_variable_jit(step)
    trees = [large(6), large(6)]

    def act() -> None:
        if source.random() < 0.2:
            name = source.choice(list(ACTIONS))
            if name not in ("raise", "reason", "another thread"):
                ACTIONS[name](jit, trees[source.randrange(2)])

    for _ in range(150):
        try:
            for tree in trees:
                for x in variables_in(tree)[:: source.choice((1, 3, 7))]:
                    x._trace_state = TraceState(hook=Once(act))
            jit(*trees)
        except Exception as e:
            assert "VariableJit: " in str(e) or not isinstance(e, SystemError), e
        if source.random() < 0.3 or any("_pytree__nodes" not in vars(tree) for tree in trees):
            trees = [large(6), large(6)]
            for _ in range(source.choice((1, 70))):
                jit(*trees)
    same_as_fresh(jit, large(), large())


def test_threads() -> None:
    jit = make_variable_jit(step)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(n: int) -> None:
        tree = large(4 + n % 2)
        for i in range(150):
            if i % 40 == 0:
                tree.blocks[1] = block(1)
            before = [x._raw_value.value for x in variables_in(tree)]
            jit(tree, None)
            after = [x._raw_value.value for x in variables_in(tree)]
            assert after == [x + 1 + i if i % 2 == 0 else x for i, x in enumerate(before)]

    try:
        in_threads(work)
    finally:
        sys.setswitchinterval(interval)
    assert jit.handed_over == []
