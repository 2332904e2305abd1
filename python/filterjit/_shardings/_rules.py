"""`ShardingRules`: specs of arrays by path."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jax.sharding import PartitionSpec, Sharding

from .. import _core
from .._base._arrays import is_spec
from .._base._errors import format_path, short_repr
from .._base._package import public
from .._trees._filters import Expression, as_expression, may_take_none, or_none
from .._trees._partition import groups_of_arrays
from .._trees._registry import registry
from .._trees._tree_functions import flatten
from ._specs import Axes, Spec, describe, misfit_of, misuse_of_axes, show_path


@functools.partial(public, module="filterjit.sharding")
@dataclasses.dataclass(frozen=True)
class fsdp:
    """A value of `ShardingRules`: divides the largest divisible dimension over an axis.

    If there are several, it divides the first. It replicates an array with fewer than `min_size`
    elements, or without a divisible dimension.

    Arguments:
        axis: the name of the mesh axis, or a tuple of names.
        min_size: the smallest number of elements to divide.

    Raises:
        TypeError: if `axis` isn't a name, or `min_size` isn't a number.
    """

    axis: str | tuple[str, ...]
    min_size: int = 0

    def __post_init__(self) -> None:
        names = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        if not (names and all(isinstance(name, str) for name in names)):
            raise TypeError(
                "`fsdp(axis)` must be the name of an axis of the mesh, or a tuple of names, not "
                f"{self.axis!r}."
            )
        if not isinstance(self.min_size, (int, float)):
            raise TypeError(f"`fsdp(..., min_size=...)` must be a number, not {self.min_size!r}.")

    def __call__(self, array: Any, mesh: Any) -> PartitionSpec:
        """Returns the spec of an array. Only its shape is read."""
        names = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        for name in names:
            if name not in mesh.shape:
                return PartitionSpec(self.axis)  # the caller reports the mistake, with the path
        parts = math.prod(mesh.shape[name] for name in names)
        shape = tuple(array.shape)
        sizes = [size if size % parts == 0 else 0 for size in shape]
        if math.prod(shape) < max(self.min_size, 1) or not any(sizes):
            return PartitionSpec()
        divided = sizes.index(max(sizes))
        return PartitionSpec(*(None,) * divided, self.axis)


@functools.partial(public, module="filterjit.sharding")
class ShardingRules:
    """An ordered mapping from path patterns or filters to ``PartitionSpec``.

    The first rule that takes an array decides its spec.

    A key is any filter (see `Filter`). A path pattern must match the whole path. The last key can
    be ``...``, which takes all remaining arrays.

    A value is a ``PartitionSpec``, a sharding, None (leave the array unchanged), or a function
    ``(array, mesh) -> PartitionSpec`` such as `fsdp`. The function sees the array's shape and
    dtype, and ``mesh.shape``. Scalars need no rule: they are replicated.

    The same rules work for an optimizer's state, wherever it is in the tree. Optax stores its state
    in named tuples. Below each field of a named tuple, a pattern can match the rest of the path:
    the rule for ``layers[0].weight`` also takes ``[0].mu.layers[0].weight``. A rest overrides the
    whole path if its rule comes earlier. The longest such rest decides.

    Below a named tuple, rules needn't match. An array is replicated if the spec doesn't fit: if it
    has more entries than the array has dimensions, or a dimension doesn't divide, as in the factors
    of Adafactor.

    Arguments:
        rules: a mapping, or pairs of key and value.

    Raises:
        ValueError: if a key isn't a filter, rules follow ``...``, or `rules` is empty.
        TypeError: if a value is none of the above.

    Examples:
        >>> from jax.sharding import PartitionSpec as P
        >>> rules = ShardingRules({
        ...     "**.weight": P(None, "tp"),
        ...     is_inexact_array: fsdp("data", min_size=2**20),
        ...     ...: P(),
        ... })
        >>> mesh = jax.make_mesh((1, 1), ("data", "tp"))
        >>> placed = filterjit.sharding.place(eqx.nn.Linear(2, 8, key=jax.random.key(0)), rules, mesh)
        >>> placed.weight.sharding.spec == P(None, "tp"), placed.bias.sharding.spec == P()
        (True, True)
    """

    __slots__ = ("__weakref__", "_default", "_expressions", "_keys", "_values")

    def __init__(self, rules: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        pairs = _pairs(rules)
        if not pairs:
            raise ValueError("ShardingRules need at least one rule")
        if any(key is ... for key, _ in pairs[:-1]):
            raise ValueError("the rules after `...` would never be asked: make it the last one")
        for key, value in pairs:
            if not (value is None or is_spec(value) or callable(value)):
                raise TypeError(
                    f"the rule {_show_key(key)} has the value {value!r}, which is neither a "
                    "PartitionSpec, a sharding, None, nor a function of an array and a mesh"
                )
        self._default = pairs[-1][0] is ...
        self._keys = tuple(key for key, _ in pairs)
        self._values = tuple(value for _, value in pairs)
        keys = self._keys[: len(pairs) - self._default]
        self._expressions: tuple[Expression, ...] = tuple(
            [as_expression(key, "a key of `ShardingRules`") for key in keys]
        )

    def __repr__(self) -> str:
        pairs = zip(self._keys, self._values, strict=True)
        return f"ShardingRules({{{', '.join(f'{_show_key(k)}: {v!r}' for k, v in pairs)}}})"

    def _show_rule(self, number: int) -> str:
        return f"{_show_key(self._keys[number])}: {self._values[number]!r}"

    def find(self, tree: Any, mesh: Axes | None, where: list[Any]) -> list[Spec]:
        """Returns the spec of each array of `tree`, in order. Specs can use the axes of `mesh`.
        `where` is the path of `tree`, for messages."""
        if mesh is None:
            raise ValueError(
                "ShardingRules need a mesh: pass `mesh=`, or call it under `jax.set_mesh(mesh)`"
            )
        arrays, structure = _core.flatten(registry, tree)
        paths = [where + path for path in structure._key_paths()]
        groups, in_state = self._groups(tree, len(arrays))
        if arrays and not any(in_state):  # in an optimizer's state, rules needn't match
            self._check_all_match(tree, set(groups), where)
        return [
            self._find_one(path, array, group, state, mesh)
            for path, array, group, state in zip(paths, arrays, groups, in_state, strict=True)
        ]

    def _groups(self, tree: Any, count: int) -> tuple[list[int], list[bool]]:
        """Returns each array's rule number, and whether it's in an optimizer's state."""
        expressions = tuple(map(or_none, self._expressions))
        groups = list(_groups_of(tree, expressions).values())
        if len(groups) != count:  # a user's filter changed the tree
            raise ValueError("the tree changed while rules were applied to it")
        numbers, in_state = groups.copy(), [False] * count
        for first, subtree in _below_named_tuples(tree, 0):
            below = _groups_of(subtree, expressions).values()
            for i, group in enumerate(below, first):
                in_state[i] = True
                if numbers[i] == groups[i]:  # unless a longer rest of the path decided already
                    numbers[i] = min(numbers[i], group)
        return numbers, in_state

    def _check_all_match(self, tree: Any, taken: set[int], where: list[Any]) -> None:
        """Raises ValueError if a rule takes no array."""
        for number, expression in enumerate(self._expressions):
            if number in taken:
                continue
            try:
                alone = 0 in _groups_of(tree, (expression,)).values()
            except ValueError as e:  # a pattern that matches no leaf
                why = str(e)
            else:
                if not alone and may_take_none(expression):
                    continue
                why = "earlier rules take all that match it" if alone else "none matches it"
            of = f" of `{format_path(where)}`" if where else ""
            raise ValueError(f"the rule {self._show_rule(number)} takes no array{of}: {why}")

    def _find_one(
        self, path: list[Any], array: Any, group: int, in_state: bool, mesh: Axes
    ) -> Spec:
        scalar = not array.shape
        if group == len(self._expressions) and not self._default:
            if scalar or in_state:
                return PartitionSpec()
            raise ValueError(
                f"no rule takes `{show_path(path)}`, {describe(array)}: add one, or `...: P()`"
            )
        value = self._values[group]
        if value is None or isinstance(value, Sharding):
            return value
        spec = value if isinstance(value, PartitionSpec) else value(array, mesh)
        if not isinstance(spec, PartitionSpec):
            raise TypeError(f"the rule {self._show_rule(group)} returned {spec!r}, not a spec")
        problem = misuse_of_axes(spec, mesh)
        misfit = "" if problem else misfit_of(spec, tuple(array.shape), mesh)
        if misfit and (in_state or scalar):
            return PartitionSpec()
        if problem or misfit:
            raise ValueError(
                f"the rule {self._show_rule(group)} gives `{show_path(path)}`, "
                f"{describe(array)}, the spec {spec}: {problem or misfit}"
            )
        return spec


def _pairs(rules: Any) -> list[tuple[Any, Any]]:
    try:
        given = rules.items() if isinstance(rules, Mapping) else rules
        return [(key, value) for key, value in given]
    except (TypeError, ValueError):
        raise TypeError(
            "`ShardingRules(rules)` must be a dict from path patterns or filters to specs, or pairs of "
            f"these, not {short_repr(rules)}"
        ) from None


def _show_key(key: Any) -> str:
    return "..." if key is ... else repr(key)


def _groups_of(tree: Any, expressions: tuple[Expression, ...]) -> dict[str, int]:
    """Maps the path of each array to the first expression that takes it, or to their number."""
    _, structure, groups = groups_of_arrays(tree, expressions, None)
    return dict(zip(structure.paths, groups, strict=True))


def _is_named_tuple(x: Any) -> bool:
    return isinstance(x, tuple) and hasattr(x, "_fields")


def _below_named_tuples(x: Any, first: int) -> Iterator[tuple[int, Any]]:
    """Yields the subtree below each field of each named tuple in `x`, outer ones first, with the
    number of its first array. `first` is the number of the first array of `x`."""
    for node in flatten(x, True, is_leaf=_is_named_tuple)[0]:
        for child in node if _is_named_tuple(node) else ():
            yield first, child
            yield from _below_named_tuples(child, first)
            first += _count(child)
        if not _is_named_tuple(node):
            first += _count(node)


def _count(tree: Any) -> int:
    return len(_core.flatten(registry, tree)[0])
