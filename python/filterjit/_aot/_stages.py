"""The stages of a function before its first call: traced, lowered and compiled.

`Traced`, `Lowered` and `Compiled` hold a stage of ``jax.stages``, which describes a variant's flat
program, and convert its attributes to the user's trees.
"""

import contextlib
import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, final

import jax

from .. import _core
from .._base import _errors
from .._base._generic import _P, _T
from .._base._package import public_type
from .._call import _direct
from .._call._caches import names_of
from .._call._events import notify
from .._call._programs import programs_of
from .._call._selection import HandOver
from .._call._trace import contents
from .._compat import _executable_compat
from .._observe._records import TraceRecord
from . import _save
from ._compiled_calls import CompiledHooks, Program
from ._prepared import PreparedCall, place_of, prepare, spec_of

# Attributes of jax.stages that are trees of the arguments or results.
_INPUTS = frozenset({"args_info", "in_avals", "input_formats", "input_layouts", "input_shardings"})
_OUTPUTS = frozenset({"out_avals", "out_info", "output_formats", "output_layouts"})
_OUTPUTS |= {"output_shardings"}
# Attributes that take and return the flat program's arrays.
_FLAT = frozenset({"closure_convert"})


class _Stage:
    """A stage of ``jax.stages`` with arguments and results in the user's trees."""

    def __init__(self, stage: Any, prepared: PreparedCall) -> None:
        self.stage = stage
        self.prepared = prepared

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in _FLAT:
            raise AttributeError(name)
        if name == "in_tree":
            return jax.tree_util.tree_structure(self.args_info)
        if name == "out_tree":
            tree = self.stage.out_tree
            return jax.tree_util.tree_structure(
                self.prepared.result(tree.unflatten(range(tree.num_leaves)))
            )
        found = getattr(self.stage, name)
        if name in _INPUTS:
            leaves = jax.tree_util.tree_leaves(found, is_leaf=lambda x: x is None)
            return self.prepared.arguments(_direct.restore(leaves, self.prepared.order))
        if name in _OUTPUTS:
            return self.prepared.result(found)
        return found

    def __dir__(self) -> list[str]:
        names = {*super().__dir__(), *dir(self.stage), "in_tree", "out_tree"}
        return sorted(names - _FLAT)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.prepared.name}>"


@public_type
class Traced(_Stage, Generic[_P, _T]):
    """A function traced for the arguments of ``trace``; see ``jax.stages.Traced``."""

    def lower(self, **options: Any) -> "Lowered[_P, _T]":
        """Returns a `Lowered`. `options` go to ``jax.stages.Traced.lower``."""
        prepared = dataclasses.replace(self.prepared, program=_save.Lowering(self.stage))
        with prepared.working():
            return Lowered(self.stage.lower(**options), prepared)


@public_type
class Lowered(_Stage, Generic[_P, _T]):
    """A function lowered for the arguments of ``lower``; see ``jax.stages.Lowered``."""

    @property
    def lowered(self) -> jax.stages.Lowered:
        """The ``jax.stages.Lowered``, under Equinox's name."""
        found: jax.stages.Lowered = self.stage
        return found

    def compile(
        self, compiler_options: dict[str, Any] | None = None, **options: Any
    ) -> "Compiled[_P, _T]":
        """Compiles the program and returns a `Compiled`, which can be called and inspected.

        Without compiler options, calling the jitted function with these arguments doesn't compile
        a second time.

        Arguments:
            compiler_options: options for XLA.
            options: more options of ``jax.stages.Lowered.compile``.

        Raises:
            JaxRuntimeError: if XLA doesn't know one of `compiler_options`.
        """
        with self.prepared.working():
            compiled = self.stage.compile(compiler_options=compiler_options, **options)
        if not (compiler_options or options):
            self.prepared.record_compiled()
        return _compiled(compiled, self.prepared)

    def save(self, path: str | os.PathLike[str], *, platforms: Sequence[str] | None = None) -> None:
        """Saves the program to a portable file, for `filterjit.load`.

        Arguments can have symbolic dimensions (``jax.export.symbolic_shape``), such as a batch of
        any size. The loaded function is then compiled once for each new shape.

        Arguments:
            path: the path of the file. An existing file is replaced in one step.
            platforms: the platforms that the file runs on, such as ``("cpu", "cuda")``. The
                default is the current one.

        Raises:
            ValueError: if a file can't hold a static value (the message names its path), if JAX
                can't export the program, or if it runs on several devices.
        """
        _save.save_portable(self.prepared, self.stage, path, platforms)


@final
class Compiled(_core.CallProxy[_P, _T]):
    """A function compiled ahead of time, for one structure of its arguments.

    ``filter_jit(f).lower(...).compile()`` returns it. It has the attributes of a
    ``jax.stages.Compiled``, in the user's trees.

    A call raises `MismatchError` for arguments with a different structure, shape, dtype or static
    value. The message names the argument.

    Examples:
        >>> compiled = filter_jit(lambda x: x + 1).lower(jnp.ones(2)).compile()
        >>> compiled(jnp.ones(3))
        Traceback (most recent call last):
        filterjit.MismatchError: `<lambda>` was compiled for other arguments:
          `x`: compiled for float32[2], called with float32[3]
        Compile it for these arguments too, or call the function itself.
    """

    __slots__ = ()
    __module__ = "filterjit.types"

    def __new__(
        cls, function: _core.FilterJit, stage: Any, prepared: PreparedCall
    ) -> "Compiled[_P, _T]":
        return super().__new__(cls, function, _Stage(stage, prepared))

    @property
    def _prepared(self) -> PreparedCall:
        prepared: PreparedCall = self._attributes.prepared
        return prepared

    @property
    def compiled(self) -> jax.stages.Compiled:
        """The ``jax.stages.Compiled``, under Equinox's name."""
        stage: jax.stages.Compiled = self._attributes.stage
        return stage

    @property
    def __signature__(self) -> inspect.Signature:
        return self._prepared.signature

    if TYPE_CHECKING:  # see ``jax.stages.Compiled``
        args_info: Any
        donate_argnums: tuple[int, ...]
        in_avals: Any
        in_tree: Any
        input_formats: Any
        input_shardings: Any
        out_info: Any
        out_tree: Any
        output_formats: Any
        output_shardings: Any

        def as_text(self) -> str | None: ...
        def cost_analysis(self) -> Any: ...
        def memory_analysis(self) -> Any: ...
        def runtime_executable(self) -> Any: ...

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._attributes)})

    def __repr__(self) -> str:
        return f"<Compiled of {self._prepared.name}>"


def _compiled(stage: Any, prepared: PreparedCall) -> Compiled[Any, Any]:
    cache, variant = prepared.cache, prepared.variant
    jit_id = _errors.jit_id_of(variant)
    hooks = CompiledHooks(
        prepared.settings, prepared.name, prepared.signature, prepared.may_raise, jit_id
    )
    name = f"{cache.record.name} (compiled)"
    f = hooks.make_filter_jit(cache.function, prepared.function_arrays, name, prepared.f._function)
    call = _direct.wrap(_executable_compat.compiled_call(stage), stage)
    program = Program.of(variant.structure, stage, prepared.order)
    hooks.insert_variant(f, [program], call, variant.outputs)
    return Compiled(f, stage, prepared)


def begin(
    f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[], tuple[Any, PreparedCall]]:
    """Traces and lowers a call. Returns a function that compiles it, and returns the
    ``jax.stages.Compiled``. Another thread can call it."""
    lowered = trace(f, args, kwargs).lower()

    def finish() -> tuple[Any, PreparedCall]:
        with lowered.prepared.working():
            stage = lowered.stage.compile()
        lowered.prepared.record_compiled()
        return stage, lowered.prepared

    return finish


def compile(
    f: _core.FilterJit[_P, _T], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Compiled[_P, _T]:
    return _compiled(*begin(f, args, kwargs)())


def trace(
    f: _core.FilterJit[_P, _T], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Traced[_P, _T]:
    """Raises ValueError for arguments that only ``jax.jit`` supports."""
    try:
        return _trace(prepare(f, args, kwargs))
    except HandOver as e:
        raise ValueError(
            f"`{names_of(f._function)[1]}` falls back to `jax.jit` for these arguments: {e}. `lower(...).compile()` "
            "compiles it as `jax.jit` does."
        ) from None


def _trace(prepared: PreparedCall) -> Traced[Any, Any]:
    with prepared.working():
        jitted, arrays = programs_of(prepared.variant).find(prepared.arrays)
        traced = jitted.trace(*arrays)
        may_raise = True  # if unknown
        with contextlib.suppress(Exception):
            program = contents(traced.jaxpr)
            may_raise = program.callbacks
            notify("inspected", prepared.variant, prepared.arrays, program)
    own = prepared.function_arrays
    record = TraceRecord.of(prepared.arrays)
    record.placements = tuple(map(place_of, prepared.arrays))
    arrays = (*own, *map(spec_of, prepared.arrays[len(own) :]))
    found = dataclasses.replace(prepared, arrays=arrays, may_raise=may_raise, record=record)
    return Traced(traced, found)


def eval_shape(f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    prepared = prepare(f, args, kwargs)
    with prepared.working():
        jitted, arrays = programs_of(prepared.variant).find(prepared.arrays)
        return prepared.result(jitted.eval_shape(*arrays))
