"""Static arguments, which are not walked; numbers that are traced; and calls that are handed over."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from core_support import Array, Linear, Value, core, make_registry
from hooks_support import Hooks, make_jit
from outcome_support import raised

X = Array(0.5)  # the stand-in tells it from a number


class Jit:
    """A FilterJit of two parameters, by default the second is static. It returns them."""

    def __init__(self, flags: bytes = b"\1\2", chosen: Any = True, **policy: Any) -> None:
        self.hooks = Hooks(make_registry(**policy))
        self.hooks.chosen = chosen
        self.f = make_jit(lambda a, b=None: (a, b), self.hooks)
        structure = core.flatten(self.hooks.registry, self.f._function)[1]
        signature = core.Signature(("a", "b"), 0, 2, False, False, flags)
        self.cache = core.Cache(self.hooks.registry, structure, signature, self.hooks, 9, {})
        self.hooks.caches[structure] = self.cache

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*args, **kwargs)

    def arrays(self, *args: Any) -> Any:
        return self.f._find_or_compile(*args)[2]


def test_a_static_argument_is_one_value() -> None:
    jit = Jit()
    # An array in it is no leaf, and is compared as a static value.
    for static in ((1, (2, "b")), (1, (2, "b")), frozenset({1}), "text", None, (Array(), 1)):
        for _ in range(2):
            for found in (jit(X, static), jit(X, b=static)):
                assert found == (X, static) and found[1] in (static, (1, (2, "b")))
        assert jit.arrays(X, static) == (X,)
    assert len(jit.cache.variants()) == 5


def test_a_static_argument_that_changes_in_place() -> None:
    jit, value = Jit(), Value(1)
    for _ in range(3):
        assert jit(1.0, value)[1].value == 1
    value.value = 2
    for again in (value, Value(2)):
        assert jit(1.0, again)[1].value == 2
    assert jit.hooks.count("compile") == 2


def test_an_unhashable_one_raises() -> None:
    jit = Jit()
    error = raised(TypeError, jit, X, [1])
    assert "unhashable" in str(error) and not jit.cache.variants()
    assert error.__filterjit_error_context__[:2] == ("hash", ["b"])


def test_a_static_argument_is_no_leaf() -> None:
    for args, expected in (((X, "text"), False), (([X, "text"], "text"), True)):
        structure = Jit().f._find_or_compile(*args)[0].structure
        assert any(leaf is not X for leaf in structure._leaves(X)) == expected


# ---- numbers that are traced ----

PATH = "path", (..., "rate")


def rate(value: Any, n: Any = 1) -> Any:
    return {"rate": value, "n": n, "more": [X, "text"]}


# The flags of the arguments, what is chosen in them, and calls, each with the arrays that it gives
# to the program, and how many variants there are then.
NUMBERS: dict[str, tuple[bytes, Any, list[tuple[Any, Any, int]]]] = {
    "of an argument": (
        b"\1\4",
        True,
        [
            *((("text", number), (number,), 1) for number in (1, 2, 3.0, X, 4)),
            *((("text", {"a": [k, 2.0], "b": None}), (k, 2.0), 2) for k in (1, X, 2, X)),
            # A number is no array elsewhere, whichever came first.
            *(((first, 5), (X, 5) if first is X else (5,), n) for first, n in ((X, 3), (1, 4))),
            *(((first, 5), (X, 5) if first is X else (5,), 5) for first in (2, X, 2, 1)),
            # Nor is a number of another type.
            *(((X, True), (X,), 6), ((X, 1), (X, 1), 6), ((X, True), (X,), 6)),
        ],
    ),
    "by a path": (
        b"\11\1",
        PATH,
        [
            *(((rate(number), 1), (X, number), 1) for number in (1, 2, 3.0, X, 4)),
            *(((rate(5, n), 1), (X, 5), variants) for n, variants in ((2, 2), (1, 2))),
            *(((rate(5, X), 1), (X, X, 5), 3), ((rate(5, 1), 1), (X, 5), 3)),
            # One more leaf moves the others, and the other argument is static.
            *((({"a": k, **rate(1)}, k), (X, 1), 3 + k) for k in (1, 2)),
        ],
    ),
    "by a path that had an array first": (b"\11\1", PATH,
        [(({"rate": number, "n": 1}, 1), (number,), 1) for number in (X, 1, Array(2.5), 2, X)]),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_are_traced(name: str) -> None:
    flags, chosen, calls = NUMBERS[name]
    jit, last = Jit(flags, chosen, traced_in=(int, float)), None
    for args, arrays, variants in calls:
        before = jit.hooks.count("choose")
        jit(*args)
        asked = jit.hooks.count("choose") - before
        variant, _, found = jit.f._find_or_compile(*args)
        assert found == arrays, args
        assert variant is not last or asked == 0
        assert len(jit.cache.variants()) == jit.hooks.count("compile") == variants, args
        last = variant


def test_a_large_argument_whose_arrays_become_numbers() -> None:
    jit = Jit(b"\4\1", traced_in=(int,))

    def make() -> Any:
        return [Linear(weight=X, bias=[X], size=3) for _ in range(50)]

    model, other = make(), make()
    for _ in range(10):
        jit(model, model)
    model[3].bias[0] = 7
    for _ in range(10):
        jit(model, other)
        jit(other, other)
    assert len(jit.cache.variants()) == 1
    assert jit.arrays(model, other)[7] == 7
    for _ in range(10):
        jit(other, model)
    assert len(jit.cache.variants()) == 2


@pytest.mark.parametrize(
    "wrong, error, text",
    [
        *((choice, RuntimeError, "") for choice in (b"", b"\1\1")),
        *((choice, TypeError, "a choice of leaves must be bytes") for choice in (None, [1])),
    ],
)
def test_a_choice_that_does_not_fit(wrong: Any, error: Any, text: str) -> None:
    jit = Jit(b"\11\1", PATH, traced_in=(int, float))
    jit([{"rate": 1}], 1)
    jit.hooks.choose = lambda *args: wrong  # type: ignore[method-assign]
    assert text in str(raised(error, jit, [3], 1))
    jit([{"rate": 2}], 1)
    assert len(jit.cache.variants()) == 1


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
