"""The options `in_shardings` and `out_shardings` of `filterjit.nnx.jit`, as they were given.

They are prefixes of the pytrees in which upstream passes Modules to ``jax.jit``. Upstream's own
functions make these pytrees here, so a prefix means what it means to upstream. What they refuse is
handed over, for upstream's error.
"""

from typing import Any

import jax

from .._call._plain_hooks import HandOver
from .._compat import _nnx_compat as compat
from .._shardings._specs import Spec

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


class Mark:
    """Stands for an array of a result, with its spec."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec


def specs_of(prefix: Any, tree: Any) -> list[Spec]:
    """Returns the spec of each leaf of a tree, as ``jax.jit`` finds it."""
    found: list[Spec] = []

    def add(spec: Spec, subtree: Any) -> None:
        found.extend([spec] * len(jax.tree.leaves(subtree)))

    jax.tree.map(add, compat.as_jax_prefix(prefix), tree, is_leaf=lambda x: x is None)
    return found


def mark(prefix: Any, tree: Any) -> Any:
    """Returns a tree with marks in the place of its leaves."""
    leaves = list(map(Mark, specs_of(prefix, tree)))
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)
