"""Nothing grows when what the core does is repeated: see leaks.py."""

from pathlib import Path

import pytest
from process_support import run_python


@pytest.mark.usefixtures("testing")
def test_nothing_grows() -> None:
    done = run_python(str(Path(__file__).with_name("leaks.py")))
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
