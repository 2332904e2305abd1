"""While it waits: what is compiling, and for how long, on a terminal.

There is a thread as long as something compiles, and no longer. What is on the terminal is gone
before the call that waited goes on.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

_PATIENCE = 2.0  # seconds without a word
_REFRESH = 0.125

_wanted: bool | None = None


def show_progress(on: bool) -> None:
    """Whether a compile that takes long is shown on a terminal. It is unless this says
    otherwise, or the environment by ``FILTERJIT_PROGRESS=0``."""
    global _wanted
    _wanted = bool(on)


def _shown() -> bool:
    if _wanted is False or sys.stderr is None:
        return False
    if _wanted is None and os.environ.get("FILTERJIT_PROGRESS", "") == "0":
        return False
    try:
        return sys.stderr.isatty()
    except Exception:  # closed, or not quite a file
        return False


class Job:
    """Something that compiles."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.start = time.monotonic()


class _Line:
    """One line of text on stderr, which comes and goes; a lasting one without `rich`."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.live: Any = None
        try:
            from rich.console import Console
            from rich.live import Live
            from rich.spinner import Spinner
        except ImportError:
            Console = None
        console = None if Console is None else Console(stderr=True)
        if console is None or not console.is_terminal or console.is_dumb_terminal:
            print(f"filterjit: compiling {job.what} ...", file=sys.stderr, flush=True)
            return
        self.spinner = Spinner("dots", self._text(), style="cyan")
        # Others may have put theirs in the place of sys.stdout by the time that it is given
        # back, so it is left where it is.
        self.live = Live(
            self.spinner,
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.live.start(refresh=True)

    def _text(self) -> Any:
        from rich.text import Text

        seconds = time.monotonic() - self.job.start
        text = f"compiling {self.job.what}: {seconds:.0f} s"
        return Text(text, no_wrap=True, overflow="ellipsis")

    def refresh(self) -> None:
        if self.live is not None:
            self.spinner.update(text=self._text())
            self.live.refresh()

    def remove(self) -> None:
        if self.live is not None:
            self.live.stop()


class _Watcher:
    """Shows the job that has waited longest."""

    def __init__(self) -> None:
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.RLock()  # its `with` cannot be interrupted, unlike a Condition's
        self._changed = threading.Condition(self._lock)
        self._jobs: list[Job] = []
        self._shown: Job | None = None
        self._thread: threading.Thread | None = None
        self._silent: set[object] = set()  # who asked for it

    @staticmethod
    def shown() -> bool:
        """Whether there is a terminal that wants to be told."""
        return _shown()

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """While others write to the terminal."""
        who = object()
        try:
            self._silent.add(who)
            yield
            self._silent.discard(who)
        except BaseException:
            self._silent.discard(who)
            raise

    def job(self, what: str) -> Job | None:
        """To begin and to end; None where nothing is to be shown."""
        return None if self._silent or not _shown() else Job(what)

    def begin(self, job: Job | None) -> None:
        if job is None:
            return
        with self._lock:
            try:
                self._jobs.append(job)
                if self._thread is None:
                    thread = threading.Thread(
                        target=self._watch, name="filterjit-progress", daemon=True
                    )
                    self._thread = thread
                    thread.start()
            except BaseException:
                with contextlib.suppress(ValueError):
                    self._jobs.remove(job)
                if self._thread is not None and not self._thread.is_alive():
                    self._thread = None
                raise

    def end(self, job: Job | None) -> None:
        """When this returns nothing of the job is on the terminal, and, if it was the last one,
        there is no thread."""
        if job is None:
            return
        with self._lock:
            if job not in self._jobs:
                return
            self._jobs.remove(job)
            thread = self._thread
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._shown is not job and (bool(self._jobs) or self._thread is not thread)
            )
            gone = self._thread is not thread
        if gone and thread is not None:
            thread.join()

    def _watch(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._show(job)
            except Exception:  # the terminal is gone, say: the program is not to suffer
                while not self._over(job):
                    pass
            with self._lock:
                self._shown = None
                self._changed.notify_all()

    def _next(self) -> Job | None:
        """Waits for a job that has taken long enough; None, and the thread's end, without any."""
        with self._lock:
            while self._jobs:
                left = self._jobs[0].start + _PATIENCE - time.monotonic()
                if left <= 0:
                    self._shown = self._jobs[0]
                    return self._shown
                self._changed.wait(left)
            self._thread = None
            self._changed.notify_all()
            return None

    def _show(self, job: Job) -> None:
        line = _Line(job)
        try:
            while not self._over(job):
                line.refresh()
        finally:
            line.remove()

    def _over(self, job: Job) -> bool:
        with self._lock:
            return self._changed.wait_for(lambda: job not in self._jobs, _REFRESH)


watcher = _Watcher()
