"""A module that is edited after a file was saved: `load` refuses, and names what has changed.

Each edit is made to the source of a module, which is imported anew; the saved file was written with
the module as it was. Whatever is edited changes what the saved function would compute, or may. What its
code reads by name is not noticed, as under ``jax.jit``.
"""

import re
import sys
import types
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from aot_files import read, write
from edited_programs import EDIT, edited

import filterjit
from filterjit import filter_jit

# Each edit, ``@{before|after}@``, has behind it what is named.
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
        def wrapper(x): return f(x) @{*|+}@ n  # the code of `edited.<lambda>`
        return wrapper
    return decorate

def make(k):
    def inner(x): return x * k
    return inner

class Config:
    width = @{3|4}@  # `edited.Config.width` was 3, is 4
    total: ClassVar[float] = @{4.0|4.5}@  # `edited.Config.total` was 4.0, is 4.5
    activations = [lambda x: x + @{5.0|5.5}@]  # the code of `edited.Config.<lambda>`
    class Inner: depth = @{6|7}@  # `edited.Config.Inner.depth` was 6
    @staticmethod
    def static(x): return x * @{7.0|7.5}@  # the code of `edited.Config.static`
    @classmethod
    def of_class(cls, x): return x * @{8.0|8.5}@  # the code of `edited.Config.of_class`
    @property
    def own(self): return @{9.0|9.5}@  # the code of `edited.Config.own`
    @own.setter
    def own(self, value): self.value = value * @{10.0|10.5}@  # the code of `edited.Config.own`
    @functools.cached_property
    def cached(self): return @{11.0|11.5}@  # the code of `edited.Config.cached`
    @functools.lru_cache
    def remembered(self, x): return x * @{12.0|12.5}@  # the code of `edited.Config.remembered`
    def part(self, x, n): return x * n
    thirteen = functools.partialmethod(part, n=@{13.0|13.5}@)  # `edited.Config.thirteen`

class Meta(type):
    def of_meta(cls, x): return x * @{14.0|14.5}@  # the code of `edited.Meta.of_meta`

class WithMeta(metaclass=Meta): pass

class Base(eqx.Module):
    def inherited(self, x): return x * @{15.0|15.5}@  # the code of `edited.Base.inherited`

class Layer(Base):
    weight: Any
    factor: float = eqx.field(static=True, default=@{16.0|16.5}@)  # `edited.Layer
    def __call__(self, x): return self.inherited(x) * self.weight

@jax.custom_jvp
def custom(x): return x * @{17.0|17.5}@  # the code of `edited.custom`

@custom.defjvp
def custom_jvp(primals, tangents): return custom(*primals), tangents[0] * @{18.0|18.5}@  # the code of `edited.custom_jvp`

closure = make(@{19.0|1.0}@)  # the closure value `k` of `edited.make.<locals>.inner`
decorated = times(@{20.0|2.0}@)(lambda x: x)  # the closure value `n` of
partial = functools.partial(lambda x, n: x * n, n=@{21.0|21.5}@)  # the closure value `functions` of
jitted = jax.jit(lambda x: x * @{22.0|22.5}@)  # the code of `edited.<lambda>`
filtered = eqx.filter_jit(lambda x: x * @{23.0|23.5}@)  # the code of `edited.<lambda>`

def default(
    x,
    n=@{24.0|24.5}@,  # the default of `n` in `edited.default` was 24.0, is 24.5
    *,
    k=@{25.0|25.5}@,  # the default of `k` in `edited.default` was 25.0
    array=np.array([26.0, @{26.0|26.5}@, 26.0], np.float32),  # the default of `array` in `edited.default`
    many=[@{27.0|27.5}@],  # the default of `many` in `edited.default`
):
    return x * n * k + array * many[0]

def attribute(x): return x * attribute.note

attribute.note = @{28.0|28.5}@  # the attribute `edited.attribute.note` was 28.0

class Plain:
    def __init__(self, scale): self.scale = scale

def held(
    c,
    functions,
    plain=Plain(@{29.0|29.5}@),  # the closure value `plain` of
    weight=jnp.full(3, @{30.0|30.5}@),  # the closure value `weight` of
    table={"a": {@{31.0|31.5}@}},  # the closure value `table` of
    meta=WithMeta,
):
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
EDITS = re.findall(r"@\{.*?\}@(?=.*?  # (.*))", SOURCE)
X = jnp.arange(3.0)


def imported(source: str, patch: pytest.MonkeyPatch) -> Any:
    module = types.ModuleType("edited")
    patch.setitem(sys.modules, "edited", module)
    exec(compile(source, "edited.py", "exec"), module.__dict__)
    return module


def save(path: Path, *args: Any) -> None:
    filter_jit(lambda f, x: f(x)).lower(*args).compile().save(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A file, and what its function computes."""
    path = tmp_path_factory.mktemp("edits") / "file"
    with pytest.MonkeyPatch.context() as patch:
        module = imported(edited(SOURCE, 0), patch)
        save(path, module.everything, X)
        return path, module.everything(X)


@pytest.mark.parametrize("number", range(len(EDITS)), ids=EDITS)
def test_what_has_changed_is_named(
    saved: tuple[Path, Any], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(len(EDITS)))
    source = EDIT.sub(lambda match: match[1 + (next(numbers) == number)], SOURCE)
    module = imported(source, monkeypatch)
    assert not np.allclose(saved[1], module.everything(X), rtol=1e-5)
    with pytest.raises(ValueError, match="something has changed: ") as raised:
        filterjit.load(saved[0])
    assert EDITS[number] in str(raised.value)
    if EDITS[number].startswith("the code"):
        assert "has changed." in str(raised.value)


HARMLESS = [
    ("", ""),
    ("SCALE = 2.0", "SCALE = 2.0  # a comment"),
    ("def attribute", "\n\n\ndef attribute"),
    ("def attribute", "def another(x):\n    return x\n\n\ndef attribute"),
    ("SCALE = 2.0", "SCALE = 2.5"),  # a global is not noticed
]


@pytest.mark.parametrize(("before", "after"), HARMLESS)
def test_what_does_not_matter(
    saved: tuple[Path, Any], before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = imported(edited(SOURCE, 0).replace(before, after), monkeypatch)
    found = filterjit.load(saved[0])(module.everything, X)
    np.testing.assert_allclose(found, saved[1], rtol=1e-5)


COMMON = """
import io, threading
import numpy as np
def hold(k): return lambda x: (x * 2.0, k)[0]
def one(x): return x
def two(x): return x * 2.0
three, four = (lambda x: x), (lambda x: x * 2.0)
class Five: n = 5.0
class Six: n = 6.0
def times(n): return lambda x: x * n
def both(f, g): return lambda x: f(x) + g(x) * 3.0
"""
# Of the first, little is known: their types, or what `pickle` keeps. In the others, two functions or
# classes are exchanged.
OTHERS = {
    "a generator": "act = hold(@{np.random.default_rng(0)|object()}@)",
    "an iterator": "act = hold(@{iter([1.0])|object()}@)",
    "a file": "act = hold(@{io.StringIO('a')|object()}@)",
    "a lock": "act = hold(@{threading.Lock()|object()}@)",
    "a running generator": "act = hold(@{(x for x in [1.0])|object()}@)",
    "functions": "def act(x, t={'a': @{one|two}@, 'b': @{two|one}@}): return t['a'](x)",
    "lambdas": "def act(x, t={'a': @{three|four}@, 'b': @{four|three}@}): return t['a'](x)",
    "functions of one code":
        "m, n = times(1.0), times(2.0)\ndef act(x, t=[@{m, n|n, m}@]): return t[0](x)",
    "bases": "class C(@{Five, Six|Six, Five}@): pass\ndef act(x, c=C): return x * c.n",
    "objects": "def act(x, p=(@{Five(), Six()|Six(), Five()}@)): return x * p[0].n",
    "defaults": "def act(x, f=@{one|two}@, g=@{two|one}@): return f(x) + g(x) * 3.0",
    "closures": "act = both(@{one, two|two, one}@)",
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_others(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    before, after = (COMMON + edited(OTHERS[name], world) for world in (0, 1))
    save(path, imported(before, monkeypatch).act, X)
    act = imported(before, monkeypatch).act
    np.testing.assert_array_equal(filterjit.load(path)(act, X), act(X))
    imported(after, monkeypatch)
    with pytest.raises(ValueError, match="something has changed: "):
        filterjit.load(path)


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


def test_a_module_that_is_not_imported(saved: tuple[Path, Any]) -> None:
    before = dict(sys.modules)
    with pytest.raises(ValueError, match="`edited` is not imported; import it first"):
        filterjit.load(saved[0])
    assert sys.modules == before
