"""A stand-in for ``jax.jit``, and for the Python side of a call."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from core_support import Array, core, make_registry

_P = inspect.Parameter


def core_signature(fun: Any) -> Any:
    """The Signature of `fun`, as ``filterjit._call._signature`` makes it."""
    parameters = list(inspect.signature(fun).parameters.values())
    kinds = [p.kind for p in parameters]
    required = bytes(
        p.default is _P.empty and p.kind not in (_P.VAR_POSITIONAL, _P.VAR_KEYWORD)
        for p in parameters
    )
    return core.Signature(
        tuple(p.name for p in parameters),
        kinds.count(_P.POSITIONAL_ONLY),
        kinds.count(_P.POSITIONAL_ONLY) + kinds.count(_P.POSITIONAL_OR_KEYWORD),
        _P.VAR_POSITIONAL in kinds,
        _P.VAR_KEYWORD in kinds,
        required,
    )


def call_with_arguments(fun: Any, signature: Any, arguments: Sequence[Any]) -> Any:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for i, (name, value) in enumerate(zip(signature.names, arguments, strict=True)):
        if isinstance(value, core.Registry):  # not given
            continue
        if i == signature.varargs:
            args.extend(value)
        elif i == signature.varkw:
            kwargs.update(value)
        elif i < signature.positional and len(args) == i:
            args.append(value)
        else:
            kwargs[name] = value
    return fun(*args, **kwargs)


class Jitted:
    """``jax.jit`` of a flat function: it traces once for each combination of types of `value`."""

    def __init__(self, flat: Callable[..., Any], run: Callable[..., Any]) -> None:
        self.flat, self.run = flat, run
        self.traces: dict[Any, int] = {}

    def __call__(self, *arrays: Any) -> Any:
        key = tuple([type(getattr(x, "value", x)) for x in arrays])  # fast: there are thousands
        if key not in self.traces:
            out, trace = core.output_flatten(self.flat(*arrays))
            self.traces[key] = trace
        else:
            out, trace = self.run(*arrays), self.traces[key]
        return core.output_unflatten(trace, out)


class Hooks:
    """The Python side of a call: what ``filterjit._call._miss.FunctionHooks`` is, without JAX.

    `calls` has the names of the hooks that were called. Each first calls the function that `on` has
    for its name. `failed` returns `answer`, `choose` uses the filter `chosen`.
    """

    def __init__(self, registry: Any, maxsize: int = 4096) -> None:
        self.registry, self.maxsize = registry, maxsize
        self.settings = None
        self.calls: list[str] = []
        self.on: dict[str, Callable[..., Any]] = {}
        self.may_raise: bool | None = False
        self.again = False
        self.answer: Any = None
        self.chosen: Any = True
        self.caches: dict[Any, Any] = {}

    def _note(self, hook: str, *args: Any) -> None:
        self.calls.append(hook)
        if hook in self.on:
            self.on[hook](*args)

    def count(self, hook: str) -> int:
        return self.calls.count(hook)

    def prepare(self, f: Any) -> tuple[Any, tuple[Any, ...]]:
        self._note("prepare", f)
        arrays, structure = core.flatten(self.registry, f._function)
        cache = self.caches.get(structure)
        if cache is None:
            cache = self.caches[structure] = core.Cache(
                self.registry, structure, core_signature(f._function), self, self.maxsize, {}
            )
        return cache, arrays

    def choose(self, f: Any, name: str, argument: Any) -> Any:
        self._note("choose", f, name, argument)
        groups = core.tree_groups(self.registry, argument, True, (self.chosen,), None)[2]
        return bytes([not group for group in groups])

    def compile(self, f: Any, variant: Any) -> Any:
        self._note("compile", f, variant)
        signature, registry = f._parts()[0].signature, self.registry
        this = weakref.ref(variant)

        def call(arrays: tuple[Any, ...]) -> tuple[Any, Any]:
            own = this()
            assert own is not None
            fun, arguments = own._arguments(arrays)
            return own, call_with_arguments(fun, signature, arguments)

        def flat(*arrays: Any) -> Any:
            own, out = call(arrays)
            return own._finish(out, lambda: Array("marker"))

        def run(*arrays: Any) -> Any:
            out, _ = core.flatten(registry, call(arrays)[1])
            return out or (Array("marker"),)

        return Jitted(flat, run)

    def run(self, f: Any, variant: Any, arrays: Any, failed: Exception | None) -> Any:
        self._note("run", f, variant, arrays, failed)
        if failed is not None and not self.again:
            return None
        out = variant._call(*arrays)
        self._inspect(variant, out)
        return out

    def finish(self, variant: Any, arrays: Any, output: Any) -> None:
        self._note("finish", variant, arrays, output)
        self._inspect(variant, output)

    def _inspect(self, variant: Any, output: Any) -> None:
        if not isinstance(output, core.Output) or output.trace < 0:
            return
        if variant._may_raise(output.trace) is None and self.may_raise is not None:
            variant._set_may_raise(output.trace, self.may_raise)

    def failed(
        self, f: Any, exception: Any, variant: Any, arrays: Any, given: Any, is_call: bool
    ) -> Any:
        self._note("failed", f, exception, variant, arrays, given)
        if given is not None:
            try:
                inspect.signature(f._function).bind(*given[0], **given[1])
            except TypeError as e:
                exception = e
        return exception if self.answer is None else self.answer


if TYPE_CHECKING:
    # mypy checks the stand-in against the protocol of the hooks.
    from filterjit._base._call_hooks import CallHooks

    _hooks: type[CallHooks] = Hooks


class Jit(core.FilterJit):  # type: ignore[misc]
    """What `filterjit.types.FilterJit` is, without JAX."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "found by its name"


def make_jit(fun: Any, options: Hooks | None = None, attributes: Any = None) -> Any:
    """A FilterJit of `fun`; ``f._hooks`` has its hooks."""
    options = Hooks(make_registry()) if options is None else options
    return Jit(fun, options, None, {} if attributes is None else attributes)


def variants(f: Any) -> list[Any]:
    """The variants in the cache of a FilterJit."""
    return f._parts()[0].variants()  # type: ignore[no-any-return]


def called(fun: Any, *args: Any) -> tuple[Any, Any]:
    """A FilterJit that was called once, and its variant."""
    f = make_jit(fun)
    f(*args)
    return f, f._find_or_compile(*args)[0]
