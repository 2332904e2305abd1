"""Filters, which select leaves of a tree. Each becomes a filter *expression*, a tuple described in
``csrc/tree/filter.h``, which the C core evaluates."""

import functools
import re
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from .._base._errors import short_repr
from .._base._messages import format_pattern
from .._base._package import public
from .._compat import _equinox_compat
from . import _registry

Expression = bool | tuple[Any, ...]


@public
class Filter:
    """A filter of leaves. Filters combine with ``&``, ``|`` and ``~``.

    Arguments:
        spec: any filter that the partition functions take:

            - a function ``leaf -> bool``;
            - ``True`` or ``False``: all leaves or none;
            - a dtype or scalar type (``jnp.float32``, ``jnp.floating``): arrays of that dtype or a
              subtype;
            - an array type (``jax.Array``, ``np.ndarray``): its instances;
            - a ``str``: a path pattern (see below);
            - a ``Filter``;
            - a tree prefix of these filters, as for ``equinox.partition``, without path patterns.

        missing: what to do if a path pattern matches no leaf of a tree: ``"error"`` or
            ``"ignore"``.

    The other operand of ``&`` and ``|`` can be any of these too: ``"encoder.**" & is_array``.

    A *path pattern* must match the whole path of a leaf. It is written like a path,
    ``layers[0].weight`` or ``layers.0.weight``, and consists of:

    - ``weight``, ``0``: the field, key or index of that name;
    - ``w*``, ``layer_?``: the same, where ``*`` matches any text and ``?`` any character;
    - ``*``, ``[*]``: any single field, key or index;
    - ``**``: any number of fields, keys and indices, including none;
    - ``[3]``, ``[-1]``: an index, from the end if negative; or an ``int`` key;
    - ``[1:3]``: the indices of a slice;
    - ``['a.b']``: a key, taken literally.

    Attributes:
        expression: `spec` for the C core; see ``csrc/tree/filter.h``.

    Raises:
        ValueError: if `spec` isn't a filter, or is an invalid pattern. A function that takes the
            filter raises it if a path pattern matches no leaf.

    Examples:
        >>> heads = Filter("head.**") & is_array
        >>> tree = {"head": {"w": jnp.ones(2), "name": "h"}, "body": {"w": jnp.ones(2)}}
        >>> tree_paths(partition(tree, heads)[0])
        ['head.w']
        >>> is_array(np.ones(2)), is_array(1.0)
        (True, False)
    """

    __slots__ = ("__weakref__", "expression")

    def __init__(self, spec: Any, *, missing: Literal["error", "ignore"] = "error") -> None:
        if missing not in ("error", "ignore"):
            raise ValueError(
                f"`Filter(..., missing=...)` must be 'error' or 'ignore', not {missing!r}."
            )
        expression = as_expression(spec, "`Filter(spec)`")
        self.expression: Expression = or_none(expression) if missing == "ignore" else expression

    def __call__(self, leaf: Any) -> bool:
        """Returns True if the filter takes a leaf that isn't part of a tree.

        Raises:
            ValueError: if the filter depends on the leaf's place in a tree.
        """
        return _evaluate(self.expression, leaf)

    def __and__(self, other: Any) -> "Filter":
        return _combined("and", self, other)

    def __rand__(self, other: Any) -> "Filter":
        return _combined("and", other, self)

    def __or__(self, other: Any) -> "Filter":
        return _combined("or", self, other)

    def __ror__(self, other: Any) -> "Filter":
        return _combined("or", other, self)

    def __invert__(self) -> "Filter":
        return _combined("not", self)

    def __repr__(self) -> str:
        return f"Filter({_format(self.expression)})"


def _combined(op: str, *specs: Any) -> Filter:
    found = object.__new__(Filter)
    found.expression = op, *(as_expression(spec, f"an operand of `{op}`") for spec in specs)
    return found


def _evaluate(expression: Expression, leaf: Any) -> bool:
    match expression:
        case bool():
            return expression
        case ("arrays",):
            return _registry.is_array(leaf)
        case ("array", predicate):
            return _registry.is_array(leaf) and bool(predicate(leaf))
        case ("leaf", predicate):
            return bool(predicate(leaf))
        case ("and", p, q):
            return _evaluate(p, leaf) and _evaluate(q, leaf)
        case ("or", p, q):
            return _evaluate(p, leaf) or _evaluate(q, leaf)
        case ("not", p):
            return not _evaluate(p, leaf)
        case _:
            raise ValueError(
                f"the filter {_format(expression)} cannot be called with a leaf: it depends on the "
                "place of the leaf in a tree"
            )


def _format(expression: Expression) -> str:
    match expression:
        case ("arrays",):
            return "is_array"
        case ("array" | "leaf", predicate):
            return str(getattr(predicate, "__qualname__", None) or repr(predicate))
        case ("path" | "path or none", components):
            return repr(format_pattern(components))
        case ("and" | "or" as op, p, q):
            return f"({_format(p)} {'&' if op == 'and' else '|'} {_format(q)})"
        case ("not", p):
            return f"~{_format(p)}"
        case ("tree", spec, _):
            return repr(spec)
        case _:
            return repr(expression)


# ---- from filters to expressions ----


def as_expression(spec: Any, where: str) -> Expression:
    """Returns the expression of any filter. `where` names the filter in a ValueError."""
    if isinstance(spec, str):
        return "path", parse_pattern(spec)
    if isinstance(spec, bool):
        return spec
    if isinstance(spec, Filter):
        return spec.expression
    below = _registry.leaves_of(spec, lambda x: x is not spec)
    if not any(x is spec for x in below):
        return "tree", spec, entry_expression
    return _simple_expression(spec, where)


def entry_expression(spec: Any) -> Expression:
    """Returns the expression of one leaf of a tree of filters. Raises ValueError if `spec` isn't a
    filter, or contains a path pattern."""
    if isinstance(spec, str) or (isinstance(spec, Filter) and _kinds(spec.expression) & _PATHS):
        raise ValueError(
            f"a tree of filters cannot contain a path pattern: {spec!r}. A pattern filters a whole "
            "tree; combine the two by `&` or `|`."
        )
    return _simple_expression(spec, "a leaf of the tree of filters")


def _not_a_filter(spec: Any, where: str) -> ValueError:
    if isinstance(spec, jax.core.Tracer):
        return ValueError(f"{where} is not a filter, but a traced array")
    return ValueError(
        f"{where} is not a filter: {short_repr(spec)} of type `{type(spec).__name__}`. A filter is a function of a "
        "leaf, a bool, a dtype, a type of arrays, a path pattern, or a tree of these"
        + (": a tree of arrays, such as a model, is none." if is_array(spec) else ".")
    )


_PATHS = {"path", "path or none"}


def _kinds(expression: Expression) -> set[str]:
    match expression:
        case bool():
            return set()
        case ("and" | "or" | "not", *operands):
            return set().union(*map(_kinds, operands))
        case _:
            return {expression[0]}


def or_none(expression: Expression) -> Expression:
    """Turns off the error of path patterns that match no leaf."""
    match expression:
        case ("path", components):
            return "path or none", components
        case ("and" | "or" | "not" as operation, *operands):
            return operation, *map(or_none, operands)
    return expression


def may_take_none(expression: Expression) -> bool:
    """True if one of the path patterns has ``missing="ignore"``."""
    return "path or none" in _kinds(expression)


def depends_on_leaves(expression: Expression) -> bool:
    """True if a filter looks at leaves, not only at their paths."""
    return not _kinds(expression) <= _PATHS


def _simple_expression(spec: Any, where: str) -> Expression:
    """Returns the expression of a filter other than a tree or path pattern."""
    if isinstance(spec, bool):
        return spec
    if isinstance(spec, Filter):
        return spec.expression
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
        return _equinox_expression(spec) or ("leaf", spec)
    raise _not_a_filter(spec, where)


def _is_instance(cls: type, leaf: Any) -> bool:
    return isinstance(leaf, cls)


class _HasDtype:
    """A predicate: does an array have this dtype, or a subtype, such as of ``jnp.floating``?"""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.answers: dict[Any, bool] = {}  # by the array's dtype

    def __call__(self, leaf: Any) -> bool:
        answer = self.answers.get(leaf.dtype)
        if answer is None:
            answer = self.answers[leaf.dtype] = bool(jnp.issubdtype(leaf.dtype, self.dtype))
        return answer

    def __repr__(self) -> str:
        return repr(self.dtype)


def _equinox_expression(predicate: Any) -> Expression | None:
    """Returns the expression of a predicate of Equinox that takes only arrays, otherwise None."""
    equinox = _equinox_compat.equinox()
    if equinox is None:
        return None
    if predicate is equinox.is_array:
        # In older versions of Equinox, it excludes NumPy arrays.
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
def parse_pattern(pattern: str) -> tuple[Any, ...]:
    """Returns the components of a path pattern; ``csrc/tree/pattern.h`` describes them. Raises
    ValueError for an invalid pattern."""
    components: list[Any] = []
    at = 0
    while at < len(pattern):
        # Dots separate components, except before a bracket.
        if components and pattern[at] == "." and pattern[at + 1 : at + 2] != "[":
            at += 1
        elif components and pattern[at] != "[":
            raise _pattern_error(pattern, at)
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise _pattern_error(pattern, at)
        components.append(_component(token, pattern))
        at = token.end()
    return tuple(components)


def _pattern_error(pattern: str, at: int) -> ValueError:
    return ValueError(
        f"cannot read the path pattern {pattern!r} from character {at + 1} on: {pattern[at:]!r}. "
        "A pattern consists of names, `[index]`, `*` and `**`, separated by dots: "
        "`layers[*].weight`."
    )


def _component(token: re.Match[str], pattern: str) -> Any:
    if (quoted := token["quoted"]) is not None:
        return quoted[1:-1]
    if (index := token["index"]) is not None:
        return int(index)
    if (indices := token["slice"]) is not None:
        start, stop, step, *_ = (int(n) if n else None for n in [*indices.split(":"), ""])
        if step == 0:
            raise _pattern_error(pattern, token.start())
        return slice(start, stop, step)
    text = token["name"] or token["item"]
    if text == "*":
        return None
    if text == "**":
        return ...
    if "**" in text:
        raise _pattern_error(pattern, token.start())
    if "*" in text or "?" in text:
        regex = re.escape(text).replace(r"\*", ".*").replace(r"\?", ".")
        return re.compile(regex, re.DOTALL).fullmatch
    return text


is_array: Filter = Filter(_registry.is_array)
"""Takes the arrays of JAX and NumPy, including tracers, like ``equinox.is_array``."""

is_inexact_array: Filter = Filter(jnp.inexact)
"""Takes floating-point and complex arrays, like ``equinox.is_inexact_array``."""
