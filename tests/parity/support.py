"""Bodies that run on both implementations, and what is compared of what they did."""

import collections
import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import filterjit

Jit = Callable[..., Any]
Body = Callable[[Jit], Any]


class Traces:
    """Counts how often a function is traced: call `tick` in its body."""

    def __init__(self) -> None:
        self.count = 0

    def tick(self) -> None:
        self.count += 1

    def counting(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """`fun`, ticking at each run of its Python code, with its signature."""

        @functools.wraps(fun)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return fun(*args, **kwargs)

        return counted


def picture(x: Any) -> Any:
    """All that can be seen of a value, as something that compares with ``==``.

    Types by name, since each run of a body makes its own classes; arrays with their dtype and
    weak type; dicts in their order.
    """
    kind = type(x).__qualname__
    if isinstance(x, jax.Array):
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return "key", str(x.dtype), x.shape, np.asarray(jax.random.key_data(x)).tolist()
        values = np.asarray(x).astype(complex if x.dtype.kind == "c" else object).tolist()
        return "Array", str(x.dtype), x.shape, x.weak_type, repr(values)
    if isinstance(x, (np.ndarray, np.generic)):
        return kind, str(x.dtype), x.shape, repr(x.tolist())
    if isinstance(x, collections.defaultdict):
        return kind, picture(x.default_factory), tuple((k, picture(v)) for k, v in x.items())
    if isinstance(x, dict):
        return kind, tuple((picture(k), picture(v)) for k, v in x.items())
    if isinstance(x, (tuple, list)):
        return (kind, *(picture(y) for y in x))
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        names = [f.name for f in dataclasses.fields(x)]
        own = {name: x.__dict__[name] for name in names if name in x.__dict__}
        # Equinox leaves its sentinel for "not there" in the __dict__ of a rebuilt Module.
        rest = {
            name: v
            for name, v in x.__dict__.items()
            if name not in own and type(v).__qualname__ != "_Missing"
        }
        return kind, picture(own), picture(rest)
    if callable(x) and hasattr(x, "__qualname__"):
        return "callable", x.__qualname__
    return kind, _without_addresses(repr(x))


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def check(body: Body) -> Any:
    """Runs `body` on both, asserts that both return the same, and returns Equinox's."""
    theirs = body(eqx.filter_jit)
    ours = body(filterjit.filter_jit)
    assert picture(ours) == picture(theirs)
    return theirs


def check_error(body: Body, kind: type[BaseException], match: str | None = None) -> BaseException:
    """Asserts that `body` raises the same on both: the type, and the first line of the text."""
    with pytest.raises(kind, match=match) as theirs:
        body(eqx.filter_jit)
    with pytest.raises(kind, match=match) as ours:
        body(filterjit.filter_jit)
    assert type(ours.value) is type(theirs.value)
    assert first_line(ours.value) == first_line(theirs.value)
    return theirs.value


def first_line(error: BaseException) -> str:
    return _without_addresses(str(error).split("\n", 1)[0])


def runtime_message(error: BaseException) -> str:
    """The message that was given to ``eqx.error_if``, out of the long text around it."""
    found = re.search(r"^equinox\.EquinoxRuntimeError: (.*?)\n\n-----", str(error), re.M | re.S)
    assert found is not None, str(error)
    return found[1]
