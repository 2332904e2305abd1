"""What all tests share: JAX on the CPU, and tracebacks as they are."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
