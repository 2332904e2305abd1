"""How a function of `filterjit.nnx.jit` is jitted, and the hooks of its calls."""

from collections.abc import Mapping
from typing import Any

from .. import _core
from .._jit._options import Options
from .._observe._retraces import RetraceOptions
from ._registry import registry
from ._trace import Donation


class NNXOptions(Options):
    """The hooks of the FilterJit in an `NNXJit`.

    Its function has the parameters ``(*args, **kwargs)``. Errors are raised as they are, and no
    call waits for the device, as in ``nnx.jit``.
    """

    def __init__(
        self,
        donation: Donation,
        jitkwargs: Mapping[str, Any],
        retraces: RetraceOptions | None,
        maxsize: int,
    ) -> None:
        super().__init__("none", jitkwargs, retraces, maxsize=maxsize)
        self.donation = donation
        self.registry = registry

    def _donated(self, variant: _core.Variant, signature: _core.Signature) -> tuple[int, ...]:
        if not self.donation:
            return ()
        found: list[int] = []
        own = variant.function.num_leaves
        args, kwargs = _shape(variant)
        places = [((0, i), i in self.donation.positions) for i in range(args)]
        places += [((1, i), name in self.donation.names) for i, name in enumerate(kwargs)]
        for path, donated in places:
            if donated:
                first, count = variant.structure._span(*path)
                found.extend(range(own + first, own + first + count))
        return tuple(found)

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


def _shape(variant: _core.Variant) -> tuple[int, list[str]]:
    """Returns the number of positional arguments, and the sorted names of the others."""
    count = variant.function.num_leaves + variant.structure.num_leaves
    _, (args, kwargs) = variant.arguments((None,) * count)
    return (
        len(args) if isinstance(args, tuple) else 0,
        sorted(kwargs) if isinstance(kwargs, dict) else [],
    )
