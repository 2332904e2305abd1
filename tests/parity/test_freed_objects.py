"""How long functions, arrays and static values live.

Most tests run on filterjit only: Equinox keeps static values forever.
"""

import copy
import dataclasses
import functools
import pickle
import types
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from support.comparison import Jit, Traces
from support.lifetimes import collect, freed
from support.modules import Holder
from support.trees import ONE


class Token:
    """A static value to which weak references can be made."""


def of_a_local_class(token: Any) -> Any:
    class C:
        def __init__(self) -> None:
            self.token = token

        def method(self, x: Any, s: Any) -> Any:
            return x, s, self.token

        def __call__(self, x: Any, s: Any) -> Any:
            return x, s, token

    return C()


def returning_modules(token: Any) -> Any:
    class M(eqx.Module):
        x: Any
        token: Any = eqx.field(static=True)

    return lambda x, s: (M(x, token), s, (lambda: token))


def wrapped(token: Any) -> Any:
    def f(x: Any, s: Any) -> Any:
        return x, token

    return functools.wraps(f)(lambda *args: f(*args))


def taking(bound: Any, x: Any, s: Any) -> Any:
    return bound, x, s


FUNCTIONS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "function": lambda token: lambda x, s: x + 1,
    "closure": lambda token: lambda x, s: (x + 1, token, s),
    "method": lambda token: of_a_local_class(token).method,
    "callable": of_a_local_class,
    "returning Modules": returning_modules,
    "functools.partial": lambda token: functools.partial(copied(taking), token),
    "jtu.Partial": lambda token: jtu.Partial(copied(taking), token),
    "eqx.Partial": lambda token: eqx.Partial(copied(taking), token),
    "wrapped": wrapped,
    "jitted twice": lambda token: filterjit.filter_jit(lambda x, s: (x, s, token)),
    "transformed": lambda token: eqx.filter_grad(
        lambda x, s: (jnp.sum(x), (s, token)), has_aux=True
    ),
}


def copied(fun: Any) -> Any:
    """Returns a new function, which nothing keeps alive."""
    return types.FunctionType(fun.__code__, fun.__globals__, fun.__name__)


@pytest.mark.parametrize("form", FUNCTIONS)
@freed
def test_functions_die(form: str) -> list[Any]:
    """A jitted function, its static values and its programs die together."""
    token = Token()
    fun = FUNCTIONS[form](token)
    f = filterjit.filter_jit(fun)
    f(ONE, token)
    f(ONE, [token, 1])
    f(jnp.ones(3), token)
    variants = f._parts()[0].variants()
    assert len(variants) == 2
    watched = [token, f, f._parts()[0], *variants, *(v.call for v in variants)]
    watched += [fun] * (type(fun).__weakrefoffset__ != 0)
    return [weakref.ref(x) for x in watched]


@pytest.mark.parametrize("what", ["instance", "method", "jitted method"])
@freed
def test_modules_die(what: str) -> list[Any]:
    """The wrapper, the model and its arrays die. The caches belong to the function in the class, which
    JAX's registry of pytrees keeps alive forever, and so do the static values."""

    class M(eqx.Module):
        token: Any
        w: Any

        def method(self, x: Any) -> Any:
            return self.w * x

        def __call__(self, x: Any) -> Any:
            return self.w + x

        @filterjit.filter_jit
        def jitted(self, x: Any) -> Any:
            return self.w - x

    m = M("static", jnp.ones(7))
    fun = {"instance": m, "method": m.method, "jitted method": m.jitted}[what]
    f = filterjit.filter_jit(fun)
    f(ONE)
    f(jnp.ones(7))
    return [weakref.ref(x) for x in (f, m, m.w)]


class Trainer:
    """An object of a class that lives forever, with all forms of jitted methods."""

    def __init__(self) -> None:
        self.token = Token()
        self.step = filterjit.filter_jit(self._step)

    def _step(self, x: Any, s: Any = None) -> Any:
        return x, s, self.token

    def __call__(self, x: Any, s: Any = None) -> Any:
        return x, s, self.token

    @classmethod
    def make(cls, x: Any, s: Any = None) -> Any:
        return x, s


@dataclasses.dataclass
class Comparable:
    """Equal instances, which have no hash."""

    rate: float = 0.5

    def step(self, x: Any, s: Any = None) -> Any:
        return x * self.rate, s


METHODS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "method": lambda: (t := Trainer(), filterjit.filter_jit(t._step)),
    "own attribute": lambda: (t := Trainer(), t.step),
    "callable": lambda: (t := Trainer(), filterjit.filter_jit(t)),
    "__call__": lambda: (t := Trainer(), filterjit.filter_jit(t.__call__)),
    "dataclass": lambda: (t := Comparable(), filterjit.filter_jit(t.step)),
    "twice": lambda: (t := Trainer(), filterjit.filter_jit(filterjit.filter_jit(t._step))),
    "functools.partial": lambda: (
        t := Trainer(),
        filterjit.filter_jit(functools.partial(t._step, s=1)),
    ),
    "eqx.Partial": lambda: (t := Trainer(), filterjit.filter_jit(eqx.Partial(t._step, s=1))),
    "jtu.Partial": lambda: (t := Trainer(), filterjit.filter_jit(jtu.Partial(t._step, s=1))),
    "options": lambda: (t := Trainer(), filterjit.filter_jit(t._step, donate="all", maxsize=2)),
}


@pytest.mark.parametrize("form", METHODS)
@freed
def test_programs_of_methods_die_with_the_instance(form: str) -> list[Any]:
    """The class and its functions live on."""
    watched = []
    for _ in range(4):
        instance, f = METHODS[form]()
        # Another instance may refer to it, and so may a static argument.
        instance.other = type(instance)()
        instance.other.other = instance
        if "artial" not in form:  # `s` is given
            f(jnp.ones(3), instance._step if hasattr(instance, "_step") else f)
        f(jnp.ones(3)), f(jnp.ones(4)), f(jnp.ones(3))
        variants = f._parts()[0].variants()
        watched += [weakref.ref(x) for x in (instance, f, f._parts()[0], *variants)]
    return watched


@pytest.mark.parametrize("form", METHODS)
def test_programs_of_methods_live_as_long_as_the_instance(
    form: str, jit: Jit, traces: Traces
) -> None:
    """A wrapper that is made again shares the programs, as in Equinox."""
    if form in ("own attribute", "options"):
        pytest.skip("not for both")

    class Counting:
        @traces.counting
        def step(self, x: Any) -> Any:
            return x

        def __call__(self, x: Any) -> Any:
            return self.step(x)

    make: dict[str, Callable[[Any], Any]] = {
        "method": lambda t: jit(t.step),
        "callable": lambda t: jit(t),
        "__call__": lambda t: jit(t.__call__),
        "dataclass": lambda t: jit(t.step, donate="none"),
        "twice": lambda t: jit(jit(t.step)),
        "eqx.Partial": lambda t: jit(eqx.Partial(t.step)),
        "jtu.Partial": lambda t: jit(jtu.Partial(t.step)),
        "functools.partial": lambda t, made={}: jit(
            made.setdefault(id(t), functools.partial(t.step))
        ),
    }
    one, two = Counting(), Counting()
    for _ in range(3):
        make[form](one)(ONE), make[form](two)(ONE)
        collect()
    assert traces.count == 2


def test_where_the_programs_of_a_method_are() -> None:
    """In the attributes of the instance, but not in its copies and pickles."""
    instance = Comparable()
    filterjit.filter_jit(instance.step)(ONE)
    assert set(vars(instance)) == {"rate", "__filterjit_caches__"}
    assert instance == Comparable() and repr(instance) == "Comparable(rate=0.5)"
    assert dataclasses.asdict(instance) == {"rate": 0.5}
    for twin in (
        copy.copy(instance),
        copy.deepcopy(instance),
        pickle.loads(pickle.dumps(instance)),
    ):
        twin.rate = 2.0
        for _ in range(2):
            assert filterjit.filter_jit(twin.step)(ONE)[0] == 2
    assert b"filterjit." not in pickle.dumps(instance)
    assert filterjit.filter_jit(instance.step)(ONE)[0] == 0.5


class Record(dict[str, Any]):
    """Its attributes are its items."""

    def __init__(self) -> None:
        super().__init__(rate=2)
        self.__dict__ = self

    def step(self, x: Any) -> Any:
        return x * self.rate


@jtu.register_pytree_node_class
class Registered:
    """A pytree of all of its attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def tree_flatten(self) -> Any:
        return list(vars(self).values()), tuple(vars(self))

    @classmethod
    def tree_unflatten(cls, names: Any, values: Any) -> Any:
        return cls(**dict(zip(names, values, strict=True)))

    def step(self, x: Any) -> Any:
        return x * self.rate


class Unwritable:
    __slots__ = ("__weakref__", "rate")

    def __init__(self) -> None:
        self.rate = 2

    def step(self, x: Any) -> Any:
        return x * self.rate


@pytest.mark.parametrize("make", [Record, lambda: Registered(rate=2), Unwritable, Holder])
def test_instances_that_cannot_hold_programs(make: Any) -> None:
    """Nothing is stored in a pytree, nor where an attribute would be an item."""

    def step(x: Any) -> Any:
        return x * 2

    instance = make()
    fun = getattr(instance, "step", None) or eqx.Partial(step)
    before = dict(getattr(instance, "__dict__", {}))
    for _ in range(2):
        assert filterjit.filter_jit(fun)(ONE) == 2
    assert dict(getattr(instance, "__dict__", {})) == before
    assert type(instance) is not Record or dict(instance) == {"rate": 2}


def test_caches_of_one_function_are_bounded() -> None:
    """Caches of the methods of objects that cannot hold them are stored in the class's function."""

    class C:
        __slots__ = ("__weakref__",)

        def method(self, x: Any) -> Any:
            return x

    def make() -> Any:
        c = C()
        assert isinstance(hash(filterjit.filter_jit(c.method)), int)  # makes its cache
        return weakref.ref(c)

    watched = [make() for _ in range(6000)]
    collect()
    assert sum(w() is not None for w in watched) < 5000


@freed
def test_jitted_methods_of_a_local_class_die() -> list[Any]:
    class P:
        @filterjit.filter_jit
        def method(self, x: Any, s: Any) -> Any:
            return x, s

    p, token = P(), Token()
    p.method(ONE, token)
    P.method(p, ONE, s=token)
    return [weakref.ref(x) for x in (P, p, token, P.method)]
