"""Many leaves, deep and cyclic trees, and calls within calls without end."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core_support import Array, Box, Linear, Value, core, identical, same, testing
from hostile_support import NESTS, made_of, nest, unnest, uses, walks
from outcome_support import attempt, output_of, raised
from trees_support import partition_dict, parts_of, tree_leaves

HERE = Path(__file__).parent

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
        tree = make(Array(n) for n in numbers)
        arrays, structure = core.flatten(registry, tree)
        assert [x.value for x in arrays] == list(numbers)
        assert identical(testing.match(structure, tree), arrays)
        assert same(structure.unflatten(arrays), tree)
        with pytest.raises(ValueError, match=r"and .* more"):
            structure.combine()


# ---- deep trees ----

# Python 3.14 goes as deep as the stack allows, earlier versions as deep as the recursion limit.
DEEP = 100_000 if sys.version_info >= (3, 14) else 20_000


@pytest.mark.parametrize("name", NESTS)
def test_deep_trees(registry: Any, name: str) -> None:
    """Errors carry no path, which would be as long as the tree is deep."""
    make, inner = NESTS[name]
    tree = nest(make, DEEP)
    for call in (*walks(registry, tree).values(), *[lambda: core.flatten(registry, tree)] * 2):
        assert not hasattr(raised(RecursionError, call), "__filterjit_error_context__")
    shallow = nest(make, 50)
    arrays, structure = core.flatten(registry, shallow)
    assert testing.match(structure, shallow) == arrays and testing.match(structure, tree) is None
    assert structure._key_paths() and repr(structure)
    structure = core.tree_flatten(registry, shallow, True, None)[1]
    # The walk goes as deep as the structure, and no deeper.
    assert len(structure._subtrees(tree)) == structure.num_leaves
    unnest(tree, inner)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a shell sets the limit")
@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="takes more stack")
def test_flattening_deep_trees_leaves_a_fifth_of_a_usual_stack() -> None:
    """Python 3.12 and 3.13 count levels instead of looking at the stack, which is 8 MiB."""
    program = f"""
from core_support import core, make_registry
from hostile_support import NESTS, nest, unnest
for make, inner in NESTS.values():
    tree = nest(make, {DEEP})
    try:
        core.flatten(make_registry(), tree)
    except RecursionError:
        unnest(tree, inner)
        print("too deep")
"""
    path = os.pathsep.join(map(str, (HERE, HERE.parent)))
    command = f"ulimit -s 6500; PYTHONPATH=$PYTHONPATH:{path} exec {sys.executable} -c '{program}'"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=300)
    assert done.stdout == "too deep\n" * len(NESTS), done.stderr


def check_depth(registry: Any, make: Callable[[Any], Any], depth: int) -> int:
    """Checks what works at this depth, and returns how much does."""
    tree, other, deeper = (nest(make, d) for d in (depth, depth, depth + 1))
    made = made_of(registry, tree, other)
    results = uses(registry, tree, other, made)
    worked = {name: x for name, x in results.items() if not isinstance(x, Exception)}
    if "match" in worked:
        assert identical(worked["match"], core.flatten(registry, other)[0])
        found = attempt(testing.match, made[1][1], deeper)
        assert found is None or isinstance(found, RecursionError)
    for name, given in (("call", tree), ("call of another", other)):
        if name in worked and depth < 100:
            assert same(worked[name], given)
    return len(worked)


@pytest.mark.parametrize("name", NESTS)
def test_depths_near_the_limit(registry: Any, name: str) -> None:
    """At each depth an operation works or raises RecursionError; one Structure may do both."""
    limit = sys.getrecursionlimit()
    depths = (limit // 4, limit // 3, limit // 2, *range(limit - 90, limit + 10, 20))
    assert sum(check_depth(registry, NESTS[name][0], depth) for depth in depths) > 10


def test_deep_statics(registry: Any) -> None:
    for make in (lambda t: (t,), lambda t: frozenset([t]), lambda t: [t], lambda t: {"a": t}):
        value: Any = 1
        for _ in range(500 if make(1) == frozenset([1]) else DEEP // 2):
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
        # A filter takes little of the stack.
        raised(RecursionError, core.tree_flatten, registry, [1, 2], deep(op, 10 * DEEP), None)


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
    assert output_of(SCRIPT, str(size), str(depth)).split() == [*NESTS, "ended"]


@pytest.mark.parametrize("size", [0, *SMALL_STACKS])
def test_calls_within_calls_forever(size: int) -> None:
    """Each call of a FilterJit takes one frame of Python, and much more of the C stack; the size 0
    is that of the main thread."""
    assert output_of(SCRIPT, str(size), "calls").endswith("ended\n")


@pytest.mark.parametrize("size", [pytest.param(0, marks=pytest.mark.slow), *SMALL_STACKS[-3:]])
def test_deep_trees_with_variables(size: int) -> None:
    if size == 0 and "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("frames are larger")
    assert output_of(SCRIPT, str(size), "variables") == "ended\n"
