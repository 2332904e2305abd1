"""Outputs: what a trace returns to JAX, and the results that are built from it."""

import gc
from typing import Any

import pytest
from core_support import (
    Array,
    Hooks,
    Unhashable,
    Value,
    called,
    core,
    deferred,
    make_jit,
    make_registry,
)


def test_output() -> None:
    f = make_jit(lambda x: (x, 1))
    x = Array()
    variant, _ = f._find_or_compile(x)
    output = variant.finish((x, [x]), lambda: 1 / 0)
    assert output.arrays == (x, x) and output.trace == -1
    assert core.output_flatten(output) == ((x, x), 0)
    assert core.output_flatten(output) == ((x, x), 0), "it keeps its number"
    again = core.output_unflatten(0, [1, 2])
    assert variant.result(again) == (1, [2])
    assert core.output_flatten(again) == ((1, 2), 0)
    for without_arrays in (1, [Unhashable()]):
        with pytest.raises(ZeroDivisionError):
            variant.finish(without_arrays, lambda: 1 / 0)
    with pytest.raises(TypeError):
        variant.finish(1)
    assert variant.result(variant.finish({"a": 1}, lambda: "marker")) == {"a": 1}


@pytest.mark.parametrize("trace, arrays", [(0, ()), (5, (1,)), (-1, (1,)), (-7, (1,))])
def test_outputs_with_a_wrong_trace_or_number_of_arrays(trace: int, arrays: Any) -> None:
    f = make_jit(lambda x: x)
    f._hooks.compile = lambda f, variant: lambda *xs: core.output_unflatten(trace, arrays)
    with pytest.raises(RuntimeError, match="does not belong"):
        f(Array())


def test_outputs_of_another_variant() -> None:
    f = make_jit(lambda x, n: [x] * n)
    f(Array(), 1), f(Array(), 2)
    one, two = (f._find_or_compile(Array(), n)[0] for n in (1, 2))
    with pytest.raises(RuntimeError, match="does not belong"):
        two.result(one.call(Array()))
    with pytest.raises(TypeError):
        two.result(3)


def test_an_output_that_was_never_flattened() -> None:
    """As under ``jax.disable_jit``, the callable returns the Output of `finish`."""

    class Eager(Hooks):
        def compile(self, f: Any, variant: Any) -> Any:
            return super().compile(f, variant).flat  # type: ignore[no-any-return]

    f = make_jit(lambda x, n: (x, n), Eager(make_registry()))
    x = Array()
    assert f(x, 1) == f(x, 1) == (x, 1)
    assert f._hooks.calls == ["prepare", "compile"]


def test_a_trace_outside_of_a_call() -> None:
    f = make_jit(lambda x: [x, 1])
    x = Array()
    variant, arrays = f._find_or_compile(x)
    assert variant.outputs == ()
    variant.call(*arrays)
    (structure,) = variant.outputs
    assert structure.unflatten([x]) == [x, 1]
    done: list[int] = []
    for i in range(3):
        variant.defer(lambda i=i: done.append(i))
    deferred.run_outside(variant, 0)
    deferred.run_outside(variant, 0)
    assert done == [2, 1, 0]
    assert repr(f._find(x)[1]).startswith("Structure(")


class TestOutputsOfAVariant:
    """The structures of the results of its traces."""

    def test_one_a_trace(self) -> None:
        f, variant = called(lambda x: (x, [x.value]), Array(1))
        (first,) = variant.outputs
        f(Array("a"))
        assert variant.outputs[0] is first and len(variant.outputs) == variant.num_traces == 2
        assert first == core.flatten(f._hooks.registry, (Array(), [1]))[1]
        assert variant.outputs[1] != first
        with pytest.raises(AttributeError):
            variant.outputs = ()

    def test_the_repr_of_a_variant(self) -> None:
        f, variant = called(lambda x, n: x, Array(), 3)
        f(Array(), 3)
        assert repr(variant) == f"<Variant of {variant.structure!r}, traces: 1, hits: 1>"
        assert "n=3" in repr(variant)

    def test_they_outlive_the_variant(self) -> None:
        f, variant = called(lambda x: (x, Value("s")), Array())
        outputs = variant.outputs
        del f, variant
        gc.collect()
        assert "s" in repr(outputs[0])


def test_the_number_of_a_trace_is_kept_as_it_was_given() -> None:
    class Number(int):
        pass

    number = Number(7)
    output = core.output_unflatten(number, [3])
    assert output.trace == 7 and core.output_flatten(output)[1] is number
