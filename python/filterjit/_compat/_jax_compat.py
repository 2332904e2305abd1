"""The private names of JAX, each with a fallback.

If a version of JAX lacks a name, filterjit is slower or its messages say less, but its results are
the same. This applies to the other files here too.
"""

import contextlib
import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import CodeType, FrameType
from typing import Any

import jax
import jax.experimental
import numpy as np

from . import _private

# The original ``jax.jit``, even after `install`. Fallback: ``jax.jit`` when this module is
# imported.
jit: Callable[..., Any] = _private.private("jax._src.api", "jit") or jax.jit


# The types that equinox.is_array accepts: arrays of NumPy and JAX, and JAX's typed literals (since
# JAX 0.7.2). Fallback: without the literals, which are then static, as in Equinox.
_LITERAL = _private.private("jax._src.literals", "TypedNdArray")
ARRAY_TYPES: tuple[type, ...] = (np.ndarray, np.generic, jax.Array, *filter(None, [_LITERAL]))


# The type of nearly all arrays, which the C core tries first. Not taken from an array, because
# creating one at import starts JAX's backends, and then some options of JAX can't be set. Fallback:
# any type of array; the C core looks up the rest.
ARRAY_IMPL: type = _private.private("jax._src.array", "ArrayImpl") or np.ndarray


# The type of typed random keys (``jax.random.key``), which wrap an array. Fallback: None; calls
# with keys aren't direct, and those of `filterjit.nnx.jit` are handed over.
KEY_TYPE: type | None = _private.private(
    "jax._src.random.prng", "PRNGKeyArray"
) or _private.private("jax._src.prng", "PRNGKeyArray")


class SeenAsJitted(type):
    """The metaclass of jitted functions. Libraries recognize the results of ``jax.jit`` by:

    - ``PjitFunction`` in the type's repr, for chex (`assert_max_traces`) and Haiku (`transform`),
      which refuse jitted functions;
    - ``__wrapped__`` (chex, diffrax, Equinox, jaxtyping, optimistix), `lower`, `trace`,
      `eval_shape` and `clear_cache` (JAX; `jax.export` requires ``jax.stages.Wrapped``),
      `_cache_size` and `_clear_cache` (tests).
    """

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__qualname__}' (a PjitFunction)>"


# The logger of callbacks' errors. Fallback: with a different name, JAX logs an error that is raised
# too.
CALLBACK_LOGGER = "jax._src.callback"


def is_unspecified(x: Any) -> bool:
    """True for the value that ``jax.jit`` uses for omitted shardings. Fallback: only for None."""
    unspecified = _private.private("jax._src.sharding_impls", "UnspecifiedValue")
    return x is None or (unspecified is not None and isinstance(x, unspecified))


@functools.cache
def resolves_negative_argnums() -> bool:
    """True if ``jax.jit`` resolves a negative number by the parameters, and not by a call's
    arguments.
    Fallback: False, and calls of functions with these numbers are handed over."""
    jitted = jit(lambda a, b: a, static_argnums=-1)
    return bool(_private.private_attribute(jitted, "_jit_info", "static_argnums") == (1,))


def hide_from_tracebacks(file: str) -> None:
    """Omits the frames of `file` from JAX's tracebacks, and from places in its messages, such as
    the origin of a leaked tracer. Fallback: shows the frames."""
    in_tracebacks = _private.private("jax._src.traceback_util", "register_exclusion")
    in_places = _private.private("jax._src.source_info_util", "register_exclusion")
    for register in (in_tracebacks, in_places):
        if register is not None:
            register(file)


class _Source:
    """A function's name and code, for JAX to find at the end of ``__wrapped__``."""

    def __init__(self, name: str, code: CodeType) -> None:
        self.__name__, self.__code__ = name, code


class _Paths(inspect.Signature):
    """A signature whose parameters are paths."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__([inspect.Parameter("arrays", inspect.Parameter.VAR_POSITIONAL)])
        self._paths = paths

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        bound = super().bind(*args, **kwargs)
        if len({*self._paths}) == len(args):
            bound.arguments = dict(zip(self._paths, args, strict=True))
        return bound


def name_arguments(flat: Any, name: str, code: CodeType | None, paths: Sequence[str]) -> None:
    """Tells JAX the name and code of the user's function, and a path for each array, to use in
    errors of `flat` and of ``jax.no_tracing``. Fallback, also for JAX before 0.7.2: a signature,
    which takes longer for many arrays."""
    if code is not None:
        flat.__wrapped__ = _Source(name, code)
    flat.__signature__ = _Paths(paths)
    debug_info = _private.private("jax._src.core", "DebugInfo")
    unknown = _private.private("jax._src.core", "initial_result_paths")
    if debug_info is None or unknown is None:
        return
    place = "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}"
    # A later version might have different fields, or read a different attribute.
    with contextlib.suppress(TypeError):
        flat.__fun_debug_info__ = debug_info("jit", name + place, tuple(paths), unknown)


def jit_call_under_way() -> tuple[Any, tuple[Any, ...]] | None:
    """Returns the function and arguments of the thread's innermost ``jax.jit`` call that is
    compiling, because it hasn't found its program.

    Fallback: None, and compilations without a trace count for no function.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "cache_miss" and frame.f_globals.get("__name__") == _PJIT:
            fun, args = frame.f_locals.get("fun"), frame.f_locals.get("args")
            return None if fun is None or not isinstance(args, tuple) else (fun, args)
        frame = frame.f_back
    return None


def operation_under_way() -> bool:
    """True if `jit_call_under_way` is a function of JAX itself, such as an array operation outside
    jitted functions. Fallback: False."""
    fun, _ = jit_call_under_way() or (None, ())
    return str(getattr(fun, "__module__", "")).startswith("jax.")


_PJIT = "jax._src.pjit"


_trace_context = _private.private("jax._src.config", "trace_context")


def axis_types(mesh: Any) -> dict[str, str]:
    """Returns the type of each axis of a mesh: "Auto", "Explicit" or "Manual"."""
    types = mesh.axis_types
    if not isinstance(types, dict):
        return {x: str(kind) for x, kind in zip(mesh.axis_names, types, strict=True)}
    named = {k: (x,) if isinstance(x, str) else x for k, x in types.items()}  # before JAX 0.5
    return {name: str(kind) for kind, names in named.items() for name in names}


# The setting with the devices of ``jax.set_mesh``. The second name is for JAX before 0.12.
DEVICE_CONTEXT = _private.private("jax._src.mesh", "device_context") or _private.private(
    "jax._src.config", "device_context"
)


def trace_context() -> Any:
    """Returns what a program depends on besides its arguments, to be hashed and compared: JAX's
    configuration and the mesh. Fallback: None."""
    if _trace_context is None or DEVICE_CONTEXT is None:
        return None
    return _trace_context(), DEVICE_CONTEXT.value


def trace_settings() -> dict[str, Any]:
    """Returns the settings and the mesh that a trace depends on, by name. Fallback: none."""
    names = _private.private("jax._src.config", "trace_context_names")
    values = () if _trace_context is None else _trace_context()
    try:
        keys = names()
    except Exception:  # before JAX 0.5.3, where no mesh is () or None
        keys = [f"setting {i}" for i in range(len(values))]
        values = tuple(None if x == () else x for x in values)
    axes = _private.private("jax._src.core", "AxisEnv") or ()
    pairs = zip(keys, values, strict=True)
    found = {k.removesuffix("_context_manager"): v for k, v in pairs if not isinstance(v, axes)}
    found.pop("jax_disable_jit", None)  # it prevents tracing
    return found


def _states() -> dict[str, Any]:
    """Returns JAX's settings by name. Fallback: none."""
    module = _private.private("jax._src.config")
    if (found := getattr(module, "config_states", None)) is None:  # JAX 0.5.3 and newer have it
        state = getattr(module, "State", ())
        found = {
            x._name: x for x in getattr(module, "__dict__", {}).values() if isinstance(x, state)
        }
    return dict(found)


def is_of_current_trace(x: Any) -> bool:
    """True if a tracer belongs to the current trace. Fallback: True."""
    trace = _private.private("jax._src.core", "trace_ctx", "trace")
    return trace is None or getattr(x, "_trace", trace) is trace


def may_be_handed_back(x: Any) -> bool:
    """True if a tracer is the result of an inner program, such as ``jit`` or ``scan``, which
    returns an unchanged value as a new tracer. Fallback: True."""
    parameters = _private.private_attribute(x, "parent", "params")
    # A scatter's `update_jaxpr` handles two elements.
    return not isinstance(parameters, dict) or any(
        "jaxpr" in name and name != "update_jaxpr" for name in parameters
    )


def clears_with_jax(clear: Callable[[], None]) -> bool:
    """Makes ``jax.clear_caches`` call a function, held weakly.

    Fallback: False. JAX's own caches are still cleared, and filterjit's functions retrace, unless
    their calls are direct: the caller must then turn direct calls off.
    """
    register = _private.private("jax._src.util", "register_cache")
    if register is None:
        return False
    clear.cache_clear = clear  # type: ignore[attr-defined]
    register(clear, "filterjit")
    return True


def count_programs(jitted: Any) -> int:
    """Returns the number of programs of a ``jax.jit``. Fallback: 0, and traces count."""
    count = _private.private_attribute(jitted, "_cache_size")
    return 0 if count is None else int(count())


def drop_programs(jitted: Any) -> None:
    """Drops the programs of a ``jax.jit`` function, without its `clear_cache`, after which JAX
    would
    also retrace other functions: those with a failed first trace for the same arguments. Fallback:
    its `clear_cache`."""
    evictions = [
        _private.private("jax._src.interpreters.partial_eval", "trace_to_jaxpr", "evict_weakref"),
        _private.private("jax._src.pjit", "_infer_params_cached", "evict_weakref"),
    ]
    clear = _private.private_attribute(jitted, "_clear_cache")
    if None in evictions or clear is None or not hasattr(jitted, "_fun"):
        evictions, clear = [], _private.private_attribute(jitted, "clear_cache")
    if clear is not None:
        clear()
    for evict in evictions:
        evict(jitted._fun)


def concrete_mesh() -> Any:
    """Returns the mesh of ``jax.set_mesh``, even in a trace, or None. Fallback: None."""
    get = _private.private("jax._src.mesh", "get_concrete_mesh")
    mesh = None if get is None else get()
    # Before JAX 0.7.2, None or a tuple means no mesh.
    return mesh if isinstance(mesh, jax.sharding.Mesh) and not mesh.empty else None


def abstract_mesh() -> Any:
    """Returns the abstract mesh of ``jax.set_mesh`` or of the current trace. Fallback: None."""
    get = getattr(jax.sharding, "get_abstract_mesh", None)
    return None if get is None else get()  # since JAX 0.5.3


def typeof(x: Any) -> Any:
    """Like ``jax.typeof``, but accepts an aval."""
    if isinstance(x, jax.core.AbstractValue):
        return x
    if hasattr(jax, "typeof"):  # JAX 0.5.3 and newer
        return jax.typeof(x)
    return x.aval if isinstance(x, jax.core.Tracer) else jax.api_util.shaped_abstractify(x)


# ``jax.enable_x64``, available since JAX 0.8.2.
enable_x64: Callable[[bool], AbstractContextManager[None]]
enable_x64 = (jax if hasattr(jax, "enable_x64") else jax.experimental).enable_x64


def is_top_level() -> bool:
    """True if this thread isn't tracing."""
    if (get_mesh := getattr(jax.sharding, "get_mesh", None)) is None:  # JAX 0.8.2 and newer have it
        return bool(_private.private("jax._src.core", "trace_state_clean")())
    try:
        get_mesh()
    except ValueError:
        return False
    return True


_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILED = "/jax/core/compile/backend_compile_duration"


def listen_to_begins(listener: Callable[..., None]) -> None:
    """Calls `listener` with an event, a number and `fun_name` when JAX begins to trace, lower or
    compile. Before JAX 0.6.2, only between lowering and compiling."""
    register = getattr(jax.monitoring, "register_scalar_listener", None)
    if register is not None:
        register(listener)
        return

    def has_lowered(event: str, duration: float, **_: Any) -> None:
        if event == _LOWERED:
            caller = sys._getframe(2).f_locals  # of `dispatch.log_elapsed_time`
            name = caller.get("fun_name") or getattr(caller.get("self"), "fun_name", "")
            listener(_COMPILED, fun_name=name)

    jax.monitoring.register_event_duration_secs_listener(has_lowered)


def coordination_client() -> Any:
    """Returns the client of the coordination service of ``jax.distributed``. Fallback: None, and
    processes don't compare programs."""
    return _private.private("jax._src.distributed", "global_state", "client")


def is_committed(x: Any) -> bool:
    """True if an array is committed to its devices. Fallback: False."""
    return bool(getattr(x, "committed", False))


def jit_options(x: Any) -> tuple[Any, ...] | None:
    """Returns the options of a ``jax.jit`` function that affect its program, or None for other
    objects. Fallback: None, and programs of these functions aren't kept."""
    info = getattr(x, "_jit_info", None) if isinstance(x, type(jit(len))) else None
    names = (
        *("static_argnums", "static_argnames", "donate_argnums", "keep_unused", "inline"),
        *("device", "backend", "compiler_options_kvs"),
    )
    shardings = ("in_shardings_leaves", "out_shardings_leaves")
    if info is None:
        return None
    placed = (x for k in shardings for x in getattr(info, k))
    options = (getattr(info, k, None) for k in names)
    return *options, *[None if is_unspecified(x) else x for x in placed]


def settings() -> Callable[[], AbstractContextManager[None]]:
    """Returns a function that returns a context in which JAX's settings and mesh are those of now.

    Fallback: a context that changes only the settings that it can tell.
    """
    states = _states()
    contexts = [
        _private.private("jax._src.mesh", "abstract_mesh_context_manager"),
        _private.private("jax._src.mesh", "device_context"),
        _private.private("jax._src.config", "abstract_mesh_context_manager"),
        _private.private("jax._src.config", "device_context"),
        _private.private("jax._src.config", "mesh_context_manager"),
    ]
    found = [(x, x.value) for x in (*states.values(), *contexts) if x is not None]

    @contextlib.contextmanager
    def again() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for setting, value in found:
                if setting.value == value:
                    continue
                if setting in contexts:
                    stack.callback(setting.set_local, setting.swap_local(value))
                else:
                    stack.enter_context(setting(value))
            yield

    return again


def no_mesh() -> AbstractContextManager[Any]:
    """Returns a context without the mesh of ``jax.set_mesh``. Fallback: like `concrete_mesh`."""
    if concrete_mesh() is None:
        return contextlib.nullcontext()
    without: AbstractContextManager[Any]
    without = jax.set_mesh(_private.private("jax._src.mesh", "empty_concrete_mesh"))
    return without


# Operations that define the placement of their result.
_MOVES = ("device_put", "reshard", "sharding_constraint")


def is_moved(x: Any, result: Any) -> bool:
    """Returns whether a trace says that its result is elsewhere than the argument `x`, or says
    itself where it is; both are tracers.

    Fallback: only whether their types say so.
    """
    of, to = typeof(x), typeof(result)
    for names in (("sharding", "spec"), ("memory_space",)):
        if _private.private_attribute(of, *names) != _private.private_attribute(to, *names):
            return True
    equation = getattr(result, "parent", None)
    return equation is not None and _is_moved_by(equation, getattr(result, "val", None))


def _is_moved_by(equation: Any, variable: Any) -> bool:
    name, params = equation.primitive.name, equation.params
    if name in _MOVES:
        return True
    index = next((i for i, out in enumerate(equation.outvars) if out is variable), None)
    if index is None or name not in ("jit", "pjit"):
        return False
    if isinstance(params["out_shardings"][index], jax.sharding.Sharding):
        return True
    inner = _private.private_attribute(params["jaxpr"], "jaxpr") or params["jaxpr"]
    result = inner.outvars[index]
    return any(_is_moved_by(e, result) for e in inner.eqns if any(v is result for v in e.outvars))


def spec_of(aval: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    weak = bool(getattr(aval, "weak_type", False))
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=weak)


# ---- conversions of NumPy arrays ----

_canonicalize = _private.private("jax._src.dtypes", "canonicalize_value")


def _conversion(x: np.ndarray[Any, Any]) -> Any:
    """Returns JAX's conversion of an array, making one if needed. Fallback: the constant of a
    program."""
    if _canonicalize is not None:
        return _canonicalize(x)
    closed = jax.make_jaxpr(lambda: x)()
    return closed.consts[0] if closed.consts else closed.jaxpr.outvars[0].val


@functools.cache
def _drop_conversion() -> Callable[[Any], object] | None:
    """Returns the callback of JAX's weak references to arrays, which drops a conversion when the
    array dies, given the reference. Fallback: None."""
    x = np.zeros(1)
    kept = _conversion(x)
    found = [reference.__callback__ for reference in weakref.getweakrefs(x)]
    del kept
    return found[0] if len(found) == 1 else None


def convert_again(x: np.ndarray[Any, Any]) -> None:
    """Makes JAX convert a NumPy array once more if it has changed since its conversion.

    JAX converts a 64-bit array to 32 bits once, by identity, and keeps the copy while a program
    holds it.

    Fallback: copies the current values into it. If an older program is lowered later, it has them
    too.
    """
    if not weakref.getweakrefcount(x):
        return  # JAX has no conversion
    with np.errstate(all="ignore"):  # for casts to 32 bits
        try:
            kept = _conversion(x)
        except (TypeError, ValueError):
            return  # no program can contain it
        if not isinstance(kept, np.ndarray) or _is_current(kept, x):
            return
        drop = _drop_conversion()
        for reference in weakref.getweakrefs(x):
            if drop is not None and reference.__callback__ is drop:
                drop(reference)
        if _conversion(x) is kept:
            np.copyto(kept, x, casting="unsafe")


def _is_current(kept: np.ndarray[Any, Any], x: np.ndarray[Any, Any]) -> bool:
    if kept.dtype != jax.dtypes.canonicalize_dtype(x.dtype):
        return False  # jax_enable_x64 has changed
    if np.may_share_memory(kept, x):
        return True
    return bool(np.asarray(x).astype(kept.dtype).tobytes() == kept.tobytes())
