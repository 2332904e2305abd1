"""Faults that the fuzzer has found, each as a minimal test."""

import copy
import datetime
import decimal
from typing import Any

import jax.numpy as jnp
import pytest

from filterjit import filter_jit


def test_a_captured_keyword_after_a_call_that_replaced_it() -> None:
    """The partial remembered the variant of the replacement as the one for its captured value. The
    next call without a replacement ran that variant."""
    f = filter_jit(lambda x, y: (x, y))
    x = jnp.array(1.0)
    p = f.partial(y="captured")
    for _ in range(2):
        assert p(x, y="another")[1] == "another"
        assert p(x)[1] == "captured"
    q = f.partial(x=x, y=1)
    assert q(y=x)[1] == x and q()[1] == 1
    assert q(x=2)[0] == 2 and q()[0] == x


def test_a_failed_call_drops_nothing_from_a_full_cache() -> None:
    """A variant was evicted to make room for one whose trace then failed."""
    traced: list[Any] = []

    @filter_jit(maxsize=2)
    def f(x: Any, n: Any) -> Any:
        traced.append(n)
        if n == 0:
            raise ZeroDivisionError
        return x

    x = jnp.array(1.0)
    f(x, 1), f(x, 2)
    with pytest.raises(ZeroDivisionError):
        f(x, 0)
    assert len(f.variants) == 2
    f(x, 1), f(x, 2)
    assert traced == [1, 2, 0]


def test_an_evicted_variant_is_not_called() -> None:
    """A wrapper kept calling the variant of its last call after that variant was evicted, and even
    after `clear_cache`, which no longer knew it."""
    scale = 1

    def fun(x: Any, n: Any) -> Any:
        return scale * x

    f, g = filter_jit(fun, maxsize=1), filter_jit(fun, maxsize=1)
    x = jnp.array(1.0)
    p = f.partial(x)
    p(1), f(x, 2), g(x, 3)
    assert len(f.variants) == 1
    scale = 5
    f.clear_cache()
    assert f(x, 2) == 5 and p(1) == 5 and g(x, 3) == 5


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x,)], ids=["bare", "tuple"])
def test_ranges_of_equal_numbers(wrap: Any) -> None:
    """The ``==`` of ranges compares the numbers in them, not their bounds."""
    f = filter_jit(lambda x, r: (x, r))
    x = jnp.array(1.0)
    for r in (range(0, 3, 2), range(0, 4, 2), range(0), range(1, 1), range(0, 3, 2)):
        assert repr(f(x, wrap(r))[1]) == repr(wrap(r))
    assert len(f.variants) == 4


NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
EAST = datetime.timezone(datetime.timedelta(hours=1))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
        (NOON, NOON.astimezone(EAST)),
        (NOON.timetz(), NOON.astimezone(EAST).timetz()),
        (list[1], list[True]),  # type: ignore[misc]
    ],
    ids=lambda x: type(x).__name__,
)
def test_equal_values_that_behave_differently(a: Any, b: Any) -> None:
    """Their ``==`` ignores differences that can be seen, as that of ranges does."""
    assert a == b
    f = filter_jit(lambda x, v: (x, v))
    x = jnp.array(1.0)
    for v in (a, b, copy.deepcopy(a), (a,), (b,)):
        assert repr(f(x, v)[1]) == repr(v)
    assert len(f.variants) == 4
