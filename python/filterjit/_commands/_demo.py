"""``python -m filterjit demo``: trains a model with equinox.filter_jit and filterjit.filter_jit."""

import argparse
import contextlib
import dataclasses
import gc
import importlib.util
import itertools
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._base._files import replacing
from .._terminal import _rich_progress

# Maps the name of each required module to the package to install.
_NEEDED = {"equinox": "equinox", "optax": "optax", "rich": "rich", "sklearn": "scikit-learn"}
_NEEDED_TO_DRAW = {**_NEEDED, "matplotlib": "matplotlib"}

_EQUINOX, _FILTERJIT = "equinox.filter_jit", "filterjit.filter_jit"
_EPOCHS = 20  # epochs with different batches, which are then repeated
_BLOCK = 100  # steps with one filter_jit before those with the other
_WIDTH = 80  # of text
_ROUNDS, _CALLS = 400, 5  # rounds in which calls are timed, and calls in a round

_CAPTION = (
    "Both trainings start from the same parameters, take the same batches, and run alternately. A "
    "step is timed with the wait for its results, the best of {rounds} rounds; jax.jit takes the "
    "same arrays as a flat list. The noise is the difference between the best of half of the rounds "
    "and that of the others."
)

Step = Callable[[Any, Any, Any, Any], tuple[Any, Any, Any]]
Advance = Callable[[int], None]


@dataclasses.dataclass(frozen=True)
class Task:
    """A learning task: a model, its optimizer's state, a training step, batches and test data."""

    model: Any
    state: Any
    step: Step
    batches: list[tuple[Any, Any]]
    test: tuple[Any, Any]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the first step."""
        return self.model, self.state, *self.batches[0]


class Trainee:
    """One ``filter_jit`` and the results of the training with it.

    Attributes:
        name: the name of the ``filter_jit``.
        jit: the ``filter_jit``.
        step: the jitted training step.
        first: the seconds until the result of the first step.
        traces: how often the step was traced.
        loaded: whether the first step found its program in a program cache.
        losses: the loss of each step.
        parameters: the bytes of each array of the trained model.
        accuracy: the accuracy on the test digits after the last step.
        seconds: the time of all steps.
        call: the time of a step in microseconds, with the wait for its results.
    """

    def __init__(self, name: str, jit: Callable[..., Any], step: Step) -> None:
        self.name = name
        self.jit = jit
        self.step: Any = jit(step)
        self.first = 0.0
        self.traces = 0
        self.loaded = False
        self.losses: list[float] = []
        self.parameters: list[bytes] = []
        self.accuracy = 0.0
        self.seconds = 0.0
        self.call = 0.0

    @property
    def rate(self) -> float:
        """Steps per second."""
        return len(self.losses) / self.seconds

    def count(self) -> None:
        """Sets `traces` and `loaded`."""
        (row,) = self.step.report().as_dict()["functions"]
        self.traces, self.loaded = row["traces"], row["loaded"] > 0


class EquinoxTrainee(Trainee):
    """A Trainee whose ``filter_jit`` does not count: the step does, while JAX traces it."""

    def __init__(self, name: str, jit: Callable[..., Any], step: Step) -> None:
        def counted(model: Any, state: Any, x: Any, y: Any) -> tuple[Any, Any, Any]:
            self.traces += 1
            return step(model, state, x, y)

        super().__init__(name, jit, counted)

    def count(self) -> None:
        pass


def run(options: argparse.Namespace) -> int:
    """Runs the demo and returns its exit status: 1 if the trainings differ, 2 if it cannot start."""
    prefix = _prefix(options.output)
    folder = os.path.dirname(prefix) or "."
    problem = _missing(_NEEDED if options.no_plot else _NEEDED_TO_DRAW)
    if problem is None and not options.no_plot and not os.access(folder, os.W_OK | os.X_OK):
        problem = f"cannot write to the folder {folder!r}"
    if problem is not None:
        print(f"demo: {problem}", file=sys.stderr)
        return 2
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # some encodings lack "µ"

    print(
        f"Training a classifier of digits: {options.steps:,} steps with each filter_jit", flush=True
    )
    import equinox

    from .. import filter_jit, program_cache

    task = make_task(options.batch_size, options.seed)
    equinox_run = EquinoxTrainee(_EQUINOX, equinox.filter_jit, task.step)
    filterjit_run = Trainee(_FILTERJIT, filter_jit, task.step)
    folder = options.program_cache
    cache = contextlib.nullcontext() if folder is None else program_cache(folder)
    with cache, _progress() as bar:
        train(task, (equinox_run, filterjit_run), options.steps, bar("training", 2 * options.steps))
        flat = time_calls(task, (equinox_run, filterjit_run), bar("timing", _ROUNDS))

    differences = compare(equinox_run, filterjit_run)
    _print_table(equinox_run, filterjit_run, flat)
    print(_conclusion(equinox_run, filterjit_run, flat, not differences), end="\n\n")
    if folder is not None:
        print(_saved(equinox_run, filterjit_run, folder), end="\n\n")
    for difference in differences:
        print(f"demo: the trainings differ in {difference}", file=sys.stderr)
    if not options.no_plot:
        try:
            paths = draw(prefix, equinox_run, filterjit_run, flat.call)
        except OSError as e:
            print(f"demo: cannot write the picture: {e}", file=sys.stderr)
            return 1
        print(f"Picture: {', '.join(paths)}")
    return 1 if differences else 0


def _missing(packages: Mapping[str, str]) -> str | None:
    names = [name for module, name in packages.items() if not importlib.util.find_spec(module)]
    return f"missing {', '.join(names)}: pip install 'filterjit[demo]'" if names else None


def _prefix(output: str) -> str:
    """Returns the path of the picture without ``.svg`` and ``.png``."""
    if os.path.isdir(output):
        return os.path.join(output, "demo")
    root, suffix = os.path.splitext(output)
    return root if suffix in (".svg", ".png") else output


# ---- training ----


def make_task(batch_size: int, seed: int) -> Task:
    """Returns the task to train a small MLP on scikit-learn's digits with Adam."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    seed %= 2**32
    train_x, test_x, train_y, test_y = train_test_split(
        (images / 16).astype(np.float32),
        labels.astype(np.int32),
        test_size=0.2,
        random_state=seed,
        stratify=labels,
    )
    model = eqx.nn.MLP(64, 10, width_size=32, depth=2, key=jax.random.key(seed))
    optimizer = optax.adam(1e-3)

    def step(model: Any, state: Any, x: Any, y: Any) -> tuple[Any, Any, Any]:
        def loss_of(model: Any) -> Any:
            logits = jax.vmap(model)(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        loss, gradients = eqx.filter_value_and_grad(loss_of)(model)
        updates, state = optimizer.update(gradients, state)
        return eqx.apply_updates(model, updates), state, loss

    random = np.random.default_rng(seed)
    size = min(batch_size, len(train_x))
    batches = []
    for _ in range(_EPOCHS):
        order = random.permutation(len(train_x))
        for start in range(0, len(order) - size + 1, size):
            chosen = order[start : start + size]
            batches.append((jnp.asarray(train_x[chosen]), jnp.asarray(train_y[chosen])))
    return Task(
        model=model,
        state=optimizer.init(eqx.filter(model, eqx.is_array)),
        step=step,
        batches=batches,
        test=(jnp.asarray(test_x), jnp.asarray(test_y)),
    )


def train(task: Task, trainees: Sequence[Trainee], num_steps: int, advance: Advance) -> None:
    """Trains the model alternately with each trainee, and stores the results in these."""
    import jax
    import numpy as np

    for trainee in trainees:  # the steps are compiled before they are timed
        start = time.perf_counter()
        jax.block_until_ready(trainee.step(*task.arguments)[2])
        trainee.first = time.perf_counter() - start
    progress: dict[str, tuple[Any, Any]] = {t.name: (task.model, task.state) for t in trainees}
    losses: dict[str, list[Any]] = {t.name: [] for t in trainees}
    order = list(trainees)
    for done in range(0, num_steps, _BLOCK):
        block = [
            task.batches[i % len(task.batches)] for i in range(done, min(done + _BLOCK, num_steps))
        ]
        for trainee in order:
            step, append = trainee.step, losses[trainee.name].append
            model, state = progress[trainee.name]
            start = time.perf_counter()
            for x, y in block:
                model, state, loss = step(model, state, x, y)
                append(loss)
            loss.block_until_ready()
            trainee.seconds += time.perf_counter() - start
            progress[trainee.name] = model, state
            advance(len(block))
        order.reverse()  # so that each trainee is first in half of the blocks

    def num_correct(model: Any, x: Any, y: Any) -> Any:
        return (jax.vmap(model)(x).argmax(axis=1) == y).sum()

    for trainee in trainees:
        trainee.count()
        model, _ = progress[trainee.name]
        trainee.losses = [float(loss) for loss in losses[trainee.name]]
        trainee.parameters = [np.asarray(x).tobytes() for x in _arrays_in(model)]
        correct = trainee.jit(num_correct)(model, *task.test)
        trainee.accuracy = int(correct) / len(task.test[1])


def _arrays_in(tree: Any) -> list[Any]:
    import equinox as eqx
    import jax

    return [x for x in jax.tree.leaves(tree) if eqx.is_array(x)]


class Flat(NamedTuple):
    """The same step by ``jax.jit`` on a flat list of arrays, with the wait for its results.

    Attributes:
        call: its time in microseconds.
        noise: how far the times of one run of the demo are apart, in microseconds.
    """

    call: float
    noise: float

    def above(self, call: float) -> float | None:
        """Returns the microseconds by which a time is above this one; None within the noise."""
        above = call - self.call
        return above if abs(above) > self.noise else None


def time_calls(task: Task, trainees: Sequence[Trainee], advance: Advance) -> Flat:
    """Times single steps with each trainee, and by ``jax.jit``, with the wait for their results."""
    import equinox as eqx
    import jax

    traced, static = eqx.partition(task.arguments, eqx.is_array)
    arrays, treedef = jax.tree.flatten(traced)

    def function(*arrays: Any) -> list[Any]:
        return _arrays_in(task.step(*eqx.combine(jax.tree.unflatten(treedef, arrays), static)))

    flat: Any = jax.jit(function)
    # The loss is the last result of each. When it is ready, so are the others.
    callables: list[Any] = [flat, *(t.step for t in trainees)]
    arguments = [tuple(arrays), *(task.arguments for _ in trainees)]
    best = [[float("inf")] * 2 for _ in callables]  # of even and of odd rounds
    flat(*arrays)
    gc.collect()
    gc.disable()
    try:
        for round in range(_ROUNDS):
            for i, (call, args) in enumerate(zip(callables, arguments, strict=True)):
                call(*args)[-1].block_until_ready()
                start = time.perf_counter()
                for _ in range(_CALLS):
                    call(*args)[-1].block_until_ready()
                taken = 1e6 * (time.perf_counter() - start) / _CALLS
                best[i][round % 2] = min(best[i][round % 2], taken)
            advance(1)
    finally:
        gc.enable()
    for trainee, times in zip(trainees, best[1:], strict=True):
        trainee.call = min(times)
    return Flat(min(best[0]), max(abs(even - odd) for even, odd in best))


def compare(equinox_run: Trainee, filterjit_run: Trainee) -> list[str]:
    """Returns in what two trainings differ; they are expected to be equal in every bit."""
    found = []

    def check(what: str, x: Any, y: Any) -> None:
        if repr(x) != repr(y):  # not x != y: a NaN equals a NaN here
            found.append(f"{what}: {equinox_run.name} {x!r}, {filterjit_run.name} {y!r}")

    for i, (x, y) in enumerate(itertools.zip_longest(equinox_run.losses, filterjit_run.losses)):
        check(f"the loss of step {i + 1}", x, y)
        if found:
            break
    check("the test accuracy", equinox_run.accuracy, filterjit_run.accuracy)
    if not filterjit_run.loaded:
        check("the number of traces", equinox_run.traces, filterjit_run.traces)
    if equinox_run.parameters != filterjit_run.parameters:
        found.append("the trained parameters")
    return found


# ---- output ----


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int], Advance]]:
    """Shows a progress bar for each task that is begun on a terminal, and nothing elsewhere."""
    progress = _rich_progress.progress(
        lambda rich: (
            "{task.description:<8}",
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeRemainingColumn(),
        ),
        auto_refresh=False,  # a thread would work while calls are timed
    )
    if progress is None:
        yield lambda description, total: lambda count: None
        return

    def begin(description: str, total: int) -> Advance:
        task = progress.add_task(description, total=total)
        progress.refresh()
        shown = time.monotonic()

        def advance(count: int) -> None:
            nonlocal shown
            progress.advance(task, count)
            if time.monotonic() - shown > 0.1:
                progress.refresh()
                shown = time.monotonic()

        return advance

    with progress:
        yield begin


def _conclusion(equinox_run: Trainee, filterjit_run: Trainee, flat: Flat, equal: bool) -> str:
    """Returns what the table says, in one sentence."""
    above = flat.above(filterjit_run.call)
    percent = 100 * abs(filterjit_run.call / flat.call - 1)
    where = "above" if above is not None and above > 0 else "below"
    beside = "level with" if above is None else f"{percent:.0f} % {where}"
    return textwrap.fill(
        f"{'The same losses to the bit' if equal else 'DIFFERENT results'}; "
        f"{filterjit_run.name} is {equinox_run.call / filterjit_run.call:.1f} times as fast as "
        f"{equinox_run.name}, and {beside} jax.jit on a flat list of arrays.",
        _WIDTH,
    )


def _saved(equinox_run: Trainee, filterjit_run: Trainee, folder: str) -> str:
    """Returns what the program cache has saved, or how it can save something."""
    text = f"The first step with {filterjit_run.name} took {1e3 * filterjit_run.first:.0f} ms"
    if filterjit_run.loaded:
        text += (
            f", as an earlier start had compiled it; {equinox_run.name}, which traces and compiles in "
            f"each start, took {1e3 * equinox_run.first:.0f} ms."
        )
    else:
        text += f"; started again, the demo looks for its program in {folder}."
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _print_table(equinox_run: Trainee, filterjit_run: Trainee, flat: Flat) -> None:
    import rich.box
    from rich.console import Console
    from rich.table import Table

    both = equinox_run, filterjit_run

    def above(call: float) -> str:
        found = flat.above(call)
        return f"within noise (±{flat.noise:.0f})" if found is None else f"{found:+.0f}"

    rows = [
        ("a step, µs", *(f"{x:.0f}" for x in (*(t.call for t in both), flat.call))),
        ("above jax.jit, µs", *(above(t.call) for t in both), ""),
        ("steps per second of training", *(f"{t.rate:,.0f}" for t in both), ""),
        ("final loss", *(f"{t.losses[-1]:.9g}" for t in both), ""),
        ("test accuracy", *(f"{t.accuracy:.2%}" for t in both), ""),
        ("traces", *(str(t.traces) for t in both), ""),
    ]
    console = Console()
    if not console.is_terminal:
        console = Console(width=100, color_system=None)
    table = Table(box=rich.box.ROUNDED if console.is_terminal else rich.box.MARKDOWN)
    table.add_column("")
    table.add_column(equinox_run.name, justify="right")
    table.add_column(filterjit_run.name, justify="right", style="bold")
    table.add_column("jax.jit, flat arrays", justify="right")
    for row in rows:
        table.add_row(*row)
    console.print()
    if console.is_terminal:
        console.print(table)
    else:
        with console.capture() as text:
            console.print(table)
        print("\n".join(line for line in map(str.rstrip, text.get().splitlines()) if line))
    console.print()
    print(textwrap.fill(_CAPTION.format(rounds=_ROUNDS), _WIDTH), end="\n\n")


# The palette of Okabe and Ito, which colour-blind people can distinguish.
_BLUE, _ORANGE, _GREY, _INK = "#0072B2", "#E69F00", "#999999", "#333333"


def _smooth(values: Sequence[float], window: int) -> tuple[list[float], list[float]]:
    """Returns the middles and the means of overlapping windows over the values."""
    at, means = [], []
    for start in range(0, len(values) - window + 1, max(1, window // 2)):
        at.append(start + window / 2)
        means.append(sum(values[start : start + window]) / window)
    return at, means


def draw(prefix: str, equinox_run: Trainee, filterjit_run: Trainee, flat: float) -> list[str]:
    """Draws the losses and the times of a call as SVG and PNG, and returns their paths."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    style = {
        "axes.edgecolor": _INK,
        "axes.labelcolor": _INK,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 12,
        "axes.titleweight": "bold",
        "font.size": 10.5,
        "legend.frameon": False,
        "svg.hashsalt": "filterjit",
        "text.color": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
    }
    with matplotlib.rc_context(style):
        figure = Figure(
            figsize=(10, 3.8), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08, wspace=0.06)
        )
        curves, bars = figure.subplots(1, 2, width_ratios=(1.1, 1))

        window = max(1, min(45, len(filterjit_run.losses) // 10))
        for trainee, look in (
            (equinox_run, {"color": _ORANGE, "linewidth": 5.0, "alpha": 0.6}),
            (filterjit_run, {"color": _BLUE, "linewidth": 1.6, "linestyle": (0, (4, 2))}),
        ):
            curves.plot(*_smooth(trainee.losses, window), label=trainee.name, **look)
        curves.set_yscale("log")
        curves.set_xlim(0, len(filterjit_run.losses))
        curves.xaxis.set_major_formatter("{x:,.0f}")
        curves.set_xlabel("training step")
        curves.set_ylabel(f"cross-entropy, nats\n(mean of {window} steps)")
        same = equinox_run.losses == filterjit_run.losses
        curves.set_title("The same losses, bit for bit" if same else "The losses differ")
        curves.grid(axis="y", color="#dddddd", linewidth=0.8)
        curves.legend()

        names = [equinox_run.name, filterjit_run.name, "jax.jit, flat arrays"]
        values = [equinox_run.call, filterjit_run.call, flat]
        drawn = bars.barh(names, values, color=[_ORANGE, _BLUE, _GREY], height=0.62)
        bars.bar_label(drawn, [f"{value:.0f} µs" for value in values], padding=5)
        bars.invert_yaxis()
        bars.set_xlim(0, 1.2 * max(values))
        bars.tick_params(axis="y", length=0)
        bars.spines["left"].set_visible(False)
        bars.set_xlabel("µs, with the wait for its results")
        bars.set_title("Time of a training step")
        return _save(figure, prefix)


def _save(figure: Any, prefix: str) -> list[str]:
    """Writes both pictures completely before either replaces an older one. Returns their paths."""
    paths = [f"{prefix}.svg", f"{prefix}.png"]
    with replacing(paths[0]) as svg, replacing(paths[1]) as png:
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.savefig(png, format="png", dpi=160)
        svg.flush()  # an error has to occur before the PNG is replaced
    return paths
