"""What all tests share: JAX on the CPU, tracebacks as they are, and short compile times."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# XLA's optimisations take time, and are the same for Equinox and for us. Processes that tests
# start have this too.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
