"""The versions of Python and of the libraries. Does not import JAX."""

import platform
import re
import sys
import sysconfig

from .. import _core

# The newest version of JAX that all tests passed with. Newer ones should work, because
# private names of JAX have fallbacks.
TESTED_JAX = "0.12.0"


def jax_version() -> str | None:
    """Returns the version of JAX; None if it is not installed."""
    version = getattr(sys.modules.get("jax"), "__version__", None)
    if version is not None:
        return str(version)
    from importlib import metadata

    try:
        return metadata.version("jax")
    except metadata.PackageNotFoundError:
        return None


def warning() -> str | None:
    """Returns sentences on a JAX that is newer than the newest version that was tested, and on a
    Python whose internals the core does not read; None if there is nothing to say."""
    version, said = jax_version(), []
    if version is not None and _release(version) > _release(TESTED_JAX):
        said.append(
            f"JAX {version} is newer than {TESTED_JAX}, the newest version that filterjit was tested with."
        )
    if not (_core.reads_instance_values or sysconfig.get_config_var("Py_GIL_DISABLED")):
        said.append(
            f"filterjit does not know the internals of {_python()}: calls are right, and take longer."
        )
    return " ".join(said) or None


def describe() -> str:
    """Returns the versions of filterjit, JAX and Python, and the warning, in words."""
    from .. import __version__

    jax = jax_version()
    shown = f"JAX {jax}" if jax is not None else "no JAX"
    lines = [f"filterjit {__version__} ({shown}, {_python()})", warning()]
    return "\n".join(filter(None, lines))


def _python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def _release(version: str) -> tuple[int, ...]:
    """The first three numbers of a version; a fourth one marks a repackaged release."""
    found = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(number) for number in found[0].split(".")[:3]] if found else []
    return tuple(numbers + [0] * (3 - len(numbers)))
