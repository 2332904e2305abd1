"""The pictures of the documentation are legible on a white and on a dark page (benchmarks/pictures.py)."""

import re
from pathlib import Path

import pytest

pictures = pytest.importorskip("pictures")

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "docs").rglob("*.svg"))
AREAS = ("c", "jax", "python")  # colours that text stands on
FAINT = ("grid",)


def luminance(colour: str) -> float:
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a: str, b: str) -> float:
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def palettes(svg: str) -> list[dict[str, str]]:
    """Returns the colours by name: those of a light page and those of a dark one."""
    light, dark = svg.split("@media (prefers-color-scheme:dark)", 1)
    return [dict(re.findall(r"--([\w-]+):(#[0-9a-f]{6})", text)) for text in (light, dark)]


def check(svg: str) -> None:
    used = set(re.findall(r"\b(?:fill|stroke)[:=]\s*\"?([^;\"}]+)", svg))
    names = {re.sub(r"var\(--([\w-]+).*\)", r"\1", text) for text in used} - {"none"}
    light, dark = palettes(svg)
    assert names <= light.keys() == dark.keys(), "a colour has no name"
    assert luminance(light["paper"]) > 0.9 and luminance(dark["paper"]) < 0.05
    for colours in (light, dark):
        for name in names - {"paper", *FAINT, *AREAS}:
            least = 7 if name == "ink" else 3
            assert contrast(colours[name], colours["paper"]) >= least, name
        for name in names & {*AREAS}:
            assert contrast(colours[name], colours["ink"]) >= 7, name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_picture_is_legible(path: Path) -> None:
    check(path.read_text())
