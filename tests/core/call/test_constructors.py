"""What the constructors and functions of the core refuse, and attributes that nobody can set."""

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
from core_support import Array, Box, Record, core, make_registry
from direct_support import Backend, DirectArray, DirectHost, DirectKeys, DirectScalar, new_plan
from hooks_support import called, make_jit
from outcome_support import raised
from trees_support import Ambiguous
from variable_support import Escape, Key, Tree, Var


def fun(self: Any) -> Any:
    return self


F, VARIANT = called(fun, Array(1))
REGISTRY, (CACHE, _) = F._hooks.registry, F._parts()
OF_ONE, _ = make_jit(type("Held", (Record,), {"__call__": fun})(Array(), 1, 2))._parts()
STRUCTURE, CALL, OUTPUTS = VARIANT.structure, VARIANT._call, VARIANT.outputs
CONTEXT = Backend().context
EVERY_LEAF = core.tree_flatten(REGISTRY, (1, 2), True, None)[1]
OUTPUT = core.output_unflatten(1, ())

# Arguments that fit, by what is called.
GOOD: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "Signature": (core.Signature, (("a",), 0, 1, False, False, b"\1")),
    "Cache": (core.Cache, (REGISTRY, CACHE.function, CACHE.signature, F._hooks, 9, {})),
    "FilterJit": (core.FilterJit, (fun, F._hooks, None, {})),
    "_rebuild": (core.FilterJit._rebuild, (CACHE, ())),
    "BoundMethod": (core.BoundMethod, (F, 1)),
    "CallProxy": (core.CallProxy, (F, None)),
    "Getattribute": (core.Getattribute, (Tree, fun)),
    "VariableJit": (core.VariableJit, (F, REGISTRY, Var, Key, (), Escape, 0)),
    "Direct": (core.Direct, (CONTEXT, len, len)),
    "DirectContext": (
        core.DirectContext,
        (
            *(DirectArray, *[len] * 5, DirectKeys, len, len, DirectHost, DirectScalar),
            *(len, len, len, (), *[len] * 5),
        ),
    ),
    "add": (core.Direct(CONTEXT, len, None).add, (new_plan(len, b""), ())),
    "add to one that learns": (core.Direct(CONTEXT, len, len).add, (new_plan(len, b""), ())),
    "insert_compiled": (CACHE.insert_compiled, (STRUCTURE, CALL, OUTPUTS, False)),
    "insert_traced": (CACHE.insert_traced, (VARIANT,)),
    "arguments": (VARIANT._arguments, ((1,),)),
    "finish": (VARIANT._finish, (1, Array)),
    "flatten": (core.flatten, (REGISTRY, 1)),
    "tree_flatten": (core.tree_flatten, (REGISTRY, [1, 2], True, None)),
    "partition": (core.partition, (REGISTRY, [1, 2], (), None, None)),
    "tree_groups": (core.tree_groups, (REGISTRY, [1, 2], True, (), None)),
    "combine": (core.combine, (REGISTRY, ([1, 2],), None, False)),
    "from_skeleton": (core.from_skeleton, (REGISTRY, 0, [1, 2], (1, 2))),
    "unflatten": (EVERY_LEAF.unflatten, ([1, 2],)),
    "unflatten of a call": (STRUCTURE.unflatten, ([1],)),
    "_subtrees": (EVERY_LEAF._subtrees, ((1, 2),)),
    "_subtrees of a call": (STRUCTURE._subtrees, ([1, 2],)),
    "_skeleton": (EVERY_LEAF._skeleton, (0,)),
    "_skeleton of a call": (STRUCTURE._skeleton, (0,)),
    "_leaves": (EVERY_LEAF._leaves, (0,)),
    "output_flatten": (core.output_flatten, (OUTPUT,)),
    "output_unflatten": (core.output_unflatten, (1, ())),
}


def test_another_number_of_arguments() -> None:
    for name, (function, arguments) in GOOD.items():
        # The Structure of a call describes arguments, not one tree.
        if "of a call" in name or "learns" in name:
            raised((TypeError, ValueError), function, *arguments)
        else:
            function(*arguments)
        for wrong in ((), arguments[:-1], (*arguments, 1)):
            raised(TypeError, function, *wrong)
        raised(TypeError, function, *arguments, unknown=1)


FIT, IS_LEAF = "do not fit", "`is_leaf` must be a function of a node or None, not "
TREE = core.flatten(REGISTRY, (Array(),))[1]
ANOTHER = called(fun, Array(1))[1]

# What is called, the error and a part of its text, and what is wrong in the place of arguments.
WRONG: list[tuple[str, Any, str, list[dict[int, Any]]]] = [
    ("Signature", ValueError, FIT, [{2: 2}, {1: 1, 2: 0}, {1: -1, 2: 0}, {3: True}, {4: True}, {5: b""},
                                    {5: b"\1\1"}, {2: sys.maxsize, 3: True, 4: True}]),
    ("Signature", TypeError, "", [{0: (1,)}, {0: ["a"]}]),
    ("Cache", ValueError, "maxsize", [{4: 0}, {4: -1}]),
    ("Cache", TypeError, "", [{0: 1}]),
    ("Cache", (TypeError, ValueError), "", [{1: EVERY_LEAF}]),
    ("_rebuild", ValueError, "holds 0 arrays, not 2", [{1: [1, 2]}]),
    ("_rebuild", ValueError, "holds 1 arrays, not 0", [{0: OF_ONE}]),
    ("_rebuild", TypeError, "not iterable", [{1: 1}]),
    ("_rebuild", TypeError, "", [{0: 1}]),
    ("Getattribute", TypeError, "", [{0: 1}, {0: Tree()}]),
    ("Direct", TypeError, "", [{0: None}]),
    ("add", TypeError, "", [{0: "no plan"}, {0: {"trace": 1}}]),
    ("add", TypeError, "add takes a plan", [{1: []}]),
    ("DirectContext", TypeError, "DirectContext() argument",
     [{0: 1}, {6: 1}, {9: 1}, {10: 1}, {14: []}, {14: None}]),
    ("VariableJit", TypeError, "", [
        *({0: fun}, {1: None}, {2: 1}, {3: None}, {4: []}, {4: (1,)}, {4: (("a", "b", 1),)}, {6: "text"}),
        *({4: (("a", 2, 1, "d"),)}, {4: (["a", "b", 1, "d"],)}),
    ]),
    # The class of Variables has no slot of that name.
    ("VariableJit", (TypeError, AttributeError), "",
     [{2: int}, {2: Tree}, {2: type("Computed", (), {"_raw_value": property(len)})}]),
    ("insert_compiled", TypeError, "", [{0: None}, {2: list(OUTPUTS)}, {2: None}, {2: (1,)},
                                        {2: (STRUCTURE,)}, {2: (EVERY_LEAF,)}, {2: (OUTPUTS[0], None)}]),
    ("insert_compiled", ValueError, "the structure is not one of this cache's calls",
     [{0: TREE}, {0: ANOTHER.structure}]),
    ("insert_compiled", ValueError, "", [{3: Ambiguous()}]),
    ("insert_traced", TypeError, "insert_traced takes a Variant of this cache",
     [{0: None}, {0: 3}, {0: ()}, {0: Array()}, {0: ANOTHER}]),
    ("arguments", ValueError, "takes 1 arrays", [{0: ()}, {0: [1, 2]}]),
    ("flatten", TypeError, "", [{0: EVERY_LEAF}]),
    ("flatten", ValueError, "a key for each child", [
        {0: make_registry(flatten_with_keys=lambda x, keys=keys: ((1,), 0, len, keys)), 1: Box([1])}
        for keys in ((), ((0,), (1,)), (0,))]),
    ("tree_flatten", TypeError, "", [{0: None}, {0: EVERY_LEAF}, {3: lambda: True}]),
    ("tree_flatten", TypeError, IS_LEAF + "3", [{3: 3}]),
    ("tree_flatten", ValueError, "", [{2: None}]),
    ("partition", TypeError, IS_LEAF + "1.5", [{3: 1.5}]),
    ("partition", TypeError, "", [{0: [1, 2]}]),
    ("tree_groups", TypeError, IS_LEAF + "()", [{4: ()}]),
    ("combine", TypeError, IS_LEAF + "3", [{2: 3}]),
    ("from_skeleton", ValueError, "an item for each leaf", [{3: [1, 2]}, {3: (1,)}, {3: (1, 2, 3)}]),
    ("unflatten", TypeError, "the leaves must be a sequence, not 3", [{0: 3}]),
    ("unflatten", ValueError, "takes 2 leaves, not", [{0: [1]}, {0: iter("abc")}]),
    ("output_flatten", TypeError, "", [{0: 3}]),
    ("output_unflatten", TypeError, "", [{0: "a"}, {1: 3}]),
]  # fmt: skip


def test_arguments_that_are_wrong() -> None:
    before = CACHE.variants()
    for name, error, message, rows in WRONG:
        function, arguments = GOOD[name]
        for wrong in rows:
            found = raised(error, function, *[wrong.get(i, x) for i, x in enumerate(arguments)])
            assert message in str(found), (name, wrong)
    assert CACHE.variants() == before


def test_types() -> None:
    for types in ((1,), (Var, "text"), [Var]):
        raised(TypeError, make_registry, by_identity=types)
    for keyed in ((1,), ((1, 2),), ((int,),), [(int, str)], ([int, str],)):
        raised(TypeError, make_registry, keyed=keyed)
    raised(TypeError, make_registry, traced=(1,))
    raised(TypeError, make_registry, array_type=3)
    for arguments in ((), (Array,)):
        raised(TypeError, core.Registry, *arguments)
    raised(TypeError, copy.copy, STRUCTURE)
    raised(TypeError, setattr, core.Structure, "num_leaves", 3)
    for name in ("NodeKind", "Structure", "Variant", "Output"):
        with pytest.raises(TypeError, match="cannot create"):
            getattr(core, name)()
    for base in (core.Direct, core.DirectContext):
        raised(TypeError, type, "Sub", (base,), {})


class Details:
    """The attributes of a proxy."""

    __doc__ = "Not the proxy's."
    name = "details"
    broken = property(lambda self: 1 / 0)


def test_attributes_of_a_proxy() -> None:
    details = Details()
    proxy = core.CallProxy(make_jit(fun), details)
    assert proxy.name == "details" and proxy.__doc__ == type(proxy).__doc__ != details.__doc__
    details.later = 3  # type: ignore[attr-defined]
    assert proxy.later == 3
    raised(ZeroDivisionError, getattr, proxy, "broken")
    raised(TypeError, setattr, type(proxy), "name", 3)


DIRECT, PROXY = core.Direct(CONTEXT, len, len), core.CallProxy(F, Details())
FIXED: list[tuple[Any, tuple[str, ...]]] = [
    (DIRECT, ("jitted", "why_no_plan", "num_entries", "counts", "other", "name")),
    (PROXY, ("_attributes", "name", "other")),
    (VARIANT, ("outputs", "other")),
    (STRUCTURE, ("paths", "num_leaves", "other")),
    (CONTEXT, ("other",)),
]


def test_attributes_that_cannot_be_set() -> None:
    for x, names in FIXED:
        for name in names:
            raised((AttributeError, TypeError), setattr, x, name, 1)
            raised((AttributeError, TypeError), delattr, x, name)
        with pytest.raises(AttributeError, match="no_such"):
            _ = x.no_such
        raised(TypeError, getattr, x, 3)


def test_settings_of_a_direct_context() -> None:
    context = GOOD["DirectContext"][0](*GOOD["DirectContext"][1])
    assert (context.enabled, context.after) == (0, 0)
    context.enabled, context.after = 1, 7
    assert (context.enabled, context.after) == (1, 7) and context.forget() is None
    for name, value in (("enabled", "yes"), ("after", 1.5)):
        raised(TypeError, setattr, context, name, value)
