"""Gives the classes of the C core their docstrings in the reference.

Griffe reads the types of `filterjit._core` from its stub, which has no docstrings, and what the
stub does not have from the extension. A class that says that it is of `filterjit` is not looked up
there.
"""

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))


class CoreDocstrings(griffe.Extension):
    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        core = importlib.import_module("filterjit._core")
        for described in pkg["_core"].members.values():
            cls = getattr(core, described.name, None)
            if described.is_alias or not isinstance(cls, type):
                continue
            give(described, cls)
            for member in described.members.values():
                if not member.name.startswith("_") and not member.is_alias:
                    give(member, getattr(cls, member.name, None))


def give(described: Any, value: Any) -> None:
    text = inspect.getdoc(value)
    if described.docstring is None and text:
        described.docstring = griffe.Docstring(
            text,
            parent=described,
            parser="google",
            parser_options={"returns_multiple_items": False},
        )
