"""Ahead of time: tracing, lowering, compiling, warming up, saving and loading.

**Stages** (`_prepared`, `_stages`). JAX's stages describe the flat program of a variant. `Traced`,
`Lowered` and `Compiled` give their attributes in the user's trees. To flatten the arguments, an
array without memory stands for each ``jax.ShapeDtypeStruct``. So the Structure and the variant are
those of a later call with arrays.

**A compiled function** is a FilterJit with its own Cache, which holds one variant. The callable of
the variant is JAX's executable (``Cache.insert_compiled``). A call takes the path of any hit. If a
call would need another variant, the hooks (`_compiled_calls`) raise an error with the differences
that `_observe` finds.

**A file** (`_file`, `_save`, `_load`) holds structures and static values as JSON (`_encode`), and
the program (`_program`) and arrays as bytes. It contains no pickle, because reading a pickle runs
code. JAX's ``serialize_executable`` writes one, so `_program` stores the fields of JAX's dataclass
one by one. For a version of JAX with other fields, only portable files can be saved. Loading builds
the tree of the stored nodes and flattens it, so the C core makes the loaded Structure itself.

A portable file is the traced program, lowered again for ``jax.export`` under the same settings and
mesh as before (`_save.Program`). The user's function is not called again.

**What cannot be saved.** Each static value is decoded as soon as it is encoded. A value that would
not be equal after loading is refused with its path. Functions and classes are stored by module and
qualified name. A lambda has no such name. It is often a default, as in ``equinox.nn.MLP.__init__``,
and is then stored as that default.

XLA cannot serialize an executable that it has deserialized: on the CPU, the copy lacks its kernels
when it runs. So an executable from JAX's persistent cache or from a file is refused.
"""
