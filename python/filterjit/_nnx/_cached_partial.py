"""`cached_partial`: a jitted function whose first arguments are kept."""

import functools
from collections.abc import Callable
from typing import Any

from .._base._checks import check_callable
from .._base._package import public
from .._compat import _nnx_compat as compat
from ._nnx_jit import NNXJit, new_jit
from ._trace import GraphFunction


@functools.partial(public, module="filterjit.nnx")
class CachedJit(NNXJit):
    """An `NNXJit` that shares the programs of another one, and is called with upstream's clones of
    the first arguments.

    Attributes:
        original: the other one, which the function that is traced needs.
        count: the number of clones.
        upstream_partial: upstream's own partial of the same clones, for calls that are handed over.
    """

    original: NNXJit
    count: int
    upstream_partial: Callable[..., Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self.original, self.count, self.upstream_partial)

    def _call_upstream(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return self.upstream_partial(*args[self.count :], **kwargs)

    def _finish(self, answer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        return self._traced.finish(answer, args, kwargs, self.count)


def _is_covered(f: Any) -> bool:
    return (
        compat.supported
        and isinstance(f, NNXJit)
        and isinstance(f._traced, GraphFunction)
        and f._reason is None
    )


def _holds_only_variables(f: NNXJit, clones: tuple[Any, ...]) -> bool:
    """Whether all arrays in the clones of Modules are in Variables; upstream fails if not."""
    try:
        nodes = f._nodes(clones)
    except ValueError:  # a Module contains itself, or is flattened by functions in Python
        return False
    assert isinstance(f._traced, GraphFunction)
    return f._traced.updates.count_leaves(nodes, clones) == sum(map(compat.is_variable, nodes))


def _make(f: Any, count: int, partial: Callable[..., Any]) -> CachedJit:
    jitted: CachedJit = new_jit(CachedJit, f._inner, f._traced, f.upstream)
    jitted.handed_over = f.handed_over
    jitted.original, jitted.count, jitted.upstream_partial = f, count, partial
    return jitted


@functools.partial(public, module="filterjit.nnx")
def cached_partial(
    f: Any, *cached_args: Any, graph: bool | None = None, graph_updates: bool | None = None
) -> Any:
    """Returns a partial of a jitted function that keeps its first arguments, as
    ``flax.nnx.cached_partial`` does.

    The Modules in `cached_args` are cloned once, with the same Variables: what a call changes in
    these is seen by all, and what is changed in a Module itself afterwards is not seen by the
    calls. A call that changes the graph of a clone raises ``ValueError``.

    If `f` is no function of `filterjit.nnx.jit` in the default mode, or if it is one whose calls
    are handed over, the partial is Flax's.

    Arguments:
        f: a jitted function.
        cached_args: its first arguments.
        graph: as in ``flax.nnx.cached_partial``; None for its default.
        graph_updates: the same.

    Returns:
        A ``functools.partial`` of a `CachedJit`, or Flax's partial.

    Raises:
        TypeError: `f` is not callable.

    Examples:
        >>> from flax import nnx
        >>> count = nnx.Variable(jnp.zeros(()))
        >>> add = filterjit.nnx.jit(lambda count, n: count.set_value(count + n))
        >>> add_to_count = filterjit.nnx.cached_partial(add, count)
        >>> add_to_count(2.0)
        >>> count[...]
        Array(2., dtype=float32)
    """
    check_callable("nnx.cached_partial(f)", f)
    modes = {"graph": graph, "graph_updates": graph_updates}
    if not _is_covered(f):
        return compat.upstream_cached_partial(f, *cached_args, **modes)
    partial, clones = compat.cached_partial(f.upstream, *cached_args, **modes)
    if not _holds_only_variables(f, clones):
        return compat.upstream_cached_partial(f, *cached_args, **modes)
    jitted = _make(f, len(clones), partial)
    return functools.update_wrapper(functools.partial(jitted, *clones), f, updated=())
