"""Types of pytree nodes of Flax. They are apart from `nodes` because importing Flax takes long."""

from typing import Any

import flax.struct
from flax import nnx


@flax.struct.dataclass
class FlaxStruct:
    a: Any
    b: Any = 1
    meta: Any = flax.struct.field(pytree_node=False, default="flax")


class FlaxPyTreeNode(flax.struct.PyTreeNode):
    a: Any
    meta: Any = flax.struct.field(pytree_node=False, default=(1, 2))


class FlaxModule(nnx.Module):
    """An NNX Module with Variables, a list, and static attributes."""

    def __init__(self, a: Any) -> None:
        self.kernel = nnx.Param(a, tag=("x", 1))
        self.layers = nnx.List([nnx.BatchStat(a), a, "static"])
        self.width = 3


def flax_state(a: Any) -> Any:
    return nnx.State({"b": nnx.Param(a), "a": {"c": a, "n": 1}})
