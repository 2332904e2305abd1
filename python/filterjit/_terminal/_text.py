"""Tables as text."""

from collections.abc import Sequence


def widths_of(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def align(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Pads cells to the width of their column: the first one on the right, the rest on the left."""
    widths = widths_of(rows)
    return [
        [
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]


def shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def table(rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Returns lines of at most `width`; the first column is aligned to the left, all others to the
    right. Drops the last columns and shortens the first if needed."""
    if width is not None:
        while len(rows[0]) > 1 and sum(widths_of(rows)[1:]) + 2 * len(rows[0]) + 16 > width:
            rows = [row[:-1] for row in rows]
        most = max(8, width - sum(widths_of(rows)[1:]) - 2 * (len(rows[0]) - 1))
        rows = [[shorten(first, most), *others] for first, *others in rows]
    return ["  ".join(row).rstrip() for row in align(rows)]
