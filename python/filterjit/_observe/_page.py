"""The page of ``filterjit run --html``: a self-contained HTML file.

Below the report, it has a timeline of the traces and compilations of each function, the most
expensive first, from the import of JAX on. Hits aren't logged. Events closer than a pixel are drawn
as one. Each timeline unfolds into the reasons for retraces. The page has no script, and escapes all
text from the program.
"""

import collections
from collections.abc import Iterator, Sequence
from typing import Any

from .._terminal._text import escape
from ._records import Event
from ._report_output import Report
from ._wording import count, file_and_line, show_seconds

_WIDTH = 1000  # of a timeline, in SVG units
_NARROWEST = 1.5
_MOST_REASONS = 20  # per function
_KINDS = {"trace": "t", "compile": "c"}
_TICKS = 5

_Key = tuple[str, tuple[str, int] | None]
"""(name, place) of a function."""


def page(
    report: Report,
    events: Sequence[Event],
    *,
    begin: float,
    end: float,
    advice: str,
    title: str,
) -> str:
    """Returns the page. `begin` and `end` are the program's, by the events' clock."""
    seconds = max(end - begin, 1e-9)
    rows: dict[_Key, list[Event]] = {}
    for f in report.as_dict()["functions"]:
        rows[f["name"], None if f["file"] is None else (f["file"], f["line"])] = []
    for event in sorted(events, key=lambda event: event.begin):
        rows.setdefault((event.name, event.place), []).append(event)
    retraces = count(sum(map(_is_retrace, events)), "retrace")
    legend = "".join(f'<span class="k {c}"></span>{kind} ' for kind, c in _KINDS.items())
    timelines = "".join(_row(row, found, begin, seconds) for row, found in rows.items() if found)
    ticks = "".join(
        f'<span style="left:{100 * i // _TICKS}%">{show_seconds(seconds * i / _TICKS)}</span>'
        for i in range(_TICKS)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)} - filterjit</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{report._repr_html_()}\n<p>{escape(advice)}</p>\n"
        f'<p>{show_seconds(seconds)}, {retraces}.</p>\n<p class="legend">{legend}</p>\n'
        f'<div class="axis"><div class="name">function</div><div class="ticks">{ticks}</div></div>\n'
        f"{timelines}</body>\n</html>\n"
    )


def _is_retrace(event: Event) -> bool:
    return event.reason is not None


def _row(of: _Key, events: list[Event], begin: float, seconds: float) -> str:
    """Returns a function's timeline with its details."""
    name, place = of
    traces = sum(event.kind == "trace" for event in events)
    marks = [count(traces, "trace"), show_seconds(sum(e.end - e.begin for e in events))]
    if retraces := sum(map(_is_retrace, events)):
        marks.append(f"<b>{count(retraces, 'retrace')}</b>")
    bars = [
        bar
        for kind in _KINDS
        for bar in _bars(kind, [event for event in events if event.kind == kind], begin, seconds)
    ]
    where = "" if place is None else f"<p><code>{escape(file_and_line(*place))}</code></p>"
    return (
        f'<details class="function"><summary><div class="name">{escape(name)}'
        f"<small>{' · '.join(marks)}</small></div>"
        f'<svg viewBox="0 0 {_WIDTH} 20" preserveAspectRatio="none" role="img" '
        f'aria-label="{len(events)} events">{"".join(bars)}</svg></summary>\n'
        f'<div class="body">{where}{_reasons(events, begin)}</div>\n</details>\n'
    )


def _reasons(events: Sequence[Event], begin: float) -> str:
    """Lists the reasons for retraces: the same causes once, with the last text in full."""
    reasons: dict[Any, list[Event]] = collections.defaultdict(list)
    for event in events:
        if event.reason is not None:
            reasons[event.reason.kinds].append(event)
    shown = []
    for alike in list(reasons.values())[:_MOST_REASONS]:
        at = show_seconds(max(0.0, alike[0].begin - begin))
        spent = show_seconds(sum(event.end - event.begin for event in alike))
        many = f"{len(alike):,} times, the last of them below, the first " if alike[1:] else ""
        text = escape(str(alike[-1].reason))
        shown.append(f"<li>{many}at {at}, {spent} of tracing<pre>{text}</pre></li>")
    if len(reasons) > _MOST_REASONS:
        shown.append(f"<li>and {len(reasons) - _MOST_REASONS:,} other reasons</li>")
    return f'<h2>Retraces</h2><ul class="retraces">{"".join(shown)}</ul>' if shown else ""


def _bars(kind: str, events: Sequence[Event], begin: float, seconds: float) -> Iterator[str]:
    """Draws events of one kind. Events that would touch become one bar."""
    scale = _WIDTH / seconds
    groups: list[list[Event]] = []
    right = 0.0
    for event in events:
        x = (event.begin - begin) * scale
        if groups and x <= right:
            groups[-1].append(event)
        else:
            groups.append([event])
        right = max(right, x + _NARROWEST, (event.end - begin) * scale)
    for group in groups:
        first, last = group[0].begin - begin, max(event.end for event in group) - begin
        spent = show_seconds(sum(event.end - event.begin for event in group))
        what = f"{len(group):,} x {kind}" if group[1:] else kind
        why = f"\n{group[0].reason}" if _is_retrace(group[0]) and not group[1:] else ""
        text = f"{what}, {spent} at {show_seconds(max(0.0, first))}{why}"
        x = min(max(first * scale, 0.0), _WIDTH - _NARROWEST)
        width = max(min((last - first) * scale, _WIDTH - x), _NARROWEST)
        yield (
            f'<rect class="{_KINDS[kind]}" x="{x:.1f}" width="{width:.1f}">'
            f"<title>{escape(text)}</title></rect>"
        )


_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#667;--line:#dde;--lane:#f3f4f8;
--t:#d55e00;--c:#0072b2}
@media(prefers-color-scheme:dark){:root{--bg:#14161a;--fg:#e6e8ec;--dim:#99a;--line:#333842;
--lane:#1d2026;--t:#ff8a3c;--c:#56b4e9}}
body{margin:1rem;background:var(--bg);color:var(--fg);font:14px/1.4 system-ui,sans-serif}
h1{font-size:1.3rem;overflow-wrap:anywhere}h2{font-size:1rem;margin:.8rem 0 .2rem}
.legend .k{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 .9em}
.t{fill:var(--t);background:var(--t)}.c{fill:var(--c);background:var(--c)}
summary,.axis{display:grid;grid-template-columns:minmax(8rem,18rem) 1fr;gap:.6rem;
align-items:center;border-bottom:1px solid var(--line);padding:2px 0}
summary{cursor:pointer}summary:hover{background:var(--lane)}
.axis{position:sticky;top:0;background:var(--bg);color:var(--dim)}
.ticks{position:relative;height:1.3em;overflow:hidden}
.ticks span{position:absolute;border-left:1px solid var(--line);padding-left:3px;font-size:12px}
summary .name::before{content:"\\25b8\\a0"}[open]>summary .name::before{content:"\\25be\\a0"}
.name{overflow-wrap:anywhere}.name small{display:block;color:var(--dim)}
.name b{color:var(--t)}
svg{width:100%;height:20px;background:var(--lane)}rect{y:2px;height:16px}
.body{margin:.3rem 0 1rem 1.2rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.2rem 0;
padding:.4rem;background:var(--lane)}table{border-collapse:collapse;display:block;overflow-x:auto}
td,th{vertical-align:top;padding:2px 10px 2px 0;font-variant-numeric:tabular-nums}
@media(max-width:600px){summary,.axis{grid-template-columns:1fr}
.axis .name,.ticks span:nth-child(even){display:none}}
"""
