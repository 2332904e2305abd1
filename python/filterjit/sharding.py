"""Places trees of arrays on the devices of a mesh.

The options `in_shardings` and `out_shardings` of `filterjit.filter_jit` take these rules too.
Importing this module imports JAX.
"""

from ._shardings._place import place
from ._shardings._rules import ShardingRules, fsdp

__all__ = ["ShardingRules", "fsdp", "place"]
