"""The variant that a call uses, and what the call returns."""

from typing import Any

from core_support import Array, Hooks, Linear, make_jit, make_registry, variants


def test_a_hit_calls_no_hook() -> None:
    f = make_jit(lambda x, n: (x, n))
    x = Array()
    for _ in range(5):
        assert f(x, 3) == (x, 3)
    assert f._hooks.calls == ["prepare", "compile", "inspect_new_trace"]
    assert len(variants(f)) == 1


def test_functions_that_hold_arrays() -> None:
    class Model(Linear):
        def __call__(self, x: Any) -> Any:
            return self.weight, x, self.size

    options = Hooks(make_registry())
    one, two = (Model(weight=Array(), size=1) for _ in range(2))
    f, g = make_jit(one, options), make_jit(two, options)
    x = Array()
    assert f(x) == (one.weight, x, 1)
    assert g(x) == (two.weight, x, 1)
    assert f._parts()[0] is g._parts()[0]
    assert options.count("compile") == 1
    assert f._parts()[1] == (one.weight,)
