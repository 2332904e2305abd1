"""The table of causes why a function compiles again, with remedies.

docs/errors.md and tests/messages.md show a program for each row. Many differences are normal: a flag has two programs.
Remedies therefore say what is normal, and advise arrays only for numbers.
"""

import enum
import os
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax

from .. import _core
from .._base._errors import format_path
from .._base._unwrap import is_function
from .._compat import _jax_compat
from .._trees._registry import NUMBERS
from ._wording import dtype_of

# The titles of all kinds of causes, in the order of an explanation: later causes are often
# consequences of earlier ones.
TITLES = {
    "deleted": "deleted, or donated to an earlier call",
    "first": "nothing is compiled yet",
    "not compiled": "it was traced for such arguments, but not compiled",
    "handed over": "a call that falls back to `jax.jit`",
    "function": "defined or jitted again",
    "given": "argument added or left out",
    "class": "different class",
    "structure": "different structure",
    "type": "different type",
    "recreated": "recreated function",
    "other function": "different function",
    "bound method": "bound method of a different instance",
    "changed in place": "static value changed in place",
    "static": "different static value",
    "identity": "different object, which is equal only to itself",
    "shape": "different shape",
    "dtype": "different dtype",
    "weak type": "different weak type",
    "mesh": "on a mesh, or not",
    "config": "different configuration of JAX",
    "sharding": "different sharding",
    "device": "different device, or committed to one",
    "options": "different options",
    "cleared": "the compiled program was dropped",
    "evicted": "its program was dropped, since the cache was full",
}


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        kind: a key of `TITLES`.
        remedy: advice. Braces are filled in for the value and program at hand.
        is_endless: True if there can be any number of such causes. The other ones are intended, or
            few.
        weight: the distance between two programs with this difference. A container or class weighs
            more than a static value, because the nodes below it aren't compared. Rare differences,
            such as dtypes, weigh more than shapes.
    """

    kind: str
    remedy: str = ""
    is_endless: bool = False
    weight: int = 1


JIT_ONCE = "Jit it once, outside the loop, and pass what changes as an argument."

# ---- the function and its programs

DELETED = Row(
    "deleted", "A call deletes the arrays that it is told to donate: pass what it has returned."
)
FIRST = Row("first")
NOT_COMPILED = Row("not compiled")
HANDED_OVER = Row("handed over")
FUNCTION = Row(
    "function",
    "The function of {place} has new programs each time that it is defined or jitted. " + JIT_ONCE,
    True,
)
OPTIONS = Row(
    "options",
    "Use the same options: functions jitted with different options do not share programs.",
)
CLEARED = Row("cleared", "The cache was cleared.")
EVICTED = Row("evicted", "Raise `maxsize`, which is {maxsize}.", True)
CONFIG = Row("config", "Set it once, before the first call.")

# ---- arguments, classes and containers

GIVEN = Row(
    "given",
    "Pass the argument on every call or on none: an argument that is left out is not equal to its "
    "default value.{more}",
    weight=5,
)
NEW_CLASS = Row(
    "class", "Define the class once, outside the loop: each definition is a new class.", True, 20
)
CELL_CLASS = Row(
    "class", "Each run of a cell defines its classes anew: this is normal in a notebook.", weight=20
)
OTHER_CLASS = Row(
    "class", "Pass the same class on every call: each class has its own program.", weight=20
)
LENGTH = Row(
    "structure",
    "Each length has its own program: keep it the same, or put the items into one array.",
    True,
    10,
)
KEYS = Row("structure", "Give the dict the same keys on every call.", True, 10)
ORDER = Row("structure", "Give the dict the same keys in the same order on every call.", weight=10)
ATTRIBUTES = Row(
    "structure",
    "Give the object the same attributes on every call, and change none from static.",
    True,
    10,
)
SHARING = Row(
    "structure",
    "Pass the same object in the same places on every call: sharing is part of the structure.",
    weight=10,
)
OPTIONAL = Row(
    "structure",
    "None and a value have a program each: this is normal for an argument that is optional.",
    weight=10,
)
OPTIONAL_VALUE = OPTIONAL._replace(kind="type")
LIST_OF_NUMBERS = Row(
    "structure",
    "Make one array of the list (`jnp.asarray`): each number in a list is a static value of its own.",
    weight=10,
)
CONTAINER = Row("structure", "Pass the same type of container on every call.", weight=10)
FLAG_OR_ARRAY = Row(
    "type",
    "Pass `bool(...)` on every call, if the function branches on it, or else an array.",
    weight=2,
)
NUMBER_OR_ARRAY = Row(
    "type",
    "Pass an array (`jnp.asarray`) on every call: Python numbers are static, arrays are traced.",
    weight=2,
)
STATIC_OR_ARRAY = Row("type", "Pass an array on every call, or on none.", weight=2)
TYPE = Row("type", "Pass the same type on every call.", weight=2)
NUMBER_TYPE = TYPE._replace(
    remedy=f"{TYPE.remedy} If the value changes, pass an array (`jnp.asarray`)."
)

# ---- functions among the arguments

OTHER_FUNCTION = Row(
    "other function", "Each function has its own program: this is normal if there are few."
)
METHOD = Row("bound method", "Create the instance once, or make its class an equinox.Module.", True)
JITTED_AGAIN = Row("recreated", "Jit it once, outside the loop.", True)
RECREATED = Row("recreated", "{again} Define it once, outside the loop{option}.", True)
RECREATED_WITH = Row("recreated", "{again} Make it once, and pass {names} as an argument.", True)
OF_LIBRARY = Row(
    "recreated", "A library makes it: create `{holder}` once, and pass the same object.", True
)
METHOD_OF_LIBRARY = Row(
    "bound method", "Create the `{holder}` once, and pass the same object.", True
)
# With functions="structure":
HELD_VALUE = Row(
    "recreated", "Each value has its own program: pass what changes often as an argument.", True
)

# ---- static values

CHANGED = Row(
    "changed in place",
    "Create a new object instead of changing this one: each value has its own program.",
    True,
)
EQUALITY = Row("static", "Let `__eq__` give the same answer each time.", True)
OTHER = Row("static", "Each value has its own program.")
FLAG = Row("static", "A flag has two programs, one for each value: this is normal.")
MEMBER = Row("static", "Each member has its own program: this is normal.")
SAME_DTYPE = Row("static", "Write the dtype the same way on every call.", True)
DTYPE_VALUE = Row("static", "Each dtype has its own program: this is normal.")
NUMBER = Row(
    "static",
    "If the function only computes with it, {how}. If it is a size or a shape, each value needs its own "
    "program.",
    True,
)
ARRAY = Row(
    "static",
    "An array in a static field is compared by its contents. Make the field not static.",
    True,
)
TEXT = Row(
    "static",
    "Each string has its own program: this is normal if there are few. Leave it out if the function does "
    "not need it.",
    True,
)
BYTES = Row("static", TEXT.remedy.replace("string", "value"), True)
PATH = Row(
    "static",
    "Each path has its own program. Leave it out, or read the file before the call and pass what is in "
    "it.",
    True,
)
CLASS_VALUE = Row(
    "static", "Each class has its own program: this is normal if there are few.", True
)
VALUE = Row(
    "static",
    "Each value has its own program. If a part of it changes often, pass that part as an array.",
    True,
)
IDENTITY = Row("identity", "Create it once and pass the same object{define_eq}.", True)
HOLDS_ARRAYS = Row("identity", "{holds_arrays}", True)

# ---- arrays

SHAPE = Row("shape", "Pad it to one of a few shapes: `filterjit.pad_to(...)`.", True)
SHAPE_OF_KEYS = Row(
    "shape", "Each number of keys has its own program: this is normal if there are few.", True
)
RANK = Row(
    "shape",
    "Each number of dimensions has its own program: this is normal if there are few.",
    True,
    3,
)
DTYPE = Row("dtype", "Convert it before the call: `{array}.astype(...)`.", weight=2)
WEAK_DTYPE = Row(
    "dtype", "Pass it as an array of one dtype: `jnp.asarray({array}, dtype=...)`.", weight=2
)
KEY = Row(
    "dtype",
    "Make random keys in one way: by `jax.random.key`, with one `impl`, not by `PRNGKey`.",
    weight=2,
)
WEAK_TYPE = Row(
    "weak type",
    "Give it a dtype, `jnp.asarray(x, dtype=...)`: an array made from a Python number has a weak type.",
)
MESH = Row(
    "mesh",
    "JAX gives an array on a mesh a different type from one that isn't. Place it once, before the first "
    "call: `filterjit.sharding.place(...)`.",
)
TYPE_OF_SPEC = Row(
    "sharding",
    "To JAX, the mesh of an array, and how it is divided over explicit axes, are parts of its type. Place "
    "it the same way on every call: `jax.device_put(x, sharding)`.",
)
SHARDING = Row("sharding", "Place it the same way on every call: `jax.device_put(x, sharding)`.")
DEVICE = SHARDING._replace(kind="device")
NO_SHARDING = "Give the ShapeDtypeStruct the array's `sharding=`."
PLACED = (MESH, TYPE_OF_SPEC, SHARDING, DEVICE)


# ---- the row of a static value ----

# How to trace a number in a field that its class declares static, or in a node's aux data.
IN_FIELD = ", and its field not static"
IN_AUX = ", not a part of the aux data"


def row_of(was: Any, x: Any, fixed: str = "") -> Row:
    """Returns the row for a static that was another one, or one of its type. `fixed` is IN_FIELD,
    IN_AUX or ""."""
    if type(was) is not type(x):
        if was is None or x is None:
            return OPTIONAL_VALUE
        are_numbers = isinstance(was, NUMBERS) and isinstance(x, NUMBERS)
        return NUMBER_TYPE if are_numbers and not fixed else TYPE
    if isinstance(x, bool):
        return FLAG
    if isinstance(x, enum.Enum):
        return MEMBER
    if isinstance(x, (int, float, complex)):
        return NUMBER._replace(remedy=of_number(None, (), fixed))
    if isinstance(x, _jax_compat.ARRAY_TYPES):
        return ARRAY if fixed == IN_FIELD else OTHER
    if isinstance(x, (str, bytes)):
        return TEXT if isinstance(x, str) else BYTES
    if isinstance(x, os.PathLike):
        return PATH
    if dtype_of(x) is not None:
        return DTYPE_VALUE
    if isinstance(x, (jax.sharding.Mesh, jax.sharding.PartitionSpec, jax.sharding.Sharding)):
        return OTHER
    if isinstance(x, type):
        return CLASS_VALUE
    return OTHER_FUNCTION if is_function(x) else VALUE


def decorator_of(cache: _core.Cache) -> str:
    """Returns the decorator of a function: "filter_jit", "jit" or "nnx.jit"; otherwise ""."""
    return str(getattr(cache.hooks, "decorator", ""))


def _static_names(cache: _core.Cache) -> list[str]:
    static = cache.hooks.settings.static
    return [
        *static.names,
        *(x for i, x in enumerate(cache.signature.names) if i in static.positions),
    ]


def of_number(
    cache: _core.Cache | None,
    paths: Collection[Sequence[Any]],
    fixed: str = "",
    in_list: bool = False,
) -> str:
    """Returns the remedy for numbers that change, at paths in the function's arguments. `in_list`
    is True for lists and tuples of numbers."""
    how = f"make it an array (`jnp.asarray`){fixed}"
    if in_list and len(lists := {format_path(path[:-1]) for path in paths}) == 1:
        how = f"pass `jnp.asarray({min(lists)})`, one array"
    names = sorted({path[0] for path in paths if path})
    if cache is not None and names and {*names} <= {*cache.signature.names}:
        if decorator_of(cache) in ("jit", "nnx.jit"):
            if not {*names} <= {*_static_names(cache)}:
                return NUMBER.remedy.format(how=how)
            how = "leave it out of `static_argnames` and `static_argnums`, so that it is traced"
        elif decorator_of(cache) == "filter_jit" and all(len(path) == 1 for path in paths):
            listed = ", ".join(f'"{name}"' for name in names)
            if cache.hooks.settings.traced:
                how = f"add {listed} to the option `traced`, or {how}"
            else:
                option = f"({listed}{',' * (len(names) == 1)})"
                how = f"jit it with `filterjit.filter_jit(traced={option})`, or {how}"
    return NUMBER.remedy.format(how=how)
