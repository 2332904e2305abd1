"""Jitted methods in class bodies."""

import abc
import functools
import inspect
import operator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from filterjit import _core
from filterjit._compat import _equinox_compat
from support.comparison import Jit, Traces, on_both
from support.modules import Holder
from support.trees import ONE


@pytest.mark.parametrize("donate", ["none", "all-except-first"])
@pytest.mark.parametrize("base", [eqx.Module, object], ids=["Module", "plain"])
@on_both
def test_methods_in_a_class_body(jit: Jit, traces: Traces, base: type, donate: str) -> Any:
    class C(base):  # type: ignore[misc, valid-type]
        a: Any = 3

        @jit(donate=donate)
        def method(self, x: Any, y: Any = 1) -> Any:
            """The method's own text."""
            traces.tick()
            return self.a * x + y

        @jit
        def __call__(self, x: Any) -> Any:
            traces.tick()
            return self.method(x, y=2)

        @property
        @jit
        def prop(self) -> Any:
            traces.tick()
            return self.a + 1

    c = C()
    results = [
        c.method(jnp.array(1.0)),
        c.method(x=jnp.array(1.0)),
        c.method(jnp.array(1.0), 5),
        C.method(c, jnp.array(1.0)),
        c(jnp.array(1.0)),
        c.prop,
        functools.reduce(lambda x, f: f(x), [c.method] * 3, jnp.array(1.0)),
        list(map(c.method, [jnp.array(1.0)])),
    ]
    methods = [(C.method, "(self, x: Any, y: Any = 1) -> Any")]
    if jit is filterjit.filter_jit:
        methods.append((c.method, "(x: Any, y: Any = 1) -> Any"))
        assert c.method.__self__.a == 3 and c.method.__func__ is C.method
    for method, signature in methods:
        assert (method.__name__, method.__doc__) == ("method", "The method's own text.")
        assert method.__qualname__.endswith("C.method")
        assert str(inspect.signature(method)) == signature
    return results


def test_staticmethod_inside(jit: Jit, ours: bool) -> None:
    class M(eqx.Module):
        f = jit(staticmethod(lambda x, y=1: x + y))

    assert (M.f(ONE), M.f(ONE, y=3)) == (2, 4)
    # On an instance both bind, as functions in a class body do.
    with pytest.raises(TypeError) as info:
        M().f(ONE, 1)
    if ours:
        (note,) = info.value.__notes__
        assert note == "(`@staticmethod` is below the decorator that jits: put it above)"


@pytest.mark.parametrize("base", [eqx.Module, object], ids=["Module", "plain"])
@on_both
def test_classmethods_and_staticmethods(jit: Jit, base: type) -> Any:
    class C(base):  # type: ignore[misc, valid-type]
        @classmethod
        @jit
        def f(cls, x: Any) -> Any:
            return x + 1, cls.__name__

        @staticmethod
        @jit
        def g(x: Any, y: Any = 1) -> Any:
            return x * 3 + y

    class D(C):
        pass

    return [(c.f(ONE), c.g(ONE), c.g(ONE, y=2)) for c in (C, C(), D, D())]


@pytest.mark.parametrize("jits_first", [False, True])
def test_abstract_methods(jits_first: bool) -> None:
    """By decision. Equinox's wrapper cannot be marked, and loses the mark."""
    decorators = [filterjit.filter_jit, abc.abstractmethod][:: -1 if jits_first else 1]

    class A(eqx.Module):
        @decorators[1]
        @decorators[0]
        def f(self, x: Any) -> Any:
            raise NotImplementedError

    class B(A):
        def f(self, x: Any) -> Any:
            return x + 1

    with pytest.raises(TypeError, match="abstract"):
        A()
    assert B().f(ONE) == 2


def test_equality_of_bound_methods() -> None:
    """As in Equinox without arrays; by decision, by the identity of instances with arrays."""

    class A(eqx.Module):
        n: Any

        @filterjit.filter_jit
        def f(self, x: Any) -> Any:
            return x

        @filterjit.filter_jit
        def g(self, x: Any) -> Any:
            return x

    class B:
        f = A.f

    for x, other in ((A(1), A(1)), (A([1]), A([1])), (A((1, A("a"))), A((1, A("a"))))):
        assert x.f == other.f and hash(x.f) == hash(other.f) and len({x.f, other.f}) == 1
    ones = jnp.ones(2)
    for x, other in ((A(1), A(True)), (A(ones), A(1)), (A(ones), A(ones)), (B(), B())):
        assert x.f == x.f and hash(x.f) == hash(x.f) and not operator.ne(x.f, x.f)
        assert x.f != other.f and x.f != 1
        assert len({x.f, x.f, other.f}) == 2
    a = A(1)
    assert a.f != a.g


NUMBERS = 2, 2, 3, 2


@pytest.mark.parametrize(
    ("hold", "values"),
    [
        (lambda f: Holder(None, f), NUMBERS),
        (jtu.Partial, NUMBERS),
        (lambda f: f, (2, 2, jnp.ones(2), 3 * jnp.ones(2))),
    ],
)
def test_bound_methods_as_arguments(jit: Jit, traces: Traces, hold: Any, values: Any) -> None:
    """They are pytrees of their instances. Static ones of equal instances without arrays share a
    program."""

    class A(eqx.Module):
        n: Any

        @jit
        def f(self, x: Any) -> Any:
            return x * self.n

    call = jit(traces.counting(lambda h, x: getattr(h, "s", h)(x)))
    for n in values:
        assert jnp.array_equal(call(hold(A(n).f), ONE), n * ONE)
    assert traces.count == 2


def test_a_bound_method_of_an_instance_changed_in_place(jit: Jit, ours: bool) -> None:
    """Equinox compares the list with itself."""

    class A(eqx.Module):
        n: Any = eqx.field(static=True)

        @jit
        def f(self, x: Any) -> Any:
            return x * self.n[0]

    call, a = jit(lambda h, x: h.s(x)), A([-1])
    assert call(Holder(None, a.f), ONE) == -1
    a.n[0] = -2
    assert call(Holder(None, a.f), ONE) == (-2 if ours else -1)


# ---- how they are found: C looks them up as Equinox's Python code would ----


class Tiny(eqx.Module):
    """Has a method of each kind."""

    scale: jax.Array

    def plain(self, x: Any) -> Any:
        return self.scale * x

    jitted = filterjit.filter_jit(plain)
    by_equinox = eqx.filter_jit(plain)


@pytest.mark.skipif(
    _equinox_compat.module_getattribute() is None, reason="this Equinox looks attributes up in C"
)
def test_a_class_with_jitted_methods_has_it_and_others_do_not() -> None:
    class Without(eqx.Module):
        @eqx.filter_jit
        def method(self) -> None: ...

    assert type(vars(Tiny)["__getattribute__"]) is _core.Getattribute
    assert Without.__getattribute__ is eqx.Module.__getattribute__


@pytest.mark.parametrize("name", ["jitted", "by_equinox", "plain"])
def test_methods_are_those_that_equinox_finds(name: str) -> None:
    x = Tiny(jnp.array(2.0))
    for _ in range(3):
        found, expected = getattr(x, name), eqx.Module.__getattribute__(x, name)
        assert type(found) is type(expected)
        assert eqx.tree_equal(found, expected) and x.scale in jtu.tree_leaves(found)
        assert found(ONE) == expected(ONE) == 2
