"""Jitted methods are found without calling the inherited ``__getattribute__`` in Python."""

import gc
import pickle
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from core_support import FREE_THREADED, core
from hooks_support import make_jit
from outcome_support import raised

asked: list[str] = []


class Base:
    """Has a ``__getattribute__`` in Python, as equinox.Module has."""

    def __getattribute__(self, name: str) -> Any:
        asked.append(name)
        return super().__getattribute__(name)


ORIGINAL = Base.__dict__["__getattribute__"]


@pytest.fixture(autouse=True)
def _nothing_asked() -> Iterator[None]:
    asked.clear()
    yield
    asked.clear()


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
