"""How the benchmarks lay out their tables."""

from collections.abc import Sequence


def lay_out(lines: Sequence[Sequence[str]], *, markdown: bool) -> str:
    """Cells, the first line of them the heads, as Markdown or lined up for a terminal."""
    rows = [list(line) for line in lines]
    if not markdown:
        for row in rows:
            row[0] = row[0].replace("`", "")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [
        [row[0].ljust(widths[0])] + [x.rjust(w) for x, w in zip(row[1:], widths[1:], strict=True)]
        for row in rows
    ]
    if not markdown:
        rule = ["-" * w for w in widths]
        return "\n".join("  ".join(row) for row in (padded[0], rule, *padded[1:]))
    rule = ["-" * w if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (padded[0], rule, *padded[1:]))
