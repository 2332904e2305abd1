"""How long functions, arrays and static values live.

Most tests run on filterjit only: Equinox keeps static values forever.
"""

import copy
import dataclasses
import functools
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from filterjit._call import _miss
from support.comparison import Jit, Traces
from support.lifetimes import collect, freed
from support.nodes import Custom
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


FUNCTIONS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "function": lambda token: lambda x, s: x + 1,
    "closure": lambda token: lambda x, s: (x + 1, token, s),
    "method": lambda token: of_a_local_class(token).method,
    "callable": of_a_local_class,
    "returning Modules": returning_modules,
    "functools.partial": lambda token: functools.partial(lambda t, x, s: (t, x, s), token),
    "jtu.Partial": lambda token: jtu.Partial(lambda t, x, s: (t, x, s), token),
    "eqx.Partial": lambda token: eqx.Partial(lambda t, x, s: (t, x, s), token),
    "wrapped": wrapped,
    "jitted twice": lambda token: filterjit.filter_jit(lambda x, s: (x, s, token)),
    "transformed": lambda token: eqx.filter_grad(
        lambda x, s: (jnp.sum(x), (s, token)), has_aux=True
    ),
}


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
    watched = [token, f, f._parts()[0], *variants, *(v._call for v in variants)]
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
    """An object of a class that lives forever."""

    def __init__(self) -> None:
        self.token, self.traces = Token(), Traces()

    def step(self, x: Any, s: Any = None) -> Any:
        self.traces.tick()
        return x, s, self.token

    def __call__(self, x: Any, s: Any = None) -> Any:
        return self.step(x, s)


@dataclasses.dataclass
class Comparable(Trainer):
    """Equal instances, which have no hash."""

    rate: float = 0.5
    __post_init__ = Trainer.__init__

    def step(self, x: Any, s: Any = None) -> Any:
        return x * self.rate, *super().step(x, s)


METHODS: dict[str, Callable[[Jit, Any], Any]] = {
    "method": lambda jit, t: jit(t.step),
    "own attribute": lambda jit, t: vars(t).setdefault("jitted", jit(t.step)),
    "callable": lambda jit, t: jit(t),
    "__call__": lambda jit, t: jit(t.__call__),
    "twice": lambda jit, t: jit(jit(t.step)),
    "functools.partial": lambda jit, t: jit(
        vars(t).setdefault("partial", functools.partial(t.step))
    ),
    "eqx.Partial": lambda jit, t: jit(eqx.Partial(t.step)),
    "jtu.Partial": lambda jit, t: jit(jtu.Partial(t.step)),
    "options": lambda jit, t: jit(t.step, donate="warn", keep_unused=True),
}


@pytest.mark.filterwarnings("ignore:Some donated")
@pytest.mark.parametrize(
    ("form", "cls"), [*((form, Trainer) for form in METHODS), ("method", Comparable)]
)
@freed
def test_programs_of_methods_die_with_the_instance(form: str, cls: Any) -> list[Any]:
    """The class and its functions live on."""
    watched = []
    for _ in range(4):
        instance = cls()
        f = METHODS[form](filterjit.filter_jit, instance)
        # Another instance may refer to it, and so may a static argument.
        instance.other = cls()
        instance.other.other = instance
        f(jnp.ones(3), instance.step)
        f(jnp.ones(3)), f(jnp.ones(4)), f(jnp.ones(3))
        variants = f._parts()[0].variants()
        watched += [weakref.ref(x) for x in (instance, f, f._parts()[0], *variants)]
    return watched


@pytest.mark.filterwarnings("ignore:Some donated")
@pytest.mark.parametrize("form", METHODS)
def test_programs_of_methods_live_as_long_as_the_instance(form: str, jit: Jit) -> None:
    """A wrapper that is made again shares the programs, as in Equinox."""
    one, two = Trainer(), Trainer()
    for _ in range(3):
        METHODS[form](jit, one)(jnp.ones(2)), METHODS[form](jit, two)(jnp.ones(2))
        collect()
    assert one.traces.count == two.traces.count == 1


def test_where_the_programs_of_a_method_are() -> None:
    """In the attributes of the instance, but not in its copies and pickles."""
    instance = Comparable()
    filterjit.filter_jit(instance.step)(ONE)
    assert set(vars(instance)) == {"rate", "token", "traces", "__filterjit_caches__"}
    assert instance == Comparable() and repr(instance) == "Comparable(rate=0.5)"
    assert dataclasses.asdict(instance) == {"rate": 0.5}
    pickled = pickle.dumps(instance)
    for twin in (copy.copy(instance), copy.deepcopy(instance), pickle.loads(pickled)):
        twin.rate = 2.0
        for _ in range(2):
            assert filterjit.filter_jit(twin.step)(ONE)[0] == 2
    assert b"filterjit." not in pickled
    assert filterjit.filter_jit(instance.step)(ONE)[0] == 0.5


class Record(dict[str, Any]):
    """Its attributes are its items."""

    def __init__(self) -> None:
        super().__init__(rate=2)
        self.__dict__ = self

    def step(self, x: Any) -> Any:
        return x * self.rate


@jtu.register_pytree_node_class
class Registered(Custom):
    def step(self, x: Any) -> Any:
        return x * self.label


class Unwritable:
    __slots__ = ("__weakref__", "rate")

    def __init__(self) -> None:
        self.rate = 2

    def step(self, x: Any) -> Any:
        return x * self.rate


@pytest.mark.parametrize("make", [Record, lambda: Registered(label=2), Unwritable])
def test_instances_that_cannot_hold_programs(make: Any) -> None:
    """Nothing is stored in a pytree, nor where an attribute would be an item."""
    instance = make()
    before = dict(getattr(instance, "__dict__", {}))
    for _ in range(2):
        assert filterjit.filter_jit(instance.step)(ONE) == 2
    assert dict(getattr(instance, "__dict__", {})) == before
    assert type(instance) is not Record or dict(instance) == {"rate": 2}


def test_caches_of_one_function_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches of the methods of objects that cannot hold them are stored in the class's function."""

    class C:
        __slots__ = ("__weakref__",)

        def method(self, x: Any) -> Any:
            return x

    def make() -> Any:
        c = C()
        assert isinstance(hash(filterjit.filter_jit(c.method)), int)  # makes its cache
        return weakref.ref(c)

    monkeypatch.setattr(_miss, "MAXSIZE", 50)
    watched = [make() for _ in range(150)]
    collect()
    assert 40 < sum(w() is not None for w in watched) < 60
