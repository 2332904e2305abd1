"""Lets the tests import the modules beside them, and leaves an eighth of the cases with eight devices to
`make test`, of each test at least one."""

import collections
import sys
import zlib
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks seven of eight cases as `thorough`: they compile much."""
    counts: collections.Counter[str] = collections.Counter()
    own = [item for item in items if item.path.name.startswith("eight_")]
    for item in sorted(own, key=lambda item: zlib.crc32(item.nodeid.encode())):
        if not any(map(item.get_closest_marker, ("slow", "thorough"))):
            name = item.nodeid.partition("[")[0]
            if counts[name] % 8:
                item.add_marker("thorough")
            counts[name] += 1
