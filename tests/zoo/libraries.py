"""Configurations that libraries make. Those of a library that is not installed are left out."""

import importlib
from collections.abc import Callable
from typing import Any

from zoo.zoo_support import Static, set_to

STATICS: dict[str, Static] = {}
MISSING: list[str] = []


def needs(*libraries: str) -> Callable[[Callable[..., dict[str, Static]]], None]:
    """Adds the statics that the decorated function makes with these libraries, if it finds them."""

    def declare(make: Callable[..., dict[str, Static]]) -> None:
        try:
            STATICS.update(make(*map(importlib.import_module, libraries)))
        except ImportError as e:
            MISSING.append(e.name or str(e))

    return declare


@needs("attrs")
def _(attrs: Any) -> dict[str, Static]:
    @attrs.frozen
    class Frozen:
        n: Any
        low: Any = 0.0

    @attrs.define
    class Mutable:
        n: Any
        names: Any = attrs.field(factory=list)

    inherits = type("Inherits", (Frozen,), {})
    return {
        "attrs.frozen": Static(
            lambda: [f(*a) for f in (Frozen, inherits) for a in ((1,), (True,), (1.0,), (1, -0.0))]),
        "attrs.define": Static(
            lambda: [Mutable(n, [m]) for n in (1, 1.0) for m in (1, True)], set_to("n", 3)),
        "list in attrs.define": Static(lambda: [Mutable(1, [1])], lambda x: x.names.append(2)),
    }  # fmt: skip


@needs("pydantic")
def _(pydantic: Any) -> dict[str, Static]:
    class Net(pydantic.BaseModel):
        widths: list[int]

    class Mutable(pydantic.BaseModel):
        lr: Any
        net: Net = Net(widths=[2])

    @pydantic.dataclasses.dataclass(frozen=True)
    class Data:
        n: Any

    return {
        "model": Static(lambda: [Mutable(lr=1), Mutable(lr=1.0)], set_to("lr", 3), opaque=True),
        "model in a model": Static(
            lambda: [Mutable(lr=1, net=Net(widths=[n])) for n in (1, 2)],
            lambda x: x.net.widths.append(3), opaque=True),
        "dataclass of pydantic": Static(lambda: [Data(1), Data(True), Data(1.0)]),
    }  # fmt: skip


@needs("omegaconf")
def _(omegaconf: Any) -> dict[str, Static]:
    def config(lr: Any, width: Any = 4) -> Any:
        return omegaconf.OmegaConf.create({"lr": lr, "net": {"widths": [8, width]}})

    make = lambda: [config(1), config(1.0), config(True), config(1, 4.0)]
    return {"DictConfig": Static(make, lambda x: x.net.widths.append(2), opaque=True)}


@needs("ml_collections")
def _(ml_collections: Any) -> dict[str, Static]:
    def config(lr: Any, depth: Any = 1) -> Any:
        return ml_collections.ConfigDict({"lr": lr, "net": {"depth": depth}})

    make = lambda: [config(1), config(True), config(0.0), config(1, True)]
    return {"ConfigDict": Static(make, set_to("lr", 3), opaque=True)}


@needs("flax.core", "flax.struct")
def _(core: Any, struct: Any) -> dict[str, Static]:
    @struct.dataclass
    class Parameters:
        n: Any = struct.field(pytree_node=False)
        more: Any = struct.field(pytree_node=False, default=0.0)

    def frozen(lr: Any, depth: Any) -> Any:
        return core.FrozenDict({"lr": lr, "net": {"depth": depth}})

    return {
        "FrozenDict": Static(
            lambda: [frozen(n, m) for n in (1, True) for m in (0.0, -0.0)], opaque=True),
        "flax.struct": Static(
            lambda: [*(Parameters(n) for n in (1, True, 1.0)), Parameters(1, -0.0)]),
    }  # fmt: skip
