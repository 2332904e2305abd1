"""Uses of filterjit with the types that checkers find, and the mistakes that they find.

``make lint`` checks this file with mypy and pyright, and test_uses.py runs the functions whose names
begin with ``test_``. A line that must be an error has a comment ``type: ignore`` with the kind of
error that mypy finds, and one ``pyright: ignore`` with pyright's; both checkers report a comment
that nothing needs.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, assert_type

import jax
import jax.numpy as jnp

import filterjit
from filterjit import filter_jit, lax
from filterjit.types import FilterJit

T = TypeVar("T")
X = jnp.ones(3)


@filter_jit
def scale(x: jax.Array, factor: float, *, name: str = "") -> jax.Array:
    return x * factor


@filter_jit(donate="none", on_retrace="log", keep_unused=True, inline=True)
def count(x: jax.Array) -> dict[str, int]:
    return {"size": x.size}


@filter_jit(functions="structure", compiler_options={}, maxsize=4)
def first(xs: Sequence[T]) -> T:
    return xs[0]


@functools.partial(filterjit.jit, static_argnames=("n",))
def power(x: jax.Array, n: int) -> jax.Array:
    return x**n


@functools.partial(filter_jit, donate="all")
def twice(x: jax.Array) -> jax.Array:
    return x + x


def test_options_in_a_partial() -> None:
    power(X, 2).sum()
    twice(X + 1).sum()


def test_functions() -> None:
    assert_type(scale(X, 2.0, name="a"), jax.Array)
    assert_type(count(X), dict[str, int])
    assert_type(first([X, X]), jax.Array)
    assert_type(first([1, 2]), int)
    assert_type(filter_jit(len)([1]), int)
    assert scale.__name__ == "scale"


def wrong_arguments() -> None:
    scale("x", 2.0)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    scale(X)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    scale(X, 2.0, nmae="a")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    count(X).size  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue] # noqa: B018
    first(3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def wrong_options() -> None:
    filter_jit(donate="al")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    filter_jit(len, maxsiez=3)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    filter_jit(len, keep_unused="no")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    filter_jit(static_argnums=0)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    filter_jit(3)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]


@filterjit.nnx.jit
def scaled(x: jax.Array, factor: float = 2.0) -> jax.Array:
    return x * factor


class Linear:
    @filterjit.nnx.jit(static_argnames=("self", "train"))
    def loss(self, x: jax.Array, *, train: bool = False) -> jax.Array:
        return x


def test_nnx() -> None:
    assert_type(scaled(X, factor=3.0), jax.Array)
    assert_type(Linear().loss(X, train=True), jax.Array)
    assert_type(scaled.explain(X), filterjit.types.Explanation)
    assert_type(filterjit.nnx.cached_partial(scaled, X)(factor=3.0), jax.Array)
    f: filterjit.nnx.NNXJit[[jax.Array, float], jax.Array] = scaled
    assert_type(f.cache_info().hits, int)


def wrong_nnx() -> None:
    scaled("x")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    scaled.explain(X, fcator=3.0)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    Linear().loss(X, trian=True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    filterjit.nnx.jit(len, donate="x")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]


def takes_a_jitted_function(f: FilterJit[[jax.Array, float], jax.Array]) -> jax.Array:
    return f(X, 2.0)


def decorate(f: "FilterJit[[jax.Array], T]") -> FilterJit[[jax.Array], list[T]]:
    return filter_jit(lambda x: [f(x)])


def test_annotations() -> None:
    assert_type(takes_a_jitted_function(filter_jit(lambda x, n: x * n)), jax.Array)
    assert_type(decorate(count)(X), list[dict[str, int]])
    anything: FilterJit = scale
    assert isinstance(anything, FilterJit)
    if TYPE_CHECKING:
        takes_a_jitted_function(count)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        takes_a_jitted_function(jnp.multiply)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True)
class Net:
    width: int

    @filter_jit
    def loss(self, x: jax.Array, *, train: bool = False) -> jax.Array:
        return x * self.width

    @filter_jit(donate="none")
    def __call__(self, x: jax.Array) -> jax.Array:
        return self.loss(x, train=True)

    @classmethod
    @filter_jit
    def make(cls, width: int) -> "Net":
        return cls(width)

    @staticmethod
    @filter_jit
    def double(x: jax.Array) -> jax.Array:
        return x * 2


class Wide(Net):
    pass


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Box(Generic[T]):
    content: T

    @filter_jit
    def add(self, other: T) -> list[T]:
        return [self.content, other]


def test_methods() -> None:
    nets: list[Net] = [Net(2), Wide(2)]
    for net in nets:
        assert_type(net.loss(X, train=True), jax.Array)
        assert_type(Net.loss(net, X), jax.Array)
        assert_type(net(X), jax.Array)
        assert_type(net.double(X), jax.Array)
        assert_type(net.loss.__self__, Net)
        assert_type(filter_jit(net.loss)(X), jax.Array)
    assert_type(Net.make(3), Net)
    assert_type(Net(1).make(3), Net)
    assert_type(Wide.make(3), Net)
    assert_type(Net.double(X), jax.Array)
    assert_type(Box(X).add(X), list[jax.Array])
    assert_type(list(map(Net(1).loss, [X])), list[jax.Array])


def wrong_methods(net: Net) -> None:
    net.loss(3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    net.loss(X, trian=True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    Net.loss(X)  # type: ignore[call-arg, arg-type] # pyright: ignore[reportCallIssue]
    Net.make("3")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    Net.make(Net, 3)  # type: ignore[call-arg, arg-type] # pyright: ignore[reportCallIssue]
    Net.double("3")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    net.loss.lowre(X)  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]


def test_stages(tmp_path: pathlib.Path) -> None:
    spec = jax.eval_shape(lambda: X)
    compiled = scale.lower(spec, 2.0).compile()
    assert_type(compiled(X, 2.0), jax.Array)
    assert_type(scale.trace(spec, 2.0).lower().compile()(X, 2.0), jax.Array)
    counted: filterjit.types.Compiled[[jax.Array], dict[str, int]] = count.lower(spec).compile()
    assert_type(counted(X), dict[str, int])
    assert_type(compiled.as_text(), str | None)
    assert compiled.cost_analysis() is not None
    assert_type(scale.save(tmp_path / "scale"), int)
    loaded = filterjit.load(tmp_path / "scale")
    assert loaded(X, 2.0).shape == (3,)
    saved: filterjit.types.Loaded[[jax.Array, float], jax.Array] = loaded
    assert_type(saved(X, 2.0), jax.Array)
    assert scale.eval_shape(X, 2.0) == spec
    scale.warm_up(spec, 3.0)
    assert_type(scale.warm_up_all([((spec, 3.0), {})], threads=1), dict[int, Exception])

    # The function compiled from a method takes the instance.
    net = Net(2)
    assert_type(net.loss.lower(spec).compile()(net, X), jax.Array)
    assert_type(Net.loss.trace(net, spec).lower().compile()(net, X), jax.Array)


def test_specs_instead_of_arrays() -> None:
    spec: jax.ShapeDtypeStruct = jax.eval_shape(lambda: X)
    assert_type(scale.compile(spec, 2.0)(X, 2.0), jax.Array)
    scale.warm_up(x=spec, factor=2.0)
    Net(2).loss.warm_up(spec, train=True)


def wrong_explanations(net: Net) -> None:
    scale.explain("x", 2.0)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    net.loss.explain(X, trian=True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def wrong_stages(compiled: filterjit.types.Compiled[[jax.Array], jax.Array], net: Net) -> None:
    compiled("x")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    compiled.sav("file")  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    count.save("file", portable=True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    count.lower(X).compile()(X, X)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    net.loss.lower(X).compile()(X)  # type: ignore[call-arg, arg-type] # pyright: ignore[reportCallIssue]


def test_given_arguments() -> None:
    assert_type(functools.partial(scale, X)(2.0), jax.Array)


def test_inspection() -> None:
    scale(X, 2.0)
    assert_type(scale.explain(X, 2.0), filterjit.types.Explanation)
    assert_type(scale.report(), filterjit.types.Report)
    assert_type(scale.cache_info().hits, int)
    assert_type(Net(1).loss.explain(X), filterjit.types.Explanation)
    assert_type(Net(1).loss.cache_info(), filterjit.types.CacheInfo)
    scale(X, 2.0)
    assert len(scale.variants) > 0
    scale.clear_cache()
    Net(1).loss.clear_cache()


def wrong_names() -> None:
    scale.cache_infos()  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    scale.report().plto("a.svg")  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    filterjit.filter_jti(len)  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    filterjit.tree_mpa(len, X)  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]


def test_trees() -> None:
    net, tree = Box(X), {"a": X, "b": 1.0}
    assert_type(filterjit.tree_paths(tree), list[str])

    arrays, static = filterjit.partition(net, filterjit.is_array)
    assert_type(arrays, Box[jax.Array])
    assert_type(filterjit.combine(arrays, static), Box[jax.Array])
    a, b, c = filterjit.partition(net, "content", filterjit.is_array)
    assert_type(filterjit.combine(a, b, c, strict=True), Box[jax.Array])
    filters: list[Any] = [filterjit.is_array] * 3
    assert_type(filterjit.partition(net, *filters, replace=0), tuple[Box[jax.Array], ...])
    structure, *groups = filterjit.partition_dict(net, filterjit.is_array)
    assert_type(groups, list[dict[str, Any]])
    assert_type(structure.combine(*groups), Box[jax.Array])

    leaves, whole = filterjit.flatten(net)
    assert_type(filterjit.unflatten(whole, leaves), Box[jax.Array])
    assert_type(whole, filterjit.types.Structure[Box[jax.Array]])


def test_loops() -> None:
    def step(c: Box[jax.Array], x: jax.Array) -> tuple[Box[jax.Array], jax.Array]:
        return c, 2 * x

    def same(c: Box[jax.Array]) -> Box[jax.Array]:
        return c

    box = Box(X)
    assert_type(lax.scan(step, box, X, reverse=True), tuple[Box[jax.Array], jax.Array])
    assert_type(lax.fori_loop(0, 3, lambda i, c: c, box, traced="**"), Box[jax.Array])
    assert_type(lax.while_loop(lambda c: c.content[0] < 0, same, box), Box[jax.Array])
    assert_type(lax.cond(True, same, same, box), Box[jax.Array])
    assert_type(lax.switch(1, [same, same], box), Box[jax.Array])


def wrong_loops() -> None:
    lax.scan(len, X, X)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    lax.scan(lambda c, x: (c, x), X, X, trace=True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def wrong_trees(net: Net) -> None:
    filterjit.combine()  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    filterjit.partition(net, filterjit.is_array)[2]  # type: ignore[misc] # pyright: ignore[reportGeneralTypeIssues]
    filterjit.partition(net, True)[0].widht  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue] # noqa: B018
    filterjit.unflatten([X], X)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
