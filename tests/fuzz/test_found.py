"""What the fuzzer has found, each as small as it can be told."""

import copy
import datetime
import decimal
from typing import Any

import jax.numpy as jnp
import pytest

from filterjit import filter_jit


def test_a_captured_keyword_after_another_was_given_in_its_place() -> None:
    """The variant of the replacement was kept as the one that the captured value is known to fit:
    the next call without it was answered with the replacement."""
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
    """Room was made for a variant whose trace then failed."""
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


def test_a_dropped_variant_answers_no_more() -> None:
    """A wrapper went on to use the variant of its last call after that had made room for others,
    and even after `clear_cache`, which did not know of it any more."""
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
    """The ``==`` of ranges compares the numbers that come out of them, and no bound."""
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
    """As ranges do: their ``==`` is coarser than what can be seen of them."""
    assert a == b
    f = filter_jit(lambda x, v: (x, v))
    x = jnp.array(1.0)
    for v in (a, b, copy.deepcopy(a), (a,), (b,)):
        assert repr(f(x, v)[1]) == repr(v)
    assert len(f.variants) == 4
