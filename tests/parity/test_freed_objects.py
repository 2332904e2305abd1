"""How long functions, variants, arrays and static values live, and what `maxsize` keeps.

Most tests run on filterjit only: Equinox keeps static values forever.
"""

import copy
import dataclasses
import functools
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from filterjit._call import _miss
from support.comparison import Jit, Traces
from support.lifetimes import collect, freed
from support.nodes import Custom
from support.statics import Thing
from support.trees import ONE

X = jnp.arange(3.0)


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


class Trainer:
    """An object of a class that lives forever."""

    def __init__(self) -> None:
        self.token, self.traces = Thing(), Traces()

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


def of_a_function(form: str) -> list[Any]:
    """A jitted function, its static values and its programs die together."""
    token = Thing()
    fun = FUNCTIONS[form](token)
    f = filterjit.filter_jit(fun)
    f(ONE, token), f(ONE, [token, 1]), f(X, token)
    variants = f._parts()[0].variants()
    assert len(variants) == 2
    watched = [token, f, f._parts()[0], *variants, *(v._call for v in variants)]
    return watched + [fun] * (type(fun).__weakrefoffset__ != 0)


def of_a_module(what: str) -> list[Any]:
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
    f(ONE), f(jnp.ones(7))
    return [f, m, m.w]


def of_an_instance(form: str, cls: Any) -> list[Any]:
    """Its programs die with it; the class and its functions live on."""
    watched: list[Any] = []
    for _ in range(4):
        instance = cls()
        f = METHODS[form](filterjit.filter_jit, instance)
        # Another instance may refer to it, and so may a static argument.
        instance.other = cls()
        instance.other.other = instance
        f(jnp.ones(3), instance.step)
        f(jnp.ones(3)), f(jnp.ones(4)), f(jnp.ones(3))
        watched += [instance, f, f._parts()[0], *f._parts()[0].variants()]
    return watched


MAKES: dict[str, Callable[[], list[Any]]] = {
    **{f"function: {form}": functools.partial(of_a_function, form) for form in FUNCTIONS},
    **{
        f"Module: {what}": functools.partial(of_a_module, what)
        for what in ("instance", "method", "jitted method")
    },
    **{f"instance: {form}": functools.partial(of_an_instance, form, Trainer) for form in METHODS},
    "instance: equal ones": lambda: of_an_instance("method", Comparable),
}


@pytest.mark.parametrize("name", MAKES)
@freed
def test_what_dies(name: str) -> list[Any]:
    return [weakref.ref(x) for x in MAKES[name]()]


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


def executables() -> int:
    gc.collect()
    return len(jax.devices()[0].client.live_executables())


def scaled(x: Any, n: Any) -> Any:
    return x * n


# ---- maxsize ----


def test_lowering_is_bounded_by_maxsize() -> None:
    """Of a copy too; and what fails evicts nothing."""
    f = pickle.loads(pickle.dumps(filterjit.filter_jit(scaled, maxsize=2)))
    assert f.cache_info().maxsize == 2
    for n in range(5):
        f.lower(X, n).compile()
    before = set(f.variants)
    with pytest.raises(TypeError):
        f.lower(X, "text")
    assert set(f.variants) == before and len(before) == 2


def test_maxsize_holds_under_disable_jit() -> None:
    f = filterjit.filter_jit(scaled, maxsize=4)
    f(X, 1)
    with jax.disable_jit():
        for n in range(30):
            assert f(X, n).tolist() == [0, n, 2 * n]
        assert len(f.variants) == 4
        variants = f.variants
        assert f(X, 29).tolist() == [0, 29, 58]
        assert f.variants == variants
    assert f(X, 29).tolist() == [0, 29, 58] and len(f.variants) == 4
    assert f.cache_info().variants == 4


def test_evicted_variants_die() -> None:
    f = filterjit.filter_jit(lambda x, s: x + 1, maxsize=2)
    f(X, 0)
    before, refs = executables(), []
    for _ in range(6):
        s = Thing()
        f(X, s)
        refs.append((weakref.ref(s), weakref.ref(f.variants[-1])))
        del s
    gc.collect()
    assert [r() is None for r, _ in refs] == [True] * 4 + [False] * 2
    assert executables() <= before + 2


@pytest.mark.recompiles
@pytest.mark.parametrize("jit", [filterjit.filter_jit, filterjit.jit])
def test_functions_that_a_loop_drops_die_soon(jit: Any) -> None:
    """Each is in a cycle with its programs, of which the garbage collector sees only the objects."""
    functions, before = [], gc.get_threshold()
    gc.set_threshold(10**9)  # there may be much else that it sees
    try:
        for n in range(25):
            f = lambda x, n=n: x * n
            functions.append(weakref.ref(f))
            jit(f)(X)
        assert sum(ref() is not None for ref in functions) < 20
    finally:
        gc.set_threshold(*before)
