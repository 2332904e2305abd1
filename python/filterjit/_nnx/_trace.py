"""The traced function: calls the user's function and finds the Variables it changed.

*Upstream* is Flax NNX. The traced function returns (result, indices, values). `indices` are bytes:
the numbers of the changed Variables, in the order in which the C core meets them. `values` are
their new values. If a call must update more than values, `indices` is None, and upstream's own code
runs after each call, in `TracedFunction.finish`.

A trace calls upstream's functions on its arguments, and therefore raises upstream's errors.
"""

import dataclasses
import inspect
import struct
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import jax

from .. import _core
from .._base._arrays import is_spec
from .._call._as_in_jax import MISFIT, NO_KEY
from .._call._donation import Donation
from .._call._selection import ArgumentSelection, HandOver
from .._compat import _nnx_compat as compat
from .._trees import _registry
from .._trees._registry import is_traced

registry: _core.Registry = _registry.registry.with_policy(
    traced=_registry.NUMBERS, by_identity=(compat.VARIABLE_TYPE, compat.Pytree)
)
"""Traces numbers, like ``jax.jit``. Aliased Variables and Modules are one object."""

NOT_TRACED = "jax.jit does not trace (jax_disable_jit)"
DO_NOT_FIT = "the shardings do not fit the arguments or the result"

OWNER = "__filterjit_owner__"
"""The attribute of a traced function that returns its VariableJit."""

ONCE = frozenset({NOT_TRACED, DO_NOT_FIT, MISFIT, NO_KEY})
"""Reasons to hand over a single call, without consequences for later ones."""


def _pack(indices: list[int]) -> bytes:
    return struct.pack(f"={len(indices)}I", *indices)


def _unpack(indices: bytes) -> list[int]:
    return [i for (i,) in struct.iter_unpack("=I", indices)]


@dataclasses.dataclass(eq=False, repr=False)
class Prefixes:
    """The options `in_shardings` and `out_shardings` of an `NNXJit`.

    They are prefixes of the pytrees in which upstream passes Modules to ``jax.jit``. Upstream's own
    functions make these pytrees, to give prefixes the same meaning. If they refuse a prefix, the
    call is handed over, and upstream raises its error.

    Attributes:
        given: prefixes of the positional arguments, without static ones.
        inputs: prefixes of all positional arguments.
        outputs: the result's prefix.
    """

    given: Any
    inputs: Any
    outputs: Any

    @classmethod
    def of(cls, upstream: Any, given: Any, outputs: Any) -> "Prefixes | None":
        """Returns the prefixes of a function, or None. Raises HandOver for an unsupported version
        of Flax, or a leaf other than a sharding, a ``PartitionSpec`` or None."""
        if given is None and outputs is None:
            return None
        if not compat.reads_shardings(upstream):
            raise HandOver("this version of Flax has other names for shardings")
        for name, prefix in (("in_shardings", given), ("out_shardings", outputs)):
            leaves = jax.tree.leaves(compat.as_jax_prefix(prefix))
            if not all(map(is_spec, leaves)):
                raise HandOver(f"{name} has a leaf that is no sharding")
        return cls(given, upstream.in_shardings, outputs)


def specs_of(prefix: Any, tree: Any) -> list[Any]:
    """Returns the spec of each leaf of a tree, like ``jax.jit``."""
    found: list[Any] = []

    def add(spec: Any, subtree: Any) -> None:
        found.extend([spec] * len(jax.tree.leaves(subtree)))

    jax.tree.map(add, compat.as_jax_prefix(prefix), tree, is_leaf=lambda x: x is None)
    return found


def _specs_of_each(indices: bytes, values: tuple[Any, ...], specs: list[Any]) -> list[Any]:
    """Returns the specs of the arrays in the new values of Variables."""
    pairs = zip(_unpack(indices), values, strict=True)
    return [spec for i, x in pairs for spec in specs_of(specs[i], x)]


@dataclasses.dataclass(eq=False, repr=False)
class TracedFunction:
    """The traced function, for one of upstream's modes. `mode` is 0 without graphs, 1 with graphs,
    2 with graph updates, like the VariableJit's."""

    owner: Callable[[], Any] = dataclasses.field(init=False)  # a weak reference to the VariableJit
    returns_all: ClassVar = False
    """True if a program with shardings returns all Variables, changed or not."""

    fun: Callable[..., Any]
    signature: inspect.Signature
    static: ArgumentSelection
    donation: Donation
    prefixes: Prefixes | None
    mode: int

    def function(self) -> Callable[..., Any]:
        def traced(*args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
            __tracebackhide__ = True
            return self.trace(args, kwargs)

        traced.__dict__[OWNER] = lambda: self.owner()
        return traced

    def own(self, owner: Any) -> None:
        self.owner = weakref.ref(owner)

    def dynamic(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Replaces static arguments with None. Raises HandOver for static Variables and Modules."""
        if not self.static:
            return args, kwargs
        values = [x for static, x in self.static.of_call(args, kwargs) if static]
        if any(
            compat.is_variable(x) or isinstance(x, compat.Pytree)
            for x in jax.tree.leaves(values, is_leaf=lambda x: isinstance(x, compat.Pytree))
        ):
            raise HandOver("a static argument is a Variable or a Module")
        return (
            tuple(None if i in self.static.positions else x for i, x in enumerate(args)),
            {k: None if k in self.static.names else x for k, x in kwargs.items()},
        )

    def nodes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Returns the Variables and Pytrees in the arguments, in the call's order."""
        args, kwargs = self.dynamic(args, kwargs)
        bound = self.signature.bind(*args, **kwargs).arguments
        found: tuple[Any, ...] = self.owner()._nodes(list(bound.values()))
        return found

    def start(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Returns the arguments' Variables and Pytrees. Raises HandOver if the call must fall
        back."""
        if compat.is_outside_nnx_traces():
            raise HandOver(NOT_TRACED)
        nodes = self.nodes(args, kwargs)
        for cls in {type(node) for node in nodes}:
            if compat.has_own_updates(cls):
                raise HandOver(f"`{cls.__name__}` has methods of its own for updates")
        if any(compat.is_variable(node) and compat.is_special(node) for node in nodes):
            raise HandOver("a Variable is of a hijax type, or holds a jax.Ref")
        if any(compat.has_static_tracer(node) for node in nodes):
            raise HandOver("a static attribute is a tracer")
        try:
            hash(jax.tree.structure(self.dynamic(args, kwargs)))
        except Exception as e:
            raise HandOver("a static attribute is not hashable") from e
        return nodes

    def donated_variables(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], variables: list[Any]
    ) -> set[int]:
        """Returns the numbers of the Variables in donated arguments."""
        if not self.donation:
            return set()
        numbers = {id(variable): i for i, variable in enumerate(variables)}
        return {
            numbers[id(node)]
            for donated, x in self.donation.arguments.of_call(args, kwargs)
            if donated
            for node in self.owner()._nodes(x)
            if compat.is_variable(node)
        }

    def check(self, out: Any, values: Any) -> None:
        """Raises HandOver for an untraceable leaf, to get upstream's error. Only copies have
        changed so far."""
        if not all(is_traced(x) for x in jax.tree.leaves((out, values))):
            raise HandOver(
                "the result or a new value has a leaf that is neither an array nor a number"
            )

    def pure_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Returns the positional, traced arguments as upstream passes them to ``jax.jit``."""
        dynamic = self.dynamic(args, kwargs)
        pure, _ = self.as_pure(dynamic)
        return tuple(x for i, x in enumerate(pure) if i not in self.static.positions)

    def as_pure(self, dynamic: tuple[Any, Any]) -> tuple[Any, Any]:
        raise NotImplementedError

    def specs_of_answer(self, answer: tuple[Any, Any, Any], specs: list[Any]) -> list[Any]:
        """Returns the specs of the arrays in an answer, given the specs of the Variables."""
        assert self.prefixes is not None
        out, indices, values = answer
        found = specs_of(self.prefixes.outputs, out)
        if indices is None:
            return found + self.specs_of_updates(values, specs)
        return found + _specs_of_each(indices, values, specs)

    def specs_of_updates(self, updates: Any, specs: list[Any]) -> list[Any]:
        raise NotImplementedError

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
        raise NotImplementedError

    def finish(
        self, answer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], cached: int = 0
    ) -> Any:
        """Completes a call. Raises if the graphs of the first `cached` arguments have changed."""
        raise NotImplementedError


@dataclasses.dataclass(eq=False, repr=False)
class GraphFunction(TracedFunction):
    """``graph=True, graph_updates=True``: calls can change attributes and return Modules."""

    updates: compat.GraphUpdates = dataclasses.field(
        init=False, default_factory=compat.GraphUpdates
    )
    returns_all = True

    @property
    def _prefix(self) -> tuple[Any, Any]:
        """The prefix of (positional arguments, keyword arguments)."""
        return (None if self.prefixes is None else self.prefixes.inputs), None

    def as_pure(self, dynamic: tuple[Any, Any]) -> tuple[Any, Any]:
        found: tuple[Any, Any] = self.updates.split((), dynamic, self._prefix)
        return found

    def specs_of_updates(self, updates: Any, specs: list[Any]) -> list[Any]:
        return specs_of(self._prefix, updates)

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
        nodes = self.start(args, kwargs)
        variables = [node for node in nodes if compat.is_variable(node)]
        donated = self.donated_variables(args, kwargs, variables)
        dynamic = self.dynamic(args, kwargs)
        before = self.updates.split(nodes, compat.only_nodes(dynamic), self._prefix)
        values = [variable.get_raw_value() for variable in variables]
        out = self.fun(*args, **kwargs)
        outputs = None if self.prefixes is None else self.prefixes.outputs
        tree = (*compat.only_nodes(dynamic), out)
        *after, out = self.updates.split(nodes, tree, (*self._prefix, outputs))
        changed = [i for i, x in enumerate(variables) if x.get_raw_value() is not values[i]]
        leaves = _changed_leaves(before, tuple(after))
        if (
            leaves is None
            or leaves[0] != len(changed)
            # Modules with arrays outside Variables:
            or ((self.donation or self.prefixes) and leaves[1] != len(variables))
            or _has(out, compat.is_node_states)
        ):
            self.check(out, after)
            return out, None, tuple(after)
        changed = sorted(range(len(variables)) if self.prefixes else {*changed, *donated})
        new = tuple(variables[i].get_raw_value() for i in changed)
        self.check(out, new)
        return out, _pack(changed), new

    def finish(
        self, answer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], cached: int = 0
    ) -> Any:
        out, _, after = answer
        nodes = self.nodes(args, kwargs)
        if cached:
            self.updates.check_cached(nodes, args[:cached], after[0][:cached])
        return self.updates.merge(nodes, (*after, out))[-1]


def _has(tree: Any, is_one: Callable[[Any], bool]) -> bool:
    return any(map(is_one, jax.tree.leaves(tree, is_leaf=is_one)))


def _changed_leaves(before: Any, after: Any) -> tuple[int, int] | None:
    """Returns the numbers of replaced and of all leaves of ``NodeStates``; None for new graphs."""
    flat = [jax.tree.flatten(tree, is_leaf=compat.is_node_states) for tree in (before, after)]
    if flat[0][1] != flat[1][1]:
        return None
    changed = total = 0
    for old, new in zip(flat[0][0], flat[1][0], strict=True):
        if not _core.same_static(registry, old.graphdef, new.graphdef):
            return None
        (xs, before), (ys, after) = (jax.tree.flatten(node.states) for node in (old, new))
        if before != after:
            return None
        changed += sum(x is not y for x, y in zip(xs, ys, strict=True))
        total += len(xs)
    return changed, total


class TreeFunction(TracedFunction):
    """The modes that update only Variables: without graphs, or with ``graph_updates=False``."""

    @property
    def graph(self) -> bool:
        return self.mode == 1

    def as_pure(self, dynamic: tuple[Any, Any]) -> tuple[Any, Any]:
        assert self.prefixes is not None
        if not self.graph:
            return dynamic
        inputs = self.prefixes.inputs
        found: tuple[Any, Any] = compat.to_tree(dynamic, None if inputs is None else (inputs, None))
        return found

    def specs_of_updates(self, updates: Any, specs: list[Any]) -> list[Any]:
        indices, variables = updates
        return _specs_of_each(indices, variables, specs)

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
        nodes = self.start(args, kwargs)
        variables = [node for node in nodes if compat.is_variable(node)]
        numbers = {id(variable): i for i, variable in enumerate(variables)}
        kept = self.donated_variables(args, kwargs, variables)
        dynamic = self.dynamic(args, kwargs)
        tree = compat.to_tree(dynamic) if self.graph else dynamic
        current, snapshot = compat.snapshot(*tree)
        out = self.fun(*args, **kwargs)
        if self.graph:
            out = compat.to_tree(out, self.prefixes and self.prefixes.outputs)
        compat.check_no_aliases(current, out)
        special = self.graph and _has(out, compat.is_tree_state)
        now, then = (
            jax.tree.leaves(tree, is_leaf=compat.is_variable) for tree in (current, snapshot)
        )
        for variable, before in zip(now, then, strict=True):
            if compat.is_variable(variable):
                changed, more = compat.has_changed(variable, before)
                special |= more
                if changed:
                    kept.add(numbers[id(variable)])
        indices = sorted(kept)
        if special:
            updates = tuple(variables[i] for i in indices)
            self.check(out, updates)
            return out, None, (_pack(indices), updates)
        new = tuple(variables[i].get_raw_value() for i in indices)
        self.check(out, new)
        return out, _pack(indices), new

    def finish(
        self, answer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], cached: int = 0
    ) -> Any:
        out, _, (packed, updates) = answer
        variables = [node for node in self.nodes(args, kwargs) if compat.is_variable(node)]
        for index, update in zip(_unpack(packed), updates, strict=True):
            variables[index].update_from_state(update)
        return compat.from_tree(out) if self.graph else out
