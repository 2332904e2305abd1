"""Direct and DirectContext: the objects, what their calls do, and threads.

direct_support.py has a stand-in for JAX.  Its programs note whether they were run with arrays that
they were not compiled for, and `way_of` compares each result with that of the right program.
"""

import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from core_support import core
from direct_support import (
    ROWS,
    Backend,
    DirectArray,
    DirectHost,
    DirectKeys,
    DirectScalar,
    Layout,
    Sharding,
    planned,
    program_of,
)
from thread_support import in_threads

PARTS: tuple[Any, ...] = (
    *(DirectArray, *[len] * 5, DirectKeys, len, len, DirectHost, DirectScalar),
    *(len, len, len, (), *[len] * 5),
)


class TestContext:
    def test_defaults(self, backend: Backend) -> None:
        context = core.DirectContext(*PARTS)
        assert (context.enabled, context.after) == (0, 0)
        context.enabled, context.after = 1, 7
        assert (context.enabled, context.after) == (1, 7)
        assert context.forget() is None

    @pytest.mark.parametrize("change", [{0: 1}, {6: 1}, {9: 1}, {10: 1}, {14: []}, {14: None}])
    def test_bad_parts(self, change: Any) -> None:
        parts = list(PARTS)
        for i, part in change.items():
            parts[i] = part
        with pytest.raises(TypeError, match="takes 20 objects"):
            core.DirectContext(*parts)

    def test_bad_arguments(self) -> None:
        parts = list(PARTS)
        for wrong in ((), parts[:-1], [*parts, len]):
            with pytest.raises(TypeError):
                core.DirectContext(*wrong)
        with pytest.raises(TypeError):
            core.DirectContext(*parts, more=1)
        with pytest.raises(TypeError):
            type("Sub", (core.DirectContext,), {})
        context = core.DirectContext(*parts)
        for name, value in (("enabled", "yes"), ("after", 1.5), ("other", 1)):
            with pytest.raises((TypeError, AttributeError)):
                setattr(context, name, value)

    def test_it_is_freed(self) -> None:
        backend = Backend()
        ref = weakref.ref(backend)
        direct = planned(backend, DirectArray())
        assert gc.is_tracked(backend.context) and backend.context in gc.get_referents(direct)
        del backend, direct
        gc.collect()
        assert ref() is None


WHERE = ["configuration", "setting", "sharding", "layout", "plan", "refusal"]


class TestDirect:
    def test_bad_arguments(self, backend: Backend) -> None:
        for args, kwargs in (
            ((), {}),
            ((backend.context, len), {}),
            ((backend.context, len, len, len), {}),
            ((None, len, len), {}),
            ((backend.context, len, len), {"more": 1}),
        ):
            with pytest.raises(TypeError):
                core.Direct(*args, **kwargs)
        with pytest.raises(TypeError):
            type("Sub", (core.Direct,), {})

    def test_attributes(self, backend: Backend) -> None:
        direct = backend.jit()
        assert direct.jitted.calls == 0
        assert direct.refusal is None and direct.num_entries == 0 and direct.counts == {}
        with pytest.raises(AttributeError, match="no_such"):
            _ = direct.no_such
        for name in ("jitted", "refusal", "num_entries", "counts", "other", "name"):
            with pytest.raises((AttributeError, TypeError)):
                setattr(direct, name, 1)
        with pytest.raises(TypeError):
            getattr(direct, 3)  # type: ignore[call-overload]

    @pytest.mark.parametrize("where", WHERE)
    def test_a_cycle_through_an_entry_is_freed(self, backend: Backend, where: str) -> None:
        class Value(Layout):
            me: Any
            value: Any

        class Text(str):
            me: Any

        value: Any = Value("value")
        if where == "refusal":
            backend.parts["plan"] = lambda *args: Text("no")
        x = DirectArray(name="f32[3,4]", layout=value if where == "layout" else ROWS)
        if where == "configuration":
            backend.configuration = (True, value)
        if where == "setting":
            backend.settings[0].value = value
        if where == "sharding":
            x = DirectArray(sharding=value)
        direct = backend.jit()
        if where == "plan":
            value.value = 5
            program_of(direct, x).constants = (value,)
        direct(x), direct(x)
        if where == "refusal":
            value = direct.refusal
        assert direct.num_entries == (where != "refusal")
        value.me = direct
        ref = weakref.ref(direct)
        backend.configuration, backend.settings[0].value = (), None
        del value, direct, x
        gc.collect()
        assert ref() is None

    def test_it_dies_in_its_own_call(self, backend: Backend) -> None:
        x = DirectArray(1)
        box = [planned(backend, x)]
        program = program_of(box[0], x)

        def consume(results: Any, handlers: Any) -> Any:
            box.clear()
            gc.collect()
            return [handler(results) for handler in handlers]

        backend.parts["consume"] = consume
        output = box[0](x)
        assert box == [] and output.arrays[0].value == program.values([x])


class TestThreads:
    @pytest.fixture(autouse=True)
    def _switches(self) -> Iterator[None]:
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(before)

    def test_threads(self, backend: Backend) -> None:
        """Threads plan, call, feed back, clear and forget at once."""
        direct = backend.jit()

        def work(number: int) -> None:
            state = DirectArray(number, f"f32[{number % 3}]")
            for i in range(150):
                program = program_of(direct, state)
                expected = program.values([state])
                (state,) = direct(state).arrays
                assert state.value == expected and state.key == program.key[1][0]
                if i % 5 == 0:
                    direct(DirectArray(i, f"f32[{i % 6}]", Sharding("one")))
                if number == 0 and i % 20 == 0:
                    direct.clear() if i % 40 else backend.context.forget()
                    gc.collect()

        in_threads(work)
        assert backend.wrong == [] and direct.counts["direct"] > 100
        assert direct.num_entries <= 4
