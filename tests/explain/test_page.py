"""The page of ``filterjit run --html``: its structure, its size, and the events that it shows."""

import html.parser
import random
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from explain_support import X

from filterjit import filter_jit, report
from filterjit._observe import _events
from filterjit._observe._events import Event, EventLog
from filterjit._observe._page import page
from filterjit._observe._recorder import recorder

VOID = {"meta", "link"}
KINDS = ("trace", "lowering", "compile", "first run")


class Parser(html.parser.HTMLParser):
    """Checks that the tags are nested, and collects them with their texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
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
    stages = dict.fromkeys(("dispatch", "tracing", "lowering", "compiling", "first_run"), 0.1)
    counts = {"functions": 1, "calls": 100, "hits": 90, "traces": 10, "bytes": 100}
    place = {"file": "/a/b.py", "line": line}
    return {"name": name, "variants": [], "remarks": [], **place, **stages, **counts, **figures}


def make(rows: list[dict[str, Any]], events: list[Event], **options: Any) -> Parser:
    given = {"begin": 0.0, "end": 100.0, "advice": "Advice.", "title": "program.py", **options}
    return Parser(page({"functions": rows}, events, **given))


def test_many_functions_and_events() -> None:
    chance = random.Random(0)
    events = []
    for i in range(10_000):
        n, at = chance.randrange(200), chance.uniform(0, 99)
        reason = f"`f{n}`: compiles again because\n  `x`: was {i}" if i % 4 == 0 else ""
        place = ("/a/b.py", n)
        events.append(
            Event(KINDS[i % 4], f"m.f{n}", place, at, at + chance.expovariate(9), i, reason)
        )
    text = page(
        {"functions": [row(f"m.f{n}", n) for n in range(200)]},
        events,
        begin=0.0,
        end=100.0,
        advice="",
        title="program.py",
    )
    assert len(text.encode()) < 4_000_000
    parser = Parser(text)
    assert len(parser.all("details")) == len(parser.all("svg")) == 200
    bars = parser.all("rect")
    assert 5_000 < len(bars) < 13_000
    for bar in bars:
        assert float(bar["x"] or -1) >= 0 and float(bar["width"] or 0) >= 1.5
        assert float(bar["x"] or 0) + float(bar["width"] or 0) <= 1000.1
    assert "200 jitted functions" in parser.text("p")
    assert "2,500 retraces among them" in parser.text("p")
    assert len(parser.all("li")) <= 200 * 21
    assert 4 <= len(parser.all("span")) - 5 <= 11  # the ticks of the axis; the rest is the legend


def test_events_of_one_function_that_are_close_are_one_bar() -> None:
    events = [
        Event("compile", "f", ("/a/b.py", 1), i * 0.01, i * 0.01 + 0.005) for i in range(10_000)
    ]
    parser = make([row("f")], events)
    assert len(parser.all("rect")) <= 2
    assert "10,000 x compile, 50.00 s at 0.0 ms" in parser.text("title")


def test_it_loads_nothing_and_runs_nothing() -> None:
    parser = make([row("f")], [Event("trace", "f", ("/a/b.py", 1), 1.0, 2.0)])
    assert not {tag for tag, _ in parser.tags} & {"script", "img", "iframe", "object", "base"}
    assert all("src" not in attrs for _, attrs in parser.tags)
    assert [attrs["href"] for attrs in parser.all("link")] == ["data:,"]
    assert parser.text("style").replace("\n", "").isprintable()
    assert not re.search(r"url\(|@import|https?:", parser.text("style"))
    assert not [a for _, attrs in parser.tags for a in attrs if a.startswith("on")]


BAD = "</script></title></pre></svg><img src=x onerror='alert(1)'>\"&amp;\x00\x1b\ud800\u202e"


def test_all_text_is_escaped() -> None:
    loop = {"file": BAD, "line": 3, "copies": 8, "size": 2, "total": 20}
    variant = {
        **row(BAD),
        "arguments": BAD,
        "loop": loop,
    }
    rows = [row(BAD, file=BAD, remarks=[BAD], variants=[variant])]
    events = [Event("trace", BAD, (BAD, 1), 1.0, 2.0, 5, BAD), Event(BAD, BAD, (BAD, 1), 3.0, 4.0)]
    parser = make(rows, events, title=BAD, advice=BAD)
    assert not parser.all("img") and not parser.all("script")
    assert "<img src=x onerror='alert(1)'>\"&amp;" in parser.text("h1")
    assert not set(parser.text()) & set("\x00\x1b\ud800\u202e")
    assert parser.text().count("onerror") >= 8


def test_long_texts_are_shortened_and_lists_end() -> None:
    variant = {**row("f"), "label": "x" * 10_000, "loop": None}
    place = ("/a/b.py", 1)
    events = [Event("trace", "f", place, i, i + 0.5, i, f"reason {i}") for i in range(90)]
    parser = make([row("f", variants=[variant] * 90)], events, dropped=1234)
    assert "and 70 other reasons" in parser.text("li") and "and 70 others" in parser.text("td")
    assert "1,234 later events are not shown" in parser.text("p")
    assert max(map(len, parser.text("td").split("x..."))) < 700


def test_calls_between_traces() -> None:
    place = ("/a/b.py", 1)
    events = [Event("trace", "f", place, 10 * i, 10 * i + 1, 40 * i) for i in range(3)]
    text = make([row("f", calls=100)], events).text("title")
    assert "39 calls" in text and "20 calls" in text
    text = make([row("f", functions=3)], events).text("title")
    assert "100 calls, 90 of them hits" in text and "39" not in text


@pytest.mark.parametrize("seconds", [1e-9, 1e-3, 0.7, 59.0, 1e5])
def test_axis(seconds: float) -> None:
    spans = make([], [], end=seconds).all("span")[5:]
    places = [float((span["style"] or "")[5:-1]) for span in spans]
    assert 1 <= len(places) <= 11 and places[0] == 0 and places == sorted(places)


@pytest.mark.parametrize(
    ("seconds", "unit"),
    [(1e-4, "us"), (0.05, "ms"), (0.7, "ms"), (8.0, "s"), (5e3, "s"), (1e6, "h"), (6e11, "h")],
)
def test_the_axis_has_one_unit(seconds: float, unit: str) -> None:
    parser = make([], [], end=seconds)
    ticks = [text for tag, text in parser.texts if tag == "span" and text.strip()]
    assert len(ticks) >= 3 and ticks[0] == f"0 {unit}"
    assert all(re.fullmatch(rf"[\d,.]+ {unit}", tick) for tick in ticks), ticks
    widest = max(map(len, ticks))
    assert widest * len(ticks) <= 75  # characters of 6 pixels beside each other, at 900 pixels


def test_calls_that_were_handed_over_are_not_silent() -> None:
    reasons = {"out_shardings is given": 70, "other": 2}
    silent = row("m.f", calls=0, traces=0, handed_over=reasons, decorator="nnx.jit")
    parser = make([silent, row("m.g", handed_over={"a reason": 3}, decorator="jit")], [])
    assert "72 calls handed over" in parser.text("b")
    assert "3 calls handed over" in parser.text("b")
    marks = parser.text("small")
    assert not re.search(r"\b0 calls", marks) and "100 calls" in marks
    assert "75 calls handed over" in parser.text("p")


def test_retraces_of_one_cause_are_told_once() -> None:
    place = ("/a/b.py", 1)
    events = [
        Event("trace", "f", place, i, i + 0.5, i, f"`lr` is {i}", (("static", "lr"),))
        for i in range(50)
    ]
    events.append(Event("trace", "f", place, 60, 61, 60, "`x` is long", (("shape", "x"),)))
    parser = make([row("f", cause="m.f was traced 50 times because of `lr`")], events)
    reasons = [text for tag, text in parser.texts if tag == "pre"]
    assert reasons == ["`lr` is 49", "`x` is long"]
    assert "50 times, the last of them below, the first at" in parser.text("li")
    assert "m.f was traced 50 times because of `lr`" in parser.text("p")


def test_events_of_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog()

    @filter_jit
    def f(x: Any, n: int) -> Any:
        for _ in range(400):
            x = jnp.sin(x) * n + jnp.cos(x)
        return x

    f(X, 1)
    assert log.events == []
    monkeypatch.setattr(recorder, "log", log)
    for n in (2, 2, 2, 3):
        f(X, n)
    kinds = [event.kind for event in log.events]
    assert kinds == ["trace", "lowering", "compile"] * 2  # the hits logged nothing
    assert [event.calls for event in log.events[::3]] == [2, 5]
    for event in log.events:
        assert event.end >= event.begin and event.name.endswith(".f")
        assert event.place == (__file__, f.__wrapped__.__code__.co_firstlineno)
    assert "is the int 3" in log.events[3].reason
    assert [bool(event.reason) for event in log.events] == [True, False, False] * 2

    begin, end = log.events[0].begin - 0.1, log.events[-1].end + 0.1
    text = page(report().as_dict(), log.events, begin=begin, end=end, advice="", title="t")
    parser = Parser(text)
    assert "is the int 3" in parser.text("pre")
    assert "a Python loop, 400 copies" in parser.text("li")
    assert "trace, " in parser.text("title") and "is the int 3" in parser.text("title")


def test_the_log_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_events, "_MOST_EVENTS", 3)
    log = EventLog()
    f = filter_jit(lambda x: x)
    f(X)
    for _ in range(5):
        log.add("compile", f._parts()[0].record, 1.0)
    assert (len(log.events), log.dropped) == (3, 2)


def test_the_sizes_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "empty.html").write_text(
        page({"functions": []}, [], begin=0, end=1, advice="a", title="t")
    )
    assert (tmp_path / "empty.html").stat().st_size < 6_000


def test_functions_that_libraries_jitted_for_themselves_are_folded() -> None:
    rows = [row("a.impl", internal=True), row("mine"), row("b.impl", internal=True)]
    text = page({"functions": rows}, [], begin=0, end=1, advice="", title="t")
    own, folded = text.split("<details><summary>2 functions that libraries jitted")
    assert ">mine<" in own and ".impl<" not in own
    assert folded.count(".impl<") == 2 and ">mine<" not in folded
    assert text.count("<details") == text.count("</details>") == 4
    only = page({"functions": rows[1:2]}, [], begin=0, end=1, advice="", title="t")
    assert "that libraries jitted" not in only
