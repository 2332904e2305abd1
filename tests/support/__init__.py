"""What several folders of tests share.

Pytest finds this package through `pythonpath` in pyproject.toml, and child processes through
`processes.environment`. Nothing in it is imported by tests/core, which runs without JAX.
"""

import pytest

pytest.register_assert_rewrite("support.comparison", "support.features")
