"""What is known of a code object: the names in it, and a digest of what it does.

Nothing here follows what the bytecode does with a name. A name of an attribute that occurs in the
code may be read from any object that the code can reach, and so may a string that could be a name.
"""

import dis
import hashlib
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

_LONGEST_NAME = 60

# Builtins, functions and attributes that read others by names that the code need not contain: of a
# module of the user's, all may be read.
_READ_ANY = frozenset(
    {"getattr", "getattr_static", "vars", "dir", "__dict__", "__getattribute__", "attrgetter"}
    | {"methodcaller", "getmembers", "getmembers_static"}
)
# Those of which nothing can be said.
_READ_ALL = frozenset(
    {"globals", "eval", "exec", "__import__", "import_module", "__globals__", "_getframe"}
    | {"currentframe", "f_globals", "f_locals", "f_back", "get_referents", "get_objects"}
    | {"__subclasses__", "__doc__", "getdoc"}
)


class Code:
    """Facts about a code object, with the code that is nested in it.

    Attributes:
        globals: the names that may be read as global variables, sorted.
        names: all names in it, and the strings in it that could be names of attributes.
        imports: the modules that it imports: pairs of a level and a name.
        reads_any: whether it may read attributes by other names than `names`.
        unknown: a name in it by which it may read anything; None if there is none.
        is_local: whether it was defined in a function.
        ref: a weak reference to the code object.
    """

    __slots__ = ("globals", "imports", "is_local", "names", "reads_any", "ref", "unknown")

    def __init__(self, code: types.CodeType) -> None:
        address, forget = id(code), _codes.pop
        self.ref = weakref.ref(code, lambda _: forget(address, None))
        names: set[str] = set()
        strings: set[str] = set()
        global_names: set[str] = set()
        imports: dict[tuple[int, str], None] = {}
        for inner in nested(code):
            names.update(inner.co_names)
            strings.update(_strings(inner.co_consts))
            _read(inner, global_names, imports)
        self.globals = tuple(sorted(global_names))
        self.names = frozenset(names | strings)
        self.imports = tuple(imports)
        self.reads_any = not _READ_ANY.isdisjoint(names)
        self.unknown = min(_READ_ALL & names, default=None)
        self.is_local = "<locals>" in code.co_qualname


_codes: dict[int, Code] = {}  # by address, because hashing a code object reads all of it


def of_code(code: types.CodeType) -> Code:
    facts = _codes.get(id(code))
    if facts is None or facts.ref() is not code:
        facts = _codes[id(code)] = Code(code)
    return facts


def nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields a code object and those in its constants."""
    yield code
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from nested(constant)


def _strings(constants: Any) -> Iterator[str]:
    for x in constants:
        if type(x) is str and len(x) <= _LONGEST_NAME and x.isidentifier():
            yield x
        elif type(x) in (tuple, frozenset):
            yield from _strings(x)


def _read(code: types.CodeType, names: set[str], imports: dict[tuple[int, str], None]) -> None:
    """Adds the names that `code` reads as globals, and what it imports."""
    constants: list[Any] = []
    for i in dis.get_instructions(code):
        if i.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
            constants.append(i.argval)
        elif i.opname == "IMPORT_NAME":  # follows the level, and the names to import
            imports[constants[-2], i.argval] = None
        elif i.opname.startswith("LOAD") and ("GLOBAL" in i.opname or "NAME" in i.opname):
            names.add(i.argval)


# ---- a digest that is the same in all processes of one version of Python ----

PYTHON = f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"


def digest_of(code: types.CodeType) -> str:
    """Returns a digest of all that decides what code does: neither the file nor the lines."""
    return hashlib.sha256(_text(code).encode("utf-8", "backslashreplace")).hexdigest()


def _text(code: types.CodeType) -> str:
    return repr(
        (
            code.co_code.hex(),
            code.co_exceptiontable.hex(),
            code.co_flags,
            (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
            (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
            [_constant(x) for x in code.co_consts],
        )
    )


def _constant(x: Any) -> str:
    cls = type(x)
    if cls is types.CodeType:
        return _text(x)
    if cls is tuple:
        return repr([_constant(y) for y in x])
    if cls is frozenset:
        return repr(sorted(_constant(y) for y in x))
    if cls is slice:
        return repr([_constant(y) for y in (x.start, x.stop, x.step)])
    return f"{cls.__name__} {x.hex() if cls is float else hex(x) if cls is int else repr(x)}"
