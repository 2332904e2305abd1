"""Remarks on a traced program: a Python loop that it unrolled, and arrays that it holds.

Two observations identify an unrolled loop: instructions inside one loop of a function's bytecode
created more than half of the equations; and equal equations (primitive, place, shapes) occur about
as often as the loop ran. Repetition by `map` or recursion isn't detected.
"""

import bisect
import collections
import dataclasses
import dis
import functools
import os
import sys
import sysconfig
import types
from collections.abc import Sequence
from typing import Any

import jax

from .._base._package import PACKAGE
from .._base._unwrap import closure_of, unwrap_chain
from .._compat import _jax_compat
from ._wording import count, file_and_line, show_bytes

_LARGE = 1 << 17  # bytes; variables with smaller arrays aren't named
_FEWEST_COPIES = 8  # of a loop's body
_MOST_FRAMES = 256  # innermost frames of an equation's stack

_CALL = os.path.join(PACKAGE, "_call") + os.sep  # has `flat`, the function that JAX traces
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_OTHERS = (PACKAGE + os.sep, os.path.dirname(jax.__file__) + os.sep, "<frozen")
_JUMPS = frozenset(
    code
    for name, code in dis.opmap.items()
    if "JUMP_BACKWARD" in name and "NO_INTERRUPT" not in name
)

_Loop = tuple[types.CodeType, int]
"""A loop: its function's code, and the offset of its first instruction."""


@dataclasses.dataclass(frozen=True)
class Loop:
    """A Python loop that a trace unrolled: `copies` of `size` equations, of `total` in the
    program."""

    file: str
    line: int
    copies: int
    size: int
    total: int

    def __str__(self) -> str:
        share = min(1.0, self.copies * self.size / self.total)
        return (
            f"{file_and_line(self.file, self.line)}, a Python loop, {self.copies:,} copies of "
            f"{count(self.size, 'equation')}, {share:.0%} of the program: "
            "jax.lax.scan or fori_loop would keep one copy"
        )


def find_loop(equations: Sequence[Any]) -> Loop | None:
    """Returns the innermost Python loop with more than half of the equations, or None."""
    total = len(equations)
    stacks = [_jax_compat.stack_key(e) for e in equations]
    counts = collections.Counter(stacks)
    if 2 * sum(n for n in counts.values() if n >= _FEWEST_COPIES) <= total:
        return None  # reading the bytecode would be slow
    of_stack = dict(zip(stacks, equations, strict=True))
    around = {stack: _loops_around(*_jax_compat.raw_stack(e)) for stack, e in of_stack.items()}
    # Of each loop: the number of its equations, and the sum of their depths inside the loop.
    sums: dict[_Loop, list[int]] = {}
    for stack, n in counts.items():
        for depth, loop in enumerate(around[stack]):
            entry = sums.setdefault(loop, [0, 0])
            entry[0] += n
            entry[1] += depth * n
    large = [(depth / n, *loop) for loop, (n, depth) in sums.items() if 2 * n > total]
    if not large:
        return None
    _, code, start = min(large, key=lambda item: item[0])
    if not _is_user_or_library(code.co_filename):
        return None  # a loop of JAX, for example over a tree's leaves
    equal = collections.Counter(
        (stack, e.primitive.name, *(getattr(x.aval, "shape", None) for x in e.outvars))
        for e, stack in zip(equations, stacks, strict=True)
        if (code, start) in around[stack]
    )
    found = _copies(list(equal.values()))
    if found is None or 2 * found[1] <= total:
        return None
    copies, covered = found
    # A `while` loop's body begins on a later line than the `while`, but the jump at its end
    # doesn't. Take the smaller line.
    line = min(_line_of(code, start), _line_of(code, dict(_loops_of(code))[start]))
    return Loop(code.co_filename, line, copies, round(covered / copies), total)


def _loops_around(codes: Sequence[types.CodeType], offsets: Sequence[int]) -> list[_Loop]:
    """Returns the Python loops around the origin of an equation, innermost first."""
    loops: dict[_Loop, None] = {}
    for code, offset in zip(codes[:_MOST_FRAMES], offsets[:_MOST_FRAMES], strict=True):
        if code.co_name == "flat" and code.co_filename.startswith(_CALL):
            break  # the remaining frames called the jitted function
        loops |= {(code, start): None for start, end in _loops_of(code) if start <= offset <= end}
    return list(loops)


def _is_user_or_library(file: str) -> bool:
    """True if a source file is outside filterjit, JAX and Python's standard library."""
    if file.startswith(_OTHERS):
        return False
    return not file.startswith(_STDLIB) or f"{os.sep}site-packages{os.sep}" in file


@functools.lru_cache(1024)
def _loops_of(code: types.CodeType) -> tuple[tuple[int, int], ...]:
    """Returns the first and last offset of each loop in a function, smallest loop first."""
    ends: dict[int, int] = {}
    if _JUMPS.isdisjoint(code.co_code[::2]):
        return ()  # skip disassembling, which is slow
    for instruction in dis.get_instructions(code):
        # Since Python 3.12, the handlers of `with` and `try` are at the end of the bytecode, and
        # jump back without a loop.
        if instruction.opname == "PUSH_EXC_INFO" and sys.version_info >= (3, 12):
            break
        if instruction.opcode in _JUMPS:
            ends[instruction.argval] = max(ends.get(instruction.argval, 0), instruction.offset)
    return tuple(sorted(ends.items(), key=lambda loop: loop[1] - loop[0]))


def _line_of(code: types.CodeType, offset: int) -> int:
    lines = list(code.co_lines())
    return (
        lines[bisect.bisect_right(lines, offset, key=lambda x: x[0]) - 1][2] or code.co_firstlineno
    )


def _copies(counts: list[int]) -> tuple[int, int] | None:
    """Finds an n such that 80 % of the equations occur about k*n times. Returns (n, equations
    covered), or None.

    `counts` has the frequency of each distinct equation. It can deviate by 2*k, because the first
    and last copies of a loop's body can differ from the rest.
    """
    total = sum(counts)
    for copies, kinds in sorted(collections.Counter(counts).items()):
        if copies < _FEWEST_COPIES or copies * kinds < 0.1 * total:
            continue
        covered = 0
        for n in counts:
            times = round(n / copies)
            if times and abs(n - times * copies) <= 2 * times:
                covered += n
        if covered >= 0.8 * total:
            return copies, covered
    return None


# ---- captured arrays ----


def captured(constants: Sequence[Any], fun: Any) -> str:
    """Describes a program's constant arrays. The function's name goes in front."""
    arrays = [x for x in constants if hasattr(x, "nbytes")]
    size = show_bytes(sum(x.nbytes for x in arrays))
    held = _names_of_captured(fun)
    names = f" ({', '.join(f'`{name}`' for name in held)})" if held else ""
    remedy = "Pass them as arguments, or in a Module that is an argument."
    if "self" in held:
        remedy = (
            "Jit the object itself, or pass it as an argument: a bound method holds its object."
        )
    return (
        f"captures {count(len(arrays), 'array')} of {size}{names} as constants. Each of its programs "
        f"holds a copy and is slow to compile. {remedy}"
    )


def _names_of_captured(fun: Any) -> tuple[str, ...]:
    """Returns the names of cells and globals, and perhaps ``self``, that hold large arrays."""
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
        if sum(getattr(x, "nbytes", 0) for x in arrays) >= _LARGE:
            found.append(name)
    return tuple(found)
