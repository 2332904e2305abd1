"""Other code looks at all containers, as a memory profiler does, while results are built.

Each program runs in a process of its own, which a container with a NULL item would crash.
"""

import pytest

from support.processes import run_code

SETUP = """
import dataclasses, gc, sys, threading, time
from typing import Any
import equinox as eqx, jax, jax.numpy as jnp
import filterjit

X = jnp.arange(3.0)

def look(*_):
    for x in gc.get_objects():
        if isinstance(x, (list, tuple)):
            for item in x:
                type(item)

@dataclasses.dataclass
class State:
    x: Any
    y: Any
    def __post_init__(self):
        time.sleep(0)  # lets another thread run
        look_now()

jax.tree_util.register_dataclass(State, data_fields=["x", "y"], meta_fields=[])
look_now = lambda: None

class Model(eqx.Module):
    states: list
    pair: tuple

def result(x):
    states = [State(x, [x]), State((x, 1.0), x)]
    return Model([*states, (states[0], [states[1]])], (x, states[0], "static"))
"""

CALLS = """
f = filterjit.filter_jit(lambda x: [[x], (x, [x]), {"a": (x, 1.0)}, Model([x], (x, x))])
g = filterjit.filter_jit(result)
h = filterjit.filter_jit(lambda m, n: [m.states, n])

def calls():
    f(X)
    f.partial(X)()
    model = g(X)
    g.partial(X)()
    h(model, [1, (2, [3])])
    arrays, rest = filterjit.partition(model, eqx.is_array)
    filterjit.combine(arrays, rest)

# A plan for direct calls is made within these: on CPython 3.13, `tuple` of a generator in JAX's
# own code is a tuple with a NULL item to who looks.
for _ in range(20):
    calls()
gc.collect()
gc.freeze()  # a look is short then
"""

THREAD = """
done = threading.Event()
looks = 0

def profile():
    global looks
    while not done.is_set():
        look()
        looks += 1
        time.sleep(0)

thread = threading.Thread(target=profile)
thread.start()
until = time.monotonic() + 5
while time.monotonic() < until:
    calls()
done.set()
thread.join()
assert looks > 10, looks
print("ok")
"""

# On Python 3.11 a collection starts in an allocation, on later ones where Python code runs.
CALLBACK = """
look_now = look
gc.callbacks.append(look)
gc.set_threshold(1)
for _ in range(20):
    calls()
print("ok")
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [THREAD, CALLBACK], ids=["thread", "callback"])
def test_a_profiler(program: str) -> None:
    done = run_code(SETUP + CALLS + program, options=("-X", "faulthandler"))
    assert done.stdout == "ok\n"
