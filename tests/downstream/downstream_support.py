"""A program run both ways: as it is, and with ours in Equinox's place."""

from collections.abc import Callable
from typing import Any

import jax.tree_util as jtu
import pytest

import filterjit
from parity.support import first_line, picture, runtime_message

Program = Callable[[], Any]


def both(program: Program) -> Any:
    """Asserts that both runs return the same, bit for bit, and returns it.

    The program makes its own functions, so that nothing is traced already. Results are compared
    as values and as trees.
    """
    theirs = program()
    with filterjit.installed():
        ours = program()
    assert picture(ours) == picture(theirs)
    assert _structure(ours) == _structure(theirs)
    return theirs


def _structure(tree: Any) -> list[str]:
    return [f"{jtu.keystr(path)} {type(leaf)}" for path, leaf in jtu.tree_leaves_with_path(tree)]


def both_raise(program: Program, match: str) -> None:
    """Asserts that both runs raise the same ``EquinoxRuntimeError``."""
    with pytest.raises(RuntimeError, match=match) as theirs:
        program()
    with filterjit.installed(), pytest.raises(RuntimeError, match=match) as ours:
        program()
    assert type(ours.value) is type(theirs.value)
    assert type(ours.value).__name__ == "EquinoxRuntimeError"
    assert runtime_message(ours.value) == runtime_message(theirs.value)
    assert first_line(ours.value) == first_line(theirs.value)
