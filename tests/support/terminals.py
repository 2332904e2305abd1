"""Pseudo-terminals, whose output is recorded."""

import contextlib
import dataclasses
import os
import pty
import threading
from collections.abc import Iterator
from typing import TextIO


@dataclasses.dataclass
class Terminal:
    """A terminal: `file` writes to it."""

    file: TextIO
    chunks: list[bytes] = dataclasses.field(default_factory=list)

    @property
    def text(self) -> str:
        """What was written to the terminal. It is complete when `terminal` has ended."""
        return b"".join(self.chunks).decode()


@contextlib.contextmanager
def terminal() -> Iterator[Terminal]:
    """Opens a terminal, and closes it when the block ends."""
    master, slave = pty.openpty()
    opened = Terminal(os.fdopen(slave, "w", encoding="utf-8"))

    def drain() -> None:
        with contextlib.suppress(OSError):  # Linux raises it when the terminal is closed
            while data := os.read(master, 65536):
                opened.chunks.append(data)

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        with opened.file:
            yield opened
    finally:
        thread.join()
        os.close(master)
