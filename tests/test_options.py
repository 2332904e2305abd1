"""Misspelt options, and options with a value that they do not take, of all public functions.

The functions are found by introspection. An *option* is a parameter that can be given by name and has
a default.
"""

import inspect
from collections.abc import Callable
from typing import Any, get_args

import equinox  # noqa: F401  what a program has imported is named
import jax
import jax.numpy as jnp
import pytest

import filterjit
from filterjit._base._switches import Switches
from filterjit._jit import _decorator
from support.public import public_routines, public_types

_P = inspect.Parameter


def example(model: Any, x: Any, n: int = 1) -> Any:
    return model["w"] * x


MODEL = {"w": jnp.ones(2)}
JITTED = filterjit.filter_jit(example)
# Those whose options stand beside arguments of a function of the user's need a function, which may have
# any other word.
CALLS: dict[str, Callable[..., Any]] = {
    "FilterJit.compile": lambda **given: JITTED.compile(MODEL, 1.0, **given),
    "BoundFilterJit.compile": lambda **given: BOUND.compile(1.0, **given),
    "Traced.lower": lambda **given: JITTED.trace(MODEL, 1.0).lower(**given),
    "Lowered.compile": lambda **given: JITTED.lower(MODEL, 1.0).compile(**given),
}


class _Holder:
    method = JITTED


BOUND = _Holder().method


def _options(fun: Any) -> list[str]:
    parameters = inspect.signature(fun).parameters.values()
    by_name = (_P.POSITIONAL_OR_KEYWORD, _P.KEYWORD_ONLY)
    found = [p.name for p in parameters if p.kind in by_name and p.default is not _P.empty]
    return [name for name in found if name != "fun" and name[0] != "_"]


def _functions() -> dict[str, Any]:
    """Returns the public functions, and what constructs the public types, by name."""
    types = public_types().items()
    return public_routines() | {k: vars(x)["__init__"] for k, x in types if "__init__" in vars(x)}


FUNCTIONS = {name: fun for name, fun in _functions().items() if _options(fun)}
OPTIONS = [(name, option) for name, fun in FUNCTIONS.items() for option in _options(fun)]
# These take options of JAX, which their signatures do not name.
PASSED_ON = [("jit", option) for option in _options(jax.jit)]
PASSED_ON += [("Traced.lower", option) for option in _options(jax.stages.Traced.lower)]
OPTIONS += PASSED_ON


# These say themselves what was meant.
OWN_TEXT = {"filter_jit", "jit", "nnx.jit", *(name for name, _ in PASSED_ON)}


def _misspelt(name: str) -> str:
    """Returns `name` with one of the mistakes that people make."""
    if "_" in name:
        return name.replace("_", "")
    middle = len(name) // 2
    return name[:middle] + name[middle] + name[middle:]


def test_the_functions_are_found() -> None:
    found = {"filter_jit", "jit", "nnx.jit", "nnx.cached_partial", "install"}
    found |= {"FilterJit.warm_up_all", "Lowered.save"}
    found |= {"sharding.fsdp", "sharding.place"}
    assert found <= FUNCTIONS.keys()
    assert len(OPTIONS) > 70
    assert {name for name, _ in BOOLS} >= {"filter_jit", "install", "combine"}


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=lambda x: x)
def test_a_misspelt_option(name: str, option: str) -> None:
    call = CALLS.get(name) or FUNCTIONS[name]
    wrong = _misspelt(option)
    with pytest.raises(TypeError) as info:
        call(**{wrong: 1})
    assert repr(wrong) in str(info.value)
    if len(option) >= 3 and name in OWN_TEXT:  # nothing is like a very short word
        assert f"Did you mean {option!r}?" in str(info.value)


def test_an_option_that_is_like_no_other() -> None:
    """The message lists all options; those that are refused are not among them."""
    with pytest.raises(TypeError) as info:
        filterjit.filter_jit(quite_another=1)
    assert "argnums" not in str(info.value) and "'in_shardings'" in str(info.value)
    assert str(info.value).count("'in_shardings'") == 1


@pytest.mark.parametrize("name", ["filter_jit", "jit", "nnx.jit"])
def test_a_decorator_checks_its_options_before_it_is_given_a_function(name: str) -> None:
    jit = FUNCTIONS[name]
    with pytest.raises(ValueError, match="maxsize"):
        jit(maxsize=0)
    with pytest.raises(TypeError, match="max_size"):
        jit(max_size=1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_signature_is_that_of_the_source(name: str) -> None:
    """Also where a wrapper looks at the options."""
    fun = FUNCTIONS[name]
    inner = inspect.unwrap(fun)
    assert str(inspect.signature(fun)) == str(inspect.signature(inner))
    assert fun.__doc__ == inner.__doc__


WORDS = {
    ("filter_jit", "donate"): get_args(get_args(_decorator.Donate)[0]),
    ("filter_jit", "functions"): get_args(_decorator.Functions),
    **{(name, "on_retrace"): ("log", "warn", "raise") for name in ("filter_jit", "jit", "nnx.jit")},
}


@pytest.mark.parametrize(("name", "option"), WORDS)
def test_a_word_that_is_not_known(name: str, option: str) -> None:
    words = WORDS[name, option]
    for word in words:
        FUNCTIONS[name](**{option: word})
        with pytest.raises(ValueError) as info:
            FUNCTIONS[name](**{option: word[:-1]})
        text = str(info.value)
        assert f"`{name}(..., {option}=...)` must be one of " in text
        assert all(repr(one) in text for one in words)
        assert f"It is {word[:-1]!r}. Did you mean {word!r}?" in text
    with pytest.raises(ValueError, match="It is 'xyz'") as info:
        FUNCTIONS[name](**{option: "xyz"})
    assert "Did you mean" not in str(info.value)


ELSEWHERE: list[tuple[Callable[[], Any], type[Exception], str]] = [
    *(
        (lambda n=n: filterjit.filter_jit(example, **{n: 2}), ValueError, f"`{n}`: leave it out")
        for n in ("static_argnums", "static_argnames")
    ),
    *(
        (lambda n=n: filterjit.filter_jit(example, **{n: 0}), ValueError, '`donate=("state",)`')
        for n in ("donate_argnums", "donate_argnames")
    ),
    (lambda: filterjit.filter_jit(example, on_retrace=3), ValueError, "on_retrace"),
    (lambda: filterjit.jit(example, traced="n"), TypeError, "numbers are traced, unless"),
    (lambda: filterjit.jit(example, donate="all"), TypeError, "'donate'. Use `donate_argnames`."),
    (lambda: filterjit.jit(functions="structure"), TypeError, "`filter_jit` has it"),
    *(
        (lambda name=name: getattr(filterjit, name), AttributeError, f"Use `{place}`.")
        for name, place in (
            ("scan", "filterjit.lax.scan"),
            ("place", "filterjit.sharding.place"),
            ("ShardingRules", "filterjit.sharding.ShardingRules"),
            ("cached_partial", "filterjit.nnx.cached_partial"),
            ("Compiled", "filterjit.types.Compiled"),
            ("explain", "f.explain(...)"),
            ("save", "f.save(path)"),
        )
    ),
    (lambda: filterjit.filter_grad, AttributeError, "; keep `equinox.filter_grad`"),
    (lambda: filterjit.vmap, AttributeError, "; keep `jax.vmap`"),
    (lambda: filterjit.nnx.value_and_grad, AttributeError, "'; keep `flax.nnx.value_and_grad`"),
    (lambda: filterjit.is_aray, AttributeError, "'is_aray'. Did you mean 'is_array'?"),
    (lambda: filterjit.install(nnx=True), TypeError, "'nnx'. Pass `flax`"),
    (lambda: filterjit.jit(fun=example), TypeError, "'fun'. Pass the function by position."),
    (lambda: filterjit.filter_jit(example, foo=1), TypeError, "There are 'fun', 'donate', "),
]


def test_names_of_other_modules_are_known() -> None:
    for module, names in filterjit._ELSEWHERE.items():  # type: ignore[attr-defined]
        others = {*getattr(filterjit, module).__all__} - {"jit"}
        assert others == {*names}


@pytest.mark.parametrize(("call", "kind", "words"), ELSEWHERE)
def test_what_is_elsewhere(call: Callable[[], Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as info:
        call()
    assert words in str(info.value) and "jitkwargs" not in str(info.value)
    assert "its function has" not in str(info.value)


def test_all_other_options_of_jax_jit_are_taken() -> None:
    """What `filter_jit` refuses of them, it says; there is no option that it has forgotten."""
    for option in set(_options(jax.jit)) - {"in_shardings", "out_shardings"}:
        default = inspect.signature(jax.jit).parameters[option].default
        if option in _decorator._REFUSED:
            with pytest.raises(ValueError, match=option):
                filterjit.filter_jit(example, **{option: default})
        else:
            filterjit.filter_jit(example, **{option: default})


BOOLS = [
    (name, option)
    for name, option in OPTIONS
    if name in FUNCTIONS
    and name not in public_types()  # fields of results
    and not name.startswith(("nnx.", "lax."))  # which have the options of Flax and JAX
    and str(inspect.signature(FUNCTIONS[name]).parameters.get(option)).find(": bool") > 0
]


@pytest.mark.parametrize(("name", "option"), BOOLS)
def test_what_is_no_bool(name: str, option: str) -> None:
    with pytest.raises(ValueError, match=rf"{option}=\.\.\.\)` must be a bool.*, not 'off'"):
        FUNCTIONS[name](*[MODEL] * (name == "combine"), **{option: "off"})


def test_switches() -> None:
    assert (
        repr(Switches())
        == "<switches: direct=True, explain=False, progress=True, time_calls=False>"
    )
    with pytest.raises(AttributeError, match=r"has no .explian.\. Did you mean .explain."):
        filterjit.switches.explian = True  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"`filterjit\.switches\.direct` must be a bool"):
        filterjit.switches.direct = "no"  # type: ignore[assignment]


def test_a_misspelt_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILTERJIT_EXPLIAN", "1")
    with pytest.warns(UserWarning, match=r"no effect\. Did you mean 'FILTERJIT_EXPLAIN'\?"):
        Switches()


TRUE_OR_FALSE = {
    "0": False, "false": False, "off": False, "No": False, "": None, "1": True, "TRUE": True,
    "on": True, "yes": True, "maybe": None, "2": None,
}  # fmt: skip


@pytest.mark.parametrize("name", ["direct", "explain", "progress", "time_calls"])
@pytest.mark.parametrize(("word", "value"), TRUE_OR_FALSE.items())
def test_switches_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, word: str, value: bool | None
) -> None:
    variable = f"FILTERJIT_{name.upper()}"
    monkeypatch.delenv(variable, raising=False)
    expected = getattr(Switches(), name) if value is None else value
    monkeypatch.setenv(variable, word)
    if value is None and word:
        with pytest.warns(UserWarning, match=rf"{variable} is '{word}'.* set it to 1 or 0"):
            assert getattr(Switches(), name) is expected
    else:
        assert getattr(Switches(), name) is expected
