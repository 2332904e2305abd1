"""``functions="structure"``: what code reaches by names, however it gets there, is noticed.

Nothing follows what bytecode does with a name, so where a value goes between the name and the
attribute that is read from it must not matter. The oracle is the function itself, without jit.
"""

import functools
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from filterjit._functions import _digest
from support.comparison import comparable
from support.functions import Counted, X

pytest.importorskip("flax")
pytest.importorskip("optax")
ORDINARY = ["Abstract", "Act", "Box", "Config", "Layer", "Linen", "OPTIMIZER", "Record", "Shaped",
            "Variables", "batched", "checkpointed", "helper", "loss", "mapped", "step"]  # fmt: skip


class Config:
    scale: Any = 1.0

    class Inner:
        scale: Any = 1.0


class Base:
    def get(self) -> Any:
        return Config.scale


class Derived(Base):
    pass


class Reads:
    @staticmethod
    def static() -> Any:
        return Config.scale

    @classmethod
    def of_class(cls) -> Any:
        return cls.__name__ and Config.scale

    @property
    def own(self) -> Any:
        return Config.scale

    @functools.cached_property
    def cached(self) -> Any:
        return Config.scale

    @functools.lru_cache(maxsize=0)  # noqa: B019
    def remembered(self) -> Any:
        return Config.scale

    def times(self, n: int) -> Any:
        return n * Config.scale

    once = functools.partialmethod(times, 1)
    items = (lambda: Config.scale,)


class Meta(type):
    def get(cls) -> Any:
        return Config.scale


class WithMeta(metaclass=Meta):
    pass


TABLE: dict[str, Any] = {"c": Config}
MODULE: Any = types.ModuleType("module_of_this_test")
MODULE.Config = Config
NAME = "scale"


def helper() -> Any:
    return Config.scale


def reads(c: Any) -> Any:
    return c.scale


jitted = jax.jit(lambda x: x * Config.scale)
mapped = jax.vmap(lambda x: x * Config.scale)
partial = functools.partial(reads, Config)


def _local(x: Any) -> Any:
    c = Config
    return x * c.scale


def _walrus(x: Any) -> Any:
    return x * (c := Config).scale + 0 * len(c.__name__)


def _loop(x: Any) -> Any:
    for c in (Config,):
        x = x * c.scale
    return x


def _nested(x: Any) -> Any:
    def inner() -> Any:
        c = Config
        return c.scale

    return x * inner()


def _unpacked(x: Any) -> Any:
    _, c = 1, Config
    return x * c.scale


def _imported(x: Any) -> Any:
    import module_of_this_test as module  # type: ignore[import-not-found]

    return x * module.Config.scale


def _imported_from(x: Any) -> Any:
    from module_of_this_test import Config as Other

    return x * Other.scale


# Each reads ``Config.scale``.
READ: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x * Config.scale,
    "a local variable": _local,
    "a walrus": _walrus,
    "a loop": _loop,
    "a nested function": _nested,
    "unpacked": _unpacked,
    "or": lambda x: x * (Config or None).scale,
    "if": lambda x: x * (Config if NAME else None).scale,  # type: ignore[union-attr]
    "a tuple": lambda x: x * (Config,)[0].scale,
    "a table": lambda x: x * TABLE["c"].scale,
    "a comprehension": lambda x: x * sum([c.scale for c in [Config]]),
    "a generator": lambda x: x * sum(c.scale for c in [Config]),
    "an instance": lambda x: x * Config().scale,
    "getattr": lambda x: x * getattr(Config, "scale"),  # noqa: B009
    "getattr by a global": lambda x: x * getattr(Config, NAME),
    "vars": lambda x: x * vars(Config)["scale"],
    "__dict__": lambda x: x * Config.__dict__[NAME],
    "attrgetter": lambda x: x * operator.attrgetter("scale")(Config),
    "another function": lambda x: x * reads(Config),
    "a helper": lambda x: x * helper(),
    "a partial": lambda x: x * partial(),
    "jax.jit": lambda x: jitted(x),
    "jax.vmap": lambda x: mapped(x),
    "a module": lambda x: x * MODULE.Config.scale,
    "getattr of a module": lambda x: x * getattr(MODULE, "Con" + NAME[:0] + "fig").scale,
    "an import": _imported,
    "from": _imported_from,
    "a method": lambda x: x * Base().get(),
    "an inherited method": lambda x: x * Derived().get(),
    "a static method": lambda x: x * Reads.static(),
    "a class method": lambda x: x * Reads.of_class(),
    "a property": lambda x: x * Reads().own,
    "a cached property": lambda x: x * Reads().cached,
    "an lru_cache": lambda x: x * Reads().remembered(),
    "a partialmethod": lambda x: x * Reads().once(),
    "a lambda in a class": lambda x: x * Reads.items[0](),
    "a metaclass": lambda x: x * WithMeta.get(),
    "a default": lambda x, c=Config: x * c.scale,
    "type": lambda x: x * type(Config())().scale,
    "eval": lambda x: x * eval("Con" + "fig").scale,
    "globals": lambda x: x * globals()["Config"].scale,
}


@pytest.mark.parametrize("name", READ)
def test_a_class_constant(apply: Counted, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change is noticed for a new function, and for the same one unless it is in doubt."""
    monkeypatch.setitem(sys.modules, "module_of_this_test", MODULE)
    f: Any = READ[name]
    in_doubt = name in ("eval", "globals")
    for scale in (1.0, 2.0, 1.0, True):
        monkeypatch.setattr(Config, "scale", scale)
        jitted.clear_cache()  # JAX's own, of the trace within the trace
        for _ in range(2):
            assert comparable(apply(_copy(f))) == comparable(X * scale)
            if not in_doubt:
                assert comparable(apply(f)) == comparable(X * scale)
    assert in_doubt or apply.count == 3


def _copy(f: Any) -> Any:
    new = types.FunctionType(f.__code__, globals(), f.__name__, f.__defaults__)
    new.__annotations__ = dict(f.__annotations__)
    return new


def test_an_inner_class(apply: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    for scale in (1.0, 2.0):
        monkeypatch.setattr(Config.Inner, "scale", scale)
        assert comparable(apply(lambda x: x * Config.Inner().scale)) == comparable(X * scale)
    assert apply.count == 2


def test_what_a_helper_names(apply: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is a default, a keyword-only default, an attribute or another function."""
    for scale in (1.0, 2.0):
        monkeypatch.setattr(reads, "__defaults__", (types.SimpleNamespace(scale=scale),))
        assert comparable(apply(lambda x: x * reads())) == comparable(X * scale)  # type: ignore[call-arg]
    monkeypatch.setattr(reads, "__defaults__", None)
    for value in (1.0, 2.0):
        monkeypatch.setattr(helper, "note", value, raising=False)
        assert comparable(apply(lambda x: x * helper.note)) == comparable(X * value)  # type: ignore[attr-defined]
    assert apply.count == 4


def test_a_trace_that_changes_a_class(apply: Counted) -> None:
    class Counter:
        traces = 0

    def act(x: Any) -> Any:
        Counter.traces += 1
        return x

    for _ in range(6):
        apply(act)
    assert Counter.traces == apply.count <= 2


def test_a_trace_that_changes_a_module(apply: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    MODULE.traces = 0

    def act(x: Any) -> Any:
        MODULE.traces += 1
        return x

    for _ in range(6):
        apply(act)
    assert MODULE.traces == apply.count <= 2


@pytest.mark.parametrize("name", ORDINARY)
def test_what_modules_commonly_have_puts_nothing_in_doubt(apply: Counted, name: str) -> None:
    from support import ordinary

    value = getattr(ordinary, name)
    make = lambda: lambda x: (x, value)[0]
    for _ in range(2):
        apply(make())
    assert apply.count == 1
    description = _digest.describe([(name, value)])
    assert description.doubts == []
    assert description.parts == _digest.describe([(name, value)]).parts


def test_installed_packages_are_taken_as_fixed(apply: Counted) -> None:
    """Ordinary functions are not in doubt."""
    make = lambda: lambda x: jnp.where(x > 0, jax.nn.gelu(x), jnp.sum(x) * Reads().times(1))
    for _ in range(3):
        apply(make())
    assert apply.count == 1
