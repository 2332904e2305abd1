"""The page of ``filterjit run --html``: one file of HTML with its styles, which loads nothing.

It has a row for each function, most expensive first, with a timeline of what was traced and
compiled. Events that are closer than a pixel are drawn as one. A row unfolds into the reasons of
the retraces, the loops that were unrolled, and the variants. There is no script in the page, and
all text that comes from the program is escaped.
"""

import collections
import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ._events import Event
from ._wording import count, file_and_line, show_bytes, show_seconds, total

_WIDTH = 1000  # of a timeline, in its own units
_NARROWEST = 1.5
_MOST_REASONS = 20  # of one function
_MOST_VARIANTS = 20
_LONGEST = 600  # characters of a text of the program
_KINDS = {"trace": "t", "lowering": "l", "compile": "c", "first run": "f"}
_ORDER = {kind: i for i, kind in enumerate(_KINDS)}
# Characters that HTML does not allow, or that would change the direction of the text.
_BAD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")

# From how many seconds on the axis has a unit, its name, and how many a second has.
_UNITS = ((1e5, "h", 1 / 3600), (1.0, "s", 1.0), (1e-3, "ms", 1e3), (0.0, "us", 1e6))

_Key = tuple[str, str | None, int | None]


def page(
    report: dict[str, Any],
    events: Sequence[Event],
    *,
    begin: float,
    end: float,
    advice: str,
    title: str,
    dropped: int = 0,
) -> str:
    """Returns the page.

    Arguments:
        report: of `Report.as_dict`.
        events: in any order.
        begin, end: of the program, by the clock of the events.
        advice: a sentence that stands at the top.
        title: names the program.
        dropped: how many events are missing at the end.
    """
    seconds = max(end - begin, 1e-9)
    by_function: dict[_Key, list[Event]] = collections.defaultdict(list)
    for event in events:
        by_function[event.name, *(event.place or (None, None))].append(event)
    rows: list[str] = []
    of_libraries: list[str] = []
    for f in report["functions"]:
        of_function = sorted(by_function[_key(f)], key=lambda e: e.begin)
        row = _row(f, of_function, begin, seconds)
        (of_libraries if f.get("internal") else rows).append(row)
    if of_libraries:
        summary = f"{count(len(of_libraries), 'function')} that libraries jitted for their own use"
        rows += [f"<details><summary>{summary}</summary>\n", *of_libraries, "</details>\n"]
    retraces = sum(1 for event in events if event.reason)
    loops = sum(1 for f in report["functions"] for v in f["variants"] if v["loop"] is not None)
    facts = [
        count(len(report["functions"]), "jitted function"),
        count(sum(f["calls"] for f in report["functions"]), "call"),
        count(sum(f["traces"] for f in report["functions"]), "trace")
        + f", {count(retraces, 'retrace')} among them",
        count(loops, "unrolled loop"),
        show_seconds(seconds),
    ]
    if handed := sum(sum(f.get("handed_over", {}).values()) for f in report["functions"]):
        facts.insert(2, f"{count(handed, 'call')} handed over")
    if dropped:
        facts.append(f"{dropped:,} later events are not shown")
    legend = "".join(f'<span class="k {c}"></span>{kind} ' for kind, c in _KINDS.items())
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        '<link rel="icon" href="data:,">\n'
        f"<title>{_escape(title)} - filterjit</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{_escape(title)}</h1>\n<p>{_escape(advice)}</p>\n<p>{'; '.join(facts)}.</p>\n"
        f'<p class="legend">{legend}<span class="k w"></span>calls between them</p>\n'
        f'<div class="axis"><div class="name">function</div>{_axis(seconds)}</div>\n'
        f"{''.join(rows)}</body>\n</html>\n"
    )


def _key(f: dict[str, Any]) -> _Key:
    return f["name"], f["file"], f["line"]


def _row(f: dict[str, Any], events: Sequence[Event], begin: float, seconds: float) -> str:
    retraces = sum(1 for event in events if event.reason)
    marks = [count(f["calls"], "call"), count(f["traces"], "trace"), show_seconds(total(f))]
    if handed := sum(f.get("handed_over", {}).values()):
        marks = [f"<b>{count(handed, 'call')} handed over</b>", *(marks if f["calls"] else [])]
    if retraces:
        marks.append(f"<b>{count(retraces, 'retrace')}</b>")
    if any(v["loop"] is not None for v in f["variants"]):
        marks.append("<b>unrolled loop</b>")
    return (
        f'<details class="function"><summary><div class="name">{_escape(f["name"])}'
        f"<small>{' · '.join(marks)}</small></div>"
        f"{_timeline(f, events, begin, seconds)}</summary>\n"
        f"{_details(f, events, begin)}</details>\n"
    )


# ---- the timeline ----


def _timeline(f: dict[str, Any], events: Sequence[Event], begin: float, seconds: float) -> str:
    bars: list[str] = []
    if events:
        bars += _calls(f, events, begin, seconds)
    for kind in sorted({event.kind for event in events}, key=lambda kind: _ORDER.get(kind, 9)):
        bars += _bars(kind, [event for event in events if event.kind == kind], begin, seconds)
    return (
        f'<svg viewBox="0 0 {_WIDTH} 20" preserveAspectRatio="none" role="img" '
        f'aria-label="{len(events)} events">{"".join(bars)}</svg>'
    )


def _bars(kind: str, events: Sequence[Event], begin: float, seconds: float) -> Iterable[str]:
    """Draws events of one kind; those that would touch become one bar."""
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
        spent = sum(event.end - event.begin for event in group)
        text = f"{show_seconds(spent)} at {show_seconds(max(0.0, first))}"
        if len(group) > 1:
            text = f"{len(group):,} x {kind}, {text}"
        elif group[0].reason:
            text = f"{kind}, {text}\n{group[0].reason}"
        else:
            text = f"{kind}, {text}"
        yield _bar(_KINDS.get(kind, "f"), first * scale, (last - first) * scale, text)


def _calls(
    f: dict[str, Any], events: Sequence[Event], begin: float, seconds: float
) -> Iterable[str]:
    """Draws the calls between events, of which only the number is known."""
    scale = _WIDTH / seconds
    if f["functions"] > 1:  # each event has the counter of another function
        at = (events[0].begin - begin) * scale
        yield _bar("w", at, _WIDTH - at, f"{f['calls']:,} calls, {f['hits']:,} of them hits")
        return
    traces = [event for event in events if event.kind == "trace"]
    left, before = (events[0].end - begin) * scale, traces[0].calls if traces else 0
    for event in traces[1:]:
        right = (event.begin - begin) * scale
        if right - left >= 2 * _NARROWEST and event.calls - before > 1:
            yield _bar("w", left, right - left, count(event.calls - before - 1, "call"))
            left, before = (event.end - begin) * scale, event.calls
    if f["calls"] > before:
        yield _bar("w", left, _WIDTH - left, count(f["calls"] - before, "call"))


def _bar(kind: str, x: float, width: float, text: str) -> str:
    x = min(max(x, 0.0), _WIDTH - _NARROWEST)
    width = max(min(width, _WIDTH - x), _NARROWEST)
    return f'<rect class="{kind}" x="{x:.1f}" width="{width:.1f}"><title>{_escape(text)}</title></rect>'


def _axis(seconds: float) -> str:
    """Returns up to ten moments of the run, at round times of one unit; fewer if they are long."""
    unit, scale = next((name, scale) for least, name, scale in _UNITS if seconds >= least)
    whole = seconds * scale
    step = 10.0**-4
    most, last = (10, 0.95) if whole < 1e5 else (4, 0.8)
    while whole / step > most:
        step *= 2.5 if f"{step:e}"[0] == "2" else 2
    ticks = [i * step for i in range(int(whole / step) + 1)]
    places = "".join(
        f'<span style="left:{100 * tick / whole:.2f}%">{tick:,.12g} {unit}</span>'
        for tick in ticks
        if tick <= last * whole
    )
    return f'<div class="ticks">{places}</div>'


# ---- what a row unfolds into ----


def _details(f: dict[str, Any], events: Sequence[Event], begin: float) -> str:
    parts = []
    if f["file"] is not None:
        parts.append(f"<p><code>{_escape(file_and_line(f['file'], f['line']))}</code></p>")
    parts.append(_figures(f))
    reasons: dict[Any, list[Event]] = {}
    for event in events:
        if event.reason:
            reasons.setdefault(event.causes or event.reason, []).append(event)
    if f.get("cause"):
        parts.append(f"<p>{_escape(f['cause'])}</p>")
    if reasons:
        shown = [
            f"<li>{_times(alike, begin)}<pre>{_escape(alike[-1].reason)}</pre></li>"
            for alike in list(reasons.values())[:_MOST_REASONS]
        ]
        if len(reasons) > _MOST_REASONS:
            shown.append(f"<li>and {len(reasons) - _MOST_REASONS:,} other reasons</li>")
        parts.append(f'<h2>Retraces</h2><ul class="retraces">{"".join(shown)}</ul>')
    if f["remarks"]:
        shown = [f"<li>{_escape(text)}</li>" for text in f["remarks"]]
        parts.append(f"<h2>Remarks</h2><ul>{''.join(shown)}</ul>")
    if f["variants"]:
        parts.append(_variants(f["variants"]))
    return f'<div class="body">{"".join(parts)}</div>\n'


def _figures(f: dict[str, Any]) -> str:
    names = ("dispatch", "tracing", "lowering", "compiling", "first_run")
    figures = [
        f"{name.replace('_', ' ')} {show_seconds(f[name])}" for name in names if f[name] is not None
    ]
    figures.insert(0, f"{count(f['calls'], 'call')}, {count(f['hits'], 'hit')}")
    if f["bytes"]:
        figures.append(f"programs of {show_bytes(f['bytes'])}")
    return f"<p>{'; '.join(figures)}</p>"


def _times(events: Sequence[Event], begin: float) -> str:
    at = show_seconds(max(0.0, events[0].begin - begin))
    spent = show_seconds(sum(event.end - event.begin for event in events))
    many = "" if len(events) == 1 else f"{len(events):,} times, the last of them below, the first "
    return f"{many}at {at}, {spent} of tracing"


def _variants(variants: Sequence[dict[str, Any]]) -> str:
    rows = [
        f"<tr><td>{v['hits']:,}</td><td>{v['traces']:,}</td><td>{show_seconds(total(v))}</td>"
        f"<td>{_escape(v['label'] if len(variants) > 1 else v['arguments'])}</td></tr>"
        for v in variants[:_MOST_VARIANTS]
    ]
    if len(variants) > _MOST_VARIANTS:
        rows.append(f'<tr><td colspan="4">and {len(variants) - _MOST_VARIANTS:,} others</td></tr>')
    head = "<tr><th>hits</th><th>traces</th><th>time</th><th>arguments</th></tr>"
    return f"<h2>Variants</h2><table>{head}{''.join(rows)}</table>"


def _escape(text: str) -> str:
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 3] + "..."
    return html.escape(_BAD.sub("\ufffd", text))


_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#667;--line:#dde;--lane:#f3f4f8;
--w:#c9ced6;--t:#d55e00;--l:#e69f00;--c:#0072b2;--f:#009e73}
@media(prefers-color-scheme:dark){:root{--bg:#14161a;--fg:#e6e8ec;--dim:#99a;--line:#333842;
--lane:#1d2026;--w:#474d59;--t:#ff8a3c;--l:#f0b93a;--c:#56b4e9;--f:#2fc79b}}
body{margin:1rem;background:var(--bg);color:var(--fg);font:14px/1.4 system-ui,sans-serif}
h1{font-size:1.3rem;overflow-wrap:anywhere}h2{font-size:1rem;margin:.8rem 0 .2rem}
.legend .k{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 .9em}
.t{fill:var(--t);background:var(--t)}.l{fill:var(--l);background:var(--l)}
.c{fill:var(--c);background:var(--c)}.f{fill:var(--f);background:var(--f)}
.w{fill:var(--w);background:var(--w)}
summary,.axis{display:grid;grid-template-columns:minmax(8rem,18rem) 1fr;gap:.6rem;
align-items:center;border-bottom:1px solid var(--line);padding:2px 0}
summary{cursor:pointer}summary:hover{background:var(--lane)}
.axis{position:sticky;top:0;background:var(--bg);color:var(--dim)}
.ticks{position:relative;height:1.3em;overflow:hidden}
.ticks span{position:absolute;border-left:1px solid var(--line);padding-left:3px;font-size:12px}
summary .name::before{content:"\\25b8\\a0"}[open]>summary .name::before{content:"\\25be\\a0"}
.name{overflow-wrap:anywhere}.name small{display:block;color:var(--dim)}
.name b{color:var(--t)}
svg{width:100%;height:20px;background:var(--lane)}rect{y:2px;height:16px}rect.w{y:8px;height:4px}
.body{margin:.3rem 0 1rem 1.2rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.2rem 0;
padding:.4rem;background:var(--lane)}table{border-collapse:collapse;display:block;overflow-x:auto}
td,th{text-align:left;vertical-align:top;padding:2px 10px 2px 0;font-variant-numeric:tabular-nums}
td:last-child{font-family:monospace;overflow-wrap:anywhere}
@media(max-width:600px){summary,.axis{grid-template-columns:1fr}
.axis .name,.ticks span:nth-child(even){display:none}}
"""
