"""Prepared calls: a function, a variant, and arrays or specs (``jax.ShapeDtypeStruct``)."""

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from .. import _core
from .._base._arrays import Aval, default_device, placement
from .._call import _events, _running
from .._call._miss import FunctionHooks
from .._call._programs import programs_of
from .._call._settings import Settings
from .._call._signature import unbind
from .._compat import _jax_compat
from .._observe._records import record_of
from .._trees._tree_functions import flatten


class _Placeholder(np.ndarray):
    """Replaces a spec while the arguments are flattened: an array of the same rank, for the same
    Structure, but without memory."""

    spec: jax.ShapeDtypeStruct

    @classmethod
    def of(cls, spec: jax.ShapeDtypeStruct) -> "_Placeholder":
        dtype = np.dtype(np.uint8)
        with contextlib.suppress(TypeError):
            dtype = np.dtype(spec.dtype)  # fails for PRNG keys
        shape = [n if isinstance(n, int) else 1 for n in spec.shape]  # some are symbolic
        strides = (0,) * len(shape)
        self = cls.__new__(cls, shape, dtype, bytes(dtype.itemsize), 0, strides)
        self.spec = spec
        return self


def is_shape_spec(x: Any) -> bool:
    return isinstance(x, jax.ShapeDtypeStruct)


def spec_of(x: Any) -> jax.ShapeDtypeStruct:
    """Returns the spec of an array, with its sharding if it is committed."""
    if isinstance(x, jax.ShapeDtypeStruct):
        return x
    placed = placement(x)
    sharding = placed[0] if placed is not None and placed[1] else None
    return _jax_compat.spec_of(Aval.of(x), sharding)


def place_of(x: Any) -> tuple[Any, bool]:
    """Returns (sharding, is committed) of an array or spec, or of the array that JAX would make."""
    if isinstance(x, jax.ShapeDtypeStruct) and x.sharding is not None:
        return x.sharding, True
    return placement(x) or (jax.sharding.SingleDeviceSharding(default_device()), False)


def _with_placeholders(tree: Any) -> Any:
    """Replaces specs in a tree by placeholders. Returns the tree itself if it has none."""
    leaves, structure = flatten(tree, True)
    if not any(map(is_shape_spec, leaves)):
        return tree
    return structure.unflatten([_Placeholder.of(x) if is_shape_spec(x) else x for x in leaves])


@dataclasses.dataclass(frozen=True)
class PreparedCall:
    """A call of a jitted function, before it runs.

    `arrays` are arrays or specs, beginning with those in the function itself. `record` is the
    TraceRecord of the trace, and `program` the lowered program; None before that.
    """

    name: str
    signature: inspect.Signature
    f: _core.FilterJit
    variant: _core.Variant
    arrays: tuple[Any, ...]
    settings: Settings
    record: Any = None
    program: Any = None
    may_raise: bool = True

    @property
    def cache(self) -> _core.Cache:
        return self.f._parts()[0]

    @property
    def registry(self) -> _core.Registry:
        return self.cache.hooks.registry

    @property
    def order(self) -> tuple[int, ...]:
        """The order in which the program takes the arrays, see `_direct.arrange`."""
        return programs_of(self.variant).order

    @property
    def function_arrays(self) -> tuple[Any, ...]:
        """The arrays or specs in the function itself."""
        return self.arrays[: self.variant.function.num_leaves]

    def arguments(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the call's ``(args, kwargs)``, with `leaves` in place of arrays."""
        arguments = self.variant._arguments(tuple(leaves))[1]
        return unbind(self.cache.signature, arguments, self.registry)

    def result(self, tree: Any) -> Any:
        """Converts an Output to the user's tree, and returns anything else unchanged."""
        return self.variant._result(tree) if isinstance(tree, _core.Output) else tree

    def record_compiled(self) -> None:
        """Records that JAX has compiled the program, for `save`."""
        record_of(self.variant).warmed.append(self.record)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Surrounds tracing, lowering or compiling. Caches the variant if it was traced."""
        cache, variant = self.cache, self.variant
        try:
            with _running.running(variant) as call:
                _events.notify("ahead_of_time", cache, variant)
                if self.settings.donate.is_quiet:
                    _running.ignore_donation(call)
                yield
        finally:
            cache.insert_traced(variant)


def prepare(f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PreparedCall:
    """Prepares a call of `f`, with a new variant if its cache lacks one."""
    fun, hooks = f._function, f._hooks
    assert isinstance(hooks, FunctionHooks)
    with_placeholders = _with_placeholders(fun)
    if with_placeholders is not fun:  # share the cache of the function with arrays
        f = type(f)(with_placeholders, hooks, f._given_signature, dict(f.__dict__))
    args, kwargs = _with_placeholders((args, kwargs))
    variant, _, arrays = f._find_or_compile(*args, **kwargs)
    specs = tuple(x.spec if isinstance(x, _Placeholder) else x for x in arrays)
    name = str(f.__dict__.get("__qualname__") or programs_of(variant).qualname)
    signature = f._given_signature or inspect.signature(fun, follow_wrapped=False)
    return PreparedCall(name, signature, f, variant, specs, hooks.settings)
