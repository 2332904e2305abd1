"""Tables in plain text."""

from collections.abc import Sequence


def widths_of(rows: Sequence[Sequence[str]]) -> list[int]:
    """Returns the width of each column: the length of its longest cell."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def align(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Returns the rows with every cell padded to the width of its column.

    The first column is aligned to the left, the others to the right.
    """
    widths = widths_of(rows)
    return [
        [
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]
