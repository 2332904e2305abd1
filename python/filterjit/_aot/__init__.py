"""Ahead of time: tracing, lowering, compiling, warming up, saving and loading.

**Stages** (`_prepared`, `_stages`). JAX's stages describe the flat program of a variant. `Traced`,
`Lowered` and `Compiled` give their attributes in the user's trees. While the arguments are
flattened, an array that takes no memory stands for each ``jax.ShapeDtypeStruct``, so the Structure
and the variant are those of a later call with arrays.

**A compiled function** is a FilterJit with a Cache of its own, which holds one variant whose callable
is JAX's executable (``Cache.insert_compiled``). A call of it takes the same path as any hit and costs
the same, and no code on that path is special to it. Its hooks (`_compiled_hooks`) raise where a
call would need another variant, and name the differences that `_observe` finds.

**A file** (`_file`, `_save`, `_load`) holds structures and static values as JSON (`_encode`), and the
program (`_program`) and arrays as bytes. Nothing in a
file is a pickle, since reading a pickle runs code. JAX's ``serialize_executable`` writes one, so
`_program` stores the fields of JAX's dataclass one by one; for a version of JAX with other fields,
only portable files can be saved. Loading builds the tree of the stored nodes and flattens it, so a
loaded Structure is one that the C core has made itself.

A portable file is the program that was traced, lowered again for ``jax.export`` under the settings and
the mesh that it was lowered under before (`_save.Program`): the user's function is not called again.

**What cannot be saved.** Each static value is decoded as soon as it is encoded; one that would not be
equal after loading is refused with its path. Functions and classes are stored as module and qualified
name. A lambda has no name to find it by, but it is often a default, as in ``equinox.nn.MLP.__init__``,
and is then stored as that default. The sources of the user's modules are stored as digests (`_sources`),
because the program contains the bodies that its functions had: a file whose sources have changed is
refused when it is loaded. XLA cannot serialize an executable again that it has deserialized (on the CPU, the copy lacks
its kernels when it runs), so an executable from JAX's persistent cache or from a file is refused.

**A start from a file** (`_restart`): ``f.compile(..., file=path)`` loads the file if it was written for
the same call of the same function, and else compiles and writes it.
"""
