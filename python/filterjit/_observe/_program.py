"""What a program consists of: its equations by the line that made them, loops that Python
unrolled, and the arrays that it captured.

A loop is only called one on evidence: the equations were made at an instruction that stands
within a loop of its function's bytecode, and the same equations (primitive, place, shapes) were
made as many times. What Python repeats otherwise, in `map` or by recursion, is left alone.
"""

import bisect
import collections
import dataclasses
import dis
import functools
import os
import sysconfig
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from .._base import _jax_compat
from .._base._package import PACKAGE

LARGE = 1000  # equations
COPIES = 8  # of which a loop has at least so many
CAPTURED = 1 << 20  # bytes

_OURS = PACKAGE + os.sep
_JAX = os.path.dirname(jax.__file__) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_DEPTH = 256  # frames that are looked at
_JUMPS = frozenset(
    code
    for name, code in dis.opmap.items()
    if "JUMP_BACKWARD" in name and "NO_INTERRUPT" not in name
)
_FLAT = os.path.join(PACKAGE, "_call", "_options.py")


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop in Python that was unrolled."""

    file: str
    line: int
    copies: int
    size: int  # equations of each
    total: int  # of the program

    def __str__(self) -> str:
        share = min(1.0, self.copies * self.size / self.total)
        return (
            f"{os.path.basename(self.file)}:{self.line}, a Python loop, {self.copies:,} copies of "
            f"{self.size:,} equation{'s' * (self.size != 1)}, {share:.0%} of the program: "
            "jax.lax.scan or fori_loop keeps one"
        )


@dataclasses.dataclass(frozen=True)
class Captured:
    """Arrays that a program holds as constants."""

    count: int
    bytes: int
    largest: str  # in words
    names: tuple[str, ...] = ()  # of variables that hold them

    def __str__(self) -> str:
        many = f"{self.count:,} arrays, " if self.count > 1 else ""
        names = f" ({', '.join(f'`{name}`' for name in self.names)})" if self.names else ""
        largest = f"the largest {self.largest}" if self.count > 1 else self.largest
        return f"{many}{show_bytes(self.bytes)}{names}, {largest}"


@dataclasses.dataclass(frozen=True)
class Program:
    """What is known of a program. The lines only of large ones, most equations first."""

    equations: int
    lines: tuple[tuple[str, int, int], ...] = ()  # file, line, equations
    loop: Loop | None = None
    captured: Captured | None = None
    callbacks: bool = False  # it calls back into Python


def show_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


class Contents(NamedTuple):
    """What is in a closed jaxpr and all those in it, each once."""

    equations: list[Any]
    constants: list[Any]

    @property
    def callbacks(self) -> bool:
        """Whether the program calls back into Python, at any depth."""
        return any("callback" in equation.primitive.name for equation in self.equations)


def contents(closed: Any) -> Contents:
    equations: list[Any] = []
    constants: dict[int, Any] = {id(x): x for x in getattr(closed, "consts", ())}
    for jaxpr, consts in _jaxprs(closed):
        equations += jaxpr.eqns
        constants.update((id(x), x) for x in consts)
    return Contents(equations, list(constants.values()))


def look_at(found: Contents) -> Program:
    """What is worth knowing of it."""
    equations, callbacks = found.equations, found.callbacks
    captured = _captured(found.constants)
    if len(equations) < LARGE:
        return Program(len(equations), captured=captured, callbacks=callbacks)
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
    most = tuple((file, line, count) for (file, line), count in lines.most_common(8))
    loop = _loop(equations, stacks, counts, places)
    return Program(len(equations), most, loop, captured, callbacks)


_PLAIN = frozenset({type(None), bool, int, float, str})  # what most parameters are


def _jaxprs(root: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    """All jaxprs, each once, and the constants that they are closed over."""
    seen: dict[int, Any] = {}  # holds them, so that no other gets the id
    todo = [root]
    while todo:
        item = todo.pop()
        if type(item) in _PLAIN:
            continue
        if isinstance(item, Mapping):
            todo.extend(item.values())
        elif isinstance(item, (list, tuple)):
            todo.extend(item)
        elif id(item) not in seen and (hasattr(item, "eqns") or hasattr(item, "jaxpr")):
            seen[id(item)] = item
            jaxpr = getattr(item, "jaxpr", item)
            if not hasattr(jaxpr, "eqns"):
                todo.append(jaxpr)
            elif jaxpr is item or id(jaxpr) not in seen:
                seen[id(jaxpr)] = jaxpr
                yield jaxpr, getattr(item, "consts", ())
                for equation in jaxpr.eqns:
                    if equation.params:
                        todo.extend(equation.params.values())


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
    """The variables of a function, of its cells or globals, that hold large arrays; ``self``
    where it is bound."""
    held: list[tuple[str, Any]] = []
    for _ in range(100):
        if isinstance(fun, types.MethodType):
            held.append(("self", fun.__self__))
        inner = getattr(fun, "__wrapped__", None) or getattr(fun, "__func__", None)
        if inner is None:
            break
        fun = inner
    if not isinstance(fun, types.FunctionType):
        return ()
    code = fun.__code__
    for name, cell in zip(code.co_freevars, fun.__closure__ or (), strict=True):
        try:
            held.append((name, cell.cell_contents))
        except ValueError:  # empty
            pass
    held += [(n, fun.__globals__[n]) for n in code.co_names if n in fun.__globals__]
    found = []
    for name, value in held:
        if isinstance(value, types.ModuleType):
            continue
        leaves = jax.tree_util.tree_leaves(value)
        arrays = [x for x in leaves if isinstance(x, _jax_compat.ARRAY_TYPES)]
        if sum(getattr(x, "nbytes", 0) for x in arrays) >= CAPTURED / 8:
            found.append(name)
    return tuple(found)


# ---- lines and loops ----


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where an equation was made: the user's line, and the loops around, the innermost first."""

    line: tuple[str, int] | None
    loops: tuple[tuple[types.CodeType, int], ...]  # each by its first instruction

    @classmethod
    def of(cls, codes: Sequence[types.CodeType], offsets: Sequence[int]) -> "_Place":
        line, lines_own = None, False
        loops: list[tuple[types.CodeType, int]] = []
        for code, offset in zip(codes[:_DEPTH], offsets[:_DEPTH], strict=True):
            file = code.co_filename
            if file == _FLAT and code.co_name == "flat":
                break  # what is further out is not of this program
            loops += ((code, start) for start, end in _loops_of(code) if start <= offset <= end)
            if not lines_own and _is_python(file):
                lines_own = f"{os.sep}site-packages{os.sep}" not in file
                if line is None or lines_own:
                    line = file, _line_of(code, offset)
        return cls(line, tuple(loops))


def _is_python(file: str) -> bool:
    """Whether a source file is neither ours, nor JAX's, nor of Python itself."""
    if file.startswith((_OURS, _JAX, "<frozen")):
        return False
    return not file.startswith(_STDLIB) or f"{os.sep}site-packages{os.sep}" in file


@functools.lru_cache(1024)
def _loops_of(code: types.CodeType) -> tuple[tuple[int, int], ...]:
    """First and last offset of each loop in a function, the smallest first."""
    ends: dict[int, int] = {}
    if _JUMPS.isdisjoint(code.co_code[::2]):
        return ()  # at once: a long function takes long to disassemble
    for instruction in dis.get_instructions(code):
        if instruction.opcode in _JUMPS:
            ends[instruction.argval] = max(ends.get(instruction.argval, 0), instruction.offset)
    return tuple(sorted(ends.items(), key=lambda loop: loop[1] - loop[0]))


@functools.lru_cache(1024)
def _lines_of(code: types.CodeType) -> tuple[list[int], list[int | None]]:
    lines = list(code.co_lines())
    return [start for start, _, _ in lines], [line for _, _, line in lines]


def _line_of(code: types.CodeType, offset: int) -> int:
    starts, lines = _lines_of(code)
    return lines[bisect.bisect_right(starts, offset) - 1] or code.co_firstlineno


def _loop(
    equations: Sequence[Any],
    stacks: Sequence[Any],
    counts: Mapping[Any, int],
    places: Mapping[Any, _Place],
) -> Loop | None:
    """The innermost loop that made more than half of the equations, copy by copy."""
    total = len(equations)
    made: dict[tuple[types.CodeType, int], list[int]] = {}  # equations, and how deep inside
    for stack, count in counts.items():
        for depth, loop in enumerate(dict.fromkeys(places[stack].loops)):
            entry = made.setdefault(loop, [0, 0])
            entry[0] += count
            entry[1] += depth * count
    large = [
        (depth / n, code, start) for (code, start), (n, depth) in made.items() if 2 * n > total
    ]
    if not large:
        return None
    _, code, start = min(large, key=lambda item: item[0])
    if not _is_python(code.co_filename):
        return None  # JAX's own, over the leaves of a tree, say
    inside = {stack for stack in counts if (code, start) in places[stack].loops}
    made_at = collections.Counter(
        (stack, e.primitive.name, *(getattr(x.aval, "shape", None) for x in e.outvars))
        for e, stack in zip(equations, stacks, strict=True)
        if stack in inside
    )
    found = _copies(list(made_at.values()))
    if found is None or 2 * found[1] <= total:
        return None
    copies, covered = found
    # The test of a `while` stands at its end.
    line = min(_line_of(code, start), _line_of(code, dict(_loops_of(code))[start]))
    return Loop(code.co_filename, line, copies, round(covered / copies), total)


def _copies(counts: list[int]) -> tuple[int, int] | None:
    """How often a sequence was repeated whose members were counted: so often that at least four
    in five were, once or several times a copy. The first and the last copy may differ. And
    how many they are in all."""
    total = sum(counts)
    for copies, kinds in sorted(collections.Counter(counts).items()):
        if copies < COPIES or copies * kinds < 0.1 * total:
            continue
        covered = 0
        for count in counts:
            times = round(count / copies)
            if times and abs(count - times * copies) <= 2 * times:
                covered += count
        if covered >= 0.8 * total:
            return copies, covered
    return None
