"""Pictures that are legible on a white and on a dark page.

A picture is drawn on white, with the colours of `SERIES` for lines. In an SVG, each colour becomes a
name, and the picture defines its names twice: for light and for dark. A browser takes those of the
`color-scheme` that the page has where the picture is, which the site's switch sets too; otherwise
those of the reader's system. The background belongs to the picture, so it is legible in any case.
"""

import io
import re
from pathlib import Path
from typing import Any

from filterjit._base._files import replacing

# On white, and on the dark background of the site.
COLOURS = {
    "paper": ("#ffffff", "#1e2129"),
    "ink": ("#000000", "#e6e6e6"),
    "grid": ("#dddddd", "#3b404b"),
    "blue": ("#1f77b4", "#58a6ff"),
    "orange": ("#c65102", "#ff9f45"),
    "green": ("#218739", "#56d364"),
    "red": ("#d62728", "#ff7b72"),
    "purple": ("#7d4fb0", "#c297ff"),
    "brown": ("#8c564b", "#d0a18f"),
    "pink": ("#c2409b", "#ff9bce"),
    "grey": ("#6b6b6b", "#b1bac4"),
}
SERIES = [light for light, _ in list(COLOURS.values())[3:]]
_NAMES = {light: name for name, (light, _) in COLOURS.items()}


def save(figure: Any, path: Path) -> None:
    """Saves a figure of Matplotlib. An existing file is replaced only when the new one is complete."""
    with replacing(path) as file:
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
        file.write(adapt(drawn.getvalue()).encode())


def adapt(svg: str) -> str:
    """Returns a picture of Matplotlib with names in the place of its colours.

    Raises:
        KeyError: it has a colour that is not in COLOURS.
    """
    named = re.sub(
        r"(fill|stroke): (#[0-9a-f]{6})\b",
        lambda found: f"{found[1]}: var(--{_NAMES[found[2]]}, {found[2]})",
        svg,
    )
    return named.replace("<defs>", f"<defs>\n  <style>{style()}</style>", 1)


def style() -> str:
    """Returns the names of a picture's colours, in CSS. What has no colour, such as text, is ink."""
    light, dark = (
        "".join(f"--{name}:{pair[i]};" for name, pair in COLOURS.items()) for i in range(2)
    )
    return f"svg{{{light}fill:var(--ink)}}@media (prefers-color-scheme:dark){{svg{{{dark}}}}}"
