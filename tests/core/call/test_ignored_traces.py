"""Cache.ignore_trace: a trace whose program no call runs."""

from typing import Any

import pytest
from core_support import Array, called, core


def test_calls_prepare_for_no_exception_then() -> None:
    f, variant = called(lambda x: x, Array(1))
    core.output_flatten(variant.finish(Array(), Array))  # a trace whose program no call runs
    hooks, count = f._hooks, lambda: hooks.calls.count("before_raising_call")
    before = count()
    f(Array(1))
    assert count() == before + 1
    f._parts()[0].ignore_trace(variant, 1)
    f(Array(1))
    assert count() == before + 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [((), TypeError), ((None, 0), TypeError), (("variant", "0"), TypeError),
     (("variant", 1), IndexError), (("variant", -1), IndexError)],
)  # fmt: skip
def test_bad_arguments(arguments: Any, error: type[Exception]) -> None:
    f, variant = called(lambda x: x, Array(1))
    given = [variant if x == "variant" else x for x in arguments]
    with pytest.raises(error):
        f._parts()[0].ignore_trace(*given)
