"""The options `in_shardings`, `out_shardings` and `mesh` of a jitted function."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from .. import _core
from .._base._arrays import is_spec
from .._call._selection import check_names
from .._trees._nodes import Nodes
from ._place import is_value, specs_of
from ._specs import Spec


@dataclasses.dataclass(frozen=True)
class ShardingCall:
    """The parts of a call that affect shardings. `arrays` can be tracers."""

    variant: _core.Variant
    signature: _core.Signature
    arrays: tuple[Any, ...]


def _is_by_position(inputs: Any) -> bool:
    # Before JAX 0.8, a PartitionSpec is a tuple.
    return isinstance(inputs, (tuple, list)) and not is_value(inputs)


class Shardings:
    """The options of one jitted function.

    Arguments:
        inputs: a mapping from parameter names to values (see `_place`), a tuple of values by
            position, or one value for all parameters.
        outputs: the result's value.
        mesh: the mesh for specs; None means the current mesh.
    """

    def __init__(self, inputs: Any, outputs: Any, mesh: Any) -> None:
        # Copies, to ignore later changes.
        self.inputs = inputs.copy() if type(inputs) is list else inputs
        self.outputs = outputs.copy() if type(outputs) in (dict, list) else outputs
        self.mesh = mesh
        if isinstance(inputs, Mapping):
            self.inputs = dict(inputs)
        elif not (is_value(inputs) or _is_by_position(inputs)):
            raise TypeError(
                "`filter_jit(..., in_shardings=...)` must be a dict from names of parameters to "
                f"shardings, a tuple of shardings, or one for all parameters, not {inputs!r}."
            )
        if mesh is not None and not isinstance(mesh, jax.sharding.Mesh):
            raise TypeError(
                f"`filter_jit(..., mesh=...)` must be a jax.sharding.Mesh, not {mesh!r}."
            )
        self._key = self._make_key()

    def __repr__(self) -> str:
        given = {"in_shardings": self.inputs, "out_shardings": self.outputs, "mesh": self.mesh}
        return ", ".join(f"{name}={x!r}" for name, x in given.items() if x is not None)

    @property
    def has_outputs(self) -> bool:
        return self.outputs is not None

    follows_donated = True
    """True if results without a spec get the spec of the donated array in the same place."""

    # Like ``jax.jit``, jits of one function with equal options share their programs.

    def _make_key(self) -> Any:
        """Returns a key for equality; None for identity, because trees can hold anything."""
        key: list[Any] = [self.mesh]
        for given in (self.inputs, self.outputs):
            values: Any = [given]
            if type(given) in (tuple, list):
                values = given
            elif type(given) is dict and all(type(name) is str for name in given):
                values = given.values()
            if not all(map(is_value, values)):
                return None
            names = tuple(given) if type(given) is dict else ()
            key.append((type(given), names, tuple(values)))
        return tuple(key)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Shardings) and self._key is not None and self._key == other._key
        )

    def __hash__(self) -> int:
        return id(self) if self._key is None else hash(self._key)

    def check_names(self, signature: _core.Signature) -> None:
        inputs = self.inputs
        if isinstance(inputs, dict):
            check_names("in_shardings", inputs, signature)
        most = signature.positional if signature.varargs < 0 else sys.maxsize
        if _is_by_position(inputs) and len(inputs) > most:
            raise ValueError(
                f"`in_shardings` has {len(inputs)} items for {most} positional parameters"
            )

    def _value_of(self, signature: _core.Signature, i: int, argument: Any) -> Any:
        inputs = self.inputs
        if isinstance(inputs, dict):
            name = signature.names[i]
            if i == signature.varkw and name not in inputs:
                return {key: inputs.get(key) for key in argument}
            return inputs.get(name)
        if _is_by_position(inputs):
            if i == signature.varargs:
                rest = inputs[signature.positional :]
                return tuple(rest[j] if j < len(rest) else None for j in range(len(argument)))
            return inputs[i] if i < min(len(inputs), signature.positional) else None
        return inputs

    def _values(self, call: ShardingCall) -> Iterator[tuple[int, Any, Any]]:
        """Yields (index, argument, value) for each parameter with an argument."""
        for i, argument in enumerate(call.variant._arguments(call.arrays)[1]):
            if type(argument) is not _core.Registry:
                yield i, argument, self._value_of(call.signature, i, argument)

    def specs_of_inputs(self, call: ShardingCall) -> tuple[Spec, ...]:
        """Returns the spec of each array of a call; None for arrays in the function itself."""
        specs: list[Spec] = [None] * call.variant.function.num_leaves
        for i, argument, value in self._values(call):
            specs += specs_of(value, argument, self.mesh, [call.signature.names[i]])
        return tuple(specs)

    def positions_of_models(self, call: ShardingCall) -> list[int]:
        """Returns the positions of arrays in arguments with rules or a tree of specs."""
        own = call.variant.function.num_leaves
        found: list[int] = []
        nodes = Nodes(call.variant.structure)
        for i, _, value in self._values(call):
            if value is not None and not is_spec(value):
                found += (own + array for array in nodes.span(i))
        return found

    def specs_of_outputs(
        self, tree: Any, results: Sequence[Any], call: ShardingCall
    ) -> tuple[Spec, ...]:
        """Returns the spec of each of the `results`, the arrays of the result `tree` of a trace."""
        specs = specs_of(self.outputs, tree, self.mesh, ["the result"])
        return (*specs, *[None] * (len(results) - len(specs)))  # a stand-in for no arrays
