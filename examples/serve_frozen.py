"""Serves a model from one file: its weights are constants of the program, and no model is needed.

    python examples/serve_frozen.py

The first process builds a model, freezes it and saves the function. The second one loads the file. It
imports no class of the model, and no weights lie beside the file.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

SERVER = """
import sys, time
import jax.numpy as jnp
import filterjit

predict = filterjit.load(sys.argv[1])
x = jnp.ones(8)
predict(x).block_until_ready()
start = time.perf_counter()
for _ in range(1000):
    out = predict(x)
out.block_until_ready()
print(f"{time.perf_counter() - start:.3f} ms a call, result {out}")
"""


def main() -> None:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import filterjit

    @filterjit.filter_jit
    def predict(model, x):  # type: ignore[no-untyped-def]
        return model(x)

    model = eqx.nn.MLP(8, 2, 32, depth=4, key=jax.random.key(0))
    frozen = predict.freeze(model)
    print("plain:", predict(model, jnp.ones(8)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predict.jit"
        frozen.compile(jnp.ones(8)).save(path)
        print(filterjit.aot.saved_info(path))
        subprocess.run([sys.executable, "-c", SERVER, str(path)], check=True)


if __name__ == "__main__":
    main()
