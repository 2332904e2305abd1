"""The versions of Python and the libraries. Doesn't import JAX."""

import platform
import re
import sys
import sysconfig

from .. import _core

# The newest JAX that passed all tests. Newer ones should work: each private name has a fallback.
TESTED_JAX = "0.12.0"
OLDEST_JAX = "0.4.38"
OLDEST_FLAX = "0.12.8"  # that `nnx.jit` replaces


def jax_version() -> str | None:
    """Returns JAX's version, or None if it isn't installed."""
    return _version("jax")


def _version(library: str) -> str | None:
    version = getattr(sys.modules.get(library), "__version__", None)
    if version is not None:
        return str(version)
    from importlib import metadata

    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def needs(what: str, version: str) -> str:
    return f"{what} needs JAX {version} or newer; this is JAX {jax_version()}"


def warning() -> str | None:
    """Returns a warning about an untested JAX or an unknown Python, or None."""
    version, said = jax_version(), [*filter(None, [too_old()])]
    if version is not None and _release(version) > _release(TESTED_JAX):
        said.append(
            f"JAX {version} is newer than {TESTED_JAX}, the newest version that filterjit was tested with."
        )
    if not (_core.reads_instance_values or sysconfig.get_config_var("Py_GIL_DISABLED")):
        said.append(
            f"filterjit does not know the internals of {_python()}: calls are right, and take longer."
        )
    return " ".join(said) or None


def too_old() -> str | None:
    """Returns a warning about a JAX that isn't supported, or None."""
    version = jax_version()
    if version is None or not (0, 0, 0) < _release(version) < _release(OLDEST_JAX):
        return None
    return f"JAX {version} is older than {OLDEST_JAX}, the oldest version that filterjit supports."


def old_flax() -> str | None:
    """Returns a warning about an old Flax, or None."""
    version = _version("flax")
    if version is None or _release(version) >= _release(OLDEST_FLAX):
        return None
    return (
        f"All calls of `nnx.jit` fall back to Flax {version}. It needs Flax {OLDEST_FLAX} or newer."
    )


def describe() -> str:
    from .. import __version__

    jax = jax_version()
    shown = f"JAX {jax}" if jax is not None else "no JAX"
    lines = [f"filterjit {__version__} ({shown}, {_python()})", warning(), old_flax()]
    return "\n".join(filter(None, lines))


def _python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def _release(version: str) -> tuple[int, ...]:
    """Returns the first three numbers; a fourth one marks a repackaged release."""
    found = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(number) for number in found[0].split(".")[:3]] if found else []
    return tuple(numbers + [0] * (3 - len(numbers)))
