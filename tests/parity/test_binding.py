"""Binding of arguments to parameters: which calls share a variant, and which arguments do not fit."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from support.callables import Affine
from support.comparison import Jit, Traces, comparable
from support.trees import ONE, TWO

THREE = jnp.array(3.0)

Call = Callable[[Callable[..., Any]], Any]


# Calls, by the parameters of a function. Those that bind the same statics share a program; defaults
# are not filled in, as in Equinox.
CALLS = {
    "x, y, z=1": [
        *("ONE, TWO", "ONE, y=TWO", "y=TWO, x=ONE", "x=ONE, y=TWO", "ONE, TWO, 1"),
        *("ONE, TWO, 5", "ONE, TWO, z=5", "z=5, y=TWO, x=ONE"),
    ],
    "self, fun, args, kwargs, **more": [
        *("self=ONE, fun=ONE, args=ONE, kwargs=ONE", "ONE, ONE, ONE, ONE"),
        "kwargs=ONE, args=ONE, fun=ONE, self=ONE, op=ONE, variant=ONE, donate=False, first=ONE",
    ],
    "a, /, b, c=3, *d, e, f=6, **g": [
        *("ONE, 2, e=5", "ONE, b=2, e=5", "ONE, e=5, b=2", "ONE, 2, TWO, 4, 5, e=THREE"),
        *("ONE, 2, c=TWO, e=5, f=7, h=ONE, g=2", "ONE, 2, g=2, h=ONE, f=7, e=5, c=TWO"),
    ],
}


@pytest.mark.parametrize("parameters", CALLS)
def test_calls_that_bind_alike_share_a_program(jit: Jit, traces: Traces, parameters: str) -> None:
    names: dict[str, Any] = {"tick": traces.tick, "ONE": ONE, "TWO": TWO, "THREE": THREE}
    exec(f"def plain({parameters}): return locals()", names)
    exec(f"def traced({parameters}): tick(); return dict(locals())", names)
    exec("def given(*args, **kwargs): return args, kwargs", names)
    plain, jitted = names["plain"], jit(names["traced"])
    bound = set()
    for call in CALLS[parameters]:
        args, kwargs = eval(f"given({call})", names)
        expected = jtu.tree_map(lambda x: x, plain(*args, **kwargs))  # sorts the keys of dicts
        assert comparable(jitted(*args, **kwargs)) == comparable(expected)
        found = inspect.signature(plain).bind(*args, **kwargs).arguments
        leaves, structure = jtu.tree_flatten(dict(found))
        statics = [None if isinstance(x, jax.Array) else x for x in leaves]
        bound.add((str(structure), str(statics)))
    assert traces.count == len(bound)


def test_names_of_positional_only_parameters() -> None:
    f = filterjit.filter_jit(lambda x, y=2, /, **kwargs: (x, y, kwargs))
    # **kwargs may hold them; Python 3.11's inspect refuses them.
    assert f(ONE, x=TWO, y=THREE) == (1, 2, {"x": 2, "y": 3})
    g = filterjit.filter_jit(lambda self, fun: self + fun)
    # Equinox's `lower` and `Compiled.__call__` have a parameter `self`.
    assert g.lower(self=ONE, fun=ONE).compile()(self=ONE, fun=ONE) == 2


def test_partials_bind(jit: Jit) -> None:
    def f(x: Any, y: Any, z: Any = 1, *, w: Any = 2) -> Any:
        return x, y, z, w

    for partial in (functools.partial, jtu.Partial, eqx.Partial):
        assert jit(partial(f, ONE))(TWO) == (1, 2, 1, 2)
        assert jit(partial(f, y=ONE))(TWO) == (2, 1, 1, 2)
        assert jit(partial(f, y=ONE))(TWO, z=3) == (2, 1, 3, 2)
        assert jit(partial(f, ONE, z=THREE))(y=TWO) == (1, 2, 3, 2)
        given_twice = jit(partial(f, ONE, w=0))
        if partial is eqx.Partial:
            with pytest.raises(TypeError, match="multiple values for keyword argument 'w'"):
                given_twice(TWO, w=3)
        else:
            assert given_twice(TWO, w=3) == (1, 2, 1, 3)


def function(a: Any, b: Any, c: Any = 1, *, d: Any = 2) -> Any:
    return a


def keyword_only(*, x: Any, y: Any) -> Any:
    return x


def positional_only(x: Any, y: Any = 1, /) -> Any:
    return x


MISFITS: dict[str, tuple[Any, Call]] = {
    "missing one": (function, lambda f: f(ONE)),
    "too many": (function, lambda f: f(1, 2, 3, 4)),
    "unknown keyword": (function, lambda f: f(1, 2, e=3)),
    "given twice": (function, lambda f: f(1, 2, a=3)),
    "takes none": (lambda: 1, lambda f: f(1)),
    "missing keyword-only": (keyword_only, lambda f: f(x=1)),
    "position for keyword-only": (keyword_only, lambda f: f(1, x=1, y=2)),
    "keyword for positional-only": (positional_only, lambda f: f(x=1)),
    "Module": (Affine(1), lambda f: f()),
    "method of Module": (Affine(ONE).twice, lambda f: f()),
    "partial": (functools.partial(function, 1), lambda f: f()),
    "partial, given twice": (functools.partial(function, 1), lambda f: f(1, a=2)),
    "eqx.Partial": (eqx.Partial(function, ONE), lambda f: f()),
}


@pytest.mark.parametrize("name", MISFITS)
def test_binding_error(jit: Jit, ours: bool, name: str) -> None:
    fun, call = MISFITS[name]
    with pytest.raises(TypeError):
        call(fun)
    with pytest.raises(TypeError) as jitted:
        call(jit(fun))
    # The message of inspect.Signature, as in Equinox, after the function's name. An eqx.Partial
    # takes any arguments, and is called.
    if ours and name != "eqx.Partial":
        with pytest.raises(TypeError) as bound:
            call(inspect.signature(fun).bind)
        assert type(jitted.value) is TypeError
        assert str(jitted.value).endswith(f"(): {bound.value}")


def test_type_error_of_the_body_is_not_a_binding_error(jit: Jit) -> None:
    def inner(x: Any) -> Any:
        return x

    @jit
    def f(x: Any) -> Any:
        return inner(x, x)  # type: ignore[call-arg]

    for _ in range(2):
        with pytest.raises(TypeError, match=r"inner\(\) takes 1 positional argument"):
            f(ONE)


def test_binding_error_of_lower(jit: Jit, ours: bool) -> None:
    f = jit(function)
    with pytest.raises(TypeError) as lowering:
        f.lower(1)
    compiled = f.lower(ONE, 2).compile()
    with pytest.raises(TypeError) as calling:
        compiled(ONE)
    if ours:
        text = "function(): missing a required argument: 'b'"
        assert str(lowering.value) == str(calling.value) == text


def test_annotations_are_never_evaluated() -> None:
    """The message is made from the signature only."""

    def f(x: "no.such.name", y: "int | nothing" = object()) -> "void":  # type: ignore # noqa
        return x

    jitted = filterjit.filter_jit(f)
    assert jitted(ONE) == 1
    with pytest.raises(TypeError) as info:
        jitted()
    assert str(info.value).endswith("f(): missing a required argument: 'x'")


def test_binding_error_of_a_wrapped_function(jit: Jit) -> None:
    """Arguments are bound by the inner signature, with inspect's message: the function has none."""

    def inner(x: Any) -> Any:
        return x

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    assert jit(outer)(x=ONE) == 1
    with pytest.raises(TypeError, match="too many positional arguments"):
        jit(outer)(ONE, TWO)
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        jit(outer)()
