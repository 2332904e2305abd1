"""`cached_partial`: a partial of a jitted function with cached first arguments."""

import functools
from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar, cast

from .._base._checks import check_callable
from .._base._generic import _P, _T
from .._base._package import public
from .._compat import _nnx_compat as compat
from ._nnx_jit import NNXJit, new_jit
from ._trace import GraphFunction

_R = TypeVar("_R")


@functools.partial(public, module="filterjit.nnx")
class CachedJit(NNXJit[_P, _T]):
    """An `NNXJit` that shares another one's programs. Its first arguments are Flax's clones.

    Attributes:
        original: the other `NNXJit`; traces need it.
        count: the number of clones.
        upstream_partial: Flax's partial of the same clones, for calls that are handed over.
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


def _is_covered(f: Any) -> TypeGuard[NNXJit]:
    return (
        compat.supported
        and isinstance(f, NNXJit)
        and isinstance(f._traced, GraphFunction)
        and f._reason is None
    )


def _holds_only_variables(f: NNXJit, clones: tuple[Any, ...]) -> bool:
    """True if Variables hold all arrays in the cloned Modules. Otherwise Flax fails."""
    try:
        nodes = f._nodes(clones)
    except ValueError:  # a Module that contains itself, or flattens itself in Python
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
    f: Callable[..., _R],
    *cached_args: Any,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> functools.partial[_R]:
    """Returns a partial of a jitted function with cached first arguments, like
    ``flax.nnx.cached_partial``.

    It clones the Modules in `cached_args` once. The clones share the originals' Variables, and
    updates to these are visible in both. Later changes to a Module's attributes don't affect the
    calls. A call that changes the graph of a clone raises ``ValueError``.

    The partial is Flax's own if `f` isn't a function of `filterjit.nnx.jit` with
    ``graph=True, graph_updates=True``, if all its calls are handed over, or if a Module in
    `cached_args` has an array outside its Variables.

    Arguments:
        f: a jitted function.
        cached_args: its first arguments.
        graph: as in ``flax.nnx.cached_partial``. None means its default.
        graph_updates: likewise.

    Returns:
        A ``functools.partial`` of a `CachedJit`, or Flax's partial.
    Raises:
        TypeError: if `f` is not callable.

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
        return cast(functools.partial[_R], compat.upstream_cached_partial(f, *cached_args, **modes))
    partial, clones = compat.cached_partial(f.upstream, *cached_args, **modes)
    if not _holds_only_variables(f, clones):
        return cast(functools.partial[_R], compat.upstream_cached_partial(f, *cached_args, **modes))
    found = functools.partial(_make(f, len(clones), partial), *clones)
    functools.update_wrapper(found, f, updated=())
    return found
