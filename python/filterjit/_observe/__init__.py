"""Observes jitted functions: why a call compiles again, and how long each stage takes.

This room listens to the core's events (`_listener`). A hit sends none: the C core counts calls, and
reads the clock only while ``Cache.timed`` is set.

**Records** (`_records`). Each trace leaves a record on its variant, made by `_recorder`: the avals and
placements of its arrays, and JAX's configuration. A program's jaxpr gives the number of its
equations, and text about captured arrays (`_captured`). No jaxpr or array is stored.

**Explanations** (`_explain`). If a variant has the arguments' Structure, their arrays are compared
with the records of its traces. Otherwise the Structure is compared with those of the function's
variants, node by node (`_compare`). The explanation lists the differences from the closest program
(`_causes`). Each is a row of one table (`_table`).

**Messages** (`_retraces`). A function's options say whether to log a retrace, warn or raise. By
default, a cause of many compilations in a row leads to a warning. `forbid_compile` refuses traces
and compilations (`_forbid`).

**Reports** (`_report`, `_report_output`, `_labels`) are computed from records on request.
"""
