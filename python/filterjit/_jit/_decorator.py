"""The decorator `filter_jit`."""

import functools
import inspect
import operator
import types
from collections.abc import Callable, Mapping, Set
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from jax.sharding import Mesh

from .._base import _errors
from .._base._checks import NOT_GIVEN, check_bool, known_options, one_of, option_names
from .._base._package import public
from .._base._rooms import import_room
from .._call._caches import MAXSIZE
from .._call._donation import Donation
from .._call._selection import TracedNumbers
from .._call._settings import OnRetrace, OptionsOfJax, Settings
from .._call._signature import inspect_signature
from .._compat import _jax_compat
from .._trees._filters import Filter
from ._filter_jit import NO_OPTIONS, FilterJit, make_filter_jit, own_options

_P = ParamSpec("_P")
_T = TypeVar("_T")
Names = tuple[str, ...] | list[str] | Set[str]  # excludes str
Donate = Literal["all", "all-except-first", "warn", "warn-except-first", "none"] | Names
Traced = Names | Mapping[str, bool | str | Filter]
Functions = Literal["identity", "structure"]


class _Options(OptionsOfJax, total=False):
    donate: Donate
    traced: Traced
    functions: Functions
    on_retrace: OnRetrace
    maxsize: int
    in_shardings: Any
    out_shardings: Any
    mesh: Mesh | None
    same_on_all_processes: bool | None


class _Decorator(Protocol):
    def __call__(self, fun: Callable[_P, _T], /) -> FilterJit[_P, _T]: ...


_DEFAULTS = ("none", (), "identity", None, MAXSIZE, None, None, None, None)
_FUNCTIONS = ("identity", "structure")
_BY_NAME = '`donate` names the parameters whose arrays are donated, as in `donate=("state",)`.'
_STATIC = (
    "leave it out: everything that isn't an array is static, Python numbers included. `filterjit.jit` takes it, "
    "as `jax.jit` does."
)
# Options of jax.jit that refer to arguments. The flat function JAX sees has different ones.
_REFUSED = {
    "static_argnums": _STATIC,
    "static_argnames": _STATIC,
    "donate_argnums": _BY_NAME,
    "donate_argnames": _BY_NAME,
}
# Options that jax.jit checks too late.
_JIT_OPTIONS: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("device", "one of `jax.devices()`", lambda x: not isinstance(x, str)),
    ("backend", "the name of a platform", lambda x: isinstance(x, str)),
    ("compiler_options", "a dict of options of XLA", lambda x: isinstance(x, Mapping)),
)
# Options of Equinox before version 0.10.
_DEPRECATED = ("default", "fn", "args", "kwargs", "out")


def _check_jitkwargs(jitkwargs: dict[str, Any]) -> None:
    """Raises ValueError or TypeError for options that ``jax.jit`` can't take."""
    for name in _DEPRECATED:
        if name in jitkwargs:
            raise ValueError(
                f"{name} is deprecated as of Equinox version 0.10.0. Please see the "
                "release notes on GitHub for details on how to upgrade:\n"
                "https://github.com/patrick-kidger/equinox/releases/tag/v0.10.0"
            )
    for name, instead in _REFUSED.items():
        if name in jitkwargs:
            raise ValueError(f"`filter_jit` has no `{name}`: {instead}")
    names = dict.fromkeys(option_names(filter_jit) + option_names(_jax_compat.jit))
    known_options("filter_jit", jitkwargs, [x for x in names if x not in _REFUSED], _REFUSED)
    check_bool("filter_jit(..., keep_unused=...)", jitkwargs.get("keep_unused", False))
    for name, expected, is_one in _JIT_OPTIONS:
        value = jitkwargs.get(name)
        if not (value is None or is_one(value)):
            raise TypeError(
                f"`filter_jit(..., {name}=...)` must be {expected} or None, not {value!r}."
            )


@overload
def filter_jit(fun: Callable[_P, _T], **options: Unpack[_Options]) -> FilterJit[_P, _T]: ...


@overload
def filter_jit(**options: Unpack[_Options]) -> _Decorator: ...


@public
def filter_jit(
    fun: Callable[_P, _T] = NOT_GIVEN,
    *,
    donate: Donate = "none",
    traced: Traced = (),
    functions: Functions = "identity",
    on_retrace: OnRetrace = None,
    maxsize: int = MAXSIZE,
    in_shardings: Any = None,
    out_shardings: Any = None,
    mesh: Mesh | None = None,
    same_on_all_processes: bool | None = None,
    **jitkwargs: Any,
) -> Any:
    """Compiles a function of pytrees with ``jax.jit``.

    A drop-in replacement for ``equinox.filter_jit``, with its dispatch in C.

    Arguments and results can be any pytrees. JAX and NumPy arrays in the arguments are traced.
    Everything else is static: Python numbers, strings, functions, a model's configuration. The
    function compiles once for each argument structure with its static values, and for each
    combination of array shapes and dtypes. The result can contain static values too.

    Static values are compared by type and value: ``1``, ``True`` and ``1.0`` are three different
    values, each with its own program. Objects are compared by their class's own ``__eq__`` and
    ``__hash__``, or by identity if it defines no ``__eq__``.

    Static leaves must be hashable. Static fields and aux data can hold unhashable values:
    containers, NumPy arrays, dataclasses and Modules are compared by contents there, other values
    by identity. `docs/statics.md` has all rules.

    The jitted function has methods:

    - ``f.explain(...)`` says why a call would compile again, ``f.report()`` how long calls took,
      and ``f.cache_info()`` how many calls were hits.
    - ``f.lower(...)``, ``f.trace(...)``, ``f.eval_shape(...)``, ``f.compile(...)`` and
      ``f.warm_up(...)`` trace or compile the function before the first call.

    Arguments:
        fun: any callable, even a pytree with arrays. If omitted, `filter_jit` returns a decorator.
        donate: the arrays whose memory the compiled program can reuse. The call deletes an array
            if it reuses its memory.

            - ``"none"``: no arrays.
            - ``"all"``: all arrays.
            - ``"all-except-first"``: all arrays except those in the first argument.
            - ``"warn"`` and ``"warn-except-first"``: the same two, with a warning.
            - a tuple of parameter names, such as ``("state", "cache")``, with a warning.

            JAX issues the warning if the program can't use the memory of a donated array.
        traced: Python numbers to trace, weakly typed, as in ``jax.jit``. Use it for numbers that
            change in each call.

            - a tuple of parameter names, such as ``("step_size",)``;
            - a dict from parameter names to True, to a path pattern or to a `Filter` made of path
              patterns, such as ``{"config": "**.lr"}``.
        functions: when two functions among the static values are equal. This includes lambdas,
            ``functools.partial`` and bound methods.

            - ``"identity"``: when they are the same object.
            - ``"structure"``: also when they are known to behave alike. Recreating a Module with
              the same lambdas doesn't recompile.

            ``"structure"`` requires the same code and globals, and equal defaults, closures and
            attributes. Each call notices changes inside containers, dataclasses, Modules, partials
            and functions among these.

            It ignores names that the code looks up, such as global variables and constants of a
            class, and changes inside other objects. A new function that holds such an object, for
            example a large NumPy array or an instance of an ordinary class, is always traced.
        on_retrace: what to do when the function compiles again.

            - ``"log"`` logs the reason to the logger ``"filterjit"``.
            - ``"warn"`` issues a `RetraceWarning`.
            - ``"raise"`` raises a `RetraceError`.
            - a function is called with the `Explanation`.
            - None, the default, issues a `RetraceWarning` once per cause, after it has compiled
              eight programs in a row, none of them called more than twice.
            - ``"ignore"`` does nothing.

            The first trace isn't a retrace, and neither are ``warm_up``, ``lower`` and ``trace``.
            After ``warm_up``, ``"raise"`` therefore forbids all compilation.
        maxsize: the number of combinations of static values to keep. Beyond it, the least recently
            used program is dropped.
        in_shardings: placements of the arguments: a dict from parameter names to values, a tuple
            of values by position, or one value for all parameters. A value is a sharding, a
            ``PartitionSpec``, None (leave it unchanged), `filterjit.sharding.ShardingRules`, or a
            prefix of the argument with these as leaves.

            As in ``jax.jit``, uncommitted arrays are moved there, and committed arrays must be
            there already (`filterjit.sharding.place`). Arrays in the function itself don't move.
        out_shardings: the placement of the result, as one such value. The compiler places arrays
            that the value leaves open, unless a donated array has the same shape and dtype, at the
            same place in its argument: the result then gets its sharding, and can reuse its memory.
        mesh: the mesh for each ``PartitionSpec``, by default the current one (``jax.set_mesh``).
            Each mesh has its own programs.
        same_on_all_processes: whether to compare the programs of several processes before they
            first run. By default, True for functions with shardings, otherwise False.

            The comparison covers lowered programs with all constants, shapes, shardings, donated
            arrays and options. Values may differ if the program doesn't. Functions that are only
            traced or lowered aren't compared.

            A difference raises a `ProcessMismatchError` on all processes, with the first line that
            differs. If only some processes fail to trace, they raise their own error, and the rest
            a `ProcessMismatchError`.
        jitkwargs: more options for ``jax.jit``.

    Returns:
        A `FilterJit` with the parameters of `fun`. Without `fun`, a decorator.

    Raises:
        ValueError: for an invalid option; for a name in `donate`, `traced` or `in_shardings` that
            isn't a parameter; or if `jitkwargs` has ``static_argnums``, ``static_argnames``,
            ``donate_argnums`` or ``donate_argnames``, which don't apply to pytrees. The first call
            raises it for a pattern in `traced` that matches no leaf, or a leaf other than a number
            or array.
        TypeError: if `fun` isn't callable, or is an async or generator function; if `donate`,
            `traced`, `in_shardings` or `mesh` has a wrong type; or for an option that ``jax.jit``
            doesn't know. The first trace raises it if `out_shardings` contains something else than
            shardings, or if the function returns a coroutine, a generator, or a static object that
            holds a tracer.

    Examples:
        >>> @filter_jit
        ... def scale(model, x, by):
        ...     return by * model(x)
        >>> model = eqx.nn.Linear(2, 1, key=jax.random.key(0))
        >>> y = scale(model, jnp.ones(2), 2)  # traces, compiles and runs
        >>> y = scale(model, jnp.ones(2), 2)  # a hit: runs
        >>> y = scale(model, jnp.ones(2), 3)  # another static value: traces, compiles and runs
        >>> scale.cache_info()[:2]
        (1, 2)
    """
    options = (
        donate, traced, functions, on_retrace, maxsize, in_shardings, out_shardings, mesh,
        same_on_all_processes,
    )  # fmt: skip
    if not jitkwargs and all(map(operator.is_, options, _DEFAULTS)):
        # Checks nothing, because some programs jit a lambda over and over, without options.
        return _jit(NO_OPTIONS, fun)
    if jitkwargs:
        _check_jitkwargs(jitkwargs)
    donation = Donation.of(donate)
    one_of("filter_jit(..., functions=...)", functions, _FUNCTIONS)
    check_bool("filter_jit(..., same_on_all_processes=...)", same_on_all_processes, or_none=True)
    own = own_options("filter_jit", on_retrace, maxsize)
    shardings = None
    if in_shardings is not None or out_shardings is not None or mesh is not None:
        options = import_room("_shardings._options", "`in_shardings`")
        shardings = options.Shardings(in_shardings, out_shardings, mesh)
    settings = Settings(
        **own,
        donate=donation,
        functions=functions,
        shardings=shardings,
        same_on_all_processes=same_on_all_processes,
        jitkwargs=tuple(jitkwargs.items()),
        traced=TracedNumbers.of(traced),
    )
    return _jit(settings, fun)


def _jit(settings: Settings, fun: Any, /) -> Any:
    if fun is NOT_GIVEN:
        return functools.partial(_jit, settings)
    if not callable(fun):
        above = (classmethod, property, functools.cached_property)
        raise TypeError(
            f"{_errors.short_repr(fun)} is not a callable object\n"  # this line is Equinox's
            + (
                f"Put `@{type(fun).__name__}` above `@filter_jit`."
                if isinstance(fun, above)
                else "`filter_jit` takes the function itself, and options by name, such as "
                '`donate="all"`.'
            )
        )
    if (kind := _kind_of_generator(fun)) is not None:
        raise _errors.nothing_to_trace(f"`filter_jit(fun)`: {_errors.short_repr(fun)} is {kind}")
    try:
        signature = inspect_signature(fun)
    except ValueError as e:
        e.add_note("(a function in Python that calls it has a signature)")
        raise
    return make_filter_jit(fun, settings, signature)


_RUN_LATER = {
    inspect.CO_COROUTINE: "an async function",
    inspect.CO_GENERATOR: "a generator function",
    inspect.CO_ASYNC_GENERATOR: "an async generator function",
}
_ANY = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def _kind_of_generator(fun: Any) -> str | None:
    """Describes a callable that returns a coroutine or a generator. Returns None for others."""
    if type(fun) is types.FunctionType:
        flags = fun.__code__.co_flags
    else:
        while isinstance(fun, functools.partial):
            fun = fun.func
        if not hasattr(fun, "__code__"):  # methods forward it
            fun = getattr(type(fun), "__call__", None)  # noqa: B004
        flags = getattr(getattr(fun, "__code__", None), "co_flags", 0)
    if not flags & _ANY:
        return None
    return next((kind for flag, kind in _RUN_LATER.items() if flags & flag), None)
