"""The picture of a report: a bar for each function, with Matplotlib."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._wording import TIMES, count, shorten_name, show_seconds, total

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 12  # bars; the other functions share one more
# The palette of Okabe and Ito, which colour-blind people can distinguish.
_COLOURS = ("#999999", "#56B4E9", "#E69F00", "#0072B2", "#009E73")


def draw(functions: Sequence[dict[str, Any]]) -> "Figure":
    """Returns the figure of the rows of functions, most expensive first.

    The legend stands below the axis, so no bar can be under it, and each bar has its sum beside it.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, MaxNLocator
    except ModuleNotFoundError as e:
        e.add_note("(`report().plot` draws with Matplotlib: `pip install matplotlib`)")
        raise

    rows = [(f"{i}: {shorten_name(f['name'])}", f) for i, f in enumerate(functions[:_MOST], 1)]
    rest = functions[_MOST:]
    if rest:
        sums = {name: sum(f[name] or 0.0 for f in rest) for name in TIMES}
        rows.append((count(len(rest), "other function"), sums))
    figure = Figure(figsize=(9, 1.7 + 0.4 * max(1, len(rows))), layout="constrained")
    axes = figure.subplots()
    axes.set_title("Where the time of jitted functions went", loc="left", weight="bold")
    if not rows:
        axes.set_axis_off()
        axes.text(0, 0.5, "No jitted function was called.", transform=axes.transAxes)
        return figure
    longest = max(total(row) for _, row in rows)
    unit, scale = ("seconds", 1.0) if longest >= 1 else ("milliseconds", 1e3)
    left = [0.0] * len(rows)
    for name, colour in zip(TIMES, _COLOURS, strict=True):
        values = [scale * (row[name] or 0.0) for _, row in rows]
        if any(values):
            label = name.replace("_", " ")
            axes.barh(range(len(rows)), values, 0.7, left, color=colour, label=label)
        left = [x + y for x, y in zip(left, values, strict=True)]
    for i, (_, row) in enumerate(rows):
        axes.annotate(
            show_seconds(total(row)), (left[i], i), (4, 0), textcoords="offset points", va="center"
        )
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], parse_math=False)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.05 * scale * longest or 1)
    axes.xaxis.set_major_locator(MaxNLocator(6 if scale * longest < 1e6 else 3))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.13g}"))
    axes.set_xlabel(unit)
    axes.spines[["top", "right"]].set_visible(False)
    if any(left):
        figure.legend(frameon=False, loc="outside lower left", ncols=len(TIMES))
    return figure
