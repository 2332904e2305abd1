"""Placing trees of arrays on the devices of a mesh.

Importing this module imports JAX. The options `in_shardings`, `out_shardings` and `mesh` of
`filterjit.filter_jit` take what is here.
"""

from ._shardings._place import place
from ._shardings._rules import ShardingRules, fsdp

__all__ = ["ShardingRules", "fsdp", "place"]
