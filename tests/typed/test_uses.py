"""The uses that the type checkers check do what their types say."""

import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from filterjit import _core, filter_jit
from filterjit.types import Compiled, FilterJit, Structure

HERE = Path(__file__).parent
USES: dict[str, Any] = {"__name__": "uses"}


def assert_type(value: Any, expected: Any) -> Any:
    """Is `typing.assert_type`, but looks at the value's class."""
    origin = typing.get_origin(expected) or expected
    origin = expected if isinstance(expected, types.UnionType) else origin
    assert origin is Any or isinstance(value, origin), (value, expected)
    return value


def load() -> dict[str, Callable[..., None]]:
    code = compile((HERE / "uses.py").read_text(), str(HERE / "uses.py"), "exec")
    exec(code, USES)
    USES["assert_type"] = assert_type
    return {name: f for name, f in USES.items() if name.startswith("test_")}


@pytest.mark.parametrize("name", load())
def test_the_values_have_the_types(name: str, tmp_path: Path) -> None:
    f = USES[name]
    f(tmp_path) if inspect.signature(f).parameters else f()


def test_the_types_are_subscriptable() -> None:
    for cls in (FilterJit, Compiled, _core.BoundMethod):
        alias = cls[[int], str]  # type: ignore[misc]
        assert (typing.get_origin(alias), typing.get_args(alias)) == (cls, ([int], str))
    assert typing.get_origin(Structure[dict[str, int]]) is Structure


def test_filter_jit_is_public() -> None:
    assert isinstance(filter_jit(len), FilterJit)
    assert (FilterJit.__module__, FilterJit.__qualname__) == ("filterjit.types", "FilterJit")
