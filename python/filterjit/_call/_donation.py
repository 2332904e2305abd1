"""`Donation`: which arguments give their memory to the program."""

import dataclasses
from typing import Any

from .. import _core
from ._named import NONE, Named


@dataclasses.dataclass(frozen=True)
class Donation:
    """Which arrays are donated.

    Attributes:
        arguments: the arguments, all of whose arrays are donated.
        unused: what to do about memory that no result can take: "jax" leaves the warning to JAX,
            "ignore" silences it.
    """

    arguments: Named = NONE
    unused: str = "jax"

    def __bool__(self) -> bool:
        return bool(self.arguments)

    def __repr__(self) -> str:
        return repr(self.arguments)

    def positions(
        self, variant: _core.Variant, signature: _core.Signature, missing: Any
    ) -> tuple[int, ...]:
        """Returns the positions of the donated arrays among those of a call; arrays in the
        function itself, which are none of them, come first."""
        if not self:
            return ()
        own = variant.function.num_leaves
        arguments = variant.arguments((None,) * (own + variant.structure.num_leaves))[1]
        found: list[int] = []
        for path in self.arguments.paths(signature, arguments, missing):
            first, count = variant.structure._span(*path)
            found.extend(range(own + first, own + first + count))
        return tuple(found)
