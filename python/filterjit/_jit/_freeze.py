"""`f.freeze`: a jitted function with some arguments given once, whose arrays are constants.

What `freeze` returns is a FilterJit of a `Frozen`, a callable that holds the function and the given
arguments. A trace rebuilds these from their Structure, with the arrays themselves in their places, so
JAX makes them constants of the program, as it does for a closure. A call passes the other arguments
only, and is an ordinary call of a FilterJit.

The Cache belongs to the `FrozenHooks` of one call of `freeze`, and is stored nowhere else, so the
programs are freed with the function. JAX's caches hold the flat function of a variant weakly, and
nothing else that leads to the arrays.

An array that cannot be a constant, or is larger than `max_bytes`, is a child of the `Frozen`, and so
an argument of the program:

- tracers: the function must not hold one when its trace is over. JAX treats the tracers of a closure
  in the same way.
- arrays on several devices: each device would hold all of a constant.
- arrays in other memory than the device's own, PRNG keys, references, and what else is not a plain
  array of JAX or NumPy.
"""

import functools
import inspect
import math
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .. import _core
from .._base import _errors
from .._base._call_hooks import Failure
from .._base._checks import known_options
from .._base._package import public
from .._base._unwrap import code_of
from .._base._words import key_paths
from .._call import _lost_changes, _signature
from .._call._caches import function_of, names_of
from .._call._hooks import FunctionHooks, marked
from .._compat import _jax_compat
from .._observe import _compare, _jaxpr, _records
from .._observe._recorder import recorder
from .._observe._wording import show_bytes
from .._trees._nodes import span
from .._trees._registry import leaves_of, registry
from .._trees._tree_functions import tree_paths

_jax_compat.hide_from_tracebacks(__file__)

_F = TypeVar("_F", bound=_core.FilterJit)

LARGE = 1 << 18
"""Bytes: larger arrays are not worth freezing; see benchmarks/README.md."""


@public
class FreezeWarning(UserWarning):
    """``f.freeze`` makes large arrays constants of a program, which does not pay."""


class _Default:
    """The default, in a signature, of an argument that was given to `freeze` by name."""

    def __repr__(self) -> str:
        return "<frozen>"


_DEFAULT = _Default()


@jax.tree_util.register_pytree_with_keys_class
class _Given:
    """What was given to `freeze`: the function, and arguments with names for paths."""

    def __init__(
        self, f: _core.FilterJit, names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        self.f, self.names, self.args, self.kwargs = f, tuple(names), tuple(args), kwargs

    @classmethod
    def to(cls, f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "_Given":
        signature = f._parts()[0].signature
        count = signature.positional
        names = list(signature.names[: min(len(args), count)])
        names += [f"{signature.names[count]}[{i}]" for i in range(len(args) - len(names))]
        return cls(f, names, args, kwargs)

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        names = ("the function", *self.names, *self.kwargs)
        values = (self.f, *self.args, *self.kwargs.values())
        keys = map(jax.tree_util.GetAttrKey, names)
        return tuple(zip(keys, values, strict=True)), (self.names, tuple(self.kwargs))

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Sequence[Any]) -> "_Given":
        names, keywords = aux
        f, *values = children
        kwargs = dict(zip(keywords, values[len(names) :], strict=True))
        return cls(f, names, values[: len(names)], kwargs)


class Constants:
    """What a `Frozen` holds, except the arrays that stay arguments. Equal only to itself.

    Attributes:
        f: the FilterJit whose method `freeze` was called.
        signature: of the remaining parameters.
        structure: of a `_Given`.
        paths: the path of each array in `structure`.
        arrays: the arrays in `structure`; None in the place of those that stay arguments.
        inner: the constants of `f`, if `f` is a frozen function.
        is_comparable: whether what is built from `structure` has an equal structure. It does not
            where each flatten makes new aux data.
    """

    def __init__(
        self,
        f: _core.FilterJit,
        signature: inspect.Signature,
        structure: _core.Structure,
        paths: Sequence[str],
        arrays: Sequence[Any],
    ) -> None:
        self.f = f
        self.signature = signature
        self.structure = structure
        self.paths = tuple(paths)
        self.arrays = tuple(arrays)
        self.name, self.qualname = names_of(f.__wrapped__)
        inner = f._hooks
        self.inner = inner.constants if isinstance(inner, FrozenHooks) else None
        self.is_comparable = True

    def all(self) -> list[Any]:
        """Returns the constants, with those of `f` if it is a frozen function itself."""
        inner = [] if self.inner is None else self.inner.all()
        return inner + [x for x in self.arrays if x is not None]

    def size(self) -> tuple[int, int]:
        """Returns how many constants there are, and their size in bytes."""
        arrays = self.all()
        return len(arrays), sum(x.nbytes for x in arrays)

    def deleted(self) -> list[str]:
        """Returns the paths of the constants that have been deleted."""
        inner = [] if self.inner is None else self.inner.deleted()
        places = zip(self.paths, self.arrays, strict=True)
        return inner + [path for path, x in places if _errors.is_deleted(x)]

    def given(self, arrays: Sequence[Any]) -> _Given:
        """Returns what was given to `freeze`, with these arrays."""
        found: _Given = self.structure.unflatten(arrays)
        return found

    def with_kept(self, kept: Sequence[Any]) -> list[Any]:
        """Returns all arrays, with `kept` in the places of those that stay arguments."""
        others = iter(kept)
        return [next(others) if x is None else x for x in self.arrays]


@jax.tree_util.register_pytree_with_keys_class
class Frozen:
    """A function and its given arguments. As a pytree, it holds the arrays that stay arguments."""

    def __init__(self, constants: Constants, kept: Sequence[Any]) -> None:
        self._constants = constants
        self._kept = tuple(kept)
        self.__name__, self.__qualname__ = constants.name, constants.qualname
        self.__signature__ = constants.signature
        self.__code__ = code_of(constants.f.__wrapped__)  # which errors name the line of

    def tree_flatten_with_keys(self) -> tuple[Any, Constants]:
        constants = self._constants
        places = zip(constants.paths, constants.arrays, strict=True)
        keys = [jax.tree_util.GetAttrKey(path) for path, x in places if x is None]
        return tuple(zip(keys, self._kept, strict=True)), constants

    @classmethod
    def tree_unflatten(cls, constants: Constants, kept: Sequence[Any]) -> "Frozen":
        return cls(constants, kept)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function; a trace of the program comes here."""
        __tracebackhide__ = True
        constants = self._constants
        if deleted := constants.deleted():
            raise _deleted_error(deleted, "after `freeze`, and the function compiles again")
        arrays = [
            x if constant is None else _as_constant(constant)
            for x, constant in zip(constants.with_kept(self._kept), constants.arrays, strict=True)
        ]
        given = constants.given(arrays)
        # Static values are not copied. One that was changed since would give another program.
        now = _core.flatten(registry, given)[1]
        if constants.is_comparable and now != constants.structure:
            raise self._changed_error(now)
        fun, kwargs = given.f.__wrapped__, {**given.kwargs, **kwargs}
        record = given.f._parts()[0].record
        if record.has_told_lost or not _lost_changes.has_variables(constants.structure):
            return fun(*given.args, *args, **kwargs)
        names = (*given.names, *given.kwargs)
        values = (*given.args, *given.kwargs.values())
        before = _lost_changes.variables_in(names, values)
        out = fun(*given.args, *args, **kwargs)
        after = _lost_changes.variables_in(names, values)
        _lost_changes.warn(record, before, after, out, _lost_changes.FROZEN)
        return out

    def _changed_error(self, now: _core.Structure) -> ValueError:
        hash(now)  # which is what tells that a value was changed
        causes = _compare.compare_structures(registry, self._constants.structure, now, 0)
        places = ", ".join(cause.place for cause in causes)
        return ValueError(
            f"a static value of a frozen argument was changed in place after `freeze`, and the "
            f"function compiles again: {places}. Call `freeze` again after such a change."
        )

    def __repr__(self) -> str:
        constants = self._constants
        count, size = constants.size()
        arrays = f"{count:,} array{'s' * (count != 1)}"
        return f"<frozen {constants.qualname}: {arrays}, {show_bytes(size)}>"


class FrozenHooks(FunctionHooks):
    """How a frozen function is jitted: as the function it was made of, with its own programs.

    Attributes:
        constants: see `Constants`.
        max_bytes: as given to `freeze`.
        frozen: the number of the arrays that are constants, and their size in bytes.
    """

    def __init__(self, constants: Constants, max_bytes: float | None, first: str | None) -> None:
        inner = constants.f._hooks
        assert isinstance(inner, FunctionHooks)
        super().__init__(inner.settings)
        self.constants = constants
        self.max_bytes = max_bytes
        self.frozen = constants.size()
        self._first = first
        self._cache: Any = lambda: None

    @property
    def held(self) -> tuple[list[_core.Structure], list[Any]]:
        constants: Constants | None = self.constants
        structures = []
        while constants is not None:
            structures.append(constants.structure)
            constants = constants.inner
        return structures, self.constants.all()

    def check_given(
        self, f: _core.FilterJit, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Raises ValueError also where the first argument, which is not donated, was given before."""
        if self._first is None or not self.settings.spares_first:
            super().check_given(f, method, args, kwargs)
        elif args or kwargs.keys() - {self._first}:
            raise ValueError(
                f"an argument of `{method}` would be donated by the first call, and be deleted "
                f"before the second: this function was jitted with donate={self.settings.donate!r}."
            )

    def reduce(self, f: _core.FilterJit, /) -> tuple[Any, ...]:
        """Returns the function and the arguments that were given to `freeze`, for pickles."""
        constants = self.constants
        given = constants.given(constants.with_kept(f._parts()[1]))
        return _freeze_again, (constants.f, given.args, given.kwargs, self.max_bytes)

    # ---- called by the C core ----

    def prepare(self, f: _core.FilterJit, /) -> tuple[_core.Cache, tuple[Any, ...]]:
        """Returns the cache of the frozen function, which no other function shares."""
        arrays, structure = _core.flatten(registry, f.__wrapped__)
        cache = self._cache()
        if cache is None or cache.function != structure:
            parameters = _signature.parameters_of(None, self.constants.signature)
            signature = _core.Signature(*marked(parameters, self.settings))
            attributes = dict(f.__dict__)
            attributes["__qualname__"] = f"{self.constants.qualname} (frozen)"
            cache = _core.Cache(
                self.registry, structure, signature, self, self.settings.maxsize, attributes
            )
            recorder.register(cache, self.constants.name, function_of(self.constants.f.__wrapped__))
            self._cache = weakref.ref(cache)
        return cache, tuple(arrays)

    def raise_binding_error(
        self, f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> None:
        of = self.constants
        _signature.raise_misfit(of.name, of.qualname, of.signature, args, kwargs)

    def translate(self, failure: Failure) -> BaseException | str:
        """Names the constants that were deleted, besides what all functions do."""
        found = super().translate(failure)
        if isinstance(found, (RuntimeError, ValueError)) and "deleted" in str(found):
            deleted = [] if "`freeze`" in str(found) else self.constants.deleted()
            if deleted:
                found.add_note(f"(deleted after `freeze`: argument {', '.join(deleted)})")
        return found

    # ---- called by the base class ----

    def contents(self, closed: Any) -> _jaxpr.Contents:
        """Returns the contents of a program without the constants that were asked for."""
        found = _jaxpr.contents(closed)
        asked = {id(x) for x in self.constants.all()}
        others = [x for x in found.constants if id(x) not in asked]
        return found._replace(constants=others)

    def _donated(self, variant: _core.Variant, signature: _core.Signature) -> tuple[int, ...]:
        """Donates what the function does, and never the arrays that were given to `freeze`."""
        own = variant.function.num_leaves
        total = own + variant.structure.num_leaves
        if self._first is None or not self.settings.spares_first:
            return tuple(i for i in super()._donated(variant, signature) if i >= own)
        excepted = range(0)
        if self._first in signature.names:  # the call gave it again
            first, count = span(variant.structure, signature.names.index(self._first))
            excepted = range(own + first, own + first + count)
        return tuple(i for i in range(own, total) if i not in excepted)


def freeze(f: _F, args: tuple[Any, ...], kwargs: dict[str, Any], max_bytes: float | None) -> _F:
    """Returns `f` with these arguments frozen, as the docstring of ``FilterJit.freeze`` says.

    What `max_bytes` has left arguments of a frozen function, it leaves.
    """
    hooks = f._hooks
    assert isinstance(hooks, FunctionHooks)
    if max_bytes is None and isinstance(hooks, FrozenHooks):
        max_bytes = hooks.max_bytes
    number = isinstance(max_bytes, (int, float)) and not isinstance(max_bytes, bool)
    if max_bytes is not None and not (number and max_bytes >= 0):
        raise ValueError(
            f"`freeze(..., max_bytes=...)` must be None or a number of at least 0, not "
            f"{max_bytes!r}."
        )
    if hooks.settings.static or hooks.settings.donation.arguments:
        raise ValueError(
            "`freeze` takes no function of `filterjit.jit` with static or donated arguments, which "
            "are numbered: use `filter_jit`."
        )
    if hooks.settings.shardings is not None:
        raise ValueError(
            "`freeze` takes no function with in_shardings, out_shardings or mesh. Place the "
            "arguments with `filterjit.place`, and freeze a function without these options."
        )
    whole = f._given_signature or inspect.signature(f.__wrapped__)
    _check_fits(whole, names_of(f.__wrapped__)[1], args, kwargs)
    hooks.check_given(f, "freeze", args, kwargs)
    if hooks.settings.donate != "none" and f._parts()[1] and not isinstance(hooks, FrozenHooks):
        raise ValueError(
            f"the arrays in the function itself would be donated by the first call of what `freeze` "
            f"returns: this function was jitted with donate={hooks.settings.donate!r}."
        )
    given = _Given.to(f, args, kwargs)
    try:
        arrays, structure = _core.flatten(registry, given)
        hash(structure)  # later, the static values are compared with what they are now
    except Exception as e:
        raise _errors.add_path(e) from None
    leaves = leaves_of(given)
    if specs := [i for i, x in enumerate(leaves) if isinstance(x, jax.ShapeDtypeStruct)]:
        path = tree_paths(given)[specs[0]]
        raise TypeError(f"`{path}` of `freeze` is a ShapeDtypeStruct, which has no values.")
    paths = list(map(_errors.format_path, key_paths(structure)))
    if deleted := [path for path, x in zip(paths, arrays, strict=True) if _errors.is_deleted(x)]:
        raise _deleted_error(deleted, "before `freeze`")
    limit = math.inf if max_bytes is None else max_bytes
    constants, kept = [], []
    for path, x in zip(paths, arrays, strict=True):
        copied = _copy_of_numpy(path, x)
        constant = x.nbytes <= limit if _can_be_constant(x) else False
        constants.append(copied if constant else None)
        if not constant:
            kept.append(copied)
    if max_bytes is None:
        _warn_of_large(names_of(f.__wrapped__)[0], paths, constants)
    signature = _remaining(whole, args, kwargs)
    frozen = Constants(f, signature, structure, paths, constants)
    again = _core.flatten(registry, frozen.given(frozen.with_kept(kept)))[1]
    frozen.is_comparable = again == structure
    hooks = FrozenHooks(frozen, max_bytes, _first_given(f, args, kwargs))
    return type(f)(Frozen(frozen, kept), hooks, signature, dict(f.__dict__))


def _freeze_again(
    f: _F, args: tuple[Any, ...], kwargs: dict[str, Any], max_bytes: float | None
) -> _F:
    """Returns the function for which `FrozenHooks.reduce` returned these arguments."""
    return freeze(f, args, kwargs, math.inf if max_bytes is None else max_bytes)


# ---- the arguments ----


def _check_fits(
    signature: inspect.Signature, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raises TypeError for arguments that no call of the function could have."""
    try:
        signature.bind_partial(*args, **kwargs)
    except TypeError as e:
        parameters = signature.parameters.values()
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            names = [p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY]
            known_options(f"{name}.freeze", kwargs, [*names, "max_bytes"])
        raise TypeError(f"{name}.freeze(): {e}") from None


def _remaining(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.Signature:
    """Returns the signature that ``functools.partial`` leaves."""

    def stand_in(*args: Any, **kwargs: Any) -> None: ...

    stand_in.__signature__ = signature  # type: ignore[attr-defined]
    args = (None,) * len(args)  # Python 3.14 has a placeholder that may be among them
    given = functools.partial(stand_in, *args, **dict.fromkeys(kwargs, _DEFAULT))
    return inspect.signature(given)


def _first_given(f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Returns the name of the first parameter if its argument was given, else None.

    The name is empty if a call cannot give the argument again.
    """
    signature = f._parts()[0].signature
    hooks = f._hooks
    if isinstance(hooks, FrozenHooks) and hooks._first is not None:
        return hooks._first
    if args:
        return ""
    first: str = signature.names[0] if signature.positional else ""
    return first if first in kwargs else None


# ---- the arrays ----


def _can_be_constant(x: Any) -> bool:
    if isinstance(x, (np.ndarray, np.generic)):
        return True
    if type(x) is not _jax_compat.ARRAY_IMPL:
        return False
    sharding: Any = getattr(x, "sharding", None)
    if not isinstance(sharding, jax.sharding.SingleDeviceSharding):
        return False
    (device,) = sharding.device_set
    return sharding.memory_kind in (None, device.default_memory().kind)


def _copy_of_numpy(path: str, x: Any) -> Any:
    """Returns a copy of a NumPy array, which could be changed later, and other arrays as they are."""
    if not isinstance(x, (np.ndarray, np.generic)):
        return x
    try:
        jnp.asarray(x)
    except (TypeError, ValueError) as e:
        e.add_note(f"(argument `{path}` of `freeze`)")
        raise
    return np.array(x)


def _as_constant(x: Any) -> Any:
    """Returns an array as a trace uses it."""
    if isinstance(x, np.ndarray):
        with jax.ensure_compile_time_eval():
            return jnp.asarray(x)
    placed = _records.placement(x)
    if placed is not None and placed[1]:
        # It is committed to its device, and so the program runs there, as for an argument.
        return jax.lax.with_sharding_constraint(x, x.sharding)
    return x


def _deleted_error(paths: Sequence[str], when: str) -> RuntimeError:
    more = f" and {len(paths) - 1:,} others" if len(paths) > 1 else ""
    return RuntimeError(
        f"the array of the frozen argument `{paths[0]}`{more} was deleted, or donated to a call, "
        f"{when}."
    )


def _warn_of_large(name: str, paths: Sequence[str], arrays: Sequence[Any]) -> None:
    sizes = [
        (x.nbytes, path)
        for path, x in zip(paths, arrays, strict=True)
        if x is not None and x.nbytes > LARGE
    ]
    if not sizes:
        return
    largest, path = max(sizes)
    total = sum(size for size, _ in sizes)
    many = f"{len(sizes):,} arrays" if len(sizes) > 1 else "1 array"
    warnings.warn(
        f"`{name}.freeze` makes {many} of more than {show_bytes(LARGE)} constants, "
        f"{show_bytes(total)} in total, the largest `{path}` of {show_bytes(largest)}. Large "
        "constants compile slowly, take memory in each program, and hardly make a call faster. "
        f"max_bytes={LARGE} leaves them arguments; max_bytes=math.inf freezes them without this "
        "warning.",
        FreezeWarning,
        stacklevel=4,
    )
