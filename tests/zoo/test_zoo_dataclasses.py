"""The programs of zoo_dataclasses.py."""

import zoo_dataclasses
from zoo_tests import *  # noqa: F403

PROGRAMS = zoo_dataclasses.__name__
