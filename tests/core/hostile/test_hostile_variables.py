"""Python code that runs in the middle of a VariableJit's call, where the hostile matrix
(core/catalogue) does not tell what is right."""

import sys
from typing import Any

from core_support import Array
from hostile_support import Once
from thread_support import in_threads
from variable_support import (
    TraceState,
    Var,
    block,
    large,
    make_variable_jit,
    step,
    variables_in,
    warm,
)


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
