"""Functions whose calls go straight to an executable, beside ``jax.jit`` of the same functions."""

import gc
import inspect
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np
import pytest

import filterjit
from filterjit import _core
from filterjit._call import _direct
from filterjit._compat import _direct_compat

from .comparison import Traces


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each second call direct, where nothing is against it."""
    if _direct._context is None:
        pytest.skip("this version of JAX lacks what direct calls need")
    monkeypatch.setattr(_direct._context, "enabled", 1)
    monkeypatch.setattr(_direct._context, "after", 0)


@pytest.fixture
def also_few_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes calls with NumPy arrays and numbers direct too if there are few other arrays."""
    monkeypatch.setattr(_direct_compat, "ARRAYS_A_PUT", 0)


def counts(f: Any) -> dict[str, int]:
    """Returns how many calls of a jitted or compiled function went which way."""
    found: dict[str, int] = {}
    for variant in _variants(f):
        for way, count in variant._call.counts.items():
            found[way] = found.get(way, 0) + count
    return found


def refusals(f: Any) -> list[str | None]:
    """Returns why there was no plan, for each variant of a jitted function."""
    return [variant._call.why_no_plan for variant in _variants(f)]


def _variants(f: Any) -> list[Any]:
    if isinstance(f, filterjit.types.Compiled):  # it holds a FilterJit, with the variant compiled
        (f,) = (x for x in gc.get_referents(f) if isinstance(x, _core.FilterJit))
    return list(f._parts()[0].variants())


def seen(tree: Any) -> Any:
    """Returns all that can be seen of a tree and of its arrays."""
    leaves, structure = jtu.tree_flatten(tree)
    return structure, [_leaf(x) for x in leaves]


def _leaf(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return x.dtype, x.shape, x.tobytes()
    return _array(x) if isinstance(x, jax.Array) else (type(x), x)


def _array(x: Any) -> Any:
    about = type(x), x.dtype, x.shape, x.sharding, x.is_deleted()
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return *about, jax.random.key_impl(x), _array(x._base_array)  # type: ignore[attr-defined]
    about += (x.weak_type, x.committed)
    values = [(shard.device, np.asarray(shard.data).tobytes()) for shard in x.addressable_shards]
    return *about, x.aval, getattr(x, "format", None), values


def outcome(f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Returns what can be seen of a call's result, or the type and the text of its error."""
    try:
        return seen(f(*args))
    except Exception as e:
        return type(e), re.sub(r"0x[0-9a-f]+", "0x", str(e))


class Beside:
    """A function under ``filter_jit``, and the same under ``jax.jit``.

    Each call is made with both, and both must do the same. `options` are those of ``filter_jit``.
    """

    def __init__(self, fun: Callable[..., Any], donate: str = "none", **options: Any) -> None:
        self.traces, self.traces_of_jax = Traces(), Traces()
        counted: Any = self.traces.counting(fun)
        self.ours: Any = filterjit.filter_jit(counted, donate=donate, **options)
        count = len(inspect.signature(fun).parameters)
        first = {"none": count, "all-except-first": 1}.get(donate, 0)
        donated = tuple(range(first, count))
        self.jax = jax.jit(self.traces_of_jax.counting(fun), donate_argnums=donated)

    def __call__(self, *args: Any) -> Any:
        """Calls both, and returns what was seen."""
        return self.with_fresh(lambda: args)

    def with_fresh(self, make: Callable[[], tuple[Any, ...]]) -> Any:
        """Calls both, each with arguments that `make` makes. They are compared after the call too:
        a call may delete them."""
        given, given_jax = make(), make()
        ours, theirs = outcome(self.ours, given), outcome(self.jax, given_jax)
        assert ours == theirs
        deleted = [[x.is_deleted() for x in _arrays(args)] for args in (given, given_jax)]
        assert deleted[0] == deleted[1]
        assert self.traces.count == self.traces_of_jax.count
        return ours

    def in_turn(self, calls: list[tuple[Any, ...]], is_direct: bool | None = None) -> None:
        """Calls both with these arguments: with the first, with each in turn, with each several
        times, with the second until calls with others rest, and with each again. Some of our calls
        must be direct, or none, if `is_direct` says so."""
        in_turn = [calls[0]] * 5 + calls * 4 + [given for given in calls for _ in range(3)]
        for given in (*in_turn, *calls[1:2] * 30, *calls):
            self(*given)
        found = counts(self.ours), refusals(self.ours)
        assert is_direct in (None, bool(self.direct)), found

    def feed(self, count: int, then: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
        """Calls both so many times, each with what `then` makes of its last result and arguments.
        Both must be given the same. Returns the last arguments of each."""
        ours = theirs = args
        for _ in range(count):
            ours = then(self.ours(*ours), *ours)
            theirs = then(self.jax(*theirs), *theirs)
            assert seen(ours) == seen(theirs)
        return ours, theirs

    @property
    def direct(self) -> int:
        """How many calls were direct."""
        return counts(self.ours).get("direct", 0)

    def until_direct(self, *args: Any) -> Any:
        """Calls both until our call is direct, and returns what was seen."""
        for _ in range(8):
            before = self.direct
            found = self(*args)
            if self.direct > before:
                return found
        raise AssertionError(f"no direct call: {counts(self.ours)}, {refusals(self.ours)}")

    def is_direct(self, *args: Any) -> bool:
        """Calls both, and returns whether our call was direct."""
        before = self.direct
        self(*args)
        return self.direct > before


def _arrays(tree: Any) -> list[Any]:
    return [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]
