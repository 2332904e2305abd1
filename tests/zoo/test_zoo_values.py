"""The programs of zoo_values.py."""

import zoo_values
from zoo_tests import *  # noqa: F403

PROGRAMS = zoo_values.__name__
