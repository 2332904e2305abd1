"""Ahead of time: lowered and compiled variants, which know what they were made for."""

from typing import Any

from . import _core
from ._report import recorder


class Lowered:
    """A function traced and lowered for the arguments given to ``lower``.

    Everything that ``jax.stages.Lowered`` offers is offered here, on the flat program.
    """

    def __init__(self, lowered: Any, f: _core.FilterJit, variant: _core.Variant) -> None:
        self.lowered = lowered
        self._f = f
        self._variant = variant

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lowered, name)

    def compile(self, compiler_options: dict[str, Any] | None = None) -> "Compiled":
        """The executable. `compiler_options` go to XLA; raises JAX's ``JaxRuntimeError`` for
        those that it does not know."""
        with recorder.working(self._f.parts()[0].notes, self._variant):
            compiled = self.lowered.compile(compiler_options=compiler_options)
        return Compiled(compiled, self._f, self._variant)


class Compiled:
    """A function compiled for one static structure; calling it with another is an error."""

    def __init__(self, compiled: Any, f: _core.FilterJit, variant: _core.Variant) -> None:
        self.compiled = compiled
        self._f = f
        self._variant = variant

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compiled, name)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the executable.

        Raises TypeError where the arguments' structure or statics are not those that it was
        compiled for, and what JAX raises where their shapes or dtypes are not.
        """
        variant, arrays = self._f.lookup(*args, **kwargs)
        if variant is not self._variant and variant.structure != self._variant.structure:
            raise TypeError(
                "this program was compiled for other static arguments:\n"
                f"  compiled for {self._variant.structure}\n"
                f"  called with  {variant.structure}"
            )
        return self._variant.result(self.compiled(*arrays))
