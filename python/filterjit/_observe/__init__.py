"""Observation of jitted functions: why a call compiles again, and how long each stage takes.

No code in this package runs on a hit. The C core counts calls, and reads the clock only while
``Cache.timed`` is set.

**Why a call compiles** (`_explain`). Each trace writes a record on its variant: the avals and
placements of its arrays, and the configuration of JAX (`_records`). For a call that is not a hit,
``FilterJit._find`` returns the Structure of the arguments without compiling anything. If a variant
has this Structure, the arrays are compared with the records of its traces. Otherwise the Structure
is compared node by node with those of the function's variants (`_trees._nodes`, `_compare`), and the
explanation names the differences from the closest one (`_causes`, with the kinds of causes, and
`_remedies`). JAX may compile a call again
without tracing it, for a new sharding; the recorder hears of it, and records where the arrays of the
call are.

**How long it took** (`_report`, `_report_output`). JAX's monitoring events tell how long JAX traced,
lowered and compiled, but not for which function. The flat function of a variant puts its trace on a
stack of its thread, ``Variant.defer`` removes it when the call ends, and an event is attributed to
the innermost trace of its thread, so each second is counted once (`_recorder`). ``Cache.record`` is
the `FunctionRecord` of the function. It refers to the Cache weakly and outlives it, so that reports
can add it to the total of its name (`_records`). With the log of events it is a page (`_page`).

**What compiles too often** (`_misses`). Each trace of a call is compared with the one before it, of the
same function, or of the same code if it is the first one. A cause that many in a row have is told
unasked; a report begins with that of most (`_again`).

**What a program contains** (`_jaxpr`). The hook `inspect_new_trace` reads the jaxpr of each new trace:
an unrolled loop, captured arrays. They are kept in words, no jaxpr and no array.
"""
