"""f.partial: its arguments are flattened once, and later changes of them are not seen."""

import copy
import gc
import weakref
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Hooks,
    Linear,
    Record,
    Value,
    core,
    make_jit,
    make_registry,
    same,
    variants,
)


def everything(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def parameters(a: Any, b: Any, /, c: Any = None, *rest: Any, d: Any = 4, **more: Any) -> Any:
    return a, b, c, rest, d, more


X, Y, Z = Array("x"), Array("y"), Array("z")
TREES: list[Any] = [
    X,
    3,
    None,
    (1, "two"),
    [X, 1, (Y, 2)],
    {"k": X, "j": [1, Y]},
    Linear(weight=X, bias=[Y], size=3, activation=len),
    Record(X, [1], "tag"),
    Box([X, 2], aux="aux"),
    Value(5),
]


@pytest.mark.parametrize("tree", TREES, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("fun", [everything, parameters], ids=lambda f: f.__name__)
def test_same_as_the_whole_call(fun: Any, tree: Any) -> None:
    f = make_jit(fun)
    for args, kwargs in (((), {}), ((tree,), {}), ((tree, tree), {"d": tree, "other": tree})):
        p = f.partial(*args, **kwargs)
        for more, named in (((X, 1), {}), ((X, 1, 2, 3), {}), (([tree], tree), {"d": 1, "e": 2})):
            expected = f(*args, *more, **{**kwargs, **named})
            before = len(variants(f))
            for _ in range(3):
                assert same(p(*more, **named), expected)
            assert len(variants(f)) == before


def test_variants_are_shared_both_ways() -> None:
    f = make_jit(lambda model, x, n: (model, x, n))
    model = Linear(weight=X, bias=None, size=3, activation=len)
    p = f.partial(model)
    assert p(Y, 1)[1] is Y and f(model, Y, 1)[1] is Y and p(Z, 1)[1] is Z
    assert f(model, Y, 2)[2] == 2 and p(Y, 2)[2] == 2 and p(Y, 1)[2] == 1
    assert f._hooks.count("compile") == 2


def test_later_changes_of_containers_are_not_seen() -> None:
    f = make_jit(lambda items, module, d, n: (items, module, d, n))
    items, d = [X, 1], {"k": Y}
    module = Linear(weight=X, bias=[1], size=3, activation=len)
    p = f.partial(items, module, d)
    first = p(0)
    items.append(2)
    d["k"] = 5
    object.__setattr__(module, "size", 4)
    module.bias.append(7)
    assert same(p(0), first)  # a hit
    assert same(p(1)[:3], first[:3])  # a miss
    assert f._hooks.count("compile") == 2
    assert f(items, module, d, 0)[0] == [X, 1, 2]
    assert same(p(0), first)


def test_statics_that_change_are_seen() -> None:
    f = make_jit(lambda value, x: (value.value, x))
    value = Value(1)
    p = f.partial(value)
    assert p(X) == (1, X)
    value.value = 2
    assert p(X) == (2, X)
    value.value = 1
    assert p(X) == (1, X)
    assert f._hooks.count("compile") == 2


def test_the_same_object_in_another_place() -> None:
    """An argument that is given once is recognized only in its own parameter."""
    f = make_jit(lambda a, b, c=0: (a, b, c))
    text, other = "a text", "another"
    p = f.partial(text)
    assert p(other) == (text, other, 0)
    assert p(text) == (text, text, 0)
    assert p(other) == (text, other, 0)
    q = f.partial(b=text)
    assert q(text) == (text, text, 0) and q(other) == (other, text, 0)
    assert q(other, b=other) == (other, other, 0) and q(other, c=text) == (other, text, text)


def test_keywords_of_the_call_take_precedence() -> None:
    f = make_jit(lambda *, a, b=2, c=3: (a, b, c))
    p = f.partial(a=X, b=Y)
    assert p() == (X, Y, 3) and p(b=5) == (X, 5, 3) and p(c=X, a=Z) == (Z, Y, X)
    assert p() == (X, Y, 3)
    assert p.keywords == {"a": X, "b": Y} and p.args == () and p.func is f


def test_many_arguments() -> None:
    f = make_jit(everything)
    p = f.partial(*range(20), **{f"k{i}": i for i in range(20)})
    args, kwargs = p(*range(20, 40), **{f"k{i}": -i for i in range(10, 30)})
    assert args == tuple(range(40))
    assert kwargs == {f"k{i}": i if i < 10 else -i for i in range(30)}


def test_errors() -> None:
    f = make_jit(lambda a, b: (a, b))
    with pytest.raises(TypeError, match="unhashable"):
        f.partial([set()])(1)
    with pytest.raises(TypeError):
        f.partial(1)()
    with pytest.raises(TypeError):
        f.partial(1)(2, a=3)
    with pytest.raises(TypeError):
        f.partial(1)(2, 3)
    assert f.partial(1)(2) == (1, 2)
    for bad in ((1, (), {}), (f, [], {}), (f, (), None), (f,)):
        with pytest.raises(TypeError):
            core.PartialFilterJit(*bad)


def test_after_eviction() -> None:
    f = make_jit(lambda a, n: (a, n), Hooks(make_registry(), maxsize=2))
    p = f.partial([X])
    for n in (0, 1, 2, 3, 0, 1, 0):
        assert p(n) == ([X], n)
    f._parts()[0].clear()
    assert p(0) == ([X], 0) and p(1) == ([X], 1)


def test_the_partial_dropped_in_its_own_call() -> None:
    held: list[Any] = []

    def fun(a: Any, x: Any) -> Any:
        held.clear()
        gc.collect()
        return a, x

    f = make_jit(fun)
    held.append(f.partial([X]))
    assert held[0](Y) == ([X], Y)
    assert held == []


def test_lifetime() -> None:
    f = make_jit(lambda a, x: x)
    array = Array()
    p = f.partial({"k": [array]})
    p(X)
    array_ref, partial_ref = weakref.ref(array), weakref.ref(p)
    del array
    assert array_ref() is not None
    del p
    assert array_ref() is None and partial_ref() is None

    array = Array()
    array.value = f.partial(array)  # a cycle
    array.value(X)
    array_ref = weakref.ref(array)
    del array
    gc.collect()
    assert array_ref() is None


def test_its_arguments_are_copies() -> None:
    """What is read of a partial can be changed without an effect on its calls, hits or not."""
    f = make_jit(lambda a, n, **more: (a, n, more))
    x = Array()
    nested = [x, {"k": [1]}, Linear(weight=[x], bias=None, size=3, activation=len)]
    p = f.partial(nested, k={"m": [x]})
    first = p(0)
    for part in (p.args[0], p.keywords["k"]["m"]):
        part.clear()
    p.args[0][1]["k"] = 2
    p.args[0][2].weight.append(3)
    object.__setattr__(p.args[0][2], "size", 4)
    p.keywords.clear()
    p.keywords["k"]["other"] = p.keywords["other"] = 1
    assert same(p(0), first)  # a hit
    assert same(p(1), (first[0], 1, first[2]))  # a miss
    assert same(p.args, (nested,)) and same(p.keywords, {"k": {"m": [x]}})
    assert p.args[0][0] is x and p.args[0][2].activation is len
    assert f._hooks.count("compile") == 2


def test_a_static_that_changes_is_noticed_by_each_call() -> None:
    """Static values are not copied, and `args` has the very objects."""
    f = make_jit(lambda module, n: (list(module.size), n))
    p = f.partial(Linear(weight=[1], bias=None, size=[8], activation=len))
    assert p(0) == ([8], 0) and p(1) == ([8], 1)
    p.args[0].size.append(4)
    for _ in range(2):
        assert p(0) == ([8, 4], 0) and p(1) == ([8, 4], 1)


def test_copies_and_pickles() -> None:
    f = make_jit(everything)
    p = core.PartialFilterJit(f, ([1, 2],), {"k": {"a": 3}})
    for q in (copy.copy(p), copy.deepcopy(p)):
        assert type(q) is core.PartialFilterJit
        assert q(5) == (([1, 2], 5), {"k": {"a": 3}})
    assert p.__reduce__()[1][1][0] is not p.__reduce__()[1][1][0]


def test_its_repr_tells_what_is_given() -> None:
    f = make_jit(everything)
    p = f.partial([Array()], 2, k={"a": 3}, z=4)
    assert repr(p) == f"<partial of {f!r}, given 2 by position and ['k', 'z'] by name>"


def test_keywords_that_are_not_str() -> None:
    with pytest.raises(TypeError, match="keywords must be strings"):
        core.PartialFilterJit(make_jit(everything), (), {1: 2})


def test_copies_that_their_class_keeps() -> None:
    """What a class does when it is called to build the copy may change the copy later."""
    kept = []

    class Keeping(Record):
        def __init__(self, **fields: Any) -> None:
            super().__init__(**fields)
            kept.append(self)

    f = make_jit(lambda tree: tree)
    p = f.partial(Keeping(data=X, other=Y, tag=1))
    copy = kept[-1]
    for _ in range(3):
        assert p().data is X
    copy.data = Z
    assert p().data is Z
