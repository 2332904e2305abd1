"""Runs the tests on several Pythons, each with the newest JAX: `nox -s tests-3.14`, `nox --list`.

`nox -s "every_jax(0.4.38)"` runs some of them with an older JAX.

uv makes the environments. It takes an interpreter of the machine, of pyenv, or one that
`.ci/get_python VERSION` built; otherwise it downloads one. Arguments after `--` go to pytest.
"""

import os
from pathlib import Path

import nox

nox.needs_version = ">=2026.10.20"
nox.options.default_venv_backend = "uv"
nox.options.sessions = ["tests", "core_without_internals", "threads"]
nox.options.reuse_existing_virtualenvs = True

VERSIONS = nox.project.python_versions(nox.project.load_toml())  # those of pyproject.toml
PYTHONS = [version for version in VERSIONS if not version.endswith("t")]
FREE_THREADED = [version for version in VERSIONS if version.endswith("t")]
PYTEST = ("python", "-X", "faulthandler", "-m", "pytest", "-p", "no:cacheprovider")
PARALLEL = ("-n", "auto", "--maxprocesses", "4", "--dist", "worksteal")
MOST = ("-m", "not slow and not thorough")
# Without a GIL, the collector takes long, and other tests collect again and again.
CORE = [f"tests/core/{name}" for name in ("structure", "tree", "walk", "call")]
THREADED = [*CORE, *(f"tests/{name}" for name in ("parity", "nnx", "structs", "safety"))]
# A fixture that counts the calls of one thread, and tests that change what all threads have.
ALONE = ("-o", "thread_unsafe_fixtures=backend\nf", "-k")
SHARED = "not (missing_can_be_replaced or found_by_the_original)"
# Python, JAX and Flax: the Flax that people use with it, or that its metadata takes.
JAX_VERSIONS = [
    ("3.11", "==0.4.38", "==0.10.2"),
    ("3.11", "==0.5.3", "==0.10.2"),
    ("3.11", "==0.6.2", "==0.10.7"),
    ("3.12", "==0.7.2", "==0.11.1"),
    ("3.12", "==0.8.2", "==0.12.2"),
    ("3.12", "==0.9.2", "==0.12.6"),
    ("3.13", "==0.10.1", "==0.12.8"),
    ("3.13", "==0.11.1", "==0.12.10"),
    ("3.13", "", ""),
]
JAX_IDS = [jax.removeprefix("==") or "newest" for _, jax, _ in JAX_VERSIONS]
LIBRARIES = (
    *("attrs", "chex", "cloudpickle", "dm-haiku", "flatbuffers>=25", "hypothesis", "inox"),
    *("ml-collections", "optax", "optree", "pydantic", "pytest>=9", "pytest-xdist"),
    *("rich", "setuptools>=77"),
)
NO_WHEELS = {"3.15": "tensorstore", "3.15t": "tensorstore"}  # no test imports it


def _link_pythons() -> None:
    """Puts the interpreters of pyenv and of .ci/get_python on the path, under names like
    python3.14."""
    links = Path("build/pythons").resolve()
    links.mkdir(parents=True, exist_ok=True)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    built = Path(os.environ.get("FILTERJIT_PYTHONS", Path.home() / ".cache/filterjit-pythons"))
    for version in [*PYTHONS, *FREE_THREADED]:
        name = f"python{version}"
        found = [*sorted(pyenv.glob(f"{version}.*/bin/{name}")), built / version / "bin" / name]
        (links / name).unlink(missing_ok=True)
        if (path := next(filter(Path.exists, reversed(found)), None)) is not None:
            (links / name).symlink_to(path)
    os.environ["PATH"] = os.pathsep.join([str(links), os.environ["PATH"]])


_link_pythons()


def _install(session: nox.Session, *options: str) -> None:
    without = NO_WHEELS.get(str(session.python))
    overrides = Path(session.create_tmp()) / "overrides.txt"
    overrides.write_text(f"{without}; sys_platform == 'none'\n" if without else "")
    install = ("--overrides", str(overrides), *options, "--editable", ".[test]")
    session.install(*install, env={"FILTERJIT_TESTING": "1"})


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """All tests but the slow ones."""
    _install(session, "--upgrade")
    session.run(*PYTEST, *PARALLEL, *MOST, *session.posargs)


@nox.session
@nox.parametrize(
    "python,jax,flax", [(python, *pair) for python, *pair in JAX_VERSIONS], ids=JAX_IDS
)
def every_jax(session: nox.Session, jax: str, flax: str) -> None:
    """The README's program, ratios and some tests with a version of JAX: see .ci/every_jax."""
    libraries = ("equinox==0.13.8", f"jax{jax}", f"flax{flax}", *LIBRARIES)
    session.install("--upgrade", "--editable", ".", *libraries, env={"FILTERJIT_TESTING": "1"})
    rows = Path("build/every_jax")
    rows.mkdir(parents=True, exist_ok=True)
    row = rows / (jax.removeprefix("==") or "newest")
    session.run("python", ".ci/jax_row.py", str(row), *session.posargs)


@nox.session(python="3.13")
def core_without_internals(session: nox.Session) -> None:
    """The core as on a CPython whose internals it doesn't know."""
    session.install("hypothesis", "pytest>=9", "pytest-xdist>=3.7", "setuptools>=77")
    build = str(Path(session.create_tmp()) / "lib")
    flags = {"FILTERJIT_TESTING": "1", "FILTERJIT_CFLAGS": "-Werror -DFJ_NO_INTERNALS"}
    command = ("python", "setup.py", "-q", "build_ext", "--force", "--build-lib", build)
    session.run(*command, "--build-temp", f"{build}/temp", env=flags)
    where = {"FILTERJIT_CORE_DIR": build}
    session.run(*PYTEST, *PARALLEL, *MOST, *(session.posargs or ["tests/core"]), env=where)


@nox.session(python=FREE_THREADED)
def threads(session: nox.Session) -> None:
    """What runs without a GIL, and each test of the core in four threads at once."""
    _install(session, "--upgrade")
    session.run(*PYTEST, *PARALLEL, *MOST, *(session.posargs or THREADED))
    if not session.posargs:
        session.install("pytest-run-parallel")
        alone = ("--parallel-threads=4", *ALONE, SHARED)
        ignored = "--ignore=tests/core/call/test_threads.py"  # which has threads of its own
        session.run(*PYTEST, *MOST, *alone, ignored, *CORE)
