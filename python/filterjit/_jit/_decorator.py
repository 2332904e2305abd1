"""The decorator `filter_jit`."""

import functools
import inspect
import operator
import types
from collections.abc import Callable, Mapping, Set
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from .._base import _errors
from .._base._checks import NOT_GIVEN, check_bool, known_options, one_of, option_names
from .._base._package import public
from .._base._rooms import import_room
from .._call._caches import MAXSIZE
from .._call._donation import Donation
from .._call._selection import NOTHING, Chosen
from .._call._settings import OnRetrace, OptionsOfJax, Settings
from .._call._signature import inspect_signature
from .._compat import _jax_compat
from ._filter_jit import NO_OPTIONS, FilterJit, make_filter_jit, own_options

_P = ParamSpec("_P")
_T = TypeVar("_T")
Names = tuple[str, ...] | list[str] | Set[str]  # a str is no collection of names
Donate = (
    Literal["all", "all-except-first", "warn", "warn-except-first", "none"]
    | Names
    | Mapping[str, Any]
)
Traced = Names | Mapping[str, Any]
Functions = Literal["identity", "structure"]


class _Options(OptionsOfJax, total=False):
    """The options of `filter_jit`."""

    donate: Donate
    traced: Traced
    functions: Functions
    on_retrace: OnRetrace
    maxsize: int
    in_shardings: Any
    out_shardings: Any
    mesh: Any
    same_on_all_processes: bool | None


class _Decorator(Protocol):
    def __call__(self, fun: Callable[_P, _T], /) -> FilterJit[_P, _T]: ...


_DEFAULTS = ("none", (), "identity", None, MAXSIZE, None, None, None, None)
_FUNCTIONS = ("identity", "structure")
_BY_NAME = '`donate` names the parameters whose arrays are donated, as in `donate=("state",)`.'
_STATIC = (
    "leave it out, as what is not an array is static, Python's numbers too. `filterjit.jit` takes it, "
    "as `jax.jit` does."
)
# Options of jax.jit that name arguments by position or by name: the flat function that JAX sees
# has other arguments.
_REFUSED = {
    "static_argnums": _STATIC,
    "static_argnames": _STATIC,
    "donate_argnums": _BY_NAME,
    "donate_argnames": _BY_NAME,
}
# Options that jax.jit does not check before it uses them.
_JIT_OPTIONS: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("device", "one of `jax.devices()`", lambda x: not isinstance(x, str)),
    ("backend", "the name of a platform", lambda x: isinstance(x, str)),
    ("compiler_options", "a dict of options of XLA", lambda x: isinstance(x, Mapping)),
)
# Options of Equinox before version 0.10.
_DEPRECATED = ("default", "fn", "args", "kwargs", "out")


def _check_jitkwargs(jitkwargs: dict[str, Any]) -> None:
    """Raises ValueError or TypeError for names that cannot be passed on to ``jax.jit``."""
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
    known_options(
        "filter_jit", jitkwargs, ["fun", *(x for x in names if x not in _REFUSED)], _REFUSED
    )
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
    fun: Any = NOT_GIVEN,
    *,
    donate: Any = "none",
    traced: Any = (),
    functions: str = "identity",
    on_retrace: Any = None,
    maxsize: int = MAXSIZE,
    in_shardings: Any = None,
    out_shardings: Any = None,
    mesh: Any = None,
    same_on_all_processes: bool | None = None,
    **jitkwargs: Any,
) -> Any:
    """Compiles a function of pytrees with ``jax.jit``.

    This is a drop-in replacement for ``equinox.filter_jit``, with its dispatch in C.

    The arguments and the result may be any pytrees. JAX and NumPy arrays in the arguments are
    traced. Everything else is static: Python numbers, strings, functions, the configuration of a
    model. The function is compiled once for each argument structure with its static values, and
    for each combination of array shapes and dtypes. The result may hold static values too.

    Static values are compared by type and value: ``1``, ``True`` and ``1.0`` are three different
    values, each with its own program. An object whose class has no ``__eq__`` is compared by
    identity. An object whose class writes its own ``__eq__`` and ``__hash__`` is compared by these.

    Static leaves must be hashable. Static fields and aux data may hold unhashable values.
    Containers, NumPy arrays, dataclasses and Modules are compared by their contents there, other
    unhashable values by identity. `docs/statics.md` has all rules.

    The jitted function has methods:

    - ``f.explain(...)`` tells why a call would compile again, ``f.report()`` where the time went,
      and ``f.cache_info()`` how many calls were hits.
    - ``f.lower(...)``, ``f.trace(...)``, ``f.eval_shape(...)``, ``f.compile(...)`` and
      ``f.warm_up(...)`` trace or compile the function before the first call.

    Arguments:
        fun: any callable. It may itself be a pytree with arrays in it. Without it, `filter_jit`
            returns a decorator.
        donate: the arrays whose memory the compiled program may reuse. The call deletes an array
            whose memory it reuses.

            - ``"none"``: no array.
            - ``"all"``: all arrays.
            - ``"all-except-first"``: all arrays except those in the first argument.
            - ``"warn"`` and ``"warn-except-first"``: the same two. JAX warns of memory that the
              program could not use.
            - a tuple of parameter names, such as ``("state", "cache")``;
            - a dict from parameter names to True or to filters of the arrays (see `Filter`), such
              as ``{"state": True, "model": "**.weight"}``. A filter function gets tracers of the
              arrays: it may look at shapes and dtypes.

            With names, a warning lists the paths of arrays whose memory no result can take.
        traced: the Python numbers that are traced, weakly typed, as ``jax.jit`` traces them. Use it
            for a number that changes in each call.

            - a tuple of parameter names, such as ``("step_size",)``;
            - a dict from parameter names to True or to filters, such as ``{"config": "**.lr"}``. A
              path pattern costs nothing on a hit. A filter function is called with the numbers and
              the arrays, so each call flattens the arguments.
        functions: when two functions among the static values count as equal. Lambdas,
            ``functools.partial`` and bound methods are functions too.

            - ``"identity"``: when they are the same object.
            - ``"structure"``: also when they are known to behave alike. A Module that is created
              again with the same lambdas then does not compile again.

            For ``"structure"``, the code and the globals must be the same, and the defaults,
            closures and attributes must be equal. Each call notices changes inside of containers,
            dataclasses, Modules, partials and functions among these.

            These are not looked at: what the code reads by name, such as a global variable or a
            constant of a class, and changes inside of other objects. A new function that holds such
            an object, for example a large NumPy array or an instance of an ordinary class, is
            always traced.
        on_retrace: what to do when the function compiles again.

            - ``"log"`` logs the reason to the logger ``"filterjit"``.
            - ``"warn"`` issues a `RetraceWarning`.
            - ``"raise"`` raises a `RetraceError`.
            - a function is called with the `Explanation`.
            - None, the default, issues a `RetraceWarning` once a cause, when eight programs in a
              row were compiled because of it and none of them was called more than twice.
            - ``"ignore"`` does nothing.

            The first trace is not a retrace. What ``warm_up``, ``lower`` and ``trace`` do is none
            either. After ``warm_up``, ``"raise"`` therefore says that no call may compile.
        maxsize: how many combinations of static values are kept. When there are more, the program
            that was used least recently is dropped.
        in_shardings: where the arguments are placed: a dict from parameter names to values, a tuple
            of values by position, or one value for all parameters. A value is a sharding, a
            ``PartitionSpec``, None (leave it as it is), `filterjit.sharding.ShardingRules`, or a
            prefix of the argument with these as leaves.

            As under ``jax.jit``, arrays that are not committed to devices are moved there. Other
            arrays must be there already (`filterjit.sharding.place`). The arrays in the function
            itself stay as they are.
        out_shardings: where the result is placed: one such value. The compiler places the arrays
            that the value leaves open. A donated array of the same shape and dtype, in the same
            place of its argument, is the exception: the result gets its sharding, and can reuse its
            memory.
        mesh: the mesh for each ``PartitionSpec``. The default is the mesh in force
            (``jax.set_mesh``). Each mesh has its own programs.
        same_on_all_processes: whether to compare the programs of several processes before they
            first run. The default is True for functions with shardings, and False for others.

            The lowered programs are compared: what they compute, with all constants, shapes,
            shardings, donated arrays and options. Values that differ and make no other program may
            differ. What is only traced or lowered is not compared.

            A difference raises a `ProcessMismatchError` on all processes. It names the path, or
            shows where the programs differ. If a trace raises on some processes only, these raise
            their own error, and the others a `ProcessMismatchError`.
        jitkwargs: further options for ``jax.jit``.

    Returns:
        A `FilterJit` with the parameters of `fun`. Without `fun`, a decorator.

    Raises:
        ValueError: if an option has a value that is not described above; if a name in `donate`,
            `traced` or `in_shardings` is not a parameter; or if `jitkwargs` has
            ``static_argnums``, ``static_argnames``, ``donate_argnums`` or ``donate_argnames``,
            which do not apply to pytrees. The first call raises it for a pattern in `donate` that
            matches no array, and for a pattern in `traced` that matches no leaf, or a leaf that is
            neither a number nor an array.
        TypeError: if `fun` is not callable, or is an async function or a generator function; if
            `in_shardings` or `mesh` has a wrong type; or if ``jax.jit`` does not know one of
            `jitkwargs`. The first trace raises it for a value in `out_shardings` that is not a
            sharding, and for a function that returns a coroutine or a generator.

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
        # Programs that jit a lambda again and again give none: no option is checked.
        return _jit(NO_OPTIONS, fun)
    if jitkwargs:
        _check_jitkwargs(jitkwargs)
    donate = Donation.of(donate)
    one_of("filter_jit(..., functions=...)", functions, _FUNCTIONS)
    check_bool("filter_jit(..., same_on_all_processes=...)", same_on_all_processes, or_none=True)
    traced = Chosen.of("traced", traced) or NOTHING
    own = own_options("filter_jit", on_retrace, maxsize)
    shardings = None
    if in_shardings is not None or out_shardings is not None or mesh is not None:
        options = import_room("_shardings._options", "`in_shardings`")
        shardings = options.Shardings(in_shardings, out_shardings, mesh)
    settings = Settings(
        **own,
        donate=donate,
        functions=functions,
        shardings=shardings,
        same_on_all_processes=same_on_all_processes,
        jitkwargs=tuple(jitkwargs.items()),
        traced=traced,
    )
    return _jit(settings, fun)


def _jit(settings: Settings, fun: Any, /) -> Any:
    if fun is NOT_GIVEN:
        return functools.partial(_jit, settings)
    if not callable(fun):
        above = (classmethod, property, functools.cached_property)
        raise TypeError(
            f"{_errors.short(fun)} is not a callable object\n"  # this line is Equinox's
            + (
                f"Put `@{type(fun).__name__}` above `@filter_jit`."
                if isinstance(fun, above)
                else "`filter_jit` takes the function itself, and options by name, such as "
                '`donate="all"`.'
            )
        )
    if (kind := _kind_of_generator(fun)) is not None:
        raise _errors.nothing_to_trace(f"`filter_jit(fun)`: {_errors.short(fun)} is {kind}")
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
    """Returns what a callable is if its call returns a coroutine or a generator; else None."""
    if type(fun) is types.FunctionType:
        flags = fun.__code__.co_flags
    else:
        while isinstance(fun, functools.partial):
            fun = fun.func
        if not hasattr(fun, "__code__"):  # methods have that of their function
            fun = getattr(type(fun), "__call__", None)  # noqa: B004
        flags = getattr(getattr(fun, "__code__", None), "co_flags", 0)
    if not flags & _ANY:
        return None
    return next((kind for flag, kind in _RUN_LATER.items() if flags & flag), None)
