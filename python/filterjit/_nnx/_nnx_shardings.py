"""The shardings of `filterjit.nnx.jit`: prefixes that give each array its spec."""

from collections.abc import Sequence
from typing import Any

import jax

from .. import _core
from .._call import _signature
from .._call._selection import HandOver
from .._compat import _jax_compat
from .._compat import _nnx_compat as compat
from .._shardings._options import ShardingCall, Shardings
from .._shardings._specs import Spec, axes_for, mesh_in_force, problem_of
from ._trace import DO_NOT_FIT, Prefixes, TracedFunction, registry, specs_of


class NNXShardings(Shardings):
    """The shardings of a function, for `ShardedCall`."""

    has_outputs = True  # new values of Variables keep the arguments' shardings
    follows_donated = False

    def __init__(self, traced: TracedFunction, prefixes: Prefixes) -> None:
        self.traced, self.prefixes = traced, prefixes
        self.inputs, self.outputs, self.mesh = prefixes.given, prefixes.outputs, None
        self._key = None

    def check_names(self, signature: _core.Signature) -> None:
        pass

    def specs_of_inputs(self, call: ShardingCall) -> tuple[Spec, ...]:
        return self._look(call)[0]

    def positions_of_models(self, call: ShardingCall) -> list[int]:
        if not self.traced.returns_all:  # an unchanged Variable stays where it is
            return []
        specs, values = self._look(call)
        return [i for i in values if _is_auto(specs[i])]

    def _look(self, call: ShardingCall) -> tuple[tuple[Spec, ...], list[int]]:
        """Returns each array's spec, and the positions of the Variables' values in their order."""
        # Stand-ins, because an array could occur twice, and Python numbers lack shapes.
        avals = map(_jax_compat.typeof, call.arrays)
        stand_ins = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
        arguments = call.variant._arguments(tuple(stand_ins))[1]
        args, kwargs = _signature.unbind(call.signature, arguments, registry)
        positions = {id(x): i for i, x in enumerate(stand_ins)}
        specs: list[Spec] = [None] * len(stand_ins)
        try:
            pure = self.traced.pure_arguments(args, kwargs)
            found = specs_of(self.prefixes.given, pure)
            for x, spec in zip(jax.tree.leaves(pure), found, strict=True):
                specs[positions[id(x)]] = spec
            _check(specs, call.arrays)
        except HandOver:
            raise
        except Exception as e:
            raise HandOver(DO_NOT_FIT) from e
        values = [
            positions[id(node.get_raw_value())]
            for node in self.traced.nodes(args, kwargs)
            if compat.is_variable(node)
        ]
        return tuple(specs), values

    def specs_of_outputs(
        self, tree: Any, results: Sequence[Any], call: ShardingCall
    ) -> tuple[Spec, ...]:
        specs, values = self._look(call)
        try:
            found = self.traced.specs_of_answer(tree, [specs[i] for i in values])
            found += [None] * (len(results) - len(found))  # a stand-in for no arrays
            _check(found, results)
        except Exception as e:
            raise HandOver(DO_NOT_FIT) from e
        return tuple(found)


def _check(specs: Sequence[Spec], arrays: Sequence[Any]) -> None:
    axes = axes_for(None)
    for spec, x in zip(specs, arrays, strict=True):
        if problem := problem_of(spec, jax.numpy.shape(x), axes):
            raise ValueError(problem)


def _is_auto(spec: Spec) -> bool:
    """True if placing arrays keeps their type, because the mesh has no Explicit axes."""
    mesh = spec.mesh if isinstance(spec, jax.sharding.NamedSharding) else mesh_in_force()
    return mesh is not None and all(
        "Auto" in kind for kind in _jax_compat.axis_types(mesh).values()
    )
