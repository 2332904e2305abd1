"""The programs of zoo_objects.py."""

import zoo_objects
from zoo_tests import *  # noqa: F403

PROGRAMS = zoo_objects.__name__
