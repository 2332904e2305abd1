"""What reports say of a traced program: its size, its loops, and the arrays that it captured."""

import dataclasses
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from .._base._unwrap import closure_of, unwrap_chain
from .._call._jaxprs import Contents
from .._compat import _jax_compat
from ._wording import show_bytes

if TYPE_CHECKING:
    from ._loops import Loop

SMALL = 200  # equations: no loop is looked for in smaller programs
CAPTURED = 1 << 20  # bytes: fewer captured bytes are not reported


@dataclasses.dataclass(frozen=True)
class Captured:
    """The arrays that a program holds as constants.

    Attributes:
        count: how many there are.
        bytes: their size in total.
        largest: dtype, shape and size of the largest one, in words.
        names: the variables of the function that hold large ones.
    """

    count: int
    bytes: int
    largest: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        many = f"{self.count:,} arrays, " if self.count > 1 else ""
        names = f" ({', '.join(f'`{name}`' for name in self.names)})" if self.names else ""
        largest = f"the largest {self.largest}" if self.count > 1 else self.largest
        return f"{many}{show_bytes(self.bytes)}{names}, {largest}"

    def warning(self) -> str:
        """Returns a sentence without its subject, which is the name of the function."""
        if "self" in self.names:
            remedy = (
                "Jit the object itself, or pass it as an argument: a bound method holds its object."
            )
        else:
            remedy = "Pass them as arguments, or in a Module that is an argument."
        return (
            f"captures {self}, as constants. Each of its programs holds a copy of them and is slow to "
            f"compile. {remedy}"
        )


@dataclasses.dataclass(frozen=True)
class Program:
    """A summary of a program.

    Attributes:
        equations: how many it has, those of nested programs included.
        loop: the Python loop that made more than half of the equations.
        captured: the arrays that it holds as constants.
        callbacks: whether it calls back into Python.
    """

    equations: int
    loop: "Loop | None" = None
    captured: Captured | None = None
    callbacks: bool = False


def summarize(contents: Contents) -> Program:
    equations, loop = contents.equations, None
    if len(equations) >= SMALL:
        from ._loops import find_loop

        loop = find_loop(equations)
    return Program(len(equations), loop, _captured(contents.constants), contents.callbacks)


# ---- captured arrays ----


def _captured(constants: Sequence[Any]) -> Captured | None:
    sizes = [(int(getattr(x, "nbytes", 0)), x) for x in constants if hasattr(x, "shape")]
    total = sum(size for size, _ in sizes)
    if total < CAPTURED:
        return None
    size, largest = max(sizes, key=lambda pair: pair[0])
    shape = ",".join(map(str, largest.shape))
    return Captured(len(sizes), total, f"{largest.dtype}[{shape}] of {show_bytes(size)}")


def names_of_captured(fun: Any) -> tuple[str, ...]:
    """Returns the names of the variables of a function (cells and globals) that hold large arrays,
    and ``self`` if the object that a method is bound to holds some."""
    held: list[tuple[str, Any]] = []
    for inner in unwrap_chain(fun, "__wrapped__", "__func__"):
        if isinstance(inner, types.MethodType):
            held.append(("self", inner.__self__))
    if not isinstance(inner, types.FunctionType):
        return ()
    held += closure_of(inner)
    names = inner.__code__.co_names
    held += [(n, inner.__globals__[n]) for n in names if n in inner.__globals__]
    found = []
    for name, value in held:
        if isinstance(value, types.ModuleType):
            continue
        leaves = jax.tree_util.tree_leaves(value)
        arrays = [x for x in leaves if isinstance(x, _jax_compat.ARRAY_TYPES)]
        if sum(getattr(x, "nbytes", 0) for x in arrays) >= CAPTURED / 8:
            found.append(name)
    return tuple(found)
