"""A log of what was traced, lowered, compiled and first run, and when.

Nothing is logged until the recorder has an `EventLog`, which ``filterjit run --html`` gives it. A hit
logs nothing: what is known of calls between two events are the counters of the function.
"""

import dataclasses
import time

from ._causes import Explanation
from ._function_records import FunctionRecord

_MOST_EVENTS = 100_000  # later ones are counted only


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """What JAX did once for a jitted function.

    Attributes:
        kind: "trace", "lowering", "compile" or "first run".
        name, place: of the function, as in its `FunctionRecord`.
        begin, end: by ``time.perf_counter``.
        calls: how often the function had been called then.
        reason: why it is a retrace; empty for the first trace and for other events.
        causes: the kind and the path of each difference that the reason names.
    """

    kind: str
    name: str
    place: tuple[str, int] | None
    begin: float
    end: float
    calls: int = 0
    reason: str = ""
    causes: tuple[tuple[str, str], ...] = ()


class EventLog:
    """The events since the recorder has it.

    Attributes:
        events: in the order in which they ended.
        dropped: how many events came after the last one that was kept.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.dropped = 0

    def add(
        self,
        kind: str,
        record: FunctionRecord,
        seconds: float,
        reason: Explanation | None = None,
    ) -> None:
        """Logs what took some seconds and has just ended."""
        if len(self.events) >= _MOST_EVENTS:
            self.dropped += 1
            return
        cache, now = record.cache(), time.perf_counter()
        calls = record.calls if cache is None else cache.calls
        told = ("", ()) if reason is None else (str(reason), reason.kinds)
        event = Event(kind, record.name, record.place, now - seconds, now, calls, *told)
        self.events.append(event)
