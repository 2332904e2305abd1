"""Tables, as plain text and as HTML."""

import dataclasses
import html
import re
from collections.abc import Sequence

_LONGEST = 600  # characters of a text in HTML
# Characters that are invalid in HTML, or change the direction of text.
_BAD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def widths_of(rows: Sequence[Sequence[str]]) -> list[int]:
    """Returns the width of each column."""
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


def escape(text: str) -> str:
    """Escapes text for HTML, and cuts it off if it's long."""
    return html.escape(_BAD.sub("\ufffd", shorten(text, _LONGEST)))


@dataclasses.dataclass(frozen=True)
class Table:
    """A table. The first column is aligned to the left, all others to the right."""

    title: str
    heads: list[str]
    rows: list[list[str]]

    def lines(self, width: int | None = None) -> list[str]:
        """Returns lines of at most `width`. Drops the last columns and shortens the first if
        needed."""
        rows = [self.heads, *self.rows]
        if width is not None:
            while len(rows[0]) > 1 and sum(widths_of(rows)[1:]) + 2 * len(rows[0]) + 16 > width:
                rows = [row[:-1] for row in rows]
            most = max(8, width - sum(widths_of(rows)[1:]) - 2 * (len(rows[0]) - 1))
            rows = [[shorten(first, most), *others] for first, *others in rows]
        return ["  ".join(row).rstrip() for row in align(rows)]

    def html(self) -> str:
        """Returns the table in HTML, in the colours of the surrounding page."""

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
