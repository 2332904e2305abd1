"""Lets XLA compile each program once."""

import contextlib
from collections.abc import Iterator

import jax
from jax.experimental.compilation_cache import compilation_cache

_CACHE = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@contextlib.contextmanager
def compiled_once(folder: str) -> Iterator[None]:
    """Keeps compiled programs in `folder`. Many tests lower to the same programs, those of Equinox
    and those of filterjit, and XLA would take three quarters of the time. What is traced and
    lowered stays as it is."""
    settings = _CACHE | {"jax_compilation_cache_dir": folder}
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
