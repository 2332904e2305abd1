"""The rooms: packages of features, which use the core and can be taken away.

The core (`_compat`, `_base`, `_trees`, `_call`) imports no room. It asks this module for a feature
by name, and the room is imported then. If a room was taken away, an option that needs it raises an
ImportError that names the room. A room that only listens is silently absent.
"""

import sys
from importlib import import_module
from typing import Any

PACKAGE = __name__.partition(".")[0]

MADE_BY = {
    "in_shardings": "_shardings._sharded_call",
    "same_on_all_processes": "_processes",
    "functions='structure'": "_functions._function_keys",
}
"""The module of a room by the option that it is there for."""

LISTENERS = {
    "_observe._listener": "jax",
    "_nnx._lost_changes": "flax.nnx",
    "_aot._keep": f"{PACKAGE}._aot._keep",  # `keep_programs` imports it
}
"""The modules of rooms with a `listener` for the events of `_call._events`, in their order, and the
library without which there is nothing to hear."""


def room_for(option: str) -> Any:
    """Returns the module of the room for an option.

    Raises ImportError if the room was taken away."""
    return import_room(MADE_BY[option], f"`{option}`")


def import_room(module: str, what: str) -> Any:
    """Returns a module of a room. If the room was taken away, raises an ImportError that says that
    `what` needs it."""
    room = f"{PACKAGE}.{module.partition('.')[0]}"
    try:
        return import_module(f"{PACKAGE}.{module}")
    except ModuleNotFoundError as e:
        if e.name != room:
            raise
        raise ImportError(f"{what} needs `{room}`, which is not installed", name=room) from None


_WITHOUT_JAX = ("_install", "_base._switches")  # which a program may use before it imports JAX


def look_up(variables: dict[str, Any], modules: dict[str, tuple[str, ...]], name: str) -> Any:
    """Returns the object of a public module with a name, and stores it there.

    Arguments:
        variables: the variables of the public module.
        modules: the public names of each private module.
        name: the name.

    Raises AttributeError if there is no such name, and ImportError if its room was taken away, or
    if a ``from`` statement asks for a name that another library has."""
    public = variables["__name__"]
    module = next((module for module, names in modules.items() if name in names), None)
    if module is None:
        owners = (x for x in ("equinox", "jax") if name in vars(sys.modules.get(x, object)))
        instead = "".join(f"; keep `{owner}.{name}`" for owner in owners)
        text = f"module {public!r} has no attribute {name!r}{instead}"
        # Python replaces the text of an AttributeError in a `from` statement.
        is_from = sys._getframe(2).f_code.co_name == "_handle_fromlist"
        is_from = is_from and name[0] != "_"
        raise ImportError(text, name=public) if instead and is_from else AttributeError(text)
    if module not in _WITHOUT_JAX:
        # Before the room, which imports JAX too: `install` waits for JAX, and then imports
        # our modules, and none of these may be half imported.
        import_module("jax")
    variables[name] = getattr(import_room(module, f"`{public}.{name}`"), name)
    return variables[name]
