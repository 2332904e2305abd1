"""The docstrings of the public API."""

import inspect
from typing import Any

import filterjit


def public_docstrings() -> dict[str, str]:
    """Returns the docstrings of all public names, and of the methods of public types, by name; an
    empty one for an object that has none."""
    jitted = filterjit.filter_jit(lambda x: x)
    objects: dict[str, Any] = {name: getattr(filterjit, name) for name in filterjit.__all__}
    for cls in (type(jitted.partial()), type(filterjit.filter_jit(_Holder.method).__get__(1))):
        objects[cls.__name__] = cls
    # A slot is described by its class. An instance, such as a filter, has the docstring of its class.
    found = {k: x for k, x in objects.items() if inspect.isroutine(x) or inspect.isclass(x)}
    for owner, cls in list(found.items()):
        members = vars(cls).items() if inspect.isclass(cls) else ()
        found |= {
            f"{owner}.{name}": x
            for name, x in members
            if not name.startswith("_")
            and name not in vars(cls).get("__slots__", ())
            and (inspect.isroutine(x) or inspect.isdatadescriptor(x))
        }
    docs = {name: inspect.getdoc(x) or "" for name, x in found.items()}
    # Those of fields are of `collections`.
    return {k: doc for k, doc in docs.items() if not doc.startswith("Alias for field number")}


class _Holder:
    def method(self) -> None: ...
