"""The description of a function or a class: all that its code can use, as far as that can be known.

One walk (`Walk`) makes it, for two purposes. In a process (`_function_keys`) it is a key, in which
objects may stand for themselves. Across processes (`_digest`) it is a list of named digests. The
two differ in what stands for a value that has no contents that could be compared, and in nothing
else.

Functions, classes and modules are numbered in the order in which they are found, and what refers to
one has its number, so recursion needs no special case and each is described once. Cells and
containers are numbered too, so two functions that share a cell do not equal two functions with a
cell each. A description has

* of a function: its code, defaults, closure, attributes and annotations, what it wraps, and the
  global variables that the code names, with those that nested code names;
* of a class: its metaclass, its bases, and all that is in it: methods of each kind, constants,
  annotations, fields, inner classes;
* of an instance: its contents and its class;
* of a module: the variables whose names occur in any code of the description;
* of a function or a class of an installed package (`_packages`): that it is this one. A function
  that was made by such a package, such as ``jax.vmap(f)``, also has its closure and attributes.

*Names.* What bytecode does with a name is not followed. An attribute whose name occurs anywhere in
the code that was found, be it as a string, may be read from any object that was found. So the
names of all this code are put together, and the objects of which not all is described, which are
*open* (modules, and in a process instances that are not known by their contents), are asked for
each of these names, until no new name and no new object turns up. Where code has a name such as
``getattr``, whole modules are described, since the name that is read may come from anywhere.

*Doubts.* Code that calls ``eval``, ``globals`` and the like, and objects of which nothing is known,
put a description in doubt. In a process that is a miss, in a file a reason to refuse.
"""

import functools
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .._trees._static_keys import OWN_ATTRIBUTES, dict_of
from . import _code, _types
from ._distrust import distrusted
from ._packages import is_library

Part = Any
"""An atom, or a tuple that begins with the name of its kind."""
Item = tuple[tuple[str, Any], Part]
"""A kind and a name, which tell what in an object it is, and its part."""

ATOMS: frozenset[type] = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented)}
)
UNSET = object()

_NOT_OF_WRAPPERS = frozenset(
    {"__doc__", "__annotations__", "__annotate__", "__type_params__", "__name__", "__qualname__"}
    | {"__module__", "_fun", "fun", "_jit_info"}
)


class Walk:
    """Describes objects, with all that they refer to.

    The methods that take a value and the facts about its type are the rules of `_types`.

    Attributes:
        found: the functions and classes found so far, in the order of their numbers.
        open: the objects that are asked for the names of attributes, with those that were asked.
    """

    annotation_functions = False  # whether what Python 3.14 makes annotations from stands for them

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.open: list[tuple[Any, set[str]]] = []
        self.names: set[str] = set()
        self.reads_any = False
        self._numbers: dict[int, int] = {}
        self._cells: dict[int, int] = {}
        self._seen: dict[int, tuple[int, Any]] = {}
        self._globals: set[tuple[int, str]] = set()

    # ---- what the two purposes differ in ----

    def doubt(self, reason: str) -> None:
        """Says that the description does not have all."""
        raise NotImplementedError

    def itself(self, x: Any) -> Part:
        """Returns what an object adds that can change in place."""
        raise NotImplementedError

    def identity(self, x: Any, facts: _types.Type | None = None) -> Part:
        """Returns the part for an object that stands for itself."""
        raise NotImplementedError

    def unknown(self, x: Any, facts: _types.Type) -> Part:
        """Returns the part for an object of which nothing is known."""
        raise NotImplementedError

    def value(self, x: Any, facts: _types.Type) -> Part:
        """Returns the part for a value of a type that is compared as a static value."""
        raise NotImplementedError

    def array(self, x: Any, facts: _types.Type) -> Part:
        """Returns the part for an array of NumPy."""
        raise NotImplementedError

    def of_library(self, x: Any, module: str, name: str) -> Part:
        """Returns the part for a function or a class that an installed package defines."""
        raise NotImplementedError

    def code(self, f: Any) -> Part:
        """Returns the part for the code of a function."""
        raise NotImplementedError

    def at(self, owner: Any, kind: str, name: Any, x: Any) -> Item:
        """Returns the item for a value in `owner`."""
        return (kind, name), self.part(x)

    def annotation(self, owner: Any, name: Any, x: Any) -> Item:
        """Returns the item for an annotation, which puts nothing in doubt."""
        raise NotImplementedError

    def items_of(self, items: Iterable[Any]) -> Sequence[Any]:
        """Returns the elements of a set, in an order of its own."""
        return tuple(items)

    # ---- the walk ----

    def describe(self) -> list[tuple[Item, ...]]:
        """Returns the items of all that was found, and of all that is found with it."""
        described: list[tuple[Item, ...]] = []
        done = names = 0
        while done < len(self.found) or names < len(self.names):
            while done < len(self.found):
                x = self.found[done]
                of = (
                    self.items_of_function if type(x) is types.FunctionType else self.items_of_class
                )
                described.append(of(x))
                done += 1
            names = len(self.names)
            self._ask_open(described)
        return described

    def _ask_open(self, described: list[tuple[Item, ...]]) -> None:
        """Adds the items of open objects that have the names that were found since they were
        asked."""
        for x, asked in self.open:  # which grows meanwhile
            variables = variables_of(x)
            wanted = self.names
            if self.reads_any and variables and not is_library(variables.get("__name__")):
                wanted = set(variables)
            new = wanted - asked
            if new:
                asked |= new
                names = sorted(new if variables is None else [k for k in new if k in variables])
                if names and (items := self.items_of_open(x, variables, names)):
                    described.append(items)

    def part(self, x: Any) -> Part:
        """Returns the part for any value."""
        cls = type(x)
        if cls in ATOMS:
            return x
        facts = _types.known.get(id(cls))
        if facts is None or facts.ref() is not cls:
            facts = _types.of_type(cls)
        return getattr(self, facts.rule)(x, facts)

    # ---- functions ----

    def function(self, f: types.FunctionType, _: Any = None) -> Part:
        """The number; of a function that a package has at its top, that it is this one."""
        module: Any = f.__globals__.get("__name__")
        plain = f.__closure__ is None and is_library(module) and not f.__dict__
        if plain and not _code.of_code(f.__code__).is_local:
            return self.of_library(f, module, f.__code__.co_qualname)
        return "function", self.number(f)

    def number(self, x: Any) -> Any:
        number = self._numbers.setdefault(id(x), len(self.found))
        if number == len(self.found):
            self.found.append(x)
        return number

    def items_of_function(self, f: Any) -> tuple[Item, ...]:
        code = f.__code__
        facts = _code.of_code(code)
        skip = distrusted(code)
        if skip:
            self.doubt("it changes while it is traced")
        items: list[Item] = [(("code", ""), self.code(f))]
        if f.__defaults__ or f.__kwdefaults__:
            self._add(items, f, "default", defaults_of(f), skip)
        if f.__dict__:
            self._add(items, f, "attribute", self._attributes(f), skip)
        for name, x in self._annotations(f):
            if ("annotation", name) not in skip:
                items.append(self.annotation(f, name, x))
        for i, x in enumerate(getattr(f, "__type_params__", ())):
            items.append(self.annotation(f, i, x))
        for name, cell in zip(code.co_freevars, f.__closure__ or (), strict=True):
            if ("closure", name) not in skip:
                items.append(self.at(f, "closure", name, cell))
        if not is_library(f.__globals__.get("__name__")):
            self._add_named(items, f, facts, skip)
        return tuple(items)

    def _add(self, items: list[Item], f: Any, kind: str, values: Any, skip: Any) -> None:
        items += [self.at(f, kind, name, x) for name, x in values if (kind, name) not in skip]

    def _add_named(self, items: list[Item], f: Any, facts: _code.Code, skip: Any) -> None:
        """Adds the items for what the code of a function names."""
        self.names |= facts.names
        self.reads_any |= facts.reads_any
        if facts.unknown is not None:
            self.doubt(f"it uses `{facts.unknown}`")
        variables, built_in = f.__globals__, f.__builtins__
        for name in facts.globals:
            key = id(variables), name
            if key in self._globals or ("global", name) in skip:
                continue
            self._globals.add(key)
            if name in variables:
                items.append(self.at(f, "global", name, variables[name]))
            elif name in built_in:
                part = self.of_library(built_in[name], "builtins", name)
                items.append((("global", name), part))
            else:
                items.append((("global", name), ("unset",)))
        for level, name in facts.imports:
            if ("import", name) not in skip:
                items.append(self._import(f, level, name))

    def _import(self, f: Any, level: int, name: str) -> Item:
        if level:
            package = f.__globals__.get("__package__") or ""
            above = package.split(".")[: len(package.split(".")) - level + 1]
            name = ".".join([*above, name] if name else above)
        found = sys.modules.get(name)
        if not issubclass(type(found), types.ModuleType):
            if not is_library(name):
                self.doubt(f"it imports `{name}`, which is not imported")
            return ("import", name), ("unset",)
        parent = sys.modules.get(name.partition(".")[0])  # which `import a.b` binds
        if issubclass(type(parent), types.ModuleType):
            self.part(parent)
        return self.at(f, "import", name, found)

    def _annotations(self, x: Any) -> Iterable[tuple[str, Any]]:
        if self.annotation_functions and (make := getattr(x, "__annotate__", None)) is not None:
            return (("__annotate__", make),)
        try:
            return tuple(x.__annotations__.items())
        except Exception:  # since Python 3.14, reading them runs code
            self.doubt("its annotations cannot be read")
            return ()

    def _attributes(self, f: Any) -> Iterable[tuple[Any, Any]]:
        for name, x in f.__dict__.items():
            own = type(name) is str and name.startswith(OWN_ATTRIBUTES)
            if not own and name not in ("__annotations__", "__type_params__"):  # copies of `wraps`
                yield name, x

    # ---- classes ----

    def cls(self, x: Any, facts: Any = None) -> Part:
        if _types.of_type(x).is_library:
            return self.of_library(x, _types.module_of(x), _types.qualname_of(x))
        return "class", self.number(x)

    def items_of_class(self, cls: Any) -> tuple[Item, ...]:
        skip = distrusted(cls)
        if skip:
            self.doubt("it changes while it is traced")
        bases = type.__dict__["__bases__"].__get__(cls)
        items: list[Item] = [
            (("class", ""), self.itself(cls)),
            self.at(cls, "metaclass", "", type(cls)),
            self.at(cls, "bases", "", bases),
        ]
        members = _types.members_of(cls)
        for name in _types.of_type(cls).described(members):
            x = members.get(name)
            if name == "__annotations__" and type(x) is dict:
                items += [self.annotation(cls, k, v) for k, v in x.items()]
            elif name in ("__annotate__", "__annotate_func__"):
                if self.annotation_functions:
                    items.append(self.annotation(cls, name, x))
                else:
                    items += [self.annotation(cls, *a) for a in self._annotations(cls)]
            elif ("member", name) not in skip:
                items.append(self.at(cls, "member", name, x))
        return tuple(items)

    # ---- open objects ----

    def module(self, x: Any, _: Any = None) -> Part:
        self.add_open(x)
        return "module", self.identity(x), object.__getattribute__(x, "__dict__").get("__name__")

    def add_open(self, x: Any) -> None:
        if id(x) not in self._numbers:
            self._numbers[id(x)] = -1
            self.open.append((x, set()))

    def items_of_open(self, x: Any, variables: Any, names: Iterable[str]) -> tuple[Item, ...]:
        """Returns the items for the attributes of an open object that have these names."""
        if variables is None:
            return self._items_of_instance(x, names)
        module = variables.get("__name__")
        if is_library(module):
            return self._items_of_library(x, variables, names)
        skip = distrusted(x)
        if skip:
            self.doubt("it changes while it is traced")
        items = []
        for name in ("__getattr__", *names) if "__getattr__" in variables else names:
            key = id(variables), name
            hidden = name.startswith("__") and name != "__getattr__"
            if not (hidden or key in self._globals or ("global", name) in skip):
                self._globals.add(key)
                items.append(self.at(x, "global", name, variables[name]))
        return tuple(items)

    def _items_of_library(self, x: Any, variables: Any, names: Iterable[str]) -> tuple[Item, ...]:
        """Returns the items for plain values; whoever sets them changes what the package does."""
        items = []
        for name in names:
            value = variables[name]
            if name.startswith("__"):
                continue
            if type(value) in ATOMS:
                items.append(self.at(x, "global", name, value))
            elif type(value) is types.ModuleType:
                self.add_open(value)
            elif (x.__name__, name) == ("sys", "modules"):
                self.doubt("it reads `sys.modules`")
            elif (item := self.in_library(x, name, value)) is not None:
                items.append(item)
        return tuple(items)

    def in_library(self, module: Any, name: str, x: Any) -> Item | None:
        """Returns the item for what is at a name in an installed package, if it has one."""
        raise NotImplementedError

    def _items_of_instance(self, x: Any, names: Iterable[str]) -> tuple[Item, ...]:
        skip = distrusted(type(x))
        if skip:
            self.doubt("it changes while it is traced")
        items = []
        for name in names:
            value = attribute_of(x, name)
            if value is not UNSET and ("instance", name) not in skip:
                items.append(self.at(x, "instance", name, value))
        return tuple(items)

    # ---- the rules of other values ----

    def contents(self, x: Any, facts: _types.Type) -> Part:
        """The type, the contents and the attributes."""
        seen = self._seen.get(id(x))
        if seen is not None:
            return "seen", seen[0]
        self._seen[id(x)] = len(self._seen), x
        contents = self._contents(facts.contents(x))
        attributes = self.attributes(x, facts)
        mutable = attributes if facts.mutable == "attributes" else facts.mutable == "yes"
        itself = self.itself(x) if mutable else None
        return "contents", self.cls(type(x)), itself, contents, attributes

    def field(self, x: Any, facts: _types.Type) -> Part:
        """A field of a dataclass."""
        return self.contents(x, facts)

    def _contents(self, x: Any) -> Part:
        if type(x) is frozenset:
            return tuple([self.part(y) for y in self.items_of(x)])
        if type(x) is tuple:
            return tuple([self.part(y) for y in x])
        return self.part(x)

    def attributes(self, x: Any, facts: _types.Type) -> Part:
        if facts.attributes is None:
            return ()
        return tuple([(k if type(k) is str else self.part(k), self.part(v))
                      for k, v in facts.attributes(x)])  # fmt: skip

    def cell(self, x: Any, _: Any = None) -> Part:
        number = self._cells.setdefault(id(x), len(self._cells))
        try:
            return "cell", number, self.part(x.cell_contents)
        except ValueError:
            return "empty", number

    def method(self, x: Any, _: Any = None) -> Part:
        return "method", self.part(x.__func__), self.part(x.__self__)

    def built_in(self, x: Any, _: Any = None) -> Part:
        if x.__self__ is None or type(x.__self__) is types.ModuleType:
            return self.of_library(x, x.__module__ or "builtins", x.__qualname__)
        return "built-in", self.cls(type(x)), x.__name__, self.part(x.__self__)

    def parts(self, x: Any, facts: _types.Type) -> Part:
        """A method of another kind than a function, a property, a partial."""
        cls = type(x)
        base = next(c for c in cls.__mro__ if c in _types.PARTS)
        values = [vars(base)[name].__get__(x) if name in vars(base) else dict_of(x).get(name)
                  for name in _types.PARTS[base]]  # fmt: skip
        plain = cls is base is not functools.partial  # has at most what functools.wraps copies
        attributes = () if plain else self.attributes(x, facts)
        return "parts", self.cls(cls), *[self._part_of(v) for v in values], attributes

    def _part_of(self, x: Any) -> Part:
        """Returns the part for a tuple or a dict that nothing else refers to."""
        if type(x) is dict:
            return tuple([(k, self.part(v)) for k, v in x.items()])
        return tuple([self.part(v) for v in x]) if type(x) is tuple else self.part(x)

    def wrapper(self, x: Any, _: Any = None) -> Part:
        """A function around functions: what it wraps, and what else it has."""
        variables = dict_of(x)
        module, name = variables.get("__module__"), variables.get("__qualname__")
        if is_library(module) and type(name) is str and "<locals>" not in name:
            return self.of_library(x, module, name)
        seen = self._seen.get(id(x))
        if seen is not None:
            return "seen", seen[0]
        self._seen[id(x)] = len(self._seen), x
        own = {k: v for k, v in variables.items() if k not in _NOT_OF_WRAPPERS}
        if "__wrapped__" not in own:  # of a FilterJit
            own["__wrapped__"] = x.__wrapped__
        parts = [(k, self.part(v)) for k, v in own.items()
                 if type(k) is str and not k.startswith(OWN_ATTRIBUTES)]  # fmt: skip
        return "wrapper", self.itself(x), self.cls(type(x)), *parts, self.options_of(x)

    def options_of(self, x: Any) -> Part:
        """Returns the part for the options of a wrapper."""
        return None

    def reduced(self, x: Any, _: Any = None) -> Part:
        reduced = x.__reduce__()
        for name in reduced[1]:
            if type(name) is str:
                self.names.update(name.split("."))
        return "reduced", self.part(reduced)

    def logger(self, x: Any, _: Any = None) -> Part:
        return "logger", self.itself(x), x.name


def defaults_of(f: Any) -> Iterator[tuple[str, Any]]:
    """Yields the names of parameters, with their defaults."""
    code, values = f.__code__, f.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][max(0, code.co_argcount - len(values)) :]
    if len(names) < len(values):  # more defaults than parameters
        yield "", values
    yield from zip(names, values[len(values) - len(names) :], strict=True)
    yield from (f.__kwdefaults__ or {}).items()


def variables_of(x: Any) -> Any:
    """Returns the variables of a module; None of other objects."""
    if issubclass(type(x), types.ModuleType):
        return object.__getattribute__(x, "__dict__")
    return None


def attribute_of(x: Any, name: str) -> Any:
    """Returns an attribute of an instance as it is stored, without running code of a descriptor."""
    own = dict_of(x)
    if name in own:
        return own[name]
    for c in type(x).__mro__:
        if name in c.__dict__:
            value = c.__dict__[name]
            if type(value) is not types.MemberDescriptorType:
                return UNSET  # the description of the class has it
            try:
                return value.__get__(x)
            except AttributeError:
                return UNSET
    return UNSET
