"""All private names of JAX and Equinox that filterjit uses, each with a fallback.

If a version of JAX or Equinox lacks a name, filterjit is slower or its messages say less, but its
results are the same.
"""

import contextlib
import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, MutableSet, Sequence
from contextlib import AbstractContextManager
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import jax
import numpy as np


def private(module: str, *names: str) -> Any:
    """Returns ``module.names[0].names[1]...``, or None if there is no such object."""
    try:
        found = __import__(module, fromlist=["_"])
        for name in names:
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return None
    return found


# The types that equinox.is_array accepts: arrays of NumPy and JAX, and JAX's typed literals (since
# JAX 0.7.2). Fallback: without the literals, which then are static, as they are in Equinox.
_LITERALS = (
    private("jax._src.literals", "LiteralArray"),
    private("jax._src.literals", "TypedNdArray"),
)
ARRAY_TYPES: tuple[type, ...] = (np.ndarray, np.generic, jax.Array, *filter(None, _LITERALS))

# The type of nearly all arrays, which the C core compares with first. It is not taken from an
# array, because creating one at import starts JAX's backends, after which some of JAX's options
# cannot be set. Fallback: any type of array; the C core looks up all others.
ARRAY_IMPL: type = private("jax._src.array", "ArrayImpl") or np.ndarray


# The type of typed random keys (``jax.random.key``), which wrap an array. Fallback: None, and calls
# with them are not direct, and those of `filterjit.nnx.jit` are handed over.
KEY_TYPE: type | None = private("jax._src.random.prng", "PRNGKeyArray") or private(
    "jax._src.prng", "PRNGKeyArray"
)


# Types of statics that JAX never changes: a value always equals itself. Fallback: without those that
# a version lacks, whose values are then compared by their ``==`` on each call.
IMMUTABLE_TYPES: frozenset[type] = frozenset(
    found
    for found in (
        private("jax.numpy", "ufunc"),
        private("jax.sharding", "PartitionSpec"),
        private("jax.sharding", "NamedSharding"),
        private("jax.sharding", "SingleDeviceSharding"),
        private("jax.sharding", "Mesh"),
    )
    if isinstance(found, type)
)


# The name of the logger to which JAX logs the error of a callback. Fallback: if it has another name,
# the error is logged as well as raised.
CALLBACK_LOGGER = "jax._src.callback"


def is_unspecified(x: Any) -> bool:
    """Whether `x` is what ``jax.jit`` has for shardings that are not given.

    Fallback: only None is.
    """
    unspecified = private("jax._src.sharding_impls", "UnspecifiedValue")
    return x is None or (unspecified is not None and isinstance(x, unspecified))


@functools.cache
def resolves_negative_argnums() -> bool:
    """Whether ``jax.jit`` counts a negative number from the end of the parameters, and not from
    the end of what a call passes.

    Fallback: False, and calls of functions with such numbers are handed over.
    """
    jitted = jax.jit(lambda a, b: a, static_argnums=-1)
    return bool(private_attribute(jitted, "_jit_info", "static_argnums") == (1,))


def hide_from_tracebacks(file: str) -> None:
    """Makes JAX omit the frames of `file` from the tracebacks that it shows.

    Fallback: the frames are shown.
    """
    register = private("jax._src.traceback_util", "register_exclusion")
    if register is not None:
        register(file)


def name_arguments(flat: Any, name: str, code: CodeType | None, paths: Sequence[str]) -> None:
    """Tells JAX of which function and of which arguments it speaks in errors that the trace of a
    function `flat` raises: the name and the code of the user's function, and a path for each array.

    Fallback: JAX names the parameters and the line of `flat` itself.
    """
    debug_info = private("jax._src.core", "DebugInfo")
    unknown = private("jax._src.core", "initial_result_paths")
    if debug_info is None or unknown is None:
        return
    place = "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}"
    # A later version may have other fields, or read another attribute.
    with contextlib.suppress(TypeError):
        flat.__fun_debug_info__ = debug_info("jit", name + place, tuple(paths), unknown)


def jit_call_under_way() -> tuple[Any, tuple[Any, ...]] | None:
    """Returns the function and the arguments of the innermost call of a ``jax.jit`` in this thread that
    has not found its program, which JAX compiles then.

    Fallback: None, and what was compiled without a trace is known by the name of the function only.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "cache_miss" and frame.f_globals.get("__name__") == _PJIT:
            fun, args = frame.f_locals.get("fun"), frame.f_locals.get("args")
            return None if fun is None or not isinstance(args, tuple) else (fun, args)
        frame = frame.f_back
    return None


_PJIT = "jax._src.pjit"


def registered_dataclass_fields(
    cls: type,
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Returns the names of the data and meta fields of a class that was registered by
    ``jax.tree_util.register_dataclass``; None for other classes.

    Fallback: None, and the class is handled by its registered functions.
    """
    flatten: Any = registered_flatten(cls)
    # The function is JAX's own, and it closes over nothing but names: it reads the attributes of
    # these names, in two groups, and runs no code of the user's.
    jax_globals = private("jax._src.tree_util", "__dict__")
    if not isinstance(flatten, FunctionType) or flatten.__globals__ is not jax_globals:
        return None
    try:
        closure = [cell.cell_contents for cell in flatten.__closure__ or ()]
        if not closure or not all(map(_are_names, closure)):
            return None
        data, meta = flatten(_NamesOfAttributes())
    except Exception:
        return None
    return (tuple(data), tuple(meta)) if _are_names(data) and _are_names(meta) else None


class _NamesOfAttributes:
    """An object whose attributes are their names."""

    def __getattribute__(self, name: str) -> str:
        return name


def _are_names(x: Any) -> bool:
    return isinstance(x, (tuple, list)) and all(isinstance(name, str) for name in x)


def registered_flatten(cls: type) -> Callable[[Any], Any] | None:
    """Returns the function ``node -> (children, aux data)`` that a class was registered with.

    Fallback: None, and nodes are flattened by `flatten_one_level`.
    """
    registry = private("jax._src.tree_util", "_registry")
    flatten: Any = getattr(registry.get(cls), "to_iter", None) if registry else None
    return flatten if callable(flatten) else None


def registered_unflatten(cls: type) -> Callable[[Any, Any], Any] | None:
    """Returns the function ``(aux data, children) -> node`` that a class was registered with.

    Fallback: None, and nodes are rebuilt by a treedef.
    """
    registry = private("jax._src.tree_util", "_registry")
    unflatten: Any = getattr(registry.get(cls), "from_iter", None) if registry else None
    return unflatten if callable(unflatten) else None


def registered_code(cls: type) -> list[CodeType]:
    """Returns the code of the functions that a class of pytrees was registered with."""
    found = [registered_flatten(cls), registered_unflatten(cls)]
    functions = [getattr(f, "func", f) for f in found]  # of Modules, one is a functools.partial
    return [f.__code__ for f in functions if isinstance(f, FunctionType)]


def generated_for(code: CodeType, variables: dict[str, Any]) -> type | None:
    """Returns the Module for which Equinox has made a function, from the names of its fields.

    Arguments:
        code: of the function.
        variables: its globals.

    Fallback: None.
    """
    if "__name__" in variables or not code.co_filename.startswith("<generated_"):
        return None
    cls = variables.get("module_cls")
    if isinstance(cls, type):
        return cls
    classes = list(private("jax._src.tree_util", "_registry") or ())
    return next((cls for cls in classes if code in registered_code(cls)), None)


class _RegisteredStatic:
    """A class that is registered by ``jax.tree_util.register_static``."""


jax.tree_util.register_static(_RegisteredStatic)


def is_registered_static(cls: type) -> bool:
    """Whether a class was registered by ``jax.tree_util.register_static``: the functions are those
    of JAX, which know nothing of the class.

    Fallback: False, and the function is called for each instance.
    """
    functions = [
        [getattr(f, "__code__", None) for f in (registered_flatten(c), registered_unflatten(c))]
        for c in (cls, _RegisteredStatic)
    ]
    return None not in functions[0] and functions[0] == functions[1]


def equinox() -> ModuleType | None:
    """Returns the module ``equinox`` if the program has imported it, otherwise None."""
    return sys.modules.get("equinox")


def module_details() -> tuple[Any, tuple[str, ...]] | None:
    """Returns Equinox's sentinel for a field that is not set, and the names of the attributes
    that a Module has if it wraps a function.

    Fallback: None, and Modules are handled by their registered functions.
    """
    missing = private("equinox._module._flatten", "MISSING")
    names = private("equinox._module._flatten", "WRAPPER_FIELD_NAMES")
    return None if missing is None or names is None else (missing, tuple(names))


def module_getattribute() -> FunctionType | None:
    """Returns the ``__getattribute__`` of equinox.Module.

    Fallback: None, and the C core does not replace it, so that looking up methods is slower.
    """
    module = getattr(equinox(), "Module", None)
    found = getattr(module, "__dict__", {}).get("__getattribute__")
    return found if isinstance(found, FunctionType) else None


JaxRuntimeError: type[Exception] = (
    getattr(jax.errors, "JaxRuntimeError", None)
    or private("jaxlib.xla_extension", "XlaRuntimeError")
    or RuntimeError
)


def equinox_runtime_error(exception: Exception, jit_id: bytes) -> Exception | None:
    """Returns the error that ``equinox.filter_jit`` raises when a program raises `exception`.

    `jit_id` is the value of the local variable ``__equinox_jit_id__`` in the frame of the jitted
    function. Returns None if the exception does not come from ``eqx.error_if``.

    Fallback: None, and JAX's own error is raised, which contains the message too.
    """
    if "_EquinoxRuntimeError: " not in str(exception):
        return None
    info = private("equinox._jit", "last_error_info")
    message = private("equinox._jit", "_on_error_msg")
    error = private("equinox", "EquinoxRuntimeError")
    if info is None or message is None or error is None:
        return None
    text, stack = info
    inside: list[str] = []
    for piece in stack:
        if piece == jit_id:
            break
        if isinstance(piece, str):
            inside.append(piece)
    found: Exception = error(message.format(msg=text, stack="".join(reversed(inside))))
    return found


def compiled_call(compiled: Any, check: Callable[[tuple[Any, ...]], None] | None = None) -> Any:
    """Returns the C++ callable that runs a ``jax.stages.Compiled``.

    `check` is called with the arguments of each call that is not like an earlier one: in its avals,
    its placements or JAX's configuration. What it raises is raised.

    Fallback: `compiled` itself, which calls it from Python.
    """
    create = private_attribute(compiled, "_executable", "create_cpp_call")
    parameters = getattr(compiled, "_params", None)
    call = None
    if check is not None:
        executable = getattr(parameters, "executable", None)
        if create is None or not isinstance(parameters, tuple) or executable is None:
            return _checked(compiled, check)
        first = len(getattr(parameters, "const_args", None) or ())
        parameters = parameters._replace(executable=_Checked(executable, check, first))  # type: ignore[attr-defined]
    if create is not None:
        try:
            if isinstance(parameters, tuple):
                call = create(parameters)
            else:  # older versions of JAX
                call = create(compiled._no_kwargs, compiled.in_tree, compiled.out_tree)
        except (AttributeError, TypeError):
            pass
    return compiled if call is None else call


class _Checked:
    """An executable of JAX's whose calls are checked; `first` is the number of constants."""

    def __init__(
        self, executable: Any, check: Callable[[tuple[Any, ...]], None], first: int
    ) -> None:
        self._executable, self._check, self._first = executable, check, first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executable, name)

    def call(self, *arguments: Any) -> Any:
        self._check(arguments[self._first :])
        return self._executable.call(*arguments)


def _checked(call: Any, check: Callable[[tuple[Any, ...]], None]) -> Callable[..., Any]:
    def checked(*arguments: Any) -> Any:
        check(arguments)
        return call(*arguments)

    return checked


_trace_context = private("jax._src.config", "trace_context")
_device_context = private("jax._src.mesh", "device_context") or private(
    "jax._src.config", "device_context"
)


def trace_context() -> Any:
    """Returns what a program depends on besides its arguments, to be hashed and compared: JAX's
    configuration and the mesh. Fallback: None."""
    if _trace_context is None or _device_context is None:
        return None
    return _trace_context(), _device_context.value


# Settings of JAX by whose names nothing but messages and files depends on them.
_NO_MATTER = (
    "jax_compilation_cache", "jax_persistent_cache", "jax_enable_compilation_cache", "jax_log",
    "jax_explain", "jax_dump", "jax_traceback", "jax_raise_persistent", "jax_debug_log",
    "jax_check_tracer_leaks", "axis_env_state",
)  # fmt: skip


def settings_by_name() -> list[tuple[str, Any]] | None:
    """Returns JAX's settings that a program may depend on, with the mesh, by their names.

    Fallback: None.
    """
    names = private("jax._src.config", "trace_context_names")
    states = private("jax._src.config", "config_states")
    context = trace_context()
    if context is None or not states:
        return None
    values = context[0]
    try:
        keys = names()
    except Exception:  # older versions
        keys = [f"setting {i}" for i in range(len(values))]
    axes = private("jax._src.core", "AxisEnv") or ()
    found = [(k, v) for k, v in zip(keys, values, strict=True) if not isinstance(v, axes)]
    found += [(name, state.value) for name, state in states.items()]
    found.append(("devices", context[1]))
    return [(k, v) for k, v in found if not k.startswith(_NO_MATTER)]


def order_of_layout(x: Any) -> tuple[int, ...] | None:
    """Returns the order of the dimensions of an array in memory. Fallback: None."""
    order = private_attribute(x, "format", "layout", "major_to_minor")
    return None if order is None else tuple(order)


def signatures_of(jitted: Any) -> int | None:
    """Returns how many kinds of arrays a ``jax.jit`` has been called with: their avals, their
    shardings, and whether they are committed.

    Fallback: None, and reports may name arrays that were copied in the first call only.
    """
    size = private_attribute(jitted, "_cache_size")
    return None if size is None else int(size())


def jaxlib_version() -> str:
    """Returns the version of jaxlib. Fallback: the version of JAX."""
    return str(private("jaxlib", "__version__") or jax.__version__)


def layout_type() -> Any:
    """Returns the class of an array's layout: ``(major_to_minor, tiling, sub-byte bits)``.

    Fallback: None, and saved executables cannot be loaded.
    """
    # Versions of JAX that have a DeviceLocalLayout have another class by the name Layout.
    older = private("jax.experimental.layout", "DeviceLocalLayout")
    return older or private("jax.experimental.layout", "Layout")


def executable_parts(compiled: Any) -> dict[str, Any] | None:
    """Returns the fields of the object from which JAX builds a ``jax.stages.Compiled``.

    Fallback: None, and executables cannot be saved.
    """
    unloaded = private_attribute(compiled, "_executable", "_unloaded_executable")
    if type(unloaded) is not _unloaded_type():
        return None
    return {field.name: getattr(unloaded, field.name) for field in dataclasses.fields(unloaded)}


def executable_constants(compiled: Any) -> list[Any]:
    """Returns the arrays that JAX passes to a program before the arguments, which are its large
    constants with the option ``jax_use_simplified_jaxpr_constants``.

    Fallback: none, as in versions of JAX that always store constants in the executable.
    """
    return list(private_attribute(compiled, "_params", "const_args") or ())


def _unloaded_type() -> Any:
    found = private("jax._src.interpreters.pxla", "UnloadedMeshExecutable")
    return found if dataclasses.is_dataclass(found) else None


def serialize_executable(client: Any, executable: Any) -> bytes:
    """Returns an executable as XLA serializes it."""
    serialize = getattr(executable, "serialize", None)
    data: bytes = client.serialize_executable(executable) if serialize is None else serialize()
    return data


def load_executable(
    data: bytes,
    devices: Sequence[Any],
    moved: bool,
    parts: dict[str, Any],
    constants: Sequence[Any],
    args_info: Any,
    out_tree: Any,
) -> Any:
    """Builds a ``jax.stages.Compiled`` from an executable that `serialize_executable` returned.

    `parts` are those of `executable_parts`; the executable, the backend and the devices among
    them are replaced. `moved` is whether it was compiled for other devices than `devices`.
    `constants` are those of `executable_constants`.

    Fallback: None, and saved executables cannot be loaded.
    """
    unloaded_type = _unloaded_type()
    device_list = private("jax._src.lib", "xla_client", "DeviceList")
    if unloaded_type is None or device_list is None:
        return None
    on = device_list(tuple(devices))
    client = devices[0].client
    options = inspect.signature(jax.stages.Compiled).parameters
    assigned: dict[str, Any] = {}
    if moved:  # XLA would run it on the devices that it was compiled for
        make_options = private("jax._src.compiler", "get_compile_options")
        if make_options is None:
            return None
        assignment = {"num_partitions": len(devices), "device_assignment": [list(devices)]}
        assigned["compile_options"] = make_options(num_replicas=1, **assignment)
    try:
        executable = client.deserialize_executable(data, executable_devices=on, **assigned)
    except TypeError:  # older versions of jaxlib
        if moved:
            return None
        executable = client.deserialize_executable(data)
    parts = {
        **parts,
        "xla_executable": executable,
        "backend": client,
        "device_list": on,
        "device_assignment": on,
    }
    names = {field.name for field in dataclasses.fields(unloaded_type)}
    takes_constants = "const_args" in options
    if not names <= parts.keys() or (constants and not takes_constants):
        return None
    loaded = unloaded_type(**{name: parts[name] for name in names}).load()
    first = (list(constants),) if takes_constants else ()
    return jax.stages.Compiled(loaded, *first, args_info, out_tree, no_kwargs=True)


def private_attribute(x: Any, *names: str) -> Any:
    """Returns ``x.names[0].names[1]...``, or None if there is no such attribute."""
    for name in names:
        x = getattr(x, name, None)
    return x


def may_be_handed_back(x: Any) -> bool:
    """Returns whether a tracer is a result of a program within the trace, such as one of ``jit`` or
    ``scan``: a value that this takes and returns as it is comes back as another tracer.

    Fallback: True.
    """
    parameters = private_attribute(x, "parent", "params")
    # A scatter has an `update_jaxpr`, for two elements.
    return not isinstance(parameters, dict) or any(
        "jaxpr" in name and name != "update_jaxpr" for name in parameters
    )


def loaded(module: str, *names: str) -> Any:
    """Returns ``module.names[0].names[1]...`` if the module is imported and has it, else None."""
    return private_attribute(sys.modules.get(module), *names)


def raw_stack(equation: Any) -> tuple[Sequence[CodeType], Sequence[int]]:
    """Returns the frames that created an equation, the innermost first: their code objects, and
    the offsets in these.

    Fallback: two empty sequences.
    """
    traceback = stack_key(equation)
    frames = getattr(traceback, "raw_frames", None)
    return ((), ()) if frames is None else frames()


def stack_key(equation: Any) -> Any:
    """Returns a hashable value that is equal for equations with the same call stack."""
    return getattr(getattr(equation, "source_info", None), "traceback", None)


def clears_with_jax(clear: Callable[[], None]) -> bool:
    """Makes ``jax.clear_caches`` call a function, to which JAX holds a weak reference.

    Fallback: False, and it is not called. JAX's own caches are cleared, so filterjit's functions are
    traced again in any case, unless their calls are direct, which they then must not be.
    """
    register = private("jax._src.util", "register_cache")
    functions = private("jax._src.util", "cache_clearing_funs")  # in older versions
    if register is not None:
        clear.cache_clear = clear  # type: ignore[attr-defined]
        register(clear, "filterjit")
    elif isinstance(functions, MutableSet):
        functions.add(clear)
    else:
        return False
    return True


def equinox_cache_clears() -> list[Callable[[], object]] | None:
    """Returns the list of the functions that ``equinox.clear_caches`` calls. Fallback: None."""
    found = private("equinox._caches", "cache_clears") if equinox() is not None else None
    return found if isinstance(found, list) else None


def concrete_mesh() -> Any:
    """Returns the mesh of ``jax.set_mesh``, in a trace too, or None.

    Fallback: None.
    """
    get = private("jax._src.mesh", "get_concrete_mesh")
    mesh = None if get is None else get()
    return None if mesh is None or mesh.empty else mesh


def coordination_client() -> Any:
    """Returns the client of the coordination service of ``jax.distributed``.

    Fallback: None, and the programs of several processes are not compared.
    """
    return private("jax._src.distributed", "global_state", "client")


def is_committed(x: Any) -> bool:
    """Returns whether an array is committed to its devices. Fallback: it is not."""
    return bool(getattr(x, "committed", getattr(x, "_committed", False)))


def tiling_of(layout: Any) -> tuple[Any, int]:
    """Returns the tiling of a layout, and the bits of its elements where they are fewer than a byte.

    Fallback: no tiling, and 0 bits.
    """

    def read(name: str, default: Any) -> Any:
        return getattr(layout, name, getattr(layout, f"_{name}", default))

    return read("tiling", None) or (), read("sub_byte_element_size_in_bits", 0)


def jit_options(x: Any) -> tuple[str, ...] | None:
    """Returns texts of the options of a function of ``jax.jit`` that decide what it computes and
    where; None of others. Fallback: None, and two such functions that wrap the same one are
    described alike."""
    info = getattr(x, "_jit_info", None) if isinstance(x, type(jax.jit(len))) else None
    names = ("static_argnums", "static_argnames", "donate_argnums", "keep_unused", "inline")
    shardings = ("in_shardings_leaves", "out_shardings_leaves")
    return None if info is None else tuple(repr(getattr(info, k, None)) for k in names + shardings)


def aval(x: Any) -> Any:
    """Returns the aval of an array: its shape, dtype and weak type, as ``jax.jit`` traces it.

    Fallback: the array itself, which has a shape and a dtype.
    """
    typeof = getattr(jax, "typeof", None)
    return x if typeof is None else typeof(x)


def varying_axes(aval: Any) -> Any:
    """Returns the axes of a ``shard_map`` over which an array varies, to be compared.

    Fallback: None, as outside of a ``shard_map``.
    """
    return getattr(aval, "manual_axis_type", None) or getattr(aval, "vma", None)


def settings() -> Callable[[], AbstractContextManager[None]]:
    """Returns a function that returns a context in which JAX's settings and mesh are those of now.

    Fallback: a context that changes only the settings that it can tell.
    """
    states = private("jax._src.config", "config_states") or {}
    contexts = [
        private("jax._src.mesh", "abstract_mesh_context_manager"),
        private("jax._src.mesh", "device_context"),
        private("jax._src.config", "abstract_mesh_context_manager"),
        private("jax._src.config", "device_context"),
        private("jax._src.config", "mesh_context_manager"),
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
    """Returns a context without the mesh of ``jax.set_mesh``. Fallback: as `concrete_mesh`."""
    if concrete_mesh() is None:
        return contextlib.nullcontext()
    without: AbstractContextManager[Any]
    without = jax.set_mesh(private("jax._src.mesh", "empty_concrete_mesh"))
    return without


# Operations whose result is where they say.
_MOVES = ("device_put", "reshard", "sharding_constraint")


def is_moved(x: Any, result: Any) -> bool:
    """Returns whether a trace says that its result is elsewhere than the argument `x`, or says
    itself where it is; both are tracers.

    Fallback: only whether their types say so.
    """
    of, to = aval(x), aval(result)
    for names in (("sharding", "spec"), ("memory_space",)):
        if private_attribute(of, *names) != private_attribute(to, *names):
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
    inner = private_attribute(params["jaxpr"], "jaxpr") or params["jaxpr"]
    result = inner.outvars[index]
    return any(_is_moved_by(e, result) for e in inner.eqns if any(v is result for v in e.outvars))


def spec_of(aval: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    """Returns the ShapeDtypeStruct of an aval.

    Fallback: in older versions of JAX, it has no weak type.
    """
    options = {"sharding": sharding, "weak_type": bool(getattr(aval, "weak_type", False))}
    parameters = inspect.signature(jax.ShapeDtypeStruct).parameters
    options = {name: value for name, value in options.items() if name in parameters}
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, **options)


def flatten_one_level() -> Callable[[Any], Any]:
    """Returns JAX's function ``node -> (children, aux data)``, which returns None for a leaf."""
    function: Callable[[Any], Any] = jax.tree_util.default_registry.flatten_one_level
    return function


_WRAPPER_FIELDS = frozenset(
    {"_signature", "_cached", "filter_warning", "donate_first", "donate_rest"}
)
# The options of ``jax.jit`` that JAX records as fields of a jitted function.
_JIT_INFO = ("keep_unused", "inline", "device", "backend")


def equinox_wrapper_type() -> type | None:
    """Returns the class of the functions that ``equinox.filter_jit`` returns.

    Fallback: None if the class lacks an attribute that filterjit uses, and `install` changes
    nothing.
    """
    cls = private("equinox._jit", "_JitWrapper")
    fields = getattr(cls, "__dataclass_fields__", {})
    usable = (
        isinstance(cls, type)
        and fields.keys() >= _WRAPPER_FIELDS
        and isinstance(getattr(cls, "__wrapped__", None), property)
        and callable(getattr(cls, "lower", None))
    )
    return cls if usable else None


def equinox_wrapper_parts(wrapper: Any) -> tuple[Any, Any, str, dict[str, Any]] | None:
    """Returns the function, signature, `donate` and jitkwargs of one of Equinox's wrappers.

    Fallback: None if JAX does not record the jitkwargs, and the wrapper runs as it is.
    """
    info = getattr(wrapper._cached, "_jit_info", None)
    options = getattr(info, "compiler_options_kvs", None)
    if info is None or options is None or any(not hasattr(info, name) for name in _JIT_INFO):
        return None
    # JAX does not record the options as they were given: `inline` is a ``jax.Inline`` since 0.12.
    without_options: Any = jax.jit(lambda: None)
    default = without_options._jit_info
    jitkwargs = {
        name: getattr(info, name)
        for name in _JIT_INFO
        if getattr(info, name) != getattr(default, name)
    }
    if options:
        jitkwargs["compiler_options"] = dict(options)
    if not wrapper.donate_rest:
        donate = "none"
    else:
        donate = "all" if wrapper.filter_warning else "warn"
        donate += "" if wrapper.donate_first else "-except-first"
    return wrapper.__wrapped__, wrapper._signature, donate, jitkwargs
