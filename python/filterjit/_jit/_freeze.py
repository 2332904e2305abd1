"""`f.freeze`: a jitted function with bound arguments, whose arrays are constants.

`freeze` returns a FilterJit of a `Frozen`, which calls the function with the bound arguments, like
a closure over them. It equals only itself, so it does not share its programs, and they are freed
with it. A call passes the other arguments only, and is an ordinary call of a FilterJit.
"""

import dataclasses
import functools
import inspect
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .. import _core
from .._base import _errors
from .._base._arrays import placement
from .._base._checks import known_options
from .._base._unwrap import code_of
from .._base._words import key_paths
from .._call import _events, _kept_by_jax, _signature
from .._call._caches import names_of
from .._call._donation import Donation
from .._call._hooks import FunctionHooks
from .._call._selection import Chosen
from .._call._settings import Settings
from .._compat import _jax_compat
from .._trees._registry import leaves_of, registry

_jax_compat.hide_from_tracebacks(__file__)

_F = TypeVar("_F", bound=_core.FilterJit)


class _Default:
    """The default, in a signature, of an argument that was given to `freeze` by name."""

    def __repr__(self) -> str:
        return "<frozen>"


_DEFAULT = _Default()


@jax.tree_util.register_pytree_with_keys_class
class _Given:
    """The function and the arguments that were given to `freeze`, with names for paths."""

    def __init__(self, names: Sequence[str], values: Sequence[Any]) -> None:
        self.names, self.values = tuple(names), tuple(values)

    def tree_flatten_with_keys(self) -> tuple[Any, tuple[str, ...]]:
        keys = map(jax.tree_util.GetAttrKey, self.names)
        return tuple(zip(keys, self.values, strict=True)), self.names

    @classmethod
    def tree_unflatten(cls, names: Sequence[str], values: Sequence[Any]) -> "_Given":
        return cls(names, values)


class Frozen:
    """A function with some of its arguments.

    Attributes:
        f: the FilterJit whose method `freeze` was called.
        names: the names of the arguments that were given by position.
        structure: the structure of a `_Given`.
        arrays: the arrays in `structure`; copies of NumPy's, which could be changed later.
        paths: the path of each array.
        is_comparable: whether what is built from `structure` has an equal structure. It does not
            where each flatten makes new aux data.
    """

    def __init__(
        self,
        f: _core.FilterJit,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        signature: inspect.Signature,
    ) -> None:
        self.f = f
        self.__signature__ = signature
        self.__name__, self.__qualname__ = names_of(f.__wrapped__)
        self.__code__ = code_of(f.__wrapped__)  # which errors name the line of
        own = f._parts()[0].signature
        names = own.names[: min(len(args), own.positional)]
        more = (f"{own.names[own.positional]}[{i}]" for i in range(len(args) - len(names)))
        self.names = (*names, *more)
        given = _Given(("the function", *self.names, *kwargs), (f, *args, *kwargs.values()))
        for name, argument in zip(given.names[1:], given.values[1:], strict=True):
            if any(isinstance(x, jax.ShapeDtypeStruct) for x in leaves_of(argument)):
                raise TypeError(
                    f"`{name}` of `freeze` has a ShapeDtypeStruct, which has no values."
                )
        try:
            arrays, self.structure = _core.flatten(registry, given)
            hash(self.structure)  # later, the static values are compared with what they are now
        except Exception as e:
            raise _errors.add_path(e) from None
        self.paths = list(map(_errors.format_path, key_paths(self.structure)))
        self.arrays = [_kept(path, x) for path, x in zip(self.paths, arrays, strict=True)]
        again = _core.flatten(registry, self.structure.unflatten(self.arrays))[1]
        self.is_comparable = again == self.structure

    def constants(self) -> list[Any]:
        """Returns the arrays that are not tracers."""
        return [x for x in self.arrays if not isinstance(x, jax.core.Tracer)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function; a trace of the program comes here."""
        __tracebackhide__ = True
        pairs = zip(self.paths, self.arrays, strict=True)
        if deleted := [path for path, x in pairs if _errors.is_deleted(x)]:
            more = f" and {len(deleted) - 1:,} others" if len(deleted) > 1 else ""
            raise RuntimeError(
                f"the array of the frozen argument `{deleted[0]}`{more} was deleted, or donated to a "
                "call, and the function compiles again."
            )
        given = self.structure.unflatten(list(map(_as_constant, self.arrays)))
        if self.is_comparable:
            # Static values are not copied. One that was changed since would give another program.
            now = _core.flatten(registry, given)[1]
            if now != self.structure:
                raise self._changed_error(now)
        structural = self.f._hooks.settings.functions == "structure"
        _kept_by_jax.forget(given, functions=structural)
        call, *values = given.values
        by_position, by_name = values[: len(self.names)], values[len(self.names) :]
        keywords = dict(zip(given.names[1 + len(by_position) :], by_name, strict=True)) | kwargs
        cache = self.f._parts()[0]

        def run() -> Any:
            __tracebackhide__ = True
            return call.__wrapped__(*by_position, *args, **keywords)

        names, hooks = given.names[1:], self.f._hooks
        watched = _events.Watched(cache, hooks, self.structure, names, values, are_frozen=True)
        return _events.call_watched(run, watched)

    def _changed_error(self, now: _core.Structure) -> ValueError:
        from .._observe import _compare

        hash(now)  # which is what tells that a value was changed
        causes = _compare.Comparison(registry, self.structure, now).told
        places = ", ".join(cause.place for cause in causes)
        return ValueError(
            f"a static value of a frozen argument was changed in place after `freeze`, and the "
            f"function compiles again: {places}. Call `freeze` again after such a change."
        )

    def __repr__(self) -> str:
        from .._observe._wording import show_bytes

        arrays = self.constants()
        size = show_bytes(sum(x.nbytes for x in arrays))
        return (
            f"<frozen {self.__qualname__}: {len(arrays):,} array{'s' * (len(arrays) != 1)}, {size}>"
        )


class FrozenHooks(FunctionHooks):
    """How a frozen function is jitted: as the function it was made of."""

    def __init__(self, settings: Settings, frozen: Frozen) -> None:
        super().__init__(settings)
        self.of = frozen
        arrays = self.held[1]
        self.frozen = len(arrays), sum(x.nbytes for x in arrays)

    @property
    def held(self) -> tuple[list[_core.Structure], list[Any]]:
        hooks: Any = self.of.f._hooks
        structures, arrays = hooks.held
        return [self.of.structure, *structures], [*self.of.constants(), *arrays]

    def raise_binding_error(
        self, f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> None:
        of = self.of
        try:
            _signature.raise_misfit(of.__name__, of.__qualname__, of.__signature__, args, kwargs)
        except TypeError as e:
            taken = [
                p.kind <= p.POSITIONAL_OR_KEYWORD for p in of.__signature__.parameters.values()
            ]
            if of.names and (len(args) > sum(taken) or not kwargs.keys().isdisjoint(of.names)):
                names = ", ".join(f"`{name}`" for name in of.names)
                be = "is" if len(of.names) == 1 else "are"
                raise TypeError(f"{e}: {names} {be} frozen already") from None
            raise

    def reduce(self, f: _core.FilterJit) -> tuple[Any, ...]:
        """Returns `freeze`, with the function and the arguments that it was given."""
        of, given = self.of, self.of.structure.unflatten(self.of.arrays)
        count = 1 + len(of.names)
        kwargs = dict(zip(given.names[count:], given.values[count:], strict=True))
        return freeze, (of.f, given.values[1:count], kwargs)


def freeze(f: _F, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _F:
    """Returns `f` with these arguments frozen, as the docstring of ``FilterJit.freeze`` says."""
    hooks = f._hooks
    assert isinstance(hooks, FunctionHooks)
    settings = hooks.settings
    if settings.static or settings.donate.arguments:
        raise ValueError(
            "`freeze` takes no function of `filterjit.jit` with static or donated arguments, which "
            "are numbered: use `filter_jit`."
        )
    if settings.shardings is not None:
        raise ValueError(
            "`freeze` takes no function with in_shardings, out_shardings or mesh. Place the "
            "arguments with `filterjit.sharding.place`, and freeze a function without these options."
        )
    _, qualname = names_of(f.__wrapped__)
    signature = _remaining(
        f._given_signature or inspect.signature(f.__wrapped__), qualname, args, kwargs
    )
    settings.donate.check_given(f, "freeze", args, kwargs)
    if settings.donate and f._parts()[1]:
        raise ValueError(
            f"the arrays in the function itself would be donated by the first call of what `freeze` "
            f"returns: this function was jitted with donate={settings.donate!r}."
        )
    if settings.donate.spares_first and kwargs and not args:
        raise ValueError(
            f"`freeze` takes the first argument by position: this function was jitted with "
            f"donate={settings.donate!r}."
        )
    frozen = Frozen(f, args, kwargs, signature)
    attributes = {**f.__dict__, "__qualname__": f"{qualname} (frozen)"}
    hooks = FrozenHooks(_of_the_others(settings, frozen), frozen)
    return type(f)(frozen, hooks, signature, attributes)


def _of_the_others(settings: Settings, frozen: Frozen) -> Settings:
    """Returns the settings for a function without its first arguments."""
    chosen = settings.traced
    left = tuple((name, x) for name, x in chosen.filters if name not in frozen.names)
    changes: dict[str, Any] = {"traced": Chosen(chosen.option, left)}
    if frozen.names and settings.donate.spares_first:
        changes["donate"] = Donation(settings.donate.mode.removesuffix("-except-first"))
    return dataclasses.replace(settings, **changes)


def _remaining(
    signature: inspect.Signature, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.Signature:
    """Returns the signature that ``functools.partial`` leaves.

    Raises:
        TypeError: if no call of the function could have these arguments.
    """
    try:
        signature.bind_partial(*args, **kwargs)
    except TypeError as e:
        parameters = signature.parameters.values()
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            names = [p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY]
            known_options(f"{name}.freeze", kwargs, names)
        raise TypeError(f"{name}.freeze(): {e}") from None

    def stand_in(*args: Any, **kwargs: Any) -> None: ...

    stand_in.__signature__ = signature  # type: ignore[attr-defined]
    args = (None,) * len(args)  # Python 3.14 has a placeholder that may be among them
    return inspect.signature(functools.partial(stand_in, *args, **dict.fromkeys(kwargs, _DEFAULT)))


# ---- the arrays ----


def _kept(path: str, x: Any) -> Any:
    """Returns a copy of a NumPy array, which could be changed later, and other arrays as they
    are."""
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
    placed = placement(x)
    if placed is not None and placed[1] and not _is_over_explicit_axes(placed[0]):
        # It is committed to its device, and so the program runs there, as for an argument. One over
        # explicit axes has this in its type.
        return jax.lax.with_sharding_constraint(x, x.sharding)
    return x


def _is_over_explicit_axes(sharding: Any) -> bool:
    types = getattr(getattr(sharding, "mesh", None), "axis_types", ())
    return any(getattr(one, "name", "") == "Explicit" for one in types)
