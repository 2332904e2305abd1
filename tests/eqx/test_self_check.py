"""Classes and names of JAX, Equinox and Flax that differ from what filterjit expects.

Such nodes are handled by their registered functions, which is slower and never wrong.
"""

import dataclasses
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import flax.struct
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest
from flax import nnx

import filterjit
from filterjit._call import _miss
from filterjit._compat import (
    _equinox_compat,
    _executable_compat,
    _flax_compat,
    _jax_compat,
    _private,
    _registered_compat,
)
from support.comparison import Jit, Traces, comparable, on_both, runtime_message
from support.exactness import X as VECTOR
from support.exactness import check_exact
from support.features import kind, names_used
from support.modules import Module, Wrapper
from support.processes import run_code
from support.trees import ONE, TWO, bare

# ---- classes that are not what they say ----


def fresh() -> Any:
    """Returns new classes, which no registry has met."""

    class Plain(Module):
        def apply(self, x: Any) -> Any:
            return self.a * x

    class Child(Plain):
        c: Any = eqx.field(converter=jnp.asarray, default=4.0)

    class Wrapping(Wrapper): ...

    @jtu.register_dataclass
    @dataclasses.dataclass
    class Registered:
        a: Any
        meta: Any = dataclasses.field(metadata={"static": True}, default="meta")
        b: Any = 2

    @flax.struct.dataclass
    class Flax:
        a: Any
        meta: Any = flax.struct.field(pytree_node=False, default="meta")

    return types.SimpleNamespace(
        plain=Plain, child=Child, wrapper=Wrapping, registered=Registered, flax=Flax
    )


def modules(classes: Any) -> list[Any]:
    plain, wrapper = classes.plain, classes.wrapper
    return [
        plain(ONE, "name", TWO),
        plain(plain(ONE), None, [TWO, plain(2)]),
        bare(plain),
        bare(plain, b=ONE, name="n"),
        classes.child(ONE),
        wrapper(abs),
        eqx.module_update_wrapper(wrapper(comparable, ONE)),
    ]


def dataclasses_of(classes: Any) -> list[Any]:
    return [
        classes.registered(ONE),
        classes.registered(1, "other", TWO),
        classes.flax(classes.registered(classes.flax(TWO, "deep")), "other"),
    ]


Patch = Callable[[pytest.MonkeyPatch], None]


def without(module: str, *names: str) -> Patch:
    """Removes a name from JAX or Equinox."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original = _private.private
        assert original(module, *names) is not None

        def private(where: str, *what: str) -> Any:
            return None if (where, *what) == (module, *names) else original(where, *what)

        monkeypatch.setattr(_private, "private", private)

    return patch


def answering(name: str, answer: Any) -> Patch:
    module = next(m for m in (_equinox_compat, _registered_compat) if hasattr(m, name))

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, name, lambda *_: answer)

    return patch


def registered_with(data: tuple[str, ...], meta: tuple[str, ...]) -> Patch:
    """Makes JAX return these fields for the class named Registered."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original = _registered_compat.registered_dataclass_fields
        monkeypatch.setattr(
            _registered_compat,
            "registered_dataclass_fields",
            lambda cls: (data, meta) if cls.__name__ == "Registered" else original(cls),
        )

    return patch


DETAILS = _equinox_compat.module_details()
assert DETAILS is not None
UNKNOWN_MODULES: dict[str, Patch] = {
    "no details": answering("module_details", None),
    "no Equinox": answering("equinox", None),
    "no sentinel": without("equinox._module._flatten", "MISSING"),
    "other sentinel": answering("module_details", (object(), DETAILS[1])),
}
UNKNOWN_DATACLASSES: dict[str, Patch] = {
    "no fields": answering("registered_dataclass_fields", None),
    "no registry": without("jax._src.tree_util", "_registry"),
    "fields taken for others": registered_with(("a",), ("b",)),
    "too few": registered_with(("a", "b"), ()),
}


@pytest.mark.parametrize("name", UNKNOWN_MODULES)
def test_unknown_modules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = fresh()
    assert {kind(x) for x in modules(known)} == {"module"}
    UNKNOWN_MODULES[name](monkeypatch)
    classes = fresh()
    plain, child = classes.plain(ONE), classes.child(ONE)
    # Only an instance that lacks a field, or has more attributes than fields, holds the mark.
    if name == "other sentinel":
        plain, child = bare(classes.plain), bare(classes.child, a=1, b=1, c=1, name=1, more=1)
    assert (kind(plain), kind(child)) == ("custom", "custom")
    assert kind(known.plain(ONE)) == "module"  # it was met before
    assert check_exact(lambda: 2 * modules(classes)) == 7
    both = lambda: [known.plain(classes.plain(ONE)), classes.plain(known.child(classes.child(TWO)))]
    assert check_exact(lambda: 2 * both()) == 2
    assert filterjit.filter_jit(classes.plain(TWO).apply)(ONE) == 2


@pytest.mark.parametrize("name", UNKNOWN_DATACLASSES)
def test_unknown_dataclasses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {kind(x) for x in dataclasses_of(fresh())} == {"object"}
    UNKNOWN_DATACLASSES[name](monkeypatch)
    classes = fresh()
    assert kind(classes.registered(ONE)) == "custom"
    assert kind(classes.plain(ONE)) == "module"
    assert check_exact(lambda: 2 * dataclasses_of(classes)) == 3


# ---- classes that read their fields in another way ----


@on_both
def test_a_class_that_computes_a_field(jit: Jit, traces: Traces) -> Any:
    """JAX reads a field of a dataclass as an attribute."""

    @jtu.register_dataclass
    @dataclasses.dataclass
    class Computing:
        a: Any

        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            return found + 1 if name == "a" else found

    f = jit(traces.counting(lambda x: x.__dict__["a"]))
    return [f(x) for x in (Computing(ONE), Computing(TWO)) * 2]


# ---- private names that are not there ----


def raises_with_message(jit: Jit) -> Any:
    @jit
    def f(x: Any) -> Any:
        return eqx.error_if(x, x < 0, "x is negative")

    with pytest.raises(Exception, match="x is negative") as info:
        f(jnp.array(-1.0))
    return info, f(ONE), f(TWO)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("equinox._jit", "last_error_info"),
        ("equinox._jit", "_on_error_msg"),
        ("equinox", "EquinoxRuntimeError"),
    ],
)
def test_errors_in_plainer_words(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX's own error is raised then, which holds the message too."""
    info, *results = raises_with_message(filterjit.filter_jit)
    assert type(info.value).__name__ == "EquinoxRuntimeError"
    assert runtime_message(info.value) == "x is negative"
    without(module, name)(monkeypatch)
    plainer, *again = raises_with_message(filterjit.filter_jit)
    assert isinstance(plainer.value, (jax.errors.JaxRuntimeError, ValueError))
    assert type(plainer.value).__name__ != "EquinoxRuntimeError"
    assert comparable(again) == comparable(results) == comparable([ONE, TWO])


OF_JAX_AND_EQUINOX = (_jax_compat, _registered_compat, _executable_compat, _equinox_compat)


def saved(path: Path, *args: Any) -> Any:
    """Returns a function that was compiled, saved and loaded; portably if it has to be."""
    f = filterjit.filter_jit(lambda x, y: (x, y * 2))
    f.warm_up(*args)
    try:
        f.save(path)
        return filterjit.load(path)
    except (ValueError, RuntimeError, filterjit.MismatchError):
        f.lower(*args).save(path)
        return filterjit.load(path)


def everything(path: Path) -> Any:
    """Uses all that has a fallback, and returns what may not depend on it."""
    classes = fresh()
    traces = Traces()

    class Method(eqx.Module):
        a: Any

        @filterjit.filter_jit
        def __call__(self, x: Any) -> Any:
            traces.tick()
            return self.a * x

    f = filterjit.filter_jit(traces.counting(lambda x, y: (x, y * 2)))
    results = [f(x, ONE) for x in (modules(classes) + dataclasses_of(classes)) * 2]
    results += [Method(ONE)(TWO), Method(TWO)(TWO), traces.count]
    info, *checked = raises_with_message(filterjit.filter_jit)
    assert "x is negative" in str(info.value)
    x = jnp.arange(2.0)  # portable files keep no weak types
    compiled = f.lower(ONE, TWO).compile()
    results += [checked, compiled(TWO, ONE), saved(path, x, x)(x + 1, x)]
    assert "x" in str(f.explain(jnp.ones(7), ONE))
    assert (
        f.report().as_dict()["functions"][0]["calls"] == f.cache_info().hits + f.cache_info().misses
    )
    for clear in (jax.clear_caches, eqx.clear_caches, filterjit.clear_caches):
        before = traces.count
        clear()
        results += [f(ONE, TWO), before <= traces.count <= before + 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where install cannot do its work
        with filterjit.install():
            results.append(eqx.filter_jit(lambda x: x + 1)(ONE))
    return comparable(results)


def without_attribute(name: str) -> Patch:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original = _private.private_attribute
        answer = lambda x, *names: None if name in names else original(x, *names)
        monkeypatch.setattr(_private, "private_attribute", answer)

    return patch


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *names_used("_private.private", *OF_JAX_AND_EQUINOX),
        *(("create_cpp_call",), ("_unloaded_executable",)),
    ],
    ids=".".join,
)
def test_without_a_private_name(
    name: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that are looked up at import are taken away by `test_names_missing_at_import`."""
    if len(name) > 1 and _private.private(*name) is None:
        pytest.skip("this version does not have the name, so that all tests test the fallback")
    expected = everything(tmp_path / "expected")
    (without(*name) if len(name) > 1 else without_attribute(*name))(monkeypatch)
    assert everything(tmp_path / "found") == expected


def test_jax_that_does_not_tell_of_its_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a program cannot be inspected, each call of it waits, and an error is noticed."""

    def refuse(jaxpr: Any) -> Any:
        raise NotImplementedError

    monkeypatch.setattr(_miss, "contents", refuse)
    f = filterjit.filter_jit(lambda x: jax.lax.fori_loop(0, 50, lambda _, y: jnp.tanh(y @ x), x))
    for _ in range(2):
        assert f(jnp.eye(400)).is_ready()
    info, *results = raises_with_message(filterjit.filter_jit)
    assert runtime_message(info.value) == "x is negative" and results == [1, 2]


MISSING_AT_IMPORT = """
import sys
import jax, jax.numpy as jnp, numpy as np, equinox as eqx
names = "jax._src.array", "jax._src.literals", "jaxlib.xla_extension", "jax._src.traceback_util"
hidden = {name: sys.modules.pop(name) for name in names if name in sys.modules}
assert "jax._src.array" in hidden
sys.modules.update(dict.fromkeys(hidden))  # importing them fails
import filterjit
from filterjit._compat import _equinox_compat, _executable_compat, _jax_compat, _registered_compat
from filterjit._trees import _registry
sys.modules.update(hidden)
assert _jax_compat.ARRAY_IMPL is np.ndarray
from support.modules import Module

def results(jit):
    f = jit(lambda x, y=1: (jax.tree.map(lambda v: v + 1 if eqx.is_array(v) else v, x), y))
    one = jnp.array(1.0)
    trees = [one, np.ones(2), np.float32(2), {"k": [one, Module(3), Module(one, 2)]}, 3, None]
    out = [f(x) for x in trees * 2] + [eqx.filter_vmap(f)(jnp.arange(3.0))]
    leaves = jax.tree.leaves((out, jax.grad(lambda x: f(x)[0])(one)))
    return [str(v) for v in leaves], str(jax.tree.structure(out))

assert results(filterjit.filter_jit) == results(eqx.filter_jit)
assert _registry.registry.kind(Module(1)) == "module"
assert [_registry.registry.kind(x) for x in (jnp.ones(1), np.ones(1), 1)] == ["array"] * 2 + ["static"]
"""


@pytest.mark.thorough
def test_names_missing_at_import() -> None:
    of_equinox = "ignore::DeprecationWarning:equinox.internal._primitive"
    run_code(MISSING_AT_IMPORT, options=("-W", "error", "-W", of_equinox))


# ---- names of Flax ----

needs_this_flax = pytest.mark.skipif(
    _private.loaded("flax.typing", "HashableMapping") is None,
    reason="classes of this Flax are flattened by its functions",
)
NATIVE = {"Variable": "object", "Module": "described", "State": "object"}


def kinds() -> dict[str, str]:
    """Uses new classes, which no registry has met, and returns the kinds that C gives them."""

    class Kind(nnx.Variable):
        pass

    class Net(nnx.Module):
        def __init__(self, tag: Any = 1) -> None:
            self.kernel, self.width = Kind(VECTOR, tag=tag), tag

    class Own(nnx.State):
        pass

    classes: dict[str, Callable[..., Any]] = {
        "Variable": lambda tag=1: Kind(VECTOR, tag=tag),
        "Module": Net,
        "State": lambda tag=1: Own({"a": Kind(VECTOR, tag=tag), "b": {"c": VECTOR}}),
    }
    for make in classes.values():
        assert check_exact(lambda make=make: [make(), make(-1), make(-2), make(), make()]) == 3
        x = make()
        assert check_exact(lambda x=x: [x] * 5) == 1
        out = jax.tree.leaves(x, is_leaf=lambda x: isinstance(x, nnx.Variable))[0]
        out.set_value(VECTOR)
    return {name: kind(make()) for name, make in classes.items()}


# Which classes are flattened natively still, where a name is missing.
LOST: dict[str, set[str]] = {
    "FrozenDict": set(),
    "State": {"State"},
    "TraceState": {"Variable"},
    "Variable": {"Variable"},
    "_variable_flatten": {"Variable"},
    "PytreeState": set(),
    "Pytree": {"Module"},
    "HashableMapping": {"Module"},
}


@needs_this_flax
@pytest.mark.parametrize("name", [(), *names_used("_private.loaded", _flax_compat)], ids=".".join)
def test_without_a_name_of_flax(name: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, lost = _private.loaded, set[str]()
    if name:
        if loaded(*name) is None:
            pytest.skip("it is the name of another version")
        # A name that has moved is looked up in both places.
        gone = lambda *n: None if n[-1] == name[-1] else loaded(*n)
        monkeypatch.setattr(_private, "loaded", gone)
        lost = LOST[name[-1]]
    assert kinds() == {key: "custom" if key in lost else kind for key, kind in NATIVE.items()}


@needs_this_flax
def test_without_the_registry_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where JAX does not tell with which functions a class is registered."""
    for name in ("registered_flatten", "registered_unflatten"):
        monkeypatch.setattr(_registered_compat, name, lambda cls: None)
    assert kinds() == NATIVE | {"Variable": "custom", "Module": "custom"}
