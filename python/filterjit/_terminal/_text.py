"""Tables in plain text and in HTML."""

import html
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


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """Returns a table in the colours of the page that it will be in.

    The first column is aligned to the left, the others to the right. Spaces at the beginning of a
    cell indent it.
    """

    def line(tag: str, cells: Sequence[str]) -> str:
        styles = ["left;white-space:pre-wrap", *["right;white-space:nowrap"] * (len(cells) - 1)]
        return "".join(
            f'<{tag} style="text-align:{style}">{html.escape(cell)}</{tag}>'
            for cell, style in zip(cells, styles, strict=True)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return (
        f'<table><caption style="text-align:left">{html.escape(caption)}</caption>'
        f"<thead><tr>{line('th', head)}</tr></thead><tbody>{body}</tbody></table>"
    )
