"""``jax.lax.scan``, ``while_loop``, ``fori_loop``, ``cond`` and ``switch`` over any pytrees.

Arrays in carries, operands, `xs` and results are traced. Everything else is static, as under
`filter_jit`, and is itself again in the result: a Module comes back as that Module.
"""

# isort: off
import jax  # (first: `install` waits for it, and then imports the modules below)

# isort: on
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from . import _core
from ._base._checks import NOT_GIVEN, check_callable
from ._base._errors import format_path, short
from ._base._package import public
from ._base._words import format_pattern, key_paths
from ._compat import _flax_compat, _jax_compat
from ._observe._causes import lines_of
from ._observe._compare import StructureComparison
from ._trees._filters import Expression, as_expression, or_none
from ._trees._nodes import tree_of
from ._trees._registry import NUMBERS, leaves_of, registry

__all__ = ["cond", "fori_loop", "scan", "switch", "while_loop"]

_C = TypeVar("_C")  # a carry
_X = TypeVar("_X")
_Y = TypeVar("_Y")

_jax_compat.hide_from_tracebacks(__file__)

# ---- a tree as JAX sees it ----


class _Tree:
    """A pytree for JAX, whose children are the traced leaves of a tree, and whose aux data is the
    structure with everything else. So JAX keeps the statics of arguments and of results with its
    traces, compares them, and names the path in the user's tree."""

    __slots__ = ("leaves", "structure")

    def __init__(self, structure: _core.Structure, leaves: Sequence[Any]) -> None:
        self.structure, self.leaves = structure, leaves

    @property
    def tree(self) -> Any:
        return self.structure.unflatten(self.leaves)


class _Key:
    """The path of a leaf in the user's tree, as one key of JAX's."""

    def __init__(self, path: list[Any]) -> None:
        self.path = path

    def __str__(self) -> str:
        return format_path(["_", *self.path])[1:]

    def __eq__(self, other: object) -> bool:
        return type(other) is _Key and self.path == other.path

    def __hash__(self) -> int:
        return hash(str(self))


def _keys(structure: _core.Structure) -> list[_Key]:
    return [_Key(path) for path in key_paths(_of_call(structure))]


def _of_call(structure: _core.Structure) -> _core.Structure:
    """Returns a structure as that of the arguments of a call, whose arrays are the traced leaves."""
    return _core.flatten(registry, structure.unflatten([_LEAF] * structure.num_leaves))[1]


_LEAF = np.zeros(())

jax.tree_util.register_pytree_with_keys(
    _Tree,
    lambda x: (list(zip(_keys(x.structure), x.leaves, strict=True)), x.structure),
    _Tree,
    lambda x: (x.leaves, x.structure),
)


def _traced_leaves(traced: Any) -> Expression:
    """Returns the filter of the leaves that are traced, for the option `traced`."""
    if traced is False:
        return ("arrays",)
    numbers = "and", ("leaf", _is_number), as_expression(traced, "`traced`")
    return "or", ("arrays",), numbers


def _is_number(x: Any) -> bool:
    return type(x) in NUMBERS


def _wrapped(tree: Any, traced: Expression = ("arrays",)) -> _Tree:
    leaves, structure = _core.tree_flatten(registry, tree, traced, None)
    return _Tree(structure, leaves)


def _argument(name: str, parameter: str, tree: Any, traced: Any = False) -> _Tree:
    """Returns an argument of ``lax.name`` for JAX.

    Raises TypeError for objects of NNX, and for statics that cannot be hashed.
    """
    nodes, states = _flax_compat.graph_types()
    if nodes:
        for x in leaves_of(tree, lambda x: isinstance(x, nodes + states)):
            if isinstance(x, nodes):
                raise TypeError(
                    f"`{parameter}` of `lax.{name}` holds a `{type(x).__qualname__}` of NNX. What the "
                    "function changes in it would be lost, and what is shared would be so no longer. "
                    f"Use `flax.nnx.{name}`, or pass the State of `flax.nnx.split`."
                )
    wrapped = _wrapped(tree, _traced_leaves(traced))
    try:
        hash(wrapped.structure)
    except TypeError as e:
        e.add_note(
            f"(in `{parameter}` of `lax.{name}`, where what is not an array is static: a part of the key "
            "of the trace)"
        )
        raise
    return wrapped


# ---- a function as JAX traces it ----


class _Traced:
    """Stands for a function of the user's before JAX: takes and returns a `_Tree` for each tree.

    JAX finds the trace of a function by its identity, and keeps it as long as the function lives. So
    each function has one of these, which does not keep it alive.

    Attributes:
        function: returns the user's function.
        name: of the function of this module that traces it.
        returns: "carry"; "pair" of a carry and a result; "result"; or "value", which is left as it is.
        traced: the option of that name.
    """

    def __init__(self, function: Callable[[], Any], name: str, returns: str, traced: Any) -> None:
        self.function, self.name, self.returns, self.traced = function, name, returns, traced
        self.of_carry = or_none(_traced_leaves(traced))

    @property
    def __wrapped__(self) -> Any:
        """What JAX reads the names of the function and of its parameters from."""
        return self.function()

    def __call__(self, *args: Any) -> Any:
        __tracebackhide__ = True
        function = self.function()
        trees = [x.tree if type(x) is _Tree else x for x in args]
        if self.returns == "result":
            return _wrapped(function(*trees[0]))
        out = function(*trees)
        if self.returns == "carry":
            return self._carry(args[-1], out)
        if self.returns == "value":
            return out
        if not (isinstance(out, (tuple, list)) and len(out) == 2):
            raise TypeError(f"`f` of `lax.scan` must return a pair `(carry, y)`, not {short(out)}.")
        return self._carry(args[0], out[0]), _wrapped(out[1])

    def _carry(self, before: _Tree, out: Any) -> _Tree:
        """Returns the carry that the function has returned for JAX.

        Raises TypeError if its structure is not that of the carry that the function took.
        """
        __tracebackhide__ = True
        after = _wrapped(out, self.of_carry)
        if after.structure != before.structure:
            raise TypeError(self._changed(before, after))
        return after

    def _changed(self, before: _Tree, after: _Tree) -> str:
        init = "init" if self.name == "scan" else "init_val"

        def remedy(path: list[Any], was: Any, now: Any) -> str:
            if was is None:
                return f"Return an array: `jnp.asarray({now!r})`."
            option = ""
            if self.traced is False:
                keys = [("name", str(key[0] if type(key) is tuple else key)) for key in path]
                option = (
                    f", or pass `traced={format_pattern(keys)!r}`"
                    if path
                    else ", or pass `traced=True`"
                )
            return f"Put an array into `{init}`: `jnp.asarray({was!r})`{option}."

        function = "f" if self.name == "scan" else "body_fun"
        return (
            f"`lax.{self.name}`: `{function}` must return the carry with the same structure and the same "
            "statics:\n" + _differences(before, after, "the carry", "{}: was {}, is {}", remedy)
        )


def _differences(
    one: _Tree,
    other: _Tree,
    root: str,
    line: str,
    remedy: Callable[[list[Any], Any, Any], str],
) -> str:
    """Returns where two trees differ, in lines.

    Arguments:
        root: the name of the place at which both trees begin.
        line: is formatted with a place and with what both have there.
        remedy: returns what helps against a number at a path. It takes None for what is no number.
    """
    comparison = StructureComparison(registry)
    comparison.compare(tree_of(_of_call(one.structure)), tree_of(_of_call(other.structure)))
    causes = comparison.causes_in_order()
    lines = lines_of(causes, lambda x: line.format(x.place if x.path else root, x.was, x.now))
    was, now = _numbers(one), _numbers(other)
    for cause in causes[: len(lines)]:
        path, _ = was.get(cause.path) or now.get(cause.path) or (None, None)
        if path is not None:
            values = [numbers.get(cause.path, (None, None))[1] for numbers in (was, now)]
            lines.append(f"  -> {remedy(path, *values)}")
        elif cause.kind == "recreated":
            lines.append("  -> Define it once, outside of the function that returns it.")
    return "\n".join(dict.fromkeys(lines))


def _numbers(x: _Tree) -> dict[str, tuple[list[Any], Any]]:
    """Returns the path and the value of each static number among the leaves, by the text of the path."""
    tree = x.structure.unflatten(["*"] * x.structure.num_leaves)  # no array and no number
    numbers, structure = _core.tree_flatten(registry, tree, ("leaf", _is_number), None)
    paths = key_paths(_of_call(structure))
    return {format_path(path): (path, x) for path, x in zip(paths, numbers, strict=True)}


# One for each function that is alive, by its identity, what it is to return, and the option `traced`.
_known: dict[Any, _Traced] = {}


def _traced(function: Any, name: str, parameter: str, returns: str, traced: Any = False) -> _Traced:
    """Returns what JAX traces in the place of a function: the same object for the same function, so that
    JAX finds its trace."""
    check_callable(f"lax.{name}(..., {parameter}=...)", function)
    key = id(function), name, returns, traced
    try:
        found = _known.get(key)
        if found is not None and found.function() is function:
            return found
        reference = weakref.ref(function, lambda _: _known.pop(key, None))
    except TypeError:  # `traced` has no hash, or there are no weak references to the function
        return _Traced(lambda: function, name, returns, traced)
    found = _known[key] = _Traced(reference, name, returns, traced)
    return found


# ---- the five functions ----


def scan(
    f: Callable[[_C, _X], tuple[_C, _Y]],
    init: _C,
    xs: _X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
    *,
    traced: Any = False,
) -> tuple[_C, _Y]:
    body = _traced(f, "scan", "f", "pair", traced)
    start = _argument("scan", "init", init, traced)
    carry, ys = jax.lax.scan(
        body, start, _argument("scan", "xs", xs), length, reverse, unroll, _split_transpose
    )
    return start.structure.unflatten(carry.leaves), ys.tree


def while_loop(
    cond_fun: Callable[[_C], Any],
    body_fun: Callable[[_C], _C],
    init_val: _C,
    *,
    traced: Any = False,
) -> _C:
    condition = _traced(cond_fun, "while_loop", "cond_fun", "value", traced)
    body = _traced(body_fun, "while_loop", "body_fun", "carry", traced)
    start = _argument("while_loop", "init_val", init_val, traced)
    return start.structure.unflatten(jax.lax.while_loop(condition, body, start).leaves)


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, _C], _C],
    init_val: _C,
    *,
    unroll: int | bool | None = None,
    traced: Any = False,
) -> _C:
    body = _traced(body_fun, "fori_loop", "body_fun", "carry", traced)
    start = _argument("fori_loop", "init_val", init_val, traced)
    end = jax.lax.fori_loop(lower, upper, body, start, unroll=unroll)
    return start.structure.unflatten(end.leaves)


def cond(
    pred: Any,
    true_fun: Callable[..., _Y],
    false_fun: Callable[..., _Y],
    *operands: Any,
    operand: Any = NOT_GIVEN,
    traced: Any = False,
) -> _Y:
    functions = {"true_fun": true_fun, "false_fun": false_fun}
    return _branch("cond", pred, functions, operands, operand, traced)


def switch(
    index: Any,
    branches: Sequence[Callable[..., _Y]],
    *operands: Any,
    operand: Any = NOT_GIVEN,
    traced: Any = False,
) -> _Y:
    functions = {f"branches[{i}]": branch for i, branch in enumerate(branches)}
    return _branch("switch", index, functions, operands, operand, traced)


def _branch(
    name: str,
    which: Any,
    functions: dict[str, Any],
    operands: tuple[Any, ...],
    operand: Any,
    traced: Any,
) -> Any:
    if operand is not NOT_GIVEN:
        if operands:
            raise TypeError(
                f"`lax.{name}` takes its operands by position, or one as `operand=`, not both."
            )
        operands = (operand,)
    branches = [_traced(f, name, parameter, "result") for parameter, f in functions.items()]
    given = _argument(name, "operands", operands, traced)
    try:
        if name == "cond":
            return jax.lax.cond(which, *branches, given).tree
        return jax.lax.switch(which, branches, given).tree
    except TypeError as e:
        if any(
            f.f_code is _Traced.__call__.__code__ for f, _ in traceback.walk_tb(e.__traceback__)
        ):
            raise  # of a branch
        if (error := _other_result(name, list(functions), branches, given)) is None:
            raise
    raise error


def _other_result(
    name: str, names: Sequence[str], branches: Sequence[_Traced], given: _Tree
) -> TypeError | None:
    """Returns the error of the first branch that returns another structure than the first one, if one
    does."""
    first, *others = [jax.eval_shape(branch, given) for branch in branches]
    for i, other in enumerate(others, 1):
        if first.structure != other.structure:

            def remedy(path: list[Any], was: Any, now: Any) -> str:
                return f"Return an array: `jnp.asarray({now if was is None else was!r})`."

            return TypeError(
                f"`lax.{name}`: the branches must return the same structure and the same statics:\n"
                + _differences(
                    first,
                    other,
                    "the result",
                    f"{{}}: {{}} from `{names[0]}`, {{}} from `{names[i]}`",
                    remedy,
                )
            )
    return None
