"""The objects that are called: FilterJit, BoundMethod; and how Getattribute finds these."""

import gc
import inspect
import pickle
import weakref
from typing import Any

import pytest
from core_support import FREE_THREADED, Array, Linear, Record, core, make_registry
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


# ---- how jitted methods are found: without calling the inherited `__getattribute__` in Python ----

asked: list[str] = []


class Base:
    """Has a ``__getattribute__`` in Python, as equinox.Module has."""

    def __getattribute__(self, name: str) -> Any:
        asked.append(name)
        return super().__getattribute__(name)


ORIGINAL = Base.__dict__["__getattribute__"]


def speed_up(cls: Any, original: Any = ORIGINAL) -> Any:
    """Gives a class a Getattribute of its own."""
    cls.__getattribute__ = core.Getattribute(cls, original)
    return cls


def make_class(*bases: type, **attributes: Any) -> Any:
    """A class with a jitted method that has been looked up once."""
    space = {"method": make_jit(lambda self: 1), **attributes}
    cls = speed_up(type("Jitted", bases or (Base,), space))
    assert cls().method() == 1
    asked.clear()
    return cls


@pytest.mark.skipif(FREE_THREADED, reason="it is asked for")
def test_jitted_methods_are_found_without_the_original() -> None:
    jitted = make_class()
    more = speed_up(type("More", (jitted,), {"other": make_jit(lambda self: 2)}))
    classes = [jitted, more, *(type(f"Sub{i}", (jitted,), {"number": i}) for i in range(5))]
    for cls in classes * 3:
        assert cls().method() == 1
    assert more().other() == 2 and [cls().number for cls in classes[2:]] == [*range(5)]
    for cls in classes:
        x = cls()
        _ = x.method
        asked.clear()
        assert type(x.method) is core.BoundMethod and x.method.__self__ is x
        assert x.method.__func__ is jitted.__dict__["method"] and asked == []


def test_other_attributes_are_found_by_the_original() -> None:
    x = make_class(ordinary=lambda self: 2, value=3)()
    x.own = 4
    assert (x.ordinary(), x.value, x.own, x.__class__) == (2, 3, 4, type(x))
    with pytest.raises(AttributeError, match="'Jitted' object has no attribute 'nothing'"):
        _ = x.nothing
    assert asked == ["ordinary", "value", "own", "__class__", "nothing"]
    x.__dict__["method"] = "its own"
    asked.clear()
    assert x.method == "its own" and asked == ["method"]
    del x.__dict__["method"]
    assert x.method() == 1
    x = make_class(__getattr__=lambda self, name: f"no {name}")()
    assert x.method() == 1 and x.nothing == "no nothing"


def test_a_change_of_a_class_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    cls = make_class()
    x, other = cls(), make_class()()
    cls.method = property(lambda self: "a property")
    assert x.method == "a property"
    cls.method = make_jit(lambda self: 2)
    assert x.method() == 2
    del cls.method
    raised(AttributeError, getattr, x, "method")
    monkeypatch.setattr(Base, "__getattribute__", lambda self, name: f"another {name}")
    assert other.method == "another method"


class Loud:
    """Has a ``__getattribute__`` of its own, before or after in the MRO."""

    heard: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        Loud.heard.append(name)
        return super().__getattribute__(name)


class Wrapping(Base):
    """Changes the result."""

    def __getattribute__(self, name: str) -> Any:
        Loud.heard.append(name)
        return type("Wrapped", (), {"__self__": self})


@pytest.mark.parametrize("place", ["subclass", "sibling", "behind", "original"])
def test_other_getattributes_in_the_mro_are_called(place: str) -> None:
    jitted = make_class()
    cls: Any = {
        "subclass": lambda: type("Sub", (Loud, jitted), {}),
        "sibling": lambda: type("Diamond", (jitted, type("Sibling", (Loud, Base), {})), {}),
        "behind": lambda: make_class(Base, Loud),
        "original": lambda: speed_up(
            type("Sub", (Wrapping,), {"method": jitted.__dict__["method"]}),
            Wrapping.__dict__["__getattribute__"],
        ),
    }[place]()
    x = cls()
    for _ in range(3):
        Loud.heard.clear()
        method = x.method
        assert method.__self__ is x and Loud.heard == ["method"]
        assert (type(method) is core.BoundMethod) == (place != "original")


@pytest.mark.parametrize("args", [(), (1,), (Base(), "x", 1), (Base(), 1), (1, "real")])
def test_called_by_hand(args: tuple[Any, ...]) -> None:
    """Wrong arguments are passed to the original."""
    cls = make_class()
    x, getattribute = cls(), cls.__dict__["__getattribute__"]
    assert cls.__getattribute__ is getattribute and getattribute.__wrapped__ is ORIGINAL
    assert getattribute(x, "method")() == x.__getattribute__("method")() == 1
    assert getattribute.__get__(x, cls)("method")() == 1
    assert str(raised(TypeError, getattribute, *args)) == str(raised(TypeError, ORIGINAL, *args))


def test_the_class_dies() -> None:
    """An instance that dies with its class finds its methods."""
    seen = []
    cls = make_class(__del__=lambda self: seen.append(self.method.__self__ is self))
    seen.clear()
    ref, x = weakref.ref(cls), cls()
    x.itself = x
    del cls, x
    gc.collect()
    assert seen and all(seen) and ref() is None


class Picklable(Base):
    """A class that pickle finds by its name."""

    method = make_jit(lambda self: 1)


def test_pickled() -> None:
    getattribute = speed_up(Picklable).__dict__["__getattribute__"]
    make, args = getattribute.__reduce__()
    assert args == (Picklable, ORIGINAL)
    assert make(*args)(Picklable(), "method").__self__.__class__ is Picklable
    assert type(pickle.loads(pickle.dumps(Picklable()))) is Picklable
