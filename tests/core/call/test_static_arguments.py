"""Static arguments, which are not walked, and calls that are handed over."""

from typing import Any

import pytest
from core_support import Array, Hooks, Linear, core, make_jit, make_registry


class Jit:
    """A FilterJit of two parameters, by default the second is static. It returns them."""

    def __init__(self, flags: bytes = b"\1\2", **policy: Any) -> None:
        registry = make_registry()
        self.hooks = Hooks(registry.with_policy(**policy) if policy else registry)
        self.f = make_jit(lambda a, b=None: (a, b), self.hooks)
        structure = core.flatten(self.hooks.registry, self.f.__wrapped__)[1]
        signature = core.Signature(("a", "b"), 0, 2, False, False, flags)
        self.cache = core.Cache(self.hooks.registry, structure, signature, self.hooks, 9, {})
        self.hooks.caches[structure] = self.cache
        self.traced: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*args, **kwargs)


def test_a_static_argument_is_one_value() -> None:
    jit = Jit()
    x, array = Array(), Array()
    for static in ((1, (2, "b")), (1, (2, "b")), frozenset({1}), "text", None):
        for _ in range(2):
            assert jit(x, static) == (x, static)
            assert jit(x, b=static) == (x, static)
    assert len(jit.cache.variants()) == 4
    variant = jit.f._find_or_compile(x, (1, 2))[0]
    assert variant.structure.num_leaves == 1
    # An array in it is no leaf, and is compared as a static value.
    holder = (array, 1)
    assert jit(x, holder)[1][0] is array
    assert jit.f._find_or_compile(x, holder)[0].structure.num_leaves == 1


def test_a_static_argument_that_changes_in_place() -> None:
    class Box:
        def __init__(self, n: int) -> None:
            self.n = n

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Box) and self.n == other.n

        def __hash__(self) -> int:
            return self.n

    jit = Jit()
    box = Box(1)
    for _ in range(3):
        assert jit(1.0, box)[1].n == 1
    box.n = 2
    jit(1.0, box)
    jit(1.0, Box(2))
    assert jit.hooks.count("compile") == 2


def test_an_unhashable_one_raises() -> None:
    jit = Jit()
    with pytest.raises(TypeError, match="unhashable") as e:
        jit(Array(), [1])
    assert e.value.__filterjit_error_context__[:2] == ("hash", ["b"])  # type: ignore[attr-defined]
    assert not jit.cache.variants()


def test_which_structures_have_static_leaves() -> None:
    jit = Jit()
    x = Array()
    found = {
        name: jit.f._find_or_compile(*args)[0].structure._has_static_leaves()
        for name, args in {
            "argument": (x, "text"),
            "leaf": ([x, "text"], "text"),
            "field": (Linear(weight=x, bias=x, size=3),),
            "none": ({"a": x, "b": None},),
        }.items()
    }
    assert found == {"argument": False, "leaf": True, "field": False, "none": False}


def test_a_call_that_is_handed_over() -> None:
    f = make_jit(lambda a, k=1: (a, k))
    hooks = f._hooks
    x = Array()
    assert f(x) == (x, 1)

    def fail(*args: Any) -> None:
        raise ZeroDivisionError

    hooks.on["compile"] = fail
    with pytest.raises(ZeroDivisionError):
        f(x, k=2)
    hooks.reason = "not covered"
    handed_over: list[Any] = []
    hooks.on["hand_over"] = lambda *args: handed_over.append(args[1:])
    assert f(x, k=2) == (x, 2)
    assert handed_over == [("not covered", (x,), {"k": 2})]
    assert f(x) == (x, 1)
    assert len(handed_over) == 1
    with pytest.raises(ZeroDivisionError):
        f._find_or_compile(x, k=2)
    hooks.on["hand_over"] = fail
    with pytest.raises(ZeroDivisionError):
        f(x, k=2)
    assert f(x) == (x, 1)


def test_numbers_are_traced_in_some_arguments() -> None:
    jit = Jit(b"\1\4", traced_in=(int, float))
    x = Array()
    for number in (1, 2, 3.0, x, 4):
        jit("text", number)
        assert jit.f._find_or_compile("text", number)[1] == (number,)
    assert len(jit.cache.variants()) == 1 and jit.hooks.count("compile") == 1
    for _ in range(2):
        jit("text", {"a": [1, 2.0], "b": None})
        jit("text", {"a": [x, 3], "b": None})
    assert len(jit.cache.variants()) == 2
    # A number is no array elsewhere, whichever came first, nor is one of another type here.
    for first in (x, 1, 2, x, 2, 1):
        jit(first, 5)
        assert jit.f._find_or_compile(first, 5)[1] == ((x, 5) if first is x else (5,))
    assert len(jit.cache.variants()) == 5
    for last in (x, True, 1, True):
        jit(x, last)
    assert len(jit.cache.variants()) == 6
    assert jit.hooks.count("compile") == 6


def test_a_large_argument_whose_arrays_become_numbers() -> None:
    jit = Jit(b"\4\1", traced_in=(int,))
    x = Array(0.5)  # the stand-in tells it from a number

    def make() -> Any:
        return [Linear(weight=x, bias=[x], size=3) for _ in range(50)]

    model, other = make(), make()
    for _ in range(10):
        jit(model, model)
    model[3].bias[0] = 7
    for _ in range(10):
        jit(model, other)
        jit(other, other)
    assert len(jit.cache.variants()) == 1
    assert jit.f._find_or_compile(model, other)[1][7] == 7
    for _ in range(10):
        jit(other, model)
    assert len(jit.cache.variants()) == 2


def rates(*, asked: bool = False) -> Jit:
    """A FilterJit that traces numbers in the argument `a`, where a key is "rate"."""
    jit = Jit(b"\31\1" if asked else b"\11\1", traced_in=(int, float))
    jit.hooks.chosen = "path", (..., "rate")
    return jit


def test_some_numbers_of_an_argument_are_traced() -> None:
    jit = rates()
    x = Array()
    for rate in (1, 2, 3.0, x, 4):
        jit({"rate": rate, "n": 1, "more": [x, "text"]}, 1)
        assert jit.hooks.count("choose") == 1  # a hit does not ask
    assert len(jit.cache.variants()) == 1
    for n in (2, 1, x, 1):
        argument = {"rate": 5, "n": n, "more": [x, "text"]}
        assert jit(argument, 1)[0]["n"] is n
        assert jit.f._find_or_compile(argument, 1)[1] == ((x, x, 5) if n is x else (x, 5))
    assert len(jit.cache.variants()) == 3
    # One more leaf moves the others, and the other argument is static.
    for k in (1, 2):
        arguments = {"a": k, "rate": 1, "n": 1, "more": [x, "text"]}, k
        assert jit.f._find_or_compile(*arguments)[1] == (x, 1)
        jit(*arguments)
    assert len(jit.cache.variants()) == 5


@pytest.mark.parametrize("first", [1, Array()], ids=["number", "array"])
def test_a_place_that_is_chosen_takes_numbers_and_arrays(first: Any) -> None:
    jit = rates()
    for rate in (first, 1, Array(), 2, first):
        jit({"rate": rate, "n": 1}, 1)
    assert len(jit.cache.variants()) == 1 and jit.hooks.count("choose") == 1


def test_a_filter_of_leaves_is_asked_in_each_call() -> None:
    jit = rates(asked=True)
    jit.hooks.chosen = "leaf", lambda leaf: type(leaf) is float
    for rate in (1.0, 2.0, 2.5):
        jit([rate, 1], 1)
    assert len(jit.cache.variants()) == 1 and jit.hooks.count("choose") == 3
    for number in (1, 2, 1, 3.0):
        jit([number, 1], 1)
    assert len(jit.cache.variants()) == 3


def test_a_choice_that_does_not_fit() -> None:
    jit = rates()
    jit([{"rate": 1}], 1)
    for wrong, error in (
        (b"", RuntimeError),
        (b"\1\1", RuntimeError),
        (None, TypeError),
        ([1], TypeError),
    ):
        jit.hooks.choose = lambda *args, wrong=wrong: wrong  # type: ignore[method-assign]
        with pytest.raises(error):
            jit([3], 1)
        jit([{"rate": 2}], 1)
    assert len(jit.cache.variants()) == 1
