"""The private names of Flax NNX for `filterjit.nnx`. Importing this module imports Flax.

The names are Flax 0.12's. If the installed version lacks one, `supported` is False, and all calls
fall back to Flax's ``nnx.jit``.
"""

import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any

import jax
from flax import nnx  # not bound by `import flax.nnx` while that import is running

from . import _jax_compat, _private

upstream_jit: Callable[..., Any] = (
    _private.private("flax.nnx.transforms.compilation", "jit") or nnx.jit
)
upstream_cached_partial: Any = _private.private("flax.nnx.graphlib", "cached_partial") or getattr(
    nnx, "cached_partial", None
)
Variable: Any = nnx.Variable
Pytree: Any = getattr(nnx, "Pytree", nnx.Module)

extract: Any = _private.private("flax.nnx.extract")
graphlib: Any = _private.private("flax.nnx.graphlib")
_split_fn: Any = _private.private("flax.nnx.transforms.compilation", "_jit_split_fn")
_merge_fn: Any = _private.private("flax.nnx.transforms.compilation", "_jit_merge_fn")

_NAMES = (
    (extract, "to_tree", "from_tree", "to_tree2", "from_tree2", "clear_non_graph_nodes"),
    (extract, "snapshot", "check_no_aliases", "variable_changed", "labeled"),
    (extract, "NodeStates", "TreeState"),
    (graphlib, "update_context", "RefMap", "IndexMap", "GRAPH_CONTEXT"),
    (graphlib, "set_graph_mode", "set_graph_updates"),
)
# Methods that read and update Variables, and that graph mode uses on Pytrees. Classes that override
# one are left to upstream.
_OF_VARIABLES = (
    "__setattr__",
    "_can_update",
    "_check_can_update",
    "copy",
    "from_metadata",
    "get_metadata",
    "get_raw_value",
    "set_raw_value",
    "update_from_state",
)
_OF_PYTREES = (
    "_graph_node_clear",
    "_graph_node_create_empty",
    "_graph_node_flatten",
    "_graph_node_init",
)


def _top_level_guards() -> tuple[tuple[Any, str, Any, str], ...] | None:
    core = "jax._src.core"
    guards = []
    for state, value in (
        ("trace_state_strong_ref", "eval_trace"),
        ("axis_env_state", "top_axis_env"),
    ):
        holder, expected = _private.private(core, state), _private.private(core, value)
        if holder is None or expected is None or not hasattr(holder, "value"):
            return None
        guards.append((holder, "value", expected, "the call is under a trace"))
    return tuple(guards)


TOP_LEVEL = _top_level_guards()


class _NoVariable:
    """Replaces the type of Variables if their value isn't in a slot."""

    __slots__ = ("_raw_value",)


_is_slotted = isinstance(getattr(Variable, "_raw_value", None), types.MemberDescriptorType)
VARIABLE_TYPE: type = Variable if _is_slotted else _NoVariable

supported: bool = (
    TOP_LEVEL is not None
    and _is_slotted
    and _jax_compat.KEY_TYPE is not None
    and _split_fn is not None
    and _merge_fn is not None
    and {"graph", "graph_updates"} <= set(inspect.signature(upstream_jit).parameters)
    and all(hasattr(module, name) for module, *names in _NAMES for name in names)
    and hasattr(graphlib.GRAPH_CONTEXT, "tmp_static_cache")
    and all(hasattr(Variable, name) for name in _OF_VARIABLES)
    and all(hasattr(Pytree, name) for name in _OF_PYTREES)
)

GUARDS: tuple[tuple[Any, str, Any, str], ...] = (
    (
        *(TOP_LEVEL or ()),
        (graphlib.GRAPH_CONTEXT, "tmp_static_cache", None, "the call is by nnx.cached_partial"),
    )
    if supported
    else ()
)


def is_outside_nnx_traces() -> bool:
    """True if this thread isn't tracing."""
    return all(getattr(x, name) is value for x, name, value, _ in TOP_LEVEL or ())


def has_own_updates(cls: Any) -> bool:
    """True if a class of Variables or Pytrees overrides how it is read or updated."""
    base, names = (Variable, _OF_VARIABLES) if issubclass(cls, Variable) else (Pytree, _OF_PYTREES)
    return any(_function(cls, name) is not _function(base, name) for name in names)


def _function(cls: Any, name: str) -> Any:
    found = inspect.getattr_static(cls, name)
    return _private.private_attribute(found, "__func__") or found


def is_special(variable: Any) -> bool:
    """True for Flax's hijax types of Variables, and for a Variable that holds a ``jax.Ref``."""
    metadata = variable._var_metadata
    return bool(metadata.get("hijax", True) or metadata.get("ref", True))


def has_static_tracer(node: Any) -> bool:
    """True if a Pytree has a tracer as static attribute, left by a trace."""
    return not isinstance(node, Variable) and any(
        isinstance(value, jax.core.Tracer) and not node._pytree__nodes.get(name, False)
        for name, value in vars(node).items()
    )


def settle(variable: Any) -> None:
    """Replaces a Variable's value with ``jax.jit``'s result for it, unless it's a JAX array."""
    value = variable._raw_value
    if not isinstance(value, jax.Array):
        object.__setattr__(variable, "_raw_value", _same(value))


_same = _jax_compat.jit(lambda x: x)


def default_modes() -> tuple[bool, bool]:
    """Returns the defaults of ``graph`` and ``graph_updates``."""
    return graphlib.set_graph_mode.current_value(), graphlib.set_graph_updates.current_value()


# ---- graph mode with updates ----


class GraphUpdates:
    """Upstream's protocol for changes of the graph, with our walk's numbers as indices.

    In the trace, `split` turns a tree into ``NodeStates``, with a ``GraphDef`` that has the numbers
    of the arguments' nodes. After the call, `merge` updates these nodes.
    """

    def __init__(self) -> None:
        self._tag = object()

    def split(self, nodes: Iterable[Any], tree: tuple[Any, ...], prefix: Any = ()) -> Any:
        """Returns the tree as upstream passes it to ``jax.jit``, given the shardings `prefix`."""
        with graphlib.update_context(self._tag) as context:
            context.outer_ref_outer_index = graphlib.RefMap()  # the outer split has ended
            context.inner_ref_outer_index = _numbered(nodes)
            return extract.to_tree(
                tree,
                prefix=prefix or (None,) * len(tree),
                split_fn=_split_fn,
                ctxtag=self._tag,
            )

    def merge(self, nodes: Iterable[Any], tree: tuple[Any, ...]) -> Any:
        nodes = list(nodes)
        with graphlib.update_context(self._tag) as context:
            context.outer_ref_outer_index = _numbered(nodes)
            context.outer_index_outer_ref = graphlib.IndexMap()
            for i, node in enumerate(nodes):
                context.outer_index_outer_ref[i] = node
            return extract.from_tree(tree, merge_fn=_merge_fn, is_inner=False, ctxtag=self._tag)

    def count_leaves(self, nodes: Iterable[Any], tree: tuple[Any, ...]) -> int:
        """Returns the number of leaves of the Variables and Pytrees in a tree, counting each
        once."""
        return len(jax.tree.leaves(self.split(nodes, only_nodes(tree))))

    def check_cached(self, nodes: Iterable[Any], before: Any, after: Any) -> None:
        """Raises upstream's ValueError if the graphs of the arguments `before` differ from the
        ``NodeStates`` in `after`."""
        nodes, leaves = list(nodes), jax.tree.leaves(after, is_leaf=is_node_states)
        expected = jax.tree.leaves(self.split(nodes, only_nodes(before)), is_leaf=is_node_states)
        for wanted, found in zip(expected, leaves, strict=True):
            if wanted.graphdef != found.graphdef:
                node = nodes[found.graphdef.nodes[0].outer_index]
                raise ValueError(
                    "The graph structure of a node added to cached_partial was mutated inside the "
                    f"transformation, this is not allowed.\nNode: {node}\n"
                    f"Ouput graphdef: {found.graphdef}\nExpected graphdef: {wanted.graphdef}"
                )


def _numbered(nodes: Iterable[Any]) -> Any:
    numbers = graphlib.RefMap()
    for i, node in enumerate(nodes):
        numbers[node] = i
    return numbers


def cached_partial(
    fun: Callable[..., Any], *args: Any, **modes: Any
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Returns upstream's ``cached_partial`` of a function, and the cached clones."""
    clones: list[tuple[Any, ...]] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if clones:
            return fun(*args, **kwargs)
        graphlib.GRAPH_CONTEXT.tmp_static_cache = None  # mark as used, like UpdateContextManager
        clones.append(args)
        return None

    partial = upstream_cached_partial(call, *args, **modes)
    partial()
    return partial, clones[0]


def only_nodes(tree: Any) -> Any:
    """Replaces all leaves except Variables and Pytrees with None."""
    return extract.clear_non_graph_nodes(tree)


def is_node_states(x: Any) -> bool:
    return isinstance(x, extract.NodeStates)


# ---- shardings ----


def reads_shardings(upstream: Any) -> bool:
    """True if this version of Flax has the names for shardings. `upstream` is from
    `upstream_jit`."""
    return (
        hasattr(nnx, "StateSharding")
        and hasattr(extract.NodeStates, "from_prefixes")
        and hasattr(upstream, "in_shardings")
    )


def as_jax_prefix(prefix: Any) -> Any:
    """Converts a prefix with ``StateSharding``, as upstream does for ``jax.jit``."""
    return jax.tree.map(
        lambda x: (
            extract.NodeStates.from_prefixes(x.shardings, metadata=x)
            if isinstance(x, nnx.StateSharding)
            else x
        ),
        prefix,
    )


# ---- the other modes ----


def is_tree_state(x: Any) -> bool:
    return isinstance(x, extract.TreeState)


def is_variable(x: Any) -> bool:
    return isinstance(x, Variable)


def to_tree(tree: Any, prefix: Any = None) -> Any:
    return extract.to_tree2(tree, prefix=prefix)


def from_tree(tree: Any) -> Any:
    return extract.from_tree2(tree)


def snapshot(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Returns a tree of the same Variables, and a tree of copies."""
    found: tuple[Any, Any] = extract.snapshot(extract.labeled(args=args, kwargs=kwargs))
    return found


def check_no_aliases(current: Any, out: Any) -> None:
    extract.check_no_aliases("jit", **current, out=out, check=["out"])


def has_changed(current: Any, before: Any) -> tuple[bool, bool]:
    """Returns (has a Variable changed, more than its array)."""
    changed = extract.variable_changed(current, before)
    return changed, changed and jax.tree.structure(current) != jax.tree.structure(before)
