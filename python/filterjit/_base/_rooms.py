"""The rooms: removable packages of features.

The core (`_compat`, `_base`, `_trees`, `_call`) imports no room directly. It asks this module for a
feature by name. If the feature's room was removed, options raise an ImportError that names it,
and listeners are silently absent.
"""

import sys
from importlib import import_module
from typing import Any

from ._checks import did_you_mean

PACKAGE = __name__.partition(".")[0]

MADE_BY = {
    "in_shardings": "_shardings._sharded_call",
    "same_on_all_processes": "_processes",
    "functions='structure'": "_functions._function_keys",
}
"""Options, and the modules that implement them."""

LISTENERS = {"_observe._listener": "jax", "_nnx._lost_changes": "flax.nnx"}
"""Modules with a `listener` for `_call._events`, each with the module that it waits for."""


def room_for(option: str) -> Any:
    """Returns the module that implements an option. Raises ImportError if its room was removed."""
    return import_room(MADE_BY[option], f"`{option}`")


def import_room(module: str, what: str) -> Any:
    """Imports a room's module. If it was removed, the ImportError says that `what` needs it."""
    room = f"{PACKAGE}.{module.partition('.')[0]}"
    try:
        return import_module(f"{PACKAGE}.{module}")
    except ModuleNotFoundError as e:
        if e.name != room:
            raise
        raise ImportError(f"{what} needs `{room}`, which is not installed", name=room) from None


_WITHOUT_JAX = ("_install", "_base._switches")  # programs can use these before they import JAX


def look_up(variables: dict[str, Any], modules: dict[str, tuple[str, ...]], name: str) -> Any:
    """Imports a public name on first use, and stores it in `variables`, the public module's
    globals. `modules` has the public names of each private module.

    Raises AttributeError for an unknown name, or ImportError if its room was removed or a ``from``
    statement asks for a name of Equinox or JAX."""
    public = variables["__name__"]
    module = next((module for module, names in modules.items() if name in names), None)
    if module is None:
        peers = ("flax.nnx",) if public.endswith(".nnx") else ("equinox", "jax")
        owners = (x for x in peers if name in vars(sys.modules.get(x, object)))
        instead = "".join(f"; keep `{owner}.{name}`" for owner in owners)
        names = [n for names in modules.values() for n in names] + variables.get("__all__", [])
        question = "" if instead else did_you_mean(name, names).replace(" D", ". D")
        text = f"module {public!r} has no attribute {name!r}{instead}{question}"
        # In a `from` statement, Python replaces the text of an AttributeError.
        is_from = sys._getframe(2).f_code.co_name == "_handle_fromlist"
        is_from = is_from and name[0] != "_"
        raise ImportError(text, name=public) if instead and is_from else AttributeError(text)
    if module not in _WITHOUT_JAX:
        # JAX first: `install` waits for it and then imports our modules, which must not be half
        # imported.
        import_module("jax")
    variables[name] = getattr(import_room(module, f"`{public}.{name}`"), name)
    return variables[name]
