"""Random static values, which are changed in place, against an oracle of equality in Python."""

import copy
import os
import random
from typing import Any

import pytest
from core_support import Keyed, classify, core, make_registry, static, testing
from statics_support import (
    FIELDS,
    PLACES,
    ByIdentity,
    Color,
    Flat,
    Half,
    Mixed,
    MyFloat,
    MyStr,
    Named,
    Pair,
    Shell,
    Slotted,
    classify_pairs,
)


class Own(Pair):
    """Has an ``__eq__`` of its own; its hash tells whether it has changed."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Own and text(self) == text(other)

    def __hash__(self) -> int:
        return hash(text(self))


WORDS: list[Any] = [0, 1, True, False, 1.0, 0.0, -0.0, float("nan"), 2**70, -1, -2, 1j, "a", b"a"]
WORDS += [None, "1", MyStr("a"), MyFloat(1.0), Color.RED, ByIdentity(), int, (1, "a"), Flat((1,))]
OBJECTS = (Own, Pair, Slotted, Half, Mixed, Keyed, Shell)
EXAMPLES = int(os.environ.get("FILTERJIT_EXAMPLES", "100"))


def classify_all(cls: type, x: Any) -> Any:
    if cls is Own:
        return static(None, None, ("a", "b"))
    # Those of classify_pairs ask by == whether they are fixed, and that is always true here.
    return classify(cls, x) if cls is Keyed else classify_pairs(cls, x)


def attributes(x: Any) -> list[str]:
    return {Keyed: ["key"], Shell: ["inside"]}.get(type(x), ["a", "b"])


def text(x: Any, above: tuple[Any, ...] = ()) -> str:
    """The same for two values that are equal, and for no others."""
    for level, ancestor in enumerate(reversed(above)):
        if ancestor is x:
            return f"up {level}"
    inside = (*above, x)
    kind = f"{type(x).__qualname__}"
    if isinstance(x, (list, tuple)):
        notes = sorted(vars(x).items()) if isinstance(x, Named) else []
        return f"{kind}[{', '.join(text(y, inside) for y in (*x, *notes))}]"
    if isinstance(x, dict):
        return f"{kind}{{{', '.join(text(k) + ':' + text(v, inside) for k, v in x.items())}}}"
    if isinstance(x, (set, frozenset)):
        return f"{kind}<{', '.join(sorted(text(y, inside) for y in x))}>"
    if isinstance(x, OBJECTS):
        return f"{kind}({', '.join(text(getattr(x, n), inside) for n in attributes(x))})"
    return f"{kind} {id(x)}" if isinstance(x, (ByIdentity, Color, type)) else f"{kind} {x!r}"


def make(r: random.Random, depth: int, made: list[Any]) -> Any:
    """A random value; those that can be changed are added to `made`, and may be shared."""
    if depth == 0 or r.random() < 0.25:
        return r.choice(made) if made and r.random() < 0.1 else r.choice(WORDS)
    items = [make(r, depth - 1, made) for _ in range(r.randrange(4))]
    match r.randrange(7):
        case 0:
            return tuple(items)
        case 1:
            return Flat(items)
        case 2:
            return r.choice((set, frozenset))(r.sample(WORDS, r.randrange(4)))
        case 3:
            value: Any = dict(zip(r.sample(["a", "b", 1, (2,)], len(items)), items, strict=True))
        case 4:
            value = Named(r.choice(WORDS), make(r, depth - 1, made))
        case 5:
            cls = r.choice(OBJECTS)
            value = cls(*(items[:2] if cls in OBJECTS[:5] and items else [[*items]]))
        case _:
            value = items
    made.append(value)
    return value


def change(r: random.Random, x: Any, new: Any) -> None:
    if isinstance(x, list):
        r.choice((x.clear, x.reverse, lambda: x.append(new), lambda: x.extend([new] * 2)))()
        x[:1] = r.choice(([new], x[:1]))
    elif isinstance(x, dict):
        first = next(iter(x), "a")
        x[first] = r.choice((new, x.get(first), x.pop(first, None)))
    elif isinstance(x, Named):
        r.choice((lambda: setattr(x, "note", new), vars(x).clear))()
    elif not isinstance(x, Shell):  # which never changes itself
        setattr(x, r.choice(attributes(x)), new)


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_values_that_change(seed: int) -> None:
    r, registry = random.Random(seed), make_registry(classify=classify_all)
    place = PLACES[r.choice(FIELDS)]
    made: list[Any] = []
    value = make(r, 4, made)
    seen: list[tuple[Any, str]] = []
    for _ in range(12):
        now, other = text(value), copy.deepcopy(value)
        structure = core.flatten(registry, place(value))[1]
        hash(structure)
        if text(other) == now:  # no object in it is compared by its identity
            assert testing.match(structure, place(other)) is not None, now
        if len(now) > 2000:
            break
        seen.append((structure, now))
        for s, was in seen:
            for _ in range(2):
                assert (testing.match(s, place(value)) is not None) == (was == now), (was, now)
            assert (s == structure) == (was == now), (was, now)
            assert was != now or hash(s) == hash(structure)
            same = testing.match(s, place(other)) is not None
            assert same == (was == now == text(other)), (was, now)
        if made:
            change(r, r.choice(made), make(r, 2, made))
