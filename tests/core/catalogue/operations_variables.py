"""Operations with a VariableJit."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import variable_support as vs
from core_support import Array, core, nodes_of
from operations import ONLY_REPEATED, SHARED, X, Y, add, after, given
from operations_calls import Kept

NEW = Array("new")
STATE = vs.TraceState()


class Block(vs.Tree):
    """Has a description that is made only once: CPython loses errors of what makes one."""

    description = (("x",), ("_pytree__nodes", "tag"), None)

    def describe(self) -> Any:
        return self.description


SHARED += [NEW, STATE, vs.TOP, vs.Var, vs.Param, Block, vs.Large, vs.Key]
UPDATES = ("result", vs.pack(0, 1), (NEW, NEW))


class Jit(core.VariableJit):  # type: ignore[misc, name-defined]
    """Hands over without running Python code that allocates more."""

    def _hand_over(self, reason: Any, args: Any, kwargs: Any) -> Any:
        return reason

    def _finish(self, answer: Any, args: Any, kwargs: Any) -> Any:
        return "finished"


class KeptVariables(Kept):
    """A VariableJit of a function that replaces the first two Variables; more than four arrays are
    too many for the callable of its variants, so most Variables hold a key."""

    make_registry = staticmethod(vs.make_registry)

    def __init__(self, graph: int = 0, answer: Any = UPDATES, expected: Any = "result") -> None:
        super().__init__()
        self.graph, self.expected, self.inner = graph, expected, self.jit
        self.hooks.compile = lambda f, variant: Constant(variant, answer)  # type: ignore[method-assign]
        self.jit = self.new_jit()

    def new_jit(self) -> Any:
        return Jit(self.inner, self.hooks.registry, vs.Var, vs.Key, (), vs.Escape, self.graph)

    def called(self, args: Any, kwargs: Any) -> None:
        self.first, self.second, *_ = vs.variables_in(args[0])
        self.put_back()

    def put_back(self) -> None:
        self.first._raw_value = self.second._raw_value = X

    def is_right(self, found: Any) -> bool:
        value = NEW if self.expected == "result" else X
        values = self.first._raw_value, self.second._raw_value
        self.put_back()
        return found == self.expected and values == (value, value)


class Constant:
    """The callable of a variant that always returns the same."""

    def __init__(self, variant: Any, answer: Any) -> None:
        self.variant, self.answer, self.trace = weakref.ref(variant), answer, None

    def __call__(self, *arrays: Any) -> Any:
        if self.trace is None:
            out, self.trace = core.output_flatten(self.variant()._finish(self.answer, Array))
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


def two_large() -> Any:
    return [vs.large(5), vs.large(5)]


def two_that_share() -> Any:
    trees = two_large()
    trees[1].blocks[0], trees[0].rng = trees[0].blocks[1], trees[0].blocks[2].w
    return trees


def many(value: Any) -> Any:
    return [vs.Var(X), vs.Var(X), *(vs.Var(value) for _ in range(298))]


def call(
    name: str,
    make: Any,
    *before: Any,
    same: int = 0,
    change: Any = None,
    repeated: bool = False,
    **options: Any,
) -> None:
    """Registers a call with what `make` makes, after others."""
    new = functools.partial(KeptVariables, **options)
    makes = [lambda make=make: given(make(), X) for make in (make, *before)]
    after(name, new, *makes, same=same, change=change)
    if repeated:
        ONLY_REPEATED.add(name)


def make_state(kept: Kept, args: Any) -> None:
    args[0][1]["b"]._trace_state = STATE


def once_more(kept: Kept, args: Any) -> None:
    args[0].append(args[0][0])


def forty_twice() -> Any:
    variables = [vs.Var(X) for _ in range(40)]
    return [variables, variables]


TWICE = "a Variable or Module occurs twice in the arguments"
TEXT = "an argument has a leaf that is no array and no number: `str`"

call("first_call_with_variables", small)
call("hit_with_variables", small, same=2)
call("hit_with_other_variables", small, small, small)
call("hit_that_learns_a_record_of_variables", two_large, same=1)
call("hit_with_a_record_of_variables", two_large, same=6)
call("many_variables", lambda: many(X), repeated=True)
call("hit_with_many_variables", lambda: many(vs.Key()), same=1)
call("hit_with_a_new_state", small, same=2, change=make_state)
call("variables_that_occur_twice", small, same=1, change=once_more, expected=TWICE)
call("handed_over_by_type", lambda: [small(), "text"], expected=TEXT)
call("finished_in_python", small, same=1, answer=("result", None, ()), expected="finished")
call("first_call_with_sharing", with_sharing, graph=1)
call("hit_with_sharing", with_sharing, same=2, graph=1)
call("hit_with_other_sharing", with_sharing, unshared, with_sharing, graph=1)
call("hit_that_learns_a_record_of_sharing", two_that_share, same=1, graph=1)
call("much_sharing", forty_twice, graph=1)


def called_with_sharing() -> Any:
    kept = KeptVariables(graph=1)
    kept.jit(with_sharing(), X)
    (variant,) = kept.inner._parts()[0].variants()
    return variant, (X,) * variant.structure.num_leaves


def shares(variant: Any, arrays: Any, found: Any) -> bool:
    tree, *_ = found[1]
    return tree[0][0] is tree[1]["a"][0] and tree[0][1]["b"] is tree[1]["c"]


add("arguments_with_sharing", called_with_sharing,
    lambda variant, arrays: variant._arguments(arrays), shares)  # fmt: skip
add("repr_and_nodes_with_sharing", called_with_sharing,
    lambda variant, arrays: (repr(variant.structure), nodes_of(variant.structure)),
    lambda variant, arrays, found: "`" in found[0])  # fmt: skip
add("nodes_of_variables", lambda: (KeptVariables().jit, small()),
    lambda jit, tree: jit._nodes(tree), lambda jit, tree, found: len(found) == 5)  # fmt: skip
add("new_variable_jits", KeptVariables, lambda kept: kept.new_jit()._inner,
    lambda kept, found: found is kept.inner)  # fmt: skip
