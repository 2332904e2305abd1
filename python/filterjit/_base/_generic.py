"""The type parameters of jitted functions. At runtime, defaults need Python 3.13."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, overload

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    _P = ParamSpec("_P", default=...)  # the parameters of a function
    _T = TypeVar("_T", default=Any)  # its result
    _S = TypeVar("_S", default=Any)  # the first parameter of a method
    _Q = ParamSpec("_Q")
    _R = TypeVar("_R", covariant=True)

    class _TakesSpecs(Protocol[_Q, _R]):
        @overload
        def __call__(self, /, *args: _Q.args, **kwargs: _Q.kwargs) -> _R: ...
        @overload
        def __call__(self, /, *args: Any, **kwargs: Any) -> _R: ...

    class _TakesSpecsMethod(Protocol[_Q, _R]):
        def __get__(self, instance: Any, owner: Any = None, /) -> _TakesSpecs[_Q, _R]: ...

    def takes_specs(method: Callable[Concatenate[Any, _Q], _R]) -> _TakesSpecsMethod[_Q, _R]: ...
else:
    from typing import ParamSpec, TypeVar

    _P, _T, _S = ParamSpec("_P"), TypeVar("_T"), TypeVar("_S")

    def takes_specs(method: Any) -> Any:
        """Types a method with the parameters of its function, which also takes
        ``jax.ShapeDtypeStruct`` for arrays."""
        return method
