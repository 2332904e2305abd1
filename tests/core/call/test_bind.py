"""Binding of random calls to random signatures, compared with Python."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from hooks_support import make_jit
from outcome_support import raised

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies
quick = hypothesis.settings(
    deadline=None, max_examples=int(os.environ.get("FILTERJIT_EXAMPLES", 150))
)

NAMES = ["a", "b", "c", "d", "args", "kwargs", "self", "x"]


def bind(f: Any, /, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
    """The arguments of a call by parameter; None if they do not fit."""
    try:
        variant, _, arrays = f._find_or_compile(*args, **kwargs)
    except TypeError:
        return None
    names, values = f._parts()[0].signature.names, variant._arguments(arrays)[1]
    given = zip(names, values, strict=True)
    return {name: x for name, x in given if x is not f._hooks.registry}


def make(source: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(f"def fun({source}): return locals()", namespace)
    return namespace["fun"]  # type: ignore[no-any-return]


@st.composite
def signatures(draw: Any) -> str:
    names = iter(draw(st.permutations(NAMES)))
    positional_only, ordinary, keyword_only = (draw(st.integers(0, 2)) for _ in range(3))
    positional = positional_only + ordinary
    defaults = draw(st.integers(0, positional))
    parts = []
    for i in range(positional):
        parts.append(next(names) + ("=0" if i >= positional - defaults else ""))
        if i + 1 == positional_only:
            parts.append("/")
    varargs = draw(st.booleans())
    if varargs:
        parts.append("*" + next(names))
    elif keyword_only:
        parts.append("*")
    for _ in range(keyword_only):
        parts.append(next(names) + draw(st.sampled_from(["", "=0"])))
    if draw(st.booleans()):
        parts.append("**" + next(names))
    return ", ".join(parts)


calls = st.tuples(
    st.lists(st.integers(), max_size=6),
    st.dictionaries(st.sampled_from([*NAMES, "other", "größe"]), st.integers(), max_size=5),
)


@quick
@hypothesis.given(signatures(), st.lists(calls, min_size=1, max_size=5))
def test_as_python_does(source: str, calls: list[Any]) -> None:
    """A FilterJit calls the function with the arguments that it was called with."""
    fun = make(source)
    f = make_jit(fun)
    for args, kwargs in calls:
        try:
            result = fun(*args, **kwargs)
        except TypeError:
            raised(TypeError, f, *args, **kwargs)
            assert bind(f, *args, **kwargs) is None
            continue
        assert f(*args, **kwargs) == f(*args, **kwargs) == result
        given = bind(f, *args, **kwargs) or {}
        assert given.items() <= result.items()
        assert all(result[name] in (0, (), {}) for name in result.keys() - given.keys())


def test_no_parameters() -> None:
    f = make_jit(lambda: None)
    assert bind(f) == {} and bind(f, 1) is None and bind(f, a=1) is None


@pytest.mark.parametrize("count", [15, 16, 17, 100, 254])
def test_many_parameters(count: int) -> None:
    names = [f"p{i}" for i in range(count)]
    fun = make(", ".join(f"{n}=None" for n in names))
    f = make_jit(fun)
    assert bind(f, *range(count)) == dict(zip(names, range(count), strict=True))
    assert bind(f, **{names[-1]: 1}) == {names[-1]: 1}
    assert bind(f, *range(count + 1)) is None
    f = make_jit(fun)
    assert f(*range(count)) == f(**dict(zip(names, range(count), strict=True)))
    assert f._hooks.count("compile") == 1


def test_names_that_are_not_interned() -> None:
    f = make_jit(lambda alpha, *, beta: None)
    for name in ("".join(["al", "pha"]), type("Name", (str,), {})("alpha")):
        assert bind(f, **{name: 1, "".join(["be", "ta"]): 2}) == {"alpha": 1, "beta": 2}
