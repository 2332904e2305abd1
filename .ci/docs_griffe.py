"""Gives the classes of the C core their docstrings in the reference.

Griffe reads the types of `filterjit._core` from its stub, which has no docstrings, and what the
stub does not have from the extension. A class that says that it is of `filterjit` is not looked up
there.
"""

import copy
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
            take_members_of_private_bases(described, pkg["_core"].members)
            left = {name for name in vars(cls) if name[0] != "_"} - described.members.keys()
            if left:
                raise RuntimeError(f"the stub of {described.path} lacks {sorted(left)}")
            give(described, cls)
            for member in described.members.values():
                if not member.name.startswith("_") and not member.is_alias:
                    give(member, getattr(cls, member.name, None))


def take_members_of_private_bases(described: Any, classes: Any) -> None:
    """Gives a class what its bases in the stub have, which are not there at run time."""
    for base in described.bases:
        shared = classes.get(str(base).partition("[")[0])
        if shared is not None and shared.name.startswith("_"):
            for name in shared.members.keys() - described.members.keys():
                described.set_member(name, copy.copy(shared.members[name]))


def give(described: Any, value: Any) -> None:
    text = inspect.getdoc(value)
    if described.docstring is None and text:
        described.docstring = griffe.Docstring(
            text,
            parent=described,
            parser="google",
            parser_options={"returns_multiple_items": False},
        )
