"""``python -m filterjit cache``: what is in the folder of a program cache, and removing it."""

import argparse
import re
import sys
import time
from collections import Counter

from .._aot._store import Listed, Store
from .._observe._labels import told_apart
from .._observe._wording import count
from .._terminal._text import align, shorten

_KIND = re.compile(r"^(an array|the (int|float|complex|str|bytes|path|dtype|class|function)) ")
_WIDTH = 60  # characters of a program's arguments


def run(options: argparse.Namespace) -> int:
    """Lists the programs of a folder, or removes some. Returns 1 if the folder cannot be used."""
    try:
        folder = Store(options.path)
        folder.check()
    except (OSError, ValueError) as e:
        print(f"cache: {e}", file=sys.stderr)
        return 1
    before = folder.listed()
    if options.prune is None:
        print(_table(before, time.time()))
        return 0
    folder.prune(options.prune)
    after = folder.listed()
    removed = max(_size(before) - _size(after), 0)
    print(f"removed {_megabytes(removed)}; left: {_total(after)}")
    return 0


def _table(entries: list[Listed], now: float) -> str:
    if not entries:
        return "no programs"
    rows = [["program", "calls", "size", "last used"]]
    rows += [
        [
            _printable(f"{one.name} {told}".rstrip()),
            _states(one),
            _megabytes(one.nbytes),
            f"{_age(now - one.used)} ago",
        ]
        for one, told in zip(entries, _told_apart(entries), strict=True)
    ]
    versions = ["written by", *(_printable(one.versions) for one in entries)]
    lines = ["  ".join([*row, by]) for row, by in zip(align(rows), versions, strict=True)]
    return "\n".join([*lines, _total(entries)])


def _told_apart(entries: list[Listed]) -> list[str]:
    """Returns of each program the arguments in which it differs from others of the same function."""
    by_name: dict[str, list[int]] = {}
    for i, one in enumerate(entries):
        by_name.setdefault(one.name, []).append(i)
    found = [""] * len(entries)
    for alike in by_name.values():
        values = [
            {path: _KIND.sub("", words) for path, words in entries[i].arguments.items()}
            for i in alike
        ]
        for i, words in zip(alike, told_apart(values), strict=True):
            found[i] = shorten(words, _WIDTH)
    return found


def _states(one: Listed) -> str:
    """Returns how many kinds of calls have the program, by what the index says of them."""
    return ", ".join(f"{n} {state}" for state, n in Counter(one.states).items()) or "none"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _size(entries: list[Listed]) -> int:
    return sum(one.nbytes for one in entries)


def _total(entries: list[Listed]) -> str:
    return f"{count(len(entries), 'program')}, {_megabytes(_size(entries))}"


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.2f} MB"


def _age(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"
