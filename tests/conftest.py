"""What all tests share: JAX on the CPU, tracebacks as they are, and short compile times."""

import importlib.util
import mmap
import os
from pathlib import Path

# XLA's optimisations take most of the time of the tests, and are the same for Equinox and for us.
# Processes that tests start have these variables too.
FUSION = "xla_cpu_use_fusion_emitters"


def xla_knows(flag: str) -> bool:
    """XLA ends the process for a flag that it does not know, as of another version."""
    spec = importlib.util.find_spec("jaxlib")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in (
            *Path(folder).glob("libjax_common.*"),
            *Path(folder).glob("xla_extension*.so"),
        ):
            with (
                path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
            ):
                if content.find(flag.encode()) >= 0:
                    return True
    return False


os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if "XLA_FLAGS" not in os.environ and xla_knows(FUSION):
    os.environ["XLA_FLAGS"] = f"--{FUSION}=false"
