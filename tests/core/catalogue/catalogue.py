"""The whole catalogue: what the core does (`OPERATIONS`), and where Python code can run in it
(`PLACES`), in modules by subject."""

# Trees come first, as more allocations fail in calls after them.
# isort: split
import operations_trees  # noqa: F401

# isort: split
import operations_calls  # noqa: F401
import operations_direct  # noqa: F401
import operations_variables  # noqa: F401
import places_calls  # noqa: F401
import places_direct  # noqa: F401
import places_nodes  # noqa: F401
import places_objects  # noqa: F401
import places_trees  # noqa: F401
import places_variables  # noqa: F401
from operations import ONLY_REPEATED, OPERATIONS, SHARED
from places import PLACES

__all__ = ["ONLY_REPEATED", "OPERATIONS", "PLACES", "SHARED"]
