"""A table, as plain text in columns and as HTML."""

import dataclasses
import html
import re
from collections.abc import Sequence

_LONGEST = 600  # characters of one text in HTML
# Characters that HTML does not allow, or that would change the direction of the text.
_BAD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


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


def shorten(text: str, most: int) -> str:
    """Returns a text of at most so many characters."""
    return text if len(text) <= most else text[: most - 3] + "..."


def escape(text: str) -> str:
    """Returns any text for HTML; a long one is cut off."""
    return html.escape(_BAD.sub("\ufffd", shorten(text, _LONGEST)))


@dataclasses.dataclass(frozen=True)
class Table:
    """A table: its title, the heads of its columns and its rows.

    The first column is aligned to the left, and spaces at the beginning of its cells indent them.
    The others are aligned to the right.
    """

    title: str
    heads: list[str]
    rows: list[list[str]]

    def lines(self, width: int | None = None) -> list[str]:
        """Returns the lines of the table below its title; if they are to be no longer than `width`,
        the last columns are left out as far as is needed, and the first one is shortened."""
        rows = [self.heads, *self.rows]
        if width is not None:
            while len(rows[0]) > 1 and sum(widths_of(rows)[1:]) + 2 * len(rows[0]) + 16 > width:
                rows = [row[:-1] for row in rows]
            most = max(8, width - sum(widths_of(rows)[1:]) - 2 * (len(rows[0]) - 1))
            rows = [[shorten(first, most), *others] for first, *others in rows]
        return ["  ".join(row).rstrip() for row in align(rows)]

    def html(self) -> str:
        """Returns the table in HTML, in the colours of the page that it will be in."""

        def line(tag: str, cells: Sequence[str]) -> str:
            styles = ["left;white-space:pre-wrap", *["right;white-space:nowrap"] * (len(cells) - 1)]
            return "".join(
                f'<{tag} style="text-align:{style}">{escape(cell)}</{tag}>'
                for cell, style in zip(cells, styles, strict=True)
            )

        body = "".join(f"<tr>{line('td', row)}</tr>" for row in self.rows)
        return (
            f'<table><caption style="text-align:left">{escape(self.title)}</caption>'
            f"<thead><tr>{line('th', self.heads)}</tr></thead><tbody>{body}</tbody></table>"
        )
