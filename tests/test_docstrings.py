"""The examples in docstrings run as printed, and each public name has a docstring, which says what
goes in and what comes out. Public types have the name that they show.

An example runs by itself, in an empty folder, with the names of filterjit and those below. `...` in
an output stands for anything.
"""

import doctest
import importlib
import inspect
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from support.public import (
    public_attributes,
    public_docstrings,
    public_names,
    public_routines,
    public_types,
)

NAMES = {"eqx": eqx, "jax": jax, "jnp": jnp, "np": np, "filterjit": filterjit} | {
    name: getattr(module, name)
    for module in (filterjit, filterjit.sharding)
    for name in module.__all__
}
DOCS = public_docstrings()
EXAMPLES = {name: doc for name, doc in DOCS.items() if ">>>" in doc}


def test_each_has_a_docstring() -> None:
    assert [name for name, doc in DOCS.items() if not doc.strip()] == []


def test_all_is_found() -> None:
    """By introspection, so not by a list that lacks what is added later."""
    assert {"filter_jit", "nnx.cached_partial"} <= public_routines().keys()
    assert {"Compiled.compiled", "Variant.hits", "Cause.path"} <= public_attributes().keys()
    assert {"FilterJit", "nnx.NNXJit"} <= public_types().keys()


def test_each_says_what_goes_in_and_what_comes_out() -> None:
    for name, fun in public_routines().items():
        doc, signature = DOCS[name], inspect.signature(fun)
        # `args` and `kwargs` are those of a call.
        given = {*signature.parameters} - {"self", "args", "kwargs"}
        assert [parameter for parameter in given if parameter not in doc] == [], name
        if signature.return_annotation not in (None, "None", inspect.Signature.empty):
            assert "eturns" in doc or "ields" in doc, name


def test_types_and_functions_are_where_they_say() -> None:
    for name, x in public_names().items():
        if inspect.isclass(x) or inspect.isroutine(x):
            assert getattr(importlib.import_module(x.__module__), x.__qualname__) is x
            said = f"{x.__module__}.{x.__qualname__}"
            assert said.removeprefix("filterjit.").removeprefix("types.") == name


def types_in(x: Any) -> set[type]:
    """The types of filterjit's that a user finds in an object: in its attributes, and in those of
    these, if their type is public."""
    found, todo, public = set[type](), [x], set(public_types().values())
    while todo:
        y = todo.pop()
        if isinstance(y, (tuple, list)):
            todo += y
        elif type(y).__module__.startswith("filterjit") and type(y) not in found:
            found.add(type(y))
            if type(y) not in public:
                continue
            for name in dir(type(y)):
                if not name.startswith("_") and not callable(getattr(type(y), name)):
                    todo.append(getattr(y, name, None))
            todo += [value for name, value in getattr(y, "__dict__", {}).items() if name[0] != "_"]
    return found


# What these attributes hold is of the core and of the packages below.
INTERNAL = {"Direct", "Layout", "PreparedCall", "Programs", "VariantRecord"}


def test_what_people_meet_has_a_public_name() -> None:
    """The types of all that public functions and methods of jitted functions return."""
    f = filterjit.filter_jit(lambda x, n: n * x)
    method = type("C", (), {"method": f})().method
    x = jnp.ones(2)
    f(x, 2)
    traced = f.trace(x, 3)
    lowered = traced.lower()
    compiled = lowered.compile()
    met = [f, method, f.variants, traced, lowered, compiled]
    met += [f.explain(x, 4), f.report(), f.cache_info(), filterjit.report()]
    met += [filterjit.Filter("a"), filterjit.is_array]
    met += [*filterjit.flatten(x), *filterjit.partition_dict({"a": x})]
    jitted = filterjit.nnx.jit(lambda v: v)
    met += [jitted, filterjit.nnx.cached_partial(jitted, x).func]
    public = set(public_types().values())
    found = {t for one in met for t in types_in(one)}
    assert {t for t in found - public if t.__name__ not in INTERNAL} == set()
    for one in met:
        text = repr(one)
        assert not text.startswith("<filterjit.") and " object at " not in text.split(" of ")[0]


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = dict(NAMES)
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], names, name, None, 0)
    assert test.examples
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    runner.run(test, out=said.append)
    assert not said, "".join(said)
