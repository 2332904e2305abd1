"""Methods of FilterJit and BoundFilterJit that Python does the work of."""

import copy
import inspect
from typing import Any

import pytest
from core_support import Options, core, make_jit, make_registry

METHODS = ["cache_info", "clear_cache", "eval_shape", "explain", "freeze", "lower"]
METHODS += ["partial", "report", "trace", "warm_up"]
OF_BOUND = ["eval_shape", "explain", "freeze", "lower", "partial", "trace", "warm_up"]
PUBLIC = [(core.FilterJit, name) for name in METHODS]
PUBLIC += [(core.BoundFilterJit, name) for name in OF_BOUND]


@pytest.fixture
def f() -> Any:
    """A FilterJit whose hooks return what they are called with."""
    options = Options(make_registry())
    for name in METHODS:
        setattr(options, name, lambda *args, name=name, **kwargs: (name, args, kwargs))
    return make_jit(lambda self, x: x, options)


@pytest.mark.parametrize(("cls", "name"), PUBLIC)
def test_looks_like_a_method_of_a_builtin_type(cls: Any, name: str) -> None:
    method = getattr(cls, name)
    assert inspect.isroutine(method) and method.__objclass__ is cls
    assert (method.__name__, method.__qualname__) == (name, f"{cls.__name__}.{name}")
    assert repr(method) == f"<method '{name}' of '{cls.__module__}.{cls.__name__}' objects>"
    text = method.__doc__.partition("\n\nExamples:")[0]
    assert text[0].isupper() and text.endswith(".")
    parameters = list(inspect.signature(method).parameters)
    assert parameters[0] == "self"
    assert method.__reduce__() == (getattr, (cls, name))
    assert copy.copy(method) is method


def test_signatures(f: Any) -> None:
    assert str(inspect.signature(core.FilterJit.lower)) == "(self, /, *args, **kwargs)"
    assert str(inspect.signature(f.lower)) == "(*args, **kwargs)"
    assert str(inspect.signature(f.warm_up)) == "(signatures, *, threads=None)"
    assert str(inspect.signature(f.report)) == "()"
    assert str(inspect.signature(core.BoundFilterJit(f, 1).trace)) == "(*args, **kwargs)"


def test_passes_arguments_on_as_they_are(f: Any) -> None:
    for name in ("lower", "trace", "eval_shape", "warm_up", "partial", "explain"):
        method = getattr(f, name)
        assert method.__self__ is f
        assert method() == (name, (f,), {})
        assert method(1, [2], k=3) == (name, (f, 1, [2]), {"k": 3})
        assert method(f=1, self=2) == (name, (f,), {"f": 1, "self": 2})
        assert getattr(core.FilterJit, name)(f, 1) == (name, (f, 1), {})
        many = {f"k{i}": i for i in range(20)}
        assert method(*range(20), **many) == (name, (f, *range(20)), many)


@pytest.mark.parametrize("name", ["report", "cache_info", "clear_cache"])
def test_methods_without_arguments(f: Any, name: str) -> None:
    assert getattr(f, name)() == (name, (f,), {})
    with pytest.raises(TypeError, match=rf"{name}\(\) takes no arguments \(2 given\)"):
        getattr(f, name)(1, k=2)


def test_of_bound_methods(f: Any) -> None:
    bound = core.BoundFilterJit(f, "instance")
    for name in ("lower", "trace", "eval_shape", "partial", "explain"):
        assert getattr(bound, name)(1, k=2) == (name, (f, "instance", 1), {"k": 2})
    assert bound.warm_up([1], threads=2) == ("warm_up", (bound, [1]), {"threads": 2})
    assert bound.report() == ("report", (f,), {})  # an attribute of the function


def test_needs_an_instance(f: Any) -> None:
    for args in ((), (1,), (core.BoundFilterJit(f, 1),)):
        with pytest.raises(TypeError, match=r"method `lower` needs a `filterjit\.FilterJit`"):
            core.FilterJit.lower(*args)


def test_an_attribute_of_the_function_is_found_first() -> None:
    f = make_jit(len, attributes={"report": 7})
    assert f.report == 7


def test_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        type(core.FilterJit.lower)()


def test_hooks_that_are_not_there() -> None:
    f = make_jit(len)
    with pytest.raises(AttributeError, match="explain"):
        f.explain()
    with pytest.raises(AttributeError, match="_options"):
        core.BoundFilterJit(len, 1).warm_up([])
    with pytest.raises(AttributeError, match="lower"):
        core.BoundFilterJit(len, 1).lower()


def test_no_internals_among_the_public_names(f: Any) -> None:
    public = [name for name in dir(core.FilterJit) if not name.startswith("_")]
    assert public == sorted([*METHODS, "variants"])
