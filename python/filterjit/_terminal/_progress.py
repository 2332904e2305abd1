"""Shows functions that compile for more than two seconds, on a terminal or in a notebook. Only a
compilation's own thread writes there, and the program sees no interrupts or errors from it."""

import contextlib
import os
import queue
import shutil
import sys
import threading
import time

from .._base._locks import RLock
from .._base._switches import switches
from . import _notebook

_PATIENCE = 2.0  # seconds before a compilation is shown
_REFRESH = 0.125  # seconds
_CLEAR = "\r\x1b[2K"  # clears a terminal's line


def _enabled() -> bool:
    with contextlib.suppress(Exception):  # stderr is closed or not a file
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        return switches.progress and (is_terminal or _notebook.is_notebook())
    return False


def _clears_lines() -> bool:
    """True if the terminal can clear a line."""
    return os.name != "nt" and os.environ.get("TERM", "dumb") != "dumb"


class Job:
    def __init__(self, what: str) -> None:
        self.what = what
        self.start = time.monotonic()
        # Not a threading.Event: an interrupt in its methods could leave its lock held.
        self._end: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._show, name="filterjit-progress", daemon=True)

    def begin(self) -> None:
        """Shows the job, if it lasts for two seconds."""
        try:
            self._thread.start()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Removes the job from the terminal (idempotent)."""
        self._end.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _ends_in(self, seconds: float) -> bool:
        """Waits for up to `seconds`. Returns True if the job has ended."""
        with contextlib.suppress(queue.Empty):
            self._end.get(timeout=seconds)
            return True
        return False

    def _show(self) -> None:
        if self._ends_in(_PATIENCE):
            return
        with contextlib.suppress(Exception):
            if _notebook.is_notebook():
                self._show_in_notebook()
                return
            try:
                while True:
                    _line.show(self)
                    if self._ends_in(_REFRESH):
                        break
            finally:
                _line.remove(self)

    def _show_in_notebook(self) -> None:
        """Shows a line that stays, with the total time at the end."""
        show = _notebook.show_line(f"filterjit: compiling {self.what} ...")
        while not self._ends_in(1.0):
            show(f"filterjit: compiling {self.what}: {time.monotonic() - self.start:.0f} s")
        show(f"filterjit: compiled {self.what} in {time.monotonic() - self.start:.1f} s")


class _Line:
    """The oldest job and the number of others, in one line; or a message per job."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._jobs: list[Job] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._jobs.clear)

    def show(self, job: Job) -> None:
        with self._lock:
            is_new = job not in self._jobs
            if is_new:
                self._jobs.append(job)
            if not _clears_lines():
                if is_new:
                    print(f"filterjit: compiling {job.what} ...", file=sys.stderr, flush=True)
                return
            first, others = self._jobs[0], len(self._jobs) - 1
            more = f" and {others} other{'s' * (others > 1)}" if others else ""
            text = f"compiling {first.what}{more}: {time.monotonic() - first.start:.0f} s"
            self._write(text[: shutil.get_terminal_size().columns - 1])

    def remove(self, job: Job) -> None:
        with self._lock:
            if job in self._jobs:
                self._jobs.remove(job)
                if _clears_lines():
                    self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(_CLEAR + text)
        sys.stderr.flush()


_line = _Line()


def job_of(what: str) -> Job | None:
    """Returns a job to begin and end, or None if nothing can show it."""
    return Job(what) if _enabled() else None
