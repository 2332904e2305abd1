"""Types of pytree nodes of Flax. They are apart from `nodes` because importing Flax takes long."""

from typing import Any

import flax.struct


@flax.struct.dataclass
class FlaxStruct:
    a: Any
    b: Any = 1
    meta: Any = flax.struct.field(pytree_node=False, default="flax")


class FlaxPyTreeNode(flax.struct.PyTreeNode):
    a: Any
    meta: Any = flax.struct.field(pytree_node=False, default=(1, 2))
