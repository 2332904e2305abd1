"""A module that is edited after a file was saved: `load` refuses, and names what has changed.

Each edit is made to the source of a module, which is imported anew; the saved file was written with
the module as it was. Whatever is edited changes what the saved function would compute.
"""

import sys
import types
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from filterjit import filter_jit

SOURCE = """
import functools
from typing import Any, ClassVar
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

SCALE = 2.0
TABLE = {"a": [1.0, 2.0]}
WEIGHTS = np.array([1.0, 2.0, 3.0], np.float32)
CONSTANT = jnp.arange(3.0)


def times(n):
    def decorate(f):
        @functools.wraps(f)
        def wrapper(x):
            return f(x) * n
        return wrapper
    return decorate


def make(k):
    def inner(x):
        return x * k
    return inner


class Config:
    width = 3
    total: ClassVar[float] = 4.0
    activations = [lambda x: x + 5.0]

    class Inner:
        depth = 6

    @staticmethod
    def static(x):
        return x * 7.0

    @classmethod
    def of_class(cls, x):
        return x * 8.0

    @property
    def own(self):
        return 9.0

    @own.setter
    def own(self, value):
        self.value = value * 10.0

    @functools.cached_property
    def cached(self):
        return 11.0

    @functools.lru_cache
    def remembered(self, x):
        return x * 12.0

    def part(self, x, n):
        return x * n

    thirteen = functools.partialmethod(part, n=13.0)


class Meta(type):
    def of_meta(cls, x):
        return x * 14.0


class WithMeta(metaclass=Meta):
    pass


class Base(eqx.Module):
    def inherited(self, x):
        return x * 15.0


class Layer(Base):
    weight: Any
    factor: float = eqx.field(static=True, default=16.0)

    def __call__(self, x):
        return self.inherited(x) * self.weight


@jax.custom_jvp
def custom(x):
    return x * 17.0


@custom.defjvp
def custom_jvp(primals, tangents):
    return custom(*primals), tangents[0] * 18.0


def helper(x):
    return x * SCALE + TABLE["a"][1] + jnp.asarray(WEIGHTS) + CONSTANT


closure = make(19.0)
decorated = times(20.0)(lambda x: x)
partial = functools.partial(lambda x, n: x * n, n=21.0)
jitted = jax.jit(lambda x: x * 22.0)
filtered = eqx.filter_jit(lambda x: x * 23.0)


def default(x, n=24.0, *, k=25.0, many=(np.array([26.0, 26.0, 26.0], np.float32), [27.0])):
    return x * n * k + many[0] * many[1][0]


def attribute(x):
    return x * attribute.note


attribute.note = 28.0


def everything(x):
    c = Config
    config = c()
    config.own = 1.0
    y = helper(x) + closure(x) + decorated(x) + partial(x) + jitted(x) + filtered(x)
    y = y + default(x) + attribute(x) + c.width + c.total + c.activations[0](x) + c.Inner.depth
    y = y + c.static(x) + c.of_class(x) + config.own + config.value + config.cached
    y = y + config.remembered(1.0) + config.thirteen(x) + WithMeta.of_meta(x)
    y = y + Layer(x)(x) * Layer(x).factor + custom(x) + jax.grad(lambda y: custom(y).sum())(x)
    return y
"""
EDITS: dict[str, tuple[str, str, str]] = {
    "a global": ("SCALE = 2.0", "SCALE = 2.5", "the global `edited.SCALE` was 2.0, is 2.5"),
    "a global table": ("[1.0, 2.0]}", "[1.0, 3.0]}", "the global `edited.TABLE`"),
    "a global array": ("2.0, 3.0], np", "2.0, 4.0], np", "the global `edited.WEIGHTS`"),
    "a JAX array": ("jnp.arange(3.0)", "jnp.ones(3)", "the global `edited.CONSTANT`"),
    "a decorator": ("f(x) * n", "f(x) + n", "the code of `edited.<lambda>`"),
    "a decorator's closure": ("times(20.0)", "times(2.0)", "the closure value `n` of"),
    "a closure": ("make(19.0)", "make(1.0)", "the closure value `k` of `edited.make.<locals>.inner`"),
    "a class constant": ("width = 3", "width = 4", "`edited.Config.width` was 3, is 4"),
    "a ClassVar": ("= 4.0", "= 4.5", "`edited.Config.total` was 4.0, is 4.5"),
    "a lambda in a list": ("x + 5.0", "x + 5.5", "the code of `edited.Config.<lambda>`"),
    "an inner class": ("depth = 6", "depth = 7", "`edited.Config.Inner.depth` was 6"),
    "a static method": ("x * 7.0", "x * 7.5", "the code of `edited.Config.static`"),
    "a class method": ("x * 8.0", "x * 8.5", "the code of `edited.Config.of_class`"),
    "a property": ("return 9.0", "return 9.5", "the code of `edited.Config.own`"),
    "a setter": ("value * 10.0", "value * 10.5", "the code of `edited.Config.own`"),
    "a cached property": ("return 11.0", "return 11.5", "the code of `edited.Config.cached`"),
    "an lru_cache": ("x * 12.0", "x * 12.5", "the code of `edited.Config.remembered`"),
    "a partialmethod": ("n=13.0", "n=13.5", "`edited.Config.thirteen`"),
    "a metaclass": ("x * 14.0", "x * 14.5", "the code of `edited.Meta.of_meta`"),
    "a base": ("x * 15.0", "x * 15.5", "the code of `edited.Base.inherited`"),
    "a field's default": ("default=16.0", "default=16.5", "`edited.Layer"),
    "a custom function": ("x * 17.0", "x * 17.5", "the code of `edited.custom`"),
    "a custom derivative": ("* 18.0", "* 18.5", "the code of `edited.custom_jvp`"),
    "a partial": ("n=21.0", "n=21.5", "the global `edited.partial`"),
    "jax.jit": ("x * 22.0", "x * 22.5", "the code of `edited.<lambda>`"),
    "eqx.filter_jit": ("x * 23.0", "x * 23.5", "the code of `edited.<lambda>`"),
    "a default": ("n=24.0", "n=24.5", "the default of `n` in `edited.default` was 24.0, is 24.5"),
    "a keyword default": ("k=25.0", "k=25.5", "the default of `k` in `edited.default` was 25.0"),
    "an array default": ("[26.0, 26.0", "[26.0, 26.5", "the default of `many` in `edited.default`"),
    "a list default": ("[27.0]", "[27.5]", "the default of `many` in `edited.default`"),
    "an attribute": ("note = 28.0", "note = 28.5", "the attribute `edited.attribute.note` was 28.0"),
}  # fmt: skip
HARMLESS = {
    "a comment": ("SCALE = 2.0", "SCALE = 2.0  # a comment"),
    "a line": ("def helper", "\n\n\ndef helper"),
    "another function": ("def helper", "def another(x):\n    return x\n\n\ndef helper"),
}
X = jnp.arange(3.0)


def imported(source: str, patch: pytest.MonkeyPatch) -> Any:
    module = types.ModuleType("edited")
    patch.setitem(sys.modules, "edited", module)
    exec(compile(source, "edited.py", "exec"), module.__dict__)
    return module


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("edits") / "file"
    with pytest.MonkeyPatch.context() as patch:
        module = imported(SOURCE, patch)
        filter_jit(lambda f, x: f(x)).lower(module.everything, X).compile().save(path)
    return path


def test_unchanged(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = imported(SOURCE, monkeypatch)
    found = filterjit.load(saved)(module.everything, X)
    np.testing.assert_allclose(found, module.everything(X), rtol=1e-5)


@pytest.mark.parametrize("name", EDITS)
def test_what_has_changed_is_named(saved: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after, what = EDITS[name]
    assert SOURCE.count(before) == 1
    module = imported(SOURCE.replace(before, after), monkeypatch)
    was = imported(SOURCE, monkeypatch).everything(X)
    monkeypatch.setitem(sys.modules, "edited", module)
    assert not np.allclose(was, module.everything(X), rtol=1e-5)
    with pytest.raises(ValueError, match="something has changed: ") as raised:
        filterjit.load(saved)
    assert what in str(raised.value)
    if what.startswith("the code"):
        assert "has changed." in str(raised.value)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_not_matter(saved: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = imported(SOURCE.replace(*HARMLESS[name]), monkeypatch)
    found = filterjit.load(saved)(module.everything, X)
    np.testing.assert_allclose(found, module.everything(X), rtol=1e-5)


DOUBTS: dict[str, tuple[str, str]] = {
    "GENERATOR = np.random.default_rng(0)\ndef act(x): return x * GENERATOR.normal()": (
        "`edited.GENERATOR`", "numpy.random._generator.Generator",
    ),
    "def make(k):\n    return lambda x: x * next(k)\nact = make(iter([1.0]))": (
        "`edited.make.<locals>.<lambda>.__closure__['k']`", "list_iterator",
    ),
    "def act(x, file=io.StringIO()): return x": (
        "`edited.act.__defaults__['file']`", "_io",
    ),
    "SCALE = 2.0\ndef act(x): return x * eval('SCALE')": ("`edited.act`", "it uses `eval`"),
    "SCALE = 2.0\ndef act(x): return x * globals()['SCALE']": ("`edited.act`", "`globals`"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "what"), DOUBTS.items())
def test_a_doubt_is_refused(
    tmp_path: Path, source: str, what: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = imported(f"import io\nimport numpy as np\n{source}", monkeypatch)
    with pytest.raises(ValueError, match="cannot be saved: what a function or a class") as raised:
        compiled = filter_jit(lambda f, x: x).lower(module.act, X).compile()
        compiled.save(tmp_path / "file")
    assert what[0] in str(raised.value) and what[1] in str(raised.value)
    assert list(tmp_path.iterdir()) == []


EXCHANGED = {
    "functions in a table": "def one(x): return x\ndef two(x): return x * 2.0\n"
    "TABLE = {'a': FIRST, 'b': SECOND}\ndef act(x): return TABLE['a'](x)",
    "lambdas in a table": "one, two = (lambda x: x), (lambda x: x * 2.0)\n"
    "TABLE = {'a': FIRST, 'b': SECOND}\ndef act(x): return TABLE['a'](x)",
    "bases": "class one: n = 1.0\nclass two: n = 2.0\nclass C(FIRST, SECOND): pass\n"
    "def act(x): return x * C.n",
    "classes of two objects": "class one: n = 1.0\nclass two: n = 2.0\n"
    "P = [FIRST(), SECOND()]\ndef act(x): return x * P[0].n",
    "defaults": "def one(x): return x\ndef two(x): return x * 2.0\n"
    "def act(x, f=FIRST, g=SECOND): return f(x) + g(x) * 3.0",
    "closures": "def make(f, g): return lambda x: f(x) + g(x) * 3.0\ndef one(x): return x\n"
    "def two(x): return x * 2.0\nact = make(FIRST, SECOND)",
}


@pytest.mark.parametrize("name", EXCHANGED)
def test_what_is_exchanged(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same functions and classes, each in the place of the other."""
    sources = [
        EXCHANGED[name].replace("FIRST", first).replace("SECOND", second)
        for first, second in (("one", "two"), ("two", "one"))
    ]
    module = imported(sources[0], monkeypatch)
    was = module.act(X)
    filter_jit(lambda f, x: f(x)).lower(module.act, X).compile().save(tmp_path / "file")
    filterjit.load(tmp_path / "file")
    module = imported(sources[1], monkeypatch)
    assert not np.allclose(was, module.act(X))
    with pytest.raises(ValueError, match="something has changed: "):
        filterjit.load(tmp_path / "file")
