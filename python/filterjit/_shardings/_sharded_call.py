"""`ShardedCall`: the callable of a variant that has shardings or donates by a filter of arrays.

A variant's flat ``jax.jit`` takes one spec for each array, and the positions of the donated arrays.
Both depend on shapes and on the mesh, because rules and filters look at them, and a variant may see
several shapes and meshes. So a variant has a *program* for each pair of specs and donated
positions. Each program has a flat function and a ``jax.jit`` of its own.

- The variant's `call` is a `ShardedCall` at first. The first call finds the specs, makes the
  program, and makes the program's ``jax.jit`` the `call`. A hit then takes the same path as without
  shardings.
- JAX traces a program's flat function for each new list of avals and each new mesh. The function
  finds the specs again from its tracers. It raises `_OtherSpecs` if they are not those that it was
  jitted with. The `run` hook then makes the `ShardedCall` the `call` of the
  variant for good: it finds the program by avals and mesh, which costs microseconds.

The specs of the results are known only after a trace. So a program that needs them is traced, and
then jitted again with them: JAX finds the trace of the flat function in its cache.
"""

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax

from .. import _core
from .._base import _errors
from .._base._arrays import is_tracing, placement, same_spec
from .._base._locks import RLock
from .._call import _direct, _events
from .._call._donation import same_memory, tell_unused
from .._call._flat_function import FlatFunction
from .._call._programs import Programs
from .._call._settings import Settings
from .._compat import _jax_compat
from .._trees import _registry
from ._options import SeenCall, Shardings
from ._place import place
from ._specs import Spec, on_mesh

_MOST_KEYS = 4096
_T = TypeVar("_T")


class _AnyTrace(int):
    """Equals the number of any trace, because JAX compares the treedef of the `out_shardings` with
    that of the results of any trace."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, int)

    def __hash__(self) -> int:
        return 0


ANY_TRACE = _AnyTrace(-2)  # that of no trace


class _OtherSpecs(Exception):
    """A flat function is traced for arrays or a mesh that need other specs than its own."""


@dataclasses.dataclass(frozen=True)
class Needs:
    """What a program is made for.

    Attributes:
        inputs: the specs of the arrays.
        donated: the positions of the arrays that are donated.
    """

    inputs: tuple[Spec, ...]
    donated: tuple[int, ...]


class ShardedProgram:
    """One flat function of a variant, with the specs that it was jitted with.

    Attributes:
        needs: what it was made for.
        outputs: the specs of the arrays of the result; None until it is traced.
        flat: the flat function.
        jit: the ``jax.jit``; None until there is one.
        call: what a call of the variant calls: `jit`, or its executable.
        is_loaded: whether it was made for a call whose program was kept (`_aot._keep`). Its `jit`
            has no specs of results, so it never traces.
    """

    def __init__(self, call: "ShardedCall", needs: Needs) -> None:
        self._call = weakref.ref(call)
        self.needs = needs
        self.outputs: tuple[Spec, ...] | None = None
        self.flat: Callable[..., _core.Output] = call.flat.make(self)
        self.jit: Any = None
        self.call: Any = None
        self.is_loaded = False

    @property
    def inputs(self) -> tuple[Spec, ...]:
        """The specs of the arrays."""
        return self.needs.inputs

    def before_trace(self, arrays: tuple[Any, ...]) -> None:
        """Is called at the beginning of a trace."""
        call = self._call()
        if self.is_loaded or (call is not None and call.needs_of_tracers(arrays) != self.needs):
            raise _OtherSpecs

    def after_trace(self, tree: Any, output: _core.Output, arrays: tuple[Any, ...]) -> None:
        """Is called at the end of a trace, with the function's result."""
        call = self._call()
        if call is None:
            return
        outputs = call.specs_of_result(self, tree, output, arrays)
        if self.outputs is None:
            self.outputs = outputs
        elif call.needs_outputs and outputs != self.outputs:  # else no program has them
            raise _OtherSpecs


class ShardedCall(Programs):
    """The programs of such a variant, and its callable: finds or makes the ``jax.jit`` for arrays.

    Arguments:
        variant: the variant; it is referenced weakly.
        settings: the settings of the function.
        flat: makes a flat function for each program.
    """

    def __init__(self, variant: _core.Variant, settings: Settings, flat: FlatFunction) -> None:
        super().__init__(flat)
        self.shardings = settings.shardings or Shardings(None, None, None)
        self.variant = weakref.ref(variant)
        self.signature = flat.signature
        self.settings = settings
        self.jitkwargs = dict(settings.jitkwargs)
        self.flat = flat
        self.needs_outputs = settings.shardings is not None and (
            self.shardings.has_outputs or flat.donated != ()
        )
        self._lock = RLock()
        # Programs stay as long as the variant: calls that are running do not own their `jit`.
        self._programs: list[ShardedProgram] = []
        self._by_key: dict[Any, ShardedProgram] = {}
        self.is_dispatching = False

    # ---- specs ----

    def _seen(self, arrays: tuple[Any, ...]) -> SeenCall:
        variant = self.variant()
        assert variant is not None
        return SeenCall(variant, self.signature, arrays)

    def needs_of_tracers(self, tracers: tuple[Any, ...]) -> Needs:
        call, donated = self._seen(tracers), self.flat.donated
        if donated is None:
            find = self.settings.donate.positions
            donated = find(call.variant, self.signature, self.flat.registry, tracers)
        return Needs(self.shardings.specs_of_inputs(call), donated)

    def needs_of_arrays(self, arrays: tuple[Any, ...]) -> Needs:
        """Returns what a call needs; rules and filters see tracers of its arrays, as in a trace."""
        return _for_tracers(self.needs_of_tracers, arrays)

    def specs_of_arrays(self, arrays: tuple[Any, ...]) -> tuple[Spec, ...]:
        find = self.shardings.specs_of_inputs
        return _for_tracers(lambda tracers: find(self._seen(tracers)), arrays)

    def specs_of_result(
        self, program: ShardedProgram, tree: Any, output: _core.Output, arrays: tuple[Any, ...]
    ) -> tuple[Spec, ...]:
        """Returns the specs of the arrays of a result.

        An array without a spec, which the function itself does not move, gets the spec of the
        donated array in the same place of an argument, so that it can reuse its memory.
        """
        call, results = self._seen(arrays), output.arrays
        specs = list(self.shardings.specs_of_outputs(tree, results, call))
        variant, donated = call.variant, program.needs.donated
        if not (donated and self.shardings.follows_donated):
            return tuple(specs)
        _, structure = _core.flatten(_registry.registry, tree)
        paths_in = _errors.array_paths(variant.function, variant.structure)
        paths_out = structure._key_paths()
        taken: set[int] = set()  # results in the place of a donated array
        by_path: dict[Any, list[int]] = {}
        for j, path in enumerate(paths_out):
            for key in (_key(path), _key(path[1:])):
                by_path.setdefault(key, []).append(j)
        for i in donated:
            for j in by_path.get(_key(paths_in[i][1:]), ()):
                if j in taken or not same_memory(arrays[i], results[j]):
                    continue
                if specs[j] is None and not _jax_compat.is_moved(arrays[i], results[j]):
                    specs[j] = program.inputs[i]
                if same_spec(specs[j], program.inputs[i]):
                    taken.add(j)
                    break
        if self.settings.tells_unused and (program.outputs is None or not self.needs_outputs):
            tell_unused(
                donated,
                variant,
                arrays,
                results,
                inputs=program.inputs,
                outputs=specs,
            )
        return tuple(specs)

    # ---- calls ----

    def __call__(self, *arrays: Any) -> _core.Output:
        if jax.config.jax_disable_jit:
            return self.flat.make()(*arrays)  # as under jax.jit, shardings say nothing
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
        """Returns the arrays, after placing the model arrays that JAX would place in the call.

        To JAX, an array on a mesh has another type than an array that is not committed to devices.
        A new model is not committed at the first call, and comes back on the mesh. Without this, it
        would be traced and compiled twice.

        `put` places arrays, or returns stand-ins for them.
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

    def is_of_other(self, exception: Exception, arrays: tuple[Any, ...]) -> bool:
        return isinstance(exception, _OtherSpecs) or not (
            self.is_dispatching
            or not self._programs
            or self.needs_of_arrays(arrays) == self._programs[0].needs
        )

    def call_again(self, exception: Exception, arrays: tuple[Any, ...]) -> bool:
        variant = self.variant()
        if variant is None or not self.is_of_other(exception, arrays):
            return False
        with self._lock:  # another thread may have come here before, or be in `_find`
            self.is_dispatching = True
            self._by_key.clear()  # one that is loaded may be wrong for its key
            variant.call = self
        return True

    def _find(self, arrays: tuple[Any, ...], is_call: bool = False) -> ShardedProgram:
        """Returns the program for arrays, with its ``jax.jit``. If this is a call and it is the
        only program, the next call of the variant calls that ``jax.jit``."""
        key = tuple(map(jax.typeof, arrays)), jax.sharding.get_abstract_mesh()
        program = self._by_key.get(key)
        if program is None or (program.is_loaded and not is_call):
            program = self._program_for(self.needs_of_arrays(arrays), arrays, is_call)
            if len(self._by_key) >= _MOST_KEYS:
                self._by_key.clear()
            self._by_key.setdefault(key, program)
        variant = self.variant()
        if is_call and variant is not None:
            with self._lock:
                self.is_dispatching = self.is_dispatching or len(self._programs) > 1
                variant.call = self if self.is_dispatching else program.call
        return program

    def _program_for(self, needs: Needs, arrays: tuple[Any, ...], is_call: bool) -> ShardedProgram:
        """Returns the program for arrays with these needs, with its ``jax.jit``."""
        tried = 0
        while True:
            with self._lock:
                known = [program for program in self._programs if program.needs == needs]
                if len(known) == tried:
                    known.append(ShardedProgram(self, needs))
                    self._programs.append(known[-1])
            program = known[tried]
            tried += 1
            try:
                self._make_jit(program, arrays, is_call)
            except _OtherSpecs:
                continue
            return program

    def _make_jit(self, program: ShardedProgram, arrays: tuple[Any, ...], is_call: bool) -> None:
        """Gives a program its ``jax.jit``.

        Raises _OtherSpecs if the result for these arrays needs other specs than the program's.
        """
        options = dict(self.jitkwargs, donate_argnums=program.needs.donated)
        if any(spec is not None for spec in program.inputs):
            options["in_shardings"] = program.inputs
        if self.needs_outputs and not (is_call and self._is_kept(program, arrays)):
            # Threads that arrive here at once share the flat function, and so its trace.
            traced = _jax_compat.jit(program.flat, **options).trace(*arrays)
            outputs = program.outputs
            if outputs is not None and any(spec is not None for spec in outputs):
                any_trace = _core.output_unflatten(ANY_TRACE, outputs)
                options["out_shardings"] = any_trace
            del traced
        made = _jax_compat.jit(program.flat, **options)
        with self._lock:  # calls of other threads may be running the one that is there
            if program.jit is None:
                program.jit, program.call = made, self.flat.callable_of(made)

    def _is_kept(self, program: ShardedProgram, arrays: tuple[Any, ...]) -> bool:
        """Returns whether a call will load what was kept, in the place of a trace."""
        if program.jit is not None and not program.is_loaded:
            return False
        try:
            _events.tell("before_trace", self.flat.observed, arrays)
        except _direct.KeptProgram:
            program.is_loaded = True
            return True
        return False


def _for_tracers(function: Callable[[tuple[Any, ...]], _T], arrays: tuple[Any, ...]) -> _T:
    """Returns what a function returns for tracers of arrays."""
    found: list[_T] = []
    jax.eval_shape(lambda *tracers: found.append(function(tracers)), *arrays)
    return found[0]


def _is_uncommitted(x: Any) -> bool:
    if isinstance(x, jax.ShapeDtypeStruct):
        return x.sharding is None
    placed = placement(x)
    return placed is not None and not placed[1]


def stand_ins(arrays: list[Any], specs: list[Any]) -> list[Any]:
    """Returns stand-ins for arrays that are placed."""
    shardings = on_mesh(specs, jax.sharding.get_mesh())
    return [_jax_compat.spec_of(jax.typeof(x), s) for x, s in zip(arrays, shardings, strict=True)]


def _key(path: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(str, path))
