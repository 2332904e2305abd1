"""``jax.lax.scan``, ``while_loop``, ``fori_loop``, ``cond`` and ``switch`` over any pytrees.

Arrays in carries, operands, `xs` and results are traced. Everything else is static, as in
`filter_jit`. The static parts of a carry are the same objects in the result.
"""

# isort: off
import jax  # (first: `install` waits for it, and then imports the modules below)

# isort: on
import dataclasses
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from jax.typing import ArrayLike

from . import _core
from ._base._checks import NOT_GIVEN, check_callable
from ._base._errors import format_path, short_repr
from ._base._package import public
from ._compat import _flax_compat, _jax_compat
from ._trees._filters import Expression, Filter, as_expression, or_none
from ._trees._nodes import Nodes
from ._trees._registry import NUMBERS, leaves_of, registry

__all__ = ["cond", "fori_loop", "scan", "switch", "while_loop"]

_C = TypeVar("_C")  # a carry
_X = TypeVar("_X")
_Y = TypeVar("_Y")

_jax_compat.hide_from_tracebacks(__file__)


_public = functools.partial(public, module=__name__)


# ---- trees for JAX ----


class _Tree:
    """A pytree for JAX with traced leaves as children, and the structure of everything else as aux
    data. JAX then compares the statics of arguments and results, stores them with traces, and
    reports paths in the user's tree."""

    __slots__ = ("leaves", "structure")

    def __init__(self, structure: _core.Structure, leaves: Sequence[Any]) -> None:
        self.structure, self.leaves = structure, leaves

    @property
    def tree(self) -> Any:
        return self.structure.unflatten(self.leaves)


_LEAF = np.zeros(())


def _as_of_call(structure: _core.Structure) -> _core.Structure:
    """Returns the structure as in a call's arguments, with arrays as traced leaves."""
    return _core.flatten(registry, structure.unflatten([_LEAF] * structure.num_leaves))[1]


def _with_keys(x: _Tree) -> tuple[list[tuple[str, Any]], _core.Structure]:
    paths = x.structure._key_paths()
    keys = [format_path(["_", *path])[1:] for path in paths]  # names begin with a dot
    return list(zip(keys, x.leaves, strict=True)), x.structure


jax.tree_util.register_pytree_with_keys(_Tree, _with_keys, _Tree, lambda x: (x.leaves, x.structure))

_ARRAYS: Expression = ("arrays",)


def _traced_leaves(traced: Any) -> Expression:
    """Returns the filter of traced leaves for the option `traced`."""
    if traced is False:
        return _ARRAYS
    return "or", _ARRAYS, ("and", ("leaf", _is_number), as_expression(traced, "`traced`"))


def _is_number(x: Any) -> bool:
    return type(x) in NUMBERS


def _wrapped(tree: Any, leaves: Expression = _ARRAYS) -> _Tree:
    found, structure = _core.tree_flatten(registry, tree, leaves, None)
    return _Tree(structure, found)


def _argument(name: str, parameter: str, tree: Any, leaves: Expression = _ARRAYS) -> _Tree:
    """Wraps an argument for JAX. Raises TypeError for NNX objects and unhashable statics."""
    nodes, states = _flax_compat.graph_types()
    for x in leaves_of(tree, lambda x: isinstance(x, nodes + states)) if nodes else ():
        if isinstance(x, nodes):
            raise TypeError(
                f"`{parameter}` of `{name}` holds a `{type(x).__qualname__}` of NNX. Changes "
                "to it would be lost, and shared Variables would be copied. "
                f"Use `nnx{name[3:]}`, or pass the State of `nnx.split`."
            )
    wrapped = _wrapped(tree, leaves)
    try:
        # Also takes snapshots of mutable statics, for JAX's comparisons.
        hash(wrapped.structure)
    except TypeError as e:
        e.add_note(
            f"(in `{parameter}` of `{name}`, where what is not an array is static: a part of the key "
            "of the trace)"
        )
        raise
    return wrapped


# ---- functions for JAX ----


@dataclasses.dataclass(eq=False, repr=False)
class _Traced:
    """The function that JAX traces in place of the user's, from `_Tree` to `_Tree`.

    JAX finds traces by the function's identity, and keeps them while it lives. Each user function
    therefore has a single _Traced, which doesn't keep it alive.

    `name` is the function of this module. `returns` is "carry"; "pair", a carry and a result;
    "result"; or "value", passed on unchanged. `leaves` is the filter of a carry's traced leaves.
    """

    function: Callable[[], Any]
    name: str
    returns: str
    leaves: Expression

    @property
    def __wrapped__(self) -> Any:
        """The user's function. JAX reads its name and parameters."""
        return self.function()

    def __call__(self, *args: Any) -> Any:
        __tracebackhide__ = True
        function = self.function()
        trees = [x.tree if type(x) is _Tree else x for x in args]
        for tree in args:
            for array in tree.structure._inside_statics(np.ndarray) if type(tree) is _Tree else ():
                _jax_compat.convert_again(array)
        if self.returns == "result":
            return _wrapped(function(*trees[0]))
        out = function(*trees)
        if self.returns == "carry":
            return self._carry(args[-1], out)
        if self.returns == "value":
            return out
        if not (isinstance(out, (tuple, list)) and len(out) == 2):
            raise TypeError(
                f"`f` of `lax.scan` must return a pair `(carry, y)`, not {short_repr(out)}."
            )
        return self._carry(args[0], out[0]), _wrapped(out[1])

    def _carry(self, before: _Tree, out: Any) -> _Tree:
        """Wraps the returned carry. Raises TypeError if its structure differs from `before`."""
        __tracebackhide__ = True
        after = _wrapped(out, or_none(self.leaves))
        if after.structure != before.structure:
            function, init = ("f", "init") if self.name == "lax.scan" else ("body_fun", "init_val")
            raise TypeError(
                f"`{self.name}`: `{function}` must return the carry with the same structure and the "
                "same statics:\n"
                + _differences(
                    before, after, "the carry", "{}: was {}, is {}", init, self.leaves is _ARRAYS
                )
            )
        return after


def _differences(
    one: _Tree, other: _Tree, root: str, line: str, init: str = "", has_option: bool = False
) -> str:
    """Returns lines about the differences between two trees, with remedies for numbers.

    `root` names the whole trees. `line` formats a place and its two values. `init` is the argument
    that holds `one`, or "". `has_option` suggests the option `traced`.
    """
    structures = _as_of_call(one.structure), _as_of_call(other.structure)
    from ._observe import _table
    from ._observe._causes import lines_of
    from ._observe._compare import Comparison

    compared = Comparison(registry, *structures)
    if not compared.causes and (changed := _changed_in_place(one, other)) is not None:
        place = f"`{format_path(changed)}`" if changed else root
        return (
            f"  {place}: was changed in place. What is static is the same in each "
            "step: a function is traced once, and not called again"
        )
    causes = compared.differences.causes
    lines = lines_of(
        causes, lambda x: line.format(x.place if x.path else root, x.was, x.now), compared.more
    )
    rows = _table.NUMBER_OR_ARRAY, _table.FLAG_OR_ARRAY, _table.NUMBER_TYPE
    numbers = [x for x in causes if x._number is not None or x._row in rows]
    given = [x for x in numbers if init and x.was != "an array"]
    if given:
        # A traced number is a scalar, and an array in its place might not be.
        traces = has_option and all(x.now != "an array" for x in given)
        option = ", or pass `traced=...`" * traces
        lines.append(f"  -> A Python number is static: put an array into `{init}`{option}.")
    if len(given) < len(numbers):
        lines.append("  -> Return an array instead of a Python number.")
    return "\n".join(lines)


def _changed_in_place(one: _Tree, other: _Tree) -> list[Any] | None:
    """Returns the path of a static in `one` that was changed in place, or None."""
    pairs, _ = Nodes(one.structure).differences(Nodes(other.structure))
    return one.structure._key_path(pairs[0][0]) if pairs else None


# By a living function's address: a reference to it, and its _Traced objects by (name, returns).
_known: dict[int, tuple[Callable[[], Any], dict[tuple[str, str], _Traced]]] = {}


def _forget(address: int, _: Any) -> None:
    _known.pop(address, None)


def _traced(
    function: Any, name: str, parameter: str, returns: str, leaves: Expression = _ARRAYS
) -> _Traced:
    """Returns the same _Traced for the same function, to let JAX find its trace."""
    check_callable(f"{name}(..., {parameter}=...)", function)
    known = _known.get(id(function))
    if known is None or known[0]() is not function:
        try:
            known = weakref.ref(function, functools.partial(_forget, id(function))), {}
        except TypeError:  # the class has no weak references
            return _Traced(lambda: function, name, returns, leaves)
        _known[id(function)] = known
    reference, made = known
    found = made.get((name, returns))
    if found is None or found.leaves != leaves:
        found = made[name, returns] = _Traced(reference, name, returns, leaves)
    return found


# ---- public functions ----


def _rebuilt(first: _Tree, last: _Tree) -> Any:
    """Replaces the last carry's statics with the first one's equal objects."""
    return first.structure.unflatten(last.leaves)


@_public
def scan(
    f: Callable[[_C, _X], tuple[_C, _Y]],
    init: _C,
    xs: _X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
    *,
    traced: bool | str | Filter = False,
) -> tuple[_C, _Y]:
    """Runs a function for each slice of arrays, with a carry: ``jax.lax.scan`` over any pytrees.

    JAX and NumPy arrays are traced. Everything else is static: the function sees the same value in
    each step.

    Arguments:
        f: a function ``(carry, x) -> (carry, y)``. Its carry has the structure, statics, shapes and
            dtypes of `init`. As in JAX, a weakly typed array can become strongly typed. While `f`
            lives, it is traced once for each structure, with its statics, and array types.
        init: the first carry.
        xs: a tree of arrays, with one slice per step. `x` is the same tree with one slice of each
            array. Numbers and other statics in it are the same in each step.
        length: the number of steps. Required if `xs` has no arrays.
        reverse: whether to begin with the last slice.
        unroll: as in ``jax.lax.scan``.
        _split_transpose: as in ``jax.lax.scan``.
        traced: Python numbers in `init` to trace, weakly typed, because they change. True means
            all. A filter selects some, such as the path pattern ``"**.count"`` (see `Filter`). They
            are arrays in the final carry.

    Returns:
        The final carry, and a tree like `y` with the arrays of all steps stacked.

    Raises:
        TypeError: if `f` doesn't return a pair; if its carry has a different structure, static,
            shape or dtype (the message names the path); or if `init` or `xs` contains an object of
            Flax NNX or an unhashable static. ``jax.lax.scan`` can raise its own errors.
        ValueError: if `traced` isn't a filter, or is a path pattern that matches no leaf; or if
            nothing gives the number of steps.

    Examples:
        >>> from filterjit import lax
        >>> model = eqx.nn.MLP(2, 2, 8, depth=1, activation=jax.nn.gelu, key=jax.random.key(0))
        >>> def step(carry, x):
        ...     model, y = carry
        ...     y = model(y) + x
        ...     return (model, y), y.sum()
        >>> (model, y), sums = lax.scan(step, (model, jnp.zeros(2)), jnp.ones((5, 2)))
        >>> model.activation is jax.nn.gelu, sums.shape
        (True, (5,))
    """
    leaves = _traced_leaves(traced)
    body = _traced(f, "lax.scan", "f", "pair", leaves)
    start, slices = _argument("lax.scan", "init", init, leaves), _argument("lax.scan", "xs", xs)
    if length is None and not jax.tree.leaves(slices):
        raise ValueError(
            "`xs` of `lax.scan` has no arrays, and what is static is the same in each step: pass an "
            "array, or `length=`."
        )
    carry, ys = jax.lax.scan(body, start, slices, length, reverse, unroll, _split_transpose)
    return _rebuilt(start, carry), ys.tree


@_public
def while_loop(
    cond_fun: Callable[[_C], ArrayLike],
    body_fun: Callable[[_C], _C],
    init_val: _C,
    *,
    traced: bool | str | Filter = False,
) -> _C:
    """Runs a function while a condition holds: ``jax.lax.while_loop`` over any pytree.

    Arrays are traced and everything else is static, as in `scan`.

    Arguments:
        cond_fun: a function of the carry that returns a bool as an array.
        body_fun: a function from a carry to the next one, with the same structure and statics.
        init_val: the first carry.
        traced: as in `scan`, for numbers in `init_val`.

    Returns:
        The final carry.

    Raises:
        TypeError: like `scan` and ``jax.lax.while_loop``.
        ValueError: like `scan`.

    Examples:
        >>> from filterjit import lax
        >>> lax.while_loop(lambda c: c["x"] < 9, lambda c: {**c, "x": 2 * c["x"]}, {"x": jnp.asarray(1), "name": "a"})
        {'name': 'a', 'x': Array(16, dtype=int32, weak_type=True)}
    """
    leaves = _traced_leaves(traced)
    condition = _traced(cond_fun, "lax.while_loop", "cond_fun", "value")
    body = _traced(body_fun, "lax.while_loop", "body_fun", "carry", leaves)
    start = _argument("lax.while_loop", "init_val", init_val, leaves)
    end: _C = _rebuilt(start, jax.lax.while_loop(condition, body, start))
    return end


@_public
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[jax.Array, _C], _C],
    init_val: _C,
    *,
    unroll: int | bool | None = None,
    traced: bool | str | Filter = False,
) -> _C:
    """Runs a function for each integer of a range: ``jax.lax.fori_loop`` over any pytree.

    Arrays are traced and everything else is static, as in `scan`.

    Arguments:
        lower: the first integer, a number or an array.
        upper: the integer after the last one.
        body_fun: a function ``(i, carry) -> carry``, where `i` is an array.
        init_val: the first carry.
        unroll: as in ``jax.lax.fori_loop``.
        traced: as in `scan`, for numbers in `init_val`.

    Returns:
        The final carry.

    Raises:
        TypeError: like `scan` and ``jax.lax.fori_loop``.
        ValueError: like `scan`.

    Examples:
        >>> from filterjit import lax
        >>> lax.fori_loop(0, 4, lambda i, c: {**c, "sum": c["sum"] + i}, {"sum": 0, "name": "a"}, traced="sum")
        {'name': 'a', 'sum': Array(6, dtype=int32, weak_type=True)}
    """
    leaves = _traced_leaves(traced)
    body = _traced(body_fun, "lax.fori_loop", "body_fun", "carry", leaves)
    start = _argument("lax.fori_loop", "init_val", init_val, leaves)
    end: _C = _rebuilt(start, jax.lax.fori_loop(lower, upper, body, start, unroll=unroll))
    return end


@_public
def cond(
    pred: ArrayLike,
    true_fun: Callable[..., _Y],
    false_fun: Callable[..., _Y],
    *operands: Any,
    operand: Any = NOT_GIVEN,
    traced: bool | str | Filter = False,
) -> _Y:
    """Runs one of two functions: ``jax.lax.cond`` over any pytrees.

    Arrays are traced and everything else is static, as in `scan`.

    Arguments:
        pred: a bool or a number, also as an array. It decides when the program runs.
        true_fun: a function of the operands.
        false_fun: a function whose result has the same structure, statics, shapes and dtypes.
        operands: any trees.
        operand: the only operand, by name.
        traced: as in `scan`, for numbers in the operands. A path pattern begins with the number of
            the operand, such as ``"0.rate"``.

    Returns:
        The result of the selected function.

    Raises:
        TypeError: if the results have different structures, statics, shapes or dtypes (the message
            names the path); or like `scan` and ``jax.lax.cond``.
        ValueError: like `scan`.

    Examples:
        >>> from filterjit import lax
        >>> model = eqx.nn.MLP(2, 2, 8, depth=1, key=jax.random.key(0))
        >>> halve = lambda model: jax.tree.map(lambda x: x / 2 if eqx.is_array(x) else x, model)
        >>> half = lax.cond(jnp.asarray(True), halve, lambda model: model, model)
        >>> half.activation is model.activation
        True
    """
    functions = {"true_fun": true_fun, "false_fun": false_fun}
    result: _Y = _branch("lax.cond", pred, functions, operands, operand, traced)
    return result


@_public
def switch(
    index: ArrayLike,
    branches: Sequence[Callable[..., _Y]],
    *operands: Any,
    operand: Any = NOT_GIVEN,
    traced: bool | str | Filter = False,
) -> _Y:
    """Runs one of several functions: ``jax.lax.switch`` over any pytrees.

    Arrays are traced and everything else is static, as in `scan`.

    Arguments:
        index: an integer, also as an array. It is clamped to the range of `branches`.
        branches: functions as in `cond`.
        operands: any trees.
        operand: the only operand, by name.
        traced: as in `cond`.

    Returns:
        The result of the selected function.

    Raises:
        TypeError: like `cond` and ``jax.lax.switch``.
        ValueError: like `scan`; or if `branches` is empty.

    Examples:
        >>> from filterjit import lax
        >>> lax.switch(1, [lambda c: c, lambda c: {**c, "x": -c["x"]}], {"x": jnp.ones(2), "name": "a"})
        {'name': 'a', 'x': Array([-1., -1.], dtype=float32)}
    """
    functions = {f"branches[{i}]": branch for i, branch in enumerate(branches)}
    result: _Y = _branch("lax.switch", index, functions, operands, operand, traced)
    return result


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
                f"`{name}` takes its operands by position, or the only one as `operand=`, not both."
            )
        operands = (operand,)
    branches = [_traced(f, name, parameter, "result") for parameter, f in functions.items()]
    given = _argument(name, "operands", operands, _traced_leaves(traced))
    try:
        if name == "lax.cond":
            return jax.lax.cond(which, *branches, given).tree
        return jax.lax.switch(which, branches, given).tree
    except TypeError as e:
        # If JAX had a branch's trace cached, its error describes our trees. Find the result.
        if "same pytree structure" not in str(e):
            raise
        if (error := _other_result(name, list(functions), branches, given)) is None:
            raise
    raise error


def _other_result(
    name: str, names: Sequence[str], branches: Sequence[_Traced], given: _Tree
) -> TypeError | None:
    """Returns the error of the first branch that differs from `branches[0]`, or None."""
    first, *others = [jax.eval_shape(branch, given) for branch in branches]
    for parameter, other in zip(names[1:], others, strict=True):
        if first.structure != other.structure:
            line = f"{{}}: {{}} from `{names[0]}`, {{}} from `{parameter}`"
            return TypeError(
                f"`{name}`: the branches must return the same structure and the same statics:\n"
                + _differences(first, other, "the result", line)
            )
    return None
