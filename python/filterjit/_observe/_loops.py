"""The source lines that created the equations of a program, and Python loops that the trace
unrolled.

Two observations together identify an unrolled loop. More than half of the equations were created
by instructions inside one loop of a function's bytecode, and equations that are equal (primitive,
place, shapes) occur about as often as the loop was run. Repetition by `map` or by recursion is not
detected.
"""

import bisect
import collections
import dataclasses
import dis
import functools
import os
import sysconfig
import types
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from .._base._package import PACKAGE
from .._compat import _jax_compat
from ._wording import file_and_line

_MOST_LINES = 8
_FEWEST_COPIES = 8  # of a loop's body
_MOST_FRAMES = 256  # of an equation's stack that are inspected, the innermost ones

_FILTERJIT = PACKAGE + os.sep
_CALL = os.path.join(PACKAGE, "_call") + os.sep  # `flat`, the function that JAX traces, is in there
_JAX = os.path.dirname(jax.__file__) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_JUMPS = frozenset(
    code
    for name, code in dis.opmap.items()
    if "JUMP_BACKWARD" in name and "NO_INTERRUPT" not in name
)
_HAVE_TARGETS = frozenset(dis.hasjrel + dis.hasjabs)
# Instructions after which the next one does not run.
_LAST = {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}
_LAST |= {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"}


@dataclasses.dataclass(frozen=True)
class Loop:
    """A Python loop that a trace unrolled.

    Attributes:
        file, line: where the loop is.
        copies: how often its body is in the program.
        size: equations of one copy.
        total: equations of the program.
    """

    file: str
    line: int
    copies: int
    size: int
    total: int

    def __str__(self) -> str:
        share = min(1.0, self.copies * self.size / self.total)
        return (
            f"{file_and_line(self.file, self.line)}, a Python loop, {self.copies:,} copies of "
            f"{self.size:,} equation{'s' * (self.size != 1)}, {share:.0%} of the program: "
            "jax.lax.scan or fori_loop would keep one copy"
        )


def may_have_loop(equations: Sequence[Any]) -> bool:
    """Whether more than half of the equations were created at places that created as many as the copies
    of a loop. This is found without looking at the bytecode, which takes long."""
    counts = collections.Counter(map(_jax_compat.stack_key, equations)).values()
    return 2 * sum(count for count in counts if count >= _FEWEST_COPIES) > len(equations)


def lines_and_loop(
    equations: Sequence[Any],
) -> tuple[tuple[tuple[str, int, int], ...], Loop | None]:
    """Returns the source lines with the most equations, most first, as file, line and equations;
    and the Python loop that made more than half of all equations, if there is one."""
    stacks = [_jax_compat.stack_key(e) for e in equations]
    places = {
        stack: _Place.of(*_jax_compat.raw_stack(e))
        for stack, e in dict(zip(stacks, equations, strict=True)).items()
    }
    counts = collections.Counter(stacks)
    lines: collections.Counter[tuple[str, int]] = collections.Counter()
    for stack, count in counts.items():
        line = places[stack].line
        if line is not None:
            lines[line] += count
    most = tuple((file, line, count) for (file, line), count in lines.most_common(_MOST_LINES))
    return most, _find_loop(equations, stacks, counts, places)


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where an equation was created.

    Attributes:
        line: file and line in the user's code.
        loops: the Python loops around it, innermost first; each is identified by its function and
            the offset of its first instruction.
    """

    line: tuple[str, int] | None
    loops: tuple[tuple[types.CodeType, int], ...]

    @classmethod
    def of(cls, codes: Sequence[types.CodeType], offsets: Sequence[int]) -> "_Place":
        line, is_users_line = None, False
        loops: list[tuple[types.CodeType, int]] = []
        for code, offset in zip(codes[:_MOST_FRAMES], offsets[:_MOST_FRAMES], strict=True):
            file = code.co_filename
            if code.co_name == "flat" and file.startswith(_CALL):
                break  # the frames further out called the jitted function
            loops += ((code, start) for start, end in _loops_of(code) if start <= offset <= end)
            if not is_users_line and _is_user_or_library(file):
                is_users_line = f"{os.sep}site-packages{os.sep}" not in file
                if line is None or is_users_line:
                    line = file, _line_of(code, offset)
        return cls(line, tuple(loops))


def _is_user_or_library(file: str) -> bool:
    """Whether a source file belongs to none of filterjit, JAX and Python's standard library."""
    if file.startswith((_FILTERJIT, _JAX, "<frozen")):
        return False
    return not file.startswith(_STDLIB) or f"{os.sep}site-packages{os.sep}" in file


@functools.lru_cache(1024)
def _loops_of(code: types.CodeType) -> tuple[tuple[int, int], ...]:
    """Returns the first and last offset of each loop in a function, smallest loop first."""
    ends: dict[int, int] = {}
    if _JUMPS.isdisjoint(code.co_code[::2]):
        return ()  # without disassembling the function, which is slow
    for instruction in _without_handlers(code):
        if instruction.opcode in _JUMPS:
            ends[instruction.argval] = max(ends.get(instruction.argval, 0), instruction.offset)
    return tuple(sorted(ends.items(), key=lambda loop: loop[1] - loop[0]))


def _without_handlers(code: types.CodeType) -> list[dis.Instruction]:
    """The instructions of a function that run if nothing is raised.

    The handlers of ``with`` and ``try`` are the others. They are at the end of the bytecode since
    Python 3.12, and jump back from there without being in a loop.
    """
    instructions = list(dis.get_instructions(code))
    at = {instruction.offset: i for i, instruction in enumerate(instructions)}
    reached = [False] * len(instructions)
    todo = [0]
    while todo:
        i = todo.pop()
        if i >= len(instructions) or reached[i]:
            continue
        reached[i] = True
        instruction = instructions[i]
        if instruction.opcode in _HAVE_TARGETS and instruction.argval in at:
            todo.append(at[instruction.argval])
        if instruction.opname not in _LAST:
            todo.append(i + 1)
    return [x for x, is_reached in zip(instructions, reached, strict=True) if is_reached]


@functools.lru_cache(1024)
def _lines_of(code: types.CodeType) -> tuple[list[int], list[int | None]]:
    lines = list(code.co_lines())
    return [start for start, _, _ in lines], [line for _, _, line in lines]


def _line_of(code: types.CodeType, offset: int) -> int:
    starts, lines = _lines_of(code)
    return lines[bisect.bisect_right(starts, offset) - 1] or code.co_firstlineno


def _find_loop(
    equations: Sequence[Any],
    stacks: Sequence[Any],
    counts: Mapping[Any, int],
    places: Mapping[Any, _Place],
) -> Loop | None:
    """Returns the innermost loop whose copies hold more than half of the equations."""
    total = len(equations)
    # For each loop: its equations, and the sum over them of the loops between equation and loop.
    sums: dict[tuple[types.CodeType, int], list[int]] = {}
    for stack, count in counts.items():
        for depth, loop in enumerate(dict.fromkeys(places[stack].loops)):
            entry = sums.setdefault(loop, [0, 0])
            entry[0] += count
            entry[1] += depth * count
    large = [
        (depth / n, code, start) for (code, start), (n, depth) in sums.items() if 2 * n > total
    ]
    if not large:
        return None
    _, code, start = min(large, key=lambda item: item[0])
    if not _is_user_or_library(code.co_filename):
        return None  # a loop of JAX, for example over the leaves of a tree
    inside = {stack for stack in counts if (code, start) in places[stack].loops}
    equal = collections.Counter(
        (stack, e.primitive.name, *(getattr(x.aval, "shape", None) for x in e.outvars))
        for e, stack in zip(equations, stacks, strict=True)
        if stack in inside
    )
    found = _copies(list(equal.values()))
    if found is None or 2 * found[1] <= total:
        return None
    copies, covered = found
    # The first instruction of a `while` loop's body is not on the line of the `while`; the jump at
    # its end is. The smaller of both lines is that of the loop.
    line = min(_line_of(code, start), _line_of(code, dict(_loops_of(code))[start]))
    return Loop(code.co_filename, line, copies, round(covered / copies), total)


def _copies(counts: list[int]) -> tuple[int, int] | None:
    """Finds n such that 80 % of the equations occur about k*n times; returns (n, equations
    covered), or None.

    `counts` says how often each distinct equation occurs. A count may deviate by 2*k, because the
    first and the last copy of a loop's body may differ from the others.
    """
    total = sum(counts)
    for copies, kinds in sorted(collections.Counter(counts).items()):
        if copies < _FEWEST_COPIES or copies * kinds < 0.1 * total:
            continue
        covered = 0
        for count in counts:
            times = round(count / copies)
            if times and abs(count - times * copies) <= 2 * times:
                covered += count
        if covered >= 0.8 * total:
            return copies, covered
    return None
