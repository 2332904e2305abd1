"""The private names of JAX for direct calls (csrc/call/direct.c).

Fallback: if one is missing or has changed, calls aren't direct: `context_parts` returns None, or
`plan_of` says why.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import numpy as np

from . import _private
from ._jax_compat import ARRAY_IMPL, DEVICE_CONTEXT, KEY_TYPE

ARRAYS_A_PUT = 10  # checking these saves as much time as copying one value to the device takes


def context_parts() -> dict[str, Any] | None:
    """Returns the arguments of ``_core.DirectContext`` except `plan`, or None."""
    layout: Any = _getter(ARRAY_IMPL, "_pjrt_layout")
    value: Any = _getter(_private.private("jax._src.config", "config_ext", "Config"), "value")
    functions = {
        "get_aval": _getter(ARRAY_IMPL, "aval"),
        "get_sharding": _getter(ARRAY_IMPL, "_sharding"),
        "get_committed": _getter(ARRAY_IMPL, "_committed"),
        "get_layout": layout and _of_living(layout),
        "is_deleted": getattr(ARRAY_IMPL, "is_deleted", None),
        "put": _private.private("jaxlib._jax", "batched_device_put"),
        "configuration": _private.private("jax._src.config", "trace_context"),
        "get_setting": value,
        "is_profiled": _private.private("jaxlib._profiler", "TraceMe", "is_enabled"),
        "collect": _private.private("jaxlib._jax", "collect_garbage"),
        "make_arrays": _private.private("jaxlib._jax", "ExecuteResults", "consume_with_handlers"),
    }
    # JAX's key of a call: the configuration that a trace depends on, the trace state, the devices
    # of `jax.set_mesh`; and the hook of `jax_debug_nans`.
    settings = (
        # The second name is for JAX before 0.10.1.
        _private.private("jax._src.core", "trace_state")
        or _private.private("jax._src.config", "trace_state"),
        DEVICE_CONTEXT,
        *_checks_of_results(),
    )
    disable, x64 = (_private.private("jax._src.config", x) for x in ("disable_jit", "enable_x64"))
    if not (
        all(map(callable, functions.values()))
        and all(_is_setting(value, x) for x in (*settings, disable))
        and all(_is_followed(functions["configuration"], x) for x in (disable, x64))
    ):
        return None
    return functions | {
        "array_type": ARRAY_IMPL,
        "key_type": KEY_TYPE or type(None),  # arguments are never None
        "get_data": operator.attrgetter("_base_array"),
        "get_impl": operator.attrgetter("_impl"),
        "host_array": np.ndarray,
        "host_scalar": np.generic,
        "settings": settings,
        "is_disabled": functools.partial(value, disable),
    }


def _of_living(layout: Any) -> Callable[[Any], Any]:
    """Returns a getter for an array's layout that raises if the array was deleted."""
    if jax.__version_info__ >= (0, 12):
        return cast(Callable[[Any], Any], layout)

    def layout_of(x: Any) -> Any:  # before JAX 0.12, JAX's own getter would crash
        if x.is_deleted():
            raise RuntimeError("the array was deleted")
        return layout(x)

    return layout_of


def _getter(cls: Any, name: str) -> Callable[[Any], Any] | None:
    """Returns the getter of a property of a jaxlib class."""
    for base in getattr(cls, "__mro__", ()):
        found = vars(base).get(name)
        if found is not None:
            return getattr(found, "fget", None) if isinstance(found, property) else None
    return None


def _is_setting(value: Any, setting: Any) -> bool:
    try:
        value(setting)
    except Exception:
        return False
    return True


def _is_followed(configuration: Any, setting: Any) -> bool:
    """True if a trace's configuration depends on a boolean setting."""
    before = configuration()
    try:
        local = setting.swap_local(not setting.value)
    except Exception:
        return False
    try:
        return bool(configuration() != before)
    finally:
        setting.set_local(local)


def _checks_of_results() -> tuple[Any, ...]:
    """Returns the settings that make JAX check results."""
    hook = _private.private("jax._src.api", "_post_hook_state")
    if hook is not None:
        return (hook,)
    names = ("debug_nans", "debug_infs")  # before JAX 0.8.2, whose hook isn't a setting
    return tuple(_private.private("jax._src.config", name) for name in names)


def plan_of(
    source: Any, arrays: Sequence[Any], output_type: type, must_pay: bool = True
) -> dict[str, Any] | str:
    """Returns the plan of a call, or the reason for having none (``#3`` means the path of array 3).

    `source` is a ``jax.jit`` that has run with `arrays`, or a ``jax.stages.Compiled`` for them or
    for specs with shardings. ``fj_direct_entry_set_plan`` in csrc/call/direct_entry.h describes
    plans. With `must_pay`, calls that ``jax.jit`` makes faster have no plan.
    """
    if not _private.private("jax._src.core", "trace_state_clean")():
        return "the call is being traced"
    if any(setting.value for setting in _checks_of_results()):
        return "jax_debug_nans or jax_debug_infs is set"
    if _private.private("jax._src.config", "debug_key_reuse").value:
        return "jax_debug_key_reuse is set"
    if isinstance(source, jax.stages.Compiled):
        executable = source._executable
        constants = _private.private_attribute(source, "_params", "const_args") or ()
        tree = source.out_tree
    else:
        lowered = source.trace(*arrays).lower()
        executable = lowered._lowering._executable
        constants = lowered._lowering.const_args
        tree = lowered.out_tree
    if type(executable) is not _private.private("jax._src.interpreters.pxla", "MeshExecutable"):
        return "JAX keeps no executable of the program"
    run = executable.unsafe_call
    if type(run) is not _private.private("jax._src.interpreters.pxla", "ExecuteReplicated"):
        return "JAX does not run the program as one executable"
    if run.ordered_effects or run.has_unordered_effects or run.has_host_callbacks:
        return "the program has effects or callbacks"
    if run.mut is not None:
        return "the program changes a Ref"
    if run.pgle_profiler is not None:
        return "JAX profiles the program for its compiler (jax_enable_pgle)"
    if any(layout is not None for layout in executable._dispatch_in_layouts):
        return "the program asks for layouts of its arguments"
    if constants:
        constants = executable.shard_const_args(constants)
    shardings = list(executable._in_shardings)[len(constants) :]
    read = [len(constants) + i in run.kept_var_idx for i in range(len(arrays))]
    if not all(i in run.kept_var_idx for i in range(len(constants))) or len(shardings) != sum(read):
        return "the program's arguments are not known"
    key_type: Any = KEY_TYPE
    data: list[Any] = [x._base_array if type(x) is key_type else x for x in arrays]
    physical = _private.private("jax._src.sharding_impls", "physical_sharding")
    avals = executable.in_avals[len(constants) :]
    devices = run.xla_executable.local_devices()
    puts = []
    numbers = [i for i, r in enumerate(read) if r]
    for i, sharding, aval in zip(numbers, shardings, avals, strict=True):
        x, y = arrays[i], data[i]
        if type(y) is ARRAY_IMPL or isinstance(y, jax.ShapeDtypeStruct):
            if not _is_in_place(y, sharding if x is y else physical(aval, sharding)):
                return f"JAX moves `#{i}` to other devices at each call: `jax.device_put` it there once"
        elif not _can_put(y, aval, sharding):
            return f"`#{i}` isn't a JAX array, and can't simply be copied to one device: `jax.device_put` it once"
        else:
            on = jax.sharding.SingleDeviceSharding(devices[0])
            puts.append((aval, on, devices))
    node = tree.node_data()
    if node is None or node[0] is not output_type or type(node[1]) is not int:
        return "the program's result is not known"
    if must_pay and ARRAYS_A_PUT * len(puts) > len(numbers):
        return "there are too few JAX arrays per NumPy array or number, which every call copies: convert values that never change to JAX arrays, once"
    has_layouts = devices[0].platform not in ("cpu", "gpu", "cuda", "rocm")
    flags = bytes(
        r | (has_layouts or np.ndim(x) > 1) << 1 for x, r in zip(data, read, strict=True)
    )  # without tiling, an array of rank 1 has a single layout
    return {
        "execute": run.xla_executable.execute_sharded,
        "handlers": list(run.out_handler.handlers),
        "constants": tuple(constants),
        "flags": flags,
        "trace": node[1],
        "checks_deleted": not all(s.is_fully_addressable for s in shardings),
        "puts": tuple(puts),
    }


def _can_put(x: Any, aval: Any, sharding: Any) -> bool:
    """True if the program accepts a copy of the value in the host's memory."""
    dtype = getattr(x, "dtype", None)
    return (
        len(sharding.device_set) == 1
        and sharding.memory_kind in (None, next(iter(sharding.device_set)).default_memory().kind)
        and (
            dtype is None or (dtype.isnative and jax.dtypes.canonicalize_dtype(dtype) == aval.dtype)
        )
    )


def _is_in_place(x: Any, sharding: Any) -> bool:
    """True if a program accepts an array without moving it."""
    if not getattr(x, "_committed", True) and len(x.sharding.device_set) > 1:
        return False
    return bool(
        x.sharding._device_assignment == sharding._device_assignment
        and x.sharding.is_equivalent_to(sharding, x.ndim)
        and x.sharding.memory_kind == sharding.memory_kind
    )
