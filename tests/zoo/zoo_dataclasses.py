"""Programs with dataclasses and Modules as configurations."""

import dataclasses
import itertools
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from zoo_support import FIELDS, IDENTITY, STATIC, X, program, told

T = TypeVar("T")


def setter(name: str, value: Any) -> Any:
    """Returns a function that sets an attribute, of a frozen object too."""
    return lambda x: object.__setattr__(x, name, value)


# ---- dataclasses ----


@dataclasses.dataclass(frozen=True)
class Solver:
    steps: Any = 1
    rate: Any = 0.5


@program(lambda: Solver(1), lambda: Solver(True), lambda: Solver(1.0))
def frozen_dataclass(cfg, x):
    return x * cfg.rate, jnp.asarray(cfg.steps)


@program(lambda: Solver(2), lambda: Solver(2, 1), change=setter("rate", -0.0))
def frozen_dataclass_that_is_set(cfg, x):
    return 1 / (x * cfg.rate)


@dataclasses.dataclass
class Training:
    lr: Any = 1
    betas: list[Any] = dataclasses.field(default_factory=lambda: [0, 1])


@program(Training, lambda: Training(1.0), lambda: Training(True), change=setter("lr", 3))
def mutable_dataclass(cfg, x):
    return x * cfg.lr, jnp.asarray(cfg.lr)


@program(
    Training,
    lambda: Training(betas=[False, 1]),
    lambda: Training(betas=[-0.0, 1]),
    change=lambda c: c.betas.append(2),
)
def list_in_a_mutable_dataclass(cfg, x):
    return sum(1 / (x + b) for b in cfg.betas), [jnp.asarray(b) for b in cfg.betas]


@dataclasses.dataclass(frozen=True)
class Adam(Solver):
    eps: Any = 1e-8


@program(
    lambda: Adam(eps=0.0), lambda: Adam(eps=-0.0), lambda: Adam(eps=0), change=setter("eps", 1)
)
def dataclass_hierarchy(cfg, x):
    return 1 / (x * jnp.asarray(cfg.eps)), x * cfg.rate


@dataclasses.dataclass(frozen=True)
class Inherits(Solver):
    pass


class Undecorated(Solver):
    """Inherits the generated equality."""


class TwiceUndecorated(Undecorated):
    def scale(self) -> Any:
        return self.steps


@program(lambda: Undecorated(2), lambda: Undecorated(2.0), change=setter("steps", 3))
def dataclass_that_inherits_equality(cfg, x):
    return x * cfg.steps


@program(lambda: TwiceUndecorated(1), lambda: TwiceUndecorated(True), lambda: Undecorated(2))
def dataclass_that_inherits_equality_twice(cfg, x):
    return told(x * cfg.steps, type(cfg), cfg.steps)


class UndecoratedTraining(Training):
    """Its inherited ``__hash__`` is None."""


@program(
    UndecoratedTraining,
    lambda: UndecoratedTraining(1.0),
    change=lambda c: c.betas.append(-1),
)
def mutable_dataclass_that_inherits_equality(cfg, x):
    return x * cfg.lr * sum(cfg.betas)


@dataclasses.dataclass(frozen=True)
class HashesItsList:
    names: Any

    def __hash__(self) -> int:
        return hash(self.names)


class UndecoratedHashesItsList(HashesItsList):
    pass


@program(
    lambda: UndecoratedHashesItsList([1, 2]),
    lambda: UndecoratedHashesItsList([1, 2.0]),
    change=lambda c: c.names.append(2),
)
def dataclass_whose_hash_raises(cfg, x):
    return x * sum(cfg.names)


@dataclasses.dataclass(unsafe_hash=True, order=True)
class Ordered:
    level: Any = -1


@program(Ordered, lambda: Ordered(-1.0), change=setter("level", -2))
def dataclass_with_an_unsafe_hash(cfg, x):
    return x * cfg.level


class UndecoratedOrdered(Ordered):
    pass


@program(UndecoratedOrdered, lambda: UndecoratedOrdered(-1.0), change=setter("level", -2))
def dataclass_that_inherits_an_unsafe_hash(cfg, x):
    return x * cfg.level


@dataclasses.dataclass(eq=False)
class Identity:
    scale: Any = 2


@program(Identity, lambda: Identity(2.0), change=setter("scale", 3), shares=IDENTITY)
def dataclass_without_equality(cfg, x):
    return x * cfg.scale


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    low: Any = 0.0
    high: Any = 1


@program(Slots, lambda: Slots(-0.0), lambda: Slots(0.0, True), change=setter("low", -0.0))
def dataclass_with_slots(cfg, x):
    return 1 / jnp.asarray(cfg.low), jnp.asarray(cfg.high), x


class UndecoratedSlots(Slots):
    __slots__ = ()


@program(UndecoratedSlots, lambda: UndecoratedSlots(-0.0), change=setter("low", 1.0))
def dataclass_with_slots_that_inherits_equality(cfg, x):
    return x / jnp.asarray(cfg.low)


@dataclasses.dataclass(frozen=True)
class Derived:
    degrees: dataclasses.InitVar[Any]
    turns: Any = dataclasses.field(init=False)

    def __post_init__(self, degrees: Any) -> None:
        object.__setattr__(self, "turns", degrees // 180)


@program(lambda: Derived(180), lambda: Derived(180.0), lambda: Derived(360))
def dataclass_with_init_var(cfg, x):
    return x * cfg.turns


_runs = itertools.count()


@dataclasses.dataclass(frozen=True)
class Named:
    width: Any
    run: Any = dataclasses.field(default_factory=lambda: next(_runs), compare=False)


@program(lambda: Named(1), lambda: Named(True), lambda: Named(2))
def dataclass_with_a_field_that_is_not_compared(cfg, x):
    return x * cfg.width, jnp.asarray(cfg.width)


@dataclasses.dataclass(kw_only=True)
class KeywordOnly(Training):
    warmup: Any


@program(
    lambda: KeywordOnly(warmup=2),
    lambda: KeywordOnly(warmup=2.0),
    change=lambda c: setattr(c, "warmup", 4),
)
def dataclass_with_keywords_only(cfg, x):
    return x * cfg.warmup


@dataclasses.dataclass(frozen=True)
class Experiment:
    solver: Any
    training: Any
    tags: Any = ()


@program(
    lambda: Experiment(Adam(1), Undecorated(2), ("a", 1)),
    lambda: Experiment(Adam(1), Undecorated(2.0), ("a", 1)),
    lambda: Experiment(Adam(1), Undecorated(2), ("a", True)),
    lambda: Experiment(Adam(1), Solver(2), ("a", 1)),
    change=lambda c: object.__setattr__(c.training, "steps", 4),
)
def nested_dataclasses(cfg, x):
    return told(x * cfg.training.steps * cfg.solver.rate, cfg)


@dataclasses.dataclass(frozen=True)
class Typed(Generic[T]):
    value: Any


@program(lambda: Typed[int](1), lambda: Typed[float](1.0), lambda: Typed[bool](True))
def generic_dataclass(cfg, x):
    return jnp.asarray(cfg.value), x


Made = dataclasses.make_dataclass("Made", [("n", Any), ("m", Any, 0)], frozen=True)


@program(lambda: Made(1), lambda: Made(1.0), lambda: dataclasses.replace(Made(1), m=False))
def dataclass_made_at_run_time(cfg, x):
    return told(x, cfg)


# A class in the text of `exec` or `python -c`: the code of its own ``__eq__`` has the file name
# "<string>", as that of a generated one.
_text = """
@dataclasses.dataclass
class Coarse:
    name: str
    note: str = ""
    def __eq__(self, other):
        return type(other) is Coarse and self.name == other.name
    def __hash__(self):
        return hash(self.name)
"""
exec(compile(_text, "<string>", "exec"), globals())
_notes = itertools.count()


@program(
    lambda: Coarse("sgd", f"run {next(_notes)}"),  # noqa: F821
    lambda: Coarse("adam"),  # noqa: F821
    change=setter("name", "lion"),
)
def dataclass_with_its_own_equality_in_exec(cfg, x):
    return told(x, cfg.name)


@dataclasses.dataclass(frozen=True)
class Physics:
    """The configuration of a physics-informed network."""

    domain: Any = ((0.0, 1.0), (0.0, 1.0))
    widths: tuple[Any, ...] = (2, 1)
    viscosity: Any = 1
    activation: Any = jnp.tanh


@program(
    Physics,
    lambda: Physics(domain=((-0.0, 1.0), (0.0, 1.0))),
    lambda: Physics(viscosity=1.0),
    lambda: Physics(activation=jnp.sin),
    lambda: Physics(widths=(2, True)),
    change=setter("viscosity", 2),
)
def physics_informed_network(cfg, x):
    def network(t: Any) -> Any:
        for width in cfg.widths:
            t = cfg.activation(t * width)
        return t

    lows = [1 / jnp.asarray(low) for low, _ in cfg.domain]
    residual = jax.grad(network)(0.5) - jnp.asarray(cfg.viscosity) * network(0.5)
    return lows, residual, [jnp.asarray(w) for w in cfg.widths], jnp.asarray(cfg.viscosity)


# ---- Modules ----


class Sub(eqx.Module):
    n: Any


@program(lambda: Sub(2), lambda: Sub(2.0), lambda: Sub(3))
def nested_module(cfg, x):
    return x * cfg.n


@program(lambda: Sub(-1), lambda: Sub(-1.0), change=setter("n", -2))
def nested_module_changed(cfg, x):
    return x * cfg.n


class WithStatic(eqx.Module):
    sub: Sub
    mode: Any = eqx.field(static=True)


@program(
    lambda: WithStatic(Sub(1), ("fast", 1)),
    lambda: WithStatic(Sub(1), ("fast", True)),
    lambda: WithStatic(Sub(True), ("fast", 1)),
    change=lambda c: object.__setattr__(c.sub, "n", 5),
)
def module_in_a_module(cfg, x):
    return told(x * cfg.sub.n, cfg.mode, cfg.sub.n)


@program(
    lambda: Sub([1, 2]),
    lambda: Sub([1, 2.0]),
    lambda: Sub([True, 2]),
    change=lambda c: c.n.append(3),
)
def module_of_a_list(cfg, x):
    return told(x * sum(cfg.n), cfg.n)


@program(
    lambda: Sub({"a": 1, "b": [2]}),
    lambda: Sub({"a": 1, "b": [2.0]}),
    change=lambda c: c.n["b"].append(4),
)
def module_of_a_dict(cfg, x):
    return told(x * sum(cfg.n["b"]), cfg.n)


@program(
    lambda: Sub(np.array([1, 2])),
    lambda: Sub(np.array([1, 3])),
    lambda: Sub(np.array([1.0, 2.0], np.float32)),
    change=lambda c: c.n.__setitem__(0, 7),
    places=FIELDS,
)
def module_of_an_array(cfg, x):
    # JAX keeps what it computed from a NumPy array: `jax.jit` itself is stale without the copy.
    return x[:2] * cfg.n.copy()


@program(
    lambda: Sub(jnp.array([1, 2])),
    lambda: Sub(jnp.array([1, 3])),
    change=setter("n", jnp.array([4, 5])),
    places=("argument", "containers", *FIELDS),
)
def module_of_a_jax_array(cfg, x):
    return x[:2] * cfg.n


LINEAR = eqx.nn.Linear(3, 3, key=jax.random.key(0))


@program(
    lambda: eqx.tree_at(lambda layer: layer.bias, LINEAR, jnp.ones(3)),
    lambda: eqx.tree_at(lambda layer: layer.bias, LINEAR, jnp.zeros(3)),
    places=("argument", "containers", *FIELDS),
)
def linear_layer(cfg, x):
    return cfg(x.astype(float))


class Annotated(eqx.Module):
    weight: Float[Array, " n"]  # noqa: F722
    size: Any = eqx.field(static=True)


@program(
    lambda: Annotated(jnp.ones(3), 1),
    lambda: Annotated(jnp.ones(3), True),
    lambda: Annotated(jnp.ones(3), 1.0),
    places=("argument", "containers", *FIELDS),
)
def jaxtyping_module(cfg, x):
    return x * cfg.weight * cfg.size, jnp.asarray(cfg.size)


@program(
    lambda: Float[Array, "a b"],
    lambda: Float[Array, "b a"],
    lambda: Float[np.ndarray, "a b"],
)
def jaxtyping_type(cfg, x):
    return told(x, cfg.dim_str, cfg.array_type)


class Kind(eqx.Enumeration):
    periodic = "periodic"
    fixed = "fixed"


@program(lambda: Kind.periodic, lambda: Kind.fixed, places=("argument", "containers", *FIELDS))
def enumeration_of_equinox(cfg, x):
    return jnp.where(cfg == Kind.periodic, x, -x)


class State(NamedTuple):
    """The state of a training: an array, and a configuration that is static."""

    weight: Any
    config: Any


@program(
    lambda: State(jnp.ones(3), Solver(1)),
    lambda: State(jnp.ones(3), Solver(True)),
    lambda: State(jnp.ones(3), Undecorated(1.0)),
    places=("argument", "containers", "Partial"),
)
def named_tuple_with_a_config(cfg, x):
    return told(x * cfg.weight, cfg.config)


@program(
    lambda: State(1, [0.0]),
    lambda: State(1, [-0.0]),
    lambda: State(True, [0.0]),
    change=lambda c: c.config.append(1.0),
)
def named_tuple_of_statics(cfg, x):
    return told(x, *cfg)


class Environment(eqx.Module):
    """An environment of reinforcement learning."""

    gravity: Array
    bounds: tuple[Any, Any] = eqx.field(static=True)
    options: dict[str, Any] = eqx.field(static=True)

    def step(self, state: Any) -> Any:
        low, high = self.bounds
        return jnp.clip(state * self.gravity, low, high), 1 / jnp.asarray(low)


@program(
    lambda: Environment(jnp.array(9.8), (0.0, 20), {"frames": 1}),
    lambda: Environment(jnp.array(9.8), (-0.0, 20), {"frames": 1}),
    lambda: Environment(jnp.array(9.8), (0.0, 20), {"frames": True}),
    lambda: Environment(jnp.array(1.6), (0.0, 20), {"frames": 1}),
    change=lambda c: c.options.update(frames=4),
    places=("argument", "containers", *FIELDS),
)
def environment_of_reinforcement_learning(cfg, x):
    return told(x, cfg.options), cfg.step(x)


class Member(eqx.Module):
    weight: Array
    scale: Any = eqx.field(static=True)


def ensemble(scale: Any) -> Any:
    return eqx.filter_vmap(lambda w: Member(w, scale))(jnp.arange(3.0))


@program(
    lambda: ensemble(1),
    lambda: ensemble(True),
    lambda: ensemble(1.0),
    places=("argument", "containers"),
)
def ensemble_by_vmap(cfg, x):
    one = lambda member, x: (member.weight * x * member.scale, jnp.asarray(member.scale))
    return eqx.filter_vmap(one)(cfg, x)


@program(
    lambda: (Sub(1), Solver(0.0)),
    lambda: (Sub(1), Solver(-0.0)),
    lambda: (Sub(True), Solver(0.0)),
    places=STATIC,
)
def closed_over_in_a_scan(cfg, x):
    def step(carry: Any, _: Any) -> Any:
        return carry + jnp.asarray(cfg[0].n, jnp.float32), None

    total, _ = jax.lax.scan(step, 1 / jnp.asarray(cfg[1].steps), X)
    return total, jnp.asarray(cfg[0].n), x
