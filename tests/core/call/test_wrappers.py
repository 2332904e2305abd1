"""The objects that are called: FilterJit, BoundMethod."""

import gc
import inspect
from typing import Any

import pytest
from core_support import Array, Linear, Record, core, make_registry
from hooks_support import Hooks, make_jit
from outcome_support import fail, raised


class Model(Linear):
    """A function that holds an array."""

    def __call__(self, x: Any = None) -> Any:
        return self.weight, x


def test_attributes() -> None:
    def fun(x: Any) -> Any:
        return x

    attributes = {"__name__": "fun", "__doc__": "Doc."}
    signature = inspect.signature(fun)
    f = core.FilterJit(fun, Hooks(make_registry()), signature, attributes)
    assert f._function is fun and f.__name__ == "fun" and f.__doc__ == "Doc."
    assert f._given_signature is signature
    f.anything = 1
    assert f.__dict__["anything"] == 1
    f.__dict__ = {"other": 2}
    assert f.other == 2 and not hasattr(f, "anything")


def test_rebuild() -> None:
    f = make_jit(Model(weight=Array(), size=2))
    cache, arrays = f._parts()
    new, x = Array(), Array()
    g = core.FilterJit._rebuild(cache, [new])
    assert g(x) == (new, x) and f(x) == (arrays[0], x)
    assert g._function.weight is new and g._function is g._function
    assert type(g._function) is Model and g._parts() == (cache, (new,))
    assert f._hooks.count("prepare") == f._hooks.count("compile") == 1


def test_wrapped_of_a_function_that_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    held = type("Held", (Record,), {"__call__": lambda self, x: x})
    g = core.FilterJit._rebuild(*make_jit(held(Array(), 1, 2))._parts())
    monkeypatch.setattr(held, "__init__", lambda *args, **kwargs: fail())
    raised(ZeroDivisionError, lambda: g._function)
    monkeypatch.undo()
    assert type(g._function) is held


def test_comparing() -> None:
    """A wrapper that holds arrays equals only itself."""
    options = Hooks(make_registry())
    model = Model(weight=Array())
    f, g = make_jit(model, options), make_jit(model, options)
    assert f == f and f != g
    with pytest.raises(TypeError, match="unhashable"):
        hash(f)
    f, g = (make_jit(lambda self: 1) for _ in "ab")
    g._hooks.on["prepare"] = fail
    for call in (lambda: f == g, lambda: hash(g), g._parts):
        raised(ZeroDivisionError, call)
    del g._hooks.on["prepare"]
    assert g._parts()[1] == (), "it was left unprepared"


# ---- bound methods ----


def test_methods() -> None:
    f = make_jit(lambda self, x, *rest, **more: (self, x, rest, more), attributes={"tag": 7})
    Thing: Any = type("Thing", (Linear,), {"method": f})
    thing = Thing()
    assert Thing.method is f
    bound = thing.method
    assert type(bound) is core.BoundMethod
    assert bound.__self__ is thing and bound.__func__ is f and bound.tag == 7
    x = Array()
    built, *rest = bound(x)
    assert type(built) is Thing and rest == [x, (), {}]
    assert thing.method(x, 1, 2, 3, 4, 5, 6, 7, 8, k=1)[1:] == (x, tuple(range(1, 9)), {"k": 1})
    assert bound(*[x] * 20, **{f"k{i}": i for i in range(20)})[3]["k19"] == 19
    assert bound == bound and thing.method != bound and bound != f, "the subclass compares them"
    raised(AttributeError, lambda: bound.nothing)
    f = make_jit(lambda self: self, attributes={"__module__": "mine", "__doc__": "Text."})
    bound = core.BoundMethod(f, 1)
    assert (bound.__module__, bound.__doc__) == ("mine", "Text.")
    f.__dict__["__module__"] = "somewhere"
    assert bound.__module__ == "somewhere"
    assert core.BoundMethod.__module__ == "filterjit._core"
    assert isinstance(core.BoundMethod.__doc__, str)


def arguments(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def test_calls_of_proxies_and_bound_methods() -> None:
    """The caller may leave no room before the arguments, where the instance would go."""
    for f, before in (
        (core.CallProxy(arguments, None), ()),
        (core.BoundMethod(make_jit(arguments), 0), (0,)),
    ):
        for n in (0, 1, 6, 7, 8, 20):
            args = tuple("abcdefghijklmnopqrstuvwxyz"[:n])
            assert f(*args) == (before + args, {})
            assert f.__call__(*args, k=n) == (before + args, {"k": n})
            assert list(map(f, args)) == [((*before, a), {}) for a in args]


# ---- subclasses in Python ----


class Method(core.BoundMethod):  # type: ignore[misc]
    """A type of bound methods with more methods."""

    __slots__ = ()

    def call_twice(self, x: Any) -> Any:
        return self(x), self(x)


class WithMethods(core.FilterJit):  # type: ignore[misc]
    """A type of functions whose bound methods are of the type above."""

    __slots__ = ()
    _bound_type = Method


class Proxy(core.CallProxy):  # type: ignore[misc]
    __slots__ = ()


def test_methods_of_subclasses() -> None:
    f = WithMethods(lambda self, x: (self, x), Hooks(make_registry()), None, {"tag": 7})
    bound = f.__get__(5)
    assert type(bound) is Method and (bound.__func__, bound.__self__, bound.tag) == (f, 5, 7)
    assert bound.call_twice(1) == ((5, 1), (5, 1))
    assert f._rebuild(*f._parts()) == f and type(f._rebuild(*f._parts())) is WithMethods
    assert bound != core.BoundMethod(f, 5)
    assert type(core.FilterJit(len, f._hooks, None, {}).__get__(5)) is core.BoundMethod
    wrong = type("Wrong", (core.FilterJit,), {"__slots__": (), "_bound_type": core.CallProxy})
    with pytest.raises(TypeError, match="_bound_type must be a subclass of BoundMethod"):
        wrong(len, Hooks(make_registry()), None, {})


def test_subclasses_are_as_final_as_types_in_c() -> None:
    METHOD_DESCRIPTOR = 1 << 17
    for cls in (Method, WithMethods, Proxy):
        with pytest.raises(TypeError, match="not an acceptable base type"):
            type("Sub", (cls,), {})
        with pytest.raises(TypeError, match="immutable"):
            cls.__call__ = len
        assert cls.__flags__ & METHOD_DESCRIPTOR == cls.__base__.__flags__ & METHOD_DESCRIPTOR
    assert WithMethods.__flags__ & METHOD_DESCRIPTOR


@pytest.mark.parametrize("name", ["__call__", "__get__", "__del__"])
def test_subclasses_that_add_more_than_methods_are_ordinary(name: str) -> None:
    found: list[Any] = []

    def method(*args: Any) -> Any:
        found.append(args)

    for base, own in ((core.FilterJit, ()), (core.BoundMethod, (0,)), (core.CallProxy, (0,))):
        made: Any = type("Sub", (base,), {name: method})
        options = Hooks(make_registry())
        x = made(len, *own) if own else made(len, options, None, {})
        x.more = 1
        assert x.more == 1
        Sub: Any = type("SubSub", (made,), {"thing": x})
        if name == "__call__":
            assert x(1, 2) is None and found.pop() == (x, 1, 2)
        elif name == "__get__":
            assert Sub.thing is None and found.pop() == (x, None, Sub)
        del x, Sub
        gc.collect()
        assert (name == "__del__") == bool(found)
        found.clear()
