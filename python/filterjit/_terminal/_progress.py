"""Shows on a terminal or in a notebook which functions have been compiling for more than two seconds.

Each compilation has a thread while it lasts. Only these threads write to the terminal, so neither
an interrupt nor an error of the terminal reaches the program.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .._base._locks import Lock
from .._base._switches import switches
from . import _notebook, _rich_progress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE = 2.0  # seconds that a compilation takes before it is shown
_REFRESH = 0.125  # seconds


def _enabled() -> bool:
    return switches.progress and (_rich_progress.stderr_is_terminal() or _notebook.is_notebook())


class Job:
    """A compilation, shown as `what`."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.start = time.monotonic()
        self._told = 0
        # Released when the job ends. An interrupt in a method of threading.Event could leave the
        # lock of the event held.
        self._running = Lock()
        self._running.acquire()
        self._thread = threading.Thread(target=self._show, name="filterjit-progress", daemon=True)

    def whole_seconds(self) -> int | None:
        """Returns for how many seconds it has been running; None if it has told that before."""
        told, self._told = self._told, int(time.monotonic() - self.start)
        return self._told if self._told != told else None

    def begin(self) -> None:
        try:
            self._thread.start()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        with contextlib.suppress(RuntimeError):  # a second call
            self._running.release()
        if self._thread.is_alive():
            self._thread.join()

    def _show(self) -> None:
        """Runs in the thread."""
        if self._running.acquire(timeout=_PATIENCE):
            return
        # `rich` raises SystemExit if stderr is closed at the other end.
        with contextlib.suppress(BaseException):
            try:
                _display.add(self)
                while not self._running.acquire(timeout=_REFRESH):
                    _display.refresh()
            finally:
                _display.remove(self)


class _Display:
    """The lines on the terminal, one for each job; without ``rich``, a message for each. A line in a
    notebook stays, and says at the end how long it took."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._progress: Progress | None = None
        self._tasks: dict[Job, TaskID] = {}
        self._lines: dict[Job, Callable[[str], None]] = {}  # in a notebook

    def add(self, job: Job) -> None:
        with self._lock:
            if _notebook.is_notebook():
                self._lines[job] = _notebook.show_line(f"filterjit: compiling {job.what} ...")
                return
            if not self._tasks:
                self._progress = _rich_progress.progress(
                    lambda rich: (
                        rich.SpinnerColumn(style="cyan"),
                        rich.TextColumn(
                            "compiling {task.description}: {task.elapsed:.0f} s", markup=False
                        ),
                    ),
                    auto_refresh=False,  # an error in a thread of rich would be printed
                    get_time=time.monotonic,
                )
            if self._progress is None:
                print(f"filterjit: compiling {job.what} ...", file=sys.stderr, flush=True)
                return
            self._tasks[job] = self._progress.add_task(job.what, total=None)
            self._progress.tasks[-1].start_time = job.start
            self._progress.start()

    def refresh(self) -> None:
        with self._lock:
            if self._progress is not None:
                self._progress.refresh()
            for job, show in self._lines.items():
                if (seconds := job.whole_seconds()) is not None:
                    show(f"filterjit: compiling {job.what}: {seconds} s")

    def remove(self, job: Job) -> None:
        with self._lock:
            if (show := self._lines.pop(job, None)) is not None:
                show(f"filterjit: compiled {job.what} in {time.monotonic() - job.start:.1f} s")
                return
            task = self._tasks.pop(job, None)
            if self._progress is None or task is None:
                return
            if self._tasks:
                self._progress.remove_task(task)
                self._progress.refresh()
            else:
                self._progress.stop()


_display = _Display()


class _Watcher:
    """Begins and ends jobs, if there is a terminal to show them on."""

    @staticmethod
    def job(what: str) -> Job | None:
        """Returns a job for `begin` and `end`; None if nothing is to be shown."""
        return Job(what) if _enabled() else None

    @staticmethod
    def begin(job: Job | None) -> None:
        """Shows `job` if it is not over within two seconds."""
        if job is not None:
            job.begin()

    @staticmethod
    def end(job: Job | None) -> None:
        """Ends `job`, and removes it from the terminal. A second call does nothing."""
        if job is not None:
            job.end()


watcher = _Watcher()
