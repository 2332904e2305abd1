"""Scenarios of allocations.py with a VariableJit."""

from __future__ import annotations

import weakref
from typing import Any

import variable_support as vs
from allocations_calls import Kept
from allocations_support import SHARED, Scenario, X, Y, expect, scenario
from core_support import Array, core

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
        self.options.registry = vs.make_registry()
        answer = ("result", vs.pack(0, 1), (NEW, NEW)) if answer is None else answer
        self.options.compile = lambda f, variant: Constant(variant, answer)  # type: ignore[method-assign]
        self.jit = Jit(self.f, self.options.registry, vs.Var, vs.Key, (), vs.Escape, graph)

    def update(self, *args: Any, expected: Any = "result") -> Scenario:
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


@scenario
def first_call_with_variables() -> Scenario:
    return KeptVariables().update(small(), X)


@scenario
def hit_with_variables() -> Scenario:
    kept, tree = KeptVariables(), small()
    kept.jit(tree, X), kept.jit(tree, X)
    return kept.update(tree, X)


@scenario
def hit_with_other_variables() -> Scenario:
    kept, tree = KeptVariables(), small()
    kept.jit(small(), X), kept.jit(tree, X)
    return kept.update(small(), X)


@scenario
def hit_with_a_new_state() -> Scenario:
    kept, tree = KeptVariables(), small()
    kept.jit(tree, X), kept.jit(tree, X)
    tree[1]["b"]._trace_state = STATE
    return kept.update(tree, X)


@scenario
def hit_that_learns_a_record_of_variables() -> Scenario:
    kept, trees = KeptVariables(), [vs.large(5), vs.large(5)]
    kept.jit(*trees)
    return kept.update(*trees)


@scenario
def hit_with_a_record_of_variables() -> Scenario:
    kept, trees = KeptVariables(), [vs.large(5), vs.large(5)]
    for _ in range(6):
        kept.jit(*trees)
    return kept.update(*trees)


@scenario
def many_variables() -> Scenario:
    kept = KeptVariables()
    return kept.update([vs.Var(X) for _ in range(300)])


@scenario
def variables_that_occur_twice() -> Scenario:
    kept, tree = KeptVariables(), small()
    kept.jit(tree, X)
    expected = "a Variable or Module occurs twice in the arguments"
    return kept.update(tree, tree[0], expected=expected)


def with_sharing() -> Any:
    tree = small()
    return [tree, {"b": tree[1]["a"][1], "a": [tree[0]], "c": tree[1]["b"]}]


@scenario
def first_call_with_sharing() -> Scenario:
    return KeptVariables(graph=1).update(with_sharing(), X)


@scenario
def hit_with_sharing() -> Scenario:
    kept, tree = KeptVariables(graph=1), with_sharing()
    kept.jit(tree, X), kept.jit(tree, X)
    return kept.update(tree, X)


@scenario
def hit_with_other_sharing() -> Scenario:
    kept, tree = KeptVariables(graph=1), with_sharing()
    kept.jit([small(), {"b": tree[1]["b"], "a": [vs.Var(X)], "c": vs.Param(Y)}], X)
    kept.jit(with_sharing(), X)
    return kept.update(tree, X)


@scenario
def hit_that_learns_a_record_of_sharing() -> Scenario:
    kept, trees = KeptVariables(graph=1), [vs.large(5), vs.large(5)]
    trees[1].blocks[0], trees[0].rng = trees[0].blocks[1], trees[0].blocks[2].w
    kept.jit(*trees)
    return kept.update(*trees)


@scenario
def much_sharing() -> Scenario:
    kept, variables = KeptVariables(graph=1), [vs.Var(X) for _ in range(40)]
    return kept.update([variables, variables])


@scenario
def arguments_with_sharing() -> Scenario:
    kept, tree = KeptVariables(graph=1), with_sharing()
    kept.jit(tree, X)
    (variant,) = kept.f._parts()[0].variants()
    arrays = tuple([X] * variant.structure.num_leaves)

    def check(found: Any) -> None:
        tree, *_ = found[1]
        expect(tree[0][0] is tree[1]["a"][0] and tree[0][1]["b"] is tree[1]["c"])

    return (lambda: variant.arguments(arrays)), check


@scenario
def repr_and_nodes_with_sharing() -> Scenario:
    kept, tree = KeptVariables(graph=1), with_sharing()
    structure = kept.f._peek(tree, X)[1]

    def call() -> Any:
        return repr(structure), structure._nodes()

    return call, lambda found: expect("`args" in found[0] or "`" in found[0])


@scenario
def handed_over_by_type() -> Scenario:
    kept, tree = KeptVariables(), small()
    expected = "an argument has a leaf that is no array and no number: `str`"
    return kept.update(tree, "text", expected=expected)


@scenario
def finished_in_python() -> Scenario:
    kept, tree = KeptVariables(("result", None, ())), small()
    kept.jit(tree)
    return kept.update(tree, expected="finished")


@scenario
def nodes_of_variables() -> Scenario:
    kept, tree = KeptVariables(), small()
    return (lambda: kept.jit._nodes(tree)), lambda found: expect(len(found) == 5)


@scenario
def new_variable_jits() -> Scenario:
    kept = KeptVariables()

    def call() -> Any:
        return Jit(kept.f, kept.options.registry, vs.Var, vs.Key, (), vs.Escape, 0)._inner

    return call, lambda found: expect(found is kept.f)
