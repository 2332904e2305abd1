"""Runs a function in several threads at once."""

import threading
from collections.abc import Callable
from typing import Any

THREADS = 4


def in_threads(work: Callable[[int], Any], count: int = THREADS) -> None:
    """Calls `work` with each number in a thread of its own, all at once.  None may fail."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait(60)
            work(number)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []
