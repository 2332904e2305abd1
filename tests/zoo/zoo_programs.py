"""All programs of the zoo: importing this module declares them."""

import zoo_containers
import zoo_dataclasses
import zoo_libraries
import zoo_objects
import zoo_values

__all__ = ["zoo_containers", "zoo_dataclasses", "zoo_libraries", "zoo_objects", "zoo_values"]
