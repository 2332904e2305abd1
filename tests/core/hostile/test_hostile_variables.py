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


@pytest.fixture(autouse=True)
def _without_a_hook() -> Iterator[None]:
    yield
    Tree.on_describe = None


def nothing_is_returned(*args: Any) -> tuple[None, bytes, tuple[()]]:
    return None, b"", ()


# ---- faults that these tests have found ----


def test_captures_that_another_call_replaces() -> None:
    """A call in the middle of a walk fills the same record, with an argument that dies."""

    def fun(a: Any, small: Any, b: Any, c: Any) -> None:
        pass

    jit = make_variable_jit(fun, traced=lambda a, small, b, c: nothing_is_returned())
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
def state(f, make): return TraceState(hook=lambda: f(make()))
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


def _clear_caches(jit: Any, tree: Any) -> None:
    jit._inner._parts()[0].clear()


def _call_again(jit: Any, tree: Any) -> None:
    jit(tree)
    jit(large(3))
    jit(Var(Array(1), TraceState()))


def _many_calls(jit: Any, tree: Any) -> None:
    for _ in range(70):
        jit(tree)


def _new_blocks(jit: Any, tree: Any) -> None:
    for i in range(len(tree.blocks)):
        tree.blocks[i] = block(i)


def _values(jit: Any, tree: Any) -> None:
    for x in variables_in(tree):
        x._raw_value = Array(50)


def _states(jit: Any, tree: Any) -> None:
    for x in variables_in(tree):
        x._trace_state = TraceState()


def _other_calls(jit: Any, tree: Any) -> None:
    in_threads(lambda n: [jit(large(5)) for _ in range(3)], 2)


def _swap_and_call(jit: Any, tree: Any) -> None:
    _new_blocks(jit, tree)
    _many_calls(jit, tree)
    _new_blocks(jit, tree)
    gc.collect()


ACTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "clear caches": _clear_caches,
    "call again": _call_again,
    "many calls": _many_calls,
    "new blocks": _new_blocks,
    "no blocks": lambda jit, tree: tree.blocks.clear(),
    "reversed blocks": lambda jit, tree: tree.blocks.reverse(),
    "fewer blocks": lambda jit, tree: tree.blocks.pop(),
    "more blocks": lambda jit, tree: tree.blocks.append(block(3)),
    "no attributes": lambda jit, tree: vars(tree).clear(),
    "an attribute less": lambda jit, tree: vars(tree).pop("rng", None),
    "another dict": lambda jit, tree: setattr(tree, "__dict__", {}),
    "table": lambda jit, tree: tree.table.clear(),
    "values": _values,
    "states": _states,
    "raise": lambda jit, tree: fail(),
    "another thread": _other_calls,
    "swap and call": _swap_and_call,
    "reason": lambda jit, tree: setattr(jit, "_reason", "given"),
    "collect": lambda jit, tree: gc.collect(),
    "shared blocks": lambda jit, tree: tree.blocks.append(tree.blocks[0]),
    "a shared variable": lambda jit, tree: setattr(tree, "rng", tree.blocks[2].w),
    "a cycle": lambda jit, tree: tree.blocks[0].more.append(tree),
}


class Guard(Level):
    """Has a value that runs a hook."""

    hook: Any = None

    def __getattribute__(self, name: str) -> Any:
        hook = object.__getattribute__(self, "__dict__").get("hook")
        if name == "value" and hook is not None:
            hook()
        return object.__getattribute__(self, name)


class Loud(str):
    """A key of a dict that is compared in Python."""

    hook: Any = None

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        if Loud.hook is not None:
            Loud.hook()
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        if Loud.hook is not None:
            Loud.hook()
        return str.__lt__(self, other)


def _in_a_state(jit: Any, tree: Any, hook: Any) -> Any:
    tree.blocks[1].w._trace_state = TraceState(hook=hook)


def _in_describe(jit: Any, tree: Any, hook: Any) -> Any:
    Tree.on_describe = lambda x: hook()
    tree.blocks[1].new = 3


def _in_a_class(jit: Any, tree: Any, hook: Any) -> Any:
    """In `classify`, of a type that is new."""
    tree.blocks[1].new = type("NewTree", (Tree,), {})(x=Var(Array(1)))
    Tree.on_describe = lambda x: hook()


def _in_a_key(jit: Any, tree: Any, hook: Any) -> Any:
    tree.table[Loud("z")] = Var(Array(1))
    tree.table[Loud("b")] = Var(Array(1))
    Loud.hook = hook


def _in_a_guard(jit: Any, tree: Any, hook: Any) -> Any:
    jit.level.hook = hook


def _in_is_array(jit: Any, tree: Any, hook: Any) -> Any:
    tree.blocks[1].x = Maybe(True, hook)


def _in_a_finalizer(jit: Any, tree: Any, hook: Any) -> Any:
    class Dying(Array):
        __slots__ = ()

        def __del__(self) -> None:
            hook()

    tree.blocks[1].b._raw_value = Dying(3)
    tree.rng._raw_value = OtherArray(4)


def _in_the_function(jit: Any, tree: Any, hook: Any) -> Any:
    jit.in_function = hook


WHERE = {
    "state": _in_a_state,
    "describe": _in_describe,
    "class": _in_a_class,
    "key": _in_a_key,
    "guard": _in_a_guard,
    "is_array": _in_is_array,
    "finalizer": _in_a_finalizer,
    "function": _in_the_function,
}


@pytest.mark.slow
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_change_in_the_middle_of_a_call(where: str, action: str) -> None:
    """No crash, and the calls after it are right."""
    if (where, action) == ("finalizer", "raise"):
        return  # see test_an_error_in_a_finalizer
    for is_warm in (False, True):
        for at in (1, 2, 5):
            _change_in_the_middle(where, action, is_warm, at)
        _change_in_the_middle(where, action, is_warm, 2, graph=1)


def test_an_error_in_a_finalizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    _change_in_the_middle("finalizer", "raise", True, 1)


def _change_in_the_middle(where: str, action: str, is_warm: bool, at: int, graph: int = 0) -> None:
    level = Guard()

    def fun(tree: Any, other: Any = None) -> None:
        if jit.in_function is not None:
            jit.in_function()
        add_one([tree, other])

    jit = make_variable_jit(fun, graph, guards=((level, "value", None, "guard"),))
    jit.level, jit.in_function = level, None
    tree, other, bystander = large(6), large(6), [Var(Array(1000)), Param(Array(1001))]
    if graph:
        _share(tree, other)
    if is_warm:
        warm(jit, tree, other)
    hook = Once(lambda: ACTIONS[action](jit, tree), at)
    WHERE[where](jit, tree, hook)
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
    new, more = large(6), large(6)
    if graph:
        _share(new, more)
    for _ in range(3):
        same_as_fresh(jit, new, more)
    warm(jit, new, more)
    same_as_fresh(jit, new, more)
    same_as_fresh(jit, more, new)
    assert jit.handed_over == []


def _share(tree: Any, other: Any) -> None:
    tree.blocks[4] = tree.blocks[0]
    tree.blocks[5].w = tree.blocks[1].w
    other.blocks[2] = tree.blocks[1]
    other.rng = tree.rng


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
            same_as_fresh_in_a_thread(tree)

    def same_as_fresh_in_a_thread(tree: Any) -> None:
        before = [x._raw_value.value for x in variables_in(tree)]
        jit(tree, None)
        after = [x._raw_value.value for x in variables_in(tree)]
        expected = [x + 1 + i if i % 2 == 0 else x for i, x in enumerate(before)]
        assert after == expected

    try:
        in_threads(work)
    finally:
        sys.setswitchinterval(interval)
    assert jit.handed_over == []
