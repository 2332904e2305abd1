"""Operations  with a VariableJit."""

from __future__ import annotations

import weakref
from typing import Any

import variable_support as vs
from core_support import Array, core
from operations import OPERATIONS, SHARED, Operation, X, Y, expect, operation
from operations_calls import Kept

NEW = Array("new")
STATE = vs.TraceState()


class Block(vs.Tree):
    """Has a description that is made only once: CPython loses errors of what makes one."""

    description = (("x",), ("_pytree__nodes", "tag"), None)

    def describe(self) -> Any:
        return self.description


SHARED += [NEW, STATE, vs.TOP, vs.Var, vs.Param, Block, vs.Large, vs.Key]


class Jit(core.VariableJit):  # type: ignore[misc, name-defined]
    """Hands over without running Python code that allocates more."""

    def _hand_over(self, reason: Any, args: Any, kwargs: Any) -> Any:
        return reason

    def _finish(self, answer: Any, args: Any, kwargs: Any) -> Any:
        return "finished"


class KeptVariables(Kept):
    """A VariableJit of a function that replaces the first two Variables; more than four arrays are
    too many for the callable of its variants, so most Variables hold a key."""

    def __init__(self, answer: Any = None, graph: int = 0) -> None:
        super().__init__()
        self.hooks.registry = vs.make_registry()
        answer = ("result", vs.pack(0, 1), (NEW, NEW)) if answer is None else answer
        self.hooks.compile = lambda f, variant: Constant(variant, answer)  # type: ignore[method-assign]
        self.jit = Jit(self.f, self.hooks.registry, vs.Var, vs.Key, (), vs.Escape, graph)

    def update(self, *args: Any, expected: Any = "result") -> Operation:
        variables = vs.variables_in(list(args))

        def call() -> Any:
            variables[0]._raw_value = variables[1]._raw_value = X
            return self.jit(*args)

        def check(found: Any) -> None:
            expect(found == expected)
            values = [x._raw_value for x in variables[:2]]
            expect(values == ([NEW, NEW] if expected == "result" else [X, X]))

        return call, check


class Constant:
    """The callable of a variant that always returns the same."""

    def __init__(self, variant: Any, answer: Any) -> None:
        self.variant, self.answer, self.trace = weakref.ref(variant), answer, None

    def __call__(self, *arrays: Any) -> Any:
        if self.trace is None:
            out, self.trace = core.output_flatten(self.variant().finish(self.answer, Array))
        else:
            out = (NEW, NEW) if self.answer[2] else (X,)
        return core.output_unflatten(self.trace, out)


def small() -> Any:
    return [vs.Var(X), {"b": vs.Param(Y), "a": (vs.Var(X), Block(x=vs.Var(Y), tag=1))}]


def with_sharing() -> Any:
    tree = small()
    return [tree, {"b": tree[1]["a"][1], "a": [tree[0]], "c": tree[1]["b"]}]


def unshared() -> Any:
    return [small(), {"b": vs.Var(X), "a": [vs.Var(X)], "c": vs.Param(Y)}]


def two_large(shared: bool = False) -> Any:
    trees = [vs.large(5), vs.large(5)]
    if shared:
        trees[1].blocks[0], trees[0].rng = trees[0].blocks[1], trees[0].blocks[2].w
    return trees


def many(value: Any) -> Any:
    return [vs.Var(X), vs.Var(X), *(vs.Var(value) for _ in range(298))]


def after(name: str, make: Any, *before: Any, same: int = 0, graph: int = 0) -> None:
    """Registers a call with what `make` makes, after calls with others, and with the `same`."""

    def made() -> Operation:
        kept, args = KeptVariables(graph=graph), make()
        for other in (*(other() for other in before), *[args] * same):
            kept.jit(other, X)
        return kept.update(args, X)

    OPERATIONS[name] = made


after("first_call_with_variables", small)
after("hit_with_variables", small, same=2)
after("hit_with_other_variables", small, small, small)
after("hit_that_learns_a_record_of_variables", two_large, same=1)
after("hit_with_a_record_of_variables", two_large, same=6)
after("many_variables", lambda: many(X))
after("hit_with_many_variables", lambda: many(vs.Key()), same=1)
after("first_call_with_sharing", with_sharing, graph=1)
after("hit_with_sharing", with_sharing, same=2, graph=1)
after("hit_with_other_sharing", with_sharing, unshared, with_sharing, graph=1)
after("hit_that_learns_a_record_of_sharing", lambda: two_large(True), same=1, graph=1)


@operation
def hit_with_a_new_state() -> Operation:
    kept, tree = KeptVariables(), small()
    kept.jit(tree, X), kept.jit(tree, X)
    tree[1]["b"]._trace_state = STATE
    return kept.update(tree, X)


@operation
def variables_that_occur_twice() -> Operation:
    kept, tree = KeptVariables(), small()
    kept.jit(tree, X)
    expected = "a Variable or Module occurs twice in the arguments"
    return kept.update(tree, tree[0], expected=expected)


@operation
def much_sharing() -> Operation:
    kept, variables = KeptVariables(graph=1), [vs.Var(X) for _ in range(40)]
    return kept.update([variables, variables])


@operation
def arguments_with_sharing() -> Operation:
    kept, tree = KeptVariables(graph=1), with_sharing()
    kept.jit(tree, X)
    (variant,) = kept.f._parts()[0].variants()
    arrays = tuple([X] * variant.structure.num_leaves)

    def check(found: Any) -> None:
        tree, *_ = found[1]
        expect(tree[0][0] is tree[1]["a"][0] and tree[0][1]["b"] is tree[1]["c"])

    return (lambda: variant.arguments(arrays)), check


@operation
def repr_and_nodes_with_sharing() -> Operation:
    kept, tree = KeptVariables(graph=1), with_sharing()
    structure = kept.f._find(tree, X)[1]

    def call() -> Any:
        return repr(structure), structure._nodes()

    return call, lambda found: expect("`args" in found[0] or "`" in found[0])


@operation
def handed_over_by_type() -> Operation:
    kept, tree = KeptVariables(), small()
    expected = "an argument has a leaf that is no array and no number: `str`"
    return kept.update(tree, "text", expected=expected)


@operation
def finished_in_python() -> Operation:
    kept, tree = KeptVariables(("result", None, ())), small()
    kept.jit(tree)
    return kept.update(tree, expected="finished")


@operation
def nodes_of_variables() -> Operation:
    kept, tree = KeptVariables(), small()
    return (lambda: kept.jit._nodes(tree)), lambda found: expect(len(found) == 5)


@operation
def new_variable_jits() -> Operation:
    kept = KeptVariables()

    def call() -> Any:
        return Jit(kept.f, kept.hooks.registry, vs.Var, vs.Key, (), vs.Escape, 0)._inner

    return call, lambda found: expect(found is kept.f)
