"""Placing trees of arrays on the devices of a mesh.

Importing this module imports JAX. Pass what is here to the options `in_shardings` and
`out_shardings` of `filterjit.filter_jit`.
"""

from ._shardings._place import place
from ._shardings._rules import ShardingRules, fsdp

__all__ = ["ShardingRules", "fsdp", "place"]
