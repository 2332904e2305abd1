"""Threads that run at the same time."""

import threading
import time
from collections.abc import Callable
from typing import Any


def at_once(count: int, work: Callable[[int], Any], seconds: float = 60) -> list[Any]:
    """Calls `work` with each of ``range(count)``, in threads that start at the same time.

    Returns what each call returned or raised. Fails if a thread still runs after `seconds`.
    """
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count

    def run(i: int) -> None:
        barrier.wait()
        try:
            results[i] = work(i)
        except BaseException as e:
            results[i] = e

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), "a deadlock"
    return results
