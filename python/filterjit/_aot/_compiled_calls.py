"""The hooks of a function whose programs exist: compiled for one signature, or loaded for several."""

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import _core
from .._base import _errors
from .._base._arrays import Aval, placement
from .._base._call_hooks import Failure
from .._base._errors import MismatchError
from .._call import _direct, _events, _signature
from .._call._miss import RunningHooks, marked, registry_for
from .._call._settings import Settings
from .._compat import _executable_compat, _jax_compat
from .._observe import _causes, _compare
from .._observe._causes import Cause
from .._observe._placement import compare_sharding
from .._observe._table import Row
from .._observe._wording import NOT_GIVEN, count, list_first
from .._trees._codes import Unsupported, setting
from .._trees._registry import is_traced, leaves_of
from . import _program
from ._prepared import is_shape_spec

_REMEDY = "Compile it for these arguments too, or call the function itself."
_SAVE = "Compile the function for these arguments too, and save it again."
_MOST = 12  # signatures in a message
_SETTING = "JAX's setting "
_SIZES = re.compile(r"polymorphic shapes specification\. (.*?)\. Using|[Ee]rror refining shapes")


class Program(NamedTuple):
    """A compiled signature. `avals` and `shardings` are those of all arrays, beginning with those
    in the function itself; `stage` takes them in `order`. In a loaded one, `placed` says which
    arrays were committed, and `settings` has JAX's settings by name; both are None if they don't
    matter, and weak types then don't either."""

    structure: _core.Structure
    avals: Sequence[Aval]
    shardings: Sequence[Any]
    stage: Any
    order: Sequence[int] = ()
    placed: Sequence[bool] | None = None
    settings: dict[str, Any] | None = None

    @classmethod
    def of(cls, structure: _core.Structure, stage: Any, order: Sequence[int] = ()) -> "Program":
        leaves = jax.tree_util.tree_leaves(stage.args_info)
        avals = [Aval(tuple(aval.shape), aval.dtype, False) for aval in leaves]
        shardings: list[Any] = [None] * len(avals)
        with contextlib.suppress(Unsupported):
            shardings = _program.input_shardings(stage)
        both = _direct.restore(avals, order), _direct.restore(shardings, order)
        return cls(structure, *both, stage, order)

    def compare(self, paths: Sequence[list[Any]], arrays: Sequence[Any]) -> list[Cause]:
        """Explains why the program doesn't take these arrays, or settings."""
        causes = []
        own = len(self.avals) - self.structure.num_leaves
        for i, (path, x, was) in enumerate(zip(paths, arrays, self.avals, strict=True)):
            now = Aval.of(x)
            fits = _fits(was.shape, now.shape)
            differ: tuple[str, str] | None
            if is_shape_spec(x):  # in the function itself: can be compiled, but not called
                kind, differ = "type", (str(was), "a ShapeDtypeStruct, which has no values")
            elif was.dtype != now.dtype or not fits:
                kind, differ = "dtype" if fits else "shape", (str(was), str(now))
            elif self.placed is not None and i >= own and was.weak_type != now.weak_type:
                kind, differ = "dtype", (_with_weak(was), _with_weak(now))
            else:
                kind, differ = "sharding", compare_sharding(self.shardings[i], x)
            if differ is not None:
                others = 2 * (was.dtype != now.dtype) + 3 * (len(was.shape) != len(now.shape))
                row = Row(kind, weight=1 + others)
                causes.append(Cause(kind, _errors.format_path(path), *differ, "", row))
        if self.settings is not None and not causes:
            current = {k: setting(x) for k, x in _jax_compat.trace_settings().items()}
            for name in self.settings | current:
                was_set, now_set = map(
                    _without_devices, (self.settings.get(name), current.get(name))
                )
                # A setting of a module that isn't imported has its default, which is False or None.
                if was_set != now_set and (was_set or now_set):
                    place = _SETTING + name
                    causes.append(Cause("config", place, repr(was_set), repr(now_set), ""))
        return causes


def _without_devices(x: Any) -> Any:
    """Returns a setting, without the kind of an abstract mesh's devices: a file doesn't have it."""
    if not isinstance(x, jax.sharding.AbstractMesh):
        return x
    return jax.sharding.AbstractMesh(x.axis_sizes, x.axis_names, x.axis_types)


def _with_weak(aval: Aval) -> str:
    return str(aval) if aval.weak_type else f"{aval} not of weak type"


def _fits(expected: Sequence[Any], shape: Sequence[int]) -> bool:
    """True if an array can have this shape. Symbolic dimensions can have any size."""
    return len(expected) == len(shape) and all(
        n == size or not isinstance(n, int) for n, size in zip(expected, shape, strict=True)
    )


@dataclasses.dataclass(eq=False)
class CompiledHooks(RunningHooks):
    """The hooks of a compiled or loaded function. They raise if a call would need a new program.

    `settings` are the function's, as far as a loaded function has them. `jit_id` identifies errors
    of ``eqx.error_if`` (`_errors.jit_id_of`).
    """

    settings: Settings
    name: str
    signature: inspect.Signature
    may_raise: bool = False
    jit_id: bytes = b""
    is_loaded: bool = False

    def __post_init__(self) -> None:
        self.registry = registry_for(self.settings)
        self.programs: list[Program] = []
        # For parameters in `traced`: 1 for each leaf of the argument that is an array.
        self._traced: dict[str, list[bytes]] = {}

    def make_filter_jit(
        self,
        function: _core.Structure,
        arrays: tuple[Any, ...],
        name: str,
        fun: Any = None,
        maxsize: int = 1,
    ) -> _core.FilterJit:
        """Returns a FilterJit without variants, for a function's Structure and arrays. `name` is
        for reports. `fun` is the function, if known."""
        parameters = _signature.parameters_of(None, self.signature)
        signature = _core.Signature(*marked(parameters, self.settings))
        cache = _core.Cache(self.registry, function, signature, self, maxsize, {})
        _events.notify("created", cache, name, fun, name)
        return _core.FilterJit._rebuild(cache, arrays)

    def insert_variant(
        self,
        f: _core.FilterJit,
        programs: Sequence[Program],
        call: Any,
        outputs: tuple[_core.Structure, ...],
    ) -> _core.Variant:
        """Gives `f` a variant for programs of one structure and order. `call` takes arrays in this
        order. `outputs` are the results' Structures, by trace number."""
        self.programs += programs
        cache = f._parts()[0]
        structure, call = programs[0].structure, _direct.in_order(call, programs[0].order)
        variant = cache.insert_compiled(structure, call, outputs, self.may_raise)
        if not self.settings.traced:
            return variant
        array = np.zeros(())
        leaves = (array,) * (variant.function.num_leaves + variant.structure.num_leaves)
        for name, x in zip(cache.signature.names, variant._arguments(leaves)[1], strict=True):
            if name in self.settings.traced.names:
                mask = bytes([leaf is array for leaf in leaves_of(x)])
                self._traced.setdefault(name, []).append(mask)
        return variant

    def mismatch(self, found: Sequence[Sequence[Cause]]) -> MismatchError:
        """Returns the error of a call that differs from each program by these causes. It has those
        of the closest program: another shape is closer than another dtype or rank."""

        def write(cause: Cause) -> str:
            was = "without it" if cause.was == NOT_GIVEN else f"for {cause.was}"
            now = "without it" if cause.now == NOT_GIVEN else f"with {cause.now}"
            return f"{cause.place}: compiled {was}, called {now}"

        lines = [f"`{self.name}` was compiled for other arguments:"]
        closest = min(found, key=lambda causes: sum(cause._weight for cause in causes))
        lines += _causes.lines_of(closest, write)
        if len(self.programs) > 1:
            lines.append(f"It has {count(len(self.programs), 'signature')}:")
            lines += list_first(self.described(), _MOST, "\n").splitlines()
        return MismatchError("\n".join([*lines, _SAVE if self.is_loaded else _REMEDY]))

    def described(self) -> list[str]:
        """Describes each signature in a line, by the entries in which they differ."""
        found = []
        for one in self.programs:
            own = len(one.avals) - one.structure.num_leaves
            entries = dict(_program.described(one.structure, one.avals[own:]))
            entries |= {_SETTING + k: repr(x) for k, x in (one.settings or {}).items()}
            for i, is_placed in enumerate(one.placed or ()):
                if is_placed:
                    entries[f"array {i} on"] = str(one.shardings[i])
            found.append(entries)
        all_names = dict.fromkeys(name for entries in found for name in entries)
        names = [name for name in all_names if len({entries.get(name) for entries in found}) > 1]
        return [
            "  " + ", ".join(f"`{name}`: {entries.get(name, NOT_GIVEN)}" for name in names)
            for entries in found
        ]

    # ---- called by the C core ----

    def prepare(self, f: _core.FilterJit, /) -> tuple[_core.Cache, tuple[Any, ...]]:
        """Never called: `make_filter_jit` gives `f` its cache."""
        raise AssertionError("a compiled function has its cache from the start")

    def choose(self, f: _core.FilterJit, name: str, argument: Any, /) -> bytes:
        """Returns a byte for each leaf of an argument: 1 for a number at the place of an array in
        a compiled call. If no signature has such leaves, `compile` raises."""
        leaves = leaves_of(argument)
        for mask in self._traced.get(name, ()):
            if len(mask) == len(leaves):
                return bytes([one and is_traced(x) for one, x in zip(mask, leaves, strict=True)])
        return bytes(len(leaves))

    def compile(self, f: _core.FilterJit, variant: _core.Variant, /) -> Callable[..., _core.Output]:
        """Raises MismatchError: the arguments' structure or static values differ."""
        own = variant.function.num_leaves
        found = {}
        for one in self.programs:
            if one.structure not in found:
                structures = one.structure, variant.structure
                compared = _compare.Comparison(self.registry, *structures, (), one.avals[own:])
                found[one.structure] = compared.differences.causes
        raise self.mismatch(list(found.values()))

    def misfit(
        self, f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TypeError:
        return _signature.misfit(self.name, self.signature, args, kwargs)

    def translate(self, failure: Failure) -> BaseException:
        """Returns a MismatchError for mismatched arrays; translates other exceptions as usual."""
        _, exception, variant, arrays, _ = failure
        # In JAX 0.10.0 and older, the error for a spec is neither of these.
        if variant is not None and (
            isinstance(exception, (TypeError, ValueError)) or any(map(is_shape_spec, arrays))
        ):
            paths = _errors.array_paths(variant.function, variant.structure)
            found = [
                one.compare(paths, arrays)
                for one in self.programs
                if one.structure == variant.structure
            ]
            if all(found):
                return self.mismatch(found).with_traceback(None)
            if (sizes := _SIZES.search(str(exception))) is not None:
                pairs = zip(paths, self.programs[0].avals, arrays, strict=True)
                causes = [
                    Cause("shape", _errors.format_path(path), str(was), str(Aval.of(x)), "")
                    for path, was, x in pairs
                    if not all(isinstance(n, int) for n in was.shape)
                ]
                error = self.mismatch([causes])
                return type(error)(f"{error}\n({sizes[1] or sizes[0]})").with_traceback(None)
        if any(isinstance(x, jax.core.Tracer) for x in arrays):
            exception.add_note(
                f"(`{self.name}` is a compiled program, which `jax.grad`, `jax.vmap` and other "
                "transformations cannot trace: call the function itself)"
            )
        return _errors.translate(failure, self.jit_id)

    def inspect(
        self, variant: _core.Variant, arrays: tuple[Any, ...], outputs: tuple[Any, ...]
    ) -> bool | None:
        return self.may_raise


class LoadedCall:
    """Runs the program of a call, for loaded programs of one structure and order. From the second
    call of a kind on, `call` runs the program without this one."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._programs = programs
        self._calls = {id(x): _executable_compat.compiled_call(x.stage) for x in programs}
        self.call = _direct.with_entries(self)

    def __call__(self, *arrays: Any) -> _core.Output:
        # Arrays of a subclass of NumPy's, such as matrices, as plain ones.
        arrays = tuple([np.asarray(x) if isinstance(x, np.ndarray) else x for x in arrays])
        program = self._find(_direct.restore(arrays, self._programs[0].order))
        if program is None:
            raise TypeError("no program takes these arrays")  # `translate` says why
        _direct.add_entry(self.call, program.stage, arrays)
        with jax.disable_jit(False):  # otherwise JAX would ask for the function's code
            output: _core.Output = self._calls[id(program)](*arrays)
        return output

    def _find(self, arrays: tuple[Any, ...]) -> Program | None:
        paths: list[list[Any]] = [[]] * len(arrays)
        found = [one for one in self._programs if not one.compare(paths, arrays)]
        placed = [(x := placement(y)) is not None and x[1] for y in arrays]

        def others(one: Program) -> int:
            pairs = zip(one.placed or placed, placed, strict=True)
            return sum(was != now for was, now in pairs)

        return min(found, key=others, default=None)
