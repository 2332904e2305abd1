"""Ahead of time: a function traced, lowered and compiled for arguments that need not be there yet.

`Traced`, `Lowered` and `Compiled` hold what ``jax.stages`` knows of the flat program, and say it
in the user's trees. A `Compiled` has a Cache of its own with the one variant in it, so that
calling it is a hit on the road of every call (csrc/call/compiled.c); what does not fit arrives in
`Fixed`, which says what differs.
"""

import contextlib
import dataclasses
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from .. import _core
from .._base import _errors, _jax_compat
from .._base._errors import MismatchError
from .._call import _running, _signature
from .._observe import _causes, _compare, _program, _records
from .._observe._causes import Cause
from .._observe._recorder import recorder
from .._observe._records import Aval
from .._trees import _registry

# ---- arrays that are not there yet ----


class _Placeholder(np.ndarray):
    """Stands for a ``jax.ShapeDtypeStruct`` while the arguments are taken apart: an array of its
    shape that takes no memory."""

    spec: jax.ShapeDtypeStruct

    @classmethod
    def of(cls, spec: jax.ShapeDtypeStruct) -> "_Placeholder":
        dtype = np.dtype(np.uint8)
        with contextlib.suppress(TypeError):
            dtype = np.dtype(spec.dtype)  # not of a PRNG key
        strides = (0,) * len(spec.shape)
        self = cls.__new__(cls, spec.shape, dtype, bytes(dtype.itemsize), 0, strides)
        self.spec = spec
        return self


def _is_spec(x: Any) -> bool:
    return isinstance(x, jax.ShapeDtypeStruct)


def _spec(x: Any) -> jax.ShapeDtypeStruct:
    if isinstance(x, jax.ShapeDtypeStruct):
        return x
    placed = _records.placement(x)
    sharding = placed[0] if placed is not None and placed[1] else None
    return _jax_compat.spec_of(Aval.of(x), sharding)


def _with_placeholders(registry: _core.Registry, tree: Any) -> Any:
    if not any(map(_is_spec, _core.tree_leaves(registry, tree, None))):
        return tree
    return _core.tree_map(
        registry, lambda x: _Placeholder.of(x) if _is_spec(x) else x, (tree,), None
    )


def arguments_of(
    signature: _core.Signature, slots: Sequence[Any], missing: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``(args, kwargs)`` of a call with these slots."""
    found: tuple[tuple[Any, ...], dict[str, Any]] = _signature.call_with_arguments(
        lambda *args, **kwargs: (args, kwargs), signature, slots, missing
    )
    return found


# ---- what JAX knows of a stage, in the user's trees ----

# Trees of the arguments, and of the results, by jax.stages' names.
_INPUTS = frozenset({"args_info", "in_avals", "input_formats", "input_layouts", "input_shardings"})
_OUTPUTS = frozenset({"out_avals", "out_info", "output_formats", "output_layouts"})
_OUTPUTS |= {"output_shardings"}


@dataclasses.dataclass(frozen=True)
class Made:
    """What a program is made of: the function, the variant, and the arrays or specs of them."""

    name: str
    signature: inspect.Signature
    f: _core.FilterJit
    variant: _core.Variant
    arrays: tuple[Any, ...]

    @property
    def cache(self) -> _core.Cache:
        return self.f._parts()[0]

    def without_arrays(self) -> "Made":
        """The same with a spec of each array of the arguments, which are not to be kept alive."""
        specs = map(_spec, self.arrays[len(self.own) :])
        return dataclasses.replace(self, arrays=(*self.own, *specs))

    @property
    def own(self) -> tuple[Any, ...]:
        """The arrays or specs in the function itself."""
        return self.arrays[: self.variant.function.num_leaves]

    def arguments(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """``(args, kwargs)`` with these in the places of the arrays."""
        slots = self.variant.arguments(tuple(leaves))[1]
        return arguments_of(self.cache.signature, slots, self.cache.options.registry)

    def result(self, tree: Any) -> Any:
        """The user's tree of what jax.stages has as an Output; anything else as it is."""
        return self.variant.result(tree) if isinstance(tree, _core.Output) else tree

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """While JAX traces, lowers or compiles for the variant: what has been traced is kept."""
        cache, variant = self.cache, self.variant
        under_way = variant.num_deferred
        try:
            recorder.work(cache.record, variant)
            if cache.options.quiet:
                _running.ignore_donation(variant)
            yield
            variant.run_deferred(under_way)
            cache.insert_traced(variant)
        except BaseException:
            variant.run_deferred(under_way)
            cache.insert_traced(variant)
            raise


class _Stage:
    """One of jax.stages', with its trees of arguments and results as the user knows them."""

    def __init__(self, stage: Any, made: Made) -> None:
        self.stage = stage
        self.made = made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "in_tree":
            return jax.tree_util.tree_structure(self.args_info)
        if name == "out_tree":
            tree = self.stage.out_tree
            return jax.tree_util.tree_structure(
                self.made.result(tree.unflatten(range(tree.num_leaves)))
            )
        found = getattr(self.stage, name)
        if name in _INPUTS:
            leaves = jax.tree_util.tree_leaves(found, is_leaf=lambda x: x is None)
            return self.made.arguments(leaves)
        if name in _OUTPUTS:
            return self.made.result(found)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.stage), "in_tree", "out_tree"})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.made.name}>"


class Traced(_Stage):
    """A function traced for the arguments given to ``trace``; see ``jax.stages.Traced``."""

    def __init__(self, stage: Any, made: Made, raises: bool) -> None:
        super().__init__(stage, made)
        self._raises = raises

    def lower(self, **options: Any) -> "Lowered":
        """The program, lowered; `options` are those of ``jax.stages.Traced.lower``."""
        with self.made.working():
            lowered = self.stage.lower(**options)
        return Lowered(lowered, self.made, self._raises)


class Lowered(_Stage):
    """A function lowered for the arguments given to ``lower``; see ``jax.stages.Lowered``."""

    def __init__(self, stage: Any, made: Made, raises: bool) -> None:
        super().__init__(stage, made)
        self.lowered = stage  # Equinox's name
        self._raises = raises

    def compile(
        self, compiler_options: dict[str, Any] | None = None, **options: Any
    ) -> _core.Compiled:
        """The executable, to be called, asked about and saved.

        `compiler_options` go to XLA; raises JAX's ``JaxRuntimeError`` for those that it does not
        know. Without any, calls of the function with such arguments are hits from now on.
        """
        with self.made.working():
            compiled = self.stage.compile(compiler_options=compiler_options, **options)
        made = self.made
        cache = made.cache
        fixed = Fixed(cache.options, made.name, made.signature, compiled)
        fixed.raises = self._raises
        fixed.jit_id = _errors.jit_id_of(made.variant)
        f = fixed.function(cache.function, made.own)
        fixed.insert_compiled(f, made.variant.structure, made.variant.outputs)
        return _core.Compiled(f, CompiledDetails(compiled, made))


class CompiledDetails(_Stage):
    """What is known of a compiled function; see ``jax.stages.Compiled``."""

    def __init__(self, stage: Any, made: Made) -> None:
        super().__init__(stage, made)
        self.compiled = stage  # Equinox's name

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        portable: bool = False,
        platforms: Sequence[str] | None = None,
    ) -> None:
        """Writes it to a file for `filterjit.load`; a file that is there is replaced at once, or
        stays as it is.

        Arguments:
            path: of the file.
            portable: False stores the executable, for this kind of machine and this version of
                JAX; True stores the program as StableHLO (``jax.export``), which is compiled when
                it is loaded.
            platforms: of a portable one, those that it is to run on, such as
                ``("cpu", "cuda")``; this one if not given.

        Raises:
            ValueError: naming the paths of statics that a file cannot hold, and where JAX cannot
                serialize the program: one that calls back into Python, say.
        """
        from . import _save

        _save.save(self, path, portable, platforms)

    @property
    def __signature__(self) -> inspect.Signature:
        return self.made.signature

    def __repr__(self) -> str:
        return f"<Compiled of {self.made.name}>"


# ---- of a FilterJit ----


def trace(f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
    made = _prepare(f, args, kwargs)
    with made.working():
        traced = made.variant.call.trace(*made.arrays)
        raises = True  # it may, where JAX does not tell
        with contextlib.suppress(Exception):
            found = _program.contents(traced.jaxpr)
            raises = found.callbacks
            recorder.record_program(made.variant, made.arrays, found)
    return Traced(traced, made.without_arrays(), raises)


def eval_shape(f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    made = _prepare(f, args, kwargs)
    with made.working():
        return made.result(made.variant.call.eval_shape(*made.arrays))


def _prepare(f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Made:
    """The variant of these arguments, made where there is none."""
    fun = f.__wrapped__
    with_placeholders = _with_placeholders(_registry.registry, fun)
    if with_placeholders is not fun:  # it shares its cache with one that holds arrays
        f = _core.FilterJit(with_placeholders, f._options, f._given_signature, dict(f.__dict__))
    args, kwargs = _with_placeholders(f._options.registry, (args, kwargs))
    variant, arrays = f._lookup(*args, **kwargs)
    specs = tuple(x.spec if isinstance(x, _Placeholder) else x for x in arrays)
    name = str(f.__dict__.get("__qualname__") or getattr(variant.call, "__qualname__", f))
    signature = f._given_signature or inspect.signature(fun)
    return Made(name, signature, f, variant, specs)


# ---- a call of what is compiled ----


class Fixed(_running.Running):
    """The options of a function that is compiled for one signature: where a call would need
    another variant, it raises."""

    raises = False  # whether it can, while it runs
    jit_id = b""

    def __init__(self, options: Any, name: str, signature: inspect.Signature, stage: Any) -> None:
        self.registry: _core.Registry = options.registry
        self.functions: str = options.functions
        self.name = name
        self.signature = signature
        self.stage = stage

    def function(self, function: _core.Structure, arrays: tuple[Any, ...]) -> _core.FilterJit:
        """The FilterJit of the one variant; `function` and `arrays` are what was jitted."""
        signature = _signature.core_signature(None, self.signature)
        cache = _core.Cache(self.registry, function, signature, self, 1, {})
        return _core.rebuild(cache, arrays)

    def insert_compiled(
        self,
        f: _core.FilterJit,
        structure: _core.Structure,
        outputs: tuple[_core.Structure, ...],
    ) -> _core.Variant:
        """Gives `f` its variant: `structure` is that of the arguments, `outputs` are those of the
        results by the numbers of their traces."""
        self.structure = structure
        call = _jax_compat.compiled_call(self.stage)
        return f._parts()[0].insert_compiled(structure, call, outputs, self.raises)

    def _mismatch(self, causes: Sequence[Cause]) -> MismatchError:
        lines = [f"`{self.name}` was compiled for other arguments:"]
        lines += _causes.lines_of(
            causes, lambda c: f"{c.place}: compiled for {c.was}, called with {c.now}"
        )
        lines.append("Compile it for these too, or call the function itself.")
        return MismatchError("\n".join(lines))

    # ---- called by the C core ----

    def compile(self, f: _core.FilterJit, variant: _core.Variant) -> Callable[..., Any]:
        own = variant.function.num_leaves
        causes = _compare.compare_structures(self.registry, self.structure, variant.structure, own)
        raise self._mismatch(causes)

    def raise_binding_error(
        self, f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        _signature.stand_in(self.name, self.name, self.signature)(*args, **kwargs)
        self.signature.bind(*args, **kwargs)

    def translate_error(
        self,
        f: _core.FilterJit,
        exception: BaseException,
        variant: _core.Variant | None,
        arrays: Sequence[Any],
    ) -> BaseException:
        """JAX's error for arrays that do not fit, with their paths; others as in any call."""
        if variant is not None and isinstance(exception, (TypeError, ValueError)):
            causes = self._compare_arrays(variant, arrays)
            if causes:
                return self._mismatch(causes).with_traceback(None)
        return _errors.translate(exception, variant, arrays, self.jit_id)

    def _compare_arrays(self, variant: _core.Variant, arrays: Sequence[Any]) -> list[Cause]:
        paths = _errors.array_paths(variant.function, variant.structure)
        stage = self.stage
        avals = jax.tree_util.tree_leaves(stage.args_info)
        shardings = jax.tree_util.tree_leaves(stage.input_shardings, is_leaf=lambda x: x is None)
        causes = []
        for path, x, aval, sharding in zip(paths, arrays, avals, shardings, strict=True):
            was, now = Aval(tuple(aval.shape), aval.dtype, False), Aval.of(x)
            if _is_spec(x):  # in the function itself: it can be compiled for one, not called
                now_words = "a ShapeDtypeStruct, which has no values"
                causes.append(Cause("value", _errors.format_path(path), str(was), now_words, ""))
                continue
            if (was.shape, was.dtype) != (now.shape, now.dtype):
                causes.append(Cause("shape", _errors.format_path(path), str(was), str(now), ""))
                continue
            placed = _compare.compare_sharding(sharding, x)
            if placed is not None:
                causes.append(Cause("sharding", _errors.format_path(path), *placed, ""))
        return causes

    def inspect_new_trace(self, variant: _core.Variant, arrays: Any, outputs: Any) -> bool:
        return self.raises
