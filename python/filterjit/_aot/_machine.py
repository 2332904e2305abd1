"""The requirements of an executable."""

import functools
import hashlib
import itertools
import platform

import jax

from .. import __version__
from .._compat import _executable_compat


def machine(device: jax.Device) -> dict[str, str]:
    """Returns versions and machine properties, by their names in messages."""
    found = {
        "filterjit": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "jax": jax.__version__,
        "jaxlib": _executable_compat.jaxlib_version(),
        "platform": device.platform,
        "platform version": str(getattr(device.client, "platform_version", "")),
        "device": device.device_kind,
        "machine": f"{platform.system()}-{platform.machine()}",
    }
    if device.platform == "cpu":
        found["processor"] = _processor()
    return found


@functools.cache
def _processor() -> str:
    """Returns a digest of the processor's features, as far as the system lists them."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            first = itertools.takewhile(str.strip, f)  # the first core; listing all takes long
            lines = {line.partition(":")[0].strip(): line.strip() for line in first}
        text = "".join(lines.get(key, "") for key in ("model name", "flags", "Features"))
    except OSError:
        text = platform.processor()
    return hashlib.sha256(text.encode()).hexdigest()[:16]
