"""Random nodes of Flax, and dataclasses with slots: how the oracle takes them apart, and how they
are drawn and changed in place."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import jax.tree_util as jtu
from flax import nnx
from flax.core import FrozenDict
from flax.nnx.pytreelib import PytreeState
from flax.typing import HashableMapping
from fuzz_oracle import KINDS, Kind

Draw = Callable[[], Any]


@jtu.register_dataclass
@dataclasses.dataclass(slots=True)
class Slotted:
    a: Any
    meta: Any = dataclasses.field(metadata={"static": True}, default="meta")


class Parameter(nnx.Variable):
    """A Variable whose metadata may be anything."""


class Net(nnx.Module):
    """A Module with any attributes. `flip` is data in one instance and static in another."""


def _keys(mapping: Any) -> list[Any]:
    return sorted(mapping)


def _split_mapping(mapping: Any) -> Any:
    keys = _keys(mapping)
    return [("key", key) for key in keys], [mapping[key] for key in keys]


def _split_parameter(x: Any) -> Any:
    metadata = object.__getattribute__(x, "_var_metadata")
    names = tuple(sorted(metadata))
    aux = [("names", names), *((name, metadata[name]) for name in names)]
    return aux, [object.__getattribute__(x, "_raw_value")]


def _names(x: Any) -> tuple[list[str], list[str]]:
    """Returns the names of the data attributes and of the static ones, in order."""
    nodes, names = x._pytree__nodes, sorted(vars(x))
    return [n for n in names if nodes.get(n)], [
        n for n in names if not nodes.get(n) and n != "_pytree__nodes"
    ]


def _split_net(x: Any) -> Any:
    data, static = _names(x)
    nodes = tuple(sorted(x._pytree__nodes.items()))
    aux = [("data", tuple(data)), ("nodes", nodes), *((n, vars(x)[n]) for n in static)]
    return aux, [vars(x)[n] for n in data]


def make_net(nodes: Any, attributes: dict[str, Any]) -> Any:
    made = object.__new__(Net)
    object.__setattr__(made, "_pytree__nodes", HashableMapping(dict(nodes)))
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made


def _build_net(x: Any, aux: list[Any], children: list[Any]) -> Any:
    data, static = _names(x)
    values = [*zip(data, children, strict=True), *zip(static, aux[2:], strict=True)]
    return make_net(aux[1], dict(values))


KINDS.update(
    {
        Slotted: Kind(
            "dataclass with slots",
            lambda x: ([("meta", x.meta)], [x.a]),
            lambda x, aux, children: Slotted(*children, *aux),
        ),
        FrozenDict: Kind(
            "FrozenDict",
            lambda x: _split_mapping(x._dict),
            lambda x, aux, children: FrozenDict(
                dict(zip(aux, children, strict=True)), __unsafe_skip_copy__=True
            ),
        ),
        nnx.State: Kind(
            "State",
            lambda x: _split_mapping(x._mapping),
            lambda x, aux, children: nnx.State(dict(zip(aux, children, strict=True))),
        ),
        Parameter: Kind(
            "Variable",
            _split_parameter,
            lambda x, aux, children: Parameter._new(
                children[0], dict(zip(aux[0], aux[1:], strict=True))
            ),
        ),
        PytreeState: Kind(
            "PytreeState",
            lambda x: ([("initializing", x.initializing), ("is_setup", x.is_setup)], []),
            lambda x, aux, children: PytreeState(*aux),
        ),
        Net: Kind("NNX Module", _split_net, _build_net),
    }
)


def draw_flax(
    rng: random.Random, inner: Draw, field: Draw, leaf: Draw, items: Callable[[], dict[Any, Any]]
) -> Any:
    match rng.randrange(6):
        case 0:
            return Slotted(inner(), field())
        case 1:
            return FrozenDict(items(), __unsafe_skip_copy__=True)
        case 2:
            return nnx.State(items())
        case 3 | 4:
            names = [name for name in ("meta", "size") if rng.randrange(2)]
            return Parameter._new(inner(), {name: field() for name in names})
    nodes = {"_pytree__state": True, "a": True, "b": True, "flip": bool(rng.randrange(2))}
    attributes = {"_pytree__state": PytreeState(), "a": inner(), "meta": field(), "flip": leaf()}
    if rng.randrange(2):
        attributes["b"] = inner()
    if rng.randrange(2):
        nodes["meta"] = False
    return make_net(nodes, attributes)


def change_flax(rng: random.Random, node: Any, fresh: Draw, field: Draw) -> bool:
    """Changes a node in place. Returns False if it is none of these."""
    set_ = object.__setattr__
    match node:
        case Slotted():
            if rng.randrange(2):
                node.a = fresh()
            else:
                node.meta = field()
        case FrozenDict() | nnx.State():
            name = "_dict" if isinstance(node, FrozenDict) else "_mapping"
            held = object.__getattribute__(node, name)
            key = rng.choice(list(held)) if held else "a"
            match rng.randrange(4):
                case 0:
                    held.pop(key, None)
                case 1:
                    set_(node, name, {**held, key: fresh()})
                case 2 if type(key) in (int, bool):  # 1 for True
                    held[int(key) if type(key) is bool else float(key)] = held.pop(key, 1)
                case _:
                    held[key] = fresh()
        case Parameter():
            metadata = object.__getattribute__(node, "_var_metadata")
            match rng.randrange(4):
                case 0:
                    set_(node, "_raw_value", fresh())
                case 1 if metadata:
                    metadata.pop(rng.choice(list(metadata)))
                case 2:
                    set_(node, "_var_metadata", dict(reversed(metadata.items())))
                case _:
                    metadata[rng.choice(["meta", "size"])] = field()
        case Net():
            attributes, nodes = vars(node), node._pytree__nodes
            match rng.randrange(7):
                case 0:
                    set_(node, "a", fresh())
                case 1:
                    set_(node, "meta", field())
                case 2:
                    attributes.pop(rng.choice(["b", "meta", "a"]), None)
                case 3:
                    set_(node, "b", fresh())
                case 4:
                    flipped = {**nodes, "flip": not nodes["flip"]}
                    set_(node, "_pytree__nodes", HashableMapping(flipped))
                case 5:
                    set_(node, "__dict__", dict(reversed(attributes.items())))
                case _:
                    attributes["size"] = field()
        case _:
            return False
    return True
