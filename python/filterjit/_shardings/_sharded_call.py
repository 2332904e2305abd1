"""`ShardedCall`: the callable of a variant that has shardings.

A variant's flat ``jax.jit`` takes one spec per array. Specs depend on shapes and on the mesh,
because rules look at them, and these can change within a variant. A variant therefore has a
*program* for each combination of specs, with its own flat function and ``jax.jit``.

- At first, the variant's `_call` is a `ShardedCall`. The first call finds the specs, makes the
  program, and switches `_call` to the program's ``jax.jit``. Hits then take the same path as without
  shardings.
- For new avals or a new mesh, JAX traces a program's flat function, which finds the specs from its
  tracers and raises `_OtherSpecs` if they differ from the program's. The `run` hook then switches
  `_call` to the `ShardedCall` for good, which finds programs by avals and mesh in microseconds.

The specs of results are known only after a trace. A program that needs them is traced, and then
jitted once more with them: JAX finds the trace of the flat function in its cache.
"""

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax

from .. import _core
from .._base import _errors
from .._base._arrays import is_tracing, placement, same_spec
from .._base._locks import RLock
from .._call._programs import Programs
from .._call._settings import Settings
from .._call._trace import FlatFunction
from .._compat import _jax_compat
from .._trees import _registry
from ._options import ShardingCall, Shardings
from ._place import place
from ._specs import Spec, on_mesh

_MOST_KEYS = 4096


class _AnyTrace(int):
    """Equals any trace number, because JAX compares the treedefs of `out_shardings` and results."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, int)

    def __hash__(self) -> int:
        return 0


ANY_TRACE = _AnyTrace(-2)  # no real trace has this number


class _OtherSpecs(Exception):
    """Raised when a flat function is traced for arrays or a mesh with specs other than its own."""


class ShardedProgram:
    """One flat function of a variant, jitted with specs.

    Attributes:
        inputs: the specs of the call's arrays.
        outputs: the specs of the result's arrays; None until traced.
        jit: the ``jax.jit``, or None.
        call: `jit` or its executable, called by the variant.
    """

    def __init__(self, call: "ShardedCall", inputs: tuple[Spec, ...]) -> None:
        self._call = weakref.ref(call)
        self.inputs = inputs
        self.outputs: tuple[Spec, ...] | None = None
        self.flat: Callable[..., _core.Output] = call.flat.make(self)
        self.jit: Any = None
        self.call: Any = None

    def before_trace(self, arrays: tuple[Any, ...]) -> None:
        call = self._call()
        if call is not None and call.specs_of_tracers(arrays) != self.inputs:
            raise _OtherSpecs

    def after_trace(self, tree: Any, output: _core.Output, arrays: tuple[Any, ...]) -> None:
        """Checks or sets `outputs` at the end of a trace, given the function's result."""
        call = self._call()
        if call is None:
            return
        outputs = call.specs_of_result(self, tree, output, arrays)
        if self.outputs is None:
            self.outputs = outputs
        elif call.needs_outputs and outputs != self.outputs:  # otherwise programs ignore them
            raise _OtherSpecs


class ShardedCall(Programs):
    """The programs of a variant. As a callable, finds or makes the ``jax.jit`` for arrays. `flat`
    makes a flat function for each program."""

    def __init__(self, variant: _core.Variant, settings: Settings, flat: FlatFunction) -> None:
        super().__init__(flat)
        self.shardings: Shardings = settings.shardings
        self.variant = weakref.ref(variant)
        self.signature = flat.signature
        self.jitkwargs = dict(settings.jitkwargs)
        self.flat = flat
        self.needs_outputs = self.shardings.has_outputs or bool(flat.donated)
        self._lock = RLock()
        self._programs: list[ShardedProgram] = []
        self._by_key: dict[Any, ShardedProgram] = {}
        self.is_dispatching = False

    # ---- specs ----

    def _seen(self, arrays: tuple[Any, ...]) -> ShardingCall:
        variant = self.variant()
        assert variant is not None
        return ShardingCall(variant, self.signature, arrays)

    def specs_of_tracers(self, tracers: tuple[Any, ...]) -> tuple[Spec, ...]:
        return self.shardings.specs_of_inputs(self._seen(tracers))

    def specs_of_arrays(self, arrays: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Returns the specs of a call's arrays. As in a trace, rules see tracers."""
        found: list[tuple[Spec, ...]] = []
        jax.eval_shape(lambda *tracers: found.append(self.specs_of_tracers(tracers)), *arrays)
        return found[0]

    def specs_of_result(
        self, program: ShardedProgram, tree: Any, output: _core.Output, arrays: tuple[Any, ...]
    ) -> tuple[Spec, ...]:
        """Returns the specs of a result's arrays. To reuse memory, an array without a spec that the
        function doesn't move gets the spec of the donated array at the same place."""
        call, results = self._seen(arrays), output.arrays
        specs = list(self.shardings.specs_of_outputs(tree, results, call))
        variant, donated = call.variant, self.flat.donated
        if not (donated and self.shardings.follows_donated):
            return tuple(specs)
        _, structure = _core.flatten(_registry.registry, tree)
        paths_in = _errors.array_paths(variant.function, variant.structure)
        paths_out = structure._key_paths()
        taken: set[int] = set()  # results already paired with a donated array
        by_path: dict[Any, list[int]] = {}
        for j, path in enumerate(paths_out):
            for key in (_key(path), _key(path[1:])):
                by_path.setdefault(key, []).append(j)
        for i in donated:
            for j in by_path.get(_key(paths_in[i][1:]), ()):
                if j in taken or not _same_memory(arrays[i], results[j]):
                    continue
                if specs[j] is None and not _jax_compat.is_moved(arrays[i], results[j]):
                    specs[j] = program.inputs[i]
                if same_spec(specs[j], program.inputs[i]):
                    taken.add(j)
                    break
        return tuple(specs)

    # ---- calls ----

    def __call__(self, *arrays: Any) -> _core.Output:
        if jax.config.jax_disable_jit:
            return self.flat.make()(*arrays)  # shardings have no effect, as in jax.jit
        arrays = self.placed(arrays)
        before = self.flat.before_run
        with (
            contextlib.nullcontext()
            if before is None
            else before(arrays, lambda: self._find(arrays).jit)
        ):
            output: _core.Output = self._find(arrays, is_call=True).call(*arrays)
        return output

    def placed(
        self, arrays: tuple[Any, ...], put: Callable[[list[Any], list[Any]], list[Any]] = place
    ) -> tuple[Any, ...]:
        """Places the model arrays that JAX would move in the call, by `put`.

        To JAX, arrays on a mesh and uncommitted arrays differ in type. A new model is uncommitted
        in the first call, and comes back on the mesh. Without this method, the function would be
        traced and compiled twice.
        """
        if not self.needs_outputs or not any(map(_is_uncommitted, arrays)) or is_tracing():
            return arrays
        specs = self.specs_of_arrays(arrays)
        models = self.shardings.positions_of_models(self._seen(arrays))
        todo = [i for i in models if specs[i] is not None and _is_uncommitted(arrays[i])]
        if not todo:
            return arrays
        found = list(arrays)
        for i, x in zip(
            todo, put([arrays[i] for i in todo], [specs[i] for i in todo]), strict=True
        ):
            found[i] = x
        return tuple(found)

    def find(self, arrays: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        arrays = self.placed(arrays, stand_ins)
        return self._find(arrays).jit, arrays

    @property
    def calls(self) -> list[Any]:
        return [program.call for program in list(self._programs) if program.jit is not None]

    def needs_other_program(self, exception: Exception, arrays: tuple[Any, ...]) -> bool:
        return isinstance(exception, _OtherSpecs) or not (
            self.is_dispatching
            or not self._programs
            or self.specs_of_arrays(arrays) == self._programs[0].inputs
        )

    def switch_program(self, exception: Exception, arrays: tuple[Any, ...]) -> bool:
        variant = self.variant()
        if variant is None or not self.needs_other_program(exception, arrays):
            return False
        with self._lock:  # another thread might be here already, or in `_find`
            self.is_dispatching = True
            self._by_key.clear()  # a loaded program can be wrong for its key
            variant._switch(self)
        return True

    def _find(self, arrays: tuple[Any, ...], is_call: bool = False) -> ShardedProgram:
        """Returns the program for arrays. A call switches ``variant._call`` for the next one."""
        key = tuple(map(_jax_compat.typeof, arrays)), _jax_compat.abstract_mesh()
        program = self._by_key.get(key)
        if program is None:
            program = self._program_for(self.specs_of_arrays(arrays), arrays)
            if len(self._by_key) >= _MOST_KEYS:
                self._by_key.clear()
            self._by_key.setdefault(key, program)
        variant = self.variant()
        if is_call and variant is not None:
            with self._lock:
                self.is_dispatching = self.is_dispatching or len(self._programs) > 1
                variant._switch(self if self.is_dispatching else program.call)
        return program

    def _program_for(self, inputs: tuple[Spec, ...], arrays: tuple[Any, ...]) -> ShardedProgram:
        """Returns the program with these specs, and with its ``jax.jit``."""
        tried = 0
        while True:
            with self._lock:
                known = [program for program in self._programs if program.inputs == inputs]
                if len(known) == tried:
                    known.append(ShardedProgram(self, inputs))
                    self._programs.append(known[-1])
            program = known[tried]
            tried += 1
            try:
                self._make_jit(program, arrays)
            except _OtherSpecs:
                continue
            return program

    def _make_jit(self, program: ShardedProgram, arrays: tuple[Any, ...]) -> None:
        """Gives a program its ``jax.jit``. Raises _OtherSpecs if the result needs other specs."""
        options = dict(self.jitkwargs, donate_argnums=self.flat.donated)
        if any(spec is not None for spec in program.inputs):
            options["in_shardings"] = program.inputs
        if self.needs_outputs:
            # Threads that get here together share the flat function and its trace.
            traced = _jax_compat.jit(program.flat, **options).trace(*arrays)
            outputs = program.outputs
            if outputs is not None and any(spec is not None for spec in outputs):
                any_trace = _core.output_unflatten(ANY_TRACE, outputs)
                options["out_shardings"] = any_trace
            del traced
        made = _jax_compat.jit(program.flat, **options)
        with self._lock:  # threads share the first one
            if program.jit is None:
                program.jit, program.call = made, self.flat.callable_of(made)


def _same_memory(x: Any, y: Any) -> bool:
    """True if one array can reuse the other's memory."""
    a, b = _jax_compat.typeof(x), _jax_compat.typeof(y)
    return (a.shape, a.dtype) == (b.shape, b.dtype)


def _is_uncommitted(x: Any) -> bool:
    if isinstance(x, jax.ShapeDtypeStruct):
        return x.sharding is None
    placed = placement(x)
    return placed is not None and not placed[1]


def stand_ins(arrays: list[Any], specs: list[Any]) -> list[Any]:
    """Returns specs that represent placed arrays."""
    shardings = on_mesh(specs, _jax_compat.concrete_mesh())
    return [
        _jax_compat.spec_of(_jax_compat.typeof(x), s)
        for x, s in zip(arrays, shardings, strict=True)
    ]


def _key(path: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(str, path))
