"""JAX's settings that a trace depends on, each with contexts in which it has another value."""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax._src import config

from .versions import auto_mesh

Other = Callable[[], contextlib.AbstractContextManager[Any]]

# Values other than the default, of settings that are not bools.
_OTHER_VALUES: dict[str, Any] = {
    "jax_default_device": jax.devices()[0],
    "jax_default_matmul_precision": "float32",
    "jax_embedded_constants_max_bytes": 0,
    "jax_error_checking_behavior_divide": "raise",
    "jax_error_checking_behavior_nan": "raise",
    "jax_error_checking_behavior_oob": "raise",
    "jax_explicit_x64_dtypes": "error",
    "jax_hlo_source_file_canonicalization_regex": ".*",
    "jax_no_collectives": frozenset({"axis"}),
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
    "jax_pgle_profiling_runs": 1,
    "jax_random_seed_offset": 7,
    "jax_use_hlo_logistic_lowering": True,
    "jax_xla_profile_version": 1,
}


@contextlib.contextmanager
def everywhere(state: Any, value: Any) -> Iterator[None]:
    before = state.value
    jax.config.update(state._name, value)
    try:
        yield
    finally:
        jax.config.update(state._name, before)


def found(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def mesh() -> Any:
    return auto_mesh("axis")


def _contexts() -> dict[str, Other]:
    """Returns contexts that change the settings without a value of their own."""
    contexts: dict[str, Other] = {
        "mesh_context_manager": lambda: jax.sharding.Mesh(jax.devices()[:1], ("axis",))
    }
    if hasattr(jax, "set_mesh"):
        contexts["abstract_mesh_context_manager"] = lambda: jax.set_mesh(mesh())
    metadata = found("jax.experimental.xla_metadata", "set_xla_metadata")
    user_context = getattr(jax, "make_user_context", None)
    if metadata is not None:
        contexts["xla_metadata_context_manager"] = lambda: metadata(key="value")
    if user_context is not None:
        made = user_context(None)
        contexts["user_context"] = lambda: made("value")
    return contexts


def _others() -> dict[str, list[Other]]:
    """Returns contexts with other values of the settings that a trace depends on: of one thread, and
    of all."""
    contexts, others = _contexts(), {}
    names = getattr(config, "trace_context_names", None)
    states = getattr(config, "config_states", {})
    # Before JAX 0.10.1, a trace context has no names.
    for name in [*contexts, *states] if names is None else names():
        state = states.get(name)
        if name in contexts:
            others[name] = [contexts[name]]
        elif isinstance(state, config.State):
            value = _OTHER_VALUES.get(name, state.value)
            if isinstance(value, bool):
                value = not value
            if value == state.value or (names is None and not _is_followed(state, value)):
                continue
            others[name] = [lambda state=state, value=value: state(value)]
            if name in jax.config.values:
                others[name].append(lambda state=state, value=value: everywhere(state, value))
    return others


def _is_followed(state: Any, value: Any) -> bool:
    before = config.trace_context()
    try:
        with state(value):
            return config.trace_context() != before
    except Exception:
        return False


OTHERS = _others()
