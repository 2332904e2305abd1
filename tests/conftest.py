"""What all tests share: JAX on the CPU, tracebacks as they are, and short compile times."""

import os
from importlib import metadata

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# XLA's optimisations take time, and are the same for Equinox and for us. Processes that tests
# start have this too.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

try:
    _jaxlib = tuple(int(number) for number in metadata.version("jaxlib").split(".")[:2])
except metadata.PackageNotFoundError:  # the core's tests do without
    _jaxlib = (0, 0)
# So does its newer code generator: half of the time of a small program. XLA ends the process for
# a flag that it does not know, which in others than these it may not.
if (0, 6) <= _jaxlib < (0, 11):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
