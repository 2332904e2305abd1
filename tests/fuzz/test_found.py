"""Faults that the fuzzer has found, each as a minimal test."""

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
