"""Filters: which leaves of a tree are meant.

What a user gives becomes a *program*, which the C core runs over all leaves at once
(``csrc/tree/filter.h`` lists its parts). That happens once a call and a filter, not once a leaf.
"""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _core
from .._base import _jax_compat
from . import _registry

Program = bool | tuple[Any, ...]


class Filter:
    """A filter that can be combined with others by ``&``, ``|`` and ``~``.

    Arguments:
        spec: what the partition functions take as a filter, one of

            - a function ``leaf -> bool``;
            - ``True`` or ``False``;
            - a dtype or a scalar type (``jnp.float32``, ``jnp.floating``): arrays of that dtype or
              a kind of it; a type of arrays (``jax.Array``, ``np.ndarray``): its instances;
            - a path pattern, a ``str``, see below;
            - another ``Filter``;
            - a tree prefix of these (patterns excepted), as ``equinox.partition`` takes.

    The other operand of ``&`` and ``|`` may be any of these too: ``"encoder.**" & is_array``.

    A *path pattern* is matched against the whole path of a leaf. It reads as paths are written,
    ``layers[0].weight`` or ``layers.0.weight``:

    ========================  ==========================================================
    ``weight``, ``0``         a field, a key or an index of that name
    ``w*``, ``layer_?``       the same, where ``*`` stands for any text and ``?`` for a character
    ``*``, ``[*]``            any one field, key or index
    ``**``                    any number of them, none too
    ``[3]``, ``[-1]``         an index, from the end where negative; an ``int`` key
    ``[1:3]``                 the indices of a slice
    ``['a.b']``               a key as it is, dots and stars included
    ========================  ==========================================================

    Raises:
        ValueError: a pattern that cannot be read, or a spec that is none of the above.
    """

    __slots__ = ("__weakref__", "program")

    def __init__(self, spec: Any) -> None:
        self.program: Program = as_program(spec)

    def __call__(self, leaf: Any) -> bool:
        """Whether the filter takes `leaf`, seen by itself.

        Raises:
            ValueError: the filter asks for the path of the leaf.
        """
        return _take(self.program, leaf)

    def __and__(self, other: Any) -> "Filter":
        return _made_of("and", self, other)

    def __rand__(self, other: Any) -> "Filter":
        return _made_of("and", other, self)

    def __or__(self, other: Any) -> "Filter":
        return _made_of("or", self, other)

    def __ror__(self, other: Any) -> "Filter":
        return _made_of("or", other, self)

    def __invert__(self) -> "Filter":
        return _made_of("not", self)

    def __repr__(self) -> str:
        return f"Filter({_describe(self.program)})"


def _made_of(op: str, *specs: Any) -> Filter:
    made = object.__new__(Filter)
    made.program = (op, *map(as_program, specs))
    return made


def _take(program: Program, leaf: Any) -> bool:
    match program:
        case bool():
            return program
        case ("arrays",):
            return _registry.is_array(leaf)
        case ("array", predicate):
            return _registry.is_array(leaf) and bool(predicate(leaf))
        case ("leaf", predicate):
            return bool(predicate(leaf))
        case ("and", p, q):
            return _take(p, leaf) and _take(q, leaf)
        case ("or", p, q):
            return _take(p, leaf) or _take(q, leaf)
        case ("not", p):
            return not _take(p, leaf)
        case _:
            raise ValueError(f"{_describe(program)} is about a place in a tree, not about a leaf")


def _describe(program: Program) -> str:
    match program:
        case ("arrays",):
            return "is_array"
        case ("array" | "leaf", predicate):
            return str(getattr(predicate, "__qualname__", None) or repr(predicate))
        case ("path", components):
            return repr(_write_pattern(components))
        case ("and" | "or" as op, p, q):
            return f"({_describe(p)} {'&' if op == 'and' else '|'} {_describe(q)})"
        case ("not", p):
            return f"~{_describe(p)}"
        case ("tree", spec, _):
            return repr(spec)
        case _:
            return repr(program)


# ---- from a spec to a program ----


def as_program(spec: Any) -> Program:
    """The program of any filter; see `Filter` for what there is."""
    if isinstance(spec, str):
        return "path", parse_pattern(spec)
    if isinstance(spec, bool):
        return spec
    if isinstance(spec, Filter):
        return spec.program
    below = _core.tree_leaves(_registry.registry, spec, lambda x: x is not spec)
    if not any(x is spec for x in below):
        return "tree", spec, part_program
    return _leaf_program(spec)


def part_program(spec: Any) -> Program:
    """The program of what stands in one place of a tree of filters."""
    if isinstance(spec, str) or (isinstance(spec, Filter) and _has_path(spec.program)):
        raise ValueError(
            f"a path pattern cannot stand inside a tree of filters: {spec!r}. It is a filter of a "
            "whole tree; combine the two by `&` or `|`."
        )
    return _leaf_program(spec)


def _bad(spec: Any) -> ValueError:
    if isinstance(spec, jax.core.Tracer):
        return ValueError("a filter cannot be a traced array")
    return ValueError(
        f"not a filter: {spec!r} of type `{type(spec).__name__}`. A filter is a function of a "
        "leaf, a bool, a dtype, a type of arrays, a path pattern, or a tree of these."
    )


def _has_path(program: Program) -> bool:
    return isinstance(program, tuple) and (
        program[0] == "path" or any(_has_path(p) for p in program[1:] if isinstance(p, tuple))
    )


def _leaf_program(spec: Any) -> Program:
    """The program of a filter that is no tree and no pattern."""
    if isinstance(spec, bool):
        return spec
    if isinstance(spec, Filter):
        return spec.program
    if isinstance(spec, type) and issubclass(spec, (jax.Array, np.ndarray)):
        return "array", functools.partial(_is_instance, spec)
    if isinstance(spec, np.dtype) or (
        isinstance(spec, type)
        and (issubclass(spec, np.generic) or isinstance(getattr(spec, "dtype", None), np.dtype))
    ):
        return "array", _HasDtype(spec)
    if spec is _registry.is_array:
        return ("arrays",)
    if callable(spec) and not isinstance(spec, jax.core.Tracer):
        return _of_equinox(spec) or ("leaf", spec)
    raise _bad(spec)


def _is_instance(cls: type, leaf: Any) -> bool:
    return isinstance(leaf, cls)


class _HasDtype:
    """Whether an array has a dtype, or one of a kind such as ``jnp.floating``."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.known: dict[Any, bool] = {}

    def __call__(self, leaf: Any) -> bool:
        known = self.known.get(leaf.dtype)
        if known is None:
            known = self.known[leaf.dtype] = bool(jnp.issubdtype(leaf.dtype, self.dtype))
        return known

    def __repr__(self) -> str:
        return repr(self.dtype)


def _of_equinox(predicate: Any) -> Program | None:
    """The program of a predicate of Equinox's that is known to be about arrays only."""
    equinox = _jax_compat.equinox()
    if equinox is None:
        return None
    if predicate is equinox.is_array:
        # Older ones leave NumPy's arrays out.
        return ("arrays",) if equinox.is_array(np.zeros(())) else None
    return ("array", predicate) if predicate is equinox.is_inexact_array else None


# ---- path patterns ----

_TOKEN = re.compile(
    r"""(?P<name> [^.\[\]]+ )
      | \[ (?: (?P<quoted> '[^']*' | "[^"]*" ) | (?P<slice> -?\d* : -?\d* (?: : -?\d* )? )
             | (?P<index> -?\d+ ) | (?P<item> [^\]'":]+ ) ) \]""",
    re.VERBOSE,
)


@functools.lru_cache(maxsize=1024)
def parse_pattern(pattern: str) -> tuple[tuple[Any, ...], ...]:
    """The components of a path pattern, as ``csrc/tree/pattern.h`` has them.

    Raises:
        ValueError: the pattern cannot be read; the message points at the place.
    """
    components: list[tuple[Any, ...]] = []
    at = 0
    while at < len(pattern):
        # A dot stands between components, but not before a bracket.
        if components and pattern[at] == "." and pattern[at + 1 : at + 2] != "[":
            at += 1
        elif components and pattern[at] != "[":
            raise _unreadable(pattern, at)
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise _unreadable(pattern, at)
        components.append(_component(token, pattern))
        at = token.end()
    return tuple(components)


def _unreadable(pattern: str, at: int) -> ValueError:
    return ValueError(
        f"cannot read the path pattern {pattern!r} from character {at + 1} on: {pattern[at:]!r}. "
        "It is made of names, `[index]`, `*` and `**`, with dots between: `layers[*].weight`."
    )


def _component(token: re.Match[str], pattern: str) -> tuple[Any, ...]:
    if (quoted := token["quoted"]) is not None:
        return "name", quoted[1:-1]
    if (index := token["index"]) is not None:
        return "index", int(index)
    if (indices := token["slice"]) is not None:
        start, stop, step, *_ = (int(n) if n else None for n in [*indices.split(":"), ""])
        if step == 0:
            raise _unreadable(pattern, token.start())
        return "slice", start, stop, step
    text = token["name"] or token["item"]
    if text == "*":
        return ("any",)
    if text == "**":
        return ("deep",)
    if "**" in text:
        raise _unreadable(pattern, token.start())
    if "*" in text or "?" in text:
        regex = re.escape(text).replace(r"\*", ".*").replace(r"\?", ".")
        return "glob", re.compile(regex, re.DOTALL).fullmatch
    return "name", text


def _write_pattern(components: tuple[tuple[Any, ...], ...]) -> str:
    text = ""
    for component in components:
        match component:
            case ("index", index):
                text += f"[{index}]"
            case ("slice", *parts):
                text += f"[{':'.join('' if n is None else str(n) for n in parts)}]"
            case ("name", name) if not name or set(name) & set(".[]*?'\""):
                text += f"[{name!r}]"
            case (op, *detail):
                shown = {"any": "*", "deep": "**"}.get(op) or detail[0]
                if op == "glob":
                    regex = detail[0].__self__.pattern
                    shown = re.sub(r"\\(.)", r"\1", regex.replace(".*", "*").replace(".", "?"))
                text += f".{shown}" if text else str(shown)
    return text


is_array: Filter = Filter(_registry.is_array)
"""Takes JAX's and NumPy's arrays, tracers included, as ``equinox.is_array`` does."""

is_inexact_array: Filter = Filter(jnp.inexact)
"""Takes arrays of floating-point or complex numbers, as ``equinox.is_inexact_array`` does."""
