"""The options `in_shardings` and `out_shardings` of `filterjit.nnx.jit`.

They are prefixes of the pytrees in which upstream passes Modules to ``jax.jit``. Upstream's own
functions make these pytrees here, so a prefix means what it means to upstream. What they refuse is
handed over, for upstream's error.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from .. import _core
from .._call import _signature
from .._call._plain_hooks import HandOver
from .._call._shardings import Shardings
from .._compat import _jax_compat
from .._compat import _nnx_compat as compat
from .._shardings._specs import Spec, axes_for, mesh_in_force, problem_of
from .._trees._registry import leaves_of
from ._registry import registry

if TYPE_CHECKING:
    from ._trace import TracedFunction

DO_NOT_FIT = "the shardings do not fit the arguments or the result"


class Prefixes:
    """The prefixes that an `NNXJit` was given.

    Attributes:
        given: for the arguments by position, without the static ones.
        inputs: for all arguments by position.
        outputs: for the result.
    """

    def __init__(self, given: Any, inputs: Any, outputs: Any) -> None:
        self.given, self.inputs, self.outputs = given, inputs, outputs

    @classmethod
    def of(cls, upstream: Any, given: Any, outputs: Any) -> "Prefixes | None":
        """Returns the prefixes of a function; None if there is none.

        Raises:
            HandOver: if a leaf is not a sharding, a ``PartitionSpec`` or None, or if this version
                of Flax is not known.
        """
        if given is None and outputs is None:
            return None
        if not compat.reads_shardings(upstream):
            raise HandOver("this version of Flax has other names for shardings")
        for name, prefix in (("in_shardings", given), ("out_shardings", outputs)):
            leaves = jax.tree.leaves(compat.as_jax_prefix(prefix))
            if not all(map(compat.is_sharding, leaves)):
                raise HandOver(f"{name} has a leaf that is no sharding")
        return cls(given, compat.expanded_prefix(upstream), outputs)


class _Mark:
    """Stands for an array of a result, with its spec."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec


def _specs(prefix: Any, tree: Any) -> list[Spec]:
    """Returns the spec of each leaf of a tree, as ``jax.jit`` finds it."""
    found: list[Spec] = []

    def add(spec: Spec, subtree: Any) -> None:
        found.extend([spec] * len(jax.tree.leaves(subtree)))

    jax.tree.map(add, compat.as_jax_prefix(prefix), tree, is_leaf=lambda x: x is None)
    return found


def mark(prefix: Any, tree: Any) -> Any:
    """Returns a tree with marks in the place of its leaves."""
    leaves = list(map(_Mark, _specs(prefix, tree)))
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _check(specs: Sequence[Spec], arrays: Sequence[Any]) -> None:
    axes = axes_for(None)
    for spec, x in zip(specs, arrays, strict=True):
        if problem := problem_of(spec, jax.numpy.shape(x), axes):
            raise ValueError(problem)


class NNXShardings(Shardings):
    """The shardings of a function, as `ShardedCall` asks for them."""

    has_outputs = True  # new values of Variables have the shardings that the arguments have
    follows_donated = False

    def __init__(self, traced: "TracedFunction", prefixes: Prefixes) -> None:
        self.traced, self.prefixes = traced, prefixes
        self.inputs, self.outputs, self.mesh = prefixes.given, prefixes.outputs, None
        self._key = None

    def check_names(self, signature: _core.Signature) -> None:
        pass

    def specs_of_inputs(
        self, variant: _core.Variant, signature: _core.Signature, arrays: tuple[Any, ...]
    ) -> tuple[Spec, ...]:
        return self._look(variant, signature, arrays)[0]

    def positions_of_models(
        self, variant: _core.Variant, signature: _core.Signature, arrays: tuple[Any, ...]
    ) -> list[int]:
        if not self.traced.returns_all:  # a Variable that a call does not change stays where it is
            return []
        specs, values = self._look(variant, signature, arrays)
        return [i for i in values if _is_auto(specs[i])]

    def _look(
        self, variant: _core.Variant, signature: _core.Signature, arrays: tuple[Any, ...]
    ) -> tuple[tuple[Spec, ...], list[int]]:
        """Returns the spec of each array of a call, and the positions of the values of Variables,
        in the order of the Variables.

        Raises:
            HandOver: if the prefix does not fit.
        """
        # No array is the same object as another one, and Python's numbers have shapes.
        avals = map(_jax_compat.aval, arrays)
        stand_ins = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
        arguments = variant.arguments(tuple(stand_ins))[1]
        args, kwargs = _signature.call_with_arguments(_as_call, signature, arguments, registry)
        positions = {id(x): i for i, x in enumerate(stand_ins)}
        specs: list[Spec] = [None] * len(arrays)
        try:
            pure = self.traced.pure_arguments(args, kwargs)
            found = _specs(self.prefixes.given, pure)
            for x, spec in zip(jax.tree.leaves(pure), found, strict=True):
                specs[positions[id(x)]] = spec
            _check(specs, arrays)
        except HandOver:
            raise
        except Exception as e:
            raise HandOver(DO_NOT_FIT) from e
        values = [
            positions[id(compat.raw_value(node))]
            for node in self.traced.nodes(args, kwargs)
            if compat.is_variable(node)
        ]
        return tuple(specs), values

    def specs_of_outputs(
        self,
        tree: Any,
        results: Sequence[Any],
        variant: _core.Variant,
        signature: _core.Signature,
        arrays: tuple[Any, ...],
    ) -> tuple[Spec, ...]:
        specs, values = self._look(variant, signature, arrays)
        try:
            marked = self.traced.mark(tree, [specs[i] for i in values])
            leaves = leaves_of(marked)
            found = [x.spec for x in leaves if type(x) is _Mark]
            found += [None] * (len(results) - len(found))  # one that stands for no arrays
            _check(found, results)
        except Exception as e:
            raise HandOver(DO_NOT_FIT) from e
        return tuple(found)


def _is_auto(spec: Spec) -> bool:
    """Whether an array on a mesh is traced as one that JAX is still to place there: not over
    Explicit axes, which are a part of its type."""
    mesh = spec.mesh if isinstance(spec, jax.sharding.NamedSharding) else mesh_in_force()
    return mesh is not None and all("Auto" in str(kind) for kind in mesh.axis_types)


def _as_call(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs
