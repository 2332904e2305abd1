"""Ahead of time: tracing, lowering, compiling, warming up, saving and loading.

**Stages** (`_prepared`, `_stages`). JAX's stages describe a variant's flat program. `Traced`,
`Lowered` and `Compiled` convert their attributes to the user's trees. To flatten the arguments, an
array without memory replaces each ``jax.ShapeDtypeStruct``. This gives the same Structure and
variant as a call with arrays.

**A compiled function** is a FilterJit with its own Cache and a single variant, which calls JAX's
executable (``Cache.insert_compiled``). Its calls are ordinary hits. If a call would need a new
variant, the hooks (`_compiled_calls`) raise an error with the differences, found by `_observe`.

**A file** (`_file`, `_save`, `_load`) holds structures and static values as JSON (`_encode`), and
the program (`_program`) and arrays as bytes. It contains no pickle, because reading a pickle runs
code. JAX's ``serialize_executable`` writes a pickle; `_program` instead stores the fields of JAX's
dataclass. If a version of JAX has different fields, only portable files can be saved. Loading
builds the tree of the stored nodes and flattens it: the C core makes the Structure itself.

A portable file is the traced program, lowered for ``jax.export`` under the original settings and
mesh (`_save.Program`), without calling the user's function.

**Unsupported values.** Each static value is decoded right after it is encoded. A value that would
differ after loading is refused, with its path. Functions and classes are stored by module and
qualified name. A lambda has no such name, but is often a default, as in
``equinox.nn.MLP.__init__``, and is then stored as that default.

XLA can't serialize an executable that it has deserialized: on the CPU, the copy lacks its kernels.
Executables from JAX's persistent cache or from a file are therefore refused.
"""
