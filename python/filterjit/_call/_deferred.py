"""Running the functions that calls of a variant have deferred. They end a setting or a measurement
with the call.

`Variant.defer` stores (number, thread, function) in the list `Variant.deferred`. Calls of one
variant may run in several threads, and one inside another. So a call runs only what its own thread
has deferred since it began. This module imports only the standard library, because the tests of the
core need that.
"""

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .. import _core


def run(variant: "_core.Variant", first: int, again: bool) -> None:
    """Runs what this thread has deferred since `Variant.deferrals` was `first`, the last one first.

    What fails may have been interrupted halfway. So it stays, and is run once more where `run` is
    called `again`. Then it is dropped. The exception, an interrupt before others, is raised at the
    end.
    """
    failure: BaseException | None = None
    tried: set[int] = set()
    while (item := _last(variant, first, tried)) is not None:
        tried.add(item[0])
        failed = True
        try:
            item[2]()
            failed = False
        except Exception as e:
            failure = failure or e
        except BaseException as e:
            failure = e
        if variant.deferred and (again or not failed):
            variant.deferred.remove(item)
    if failure is not None:
        raise failure


def _last(variant: "_core.Variant", first: int, tried: set[int]) -> tuple[int, int, Any] | None:
    thread = threading.get_ident()
    for item in reversed(variant.deferred or ()):
        if item[1] == thread and item[0] >= first and item[0] not in tried:
            return item
    return None


def run_outside(variant: "_core.Variant", first: int) -> None:
    """Runs what a trace outside of any call has deferred, as the C core does at the end of a
    call."""
    try:
        run(variant, first, again=False)
    except Exception:
        run(variant, first, again=True)
