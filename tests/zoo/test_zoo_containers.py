"""The programs of zoo_containers.py."""

import zoo_containers
from zoo_tests import *  # noqa: F403

PROGRAMS = zoo_containers.__name__
