"""Settings of all tests: JAX runs on the CPU and compiles fast."""

import collections
import gc
import logging
import os
import signal
import zlib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import hypothesis
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# XLA's optimizations take time, and are the same for Equinox and filterjit.  The processes that
# tests start inherit this.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

# XLA compiles each program once: workers, children and later runs read it from here. Half of a first
# run is compilation. `make clean` deletes the folder.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "compiled")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# A job in the background of a script ignores interrupts, and so would its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

try:
    _jaxlib = tuple(int(number) for number in metadata.version("jaxlib").split(".")[:2])
except metadata.PackageNotFoundError:  # tests of the core need no JAX
    _jaxlib = (0, 0)
# XLA's newer code generator takes half of the time of compiling a small program.  XLA ends the
# process for a flag that it does not know, and only these versions are known to have the flag.  With
# it, 0.9 overflows its stack in a program of 3,000 equations, under plain jax.jit too.
if (0, 6) <= _jaxlib < (0, 9) or (0, 10) <= _jaxlib < (0, 11):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")


@pytest.fixture(scope="session", autouse=True)
def _first_example() -> None:
    """Makes Hypothesis register its generator of random numbers before any test.

    It warns where nothing refers to the generator, and the collector does not show it the
    references that frozen objects have."""

    @hypothesis.settings(max_examples=1, database=None, derandomize=True)
    @hypothesis.given(hypothesis.strategies.none())
    def example(_: None) -> None: ...

    example()


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> None:
    """Hides the objects that exist before a module's tests from their many collections, which
    makes these ten times faster. They stay hidden: so this collection is short too."""
    gc.collect()
    gc.freeze()


# The folders and files whose programs XLA compiles on each run: they count compilations, or save
# programs, and XLA can't serialize what JAX has read from its cache.
_COMPILED_ANEW = {
    *("safety", "eight_programs", "test_compiled_calls"),
    *("test_distributed", "test_docstrings", "test_examples", "test_files", "test_freed_objects"),
    *("test_nnx_serving", "test_notebooks", "test_other_processes"),
    *("test_pages", "test_report", "test_save", "test_self_check", "test_server"),
    *("test_signatures", "test_traced_numbers", "test_uses"),
}


@pytest.fixture(scope="module", autouse=True)
def _compiled_anew(request: pytest.FixtureRequest) -> Iterator[None]:
    """Turns the cache off for the tests of `_COMPILED_ANEW` and for their children."""
    if _COMPILED_ANEW.isdisjoint((request.path.parent.name, request.path.stem)):
        yield
        return
    import jax  # which tests of the core do without
    from jax.experimental.compilation_cache import compilation_cache

    for is_on in (False, True):
        jax.config.update("jax_enable_compilation_cache", is_on)
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = str(is_on)
        compilation_cache.reset_cache()
        if not is_on:
            yield


_CORE = Path(__file__).parent / "core"
# Our own warnings that tests expect, by the marker that says so.
_EXPECTED = {
    "recompiles": "ignore:.* was compiled 8 times:UserWarning",
    "compiled_in": "ignore:.* are compiled in, and later changes are not seen:UserWarning",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignores warnings that are expected. Marks most cases as `thorough`, of a test that has more than
    four: all but a sixth, and all but a third of the core's. At least two are left."""
    tests = collections.defaultdict(list)
    for item in items:
        for marker in filter(item.get_closest_marker, _EXPECTED):
            item.add_marker(pytest.mark.filterwarnings(_EXPECTED[marker]))
        if not any(map(item.get_closest_marker, ("slow", "thorough"))):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        share = 3 if cases[0].path.is_relative_to(_CORE) else 6
        cases.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        for item in cases[max(2, -(-len(cases) // share)) :] if len(cases) > 4 else ():
            item.add_marker("thorough")


class _Records(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__(logging.DEBUG)
        self.records = records

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture(autouse=True)
def described_functions() -> Iterator[list[logging.LogRecord]]:
    """Fails a test in which a function or an object could not be described for
    ``functions="structure"``. A test that expects it takes the records, and clears them."""
    records: list[logging.LogRecord] = []
    handler = _Records(records)
    logger = logging.getLogger("filterjit.functions")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield records
    logger.removeHandler(handler)
    for record in records:
        error = record.exc_info and record.exc_info[1]
        raise AssertionError(record.getMessage()) from error
