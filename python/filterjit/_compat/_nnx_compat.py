"""The private names of Flax NNX that `filterjit.nnx` uses. Importing this module imports Flax.

Each name is of Flax 0.12. If the installed version lacks one, `supported` is False, and Flax's own
``nnx.jit`` makes every call.
"""

import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any

import jax
from flax import nnx  # which `import flax.nnx` does not bind while it is being imported

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
# What decides how a Variable is read and updated, and how graph mode reads a Pytree. A class with
# one of its own is left to upstream.
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
    """Stands for the type of Variables where their value is not in a slot."""

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


def is_top_level() -> bool:
    """Whether nothing is traced, in this thread."""
    return all(getattr(x, name) is value for x, name, value, _ in TOP_LEVEL or ())


def has_own_updates(cls: Any) -> bool:
    """Whether a class of Variables or Pytrees is read or updated in a way of its own."""
    base, names = (Variable, _OF_VARIABLES) if issubclass(cls, Variable) else (Pytree, _OF_PYTREES)
    return any(_function(cls, name) is not _function(base, name) for name in names)


def _function(cls: Any, name: str) -> Any:
    found = inspect.getattr_static(cls, name)
    return _private.private_attribute(found, "__func__") or found


def is_special(variable: Any) -> bool:
    """Whether a Variable is one of Flax's hijax types, or holds a ``jax.Ref``."""
    metadata = variable._var_metadata
    return bool(metadata.get("hijax", True) or metadata.get("ref", True))


def has_static_tracer(node: Any) -> bool:
    """Whether a static attribute of a Pytree is a tracer, which a trace has left there."""
    return not isinstance(node, Variable) and any(
        isinstance(value, jax.core.Tracer) and not node._pytree__nodes.get(name, False)
        for name, value in vars(node).items()
    )


def settle(variable: Any) -> None:
    """Makes a Variable's value what ``jax.jit`` returns for it, if it is no array of JAX."""
    value = variable._raw_value
    if not isinstance(value, jax.Array):
        object.__setattr__(variable, "_raw_value", _same(value))


_same = _jax_compat.jit(lambda x: x)


def default_modes() -> tuple[bool, bool]:
    """Returns what ``graph`` and ``graph_updates`` are if they are not given."""
    return (
        graphlib.set_graph_mode.current_value(),
        graphlib.set_graph_updates.current_value(),
    )


def raw_value(variable: Any) -> Any:
    return variable.get_raw_value()


# ---- graph mode with updates ----


class GraphUpdates:
    """Upstream's protocol for changes of the graph, with the numbers of our walk as its indices.

    Inside the trace, `split` turns a tree into ``NodeStates``, whose ``GraphDef`` has the number
    of each node that was an argument. After the call, `merge` updates the nodes of the arguments.
    """

    def __init__(self) -> None:
        self._tag = object()

    def split(self, nodes: Iterable[Any], tree: tuple[Any, ...], prefix: Any = ()) -> Any:
        """Returns the tree as upstream passes it to ``jax.jit`` with shardings `prefix`."""
        with graphlib.update_context(self._tag) as context:
            context.outer_ref_outer_index = graphlib.RefMap()  # the outer split is over
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
        """Returns how many leaves the Variables and Pytrees in a tree have, each counted once."""
        return len(jax.tree.leaves(self.split(nodes, only_nodes(tree))))

    def check_cached(self, nodes: Iterable[Any], before: Any, after: Any) -> None:
        """Checks that the graphs of the arguments `before` are those of ``NodeStates``.

        Raises:
            ValueError: upstream's, if not.
        """
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
    """Returns upstream's ``cached_partial`` of a function, and the clones that it calls it with."""
    clones: list[tuple[Any, ...]] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if clones:
            return fun(*args, **kwargs)
        graphlib.GRAPH_CONTEXT.tmp_static_cache = None  # it is used: as in UpdateContextManager
        clones.append(args)
        return None

    partial = upstream_cached_partial(call, *args, **modes)
    partial()
    return partial, clones[0]


def only_nodes(tree: Any) -> Any:
    """Returns a tree with None for all leaves that are neither Variables nor Pytrees."""
    return extract.clear_non_graph_nodes(tree)


def is_node_states(x: Any) -> bool:
    return isinstance(x, extract.NodeStates)


# ---- shardings ----


def reads_shardings(upstream: Any) -> bool:
    """Whether this version of Flax has the names that the functions below need; `upstream` is what
    `upstream_jit` has returned."""
    return (
        hasattr(nnx, "StateSharding")
        and hasattr(extract.NodeStates, "from_prefixes")
        and hasattr(upstream, "in_shardings")
    )


def as_jax_prefix(prefix: Any) -> Any:
    """Returns what upstream gives ``jax.jit`` in the place of a prefix with ``StateSharding``."""
    return jax.tree.map(
        lambda x: (
            extract.NodeStates.from_prefixes(x.shardings, metadata=x)
            if isinstance(x, nnx.StateSharding)
            else x
        ),
        prefix,
    )


def expanded_prefix(upstream: Any) -> Any:
    """Returns the ``in_shardings`` of a function of `upstream_jit`, with None for static
    arguments."""
    return upstream.in_shardings


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
    """Returns a tree of the same Variables, and one of copies of them."""
    found: tuple[Any, Any] = extract.snapshot(extract.labeled(args=args, kwargs=kwargs))
    return found


def check_no_aliases(current: Any, out: Any) -> None:
    extract.check_no_aliases("jit", **current, out=out, check=["out"])


def has_changed(current: Any, before: Any) -> tuple[bool, bool]:
    """Returns whether a Variable has changed, and whether more than its array has."""
    changed = extract.variable_changed(current, before)
    return changed, changed and jax.tree.structure(current) != jax.tree.structure(before)
