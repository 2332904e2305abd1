"""Draws the pictures of the documentation from its tables: `python benchmarks/draw.py`.

`docs/assets/bars.svg` compares filterjit with what it replaces, and `docs/assets/growth.svg` shows how
the cost of a call grows. Run it after a change of the tables; tests/test_pages.py compares the two.
"""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
ASSETS = ROOT / "docs" / "assets"
STYLE = """\
svg{color:#111}.paper{color:#fff}.theirs{color:#c8c8c8}.ours{color:#0f8f7f}.flat{color:#a35f00}
@media (prefers-color-scheme:dark){
svg{color:#e6e6e6}.paper{color:#1e2129}.theirs{color:#60656f}.ours{color:#2bb5a2}.flat{color:#e0a040}}
rect,text{fill:currentColor}path{fill:none;stroke:currentColor}"""


def _row(page: str, first: str, heading: str) -> dict[str, str]:
    """Returns the cells of the row that begins with `first`, by the headings of its table."""
    heads: list[str] = []
    for line in (ROOT / page).read_text("utf-8").splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if heading in cells:
            heads = cells
        elif cells[0] == first and heads:
            return dict(zip(heads, cells, strict=True))
    raise LookupError(f"{page} has no row {first!r} in a table with {heading!r}")


def _number(cell: str) -> float:
    return float(re.sub(r"[,x]| us", "", cell))


def _pairs() -> Iterator[tuple[str, float]]:
    """Gives what is replaced, and filterjit's share of its time."""
    call = _row("docs/benchmarks.md", "Adam step of a small MLP, end to end", "eqx.filter_jit")
    share = _number(call["filterjit"]) / _number(call["eqx.filter_jit"])
    yield "equinox.filter_jit, Adam step", share
    nnx = _row("docs/nnx.md", "Adam step, 64 Variables", "nnx.jit / ours")
    yield "nnx.jit, Adam step", 1 / _number(nnx["nnx.jit / ours"])
    for what, row in (
        ("jax.jit, TrainState", "Adam, `TrainState` of 170 arrays"),
        ("jax.jit, one array", "one array"),
        ("jax.jit, array and number", "an array and a Python number that changes"),
    ):
        plain = _row("docs/benchmarks.md", row, "jax.jit` / filterjit.jit")
        yield what, 1 / _number(plain["jax.jit` / filterjit.jit"])


def _svg(width: int, height: int, title: str, shapes: Sequence[str]) -> str:
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" font-family="system-ui, sans-serif" font-size="14">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" class="paper"/>',
    ]
    return "\n".join([*head, *shapes, "</svg>\n"])


def bars() -> str:
    shapes = []
    for i, (what, share) in enumerate(_pairs()):
        y = 14 + 52 * i
        shapes += [
            f'<text x="228" y="{y + 14}" text-anchor="end">{what}</text>',
            f'<rect x="240" y="{y}" width="400" height="18" class="theirs"/>',
            f'<text x="228" y="{y + 34}" text-anchor="end" font-weight="bold">filterjit</text>',
            f'<rect x="240" y="{y + 20}" width="{400 * share:.0f}" height="18" class="ours"/>',
            f'<text x="{246 + 400 * share:.0f}" y="{y + 34}">{100 * share:.0f}%</text>',
        ]
    return _svg(720, 276, "The time until a call returns", shapes)


def growth() -> str:
    cases = "identity of one array", *(f"dict of {n} arrays" for n in ("10", "100", "1,000"))
    rows = [_row("benchmarks/README.md", case, "filterjit, µs") for case in cases]

    def place(row: dict[str, str], column: str) -> tuple[float, float]:
        arrays, time = math.log10(_number(row["arrays"])), math.log10(_number(row[column]))
        return 80 + 180 * arrays, 300 - 95 * time

    shapes = []
    for power in range(4):
        x, y = 80 + 180 * power, 300 - 95 * power
        shapes += [
            f'<path d="M80 {y}H620M{x} 15V300" class="theirs"/>',
            f'<text x="70" y="{y + 5}" text-anchor="end">{10**power:,}</text>',
            f'<text x="{x}" y="320" text-anchor="middle">{10**power:,}</text>',
        ]
    for column, name, color in (
        ("equinox", "equinox.filter_jit", "ink"),
        ("flat", "flat jax.jit", "flat"),
        ("filterjit, µs", "filterjit", "ours"),
    ):
        points = [place(row, column) for row in rows]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        x, y = points[-1]
        shapes += [
            f'<path d="M{line}" class="{color}" stroke-width="2.5"/>',
            f'<text x="{x + 8:.0f}" y="{y + 5:.0f}">{name}</text>',
        ]
    shapes.append(
        '<text x="80" y="345">microseconds per call, by the number of arrays in a dict</text>'
    )
    return _svg(760, 355, "The cost of a call over the number of arrays", shapes)


PICTURES = {"bars.svg": bars, "growth.svg": growth}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (ASSETS / name).write_text(draw(), "utf-8")
