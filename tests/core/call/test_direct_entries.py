"""The entries of a Direct, one for each kind of arrays, and the shardings that they remember."""

import gc
import sys
import weakref
from typing import Any

import pytest
from core_support import core
from direct_support import (
    Backend,
    DirectArray,
    Interrupt,
    Layout,
    Sharding,
    interrupt,
    noting,
    planned,
    program_of,
    way_of,
    ways_of,
)
from outcome_support import fail


class TestEntries:
    def kinds(self, count: int) -> list[DirectArray]:
        return [DirectArray(i, f"f32[{i}]") for i in range(count)]

    def plan_each(self, direct: Any, arrays: Any) -> None:
        for x in arrays:
            for _ in range(6000):
                if way_of(direct, x) == "direct":
                    break
            else:
                raise AssertionError(x)

    def test_four_are_kept(self, backend: Backend) -> None:
        direct, arrays = backend.jit(), self.kinds(5)
        self.plan_each(direct, arrays[:4])
        assert direct.num_entries == 4
        assert ways_of(direct, *[[x] for x in arrays[:4] * 3]) == ["direct"] * 12
        direct(arrays[0])  # the one that was used longest ago is now that of arrays[1]
        self.plan_each(direct, arrays[4:])
        assert direct.num_entries == 4
        ways = ways_of(direct, *[[x] for x in arrays])
        assert ways == ["direct", "aval", "direct", "direct", "direct"]

    def test_the_last_one_comes_first(self, backend: Backend) -> None:
        direct, arrays = backend.jit(), self.kinds(3)
        self.plan_each(direct, arrays)
        asked: list[Any] = []
        backend.parts["aval"] = noting(asked, backend.parts["aval"])
        for i, entries in ((0, 3), (0, 1), (1, 3), (0, 2), (2, 3)):
            asked.clear()
            x = DirectArray(1, f"f32[{i}]")
            assert way_of(direct, x) == "direct"
            assert asked.count(x) == entries

    def test_calls_are_noted_ever_more_seldom(self, backend: Backend) -> None:
        direct = backend.jit()
        backend.context.after = 1
        described: list[Any] = []
        backend.parts["layout"] = noting(described, backend.parts["layout"])
        for i in range(600):
            assert way_of(direct, DirectArray(i, f"f32[{i}]")) in ("waiting", "aval")
            assert direct.num_entries == min(4, len(described))
        noted = [x.value for x in described]
        assert noted == [1, 3, 5, 7, 16, 53, 202]

    def test_forget(self, backend: Backend) -> None:
        x = DirectArray()
        direct, other = planned(backend, x), planned(backend, x)
        backend.context.after = 2
        backend.context.forget()
        for d in (direct, other):
            assert ways_of(d, *[[x]] * 4) == ["waiting"] * 3 + ["direct"]
        assert backend.plans == 4

    def test_forget_drops_what_entries_hold(self, backend: Backend) -> None:
        x = DirectArray(sharding=Sharding("mine"))
        sharding = weakref.ref(x.sharding)
        direct = backend.jit()
        direct(x)
        del x
        assert sharding() is not None
        backend.context.forget()
        direct.jitted.programs.clear()
        direct(DirectArray())
        assert sharding() is None

    def test_clear_cache(self, backend: Backend) -> None:
        x = DirectArray()
        direct = planned(backend, x)
        backend.context.after = 0
        assert direct.clear_cache() == "cleared" and direct.cleared == 1
        assert direct.num_entries == 0
        assert ways_of(direct, [x], [x]) == ["waiting", "direct"]

    def test_clear_cache_of_a_callable_without(self, backend: Backend) -> None:
        with pytest.raises(AttributeError, match="clear_cache"):
            core.Direct(backend.context, len, None).clear_cache()

    def test_after_changes(self, backend: Backend) -> None:
        x = DirectArray()
        direct = backend.jit()
        backend.context.after = sys.maxsize
        assert ways_of(direct, *[[x]] * 9) == ["waiting"] * 9
        backend.context.after = 3
        assert ways_of(direct, [x], [x]) == ["waiting", "direct"]

    @pytest.mark.parametrize("part", ["aval", "sharding", "committed", "layout", "setting"])
    def test_a_note_that_fails(self, backend: Backend, part: str) -> None:
        x, before = DirectArray(), backend.parts[part]
        direct = backend.jit()
        backend.parts[part] = fail
        assert way_of(direct, x) == "waiting" and direct.num_entries == 0
        backend.parts[part] = before
        assert ways_of(direct, *[[x]] * 3) == ["waiting", "direct", "direct"]


class TestShardings:
    def test_equal_ones_are_remembered(self, backend: Backend) -> None:
        compared: list[int] = []

        def fresh() -> Sharding:
            return Sharding("one", lambda: compared.append(1))

        x = DirectArray(sharding=fresh())
        direct = backend.jit()
        # Results have the very sharding, so that they are not compared.
        program_of(direct, x).made = lambda raw, j: DirectArray(raw, sharding=x.sharding)
        direct(x), direct(x)
        backend.context.after = 10**6
        other = fresh()
        compared.clear()
        for _ in range(5):
            direct(DirectArray(sharding=other))
        assert len(compared) == 2, "both sides of one comparison"
        for _ in range(3):
            direct(DirectArray(sharding=fresh()))
        assert len(compared) == 2 + 3 * 2 and direct.counts["direct"] == 9

    def test_comparisons_that_fail(self, backend: Backend) -> None:
        direct = planned(backend, DirectArray())
        direct(DirectArray())
        broken = DirectArray(sharding=Sharding("one", fail))
        assert way_of(direct, broken) == "sharding"
        interrupted = DirectArray(sharding=Sharding("one", interrupt))
        for _ in range(2):
            with pytest.raises(Interrupt):
                direct(interrupted)
        assert way_of(direct, DirectArray()) == "direct"

    def test_layouts_that_fail(self, backend: Backend) -> None:
        direct = planned(backend, DirectArray(1, "f32[3,4]"))
        x = DirectArray(1, "f32[3,4]", layout=Layout("rows", fail))
        assert way_of(direct, x) == "layout"


def test_the_collector_sees_what_entries_hold(backend: Backend) -> None:
    x = DirectArray()
    direct = planned(backend, x)
    assert direct in gc.get_referrers(program_of(direct, x).handlers)
