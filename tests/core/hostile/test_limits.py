"""Many leaves, deep and cyclic trees, and calls within calls without end."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Hostile,
    Linear,
    Value,
    core,
    make_jit,
    make_registry,
    partition_dict,
    parts_of,
    same,
    testing,
    tree_leaves,
    tree_paths,
    words,
)
from hostile_support import ENDLESS, NESTS, nest, unnest, walks
from outcome_support import attempt, raised
from process_support import output_of
from statics_support import check_all_differ

# ---- many ----


@pytest.mark.parametrize("count", [1023, 1024, 1025, 2049, 5000])
def test_many_leaves(registry: Any, count: int) -> None:
    numbers = range(count)
    for make in (
        list,
        tuple,
        lambda leaves: [(x,) for x in leaves],
        lambda leaves: {f"{i:05}": x for i, x in enumerate(leaves)},
        lambda leaves: [*leaves, []],
    ):
        tree = make(Value(n) for n in numbers)
        leaves, structure = core.tree_flatten(registry, tree, True, None)
        assert [x.value for x in leaves] == list(numbers) and len(structure.paths) == count
        assert same(structure.unflatten(leaves), tree)
        assert len(structure._subtrees(tree)) == count
        odd = ("leaf", lambda x: x.value % 2 == 1)
        parts = core.partition(registry, tree, (odd,), None, None)
        assert [x.value for x in tree_leaves(registry, parts[0], None)] == list(numbers)[1::2]
        assert same(core.combine(registry, parts, None, True), tree)
        structure, *groups = partition_dict(registry, tree, ("not", odd), (odd,), None)
        assert groups[0] == {} and len(groups[1]) == (count + 1) // 2
        assert same(structure.combine(*groups), tree)
        again = core.from_skeleton(registry, 0, *parts_of(structure, 0))
        assert again == structure and again.num_leaves == (count + 1) // 2
        with pytest.raises(ValueError, match=r"and .* more"):
            structure.combine()


# ---- deep trees ----


@pytest.mark.parametrize("name", NESTS)
def test_deep_trees(registry: Any, name: str) -> None:
    """Errors carry no path, which would be as long as the tree is deep."""
    make, inner = NESTS[name]
    tree = nest(make, 100_000)
    for call in (*walks(registry, tree).values(), *[lambda: core.flatten(registry, tree)] * 2):
        assert not hasattr(raised(RecursionError, call), "__filterjit_error_context__")
    shallow = nest(make, 50)
    arrays, structure = core.flatten(registry, shallow)
    assert testing.match(structure, shallow) == arrays and testing.match(structure, tree) is None
    assert words.key_paths(structure) and repr(structure)
    structure = core.tree_flatten(registry, shallow, True, None)[1]
    # The walk goes as deep as the structure, and no deeper.
    assert len(structure._subtrees(tree)) == structure.num_leaves
    unnest(tree, inner)


def uses(registry: Any, tree: Any, other: Any) -> list[Any]:
    """What the operations on the Structures of a tree return or raise; `other` is equal."""
    results: list[Any] = []
    flat = attempt(core.flatten, registry, tree)
    if not isinstance(flat, Exception):
        arrays, structure = flat
        results += [attempt(testing.match, structure, other), attempt(structure.unflatten, arrays)]
        results += [attempt(repr, structure)]
        assert len(words.key_paths(structure)) == len(arrays)
    found = attempt(core.tree_flatten, registry, tree, True, None)
    if not isinstance(found, Exception):
        leaves, structure = found
        group = lambda: structure.combine(dict(zip(structure.paths, leaves, strict=True)))
        again = lambda: structure == core.tree_flatten(registry, other, True, None)[1]
        results += [attempt(structure.unflatten, leaves), attempt(structure._subtrees, tree)]
        results += [attempt(lambda: structure.paths), attempt(group), attempt(again)]
        results += [attempt(structure._skeleton, 0), attempt(repr, structure)]
        results += [attempt(hash, structure)]
    return [*results, flat, found]


@pytest.mark.parametrize("name", NESTS)
def test_depths_near_the_limit(registry: Any, name: str) -> None:
    """At each depth an operation works or raises RecursionError; one Structure may do both."""
    make, _ = NESTS[name]
    limit = sys.getrecursionlimit()
    worked = 0
    for depth in (limit // 4, limit // 3, limit // 2, *range(limit - 90, limit + 10, 7)):
        tree = nest(make, depth)
        for key, call in walks(registry, tree).items():
            found = attempt(call)
            # The tree 1 is not as deep as these filters, and () has no leaf: errors too.
            other = key in ("filters", "from_skeleton")
            errors = (RecursionError, ValueError) if other else RecursionError
            assert not isinstance(found, Exception) or isinstance(found, errors), key
        results = uses(registry, tree, nest(make, depth))
        failed = [x for x in results if isinstance(x, Exception)]
        assert all(isinstance(x, RecursionError) for x in failed) and None not in results
        worked += len(results) - len(failed)
    assert worked > 10


def test_deep_statics(registry: Any) -> None:
    for make in (lambda t: (t,), lambda t: frozenset([t]), lambda t: [t], lambda t: {"a": t}):
        value: Any = 1
        for _ in range(500 if make(1) == frozenset([1]) else 50_000):
            value = make(value)
        structure = core.flatten(registry, Linear(size=value))[1]
        assert isinstance(attempt(hash, structure), (int, RecursionError))
        found = attempt(testing.match, structure, Linear(size=value))
        assert isinstance(found, (tuple, RecursionError))


def test_deep_filters(registry: Any) -> None:
    def deep(op: str, depth: int) -> Any:
        expression: Any = ("leaf", lambda n: n == 1)
        for _ in range(depth):
            expression = ("not", expression) if op == "not" else (op, expression, op == "and")
        return expression

    for op in ("not", "and", "or"):
        assert core.tree_flatten(registry, [1, 2], deep(op, 100), None)[0] == [1]
        # Python 3.14 goes as deep as the stack allows, and a filter takes little of it.
        raised(RecursionError, core.tree_flatten, registry, [1, 2], deep(op, 1_000_000), None)


def _deep(depth: int, leaf: Any) -> Any:
    x = leaf
    for _ in range(depth):
        x = [x, 1]
    return x


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("may_run_python", [False, True])
def test_less_of_the_stack_than_for_flattening(static: bool, may_run_python: bool) -> None:
    """Each walk counts its own depth.  Up to 3.11, the recursion limit counts C code as well."""
    registry = make_registry()
    leaf = Hostile() if may_run_python else Array()

    def make() -> Any:
        x = _deep(150, leaf)
        return Linear(weight=Array(), size=x) if static else x

    tree, other = make(), make()
    arrays, structure = core.flatten(registry, tree)
    again = core.flatten(registry, other)[1]
    hash(structure), hash(again)
    outer = core.tree_flatten(registry, tree, True, None)[1]
    f = make_jit(lambda x: x)
    f(tree)
    calls: list[Callable[[], Any]] = [
        lambda: core.flatten(registry, other),
        lambda: structure.unflatten(arrays),
        lambda: testing.match(structure, other),
        lambda: structure == again,
        lambda: hash(core.flatten(registry, other)[1]),
        lambda: repr(structure),
        lambda: tree_paths(registry, tree, None),
        lambda: words.key_paths(f._find(tree)[1]),
        lambda: outer._subtrees(other),
        lambda: core.tree_flatten(registry, tree, ("path", (...,)), None),
        lambda: f(other),
        lambda: f._find(other),
        lambda: f._find_or_compile(other),
    ]
    here = len(inspect.stack(0))
    before = sys.getrecursionlimit()
    for call in calls:
        for room in (20, 60, 100, 130, 145, 152, 160):
            try:
                sys.setrecursionlimit(here + room)
                call()
            except RecursionError:
                pass
            finally:
                sys.setrecursionlimit(before)
        call()
    assert same(f(other), other)


# ---- cycles ----


def test_cycles(registry: Any) -> None:
    loops: list[Any] = [[1], {"a": 1}, Linear(), Box([])]
    loops[0].append(loops[0])
    loops[1]["self"] = loops[1]
    loops[2].weight = loops[2]
    loops[3].children.append(loops[3])
    for loop in loops:
        for tree in (loop, [0, (loop,)]):
            for call in (*walks(registry, tree).values(), lambda t=tree: core.flatten(registry, t)):
                raised(RecursionError, call)
    loop = loops[0]
    structure = core.tree_flatten(registry, [0, [0, [0, [0, 0]]]], True, None)[1]
    assert structure._subtrees(loop)[:4] == [1, 1, 1, 1], "the walk ends where the structure ends"
    assert testing.match(core.flatten(registry, [1, [1, [1, [1]]]])[1], loop) is None
    assert tree_leaves(registry, loop, lambda x: x is loop)[0] is loop
    structure = core.tree_flatten(registry, [0, loop], False, lambda x: x is loop)[1]
    assert repr(structure) == "Structure([0, [1, [...]]])"
    with pytest.raises((RecursionError, TypeError)):
        hash(structure)
    loop.clear()


def test_static_cycles(registry: Any) -> None:
    """A value in itself is compared as the value so many levels up."""

    def make(levels: int, last: Any = 0) -> Any:
        loop: list[Any] = [last]
        inner = loop
        for _ in range(levels - 1):
            inner.append([1])
            inner = inner[-1]
        inner.append({"loop": loop})
        return Linear(size=loop)

    def all_kinds() -> list[Any]:
        return [make(1), make(2), make(3), make(1, True), make(1, -1), make(1, -2)]

    trees = all_kinds()
    check_all_differ(registry, trees, all_kinds())
    structure = core.flatten(registry, trees[0])[1]
    hash(structure)
    trees[0].size[0] = 5
    assert testing.match(structure, trees[0]) is None
    for tree in trees:
        tree.size.clear()


# ---- calls within calls, and small stacks, in processes that may crash ----

# Python 3.14 looks at how much of the stack is left.  Earlier versions count calls, whatever the
# stack: on a small one they crash, for example in the repr of a nested list.
SMALL_STACKS = (64, 128, 256, 1024) if sys.version_info >= (3, 14) else (16 << 10,)  # KiB
SCRIPT = str(Path(__file__).parent / "small_stack.py")


@pytest.mark.slow
@pytest.mark.parametrize("depth", [30, 900, 9_000, 100_000])
@pytest.mark.parametrize("size", SMALL_STACKS)
def test_deep_trees_on_a_small_stack(size: int, depth: int) -> None:
    """Each operation works or raises RecursionError, also on what another thread has made."""
    assert output_of(SCRIPT, "trees", str(size), str(depth)).split() == list(NESTS)


@pytest.mark.parametrize("size", [0, *SMALL_STACKS])
@pytest.mark.parametrize("name", ENDLESS)
def test_calls_within_calls_forever(size: int, name: str) -> None:
    """Each call of a FilterJit takes one frame of Python, and much more of the C stack; the size 0
    is that of the main thread."""
    output = output_of(SCRIPT, "calls", str(size), name)
    assert "ended" in output
    assert name == "eq" or "too deep" in output  # each is of a class of its own


PRELUDE = """
import resource
# Most systems give this many bytes of stack.
resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
from core_support import *
from outcome_support import raised
registry = make_registry()
partition = lambda p: core.partition(registry, [1], (p,), None, None)

class Lacks(Slots):
    def __getattr__(self, name):
        return jitted(kept)

# The Structure tells of no Python code; an attribute that is missing later asks for some.
jitted = make_jit(lambda x: 1)
kept = [Lacks(x=Array(), y=Array(), tag=1)]
jitted(kept), jitted(kept)
del kept[0].y
"""


@pytest.mark.parametrize(
    "code",
    [
        "f = lambda x: tree_leaves(registry, x, f)",
        "p = 'tree', 0, lambda x: p; f = lambda x: partition(p)",
        "f = lambda x: partition(('leaf', f))",
        "f = lambda x: core.tree_flatten(registry, x, ('leaf', f), None)",
        "f = lambda x: core.tree_flatten(registry, [x], ('path', (f,)), None)",
        "f = lambda x: jitted(kept)",
    ],
)
def test_a_function_that_calls_itself_forever(code: str) -> None:
    output_of("-c", f"{PRELUDE}\n{code}\nfor _ in range(2): raised(RecursionError, lambda: f(1))")
