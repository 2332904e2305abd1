"""The hooks of a function compiled for one structure and one signature."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from .. import _core
from .._base import _errors
from .._base._arrays import Aval
from .._base._call_hooks import Failure
from .._base._errors import MismatchError
from .._call import _direct, _events, _running, _signature
from .._call._miss import marked, registry_for
from .._call._settings import Settings
from .._compat import _executable_compat
from .._observe import _causes, _compare
from .._observe._causes import Cause
from .._observe._placement import compare_sharding
from .._observe._wording import NOT_GIVEN
from .._trees._registry import is_traced, leaves_of
from . import _program
from ._encode import Unsupported
from ._prepared import is_spec

_REMEDY = "Compile it for these arguments too, or call the function itself."


@dataclasses.dataclass(eq=False)
class CompiledHooks(_running.RunningHooks):
    """The hooks of a compiled function. They raise if a call would need a new variant.

    `settings` are the function's, as far as a loaded function has them. `stage` is the
    ``jax.stages.Compiled``, or with symbolic dimensions the ``jax.stages.Lowered``. `jit_id`
    identifies errors of ``eqx.error_if`` (`_errors.jit_id_of`).
    """

    settings: Settings
    name: str
    signature: inspect.Signature
    stage: Any
    may_raise: bool = False
    jit_id: bytes = b""

    def __post_init__(self) -> None:
        self.registry = registry_for(self.settings)
        # For parameters in `traced`: 1 for each leaf of the argument that is an array.
        self._traced: dict[str, bytes] = {}

    def make_filter_jit(
        self, function: _core.Structure, arrays: tuple[Any, ...], name: str, fun: Any = None
    ) -> _core.FilterJit:
        """Returns a FilterJit without its variant, for a function's Structure and arrays. `name` is
        for reports. `fun` is the function, if known."""
        parameters = _signature.parameters_of(None, self.signature)
        signature = _core.Signature(*marked(parameters, self.settings))
        cache = _core.Cache(self.registry, function, signature, self, 1, {})
        _events.notify("created", cache, name, fun, name)
        return _core.FilterJit._rebuild(cache, arrays)

    def insert_variant(
        self,
        f: _core.FilterJit,
        structure: _core.Structure,
        outputs: tuple[_core.Structure, ...],
        jitted: Any = None,
    ) -> _core.Variant:
        """Gives `f` its variant. `outputs` are the results' Structures, by trace number. `jitted`
        compiles a program with symbolic dimensions."""
        self._structure = structure
        if jitted is None:
            call = _direct.wrap(_executable_compat.compiled_call(self.stage), self.stage)
        else:
            call = _direct.wrap(jitted)
        cache = f._parts()[0]
        variant = cache.insert_compiled(structure, call, outputs, self.may_raise)
        if self.settings.traced:
            self._find_traced(variant, cache.signature.names)
        return variant

    def _find_traced(self, variant: _core.Variant, names: Sequence[str]) -> None:
        array = np.zeros(())
        leaves = (array,) * (variant.function.num_leaves + variant.structure.num_leaves)
        for name, x in zip(names, variant._arguments(leaves)[1], strict=True):
            if name in self.settings.traced.names:
                found = leaves_of(x)
                self._traced[name] = bytes([leaf is array for leaf in found])

    def _mismatch(self, causes: Sequence[Cause]) -> MismatchError:

        def write(cause: Cause) -> str:
            was = "without it" if cause.was == NOT_GIVEN else f"for {cause.was}"
            now = "without it" if cause.now == NOT_GIVEN else f"with {cause.now}"
            return f"{cause.place}: compiled {was}, called {now}"

        lines = _causes.lines_of(causes, write)
        head = f"`{self.name}` was compiled for other arguments:"
        return MismatchError("\n".join([head, *lines, _REMEDY]))

    # ---- called by the C core ----

    def prepare(self, f: _core.FilterJit, /) -> tuple[_core.Cache, tuple[Any, ...]]:
        """Never called: `make_filter_jit` gives `f` its cache."""
        raise AssertionError("a compiled function has its cache from the start")

    def choose(self, f: _core.FilterJit, name: str, argument: Any, /) -> bytes:
        """Returns a byte for each leaf of an argument: 1 for a number at the place of an array in
        the compiled call. If the leaves differ in number, `compile` raises."""
        leaves = leaves_of(argument)
        mask = self._traced.get(name, b"")
        if len(mask) != len(leaves):
            return bytes(len(leaves))
        return bytes([one and is_traced(x) for one, x in zip(mask, leaves, strict=True)])

    def compile(self, f: _core.FilterJit, variant: _core.Variant, /) -> Callable[..., _core.Output]:
        """Raises MismatchError: the arguments' structure or static values differ."""
        own = variant.function.num_leaves
        structures = self._structure, variant.structure
        found = _compare.Comparison(self.registry, *structures, (), self._avals()[own:])
        raise self._mismatch(found.differences.causes)

    def misfit(
        self, f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TypeError:
        return _signature.misfit(self.name, self.signature, args, kwargs)

    def translate(self, failure: Failure) -> BaseException:
        """Returns a MismatchError for mismatched arrays; translates other exceptions as usual."""
        _, exception, variant, arrays, _ = failure
        # In JAX 0.10.0 and older, the error for a spec is neither of these.
        if variant is not None and (
            isinstance(exception, (TypeError, ValueError)) or any(map(is_spec, arrays))
        ):
            causes = self._compare_arrays(variant, arrays)
            if causes:
                return self._mismatch(causes).with_traceback(None)
        if any(isinstance(x, jax.core.Tracer) for x in arrays):
            exception.add_note(
                f"(`{self.name}` is a compiled program, which `jax.grad`, `jax.vmap` and other "
                "transformations cannot trace: call the function itself)"
            )
        return _errors.translate(failure, self.jit_id)

    def _avals(self) -> list[Aval]:
        leaves = jax.tree_util.tree_leaves(self.stage.args_info)
        return [Aval(tuple(aval.shape), aval.dtype, False) for aval in leaves]

    def _compare_arrays(self, variant: _core.Variant, arrays: Sequence[Any]) -> list[Cause]:
        paths = _errors.array_paths(variant.function, variant.structure)
        stage = self.stage
        avals = self._avals()
        try:
            shardings = _program.input_shardings(stage)
        except Unsupported:
            shardings = [None] * len(avals)
        causes = []
        for path, x, was, sharding in zip(paths, arrays, avals, shardings, strict=True):
            now = Aval.of(x)
            fits = _fits(was.shape, now.shape)
            differ: tuple[str, str] | None
            if is_spec(x):  # in the function itself: can be compiled, but not called
                kind, differ = "type", (str(was), "a ShapeDtypeStruct, which has no values")
            elif was.dtype != now.dtype or not fits:
                kind, differ = "dtype" if fits else "shape", (str(was), str(now))
            else:
                kind, differ = "sharding", compare_sharding(sharding, x)
            if differ is not None:
                causes.append(Cause(kind, _errors.format_path(path), *differ, ""))
        return causes

    def inspect(
        self, variant: _core.Variant, arrays: tuple[Any, ...], outputs: tuple[Any, ...]
    ) -> bool | None:
        return self.may_raise


def _fits(expected: Sequence[Any], shape: Sequence[int]) -> bool:
    """True if an array can have this shape. Symbolic dimensions can have any size."""
    return len(expected) == len(shape) and all(
        n == size or not isinstance(n, int) for n, size in zip(expected, shape, strict=True)
    )
