"""Direct calls under all settings of JAX: each setting is changed between calls, and changed back.

All calls are made with plain ``jax.jit`` too, and both must do the same.
"""

import ast
import contextlib
import gzip
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import config
from jax.sharding import PartitionSpec as P

from support.direct import Beside, refusals
from support.settings import OTHERS, everywhere, found, mesh
from support.threads import at_once

pytestmark = pytest.mark.usefixtures("direct", "also_few_arrays")

X = jnp.arange(4.0).reshape(2, 2)


def depends_on_settings(x: Any, n: Any) -> Any:
    """Returns what settings change: values, dtypes or whether there is an error."""
    y = x + jnp.ones(2)  # of another rank
    return x @ x, y + n, x[0] / x[0], jnp.asarray(1.0), jnp.arange(2)


# Settings that no user sets, but transformations of JAX.
_SET_BY_JAX = {"axis_env_state", "compute_on_context_manager", "layout_tracing_mode"}
# With these, JAX does not run a program as a direct call does,
_NEVER_DIRECT = {
    "jax_debug_key_reuse", "jax_disable_jit", "jax_enable_pgle", "jax_error_checking_behavior_divide",
    "jax_error_checking_behavior_nan", "jax_no_execution",
    # with these, the call raises,
    "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion",
    # and these are not in the key of `jax.jit`, which runs the program that was traced without them.
    "jax_high_dynamic_range_gumbel", "jax_hlo_source_file_canonicalization_regex",
    "jax_mutable_array_checks",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # of settings that are deprecated
@pytest.mark.parametrize("name", list(OTHERS))
def test_settings(name: str) -> None:
    """Calls, changes the setting, calls, changes it back and calls."""
    before = config.trace_context()
    args = X, jnp.arange(2)
    for i, other in enumerate(OTHERS[name]):
        b = Beside(depends_on_settings)
        b.until_direct(*args)
        with other():
            assert config.trace_context() != before
            for _ in range(8):
                b(*args)
            assert b.is_direct(*args) or i or name in _NEVER_DIRECT, refusals(b.ours)
        assert b.is_direct(*args)


def test_all_settings_are_changed() -> None:
    """A setting that a new JAX has gets a value here."""
    if not hasattr(config, "trace_context_names"):
        pytest.skip("the trace context of this JAX has no names")
    left = set(config.trace_context_names()) - set(OTHERS) - _SET_BY_JAX
    assert not {name for name in left if not name.startswith("pallas")}


@pytest.mark.parametrize("check", ["debug_nans", "debug_infs"])
@pytest.mark.parametrize("of_thread", [True, False], ids=["thread", "global"])
def test_checks_of_results(check: str, of_thread: bool) -> None:
    state = config.config_states[f"jax_{check}"]

    def work(_: int) -> None:
        b = Beside(lambda x: (x * 2, x / 0 * (0 if check == "debug_nans" else 1)))
        b.until_direct(X)
        for _ in range(2):
            with state(True) if of_thread else everywhere(state, True):
                for _ in range(3):
                    assert b(X)[0] is FloatingPointError
            assert b.is_direct(X)

    # A thread in which the setting was ever its own does not see the global one.
    assert at_once(1, work) == [None]


def _state(name: str) -> Any:
    """Returns what sets a setting of JAX, and does nothing where JAX has no such setting."""
    state = config.config_states.get(name)
    return contextlib.nullcontext() if state is None else state(True)


_HOST = np.ones((2, 2), np.float32)


@contextlib.contextmanager
def _hook() -> Iterator[None]:
    """A hook that is called after calls, and set in another way than by `jax_debug_nans`."""
    hook, called = found("jax._src.api", "_post_hook_state"), []
    if hook is None:
        pytest.skip("this version of JAX has no such hook")
    before = hook.swap_local(lambda *args: called.append(args))
    yield
    hook.set_local(before)
    assert len(called) % 2 == 0 and called


# Contexts, and whether the calls in them are direct; None if either will do.
_CONTEXTS: dict[str, tuple[Any, bool | None]] = {
    "checks that find nothing": (lambda: jax.debug_nans(True), False),
    "leaks": (jax.checking_leaks, None),
    **({"a mesh": (lambda: jax.set_mesh(mesh()), True)} if hasattr(jax, "set_mesh") else {}),
    **{
        f"transfer_guard {level}": (lambda level=level: jax.transfer_guard(level), True)
        for level in ("log", "disallow", "disallow_explicit")
    },
    "no tracing": (lambda: _state("jax_no_tracing"), True),  # nor for a plan
    "explained misses": (lambda: _state("jax_explain_cache_misses"), True),
    "logs of compiling": (jax.log_compiles, True),
    "a hook": (_hook, False),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("on_mesh", [False, True])
@pytest.mark.parametrize("name", _CONTEXTS)
def test_contexts(name: str, on_mesh: bool) -> None:
    context, is_direct = _CONTEXTS[name]
    b, of_host = Beside(lambda x: x * 2), Beside(lambda x: x * 2)
    x = jax.device_put(X, jax.NamedSharding(mesh(), P())) if on_mesh else X
    b.until_direct(x)
    of_host.until_direct(_HOST)
    for _ in range(2):
        with context():
            of_host(_HOST)
            for _ in range(8):
                found = b.is_direct(x)
            assert is_direct in (None, found)
        assert b.is_direct(x)


def test_user_contexts_come_and_go() -> None:
    make = getattr(jax, "make_user_context", None)
    if make is None:
        pytest.skip("this version of JAX has no user contexts")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        # jnp.full() raises std::bad_cast once the garbage collector has freed one.
        pytest.skip("JAX 0.12 breaks where a user context dies in a build without a GIL")
    context = make(0)
    b = Beside(lambda x: x * context.value)
    b.until_direct(X)
    for value in (1, 2, 1, 2):
        with context(value):
            b(X)
        assert b.is_direct(X)
    another = make(3)  # now there is one more setting
    for _ in range(8):
        b(X)
    assert b.is_direct(X)
    with another(4):
        assert not b.is_direct(X)


def test_profiles(tmp_path: Path) -> None:
    """While a profiler runs, it hears of each call, as of those of ``jax.jit``."""

    def named_for_profile(x: Any) -> Any:
        return x * 2

    b = Beside(named_for_profile)
    b.until_direct(X)
    direct = b.direct
    with jax.profiler.trace(str(tmp_path), create_perfetto_trace=True):
        for _ in range(3):
            b(X)
    assert b.direct == direct
    assert b.is_direct(X)
    (file,) = tmp_path.rglob("perfetto_trace.json.gz")
    names = [e.get("name") for e in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]]
    events = [name for name in names if name == "PjitFunction(named_for_profile)"]
    assert events and len(events) % 2 == 0 and len(events) >= 6


def test_traced_again_after_caches_are_cleared() -> None:
    """A direct call runs the program that was traced last."""
    scale = 2
    b = Beside(lambda x: x * scale)
    for count in range(1, 4):
        found = b.until_direct(X)
        scale += 1
        assert b(X) == found and b.traces.count == count
        jax.clear_caches()
        assert b(X) != found
    b.ours.clear_cache()
    b.jax.clear_cache()
    b.until_direct(X)


# What `jax.jit` has in its own key besides. Of these, `trace_state` and `device_context` are looked
# at before a direct call, and the others change no program that is compiled already.
_IN_KEY_OF_JIT = {
    "device_context", "jax_memory_fitting_level", "jax_optimization_level",
    "jax_pallas_auto_assign_collective_ids", "jax_pallas_auto_assign_collective_ids_limit",
    "jax_safer_randint", "trace_state",
}  # fmt: skip


def _declared(*keywords: str) -> list[set[str]]:
    """Returns the names of the settings that JAX's source declares with ``keyword=True``, for each."""
    found: dict[str, set[str]] = {keyword: set() for keyword in keywords}
    for path in Path(config.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not any(keyword in text for keyword in keywords):
            continue
        for node in ast.walk(ast.parse(text)):
            given = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}
            for keyword in found.keys() & given.keys():
                value, name = given[keyword], node.args[0] if node.args else given.get("name")  # type: ignore[attr-defined]
                if isinstance(value, ast.Constant) and value.value is True:
                    assert isinstance(name, ast.Constant), f"{path}:{node.lineno}"  # type: ignore[attr-defined]
                    found[keyword].add(str(name.value))
    return list(found.values())


def test_what_is_in_the_key_of_jit() -> None:
    if not hasattr(config.config_ext, "trace_context"):
        pytest.skip("the settings of this JAX have no names")
    in_key, in_context = _declared("include_in_jit_key", "include_in_trace_context")
    assert len(in_key) > 20 and "jax_enable_x64" in in_key
    assert in_key - in_context <= _IN_KEY_OF_JIT
    if hasattr(config, "trace_context_names"):
        assert set(config.trace_context_names()) <= in_context


@pytest.mark.filterwarnings("ignore")  # of settings that are deprecated
@pytest.mark.parametrize("name", sorted(_IN_KEY_OF_JIT & set(getattr(config, "config_states", ()))))
def test_what_changes_no_program(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """``jax.jit`` compiles nothing again for such a setting, so a direct call is right."""
    state = config.config_states[name]
    value = state.value
    values: list[Any] = []
    for x in (True, False, "O0", "O3", "yes", 7):
        with contextlib.suppress(Exception), state(x):
            values += [state.value] * (state.value != value)
    assert values
    b = Beside(lambda x: x * 2)
    b.until_direct(X)
    for x in values:
        with jax.log_compiles(True), state(x):
            assert b.is_direct(X)
        assert not caplog.records
        assert b.is_direct(X)
