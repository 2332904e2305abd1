"""Binding of arguments to parameters: which calls share a variant, and which arguments do not fit."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from support.comparison import Jit, Traces, on_both

ONE = jnp.array(1.0)
TWO = jnp.array(2.0)
THREE = jnp.array(3.0)

Call = Callable[[Callable[..., Any]], Any]


# ---- one variant for one meaning ----


def test_keyword_and_position_share_a_variant(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(x: Any, y: Any, z: Any = 1) -> Any:
        traces.tick()
        return x + 2 * y, z

    assert f(ONE, TWO)[0] == f(ONE, y=TWO)[0] == f(y=TWO, x=ONE)[0] == f(x=ONE, y=TWO)[0] == 5
    assert traces.count == 1
    assert f(ONE, TWO, 5)[1] == f(ONE, TWO, z=5)[1] == f(z=5, y=TWO, x=ONE)[1] == 5
    assert traces.count == 2


def test_a_default_that_is_given_is_another_variant(jit: Jit) -> None:
    """As in Equinox, defaults are not filled in."""
    traces = Traces()

    @jit
    def f(x: Any, y: Any = 1) -> Any:
        traces.tick()
        return x + y

    assert f(ONE) == f(ONE, 1) == f(ONE, y=1) == 2
    assert traces.count == 2


def test_array_defaults(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(x: Any, y: Any = TWO, *, z: Any = THREE) -> Any:
        traces.tick()
        return x + y + z

    assert (f(ONE), f(ONE, ONE), f(ONE, z=ONE)) == (6, 5, 4)
    assert traces.count == 3


def test_varargs(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(x: Any, *rest: Any) -> Any:
        traces.tick()
        assert type(rest) is tuple
        return x + sum(rest), len(rest)

    assert f(ONE) == (1, 0)
    assert f(ONE, TWO) == (3, 1)
    assert f(ONE, THREE) == (4, 1)
    assert f(ONE, TWO, 5) == (8, 2)
    assert f(x=ONE) == (1, 0)
    assert traces.count == 3


@on_both
def test_kwargs_order_does_not_matter(jit: Jit) -> Any:
    traces = Traces()

    @jit
    def f(**kwargs: Any) -> Any:
        traces.tick()
        assert type(kwargs) is dict
        return list(kwargs), kwargs

    results = [
        f(),
        f(b=ONE, a=TWO),
        f(a=ONE, b=TWO),
        f(c=1, a=ONE, b=2),
        f(b=2, a=ONE, c=1),
        f(**{"not an identifier": ONE, "": TWO}),
    ]
    return results, traces.count


def test_names_that_could_clash(jit: Jit, ours: bool) -> None:
    traces = Traces()

    @jit
    def f(self: Any, fun: Any, args: Any, kwargs: Any, **more: Any) -> Any:
        traces.tick()
        return self + fun + args + kwargs + sum(more.values())

    names = {"self": ONE, "fun": ONE, "args": ONE, "kwargs": ONE}
    assert f(**names) == 4
    assert f(ONE, ONE, ONE, ONE) == 4
    assert f(**names, op=ONE, variant=ONE, donate="all" == "none", first=ONE, rest=ONE) == 8
    assert traces.count == 2
    # Equinox's `lower` and `Compiled.__call__` have a parameter `self`.
    if ours:
        assert f.lower(**names).compile()(**names) == 4


def test_keyword_only(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(x: Any, *, y: Any, z: Any = 10) -> Any:
        traces.tick()
        return x + y + z

    assert f(ONE, y=TWO) == f(y=TWO, x=ONE) == 13
    assert traces.count == 1
    assert f(ONE, z=0, y=TWO) == f(ONE, y=TWO, z=0) == 3
    assert traces.count == 2


def test_positional_only(jit: Jit, ours: bool) -> None:
    traces = Traces()

    @jit
    def f(x: Any, y: Any = 2, /, z: Any = 3, **kwargs: Any) -> Any:
        traces.tick()
        return x + y + z + sum(kwargs.values())

    assert f(ONE) == 6
    assert f(ONE, 5) == 9
    assert f(ONE, z=0) == 3
    assert traces.count == 3
    # **kwargs may hold names of positional-only parameters; Python 3.11's inspect refuses them.
    if ours:
        assert f(ONE, x=TWO, y=THREE) == 11


@on_both
def test_everything_at_once(jit: Jit) -> Any:
    traces = Traces()

    @jit
    def f(a: Any, /, b: Any, c: Any = 3, *d: Any, e: Any, f: Any = 6, **g: Any) -> Any:
        traces.tick()
        return a, b, c, d, e, f, g

    results = [
        f(ONE, 2, e=5),
        f(ONE, b=2, e=5),
        f(ONE, e=5, b=2),
        f(ONE, 2, TWO, 4, 5, e=THREE),
        f(ONE, 2, c=TWO, e=5, f=7, h=ONE, g=2),
        f(ONE, 2, 3, e=5, a=1),
    ]
    return results, traces.count


def test_partials_bind(jit: Jit) -> None:
    def f(x: Any, y: Any, z: Any = 1, *, w: Any = 2) -> Any:
        return x + 10 * y + 100 * z + 1000 * w

    for partial in (functools.partial, jtu.Partial, eqx.Partial):
        assert jit(partial(f, ONE))(TWO) == 1 + 20 + 100 + 2000
        assert jit(partial(f, y=ONE))(TWO) == 2 + 10 + 100 + 2000
        assert jit(partial(f, y=ONE))(TWO, z=3) == 2 + 10 + 300 + 2000
        assert jit(partial(f, ONE, z=THREE))(y=TWO) == 1 + 20 + 300 + 2000
        if partial is eqx.Partial:
            with pytest.raises(TypeError, match="multiple values for keyword argument 'w'"):
                jit(partial(f, ONE, w=0))(TWO, w=3)
        else:
            assert jit(partial(f, ONE, w=0))(TWO, w=3) == 1 + 20 + 100 + 3000


def test_methods_bind(jit: Jit) -> None:
    traces = Traces()

    class M(eqx.Module):
        a: Any

        @jit
        def method(self, x: Any, *rest: Any, k: Any = 1, **more: Any) -> Any:
            traces.tick()
            return self.a + x + len(rest) + k + len(more)

    m = M(ONE)
    assert m.method(ONE) == M.method(m, ONE) == M.method(self=m, x=ONE) == m.method(x=ONE) == 3
    assert traces.count == 1
    assert m.method(ONE, 1, 1, k=2, u=1, v=2) == 8
    arguments = {f"n{i}": i for i in range(12)}
    assert m.method(ONE, *range(12), **arguments) == 27


def test_call_by_every_protocol(jit: Jit) -> None:
    """Vectorcall with and without PY_VECTORCALL_ARGUMENTS_OFFSET, and tp_call."""
    traces = Traces()

    class M(eqx.Module):
        @jit
        def method(self, *args: Any) -> Any:
            traces.tick()
            return args[0] + len(args)

    method = M().method
    assert list(map(method, [ONE, TWO])) == [2, 3]
    assert method(*[ONE]) == functools.partial(method)(ONE) == method.__call__(ONE) == 2
    assert functools.partial(method, ONE)() == 2
    assert traces.count == 1
    assert method(*([ONE] * 20)) == 21
    assert functools.partial(method, *([ONE] * 10))(*([ONE] * 10)) == 21


def test_defaults_follow_the_function(jit: Jit) -> None:
    """The function's current defaults apply, in the trace and after it."""
    marker = object()

    @jit
    def f(x: Any = None, y: Any = marker) -> Any:
        return x, y is marker

    assert f() == (None, True)
    assert f(None, marker) == (None, True)
    assert f(ONE) == (1, True)
    assert f(y=ONE) == (None, False)


# ---- what does not fit ----


def function(a: Any, b: Any, c: Any = 1, *, d: Any = 2) -> Any:
    return a


def no_parameters() -> Any:
    return 1


def keyword_only(*, x: Any, y: Any) -> Any:
    return x


def positional_only(x: Any, y: Any = 1, /) -> Any:
    return x


class M(eqx.Module):
    a: Any = 1

    def method(self, x: Any, y: Any) -> Any:
        return x

    def __call__(self, x: Any) -> Any:
        return x

    @staticmethod
    def static(x: Any) -> Any:
        return x


class Plain:
    def method(self, x: Any, *, k: Any) -> Any:
        return x

    def __call__(self, x: Any, y: Any) -> Any:
        return x

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x


MISFITS: dict[str, tuple[Any, Call]] = {
    "missing two": (function, lambda f: f()),
    "missing one": (function, lambda f: f(ONE)),
    "missing one of keywords": (function, lambda f: f(b=ONE)),
    "too many": (function, lambda f: f(1, 2, 3, 4)),
    "too many with keyword": (function, lambda f: f(1, 2, 3, 4, d=3)),
    "unknown keyword": (function, lambda f: f(1, 2, e=3)),
    "misspelt keyword": (function, lambda f: f(1, 2, cc=3)),
    "given twice": (function, lambda f: f(1, 2, a=3)),
    "takes none": (no_parameters, lambda f: f(1)),
    "takes none but keyword": (no_parameters, lambda f: f(x=1)),
    "missing keyword-only": (keyword_only, lambda f: f(x=1)),
    "missing all keyword-only": (keyword_only, lambda f: f()),
    "position for keyword-only": (keyword_only, lambda f: f(1, x=1, y=2)),
    "keyword for positional-only": (positional_only, lambda f: f(x=1)),
    "keyword for positional-only default": (positional_only, lambda f: f(1, y=1)),
    "lambda": (lambda x: x, lambda f: f()),
    "Module": (M(), lambda f: f()),
    "Module, too many": (M(ONE), lambda f: f(1, 2)),
    "Module, keyword": (M(ONE), lambda f: f(1, z=2)),
    "method of Module": (M(ONE).method, lambda f: f(1)),
    "method of Module, twice": (M(ONE).method, lambda f: f(1, 2, x=2)),
    "staticmethod": (M.static, lambda f: f()),
    "plain method": (Plain().method, lambda f: f(1)),
    "plain method, too many": (Plain().method, lambda f: f(1, 2, k=1)),
    "plain object": (Plain(), lambda f: f(1)),
    "classmethod": (Plain.of_class, lambda f: f()),
    "class": (M, lambda f: f(1, 2, 3)),
    "partial": (functools.partial(function, 1), lambda f: f()),
    "partial, too many": (functools.partial(function, 1), lambda f: f(1, 2, 3)),
    "partial, given twice": (functools.partial(function, 1), lambda f: f(1, a=2)),
    "partial of keyword, by position": (functools.partial(function, b=1), lambda f: f(1, 2)),
    "partial of Module": (functools.partial(M(), 1), lambda f: f(2)),
    "tree_util.Partial": (jtu.Partial(function, ONE), lambda f: f()),
    "eqx.Partial": (eqx.Partial(function, ONE), lambda f: f()),
    "eqx.Partial of Module": (eqx.Partial(M(ONE), ONE), lambda f: f(1)),
}


@pytest.mark.parametrize("name", MISFITS)
def test_binding_error(jit: Jit, ours: bool, name: str) -> None:
    fun, call = MISFITS[name]
    with pytest.raises(TypeError) as plain:
        call(fun)
    with pytest.raises(TypeError) as jitted:
        call(jit(fun))
    # By decision: the function's own message; Equinox shows that of inspect.Signature.
    if ours:
        assert type(jitted.value) is TypeError
        assert str(jitted.value) == str(plain.value)


@pytest.mark.parametrize("base", [eqx.Module, object], ids=["Module", "plain"])
@pytest.mark.parametrize("donate", ["none", "all"])
def test_binding_error_of_a_method_in_a_class_body(
    ours: bool, jit: Jit, base: type, donate: str
) -> None:
    def method(self: Any, x: Any, y: Any, *, k: Any = 1) -> Any:
        return x

    class C(base):  # type: ignore[misc, valid-type]
        plain = method
        jitted = jit(method, donate=donate)

    calls: list[Call] = [
        lambda f: f(),
        lambda f: f(1),
        lambda f: f(1, 2, 3),
        lambda f: f(1, 2, z=1),
        lambda f: f(1, 2, x=1),
    ]
    for call in calls:
        with pytest.raises(TypeError) as plain:
            call(C().plain)
        with pytest.raises(TypeError) as jitted:
            call(C().jitted)
        if ours:
            assert str(jitted.value) == str(plain.value)


def test_binding_error_does_not_run_or_trace_the_function(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(x: Any, y: Any = 1) -> Any:
        traces.tick()
        return x

    assert f(ONE) == 1
    for _ in range(2):
        with pytest.raises(TypeError):
            f()
        with pytest.raises(TypeError):
            f(ONE, z=1)
        assert f(TWO) == 2
    assert traces.count == 1


def test_binding_error_within_a_trace(jit: Jit, ours: bool) -> None:
    f = jit(lambda x: x)
    with pytest.raises(TypeError) as info:
        jit(lambda x: f(x, x))(ONE)
    if ours:
        assert "takes 1 positional argument but 2 were given" in str(info.value)


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
        text = "function() missing 1 required positional argument: 'b'"
        assert str(lowering.value) == str(calling.value) == text


def test_annotations_are_never_evaluated() -> None:
    """The message is made from the signature only."""

    def f(x: "no.such.name", y: "int | nothing" = object()) -> "void":  # type: ignore # noqa
        return x

    jitted = filterjit.filter_jit(f)
    assert jitted(ONE) == 1
    with pytest.raises(TypeError) as info:
        jitted()
    assert str(info.value).endswith("f() missing 1 required positional argument: 'x'")


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


def test_jax_transformed_function_binding_errors(jit: Jit) -> None:
    fun = jax.vmap(lambda x, y: x + y)
    with pytest.raises(TypeError, match="argument"):
        jit(fun)(jnp.ones(2))
