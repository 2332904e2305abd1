"""A log of what was traced, lowered, compiled and first run, and when.

Nothing is logged until the recorder has an `EventLog`, which ``filterjit run --html`` gives it. A hit
logs nothing.
"""

import time
from typing import NamedTuple

from ._causes import Explanation
from ._function_records import FunctionRecord

MOST_EVENTS = 100_000  # later ones are not kept


class Event(NamedTuple):
    """What JAX did once for a jitted function.

    Attributes:
        kind: "trace", "lowering", "compile" or "first run".
        name, place: of the function, as in its `FunctionRecord`.
        begin, end: by ``time.perf_counter``.
        reason: why it is a retrace; None for the first trace and for other events.
    """

    kind: str
    name: str
    place: tuple[str, int] | None
    begin: float
    end: float
    reason: Explanation | None = None


class EventLog(list[Event]):
    """The events since the recorder has it, in the order in which they ended."""

    def add(
        self, kind: str, record: FunctionRecord, seconds: float, reason: Explanation | None = None
    ) -> None:
        """Logs what took some seconds and has just ended."""
        if len(self) < MOST_EVENTS:
            now = time.perf_counter()
            self.append(Event(kind, record.name, record.place, now - seconds, now, reason))
