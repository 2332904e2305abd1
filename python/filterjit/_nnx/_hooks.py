"""How a function of `filterjit.nnx.jit` is jitted, and the hooks of its calls."""

from collections.abc import Iterator
from typing import Any

from .. import _core
from .._call import _signature
from .._call._hooks import FunctionHooks
from .._call._settings import Settings
from ._registry import registry
from ._trace import Donation


class NNXHooks(FunctionHooks):
    """The hooks of the FilterJit in an `NNXJit`.

    Errors are raised as they are, and no
    call waits for the device, as in ``nnx.jit``.
    """

    decorator = "nnx.jit"
    updates_modules = True

    def __init__(self, donation: Donation, settings: Settings) -> None:
        super().__init__(settings)
        self.donation = donation
        self.registry = registry

    def _donated(self, variant: _core.Variant, signature: _core.Signature) -> tuple[int, ...]:
        if not self.donation:
            return ()
        found: list[int] = []
        own = variant.function.num_leaves
        for path in self._donated_paths(variant, signature):
            first, count = variant.structure._span(*path)
            found.extend(range(own + first, own + first + count))
        return tuple(found)

    def _donated_paths(
        self, variant: _core.Variant, signature: _core.Signature
    ) -> Iterator[tuple[int, ...]]:
        """Yields which parameters are donated, and which items of ``*args`` and ``**kwargs``."""
        leaves = variant.function.num_leaves + variant.structure.num_leaves
        _, arguments = variant.arguments((None,) * leaves)
        positions, names = self.donation.positions, self.donation.names
        for i, (name, value) in enumerate(zip(signature.names, arguments, strict=True)):
            if value is self.registry:  # not given
                continue
            if i == signature.varargs:
                yield from ((i, j) for j in range(len(value)) if i + j in positions)
            elif i == signature.varkw:
                yield from ((i, j) for j, key in enumerate(sorted(value)) if key in names)
            elif (i < signature.positional and i in positions) or name in names:
                yield (i,)

    def raise_binding_error(
        self, f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> None:
        fun = f.__wrapped__.__wrapped__  # which the function that is traced calls
        _signature.raise_binding_error(fun, f._given_signature, args, kwargs)

    def before_raising_call(self, variant: _core.Variant, /) -> None:
        pass

    def inspect_new_trace(
        self, variant: _core.Variant, arrays: tuple[Any, ...], outputs: tuple[Any, ...], /
    ) -> bool | None:
        super().inspect_new_trace(variant, arrays, outputs)
        return False

    def translate_error(
        self,
        f: _core.FilterJit,
        exception: BaseException,
        variant: _core.Variant | None,
        arrays: tuple[Any, ...],
        /,
    ) -> BaseException:
        return exception
