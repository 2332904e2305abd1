"""A module that is edited after a file was saved: `load` refuses, and names what has changed.

Each edit is made to the source of a module, which is imported anew; the saved file was written with
the module as it was. Whatever is edited changes what the saved function would compute. What its code
reads by name is not noticed, as under ``jax.jit``.
"""

import sys
import types
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from aot_files import read, write

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


class Plain:
    def __init__(self, scale):
        self.scale = scale


def held(c, functions, plain=Plain(29.0), weight=jnp.full(3, 30.0), table={"a": {31.0}}, meta=WithMeta):
    def everything(x, layer=Layer, custom=custom):
        config = c()
        config.own = 1.0
        y = sum(f(x) for f in functions) + plain.scale + weight + max(table["a"])
        y = y + c.width + c.total + c.activations[0](x) + c.Inner.depth
        y = y + c.static(x) + c.of_class(x) + config.own + config.value + config.cached
        y = y + config.remembered(1.0) + config.thirteen(x) + meta.of_meta(x)
        y = y + layer(x)(x) * layer(x).factor
        y = y + custom(x) + jax.grad(lambda y: custom(y).sum())(x)
        return y * SCALE

    return everything


everything = held(Config, [closure, decorated, partial, jitted, filtered, default, attribute])
"""
EDITS: dict[str, tuple[str, str, str]] = {
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
    "a partial": ("n=21.0", "n=21.5", "the closure value `functions` of"),
    "jax.jit": ("x * 22.0", "x * 22.5", "the code of `edited.<lambda>`"),
    "eqx.filter_jit": ("x * 23.0", "x * 23.5", "the code of `edited.<lambda>`"),
    "a default": ("n=24.0", "n=24.5", "the default of `n` in `edited.default` was 24.0, is 24.5"),
    "a keyword default": ("k=25.0", "k=25.5", "the default of `k` in `edited.default` was 25.0"),
    "an array default": ("[26.0, 26.0", "[26.0, 26.5", "the default of `many` in `edited.default`"),
    "a list default": ("[27.0]", "[27.5]", "the default of `many` in `edited.default`"),
    "an object": ("Plain(29.0)", "Plain(29.5)", "the closure value `plain` of"),
    "a JAX array": ("jnp.full(3, 30.0)", "jnp.full(3, 30.5)", "the closure value `weight` of"),
    "a set in a table": ("{31.0}", "{31.5}", "the closure value `table` of"),
    "an attribute": ("note = 28.0", "note = 28.5", "the attribute `edited.attribute.note` was 28.0"),
}  # fmt: skip
HARMLESS = {
    "a comment": ("SCALE = 2.0", "SCALE = 2.0  # a comment"),
    "a line": ("def default", "\n\n\ndef default"),
    "another function": ("def default", "def another(x):\n    return x\n\n\ndef default"),
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


def test_a_global_is_not_noticed(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    was = imported(SOURCE, monkeypatch).everything(X)
    module = imported(SOURCE.replace("SCALE = 2.0", "SCALE = 2.5"), monkeypatch)
    np.testing.assert_allclose(filterjit.load(saved)(module.everything, X), was, rtol=1e-5)


UNKNOWN = {
    "a generator": "make(np.random.default_rng(0))",
    "an iterator": "make(iter([1.0]))",
    "a file": "make(io.StringIO('a'))",
    "a lock": "make(threading.Lock())",
    "a running generator": "make(x for x in [1.0])",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_of_what_little_is_known(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known by its type, or by what `pickle` keeps of it."""
    source = (
        "import io\nimport threading\nimport numpy as np\n"
        f"def make(k): return lambda x: (x * 2.0, k)[0]\nact = {UNKNOWN[name]}"
    )
    module = imported(source, monkeypatch)
    filter_jit(lambda f, x: f(x)).lower(module.act, X).compile().save(tmp_path / "file")
    module = imported(source, monkeypatch)
    np.testing.assert_array_equal(filterjit.load(tmp_path / "file")(module.act, X), X * 2.0)
    imported(source.replace(UNKNOWN[name], "make(object())"), monkeypatch)
    with pytest.raises(ValueError, match="something has changed: "):
        filterjit.load(tmp_path / "file")


EXCHANGED = {
    "functions in a table": "def one(x): return x\ndef two(x): return x * 2.0\n"
    "def act(x, t={'a': FIRST, 'b': SECOND}): return t['a'](x)",
    "lambdas in a table": "one, two = (lambda x: x), (lambda x: x * 2.0)\n"
    "def act(x, t={'a': FIRST, 'b': SECOND}): return t['a'](x)",
    "functions of one code": "def make(n): return lambda x: x * n\n"
    "one, two = make(1.0), make(2.0)\ndef act(x, t=[FIRST, SECOND]): return t[0](x)",
    "bases": "class one: n = 1.0\nclass two: n = 2.0\nclass C(FIRST, SECOND): pass\n"
    "def act(x, c=C): return x * c.n",
    "classes of two objects": "class one: n = 1.0\nclass two: n = 2.0\n"
    "def act(x, p=(FIRST(), SECOND())): return x * p[0].n",
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


KINDS = """
import enum
import equinox as eqx
def act(x): return x * 2
class Layer(eqx.Module):
    weight: object
class Kind(enum.Enum):
    A = 1
"""
OF_ANOTHER_KIND = {
    "a field": ("    weight: object", "    weight: object\n    bias: object = None"),
    "no pytree": ("class Layer(eqx.Module)", "class Layer"),
    "no class": ("class Layer(eqx.Module):\n    weight: object", "Layer = 3"),
    "a value": ("A = 1", "A = 2"),
    "a member": ("A = 1", "B = 1"),
    "no enum": ("enum.Enum", "object"),
    "no function": ("def act(x): return x * 2", "act = 3"),
    "gone": ("def act(x): return x * 2", ""),
    "a body": ("x * 2", "x * 3"),
}


@pytest.mark.parametrize("name", OF_ANOTHER_KIND)
def test_another_version_of_python(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytecode is another one; the kinds of functions and classes, fields and members count."""
    path, older = tmp_path / "file", tmp_path / "older"
    module = imported(KINDS, monkeypatch)
    arguments = module.act, module.Layer(X), module.Kind.A
    filter_jit(lambda *args: args[1].weight).lower(*arguments).compile().save(path)
    header, blobs = read(path)
    header["described"][0] = "cpython-3.0"
    write(older, header, blobs)
    np.testing.assert_array_equal(filterjit.load(older)(*arguments), X)
    imported(KINDS.replace(*OF_ANOTHER_KIND[name]), monkeypatch)
    for one in (path, older):
        if (one, name) == (older, "a body"):
            filterjit.load(older)
            continue
        with pytest.raises(ValueError, match="edited") as raised:
            filterjit.load(one)
        assert "cannot be loaded" in str(raised.value)


def test_a_module_that_is_not_imported(saved: Path) -> None:
    before = dict(sys.modules)
    with pytest.raises(ValueError, match="`edited` is not imported; import it first"):
        filterjit.load(saved)
    assert sys.modules == before
