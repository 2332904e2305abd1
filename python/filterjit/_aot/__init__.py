"""Ahead of time: tracing, lowering, compiling, warming up, saving and loading.

**Stages** (`_prepared`, `_stages`). JAX's stages describe a variant's flat program. `Traced`,
`Lowered` and `Compiled` convert their attributes to the user's trees. To flatten the arguments, an
array without memory replaces each ``jax.ShapeDtypeStruct``. This gives the same Structure and
variant as a call with arrays.

**A compiled or loaded function** (`_compiled_calls`) is a FilterJit with its own Cache, whose
programs exist: one for `Compiled`, and in `Loaded` one for each signature of a file. Calls are
ordinary hits. If a call would need a new program, the hooks raise an error with the differences,
found by `_observe`.

**A file** (`_file`, `_save`, `_load`) holds structures and static values as JSON (`_codes`), and
the programs (`_program`) and arrays as bytes. It contains no pickle, because reading a pickle runs
code. JAX's ``serialize_executable`` writes a pickle; `_program` instead stores the fields of JAX's
dataclass. If a version of JAX has different fields, only portable files can be saved. Loading
builds the trees of the stored nodes and flattens them: the C core makes the Structures itself.

`save` finds each program by looking up the avals, placements and settings of its trace or
compilation (`_observe._records`) in JAX's caches, without tracing. A portable file is the traced
program, lowered for ``jax.export`` under the original settings and mesh (`_save.Lowering`).

**Unsupported values.** Each static value is decoded right after it is encoded. A value that would
differ after loading is refused, with its path. Functions and classes are stored by module and
qualified name. A lambda has no such name, but is often a default, as in
``equinox.nn.MLP.__init__``, and is then stored as that default.

**Executables that XLA can't serialize**, because it has deserialized them or because they have run
and sort, are read from JAX's persistent cache or compiled again (`_executable_compat`).
"""
