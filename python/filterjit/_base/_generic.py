"""The type parameters of jitted functions. At runtime, defaults need Python 3.13."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    _P = ParamSpec("_P", default=...)  # the parameters of a function
    _T = TypeVar("_T", default=Any)  # its result
    _S = TypeVar("_S", default=Any)  # the first parameter of a method
else:
    from typing import ParamSpec, TypeVar

    _P, _T, _S = ParamSpec("_P"), TypeVar("_T"), TypeVar("_S")
