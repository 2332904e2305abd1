"""Ahead of time: tracing, lowering, compiling, warming up, saving and loading.

**Stages** (`_prepared`, `_stages`). To flatten the arguments, an array without memory replaces each
``jax.ShapeDtypeStruct``. This gives the same Structure and variant as a call with arrays.

**A compiled or loaded function** (`_compiled_calls`) is a FilterJit with its own Cache, whose
programs exist. Calls are ordinary hits. If a call would need a new program, the hooks raise an error
with the differences, found by `_observe`.

**A file** (`_file`, `_save`, `_load`) holds structures and static values as JSON (`_codes`), and the
programs (`_program`) and arrays as bytes; no pickle, because reading a pickle runs code. Loading
builds the trees of the stored nodes and flattens them: the C core makes the Structures itself.

`save` finds each program by looking up the avals, placements and settings of its trace or
compilation (`_observe._records`) in JAX's caches, without tracing. A portable file is the traced
program, lowered for ``jax.export`` under the original settings and mesh (`_save.Lowering`).

**Unsupported values.** A static value that would differ after loading is refused, with its path.
Functions and classes are stored by module and qualified name. A lambda has no such name, but is often
a default, as in ``equinox.nn.MLP.__init__``, and is then stored as that default.
"""
