"""The tree functions on many trees, and on large, deep and cyclic trees."""

import random
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from core_support import Box, Linear, Value, core, partition_dict, same, tree_leaves
from hostile_support import ENDLESS, NESTS, nest, unnest, walks
from outcome_support import attempt
from process_support import output_of

# ---- many ----


def test_many_groups(registry: Any) -> None:
    source = random.Random(3)
    for count in (20, 100):
        tree = {"a": [list(range(i, i + 7)) for i in range(0, 200, 10)], "b": tuple(range(300))}
        leaves = tree_leaves(registry, tree, None)
        filters = tuple(("leaf", lambda n, i=i, m=count + 1: n % m == i) for i in range(count))
        parts = core.partition(registry, tree, filters, None, None)
        assert len(parts) == count + 1
        for i, part in enumerate(parts):
            assert tree_leaves(registry, part, None) == [n for n in leaves if n % (count + 1) == i]
        source.shuffle(shuffled := list(parts))
        assert core.combine(registry, tuple(shuffled), None, True) == tree
        structure, *groups = partition_dict(registry, tree, True, filters, None)
        assert [list(g.values()) for g in groups] == [
            [n for n in leaves if n % (count + 1) == i] for i in range(count + 1)
        ]
        source.shuffle(groups)
        assert structure.combine(*groups) == tree


@pytest.mark.parametrize("count", [1, 7, 8, 9, 20, 300])
def test_many_trees(registry: Any, count: int) -> None:
    trees = tuple([k, (k + 1, {"a": k + 2})] for k in range(0, 10 * count, 10))
    with pytest.raises(ValueError, match=f"tree {count + 1} differs from tree 1 at `\\[1\\]"):
        core.combine(registry, (*trees, [0, (1, {"b": 2})]), None, False)
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
        assert len(structure._subtrees(tree)) == count
        odd = ("leaf", lambda x: x.value % 2 == 1)
        parts = core.partition(registry, tree, (odd,), None, None)
        assert [x.value for x in tree_leaves(registry, parts[0], None)] == list(numbers)[1::2]
        assert same(core.combine(registry, parts, None, True), tree)
        structure, *groups = partition_dict(registry, tree, ("not", odd), (odd,), None)
        assert groups[0] == {} and len(groups[1]) == (count + 1) // 2
        assert same(structure.combine(*groups), tree)
        again = core.from_skeleton(registry, 0, *structure._skeleton(0))
        assert again == structure and again.num_leaves == (count + 1) // 2
        with pytest.raises(ValueError, match=r"and .* more"):
            structure.combine()


# ---- deep and cyclic trees ----


@pytest.mark.parametrize("name", NESTS)
def test_deep_trees(registry: Any, name: str) -> None:
    make, inner = NESTS[name]
    tree = nest(make, 100_000)
    for call in walks(registry, tree).values():
        with pytest.raises(RecursionError):
            call()
    shallow = core.tree_flatten(registry, nest(make, 50), True, None)[1]
    # The walk goes as deep as the structure, and no deeper.
    assert len(shallow._subtrees(tree)) == shallow.num_leaves
    unnest(tree, inner)


def use(registry: Any, tree: Any) -> int:
    """How many of the operations on the Structure of a deep tree work."""
    found = attempt(core.tree_flatten, registry, tree, True, None)
    if isinstance(found, RecursionError):
        return 0
    leaves, structure = found
    results = [
        attempt(structure.unflatten, leaves),
        attempt(structure._subtrees, tree),
        attempt(lambda: structure.paths),
        attempt(lambda: structure.combine(dict(zip(structure.paths, leaves, strict=True)))),
        attempt(structure._skeleton, 0),
        attempt(repr, structure),
        attempt(hash, structure),
        attempt(lambda: structure == core.tree_flatten(registry, tree, True, None)[1]),
    ]
    failed = [x for x in results if isinstance(x, Exception)]
    assert all(isinstance(x, RecursionError) for x in failed)
    return len(results) - len(failed)


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
            # The tree 1 is not as deep as these filters, which is an error too.
            errors = (RecursionError, ValueError) if key == "filters" else RecursionError
            assert not isinstance(found, Exception) or isinstance(found, errors), key
        worked += use(registry, tree)
    assert worked > 10


def test_cycles(registry: Any) -> None:
    loops: list[Any] = [[1], {"a": 1}, Linear(), Box([])]
    loops[0].append(loops[0])
    loops[1]["self"] = loops[1]
    loops[2].weight = loops[2]
    loops[3].children.append(loops[3])
    for loop in loops:
        for tree in (loop, [0, (loop,)]):
            for call in walks(registry, tree).values():
                with pytest.raises(RecursionError):
                    call()
    loop = loops[0]
    structure = core.tree_flatten(registry, [0, [0, [0, [0, 0]]]], True, None)[1]
    assert structure._subtrees(loop)[:4] == [1, 1, 1, 1], "the walk ends where the structure ends"
    assert tree_leaves(registry, loop, lambda x: x is loop)[0] is loop
    structure = core.tree_flatten(registry, [0, loop], False, lambda x: x is loop)[1]
    assert repr(structure) == "Structure([0, [1, [...]]])"
    with pytest.raises((RecursionError, TypeError)):
        hash(structure)
    loop.clear()


def test_deep_filters(registry: Any) -> None:
    def deep(op: str, depth: int) -> Any:
        expression: Any = ("leaf", lambda n: n == 1)
        for _ in range(depth):
            expression = ("not", expression) if op == "not" else (op, expression, op == "and")
        return expression

    for op in ("not", "and", "or"):
        assert core.tree_flatten(registry, [1, 2], deep(op, 100), None)[0] == [1]
        with pytest.raises(RecursionError):
            # Python 3.14 goes as deep as the stack allows, and a filter takes little of it.
            core.tree_flatten(registry, [1, 2], deep(op, 1_000_000), None)


# Python 3.14 looks at how much of the stack is left.  Earlier versions count calls, whatever the
# stack: on a small one they crash, for example in the repr of a nested list.
SMALL_STACKS = (64, 128, 256, 1024) if sys.version_info >= (3, 14) else (16 << 10,)  # KiB


@pytest.mark.slow
@pytest.mark.parametrize("depth", [30, 900, 9_000, 100_000])
@pytest.mark.parametrize("size", SMALL_STACKS)
def test_deep_trees_on_a_small_stack(size: int, depth: int) -> None:
    """Each operation works or raises RecursionError, also on what another thread has made."""
    script = Path(__file__).parent / "small_stack.py"
    assert output_of(str(script), "trees", str(size), str(depth)).split() == list(NESTS)


@pytest.mark.parametrize("size", SMALL_STACKS)
@pytest.mark.parametrize("name", ENDLESS)
def test_calls_within_calls_on_a_small_stack(size: int, name: str) -> None:
    script = Path(__file__).parent / "small_stack.py"
    output = output_of(str(script), "calls", str(size), name)
    assert "ended" in output
    assert name == "eq" or "too deep" in output


# ---- in another process ----

PRELUDE = """
import resource, sys
# Most systems give this many bytes of stack.
resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
from core_support import *
from outcome_support import fail, raised
registry = make_registry()
x = Array()
"""


def run_apart(code: str) -> None:
    output_of("-c", PRELUDE + textwrap.dedent(code))


@pytest.mark.parametrize(
    "code, path",
    [
        ("core.partition(registry, Point(1, 2), (('leaf', fail),), None, None)", "x"),
        ("core.tree_flatten(registry, Point(1, [x]), ('array', fail), None)", "y[0]"),
        ("hash(static(Hostile(on_hash=fail)))", "x"),
        ("static(Hostile(on_eq=fail)) == static(Hostile())", "x"),
    ],
)
def test_an_error_below_a_named_tuple(code: str, path: str) -> None:
    run_apart(f"""
        static = lambda s: core.tree_flatten(registry, Point(s, 1), False, None)[1]
        error = raised(ZeroDivisionError, lambda: {code})
        assert str(error) == "on purpose" and "`{path}`" in error.__notes__[0], error.__notes__
    """)


@pytest.mark.parametrize(
    "code",
    [
        "f = lambda x: tree_leaves(registry, x, f)",
        "p = 'tree', 0, lambda x: p; f = lambda x: partition(p)",
        "f = lambda x: partition(('leaf', f))",
        "f = lambda x: core.tree_flatten(registry, x, ('leaf', f), None)",
        "f = lambda x: core.tree_flatten(registry, [x], ('path', (('glob', f),)), None)",
    ],
)
def test_a_function_that_calls_itself_forever(code: str) -> None:
    run_apart(f"""
        partition = lambda p: core.partition(registry, [1], (p,), None, None)
        {code}
        raised(RecursionError, lambda: f(1))
    """)


@pytest.mark.parametrize(
    "code",
    [
        "structure.unflatten([x])",
        "structure.combine({'a': x})",
        "structure._subtrees([x])",
        "structure._skeleton(0)",
    ],
)
def test_structures_of_calls_refuse_tree_operations(code: str) -> None:
    """Such a Structure describes the arguments of a call, not one tree."""
    run_apart(f"""
        f = make_jit(lambda a: a)
        f(x)
        structure = f._find_or_compile(x)[0].structure
        raised((TypeError, ValueError), lambda: {code})
    """)


def test_a_function_with_open_leaves() -> None:
    run_apart("""
        arrays, structure = core.tree_flatten(registry, [lambda: 0, x], ("arrays",), None)
        options = Hooks(registry)
        signature = core_signature(lambda: 0)
        try:
            cache = core.Cache(registry, structure, signature, options, 9, {})
        except (TypeError, ValueError):
            sys.exit()
        assert core.FilterJit._rebuild(cache, arrays).__wrapped__[1] is x
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
        raised(ZeroDivisionError, lambda: getattr(structure, "paths"))
        assert structure.paths == ("asks",)
    """)


@pytest.mark.parametrize(
    "context",
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
def test_an_error_with_the_context_of_other_code(context: Any) -> None:
    run_apart(f"""
        def is_leaf(node):
            error = KeyError("mine")
            error.__filterjit_error_context__ = {context!r}
            raise error
        error = raised(KeyError, lambda: tree_leaves(registry, [1], is_leaf))
        assert error.args == ("mine",) and not hasattr(error, "__filterjit_error_context__")
    """)
