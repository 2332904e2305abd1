"""Observation of jitted functions: why a call compiles again, and how long each stage takes.

The room listens to the events of the core (`_listener`). A hit is no event: the C core counts calls,
and reads the clock only while ``Cache.timed`` is set.

**What happened** (`_records`). Each trace writes a record on its variant: the avals and placements of its
arrays, and the configuration of JAX. ``Cache.record`` is the `FunctionRecord` of a function. It refers
to the Cache weakly and outlives it, so that reports can add it to the total of its name. JAX's
monitoring events tell how long JAX traced, lowered and compiled, but not for which function. So each
thread has a stack of the traces that are under way, and an event belongs to the innermost one
(`_recorder`).

**Why a call compiles** (`_explain`). If a variant has the Structure of the arguments, the arrays are
compared with the records of its traces. Otherwise the Structure is compared node by node with those of
the function's variants (`_compare`). The explanation names the differences from the closest program
(`_causes`). Each difference is a row of one table (`_table`).

**What is told of it** (`_retraces`). A retrace is logged, warned of or refused as the function's options
say. A cause that many compilations in a row have is told unasked. `forbid_compile` refuses what would
be traced or compiled (`_forbid`).

**Reports** (`_report`, `_report_output`, `_labels`, `_page`) are made of the records, on request.

**What a program contains** (`_jaxpr`): an unrolled loop and captured arrays, found in the jaxpr of each
new trace. They are kept in words; no jaxpr and no array is kept.
"""
