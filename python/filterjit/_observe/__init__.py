"""Observation of jitted functions: why a call compiles again, and how long each stage takes.

The room listens to the events of the core (`_listener`). A hit is no event: the C core counts
calls, and reads the clock only while ``Cache.timed`` is set.

**What happened** (`_records`). Each trace writes a record on its variant: the avals and placements
of its arrays, and the configuration of JAX. ``Cache.record`` is the `FunctionRecord` of a function.
It refers to the Cache weakly and outlives it, so that reports can add it to the total of its name.

JAX's monitoring events tell how long JAX traced, lowered and compiled, but not for which function.
So each thread has a stack of the current traces, and an event belongs to the innermost one
(`_recorder`).

**Why a call compiles** (`_explain`). If a variant has the Structure of the arguments, the arrays
are compared with the records of its traces. Otherwise the Structure is compared node by node with
those of the function's variants (`_compare`). The explanation names the differences from the
closest program (`_causes`). Each difference is a row of one table (`_table`).

**Messages** (`_retraces`). The options of a function say whether a retrace is logged, warned of or
refused. If many compilations in a row have one cause, a warning tells it by default.
`forbid_compile` refuses traces and compilations (`_forbid`).

**Reports** (`_report`, `_report_output`, `_labels`, `_page`) are made from the records, on request.

**Contents of a program** (`_jaxpr`): an unrolled loop and captured arrays, found in the jaxpr of
each new trace. They are kept as text. No jaxpr and no array is kept.
"""
