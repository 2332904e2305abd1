"""Programs with configurations that libraries make. Those of a library that is not installed are
left out; test_zoo_libraries.py says so."""

import itertools
from typing import Any

from zoo_support import FIELDS, needs, program, told


def setter(name: str, value: Any) -> Any:
    return lambda x: setattr(x, name, value)


@needs("pandas")
def _(pandas: Any) -> None:
    @program(
        lambda: pandas.Timestamp("2026-01-01T12", tz="UTC"),
        lambda: pandas.Timestamp("2026-01-01T13", tz="Etc/GMT-1"),
        lambda: pandas.Timestamp("2026-01-01T12", tz="UTC").as_unit("ns"),
        lambda: pandas.Timestamp("2026-01-01T12:00:00.000000001", tz="UTC"),
        lambda: pandas.Timestamp("2026-01-01T12"),
    )
    def pandas_timestamp(cfg, x):
        return told(x * cfg.hour, cfg, cfg.nanosecond, cfg.unit)

    @program(
        lambda: pandas.Timedelta(1, "h").as_unit("s"),
        lambda: pandas.Timedelta(60, "min").as_unit("ns"),
    )
    def pandas_timedelta(cfg, x):
        return told(x, cfg, cfg.unit)

    @program(
        lambda: pandas.Series([1, 2]),
        lambda: pandas.Series([1.0, 2.0]),
        change=lambda c: c.__setitem__(0, 5),
        places=FIELDS,
    )
    def pandas_series(cfg, x):
        return told(x, list(cfg), str(cfg.dtype))


@needs("attrs")
def _(attrs: Any) -> None:
    @attrs.frozen
    class Frozen:
        n: Any
        low: Any = 0.0

    @program(lambda: Frozen(1), lambda: Frozen(True), lambda: Frozen(1.0), lambda: Frozen(1, -0.0))
    def attrs_frozen(cfg, x):
        return told(x * cfg.n, cfg)

    @attrs.define
    class Mutable:
        n: Any
        names: Any = attrs.field(factory=list)

    @program(
        lambda: Mutable(1, [1]),
        lambda: Mutable(1.0, [1]),
        lambda: Mutable(1, [True]),
        change=setter("n", 3),
    )
    def attrs_mutable(cfg, x):
        return told(x * cfg.n, cfg)

    @program(lambda: Mutable(1, [1]), lambda: Mutable(2), change=lambda c: c.names.append(2))
    def attrs_changed_inside(cfg, x):
        return told(x * cfg.n, cfg)

    runs = itertools.count()

    @attrs.frozen
    class Labelled:
        n: Any
        run: Any = attrs.field(factory=lambda: next(runs), eq=False)

    @program(lambda: Labelled(1), lambda: Labelled(2))
    def attrs_field_that_is_not_compared(cfg, x):
        return x * cfg.n

    class Inherits(Frozen):
        pass

    @program(lambda: Inherits(1), lambda: Inherits(1.0))
    def attrs_inherited(cfg, x):
        return told(x * cfg.n, cfg)


@needs("pydantic")
def _(pydantic: Any) -> None:
    class Frozen(pydantic.BaseModel):
        model_config = {"frozen": True}
        n: Any
        low: float = 0.0

    @program(
        lambda: Frozen(n=1),
        lambda: Frozen(n=True),
        lambda: Frozen(n=1.0),
        lambda: Frozen(n=1, low=-0.0),
    )
    def pydantic_frozen(cfg, x):
        return told(x * cfg.n, cfg)

    class Net(pydantic.BaseModel):
        widths: list[int]

    class Mutable(pydantic.BaseModel):
        lr: Any
        net: Net = Net(widths=[2])

    @program(lambda: Mutable(lr=1), lambda: Mutable(lr=1.0), change=setter("lr", 3))
    def pydantic_mutable(cfg, x):
        return told(x * cfg.lr, cfg)

    @program(
        lambda: Mutable(lr=1, net=Net(widths=[1])),
        lambda: Mutable(lr=1, net=Net(widths=[2])),
        change=lambda c: c.net.widths.append(3),
    )
    def pydantic_changed_inside(cfg, x):
        return told(x * sum(cfg.net.widths), cfg)

    @pydantic.dataclasses.dataclass(frozen=True)
    class Data:
        n: Any

    @program(lambda: Data(1), lambda: Data(True), lambda: Data(1.0))
    def pydantic_dataclass(cfg, x):
        return told(x * cfg.n, cfg)


@needs("omegaconf")
def _(omegaconf: Any) -> None:
    create = omegaconf.OmegaConf.create

    @program(
        lambda: create({"lr": 1, "net": {"widths": [8, 4]}}),
        lambda: create({"lr": 1.0, "net": {"widths": [8, 4]}}),
        lambda: create({"lr": True, "net": {"widths": [8, 4]}}),
        lambda: create({"lr": 1, "net": {"widths": [8, 4.0]}}),
        change=lambda c: c.net.widths.append(2),
    )
    def omegaconf_dict(cfg, x):
        return told(x * cfg.lr, omegaconf.OmegaConf.to_container(cfg))

    @program(lambda: create({"lr": -1}), lambda: create({"lr": -1.0}), change=setter("lr", -2))
    def omegaconf_that_is_set(cfg, x):
        return x * cfg.lr

    @program(
        lambda: create({"a": 1, "b": "${a}"}),
        lambda: create({"a": 1, "b": 1}),
        change=setter("a", 2),
    )
    def omegaconf_interpolation(cfg, x):
        return told(x * cfg.b, omegaconf.OmegaConf.is_interpolation(cfg, "b"))


@needs("ml_collections")
def _(ml_collections: Any) -> None:
    def config(lr: Any, depth: Any = 1) -> Any:
        return ml_collections.ConfigDict({"lr": lr, "net": {"depth": depth}})

    @program(
        lambda: config(1),
        lambda: config(True),
        lambda: config(0.0),
        lambda: config(1, True),
        change=setter("lr", 3),
    )
    def config_dict(cfg, x):
        return told(x * cfg.lr, cfg.to_dict())

    @program(lambda: config(1), lambda: config(2), change=lambda c: setattr(c.net, "depth", 2))
    def config_dict_changed_inside(cfg, x):
        return told(x * cfg.lr, cfg.to_dict())

    @program(
        lambda: ml_collections.FrozenConfigDict(config(1)),
        lambda: ml_collections.FrozenConfigDict(config(True)),
        lambda: ml_collections.FrozenConfigDict(config(1.0)),
        lambda: ml_collections.FrozenConfigDict(config(0)),
    )
    def frozen_config_dict(cfg, x):
        return told(x * cfg.lr, cfg.lr)


@needs("flax.core", "flax.struct")
def _(flax: Any, _: Any) -> None:
    @program(
        lambda: flax.core.FrozenDict({"lr": 1, "net": {"depth": 0.0}}),
        lambda: flax.core.FrozenDict({"lr": True, "net": {"depth": 0.0}}),
        lambda: flax.core.FrozenDict({"lr": 1, "net": {"depth": -0.0}}),
    )
    def frozen_dict_of_flax(cfg, x):
        return told(x * cfg["lr"], cfg["lr"], cfg["net"]["depth"])

    @flax.struct.dataclass
    class Parameters:
        n: Any = flax.struct.field(pytree_node=False)
        more: Any = flax.struct.field(pytree_node=False, default=0.0)

    @program(
        lambda: Parameters(1),
        lambda: Parameters(True),
        lambda: Parameters(1.0),
        lambda: Parameters(1, -0.0),
    )
    def struct_of_flax(cfg, x):
        return told(x * cfg.n, cfg)


@needs("optax")
def _(optax: Any) -> None:
    first, again = optax.sgd(0.5), optax.sgd(0.25)

    @program(lambda: first, lambda: again, lambda: optax.sgd(0.125))
    def optimizer(cfg, x):
        x = x.astype(float)
        updates, _ = cfg.update(x, cfg.init(x), x)
        return updates

    schedule = optax.constant_schedule(1)

    @program(lambda: schedule, lambda: optax.constant_schedule(1.0))
    def learning_rate_schedule(cfg, x):
        return x * cfg(0)


@needs("diffrax")
def _(diffrax: Any) -> None:
    import equinox as eqx

    class Problem(eqx.Module):
        solver: Any
        controller: Any
        steps: Any = eqx.field(static=True)

    def problem(steps: Any = 1, rtol: Any = 0.0, solver: Any = None) -> Any:
        controller = diffrax.PIDController(rtol=rtol, atol=1e-3)
        return Problem(solver or diffrax.Euler(), controller, steps)

    @program(
        problem,
        lambda: problem(True),
        lambda: problem(rtol=-0.0),
        lambda: problem(rtol=0),
        lambda: problem(solver=diffrax.Heun()),
    )
    def ode_configuration(cfg, x):
        term = diffrax.ODETerm(lambda t, y, args: y)
        y = x.astype(float)
        state = cfg.solver.init(term, 0.0, 1.0, y, None)
        y, *_ = cfg.solver.step(term, 0.0, 1.0, y, None, state, False)
        return told(y, cfg.steps, cfg.controller.rtol)

    @program(
        diffrax.Tsit5,
        diffrax.Dopri5,
        lambda: diffrax.ReversibleHeun(),
        lambda: diffrax.Tsit5(scan_kind="lax"),
    )
    def ode_solver(cfg, x):
        return told(x, type(cfg).__name__, getattr(cfg, "scan_kind", None))
