"""Classes of Flax NNX with methods of their own, the trace state, and what is done with Modules
besides calls: tree functions, explanations, files."""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax
import jax.tree_util as jtu
import pytest

import filterjit
from filterjit import filter_jit
from filterjit._compat import _private
from filterjit._trees import _registry
from support.comparison import comparable, outcome
from support.exactness import X, changed, check_exact, described, look, same_as_jax

pytest.importorskip("flax.nnx")
import flax.errors
from flax import nnx

if _private.loaded("flax.typing", "HashableMapping") is None:
    pytest.skip("classes of this Flax are flattened by its functions", allow_module_level=True)

T = TypeVar("T")


class Net(nnx.Module):
    def __init__(self, width: Any = 3) -> None:
        self.kernel, self.width = nnx.Param(X), width


# ---- subclasses ----


class FlattensItself(Net):
    """Registered with a function of its own, since Flax takes it from the class."""

    def _pytree__flatten(self) -> Any:
        return (self.kernel,), (self.width,)

    def _pytree__flatten_with_paths(self) -> Any:
        return ((jtu.GetAttrKey("core"), self.kernel),), (self.width,)

    @classmethod
    def _pytree__unflatten(cls, aux: Any, children: Any) -> Any:
        new = cls(aux[0])
        object.__setattr__(new, "kernel", children[0])
        return new


class Rebuilds(Net):
    """Is flattened as Flax does it, and rebuilt by a function of its own."""

    @classmethod
    def _pytree__unflatten(cls, aux: Any, children: Any) -> Any:
        new = super()._pytree__unflatten(aux, children)
        object.__setattr__(new, "kernel", new.kernel)
        vars(new)["rebuilt"] = True
        return new


class GenericFirst(Generic[T], nnx.Module):
    def __init__(self) -> None:
        self.kernel = nnx.Param(X)


class Refuses(Net):
    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, "ready"):
            raise AttributeError("frozen")
        super().__setattr__(name, value)


@dataclasses.dataclass
class Fields(nnx.Module):
    kernel: Any
    width: Any = 1
    more: Any = nnx.data(default=None)  # noqa: RUF009
    made: Any = dataclasses.field(default_factory=lambda: 3)

    def __post_init__(self) -> None:
        self.posted = 1


CLASSES: dict[str, tuple[Callable[[], Any], str]] = {
    "generic": (GenericFirst, "described"),
    "__setattr__": (Refuses, "described"),
    "dataclass": (lambda: Fields(nnx.Param(X)), "described"),
    "_pytree__flatten": (FlattensItself, "custom"),
}


@pytest.mark.parametrize("name", CLASSES)
def test_classes(name: str) -> None:
    make, kind = CLASSES[name]
    assert check_exact(lambda: [make(), make(), make()], kind=kind) == 1
    x = make()
    assert check_exact(lambda: [x] * 5) == 1


def test_the_class_of_an_instance_changes() -> None:
    change = lambda m: object.__setattr__(m, "__class__", Refuses)
    assert check_exact(changed(Net, change)) == 2


def test_a_class_that_jax_rebuilds_as_another() -> None:
    same_as_jax(look, lambda: [Rebuilds(), Rebuilds(), Rebuilds(4)])
    assert _registry.registry.kind(Rebuilds()) == "custom"


# ---- the trace state ----


def both(body: Callable[[Any], Any]) -> Any:
    """Runs `body` with both, asserts that it returns or raises the same, and returns it."""
    theirs = outcome(body, jax.jit)
    ours = outcome(body, filter_jit)
    if isinstance(theirs, type):
        assert ours is theirs
    else:
        assert comparable(jtu.tree_leaves(ours)) == comparable(jtu.tree_leaves(theirs))
    return ours


def _returned(jit: Any) -> Any:
    m = jit(lambda m: m)(Net())
    m.kernel.set_value(X + 5)
    m.kernel[...] += 1
    m.width = 4
    m.more = nnx.Param(X)
    assert comparable(m.kernel[...]) == comparable(X + 6)
    return m


def _arguments(jit: Any) -> Any:
    @jit
    def f(m: Any) -> Any:
        m.kernel.set_value(m.kernel[...] + 1)
        m.width = 4
        m.kernel.set_metadata("tag", 2)
        return m

    m = Net()
    out = f(m)
    assert m.width == 3 and not m.kernel.has_metadata("tag")
    assert (out.width, out.kernel.tag) == (4, 2)
    return out, m


def _made_inside(jit: Any) -> Any:
    @jit
    def f(x: Any) -> Any:
        m, v = Net(), nnx.Param(x)
        v.set_value(x + 1)
        m.kernel = v
        m.width = 2
        return m, v, nnx.List([v, m])

    out = f(X)
    out[1].set_value(X)
    out[2].append(nnx.Param(X))
    return out


def _nested(jit: Any) -> Any:
    @jit
    def inner(m: Any) -> Any:
        m.kernel.set_value(m.kernel[...] * 2)
        return m

    @jit
    def outer(m: Any) -> Any:
        new = inner(m)
        new.kernel.set_value(new.kernel[...] + 1)
        m.kernel.set_value(m.kernel[...] + new.kernel[...])
        return m, new

    return outer(Net())


def _escaping(jit: Any) -> Any:
    kept: list[Any] = []
    jit(lambda m: kept.append(m) or X)(Net())  # type: ignore[func-returns-value]
    kept[0].kernel.set_value(X)


def _refs(jit: Any) -> Any:
    """A ``jax.Ref`` is changed in place, under ``jax.jit`` and under ours."""
    v = nnx.Param(X, ref=True)

    @jit
    def f(v: Any) -> Any:
        v[...] = v[...] + 1
        return v[...] * 2

    return [f(v), f(v), v[...]]


def _hijax(jit: Any) -> Any:
    v = nnx.Param(X, hijax=True)
    f = jit(lambda v: v[...] * 2)
    return [f(v), f(v)]


def _outer(change: Callable[[Any, Any], object]) -> Callable[[Any], Any]:
    """Changes a Module that is not of the trace."""

    def body(jit: Any) -> Any:
        m = Net()
        return jit(lambda x: change(m, x))(X)

    return body


TRACE_ERROR = flax.errors.TraceContextError
BODIES: dict[str, tuple[Callable[[Any], Any], type | None]] = {
    "a result is changed": (_returned, None),
    "an argument is changed inside": (_arguments, None),
    "what is made inside is changed": (_made_inside, None),
    "nested": (_nested, None),
    "escaping": (_escaping, TRACE_ERROR),
    "outer value": (_outer(lambda m, x: m.kernel.set_value(x)), TRACE_ERROR),
    "outer metadata": (_outer(lambda m, x: m.kernel.set_metadata("tag", 1)), TRACE_ERROR),
    "outer attribute": (_outer(lambda m, x: setattr(m, "width", x.ndim)), TRACE_ERROR),
    "outer item": (_outer(lambda m, x: m.kernel.__setitem__(..., x)), TRACE_ERROR),
    "a reference": (_refs, None),
    "hijax": (_hijax, None),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_trace_state(name: str) -> None:
    body, error = BODIES[name]
    if name == "a reference" and not hasattr(jax, "new_ref"):
        pytest.skip("this version of JAX has no jax.new_ref")
    found = both(body)
    assert error is None or issubclass(found, error)


@pytest.mark.parametrize("make", [Net, lambda: nnx.Param(X), lambda: nnx.List([nnx.Param(X)])])
def test_the_trace_state_after_each_way_of_building(make: Callable[[], Any]) -> None:
    def change(tree: Any) -> None:
        for x in jtu.tree_leaves(tree, is_leaf=lambda x: isinstance(x, nnx.Variable)):
            x.set_value(X + 2)

    f = filter_jit(lambda m: m)
    change(f(make()))
    change(f(f(make())))
    change(filterjit.combine(*filterjit.partition(make(), filterjit.is_array)))
    jax.vmap(lambda _: change(f(make())))(X)
    with jax.disable_jit():
        change(f(make()))


# ---- tree functions ----


class Model(nnx.Module):
    def __init__(self) -> None:
        self.layer = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
        self.table = nnx.Dict(scale=nnx.Param(X, tag=("a", 1)))
        self.state = nnx.data(nnx.State({"a": X, "b": {"c": X}}))
        self.name = "model"

    def __call__(self, x: Any) -> Any:
        return self.layer(x) * len(self.name)


def test_save_and_load(tmp_path: Any) -> None:
    f = filter_jit(lambda model, x: (model, model(x)))
    model = Model()
    f.compile(model, X)
    f.save(tmp_path / "program")
    loaded = filterjit.load(tmp_path / "program")
    out = loaded(model, X)
    assert described(out) == described(f(model, X))
    out[0].table["scale"].set_value(X)  # of the trace state outside
    model.name = "other"
    with pytest.raises(filterjit.MismatchError, match="name"):
        loaded(model, X)
