"""The functions over trees on many trees, large ones and endless ones."""

import random
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core_support import Array, Box, Linear, Value, core, same
from hostile_support import NESTS, attempt, nest

# ---- many ----


def test_many_groups(registry: Any) -> None:
    source = random.Random(3)
    for count in (20, 100):
        tree = {"a": [list(range(i, i + 7)) for i in range(0, 200, 10)], "b": tuple(range(300))}
        leaves = core.tree_leaves(registry, tree, None)
        programs = tuple(("leaf", lambda n, i=i, m=count + 1: n % m == i) for i in range(count))
        parts = core.partition(registry, tree, programs, None, None)
        assert len(parts) == count + 1
        for i, part in enumerate(parts):
            assert core.tree_leaves(registry, part, None) == [
                n for n in leaves if n % (count + 1) == i
            ]
        source.shuffle(shuffled := list(parts))
        assert core.combine(registry, tuple(shuffled), None, True) == tree
        structure, *groups = core.partition_dict(registry, tree, True, programs, None)
        assert [list(g.values()) for g in groups] == [
            [n for n in leaves if n % (count + 1) == i] for i in range(count + 1)
        ]
        source.shuffle(groups)
        assert structure.combine(*groups) == tree


@pytest.mark.parametrize("count", [1, 7, 8, 9, 20, 300])
def test_many_trees(registry: Any, count: int) -> None:
    trees = tuple([k, (k + 1, {"a": k + 2})] for k in range(0, 10 * count, 10))
    rows = core.tree_map(registry, lambda *row: row, trees, None)
    wanted = lambda n: tuple(range(n, 10 * count, 10))
    assert rows == [wanted(0), (wanted(1), {"a": wanted(2)})]
    with pytest.raises(ValueError, match=f"tree {count + 1} differs from tree 1 at `\\[1\\]"):
        core.tree_map(registry, max, (*trees, [0, (1, {"b": 2})]), None)
    holes = tuple([None, (None, {"a": None})] for _ in range(count))
    assert core.combine(registry, (*holes, trees[-1], *holes), None, True) == trees[-1]


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
        assert len(structure.flatten_up_to(tree)) == count
        summed = core.tree_map(registry, lambda *r: sum(x.value for x in r), (tree,) * 3, None)
        assert core.tree_leaves(registry, summed, None) == [3 * n for n in numbers]
        odd = ("leaf", lambda x: x.value % 2 == 1)
        parts = core.partition(registry, tree, (odd,), None, None)
        assert [x.value for x in core.tree_leaves(registry, parts[0], None)] == list(numbers)[1::2]
        assert same(core.combine(registry, parts, None, True), tree)
        structure, *groups = core.partition_dict(registry, tree, ("not", odd), (odd,), None)
        assert groups[0] == {} and len(groups[1]) == (count + 1) // 2
        assert same(structure.combine(*groups), tree)
        fixed = core.from_parts(registry, 0, *structure._parts(0))
        assert fixed == structure and fixed.num_leaves == (count + 1) // 2
        with pytest.raises(ValueError, match=r"and .* more"):
            structure.combine()


# ---- without end ----


def endless(registry: Any, tree: Any) -> dict[str, Callable[[], Any]]:
    takes = ("path", (("deep",),))
    return {
        "leaves": lambda: core.tree_leaves(registry, tree, None),
        "paths": lambda: core.tree_paths(registry, tree, None),
        "is_leaf": lambda: core.tree_leaves(registry, tree, lambda x: False),
        "map": lambda: core.tree_map(registry, lambda x: x, (tree,), None),
        "flatten": lambda: core.tree_flatten(registry, tree, takes, None),
        "partition": lambda: core.partition(registry, tree, (takes,), None, None),
        "dict": lambda: core.partition_dict(registry, tree, True, (takes,), None),
        "combine": lambda: core.combine(registry, (tree, tree), None, False),
        "filters": lambda: core.partition(registry, 1, (("tree", tree, max),), None, None),
        "below": lambda: core.partition(registry, [tree], (("tree", [True], max),), None, None),
        "from_parts": lambda: core.from_parts(registry, 0, tree, None),
    }


@pytest.mark.parametrize("name", NESTS)
def test_deep_trees(registry: Any, name: str) -> None:
    make, inner = NESTS[name]
    tree = nest(make, 100_000)
    for call in endless(registry, tree).values():
        with pytest.raises(RecursionError):
            call()
    shallow = core.tree_flatten(registry, nest(make, 50), True, None)[1]
    # As deep as the structure goes, and no deeper:
    assert len(shallow.flatten_up_to(tree)) == shallow.num_leaves
    while not isinstance(tree, Array):  # not all types are dropped without recursion
        tree = inner(tree)


def use(registry: Any, tree: Any) -> int:
    """How much works of all that can be done with the Structure of a deep tree."""
    found = attempt(core.tree_flatten, registry, tree, True, None)
    if isinstance(found, RecursionError):
        return 0
    leaves, structure = found
    results = [
        attempt(structure.unflatten, leaves),
        attempt(structure.flatten_up_to, tree),
        attempt(lambda: structure.paths),
        attempt(lambda: structure.combine(dict(zip(structure.paths, leaves, strict=True)))),
        attempt(structure._parts, 0),
        attempt(repr, structure),
        attempt(hash, structure),
        attempt(lambda: structure == core.tree_flatten(registry, tree, True, None)[1]),
    ]
    failed = [x for x in results if isinstance(x, Exception)]
    assert all(isinstance(x, RecursionError) for x in failed)
    return len(results) - len(failed)


@pytest.mark.parametrize("name", NESTS)
def test_as_deep_as_it_goes(registry: Any, name: str) -> None:
    """It works or says that it cannot, at each depth; the same Structure may do both."""
    make, _ = NESTS[name]
    limit = sys.getrecursionlimit()
    worked = 0
    for depth in (limit // 4, limit // 3, limit // 2, *range(limit - 90, limit + 10, 7)):
        tree = nest(make, depth)
        for key, call in endless(registry, tree).items():
            found = attempt(call)
            # 1 is no tree of that depth, which may be said.
            errors = (RecursionError, ValueError) if key == "filters" else RecursionError
            assert not isinstance(found, Exception) or isinstance(found, errors), key
        worked += use(registry, tree)
    assert worked > 20


def test_cycles(registry: Any) -> None:
    loops: list[Any] = [[1], {"a": 1}, Linear(), Box([])]
    loops[0].append(loops[0])
    loops[1]["self"] = loops[1]
    loops[2].weight = loops[2]
    loops[3].children.append(loops[3])
    for loop in loops:
        for tree in (loop, [0, (loop,)]):
            for call in endless(registry, tree).values():
                with pytest.raises(RecursionError):
                    call()
    loop = loops[0]
    structure = core.tree_flatten(registry, [0, [0, [0, [0, 0]]]], True, None)[1]
    assert structure.flatten_up_to(loop)[:4] == [1, 1, 1, 1], "it ends where the structure does"
    assert core.tree_leaves(registry, loop, lambda x: x is loop)[0] is loop
    structure = core.tree_flatten(registry, [0, loop], False, lambda x: x is loop)[1]
    assert repr(structure) == "Structure([0, [1, [...]]])"
    with pytest.raises((RecursionError, TypeError)):
        hash(structure)
    loop.clear()


def test_deep_programs(registry: Any) -> None:
    def deep(op: str, depth: int) -> Any:
        program: Any = ("leaf", lambda n: n == 1)
        for _ in range(depth):
            program = ("not", program) if op == "not" else (op, program, op == "and")
        return program

    for op in ("not", "and", "or"):
        assert core.tree_flatten(registry, [1, 2], deep(op, 100), None)[0] == [1]
        with pytest.raises(RecursionError):
            core.tree_flatten(registry, [1, 2], deep(op, 100_000), None)


# ---- in a process of its own ----

PRELUDE = """
import resource, sys
# Bytes of stack: what most systems give.
resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
sys.path.insert(0, sys.argv[1])
from core_support import *
registry = make_registry()
x = Array()

def fails(*args):
    raise ZeroDivisionError("mine")

def expect(error, call):
    try:
        call()
    except error as e:
        return e
    raise AssertionError("nothing was raised")
"""


def run_apart(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code), str(Path(__file__).parents[1])],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


@pytest.mark.parametrize(
    "code, path",
    [
        ("core.partition(registry, Point(1, 2), (('leaf', fails),), None, None)", "x"),
        ("core.tree_flatten(registry, Point(1, [x]), ('array', fails), None)", "y[0]"),
        ("hash(static(Hostile(on_hash=fails)))", "x"),
        ("static(Hostile(on_eq=fails)) == static(Hostile())", "x"),
    ],
)
def test_an_error_below_a_named_tuple(code: str, path: str) -> None:
    run_apart(f"""
        static = lambda s: core.tree_flatten(registry, Point(s, 1), False, None)[1]
        error = expect(ZeroDivisionError, lambda: {code})
        assert str(error) == "mine" and "`{path}`" in error.__notes__[0], error.__notes__
    """)


@pytest.mark.parametrize(
    "code",
    [
        "f = lambda x: core.tree_map(registry, f, (x,), None)",
        "f = lambda x: core.tree_leaves(registry, x, f)",
        "p = 'tree', 0, lambda x: p; f = lambda x: partition(p)",
        "f = lambda x: partition(('leaf', f))",
        "f = lambda x: core.tree_flatten(registry, x, ('leaf', f), None)",
        "f = lambda x: core.tree_flatten(registry, [x], ('path', (('glob', f),)), None)",
    ],
)
def test_a_function_that_calls_itself_without_end(code: str) -> None:
    run_apart(f"""
        partition = lambda p: core.partition(registry, [1], (p,), None, None)
        {code}
        expect(RecursionError, lambda: f(1))
    """)


@pytest.mark.parametrize(
    "code",
    [
        "structure.unflatten([x])",
        "structure.combine({'a': x})",
        "structure.flatten_up_to([x])",
        "structure._parts(0)",
    ],
)
def test_the_structure_of_a_call(code: str) -> None:
    """It has no tree of its own."""
    run_apart(f"""
        f = make_jit(lambda a: a)
        f(x)
        structure = f._lookup(x)[0].structure
        expect((TypeError, ValueError), lambda: {code})
    """)


def test_a_function_with_leaves_that_are_not_given() -> None:
    run_apart("""
        arrays, structure = core.tree_flatten(registry, [lambda: 0, x], ("arrays",), None)
        options = Options(registry)
        signature = core_signature(lambda: 0)
        try:
            cache = core.Cache(registry, structure, signature, options, 9, {})
        except (TypeError, ValueError):
            sys.exit()
        assert core.rebuild(cache, arrays).__wrapped__[1] is x
    """)


def test_a_key_that_asks_for_paths_and_fails() -> None:
    run_apart("""
        class Asks:
            asked = False
            def __hash__(self): return 1
            def __str__(self):
                if not Asks.asked:
                    Asks.asked = True
                    assert structure.paths == ("asks",)
                    raise ZeroDivisionError
                return "asks"
        structure = core.tree_flatten(registry, {Asks(): 1}, True, None)[1]
        expect(ZeroDivisionError, lambda: getattr(structure, "paths"))
        assert structure.paths == ("asks",)
    """)


@pytest.mark.parametrize(
    "blame",
    [
        ("sort", [1], None),
        ("sort", [()], None),
        ("sort", ["a"]),
        ("unheard of", ["a"], None),
        ("sort", "a", None),
        (1, [], None),
        None,
    ],
)
def test_an_error_that_has_been_blamed_by_somebody_else(blame: Any) -> None:
    run_apart(f"""
        def blamed(node):
            error = KeyError("mine")
            error.__filterjit_error_context__ = {blame!r}
            raise error
        error = expect(KeyError, lambda: core.tree_leaves(registry, [1], blamed))
        assert error.args == ("mine",) and not hasattr(error, "__filterjit_error_context__")
    """)
