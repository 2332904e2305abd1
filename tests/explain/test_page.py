"""The page of ``filterjit run --html``: its structure, its size, and the events that it shows."""

import html.parser
import random
import re
from typing import Any

import jax.numpy as jnp
import pytest
from explain_support import X

from filterjit import filter_jit, report
from filterjit._observe._page import page
from filterjit._observe._recorder import recorder
from filterjit._observe._records import Event
from filterjit._observe._report_output import STAGES, TIMES
from filterjit.types import Cause, Explanation, Report

VOID = {"meta", "link"}
KINDS = ("trace", "compile")


class Parser(html.parser.HTMLParser):
    """Checks that the tags are nested, and collects them with their texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.size = len(text.encode())
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((self.open[-1], data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for found, attrs in self.tags if found == tag]

    def text(self, *tags: str) -> str:
        return "".join(data for tag, data in self.texts if not tags or tag in tags)


def row(name: str, line: int = 1, **figures: Any) -> dict[str, Any]:
    stages = dict.fromkeys((*TIMES, *STAGES), 0.1)
    counts = {"functions": 1, "calls": 100, "hits": 90, "traces": 10, "cause": None}
    counts |= dict.fromkeys(("compiles", "direct", "from_disk", "loads"), 0)
    place = {"file": "/a/b.py", "line": line}
    return {"name": name, "variants": [], "remarks": [], **place, **stages, **counts, **figures}


def event(kind: str, begin: float, end: float, *of: Any, **place: Any) -> Event:
    """Returns an event of the function `f`; one of a retrace for a cause (path, was, now)."""
    reason = Explanation("`f`", False, (Cause("static", *of, ""),)) if of else None
    return Event(
        kind, place.get("name", "f"), place.get("place", ("/a/b.py", 1)), begin, end, reason
    )


def make(rows: list[dict[str, Any]], events: list[Event], **options: Any) -> Parser:
    given = {"begin": 0.0, "end": 100.0, "advice": "Advice.", "title": "program.py", **options}
    return Parser(page(Report(rows, False), events, **given))


def test_many_functions_and_events() -> None:
    chance = random.Random(0)
    events = []
    for i in range(10_000):
        n, at = chance.randrange(200), chance.uniform(0, 99)
        of = ("x", f"{i - 1}", f"{i}") if i % 4 == 0 else ()
        where = {"name": f"m.f{n}", "place": ("/a/b.py", n)}
        events.append(event(KINDS[i % 4 > 0], at, at + chance.expovariate(9), *of, **where))
    parser = make([row(f"m.f{n}", n) for n in range(200)], events)
    assert parser.size < 4_000_000
    assert len(parser.all("details")) == len(parser.all("svg")) == 200
    bars = parser.all("rect")
    assert 5_000 < len(bars) < 13_000
    for bar in bars:
        assert float(bar["x"] or -1) >= 0 and float(bar["width"] or 0) >= 1.5
        assert float(bar["x"] or 0) + float(bar["width"] or 0) <= 1000.1
    assert "2,500 retraces" in parser.text("p")
    assert len(parser.all("li")) == 200  # each has one cause
    assert len(parser.all("span")) == 5 + 2  # the ticks of the axis, and the legend


def test_events_of_one_function_that_are_close_are_one_bar() -> None:
    parser = make([row("f")], [event("compile", i / 100, i / 100 + 0.005) for i in range(10_000)])
    assert len(parser.all("rect")) <= 2
    assert "10,000 x compile, 50.00 s at 0.0 ms" in parser.text("title")


def test_it_loads_nothing_and_runs_nothing() -> None:
    parser = make([row("f")], [event("trace", 1.0, 2.0)])
    assert not {tag for tag, _ in parser.tags} & {"script", "img", "iframe", "object", "base"}
    assert all("src" not in attrs for _, attrs in parser.tags)
    assert [attrs["href"] for attrs in parser.all("link")] == ["data:,"]
    assert parser.text("style").replace("\n", "").isprintable()
    assert not re.search(r"url\(|@import|https?:", parser.text("style"))
    assert not [a for _, attrs in parser.tags for a in attrs if a.startswith("on")]


BAD = "</script></title></pre></svg><img src=x onerror='alert(1)'>\"&amp;\x00\x1b\ud800\u202e"


def test_all_text_is_escaped_and_shortened() -> None:
    variants = [{**row(BAD), "label": BAD}] * 2
    rows = [row(BAD, file=BAD, remarks=[BAD], variants=variants, cause=BAD)]
    where = {"name": BAD, "place": (BAD, 1)}
    events = [event("trace", 1.0, 2.0, BAD, BAD, BAD, **where), event("compile", 3.0, 4.0, **where)]
    parser = make(rows, events, title=BAD, advice=BAD)
    assert not parser.all("img") and not parser.all("script")
    assert "<img src=x onerror='alert(1)'>\"&amp;" in parser.text("h1")
    assert "<img" not in Report(rows, False)._repr_html_()
    assert not set(parser.text()) & set("\x00\x1b\ud800\u202e")
    assert parser.text().count("onerror") >= 8
    long = make([row("f", remarks=["x" * 10_000])], [])
    assert len(long.text("p")) < 1000


def test_retraces_are_told_once_a_cause_and_lists_end() -> None:
    events = [event("trace", i, i + 0.5, "lr", f"{i - 1}", f"{i}") for i in range(50)]
    events += [event("trace", 50 + i, 51 + i, f"x{i}", "a", "b") for i in range(39)]
    parser = make([row("f", cause="m.f was traced 50 times because of `lr`")], events)
    reasons = [text for tag, text in parser.texts if tag == "pre"]
    assert "`lr`: different static value: was 48, is 49" in reasons[0] and len(reasons) == 20
    assert "50 times, the last of them below, the first at 0.0 ms" in parser.text("li")
    assert "and 20 other reasons" in parser.text("li")
    assert "other reasons" not in make([row("f")], events[: 50 + 19]).text("li")
    assert "m.f was traced 50 times because of `lr`" in parser.text("p")


def test_it_begins_with_the_report() -> None:
    report = Report([row("m.f", remarks=["a remark"]), row("m.g")], False)
    text = page(report, [], begin=0, end=1, advice="Advice.", title="t")
    assert report._repr_html_() in text and text.index("a remark") < text.index("Advice.")
    assert "m.f" in Parser(text).text("td") and "<details" not in text


@pytest.mark.parametrize("seconds", [1e-9, 1e-3, 0.7, 59.0, 1e5])
def test_an_empty_page_and_its_axis(seconds: float) -> None:
    parser = make([], [], end=seconds)
    assert parser.size < 6_000
    places = [float((span["style"] or "")[5:-1]) for span in parser.all("span")[2:]]
    assert len(places) == 5 and places[0] == 0 and places == sorted(places)


def test_events_of_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    @filter_jit
    def f(x: Any, n: int) -> Any:
        for _ in range(400):
            x = jnp.sin(x) * n + jnp.cos(x)
        return x

    f(X, 1)
    monkeypatch.setattr(recorder, "log", None)
    recorder.log_events()
    for n in (2, 2, 2, 3):
        f(X, n)
    log = list(recorder.log or ())
    kinds = [event.kind for event in log]
    assert kinds == ["trace", "compile", "compile"] * 2  # the hits logged nothing
    for event in log:
        assert event.end >= event.begin and event.name.endswith(".f")
        assert event.place == (__file__, f.__wrapped__.__code__.co_firstlineno)
    assert [bool(event.reason is not None) for event in log] == [True, False, False] * 2

    begin, end = log[0].begin - 0.1, log[-1].end + 0.1
    text = page(report(), log, begin=begin, end=end, advice="", title="t")
    parser = Parser(text)
    assert "is the int 3" in parser.text("pre")
    assert "a Python loop, 400 copies" in parser.text("p")
    assert "trace, " in parser.text("title") and "is the int 3" in parser.text("title")
