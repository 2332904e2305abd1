"""How a function of `filterjit.nnx.jit` is jitted, and the hooks of its calls."""

from typing import Any

from .. import _core
from .._base._call_hooks import Failure
from .._base._errors import is_of_key
from .._call import _signature
from .._call._plain_hooks import NO_KEY, AsInJax, HandOver
from .._call._settings import Settings
from ._nnx_registry import registry
from ._trace import OWNER


class NNXHooks(AsInJax):
    """The hooks of the FilterJit in an `NNXJit`."""

    decorator = "nnx.jit"
    updates_modules = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.registry = registry

    def needed_by(self, fun: Any) -> Any:
        return getattr(fun, OWNER)()

    def translate(self, failure: Failure) -> BaseException | str:
        if failure.variant is None and is_of_key(failure.exception):  # for the error of Flax
            return HandOver(NO_KEY)
        return super().translate(failure)

    def raise_binding_error(
        self, f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> None:
        fun = f.__wrapped__.__wrapped__  # which the function that is traced calls
        _signature.raise_binding_error(fun, f._given_signature, args, kwargs)
